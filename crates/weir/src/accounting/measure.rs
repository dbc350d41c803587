//! One measurement, by all methods at once.

use std::collections::BTreeMap;
use std::process::ExitStatus;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::busy_loop::{BusyLoops, CpuLoss};
use super::duty_cycle::{DutyCycle, Observed};
use super::proc_stat::{CpuStat, cpu_times};
use super::tracepoints::Tracepoints;
use crate::process::stop::StopSignal;
use crate::process::usage::CpuTime;
use crate::process::user_command::UserCommand;
use hostnet::cpulist::CpuList;
use hostnet::softnet::{Softnet, softnet};

/// The period of reading the sums and the devices' counters: the slices of the confidence intervals.
const SLICE: Duration = Duration::from_millis(100);

/// Reads the devices' counters; `None` if that fails.
pub type Devices<'a> = &'a mut dyn FnMut() -> Option<Vec<DeviceTraffic>>;

/// The options of a measurement.
pub struct Options<'a> {
    /// The CPUs to measure.
    pub cpus: &'a CpuList,
    /// The time limit; `None` until the command ends.
    pub duration: Option<Duration>,
    /// Without busy loops.
    pub passive: bool,
    /// The limit of the tracepoints' cost, in percent of one CPU.
    pub limit: f64,
    /// The devices whose packets are counted.
    pub devices: Devices<'a>,
    /// A command that runs meanwhile.
    pub command: Option<UserCommand>,
}

/// The results of all methods.
pub struct Measured {
    /// The duration.
    pub elapsed: Duration,
    /// The reason for an early end.
    pub ended: Option<Ended>,
    /// Of the busy loops, one for each CPU; or the reason for their absence.
    pub busy_loops: Result<Vec<CpuLoss>, String>,
    /// Of the tracepoints; or the reason for their absence.
    pub tracepoints: Result<Observed, String>,
    /// Of /proc/stat, by CPU.
    pub proc_stat: Result<BTreeMap<usize, CpuStat>, String>,
    /// Of `/proc/net/softnet_stat`, by CPU.
    pub softnet: Result<BTreeMap<usize, Softnet>, String>,
    /// The devices' packets.
    pub devices: Vec<DeviceTraffic>,
    /// The command's exit status, if it ended by itself.
    pub command: Option<ExitStatus>,
    /// CPU time of this process, without its busy loops.
    pub own_ns: u64,
}

/// The reason for the early end of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// SIGINT (Ctrl-C) or SIGTERM.
    Interrupted,
    /// The tracepoints cost more than the limit.
    OverLimit,
}

/// A device's packets during the measurement.
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
    /// If it vanished: the last time that it was there, in seconds since the beginning.
    pub vanished_after_seconds: Option<f64>,
}

/// Measures until the end of the time or of the command, a signal, or a cost above the limit.
pub fn measure(
    options: Options<'_>,
    stop: &StopSignal,
    tick: &dyn Fn(Duration),
) -> Result<Measured> {
    let cpus = options.cpus.as_slice();
    let mut command = options.command;
    let tracepoints = Tracepoints::start(cpus).map_err(|error| format!("{error:#}"));
    let views = tracepoints.as_ref().ok().map(Tracepoints::views);
    let busy_loops = if options.passive {
        Err("not measured: --passive".to_owned())
    } else {
        BusyLoops::start(cpus, views.as_ref()).map_err(|error| format!("{error:#}"))
    };
    let usage = usage_so_far()?;
    let (stat_before, softnet_before) = (cpu_times(), softnet().map_err(Into::into));
    let mut devices = Traffic::new(options.devices);
    let mut ended = None;
    let mut status = None;
    let begun = Instant::now();
    let mut duty_cycle = match tracepoints {
        Ok(tracepoints) => Ok(DutyCycle::new(tracepoints, options.limit)?),
        Err(reason) => Err(reason),
    };
    loop {
        sleep(next_slice(begun, options.duration));
        if let Ok(duty_cycle) = &mut duty_cycle {
            duty_cycle.sample()?;
        }
        devices.read(begun);
        tick(begun.elapsed());
        if stop.is_raised() {
            ended = Some(Ended::Interrupted);
        } else if let (true, Ok(duty_cycle)) = (options.passive, &duty_cycle) {
            let reading = usage_so_far()?.saturating_sub(usage);
            ended = duty_cycle
                .is_over_limit(reading)
                .then_some(Ended::OverLimit);
        }
        if let Some(command) = &mut command {
            status = command.try_wait()?;
        }
        let over = options
            .duration
            .is_some_and(|limit| begun.elapsed() >= limit);
        if over || ended.is_some() || status.is_some() {
            break;
        }
    }
    // All figures end here, before anything that takes time to end.
    let tracepoints = match duty_cycle {
        Ok(duty_cycle) => Ok(duty_cycle.finish()?),
        Err(reason) => Err(reason),
    };
    let elapsed = begun.elapsed();
    let (stat_after, softnet_after) = (cpu_times(), softnet().map_err(Into::into));
    let own_ns = usage_so_far()?.saturating_sub(usage).as_nanos() as u64;
    let busy_loops = busy_loops.and_then(|it| it.stop().map_err(|error| format!("{error:#}")));
    if let (Some(command), None) = (&mut command, status) {
        command.end()?;
    }
    Ok(Measured {
        elapsed,
        ended,
        busy_loops,
        tracepoints,
        proc_stat: between(stat_before, stat_after, CpuStat::since),
        softnet: between(softnet_before, softnet_after, Softnet::since),
        devices: devices.since_the_beginning(),
        command: status,
        own_ns,
    })
}

/// CPU time of this thread.
fn usage_so_far() -> Result<Duration> {
    let time = CpuTime::of_this_thread().context("cannot ask for this thread's CPU time")?;
    Ok(time.user + time.system)
}

/// The time up to the next slice, or to the end if that is sooner.
fn next_slice(begun: Instant, duration: Option<Duration>) -> Duration {
    let left = duration.map(|limit| limit.saturating_sub(begun.elapsed()));
    left.map_or(SLICE, |left| left.min(SLICE))
}

/// The difference of two readings, by CPU.
fn between<T>(
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

/// The devices' counters, until they vanish.
struct Traffic<'a> {
    counters: Devices<'a>,
    first: Vec<DeviceTraffic>,
    last: Vec<DeviceTraffic>,
}

impl<'a> Traffic<'a> {
    fn new(counters: Devices<'a>) -> Self {
        let first = counters().unwrap_or_default();
        Self {
            counters,
            last: first.clone(),
            first,
        }
    }

    fn read(&mut self, begun: Instant) {
        let Some(now) = (self.counters)() else { return };
        for last in &mut self.last {
            match now.iter().find(|it| it.name == last.name) {
                Some(found) if last.vanished_after_seconds.is_none() => *last = found.clone(),
                Some(_) => {}
                None => {
                    last.vanished_after_seconds
                        .get_or_insert(begun.elapsed().as_secs_f64());
                }
            }
        }
    }

    fn since_the_beginning(&self) -> Vec<DeviceTraffic> {
        let pairs = self.last.iter().zip(&self.first);
        pairs
            .map(|(last, first)| DeviceTraffic {
                name: last.name.clone(),
                netns: last.netns,
                rx_packets: last.rx_packets.saturating_sub(first.rx_packets),
                tx_packets: last.tx_packets.saturating_sub(first.tx_packets),
                dropped: last.dropped.saturating_sub(first.dropped),
                vanished_after_seconds: last.vanished_after_seconds,
            })
            .collect()
    }
}
