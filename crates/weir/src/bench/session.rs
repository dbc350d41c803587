//! A session: the runs of a plan, one after another, in one place.

use super::place::Place;
use super::plan::{Combination, Plan};
use super::report::{Failed, Host, Refused, Report, Run};
use super::runner::{Outcome, Runner, Settings};
use crate::engine::Engine;
use crate::process::cpus::Cpus;
use crate::process::stop::StopSignal;
use crate::report::Machine;
use crate::report::progress_line::ProgressLine;

/// Measures until the plan is done or a signal comes. A failure is printed at once; the rest is
/// still measured.
pub fn run(
    plan: &Plan,
    place: &Place,
    settings: &Settings,
    cpus: &Cpus,
    stop: &StopSignal,
    progress: &ProgressLine,
) -> Report {
    let runner = Runner {
        place,
        settings,
        stop,
    };
    let mut session = Session {
        report: Report::new(host(plan, place, cpus), plan.unavailable.clone()),
        given_up: Vec::new(),
        progress,
    };
    for (round, combination) in plan.runs() {
        session.measure(&runner, round, combination);
        progress.end();
        if let Err(interrupted) = stop.check() {
            session.report.interrupted = true;
            progress.say(&interrupted.to_string());
            break;
        }
    }
    session.report.summarize();
    session.report
}

fn host(plan: &Plan, place: &Place, cpus: &Cpus) -> Host {
    let (notes, load_cpu) = match place {
        Place::Lab(lab) => (lab.notes().to_vec(), Some(cpus.load)),
        Place::Device { .. } => (Vec::new(), None),
    };
    Host {
        machine: Machine::now(cpus.allowed),
        load_cpu,
        app_cpu: cpus.app,
        sender_cpu: plan.uses(Engine::XskHalves).then_some(cpus.sender),
        place: place.name(),
        notes,
    }
}

struct Session<'a> {
    report: Report,
    /// Combinations that were refused or failed: not tried again.
    given_up: Vec<Combination>,
    progress: &'a ProgressLine,
}

impl Session<'_> {
    fn measure(&mut self, runner: &Runner<'_>, round: u32, combination: Combination) {
        if self.given_up.contains(&combination) {
            return;
        }
        self.progress
            .begin(&format!("{combination}, round {round}"));
        match runner.measure(combination) {
            Ok(Outcome::Measured(measured)) => {
                let run = Run::new(combination, round, runner.settings, *measured);
                if !run.check.ok {
                    let violations = run.check.violations.join("; ");
                    let message = format!("the packet counts do not add up: {violations}");
                    self.fail(combination, round, message);
                }
                self.report.runs.push(run);
            }
            Ok(Outcome::Refused { errno, reason }) => {
                self.given_up.push(combination);
                self.report.refused.push(Refused {
                    combination,
                    errno,
                    reason,
                });
            }
            Err(_) if runner.stop.is_raised() => {}
            Err(error) => {
                self.given_up.push(combination);
                self.fail(combination, round, format!("{error:#}"));
            }
        }
    }

    fn fail(&mut self, combination: Combination, round: u32, message: String) {
        let line = format!("error: {combination}, round {round}: {message}");
        self.progress.say(&line);
        self.report.failed.push(Failed {
            combination,
            round,
            message,
        });
    }
}
