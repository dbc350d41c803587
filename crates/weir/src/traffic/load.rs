//! The load of a bench: a process on the load's CPU, in the load's namespace.
//!
//! It prints one JSON object a line: `started` when frames begin to flow, and, after SIGTERM,
//! `done` with the frames sent and the counts of the sink.

use std::ffi::OsString;
use std::process::{Child as Process, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum as _};
use rustix::process::{Signal, getpid, kill_process, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use signal_hook::consts::SIGTERM;
use signal_hook::flag;
use signal_hook::iterator::Signals;

use super::frame::MIN_SIZE;
use super::programs::{Load, LoadOptions, Sink, SinkCounts, Spread, StationSide, Stations};
use super::rate::Rate;
use super::turns;
use crate::process::child::{CHILD_TIMEOUT, Child, own_command};
use crate::process::clock::thread_cpu_ns;
use crate::process::event;
use crate::process::stop::StopSignal;
use crate::process::words::Words;
use hostnet::cpulist::pin;
use hostnet::device::Device;

/// Interval at which the signal that ends the load is repeated until it has ended.
const STOP_EVERY: Duration = Duration::from_millis(2);
/// Time for the sink to receive the last frames of the application.
const DRAIN: Duration = Duration::from_millis(10);

/// `weir bench-load`
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct LoadArgs {
    /// Device to send on
    #[arg(long, value_name = "IF")]
    pub dev: String,
    /// Length of a frame without FCS
    #[arg(long, value_name = "BYTES", default_value_t = MIN_SIZE)]
    pub size: usize,
    /// CPU to run on
    #[arg(long, value_name = "N")]
    pub cpu: usize,
    /// Frames per second [default: as many as the CPU can send]
    #[arg(long, value_name = "N")]
    pub pps: Option<Rate>,
    /// Frames that are sent at once, as after a pause of a card that coalesces its interrupts
    #[arg(long, value_name = "N", default_value_t = 1, requires = "pps",
          value_parser = clap::value_parser!(u64).range(1..=256))]
    pub burst: u64,
    /// Number of receivers, by turns: the fifth byte of the MAC address counts them
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "sink",
          value_parser = clap::value_parser!(u64).range(1..=64))]
    pub receivers: u64,
    /// Count receivers in the UDP port instead
    #[arg(long)]
    pub by_port: bool,
    /// Number of flows, by turns: the UDP source port counts them
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "sink",
          value_parser = clap::value_parser!(u64).range(1..=32768))]
    pub flows: u64,
    /// Number of pairs of stations that frames are between, by a hash of the frame's number
    #[arg(long, value_name = "N", conflicts_with_all = ["sink", "receivers", "flows"],
          value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub stations: Option<u64>,
    /// Every pair of stations in turn
    #[arg(long, requires = "stations")]
    pub sweep: bool,
    /// Frames come from the stations of the far side
    #[arg(long, requires = "stations")]
    pub from_far: bool,
    /// Send nothing
    #[arg(long, conflicts_with = "pps")]
    pub no_load: bool,
    /// Send N frames for each line of standard input, and end with it
    #[arg(long, value_name = "N", conflicts_with = "no_load")]
    pub turn: Option<u32>,
    /// Count and drop frames that arrive at the device
    #[arg(long, value_name = "HOW", value_enum, num_args = 0..=1, require_equals = true,
          default_missing_value = "verify")]
    pub sink: Option<Sink>,
}

impl LoadArgs {
    /// As many of the shortest frames as `cpu` can make, from one sender to one receiver.
    pub fn new(dev: &str, cpu: usize) -> Self {
        Self {
            dev: dev.into(),
            size: MIN_SIZE,
            cpu,
            pps: None,
            burst: 1,
            receivers: 1,
            by_port: false,
            flows: 1,
            stations: None,
            sweep: false,
            from_far: false,
            no_load: false,
            turn: None,
            sink: None,
        }
    }

    /// The command line that these arguments are parsed from.
    pub fn to_words(&self) -> Vec<OsString> {
        let sink = self.sink.and_then(|sink| sink.to_possible_value());
        let sink = sink.map(|value| format!("sink={}", value.get_name()));
        Words::default()
            .value("dev", &self.dev)
            .value("size", &self.size)
            .value("cpu", &self.cpu)
            .option("pps", self.pps.map(|rate| rate.0))
            .option("burst", (self.burst > 1).then_some(self.burst))
            .option("receivers", (self.receivers > 1).then_some(self.receivers))
            .flag("by-port", self.by_port)
            .option("flows", (self.flows > 1).then_some(self.flows))
            .option("stations", self.stations)
            .flag("sweep", self.sweep)
            .flag("from-far", self.from_far)
            .flag("no-load", self.no_load)
            .option("turn", self.turn)
            .flag(sink.as_deref().unwrap_or_default(), sink.is_some())
            .into_vec()
    }

    fn stations(&self) -> Option<Stations> {
        let from = if self.from_far {
            StationSide::Far
        } else {
            StationSide::Near
        };
        self.stations.map(|pairs| Stations {
            pairs,
            sweep: self.sweep,
            from,
        })
    }

    /// Starts a process with these arguments by `spawn`, which chooses its network namespace, and
    /// returns when its frames flow and its sink is in place.
    pub fn start<'a>(
        &self,
        stop: &'a StopSignal,
        spawn: impl FnOnce(&mut Command) -> Result<Process>,
    ) -> Result<Child<'a>> {
        let name = if self.no_load { "sink" } else { "load" };
        let mut command = own_command("bench-load");
        command.args(self.to_words());
        let mut child = match self.turn {
            Some(_) => Child::start_listening(name, command, stop, spawn)?,
            None => Child::start(name, command, stop, spawn)?,
        };
        match child.expect(CHILD_TIMEOUT)? {
            LoadEvent::Started => Ok(child),
            event => bail!("unexpected event of the {name} at its start: {event:?}"),
        }
    }
}

/// An event of the load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum LoadEvent {
    /// Frames begin to flow, and the sink is in place.
    Started,
    /// The frames of a turn were sent.
    Turn {
        /// The CPU time of that, the kernel's part of receiving them included.
        ns: u64,
    },
    /// The load has ended.
    Done {
        /// Frames that the device took.
        sent: u64,
        /// The counts of the sink; `None` without one.
        sink: Option<SinkCounts>,
    },
}

/// Runs the load until SIGTERM.
pub fn run(args: &LoadArgs) -> Result<()> {
    // A load without its bench would run for ever.
    set_parent_process_death_signal(Some(Signal::KILL))
        .context("cannot tie this process to its parent")?;
    pin(args.cpu)?;
    let mut signals = Signals::new([SIGTERM]).context("cannot wait for SIGTERM")?;
    let device = Device::open(&args.dev)?;
    let mut load = Load::new(&LoadOptions {
        ifindex: device.index()?,
        size: args.size,
        pps: args.pps.map(|rate| rate.0),
        burst: args.burst,
        sink: args.sink,
        spread: Spread {
            receivers: args.receivers,
            by_port: args.by_port,
            flows: args.flows,
            stations: args.stations(),
        },
    })?;
    let before = device.counters()?;
    print(&LoadEvent::Started)?;
    match args.turn {
        _ if args.no_load => drop(signals.forever().next()),
        Some(frames) => send_in_turns(&mut load, frames)?,
        None => send_until_signalled(&mut load, &mut signals)?,
    }
    if args.sink.is_some() {
        thread::sleep(DRAIN);
    }
    let dropped = device.counters()?.tx_dropped - before.tx_dropped;
    print(&LoadEvent::Done {
        sent: load.finish(dropped)?,
        sink: args.sink.map(|_| load.sink()).transpose()?,
    })
}

/// Sends `frames` in each turn of this process.
fn send_in_turns(load: &mut Load, frames: u32) -> Result<()> {
    while turns::granted().context("cannot read standard input")? {
        let start = thread_cpu_ns();
        load.send(frames)?;
        let ns = thread_cpu_ns() - start;
        print(&LoadEvent::Turn { ns })?;
    }
    Ok(())
}

/// Sends until a signal comes.
///
/// A signal ends the system call that sends, but one that comes just before it would go unseen
/// for as long as the call lasts. So another thread repeats the signal until the call is over;
/// the kernel delivers it to the main thread, this one, before any other (`complete_signal` in
/// kernel/signal.c). The handler itself sets the flag, since that other thread may have to wait
/// for the CPU.
fn send_until_signalled(load: &mut Load, signals: &mut Signals) -> Result<()> {
    let handle = signals.handle();
    let stopping = Arc::new(AtomicBool::new(false));
    flag::register(SIGTERM, Arc::clone(&stopping)).context("cannot wait for SIGTERM")?;
    let stopped = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            if signals.forever().next().is_none() {
                return;
            }
            // Relaxed: the flags carry no data.
            while !stopped.load(Ordering::Relaxed) {
                // A process may always signal itself.
                let _ = kill_process(getpid(), Signal::TERM);
                thread::sleep(STOP_EVERY);
            }
        });
        let mut result = Ok(());
        while result.is_ok() && !stopping.load(Ordering::Relaxed) {
            result = load.run();
        }
        stopped.store(true, Ordering::Relaxed);
        handle.close();
        result
    })
}

fn print(event: &LoadEvent) -> Result<()> {
    event::print(event).context("cannot write to standard output")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Parsed {
        #[command(flatten)]
        args: LoadArgs,
    }

    #[test]
    fn words_parse_to_the_same_arguments() {
        let plain = LoadArgs::new("weir1", 3);
        let all = LoadArgs {
            size: 1500,
            pps: Some(Rate(250_000)),
            burst: 64,
            receivers: 2,
            by_port: true,
            flows: 16,
            turn: Some(1024),
            ..plain.clone()
        };
        let sink = LoadArgs {
            no_load: true,
            sink: Some(Sink::Drop),
            ..plain.clone()
        };
        let stations = LoadArgs {
            stations: Some(10_000),
            sweep: true,
            from_far: true,
            ..plain.clone()
        };
        for args in [plain, all, sink, stations] {
            let words = std::iter::once("load".into()).chain(args.to_words());
            let parsed = Parsed::try_parse_from(words).expect("valid words");
            assert_eq!(parsed.args, args);
        }
    }
}
