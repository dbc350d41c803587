//! The whole measurement: every part, with all of its runs.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::measure::Runner;
use super::plan::{BURSTS, FEW, Options, Pace, Part, Traffic};
use super::report::{Failed, Host, Report, Run, TcpRun, Unavailable};
use super::stage::Stage;
use super::tcp::{self, Containers};
use super::{Path, notes, upkeep};
use crate::accounting::tracepoints::Tracepoints;
use crate::process::stop::StopSignal;
use crate::report::Machine;
use crate::report::progress_line::ProgressLine;
use crate::traffic::rate::Rate;
use hostnet::cpulist::{CpuList, pin};

/// The share of the rate of a saturated CPU that is tried first as the highest rate of a path, and
/// the share of that which is tried next.
const HIGHEST: f64 = 0.97;
const LOWER: f64 = 0.95;
/// Such attempts.
const ATTEMPTS: u32 = 8;
/// The share of its rate under overload that a switch in user space is measured at: under overload
/// most of its time goes into frames that it drops.
const COMFORTABLE: f64 = 0.8;
/// The time of the part [`Part::Following`], in windows.
const FOLLOWING: u32 = 3;

/// Measures until every part is done or a signal comes. This process moves to the CPU of processes.
pub fn measure(options: &Options, stop: &StopSignal, progress: bool) -> Result<Report> {
    let settings = &options.settings;
    // No figure without it: better to fail before anything is set up.
    drop(Tracepoints::start(&[settings.load_cpu])?);
    let mut report = Report::new(Host {
        machine: Machine::now(CpuList::allowed()?.as_slice().len()),
        load_cpu: settings.load_cpu,
        app_cpu: settings.app_cpu,
        size: settings.size,
        notes: notes::setting(options),
    });
    pin(settings.app_cpu)?;
    let session = Session {
        options,
        runner: Runner { settings, stop },
        stop,
        progress: ProgressLine::new(runs(options), settings.duration(), progress),
    };
    session.run(&mut report);
    report.interrupted = stop.is_raised();
    report.summarize();
    Ok(report)
}

/// The number of runs if every path is available.
fn runs(options: &Options) -> usize {
    let of = |part| {
        let paths = options.paths(part).len();
        match part {
            Part::Rate => (paths + 1) * options.pairs.len(),
            Part::Entries => 2 * paths + 1,
            Part::Softirq => paths * BURSTS.len(),
            Part::Tcp => paths,
            Part::Following | Part::Attach | Part::Memory => 0,
        }
    };
    let parts: usize = options.parts.iter().map(|part| of(*part)).sum();
    parts * options.rounds as usize
}

struct Session<'a> {
    options: &'a Options,
    runner: Runner<'a>,
    stop: &'a StopSignal,
    progress: ProgressLine,
}

/// The stages that are set up.
type Stages<'a> = BTreeMap<(Traffic, Path), Stage<'a>>;

impl<'a> Session<'a> {
    fn run(&self, report: &mut Report) {
        let mut stages = Stages::new();
        for part in [Part::Rate, Part::Entries, Part::Softirq] {
            if self.options.has(part) && !self.stop.is_raised() {
                self.set_up(part, &mut stages, report);
                match part {
                    Part::Softirq => self.softirq(&stages, report),
                    part => self.rates(part, &stages, report),
                }
            }
        }
        drop(stages);
        self.part(Part::Tcp, report, |report| self.tcp(report));
        let time = self.options.settings.window * FOLLOWING;
        self.part(Part::Following, report, |report| {
            report.following = Some(upkeep::follow(time, self.stop)?);
            Ok(())
        });
        self.part(Part::Attach, report, |report| {
            report.attach = Some(upkeep::attach(self.options.rounds, self.stop)?);
            Ok(())
        });
        self.part(Part::Memory, report, |report| {
            let memory = upkeep::memory(self.options.entries, self.stop)?;
            report.memory = Some(memory);
            Ok(())
        });
    }

    /// Runs a part that may be unavailable as a whole.
    fn part(&self, part: Part, report: &mut Report, run: impl FnOnce(&mut Report) -> Result<()>) {
        if !self.options.has(part) || self.stop.is_raised() {
            return;
        }
        self.progress.begin(part.name());
        if let Err(error) = run(report)
            && !self.stop.is_raised()
        {
            let reason = format!("{error:#}");
            self.progress.say(&format!("{}: {reason}", part.name()));
            report.unavailable.push(Unavailable {
                part,
                path: None,
                reason,
            });
        }
    }

    /// Sets the missing stages of a part up.
    fn set_up(&self, part: Part, stages: &mut Stages<'a>, report: &mut Report) {
        let mut paths = self.options.paths(part);
        if part != Part::Softirq {
            paths.insert(0, Path::Load);
        }
        for traffic in self.options.traffic(part) {
            for &path in &paths {
                let is_needed = path != Path::Load || traffic.idle_entries == 0;
                if self.stop.is_raised() || !is_needed || stages.contains_key(&(traffic, path)) {
                    continue;
                }
                self.progress.begin(&format!("setting up {path}"));
                match Stage::make(path, traffic, &self.options.settings, self.stop) {
                    Ok(stage) => {
                        stages.insert((traffic, path), stage);
                    }
                    Err(_) if self.stop.is_raised() => {}
                    Err(error) => report.add_unavailable(part, path, format!("{error:#}")),
                }
            }
        }
    }

    /// All paths take turns in each round.
    fn rates(&self, part: Part, stages: &Stages<'a>, report: &mut Report) {
        for traffic in self.options.traffic(part) {
            let plain = Traffic {
                idle_entries: 0,
                ..traffic
            };
            // The load alone has no entries: it is measured once for both traffics of a round.
            let load = (plain == traffic).then_some((plain, Path::Load));
            let paths = self.options.paths(part).into_iter();
            let keys = load.into_iter().chain(paths.map(|path| (traffic, path)));
            let stages: Vec<&Stage<'_>> = keys.filter_map(|key| stages.get(&key)).collect();
            let rates: Vec<Result<Option<Pace>>> = stages.iter().map(|it| self.rate(it)).collect();
            for round in 1..=self.options.rounds {
                for (stage, rate) in stages.iter().zip(&rates) {
                    match rate {
                        Ok(rate) => self.one(part, stage, *rate, round, report),
                        Err(error) if round == 1 => {
                            self.failed(report, part, stage.path, None, error);
                        }
                        Err(_) => {}
                    }
                }
            }
        }
    }

    /// The rate that a path is measured at: as many frames as the load can make, except for a
    /// switch in user space.
    fn rate(&self, stage: &Stage<'_>) -> Result<Option<Pace>> {
        if !stage.path.forwards_in_user_space() {
            return Ok(None);
        }
        self.progress
            .begin(&format!("the highest rate of {}", stage.path));
        let saturated = self.runner.measure(stage, None)?.window;
        let pps = saturated.delivered as f64 * 1e9 / saturated.ns as f64 * COMFORTABLE;
        ensure!(pps >= 1.0, "{} forwards nothing", stage.path);
        Ok(Some(Pace {
            rate: Rate(pps as u64),
            burst: 1,
        }))
    }

    fn one(
        &self,
        part: Part,
        stage: &Stage<'_>,
        pace: Option<Pace>,
        round: u32,
        report: &mut Report,
    ) {
        if self.stop.is_raised() {
            return;
        }
        let (path, traffic) = (stage.path, stage.traffic);
        self.progress.begin(&format!("{path}, {}", traffic.name()));
        match self.runner.measure(stage, pace) {
            Ok(measured) => {
                let run = Run::new(part, (path, traffic), pace, round, measured);
                for violation in &run.violations {
                    self.progress
                        .say(&format!("{path}: does not count: {violation}"));
                }
                report.runs.push(run);
            }
            Err(error) => self.failed(report, part, path, Some(round), &error),
        }
        self.progress.end();
    }

    fn failed(
        &self,
        report: &mut Report,
        part: Part,
        path: Path,
        round: Option<u32>,
        error: &anyhow::Error,
    ) {
        if self.stop.is_raised() {
            return;
        }
        let message = format!("{error:#}");
        self.progress.say(&format!("{path} failed: {message}"));
        report.failed.push(Failed {
            part,
            path: Some(path),
            round,
            message,
        });
    }

    fn softirq(&self, stages: &Stages<'a>, report: &mut Report) {
        let traffic = Traffic {
            pairs: FEW,
            idle_entries: 0,
        };
        let rate = match stages.get(&(traffic, Path::Bridge)) {
            Some(bridge) => self.highest_rate(bridge),
            None => Err(anyhow::anyhow!(
                "the rate is the bridge's: measure it too (--path bridge)"
            )),
        };
        let rate = match rate {
            Ok(rate) => rate,
            Err(error) => return self.failed(report, Part::Softirq, Path::Bridge, None, &error),
        };
        for burst in BURSTS {
            let pace = Some(Pace { rate, burst });
            for round in 1..=self.options.rounds {
                for path in self.options.paths(Part::Softirq) {
                    if let Some(stage) = stages.get(&(traffic, path)) {
                        self.one(Part::Softirq, stage, pace, round, report);
                    }
                }
            }
        }
    }

    /// The highest rate that the load reaches and a path delivers without a loss.
    fn highest_rate(&self, stage: &Stage<'_>) -> Result<Rate> {
        let path = stage.path;
        self.progress.begin(&format!("the highest rate of {path}"));
        let saturated = self.runner.measure(stage, None)?.window;
        let mut last = String::new();
        let mut pps = saturated.delivered as f64 * 1e9 / saturated.ns as f64 * HIGHEST;
        for _ in 0..ATTEMPTS {
            let rate = Rate(pps as u64);
            ensure!(rate.0 > 0, "{path} forwards nothing");
            let pace = Pace { rate, burst: 1 };
            let measured = self.runner.measure(stage, Some(pace))?;
            let run = Run::new(
                Part::Softirq,
                (path, stage.traffic),
                Some(pace),
                0,
                measured,
            );
            if run.target_reached && run.loss_percent == 0.0 {
                return Ok(rate);
            }
            last = format!(
                "of {rate} frames a second the load made {:.0}, and {:.1}% were lost",
                run.offered_pps, run.loss_percent
            );
            pps *= LOWER;
        }
        anyhow::bail!(
            "no rate is reached without a loss ({last}): measure when the machine is idle"
        )
    }

    fn tcp(&self, report: &mut Report) -> Result<()> {
        tcp::check()?;
        let mut all = Vec::new();
        for path in self.options.paths(Part::Tcp) {
            match Containers::make(path) {
                Ok(containers) => all.push(containers),
                Err(error) => report.add_unavailable(Part::Tcp, path, format!("{error:#}")),
            }
        }
        for round in 1..=self.options.rounds {
            for containers in &all {
                self.stop.check()?;
                let path = containers.path;
                self.progress.begin(&format!("TCP, {path}"));
                let measured = containers.measure(&self.options.settings, self.stop);
                self.progress.end();
                let throughput = measured.with_context(|| format!("{path}, round {round}"))?;
                report.tcp_runs.push(TcpRun {
                    path,
                    round,
                    gbps: throughput.gbps,
                    retransmits: throughput.retransmits,
                });
            }
        }
        Ok(())
    }
}

impl Options {
    /// Rough duration of all runs.
    pub fn duration(&self) -> Duration {
        self.settings.duration() * runs(self) as u32
    }
}

impl Report {
    /// A reason once for each path, not for each traffic.
    fn add_unavailable(&mut self, part: Part, path: Path, reason: String) {
        let path = Some(path);
        let is_known = self
            .unavailable
            .iter()
            .any(|it| it.path == path && it.reason == reason);
        if !is_known {
            self.unavailable.push(Unavailable { part, path, reason });
        }
    }
}
