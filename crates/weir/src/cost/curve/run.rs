//! A whole curve: every path is set up, every combination is measured.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};

use super::guest::GuestSettings;
use super::measure::{Runner, Settings};
use super::plan::{Choices, Combination};
use super::report::{Failed, Host, Point, Report, Unavailable};
use super::stage::Stage;
use super::{Path, notes};
use crate::accounting::tracepoints::Tracepoints;
use crate::process::stop::StopSignal;
use crate::report::Machine;
use crate::report::progress_line::ProgressLine;
use hostnet::cpulist::{CpuList, pin};

/// Roughly the time to set up a path, without guests and with them.
const SETUP: Duration = Duration::from_millis(100);
const BOOT: Duration = Duration::from_secs(5);
/// A guest ends by itself this long after the measurement should have ended.
const GUEST_GRACE: u64 = 3600;

/// A curve to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its combinations.
    pub choices: Choices,
    /// The settings of all runs.
    pub settings: Settings,
    /// The directory of the guest that receives; `None` for processes.
    pub guest: Option<PathBuf>,
}

impl Options {
    fn guest(&self) -> Result<Option<GuestSettings>> {
        let runs = self.choices.most_runs() * self.settings.duration();
        let seconds = runs.as_secs() + GUEST_GRACE;
        let cpu = self.settings.app_cpu;
        let find = |directory| GuestSettings::find(directory, seconds, cpu);
        self.guest.as_deref().map(find).transpose()
    }
}

/// Measures until every combination is done or a signal comes. This process moves to the load's
/// CPU.
pub fn measure(options: &Options, stop: &StopSignal) -> Result<Report> {
    let Options {
        choices, settings, ..
    } = options;
    // No figure without it: better to fail before the paths are set up.
    drop(Tracepoints::start(&[settings.load_cpu])?);
    let guest = options.guest()?;
    let mut report = Report::new(Host {
        machine: Machine::now(CpuList::allowed()?.as_slice().len()),
        load_cpu: settings.load_cpu,
        app_cpu: settings.app_cpu,
        size: settings.size,
        notes: notes::setting(settings, guest.as_ref(), &choices.paths),
    });
    let stages = stages(options, guest.as_ref(), stop, &mut report.unavailable);
    report.interrupted = stop.is_raised();
    if stages.is_empty() && !report.interrupted {
        let missing = report.unavailable.iter();
        let reasons: Vec<String> = missing
            .map(|it| format!("{}: {}", it.path, it.reason))
            .collect();
        bail!("nothing to measure: {}", reasons.join("; "));
    }
    pin(settings.load_cpu)?;
    let runner = Runner { settings, stop };
    measure_all(choices, &stages, &runner, &mut report);
    report.summarize();
    Ok(report)
}

/// Sets up every path for every number of receivers; the reasons of those that fail go to
/// `unavailable`.
fn stages<'a>(
    options: &Options,
    guest: Option<&GuestSettings>,
    stop: &'a StopSignal,
    unavailable: &mut Vec<Unavailable>,
) -> Vec<Stage<'a>> {
    let choices = &options.choices;
    let mut stages = Vec::new();
    let each = if guest.is_some() { BOOT } else { SETUP };
    let progress = ProgressLine::new(choices.paths.len() * choices.receivers.len(), each, true);
    for &receivers in &choices.receivers {
        for &path in &choices.paths {
            progress.begin(&format!("setting up {path}"));
            let stage = match path.unsupported(receivers, guest.is_some()) {
                Some(reason) => Err(reason.to_owned()),
                None => Stage::make(path, receivers, options.settings.app_cpu, guest, stop)
                    .map_err(|it| format!("{it:#}")),
            };
            progress.end();
            if stop.is_raised() {
                return stages;
            }
            match stage {
                Ok(stage) => stages.push(stage),
                Err(reason) => unavailable.push(Unavailable {
                    path,
                    receivers,
                    reason,
                }),
            }
        }
    }
    stages
}

/// Measures every combination. A failed run is reported at once; the others still run.
fn measure_all(choices: &Choices, stages: &[Stage<'_>], runner: &Runner<'_>, report: &mut Report) {
    let ways: Vec<(Path, u8)> = stages.iter().map(|it| (it.path, it.receivers)).collect();
    let runs: Vec<(u32, Combination)> = choices.runs(&ways).collect();
    let progress = ProgressLine::new(runs.len(), runner.settings.duration(), true);
    for (round, combination) in runs {
        progress.begin(&format!("{combination}, round {round}"));
        let stage = stages
            .iter()
            .find(|it| it.path == combination.path && it.receivers == combination.receivers);
        let Some(stage) = stage else { continue };
        let mut fail = |message: String| {
            progress.say(&format!("error: {combination}, round {round}: {message}"));
            report.failed.push(Failed {
                combination,
                round,
                message,
            });
        };
        match runner.measure(stage, combination) {
            Ok(measured) => {
                let point = Point::new(combination, round, measured);
                if !point.violations.is_empty() {
                    let violations = point.violations.join("; ");
                    fail(format!("the counters disagree: {violations}"));
                }
                report.points.push(point);
            }
            Err(_) if runner.stop.is_raised() => {}
            Err(error) => fail(format!("{error:#}")),
        }
        progress.end();
        if let Err(interrupted) = runner.stop.check() {
            report.interrupted = true;
            progress.say(&interrupted.to_string());
            return;
        }
    }
}
