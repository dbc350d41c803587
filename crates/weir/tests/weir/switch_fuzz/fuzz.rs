//! The comparison: two bridges, the same frames and events, equal outputs.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use hostnet::softnet;
use testkit::Limit;

use crate::switch_fuzz::plan::Features;
use crate::switch_fuzz::round::{Round, Stop};

/// Which two bridges are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode<'a> {
    /// Neither is accelerated: no difference may be found.
    Plain,
    /// The same, and one has an entry more: a difference must be found.
    Sabotaged,
    Accelerated,
    /// With this defect, which must be found.
    Broken(&'a str),
}

impl<'a> Mode<'a> {
    pub fn defect(self) -> Option<&'a str> {
        match self {
            Self::Broken(name) => Some(name),
            _ => None,
        }
    }
}

pub struct Options<'a> {
    pub mode: Mode<'a>,
    pub seed: u64,
    /// In how many of a hundred seeds bridges are VLAN-aware.
    pub vlans: u64,
    pub ports: usize,
    /// How long it goes on; the longest time to find a difference that is wanted.
    pub limit: Duration,
    pub steps: u64,
    /// Steps of a seed, before the next one begins with new bridges.
    pub steps_a_seed: u64,
    pub is_quiet: bool,
}

/// The sums of a run.
#[derive(Debug, Default, Clone, Copy)]
pub struct Sums {
    pub seeds: u64,
    pub steps: u64,
    pub frames: u64,
    pub outputs: u64,
    pub events: u64,
    /// Streams whose frames came in another order than they were sent, by side.
    pub reordered: [u64; 2],
    /// Bursts whose outputs were not equal when they should have been, but soon after.
    pub late: u64,
    /// Frames of the kernel's own.
    pub background: u64,
    /// Outputs that differed right after a change, when they may.
    pub unsettled: u64,
    /// Seeds that began again because the backlog of a CPU, which all programs share, overflowed.
    pub overrun: u64,
}

/// The first difference.
pub struct Difference {
    pub seed: u64,
    pub step: u64,
    pub text: String,
}

/// How often a seed begins again.
const AGAIN: u64 = 5;

/// Runs seeds one after the other, until the time or the steps are over or there is a difference.
pub fn run(options: &Options<'_>, features: Features) -> Result<(Sums, Option<Difference>)> {
    let started = Instant::now();
    let mut end = End::of(options);
    let mut sums = Sums::default();
    let mut seed = options.seed;
    let mut shown = started;
    while !end.is_there() && sums.steps < options.steps {
        let mut round = Round::new(options, seed, features)
            .with_context(|| format!("cannot make the bridges of seed {seed}"))?;
        let last = options.steps_a_seed.min(options.steps - sums.steps);
        let before = sums;
        let dropped = dropped_at_backlogs()?;
        let found = round.run(last, &mut end, |now| {
            if !options.is_quiet && shown.elapsed() > Duration::from_secs(2) {
                shown = Instant::now();
                progress(&before.plus(now), seed, started);
            }
        });
        sums = before.plus(&round.sums);
        sums.seeds += 1;
        match found {
            Ok(()) => {}
            // Frames of other programs may have filled the backlog; a difference between the bridges comes again.
            Err(Stop::Difference(_))
                if sums.overrun < AGAIN && dropped_at_backlogs()? != dropped =>
            {
                sums.overrun += 1;
                continue;
            }
            Err(Stop::Difference(text)) => {
                let step = round.sums.steps;
                return Ok((sums, Some(Difference { seed, step, text })));
            }
            Err(Stop::Error(error)) => {
                return Err(error)
                    .with_context(|| format!("in step {} of seed {seed}", round.sums.steps));
            }
        }
        seed += 1;
    }
    Ok((sums, None))
}

/// Frames that found the backlog of a CPU full.
fn dropped_at_backlogs() -> Result<u64> {
    let cpus = softnet::softnet()?;
    Ok(cpus.values().map(|cpu| u64::from(cpu.dropped)).sum())
}

/// The end of a run.
pub enum End {
    /// As it was asked for.
    After(Instant, Duration),
    /// Where a difference is wanted: it ends a hang.
    Limit(Limit),
}

impl End {
    fn of(options: &Options<'_>) -> Self {
        match options.mode {
            Mode::Plain | Mode::Accelerated => Self::After(Instant::now(), options.limit),
            Mode::Sabotaged | Mode::Broken(_) => Self::Limit(Limit::new(options.limit)),
        }
    }

    pub fn is_there(&mut self) -> bool {
        match self {
            Self::After(begun, time) => begun.elapsed() >= *time,
            Self::Limit(limit) => limit.is_over(),
        }
    }
}

fn progress(sums: &Sums, seed: u64, started: Instant) {
    let end = if std::io::stderr().is_terminal() {
        "\r"
    } else {
        "\n"
    };
    eprint!("weir: seed {seed}: {}{end}", sums.line(started.elapsed()));
}

impl Sums {
    fn plus(&self, other: &Self) -> Self {
        Self {
            seeds: self.seeds + other.seeds,
            steps: self.steps + other.steps,
            frames: self.frames + other.frames,
            outputs: self.outputs + other.outputs,
            events: self.events + other.events,
            reordered: [0, 1].map(|side| self.reordered[side] + other.reordered[side]),
            late: self.late + other.late,
            background: self.background + other.background,
            unsettled: self.unsettled + other.unsettled,
            overrun: self.overrun + other.overrun,
        }
    }

    pub fn line(&self, elapsed: Duration) -> String {
        format!(
            "{} frames, {} outputs, {} events compared, {:.0} frames/s, reordered {} and {}, late {}, unsettled {}, overrun {}",
            self.frames,
            self.outputs,
            self.events,
            self.frames as f64 / elapsed.as_secs_f64().max(0.001),
            self.reordered[0],
            self.reordered[1],
            self.late,
            self.unsettled,
            self.overrun,
        )
    }
}
