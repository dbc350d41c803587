//! One run: starts the load, accounts for a window of its work, and compares the counters.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::counts::{Counts, Frames};
use super::plan::{Pace, Settings};
use super::stage::Stage;
use crate::accounting::tracepoints::{CpuTotals, Task, Tracepoints};
use crate::process::child::{CHILD_TIMEOUT, Child};
use crate::process::clock::now_ns;
use crate::process::stop::StopSignal;
use crate::traffic::load::{LoadArgs, LoadEvent};
use hostnet::cpulist::CpuList;

/// Time from the first frame to the window: caches are warm, and a switch in user space has a flow
/// for each pair of stations.
const WARMUP: Duration = Duration::from_millis(200);
const WARMUP_IN_USER_SPACE: Duration = Duration::from_secs(1);
/// Frames that arrive for longer after the load are of others.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of checks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(20);
/// Frames under way have arrived when no counter has moved for this long.
const QUIET: Duration = Duration::from_millis(20);
/// Attempts at a sample, and the time in nanoseconds that one may always take.
const TRIES: u32 = 100;
const LEAST_SKEW: u64 = 3_000_000;

/// The times and frames of one window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Window {
    /// Its length.
    pub ns: u64,
    /// Frames that the load made.
    pub offered: u64,
    /// Frames that were received behind the switch.
    pub delivered: u64,
    /// CPU time of the load's process, without interrupts and softirqs.
    pub load_ns: u64,
    /// The softirqs `NET_RX` and `NET_TX`, those in ksoftirqd included, on the load's CPU.
    pub softirq_ns: u64,
    /// The same on all other CPUs.
    pub other_softirq_ns: u64,
    /// The processes of a switch, without interrupts.
    pub switch_ns: u64,
    /// The thread that keeps a bridge accelerated.
    pub keeper_ns: u64,
    /// NAPI polls on the load's CPU.
    pub polls: u64,
}

/// A measured run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    /// The window.
    pub window: Window,
    /// The frames of the whole run.
    pub frames: Frames,
    /// Contradictions between the counters of the whole run; none in a good one.
    pub violations: Vec<String>,
}

/// Measures runs.
pub struct Runner<'a> {
    /// Settings of all runs.
    pub settings: &'a Settings,
    /// Ends a measurement.
    pub stop: &'a StopSignal,
}

/// All counters at one moment.
struct Moment {
    at_ns: u64,
    cpus: Vec<CpuTotals>,
    /// CPU time of processes without interrupts, in nanoseconds.
    tasks: BTreeMap<u32, u64>,
    keeper_ns: u64,
    counts: Counts,
}

impl Settings {
    /// Rough duration of a run, with starting and ending its processes.
    pub fn duration(&self) -> Duration {
        const AROUND: Duration = Duration::from_millis(250);
        WARMUP + self.window + AROUND
    }
}

impl<'a> Runner<'a> {
    /// Measures a stage at a rate, or with as many frames as the load's CPU can make.
    pub fn measure(&self, stage: &Stage<'_>, pace: Option<Pace>) -> Result<Measured> {
        let in_user_space = stage.path.forwards_in_user_space();
        let before = stage.counts()?;
        let mirror = stage.mirror()?;
        // Anew for each run: its table of processes has a limit.
        let accounting = Tracepoints::start(CpuList::online()?.as_slice())?;
        let (load, pid) = self.start_load(stage, pace)?;
        self.wait(if in_user_space {
            WARMUP_IN_USER_SPACE
        } else {
            WARMUP
        })?;
        let begin = self.moment(&accounting, stage)?;
        self.wait(self.settings.window)?;
        let end = self.moment(&accounting, stage)?;
        let sent = end_load(load)?;
        settle(stage)?;
        let run = stage.counts()?.since(&before);
        let mut frames = run.frames(sent, in_user_space);
        if let Some((earlier, now)) = mirror.zip(stage.mirror()?) {
            frames.accelerated = Some(now.forwarded.saturating_sub(earlier.forwarded));
            frames.refreshing = now.refreshing.saturating_sub(earlier.refreshing);
        }
        Ok(Measured {
            window: self.window(stage, &begin, &end, pid),
            violations: run.violations(&frames),
            frames,
        })
    }

    fn start_load(&self, stage: &Stage<'_>, pace: Option<Pace>) -> Result<(Child<'a>, u32)> {
        let side = stage.load();
        let load = LoadArgs {
            size: self.settings.size.into(),
            pps: pace.map(|pace| pace.rate),
            burst: pace.map_or(1, |pace| pace.burst),
            stations: Some(stage.traffic.pairs),
            ..LoadArgs::new(&side.device, self.settings.load_cpu)
        };
        let mut pid = 0;
        let load = load.start(self.stop, |command| {
            let process = side.spawn(command)?;
            pid = process.id();
            Ok(process)
        })?;
        Ok((load, pid))
    }

    /// Waits, unless a signal comes.
    fn wait(&self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        loop {
            self.stop.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            sleep(left.min(LOOK));
        }
    }

    /// Samples all counters, within a hundredth of the window.
    fn moment(&self, accounting: &Tracepoints, stage: &Stage<'_>) -> Result<Moment> {
        let most = self.settings.window.as_nanos() as u64 / 100;
        for _ in 0..TRIES {
            let begun = now_ns();
            let sample = accounting.sample()?;
            let counts = stage.counts()?;
            let keeper_ns = stage.keeper_ns()?;
            let tasks = accounting.tasks()?.iter().map(own_time).collect();
            if now_ns() - begun <= most.max(LEAST_SKEW) {
                return Ok(Moment {
                    at_ns: sample.at_ns,
                    cpus: sample.cpus,
                    tasks,
                    keeper_ns,
                    counts,
                });
            }
        }
        bail!(
            "cannot sample all counters at one moment ({TRIES} attempts): \
             the machine is busy; measure when it is idle"
        )
    }

    fn window(&self, stage: &Stage<'_>, begin: &Moment, end: &Moment, load: u32) -> Window {
        let time_of = |pid: &u32| {
            let at = |moment: &Moment| moment.tasks.get(pid).copied().unwrap_or(0);
            at(end).saturating_sub(at(begin))
        };
        let counts = end.counts.since(&begin.counts);
        let mut window = Window {
            ns: end.at_ns - begin.at_ns,
            offered: counts.offered(),
            delivered: counts.sink.packets,
            load_ns: time_of(&load),
            switch_ns: stage.pids().iter().map(time_of).sum(),
            keeper_ns: end.keeper_ns.saturating_sub(begin.keeper_ns),
            ..Window::default()
        };
        for (then, now) in begin.cpus.iter().zip(&end.cpus) {
            let spent = now.since(then);
            if now.cpu == self.settings.load_cpu {
                window.softirq_ns += spent.network_ns();
                window.polls += spent.polls;
            } else {
                window.other_softirq_ns += spent.network_ns();
            }
        }
        window
    }
}

fn own_time(task: &Task) -> (u32, u64) {
    let time = task.time;
    let own = time.running_ns.saturating_sub(time.interrupts_ns());
    (task.pid, own)
}

/// Waits until the last frames have arrived: a switch may still be forwarding them.
fn settle(stage: &Stage<'_>) -> Result<()> {
    let end = Instant::now() + SETTLE_TIMEOUT;
    let mut last = stage.counts()?;
    loop {
        sleep(QUIET);
        let now = stage.counts()?;
        if now == last {
            return Ok(());
        }
        ensure!(
            Instant::now() < end,
            "frames still arrive after the load has ended: is another process sending?"
        );
        last = now;
    }
}

fn end_load(mut load: Child<'_>) -> Result<u64> {
    load.terminate();
    match load.expect(CHILD_TIMEOUT)? {
        LoadEvent::Done { sent, .. } => {
            load.wait()?;
            Ok(sent)
        }
        event => bail!("the load ended with {event:?} instead of its counters"),
    }
}
