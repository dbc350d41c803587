//! The process that runs one engine through one bench: `weir bench-worker`.
//!
//! It prints [`Event`]s, one a line: `ready` (or `failed`), `window` when the measuring
//! window is over, and `done` after SIGTERM. It keeps working between the last two, so
//! that the load meets no closed socket while others are still counting.
//!
//! With `--turn` it works in turns, and prints `turn` after each: see [`crate::traffic::turns`].

use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use rustix::process::Signal;

use super::af_packet::{AfPacket, Options};
use super::bench::Bench;
use super::brokered::Broker;
use super::halves::Halves;
use super::jumbo::Jumbo;
use super::moves::Moves;
use super::protocol::{Event, Totals};
use super::rounds::Rounds;
use super::udp::Udp;
use super::xsk::Xsk;
use super::{Engine, Failure, Mode, Wait, libxdp, xsk};
use crate::process::words::Words;
use crate::traffic::frame::{MAX_LINEAR_SIZE, MAX_SIZE, MIN_SIZE, Tracker};
use crate::traffic::tpacket::Version;
use hostnet::cpulist::pin;

/// `weir bench-worker`. The libxdp loop has the same command line.
#[derive(Debug, Clone, Args)]
pub struct WorkerArgs {
    /// Engine
    #[arg(long, value_enum)]
    pub engine: Engine,
    /// Bench
    #[arg(long, value_enum)]
    pub bench: Bench,
    /// Device, in this network namespace
    #[arg(long, value_name = "IF")]
    pub dev: String,
    /// Device queue of an AF_XDP socket
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub queue: u32,
    /// XDP mode of an AF_XDP socket
    #[arg(long, value_enum)]
    pub mode: Option<Mode>,
    /// Waiting for packets
    #[arg(long, value_enum, default_value_t = Wait::Spin)]
    pub wait: Wait,
    /// Frame length without the FCS
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = parse_size)]
    pub size: usize,
    /// Batch size
    #[arg(long, value_name = "N", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub batch: u32,
    /// Time from the first packet to the window
    #[arg(long, value_name = "MS", default_value_t = 200)]
    pub warmup_ms: u64,
    /// Length of the measured window
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    pub window_ms: u64,
    /// Handle so many packets for each line of standard input, instead of measuring a window
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub turn: Option<u32>,
    /// CPU to run on
    #[arg(long, value_name = "N")]
    pub cpu: u32,
    /// CPU of the sending half of xsk-halves [default: that of --cpu]
    #[arg(long, value_name = "N")]
    pub sender_cpu: Option<u32>,
    /// Read and check every payload
    #[arg(long)]
    pub verify: bool,
}

pub(super) fn parse_size(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(size) if (MIN_SIZE..=MAX_SIZE).contains(&size) => Ok(size),
        _ => Err(format!("a frame has {MIN_SIZE} to {MAX_SIZE} bytes")),
    }
}

impl WorkerArgs {
    /// The command line that these arguments are parsed from.
    pub fn to_words(&self) -> Vec<OsString> {
        Words::default()
            .value("engine", &self.engine)
            .value("bench", &self.bench)
            .value("dev", &self.dev)
            .value("queue", &self.queue)
            .option("mode", self.mode)
            .value("wait", &self.wait)
            .value("size", &self.size)
            .value("batch", &self.batch)
            .value("warmup-ms", &self.warmup_ms)
            .value("window-ms", &self.window_ms)
            .option("turn", self.turn)
            .value("cpu", &self.cpu)
            .option("sender-cpu", self.sender_cpu)
            .flag("verify", self.verify)
            .into_vec()
    }
}

/// Runs a worker to its end. A failure is printed as an event.
pub fn run(args: &WorkerArgs) -> ExitCode {
    match work(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Nobody may be there to read it.
            let _ = Event::from(failure).print();
            ExitCode::FAILURE
        }
    }
}

fn work(args: &WorkerArgs) -> Result<(), Failure> {
    settle(args.cpu)?;
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::clone(&stop))
        .map_err(|error| Failure::new("signal", &error, "this is a defect"))?;
    match args.engine {
        Engine::PacketV2 => run_bench(args, &stop, open_packet(args, Version::V2)?),
        Engine::PacketV3 => run_bench(args, &stop, open_packet(args, Version::V3)?),
        Engine::Udp => run_bench(args, &stop, Udp::open(args.wait, args.batch)?),
        Engine::Xsk if args.size > MAX_LINEAR_SIZE => {
            run_bench(args, &stop, Jumbo::new(open_xsk(args)?))
        }
        Engine::Xsk => run_bench(args, &stop, open_xsk(args)?),
        Engine::XskHalves => {
            let sender_cpu = args.sender_cpu.unwrap_or(args.cpu) as usize;
            run_bench(args, &stop, Halves::new(open_xsk(args)?, sender_cpu)?)
        }
        Engine::XskBrokered => {
            let options = xsk_options(args);
            let mut broker = Broker::start(&options)?;
            run_bench(args, &stop, broker.open(&options)?)
        }
        Engine::Libxdp => become_libxdp_loop(args).map(|never| match never {}),
    }
}

fn open_packet(args: &WorkerArgs, version: Version) -> Result<AfPacket, Failure> {
    AfPacket::open(&Options {
        version,
        device: &args.dev,
        bench: args.bench,
        size: args.size,
        wait: args.wait,
        batch: args.batch as usize,
    })
}

fn xsk_options(args: &WorkerArgs) -> xsk::Options<'_> {
    xsk::Options {
        device: &args.dev,
        queue: args.queue,
        bench: args.bench,
        mode: args.mode.unwrap_or(Mode::Auto),
        wait: args.wait,
        batch: args.batch,
    }
}

fn open_xsk(args: &WorkerArgs) -> Result<Xsk, Failure> {
    let options = xsk_options(args);
    Xsk::open(&xsk::umem(args.size, options.mode)?, &options)
}

fn become_libxdp_loop(args: &WorkerArgs) -> Result<Infallible, Failure> {
    let failure = |error: io::Error| Failure {
        step: "libxdp",
        errno: error.raw_os_error().unwrap_or(0),
        message: format!("the libxdp loop cannot be started: {error}"),
    };
    let program = libxdp::Program::new().map_err(failure)?;
    program.exec(args.to_words()).map_err(failure)
}

/// Dies with the parent, and runs on one CPU only.
pub(crate) fn settle(cpu: u32) -> Result<(), Failure> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|errno| Failure::new("prctl", &errno.into(), "this is a defect"))?;
    pin(cpu as usize).map_err(|error| Failure {
        step: "cpu",
        errno: error.errno().unwrap_or(0),
        message: format!("{error}; see `nproc` and `taskset -p $$`"),
    })
}

fn run_bench<M: Moves>(args: &WorkerArgs, stop: &AtomicBool, mut socket: M) -> Result<(), Failure> {
    let rounds = Rounds {
        size: args.size,
        warmup: Duration::from_millis(args.warmup_ms),
        window: Duration::from_millis(args.window_ms),
        turn: args.turn,
        stop,
    };
    let mut tracker = Tracker::new(args.size);
    let ready = Event::Ready {
        mode_obtained: socket.mode_obtained(),
        refusals: socket.refusals().to_vec(),
    };
    ready.print()?;
    let totals = args
        .bench
        .run(&rounds, &mut socket, &mut tracker, args.verify)?;
    let done = Event::Done(Totals {
        kernel_drops: socket.kernel_drops()?,
        corrupted: tracker.corrupted,
        duplicates: tracker.duplicates,
        reordered: tracker.reordered,
        lost: tracker.lost,
        ..totals
    });
    done.print()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        worker: WorkerArgs,
    }

    fn parse(words: &[&str]) -> Result<WorkerArgs, clap::Error> {
        let needed = [
            "weir",
            "--engine",
            "packet-v3",
            "--bench",
            "l2fwd",
            "--dev",
            "x",
            "--cpu",
            "1",
        ];
        Words::try_parse_from(needed.iter().chain(words)).map(|words| words.worker)
    }

    #[test]
    fn words_give_the_same_arguments_again() {
        let args = parse(&[
            "--mode", "drv", "--wait", "poll", "--size", "1500", "--turn", "8", "--verify",
        ])
        .expect("good words");
        let again = Words::try_parse_from(std::iter::once("weir".into()).chain(args.to_words()))
            .expect("its own words")
            .worker;
        assert_eq!(format!("{args:?}"), format!("{again:?}"));
    }

    #[test]
    fn bad_words_are_refused() {
        for words in [
            ["--size", "63"],
            ["--size", "9001"],
            ["--size", "x"],
            ["--batch", "0"],
        ] {
            assert!(parse(&words).is_err(), "{words:?}");
        }
    }
}
