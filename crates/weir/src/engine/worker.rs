//! The process that runs one engine through one bench: `weir bench-worker`.
//!
//! It prints [`Event`]s, one a line: `ready` (or `failed`), `window` when the measuring
//! window is over, and `done` after SIGTERM. It keeps working between the last two, so
//! that the load meets no closed socket while others are still counting.
//!
//! With `--turn` it works only when it is told to, and prints `turn` each time: see [`turns`].

use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::Signal;

use super::packet::{Options, Packet};
use super::protocol::{Bench, Engine, Event, Mode, Totals, Wait};
use super::tpacket::Version;
use super::xsk::Xsk;
use super::{Failure, Inspect, Round, Source, Unread, libxdp, xsk};
use crate::process::usage::CpuTime;
use crate::process::words::Words;
use crate::traffic::frame::{APP_MAC, LOAD_MAC, MAX_SIZE, MIN_SIZE, Template, Tracker};
use crate::traffic::turns;
use hostnet::cpulist::pin;

/// What a worker is told. The libxdp loop takes the same words.
#[derive(Debug, Clone, Args)]
pub struct WorkerArgs {
    /// Who moves the packets
    #[arg(long, value_enum)]
    pub engine: Engine,
    /// What is done with them
    #[arg(long, value_enum)]
    pub bench: Bench,
    /// The device, in this network namespace
    #[arg(long, value_name = "IF")]
    pub dev: String,
    /// The device's queue; of no use to the packet engines
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub queue: u32,
    /// The mode of an AF_XDP socket; not given to the packet engines
    #[arg(long, value_enum)]
    pub mode: Option<Mode>,
    /// How to wait for packets
    #[arg(long, value_enum, default_value_t = Wait::Spin)]
    pub wait: Wait,
    /// Frame length without the FCS
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = parse_size)]
    pub size: usize,
    /// Packets handled at once, at most
    #[arg(long, value_name = "N", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub batch: u32,
    /// Time from the first packet to the window
    #[arg(long, value_name = "MS", default_value_t = 200)]
    pub warmup_ms: u64,
    /// Time that is measured
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    pub window_ms: u64,
    /// Handle so many packets for each line of standard input, instead of measuring a window
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub turn: Option<u32>,
    /// The CPU to run on
    #[arg(long, value_name = "N")]
    pub cpu: u32,
    /// Read and check payloads in rxdrop too
    #[arg(long)]
    pub verify: bool,
}

fn parse_size(text: &str) -> Result<usize, String> {
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
            .flag("verify", self.verify)
            .into_vec()
    }
}

/// Runs a worker to its end. Whatever goes wrong is printed as an event.
pub fn run(args: &WorkerArgs) -> ExitCode {
    match work(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let event = Event::Failed {
                step: failure.step.into(),
                errno: failure.errno,
                message: failure.message,
            };
            // If nobody listens any more there is nobody to tell.
            let _ = print(&event);
            ExitCode::FAILURE
        }
    }
}

fn work(args: &WorkerArgs) -> Result<(), Failure> {
    settle(args.cpu)?;
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::clone(&stop))
        .map_err(|error| Failure::new("signal", &error, "this is a defect"))?;
    let worker = Worker { args, stop: &stop };
    match args.engine {
        Engine::PacketV2 => worker.drive(Packet::open(&packet_options(args, Version::V2))?),
        Engine::PacketV3 => worker.drive(Packet::open(&packet_options(args, Version::V3))?),
        Engine::Xsk => worker.drive(Xsk::open(&xsk::umem()?, &xsk_options(args))?),
        Engine::Libxdp => become_libxdp_loop(args).map(|never| match never {}),
    }
}

fn packet_options(args: &WorkerArgs, version: Version) -> Options<'_> {
    Options {
        version,
        device: &args.dev,
        bench: args.bench,
        wait: args.wait,
        batch: args.batch as usize,
    }
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

fn become_libxdp_loop(args: &WorkerArgs) -> Result<Infallible, Failure> {
    let failure = |error: io::Error| Failure {
        step: "libxdp",
        errno: error.raw_os_error().unwrap_or(0),
        message: format!("the libxdp loop cannot be started: {error}"),
    };
    let program = libxdp::Program::new().map_err(failure)?;
    program.exec(args.to_words()).map_err(failure)
}

/// Dies with the parent, and stays on one CPU.
pub(crate) fn settle(cpu: u32) -> Result<(), Failure> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|errno| Failure::new("prctl", &errno.into(), "this is a defect"))?;
    pin(cpu as usize).map_err(|error| Failure {
        step: "cpu",
        errno: error.errno().unwrap_or(0),
        message: format!("{error}; see `nproc` and `taskset -p $$`"),
    })
}

fn print(event: &Event) -> io::Result<()> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    let mut stdout = io::stdout().lock();
    stdout.write_all(&line)?;
    stdout.flush()
}

/// Prints an event.
pub(crate) fn tell(event: &Event) -> Result<(), Failure> {
    print(event).map_err(|error| Failure::new("stdout", &error, "the bench went away"))
}

/// Rounds between two looks at the clock, so that a look costs nothing at saturation.
const ROUNDS_PER_LOOK: u32 = 64;

/// How long a receiver must have heard nothing before it is done.
const QUIET: Duration = Duration::from_millis(50);

/// The longest that a worker takes to end: it may have to share its CPU, with a full ring to empty.
const DRAIN: Duration = Duration::from_secs(10);

struct Worker<'a> {
    args: &'a WorkerArgs,
    stop: &'a AtomicBool,
}

impl Worker<'_> {
    fn drive<E: super::Engine>(&self, mut engine: E) -> Result<(), Failure> {
        let mut tracker = Tracker::new(self.args.size);
        tell(&Event::Ready {
            mode_obtained: engine.mode_obtained(),
            refusals: engine.refusals().to_vec(),
        })?;
        let mut totals = match self.args.bench {
            Bench::Rxdrop if self.args.verify => self.rxdrop(&mut engine, &mut tracker),
            Bench::Rxdrop => self.rxdrop(&mut engine, &mut Unread),
            Bench::L2fwd => self.l2fwd(&mut engine, &mut tracker),
            Bench::Txpush => self.txpush(&mut engine),
        }?;
        totals.kernel_drops = engine.kernel_drops()?;
        totals.corrupted = tracker.corrupted;
        totals.duplicates = tracker.duplicates;
        totals.reordered = tracker.reordered;
        totals.lost = tracker.lost;
        tell(&Event::Done(totals))
    }

    fn rxdrop<E: super::Engine>(
        &self,
        engine: &mut E,
        inspect: &mut impl Inspect,
    ) -> Result<Totals, Failure> {
        let mut totals = match self.args.turn {
            Some(turn) => take_turns(turn, engine, |engine| engine.rxdrop(inspect))?,
            None => self.measure(|| engine.rxdrop(inspect), |t| t.received)?,
        };
        drain(&mut totals, QUIET, || Ok((engine.rxdrop(inspect)?, 0)))?;
        Ok(totals)
    }

    fn l2fwd<E: super::Engine>(
        &self,
        engine: &mut E,
        inspect: &mut impl Inspect,
    ) -> Result<Totals, Failure> {
        let mut totals = match self.args.turn {
            Some(turn) => take_turns(turn, engine, |engine| engine.l2fwd(inspect))?,
            None => self.measure(|| engine.l2fwd(inspect), |t| t.sent)?,
        };
        // What came before the end is still forwarded: received and sent end up equal.
        drain(&mut totals, QUIET, || {
            Ok((engine.l2fwd(inspect)?, engine.in_flight()))
        })?;
        Ok(totals)
    }

    fn txpush<E: super::Engine>(&self, engine: &mut E) -> Result<Totals, Failure> {
        let template =
            Template::new(self.args.size, APP_MAC, LOAD_MAC).map_err(|error| Failure {
                step: "frame",
                errno: 0,
                message: error.to_string(),
            })?;
        let mut source = Source::new(template);
        let mut totals = match self.args.turn {
            Some(turn) => take_turns(turn, engine, |engine| engine.txpush(&mut source))?,
            None => self.measure(|| engine.txpush(&mut source), |t| t.sent)?,
        };
        drain(&mut totals, Duration::ZERO, || {
            Ok((engine.complete()?, engine.in_flight()))
        })?;
        Ok(totals)
    }

    /// Runs rounds until SIGTERM, and reports the window on the way.
    #[inline]
    fn measure(
        &self,
        mut round: impl FnMut() -> Result<Round, Failure>,
        handled: impl Fn(&Totals) -> u64,
    ) -> Result<Totals, Failure> {
        let mut totals = Totals::default();
        let mut meter = Meter::new(self.args);
        let mut rounds = 0u32;
        while !self.stop.load(Ordering::Relaxed) {
            let done = round()?;
            add(&mut totals, done);
            rounds = rounds.wrapping_add(1);
            if done.timed_out || rounds.is_multiple_of(ROUNDS_PER_LOOK) {
                meter.look(handled(&totals))?;
            }
        }
        Ok(totals)
    }
}

#[inline]
fn add(totals: &mut Totals, round: Round) {
    totals.received += round.received;
    totals.sent += round.completed;
}

/// Handles `turn` packets whenever it is this process's turn. A packet not there yet, such as a
/// block of AF_PACKET that is not full, is left for the next turn: nothing waits in a turn.
fn take_turns<E: super::Engine>(
    turn: u32,
    engine: &mut E,
    mut round: impl FnMut(&mut E) -> Result<Round, Failure>,
) -> Result<Totals, Failure> {
    let mut totals = Totals::default();
    let mut due = 0;
    while turns::granted().map_err(|error| Failure::new("stdin", &error, "this is a defect"))? {
        due += u64::from(turn);
        let before = begun(&totals, engine);
        let start = turns::cpu_ns();
        while begun(&totals, engine) < due {
            let done = round(engine)?;
            add(&mut totals, done);
            if done.received == 0 && done.completed == 0 {
                break;
            }
        }
        while engine.in_flight() > 0 {
            let done = engine.complete()?;
            add(&mut totals, done);
            if done.completed == 0 {
                break;
            }
        }
        let ns = turns::cpu_ns() - start;
        let packets = begun(&totals, engine) - before;
        tell(&Event::Turn { packets, ns })?;
    }
    Ok(totals)
}

/// Packets received or, by txpush, handed over for sending.
fn begun(totals: &Totals, engine: &impl super::Engine) -> u64 {
    totals.received.max(totals.sent + engine.in_flight())
}

/// Runs rounds until nothing came for `quiet` and nothing is in flight, bounded in time.
fn drain(
    totals: &mut Totals,
    quiet: Duration,
    mut round: impl FnMut() -> Result<(Round, u64), Failure>,
) -> Result<(), Failure> {
    let start = Instant::now();
    let mut heard = start;
    loop {
        let (done, in_flight) = round()?;
        add(totals, done);
        let now = Instant::now();
        if done.received > 0 {
            heard = now;
        }
        let ended = in_flight == 0 && now - heard >= quiet;
        if ended || now - start >= DRAIN {
            return Ok(());
        }
    }
}

/// Waits for the first packet, then for the warm-up, then measures one window.
struct Meter {
    warmup: Duration,
    window: Duration,
    phase: Phase,
}

enum Phase {
    Idle,
    WarmUp { start: Instant },
    Window { start: Sample },
    Over,
}

struct Sample {
    time: Instant,
    cpu: CpuTime,
    handled: u64,
}

impl Sample {
    fn take(handled: u64) -> Result<Self, Failure> {
        let cpu = CpuTime::of_this_thread()
            .map_err(|error| Failure::new("getrusage", &error, "this is a defect"))?;
        Ok(Self {
            time: Instant::now(),
            cpu,
            handled,
        })
    }
}

impl Meter {
    fn new(args: &WorkerArgs) -> Self {
        let start = Instant::now();
        Self {
            warmup: Duration::from_millis(args.warmup_ms),
            window: Duration::from_millis(args.window_ms),
            phase: match args.bench {
                Bench::Txpush => Phase::WarmUp { start },
                Bench::Rxdrop | Bench::L2fwd => Phase::Idle,
            },
        }
    }

    /// Moves on if it is time. `handled` is the number of packets since the start.
    fn look(&mut self, handled: u64) -> Result<(), Failure> {
        match &self.phase {
            Phase::Idle if handled > 0 => {
                let start = Instant::now();
                self.phase = Phase::WarmUp { start };
            }
            Phase::WarmUp { start } if start.elapsed() >= self.warmup => {
                let start = Sample::take(handled)?;
                self.phase = Phase::Window { start };
            }
            Phase::Window { start } if start.time.elapsed() >= self.window => {
                tell(&window(start, &Sample::take(handled)?))?;
                self.phase = Phase::Over;
            }
            _ => {}
        }
        Ok(())
    }
}

fn window(start: &Sample, end: &Sample) -> Event {
    let ns = |time: Duration| time.as_nanos() as u64;
    Event::Window {
        packets: end.handled - start.handled,
        seconds: (end.time - start.time).as_secs_f64(),
        user_ns: ns(end.cpu.user.saturating_sub(start.cpu.user)),
        sys_ns: ns(end.cpu.system.saturating_sub(start.cpu.system)),
    }
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
            ["--size", "1501"],
            ["--size", "x"],
            ["--batch", "0"],
        ] {
            assert!(parse(&words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn draining_waits_for_quiet_and_for_completions() {
        let mut totals = Totals::default();
        let mut left = 3;
        drain(&mut totals, Duration::ZERO, || {
            left -= 1;
            let completed = 1;
            Ok((
                Round {
                    completed,
                    ..Round::default()
                },
                left,
            ))
        })
        .expect("no failure");
        assert_eq!(totals.sent, 3);
    }
}
