//! One measurement: what it watches while it lasts, and what of that goes into the report.

use std::collections::BTreeMap;
use std::process::{Child, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;

use super::busy_loop::{Progress, ProgressLoad};
use super::proc;
use super::proc::{CpuTimes, Softnet};
use super::tracepoints::{Accounting, Irq, Napi, Task};
use super::watch::{Slices, Watch};
use crate::process::stop::StopSignal;
use crate::process::usage::CpuTime;
use hostnet::cpulist::CpuList;

/// How often the sums are read and the devices asked: the slices of the confidence intervals.
const SLICE: Duration = Duration::from_millis(100);

/// How long a command that was asked to end may take.
const END: Duration = Duration::from_secs(3);

/// Asks devices what they have carried so far.
///
/// `None` if they could not be asked.
pub type Devices<'a> = &'a mut dyn FnMut() -> Option<Vec<DeviceTraffic>>;

/// What to measure.
pub struct Options<'a> {
    /// On which CPUs.
    pub cpus: &'a CpuList,
    /// For how long at most; `None` until the command ends.
    pub duration: Option<Duration>,
    /// Without a load of our own.
    pub passive: bool,
    /// The most that the tracepoints may cost, in percent of one CPU.
    pub limit: f64,
    /// What the devices have carried so far.
    pub devices: Devices<'a>,
    /// What runs meanwhile.
    pub command: Option<Child>,
}

/// What was seen.
pub struct Measured {
    /// How long it was watched.
    pub elapsed: Duration,
    /// Why it ended before its time, if it did.
    pub ended: Option<Ended>,
    /// By progress, one for each CPU; or why not.
    pub progress: Result<Vec<Progress>, String>,
    /// By tracepoints; or why not.
    pub accounting: Result<Accounted, String>,
    /// From /proc/stat, by CPU.
    pub ticks: Result<BTreeMap<usize, CpuTimes>, String>,
    /// From `/proc/net/softnet_stat`, by CPU.
    pub softnet: Result<BTreeMap<usize, Softnet>, String>,
    /// What the devices carried.
    pub devices: Vec<DeviceTraffic>,
    /// How the command ended by itself, if it did.
    pub command: Option<ExitStatus>,
    /// CPU time of this process, without its load.
    pub own_ns: u64,
}

/// Why a measurement ended before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// By Ctrl-C or SIGTERM.
    Interrupted,
    /// It cost more than it may.
    TooDear,
}

/// What the tracepoints told.
pub struct Accounted {
    /// The sums.
    pub slices: Slices,
    /// Who ran.
    pub tasks: Vec<Task>,
    /// Devices' interrupts.
    pub irqs: Vec<Irq>,
    /// NAPI instances.
    pub napis: Vec<Napi>,
    /// Whether the timer's and other CPUs' interrupts were seen.
    pub sees_vectors: bool,
    /// Whether late timers were seen.
    pub sees_late_timers: bool,
    /// What it cost, in percent of one CPU: all the time, pauses included.
    pub own_percent: f64,
    /// What one run of a program took; `None` where the kernel did not time it, and the cost is an
    /// estimate.
    pub own_ns_per_run: Option<f64>,
    /// The share of the time that was looked at; what tasks, interrupts and NAPI instances are
    /// told to have had is for all of it.
    pub observed: f64,
    /// Whether interrupts or NAPI instances may have come that there was no room to list.
    pub lists_full: bool,
}

/// What a device carried while it was watched.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DeviceTraffic {
    /// Its name.
    pub name: String,
    /// The inode of its network namespace.
    pub netns: u64,
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Packets dropped, both ways.
    pub dropped: u64,
    /// When it was last there, if it vanished: seconds since the beginning.
    pub vanished_after: Option<f64>,
}

/// Measures, until the time is over, the command ends, a signal comes or the limit is passed.
pub fn measure(
    options: Options<'_>,
    stop: &StopSignal,
    tick: &dyn Fn(Duration),
) -> Result<Measured> {
    let cpus = options.cpus.as_slice();
    let mut command = options.command.map(|child| Guarded { child });
    let accounting = Accounting::start(cpus).map_err(|error| format!("{error:#}"));
    let views = accounting.as_ref().ok().map(Accounting::views);
    let load = if options.passive {
        Err("not measured: --passive".to_owned())
    } else {
        ProgressLoad::start(cpus, views.as_ref()).map_err(|error| format!("{error:#}"))
    };
    let usage = usage_so_far()?;
    let (ticks, softnet) = (proc::cpu_times(), proc::softnet());
    let mut devices = Traffic::new(options.devices);
    let mut ended = None;
    let mut status = None;
    let begun = Instant::now();
    let mut watch = match accounting {
        Ok(accounting) => Ok(Watch::new(accounting, options.limit)?),
        Err(reason) => Err(reason),
    };
    loop {
        sleep(next_slice(begun, options.duration));
        if let Ok(watch) = &mut watch {
            watch.look()?;
        }
        devices.look(begun);
        tick(begun.elapsed());
        if stop.is_raised() {
            ended = Some(Ended::Interrupted);
        } else if let (true, Ok(watch)) = (options.passive, &watch) {
            let reading = usage_so_far()?.saturating_sub(usage);
            ended = watch.is_too_dear(reading).then_some(Ended::TooDear);
        }
        if let Some(command) = &mut command {
            let ended = command.child.try_wait();
            status = ended.context("cannot wait for the command")?;
        }
        let over = options
            .duration
            .is_some_and(|limit| begun.elapsed() >= limit);
        if over || ended.is_some() || status.is_some() {
            break;
        }
    }
    // All figures end here; only then may anything take its time to end.
    let accounting = match watch {
        Ok(watch) => Ok(watch.finish()?),
        Err(reason) => Err(reason),
    };
    let elapsed = begun.elapsed();
    let (ticks_now, softnet_now) = (proc::cpu_times(), proc::softnet());
    let own_ns = usage_so_far()?.saturating_sub(usage).as_nanos() as u64;
    let progress = load.and_then(|load| load.stop().map_err(|error| format!("{error:#}")));
    if let (Some(command), None) = (&mut command, status) {
        command.end()?;
    }
    Ok(Measured {
        elapsed,
        ended,
        progress,
        accounting,
        ticks: both(ticks, ticks_now, CpuTimes::since),
        softnet: both(softnet, softnet_now, Softnet::since),
        devices: devices.carried(),
        command: status,
        own_ns,
    })
}

/// CPU time of this thread.
fn usage_so_far() -> Result<Duration> {
    let time = CpuTime::of_this_thread().context("cannot ask for this thread's CPU time")?;
    Ok(time.user + time.system)
}

/// Up to the next slice, or the end if that is sooner.
fn next_slice(begun: Instant, duration: Option<Duration>) -> Duration {
    let left = duration.map(|limit| limit.saturating_sub(begun.elapsed()));
    left.map_or(SLICE, |left| left.min(SLICE))
}

/// The difference of two readings, where both are there.
fn both<T>(
    then: Result<BTreeMap<usize, T>>,
    now: Result<BTreeMap<usize, T>>,
    since: impl Fn(&T, &T) -> T,
) -> Result<BTreeMap<usize, T>, String> {
    let text = |error| format!("{error:#}");
    let (then, now) = (then.map_err(text)?, now.map_err(text)?);
    let pairs = now
        .iter()
        .filter_map(|(cpu, now)| Some((*cpu, since(now, then.get(cpu)?))));
    Ok(pairs.collect())
}

/// A command that does not outlive the measurement, nor does what it starts in its process group.
struct Guarded {
    child: Child,
}

impl Guarded {
    /// Asks it to end, and then has it ended.
    fn end(&mut self) -> Result<()> {
        self.signal(Signal::TERM);
        // One that is stopped would not hear it.
        self.signal(Signal::CONT);
        let begun = Instant::now();
        while begun.elapsed() < END {
            let status = self.child.try_wait();
            if status.context("cannot wait for the command")?.is_some() {
                break;
            }
            sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            // Nobody may be left.
            let _ = kill_process_group(pid, signal);
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        // It may have been waited for.
        let _ = self.child.wait();
    }
}

/// What devices carry, until they vanish.
struct Traffic<'a> {
    read: Devices<'a>,
    first: Vec<DeviceTraffic>,
    last: Vec<DeviceTraffic>,
}

impl<'a> Traffic<'a> {
    fn new(read: Devices<'a>) -> Self {
        let first = read().unwrap_or_default();
        Self {
            read,
            last: first.clone(),
            first,
        }
    }

    fn look(&mut self, begun: Instant) {
        let Some(now) = (self.read)() else { return };
        for last in &mut self.last {
            match now.iter().find(|it| it.name == last.name) {
                Some(found) if last.vanished_after.is_none() => *last = found.clone(),
                Some(_) => {}
                None => {
                    last.vanished_after
                        .get_or_insert(begun.elapsed().as_secs_f64());
                }
            }
        }
    }

    fn carried(&self) -> Vec<DeviceTraffic> {
        let pairs = self.last.iter().zip(&self.first);
        pairs
            .map(|(last, first)| DeviceTraffic {
                name: last.name.clone(),
                netns: last.netns,
                rx_packets: last.rx_packets.saturating_sub(first.rx_packets),
                tx_packets: last.tx_packets.saturating_sub(first.tx_packets),
                dropped: last.dropped.saturating_sub(first.dropped),
                vanished_after: last.vanished_after,
            })
            .collect()
    }
}
