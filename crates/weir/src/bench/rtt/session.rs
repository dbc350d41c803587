//! A session: the runs of a plan, one after another.

use super::plan::{Case, Plan};
use super::report::{Failed, Refused, Report};
use super::run::Run;
use super::runner::RttRunner;
use crate::bench::report::Host;
use crate::bench::runner::Outcome;
use crate::report::progress_line::ProgressLine;

/// Measures until the plan is done or a signal comes. A failure is printed at once; the rest is
/// still measured.
pub fn run(plan: &Plan, runner: &RttRunner<'_>, host: Host, progress: &ProgressLine) -> Report {
    let size = runner.settings.size;
    let mut session = Session {
        report: Report::new(host, size, plan.unavailable.clone()),
        progress,
    };
    for (round, case) in plan.runs() {
        session.measure(runner, round, case);
        progress.end();
        if let Err(interrupted) = runner.stop.check() {
            session.report.interrupted = true;
            progress.say(&interrupted.to_string());
            break;
        }
    }
    session.report.summarize();
    session.report
}

struct Session<'a> {
    report: Report,
    progress: &'a ProgressLine,
}

impl Session<'_> {
    /// A way that was refused is not tried again, at any rate, nor a case that failed.
    fn is_given_up(&self, case: Case) -> bool {
        let refused = self.report.refused.iter().any(|it| it.way == case.way);
        refused || self.report.failed.iter().any(|it| it.case == case)
    }

    fn measure(&mut self, runner: &RttRunner<'_>, round: u32, case: Case) {
        if self.is_given_up(case) {
            return;
        }
        self.progress.begin(&format!("{case}, round {round}"));
        match runner.measure(case) {
            Ok(Outcome::Measured(measured)) => {
                let run = Run::new(case, round, *measured);
                if !run.check.ok {
                    let violations = run.check.violations.join("; ");
                    let message = format!("the packet counts do not add up: {violations}");
                    self.fail(case, round, message);
                }
                self.report.runs.push(run);
            }
            Ok(Outcome::Refused { errno, reason }) => self.report.refused.push(Refused {
                way: case.way,
                errno,
                reason,
            }),
            Err(_) if runner.stop.is_raised() => {}
            Err(error) => self.fail(case, round, format!("{error:#}")),
        }
    }

    fn fail(&mut self, case: Case, round: u32, message: String) {
        let line = format!("error: {case}, round {round}: {message}");
        self.progress.say(&line);
        self.report.failed.push(Failed {
            case,
            round,
            message,
        });
    }
}
