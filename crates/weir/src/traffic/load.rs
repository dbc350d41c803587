//! The load of a bench: a process of its own on the load's CPU, in the load's namespace.
//!
//! It prints one JSON object a line: `started` when frames begin to flow, and, after SIGTERM,
//! `done` with what was sent and what the sink received.

use std::io::{Write as _, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use rustix::process::{Signal, getpid, kill_process, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use signal_hook::consts::SIGTERM;
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::traffic::programs::{Load, LoadOptions, Sink, SinkCounts, Spread};
use crate::traffic::turns;
use hostnet::cpulist::pin;
use hostnet::device::Device;

/// More than any CPU can send, and few enough to divide a second into.
const MAX_PPS: u64 = 1_000_000_000;
/// How often the signal that ends the load is repeated until it has ended.
const STOP_EVERY: Duration = Duration::from_millis(2);
/// How long the sink may still receive after the application has stopped sending.
const DRAIN: Duration = Duration::from_millis(10);

/// `weir bench-load`
#[derive(Debug, Args)]
pub struct LoadArgs {
    /// The device that frames leave by
    #[arg(long, value_name = "IF")]
    pub dev: String,
    /// Length of a frame without FCS
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    pub size: usize,
    /// The CPU to run on
    #[arg(long, value_name = "N")]
    pub cpu: usize,
    /// Frames a second, instead of as many as the CPU can make
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_PPS))]
    pub pps: Option<u64>,
    /// Send to so many receivers in turn: the fifth byte of the MAC address counts them
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "sink",
          value_parser = clap::value_parser!(u64).range(1..=64))]
    pub receivers: u64,
    /// Tell receivers apart by the UDP port instead
    #[arg(long)]
    pub by_port: bool,
    /// Send in so many flows in turn: the UDP source port counts them
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "sink",
          value_parser = clap::value_parser!(u64).range(1..=32768))]
    pub flows: u64,
    /// Send nothing
    #[arg(long, conflicts_with = "pps")]
    pub no_load: bool,
    /// Send so many frames for each line of standard input, and end with it
    #[arg(long, value_name = "N", conflicts_with = "no_load")]
    pub turn: Option<u32>,
    /// Take the frames that arrive at the device
    #[arg(long, value_name = "HOW", value_enum, num_args = 0..=1, require_equals = true,
          default_missing_value = "verify")]
    pub sink: Option<Sink>,
}

/// What the load prints.
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
        /// What the sink received; `None` if there was none.
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
    let load = Load::new(&LoadOptions {
        ifindex: device.index()?,
        size: args.size,
        pps: args.pps,
        sink: args.sink,
        spread: Spread {
            receivers: args.receivers,
            by_port: args.by_port,
            flows: args.flows,
        },
    })?;
    let before = device.counters()?;
    print(&LoadEvent::Started)?;
    match args.turn {
        _ if args.no_load => drop(signals.forever().next()),
        Some(frames) => send_in_turns(&load, frames)?,
        None => send_until_signalled(&load, &mut signals)?,
    }
    if args.sink.is_some() {
        thread::sleep(DRAIN);
    }
    // The program counts what it hands over; the device says what of that it could not take.
    // Another load may run beside a sink that sends nothing.
    let lost = device.counters()?.tx_dropped - before.tx_dropped;
    print(&LoadEvent::Done {
        sent: load.sent()?.saturating_sub(lost),
        sink: args.sink.map(|_| load.sink()).transpose()?,
    })
}

/// Sends `frames` whenever it is this process's turn.
fn send_in_turns(load: &Load, frames: u32) -> Result<()> {
    while turns::granted().context("cannot read standard input")? {
        let start = turns::cpu_ns();
        load.send(frames)?;
        let ns = turns::cpu_ns() - start;
        print(&LoadEvent::Turn { ns })?;
    }
    Ok(())
}

/// Sends until a signal comes.
///
/// A signal ends the system call that sends, but one that comes just before it would go unseen
/// for as long as the call lasts. So another thread repeats the signal until the call is over;
/// the kernel delivers it to the main thread, this one, before any other (`complete_signal` in
/// kernel/signal.c). The handler itself says that it has come, since that other thread may have
/// to wait for the CPU.
fn send_until_signalled(load: &Load, signals: &mut Signals) -> Result<()> {
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
    let mut out = stdout().lock();
    writeln!(out, "{}", serde_json::to_string(event)?)
        .and_then(|()| out.flush())
        .context("cannot write to standard output")
}
