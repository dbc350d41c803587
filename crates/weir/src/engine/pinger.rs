//! The process that sends packets to an echo and times their way there and back: `weir bench-pinger`.
//!
//! Packets are sent at equal distances, whether or not earlier ones have been answered (an open loop),
//! and a packet's latency counts from its intended time. So an echo that stalls is charged with the
//! packets that it kept waiting, and a pinger that is late with its own delay; a loop that waits for
//! each answer, or counts from the time of sending, would leave out both (coordinated omission).
//!
//! It prints [`PingEvent`]s, one a line: `ready` (or `failed`); `stopped` after a line on its standard
//! input, from which on it sends nothing, so that the echo can drain; and `done` after SIGTERM and the last
//! answers.

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ::xsk::Socket;
use clap::Args;
use serde::{Deserialize, Serialize};

use super::bench::Bench;
use super::worker::{parse_size, settle};
use super::xsk::{Options, Xsk, failure, umem};
use super::{Failure, Mode, Wait};
use crate::process::clock::now_ns;
use crate::process::event;
use crate::process::words::Words;
use crate::report::latency::{Latency, Recorder};
use crate::traffic::frame::{APP_MAC, LOAD_MAC, MIN_SIZE, Template, Tracker};
use crate::traffic::programs::SinkCounts;
use crate::traffic::rate::Rate;
use crate::traffic::schedule::Schedule;

/// The most packets sent or received between two looks at the other direction.
const BATCH: u32 = 64;
/// Without an answer for this long, none is to come.
const QUIET: Duration = Duration::from_millis(100);
/// The longest that the last answers may take.
const DRAIN: Duration = Duration::from_secs(10);
/// Time between opening the socket and the first packet.
const LEAD: Duration = Duration::from_millis(1);

/// `weir bench-pinger`
#[derive(Debug, Clone, Args)]
pub struct PingerArgs {
    /// Device, in this network namespace
    #[arg(long, value_name = "IF")]
    pub dev: String,
    /// Packets per second
    #[arg(long, value_name = "N")]
    pub pps: Rate,
    /// Frame length without the FCS
    #[arg(long, value_name = "BYTES", default_value_t = MIN_SIZE, value_parser = parse_size)]
    pub size: usize,
    /// Time from the first packet to the window
    #[arg(long, value_name = "MS", default_value_t = 200)]
    pub warmup_ms: u64,
    /// Length of the window: packets that are to be sent in it are timed
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    pub window_ms: u64,
    /// CPU to run on
    #[arg(long, value_name = "N")]
    pub cpu: u32,
}

impl PingerArgs {
    /// The command line that these arguments are parsed from.
    pub fn to_words(&self) -> Vec<OsString> {
        Words::default()
            .value("dev", &self.dev)
            .value("pps", &self.pps.0)
            .value("size", &self.size)
            .value("warmup-ms", &self.warmup_ms)
            .value("window-ms", &self.window_ms)
            .value("cpu", &self.cpu)
            .into_vec()
    }
}

/// A line of a pinger's standard output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum PingEvent {
    /// The socket is open, and packets begin to flow.
    Ready,
    /// No more packets are sent.
    Stopped,
    /// Nothing can be measured; the pinger exits with status 1.
    Failed {
        /// Step, cause and cure.
        message: String,
    },
    /// The end.
    Done(Box<RoundTrips>),
}

/// Counts of a pinger from its start to its end, and the latencies of its window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RoundTrips {
    /// Packets sent.
    pub sent: u64,
    /// Frames that came back.
    pub answers: SinkCounts,
    /// Frames that came back and found no room at the pinger's socket: it had too little of its CPU.
    pub dropped: u64,
    /// From the intended time of sending to the answer.
    pub latency: Latency,
    /// From the intended time of sending to sending: the pinger's own part in the latency.
    pub delay: Latency,
}

/// Runs a pinger to its end. A failure is printed as an event.
pub fn run(args: &PingerArgs) -> ExitCode {
    let (event, code) = match ping(args) {
        Ok(trips) => (PingEvent::Done(Box::new(trips)), ExitCode::SUCCESS),
        Err(failure) => (
            PingEvent::Failed {
                message: failure.to_string(),
            },
            ExitCode::FAILURE,
        ),
    };
    // Nobody may be there to read it.
    let _ = event::print(&event);
    code
}

fn ping(args: &PingerArgs) -> Result<RoundTrips, Failure> {
    settle(args.cpu)?;
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::clone(&stop))
        .map_err(|error| Failure::new("signal", &error, "this is a defect"))?;
    let template = Template::new(args.size, LOAD_MAC, APP_MAC).map_err(|error| Failure {
        step: "frame",
        errno: 0,
        message: error.to_string(),
    })?;
    let options = Options {
        device: &args.dev,
        queue: 0,
        bench: Bench::L2fwd,
        mode: Mode::Drv,
        wait: Wait::Spin,
        batch: BATCH,
    };
    let socket = Xsk::open(&umem(args.size, options.mode)?, &options)?.socket;
    let is_told = listen()?;
    print(&PingEvent::Ready)?;
    let mut pinger = Pinger::new(args, socket, template);
    pinger.send_until(&is_told)?;
    print(&PingEvent::Stopped)?;
    pinger.receive_until(&stop);
    pinger.into_round_trips()
}

fn print(event: &PingEvent) -> Result<(), Failure> {
    event::print(event).map_err(|error| Failure::new("stdout", &error, "the bench has ended"))
}

/// Set by a line on standard input, or by its end. The thread that waits for it sleeps.
fn listen() -> Result<Arc<AtomicBool>, Failure> {
    let is_told = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_told);
    let wait = move || {
        // A read error is as good as the end.
        let _ = io::stdin().read_line(&mut String::new());
        told.store(true, Ordering::Relaxed);
    };
    thread::Builder::new()
        .spawn(wait)
        .map_err(|error| Failure::new("thread", &error, "raise the limit of tasks"))?;
    Ok(is_told)
}

/// The packets in the window: those with these intended times.
#[derive(Debug, Clone, Copy)]
struct Window {
    start_ns: u64,
    end_ns: u64,
}

impl Window {
    #[inline]
    fn has(self, intended: u64) -> bool {
        (self.start_ns..self.end_ns).contains(&intended)
    }
}

struct Pinger {
    socket: Socket,
    template: Template,
    schedule: Schedule,
    window: Window,
    sent: u64,
    received: u64,
    tracker: Tracker,
    latency: Recorder,
    delay: Recorder,
}

impl Pinger {
    fn new(args: &PingerArgs, socket: Socket, template: Template) -> Self {
        let schedule = Schedule {
            start_ns: now_ns() + LEAD.as_nanos() as u64,
            pps: args.pps.0,
        };
        let start_ns = schedule.start_ns + args.warmup_ms * 1_000_000;
        Self {
            socket,
            template,
            schedule,
            window: Window {
                start_ns,
                end_ns: start_ns + args.window_ms * 1_000_000,
            },
            sent: 0,
            received: 0,
            tracker: Tracker::new(args.size),
            latency: Recorder::default(),
            delay: Recorder::default(),
        }
    }

    /// Sends and receives until it is told to stop and the window is over. It spins, so that no wake-up of
    /// its own is in a latency.
    fn send_until(&mut self, is_told: &AtomicBool) -> Result<(), Failure> {
        // A pinger that had no CPU for a while may still have packets of the window to send.
        let is_over = |it: &Self| it.schedule.time(it.sent) >= it.window.end_ns;
        while !is_told.load(Ordering::Relaxed) || !is_over(self) {
            self.send_due()?;
            self.receive();
        }
        Ok(())
    }

    /// Receives until `stop`, when the echo has returned all that it received, and then the answers that
    /// are still on their way.
    fn receive_until(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            self.receive();
        }
        self.drain();
    }

    fn send_due(&mut self) -> Result<(), Failure> {
        let due = self.schedule.due(self.sent, now_ns(), BATCH);
        if due == 0 {
            return Ok(());
        }
        let Self {
            socket,
            template,
            schedule,
            window,
            sent,
            delay,
            ..
        } = self;
        // Those that find no room are sent later, and are late.
        socket.send_each(due, |room| {
            let bytes = template.bytes();
            let frame = &mut room[..bytes.len()];
            frame.copy_from_slice(bytes);
            template.stamp(frame, *sent);
            let intended = schedule.time(*sent);
            if window.has(intended) {
                delay.record(now_ns().saturating_sub(intended));
            }
            *sent += 1;
            bytes.len()
        });
        socket.flush().map_err(|error| failure("send", &error))
    }

    /// Receives what has come; returns the number of frames.
    fn receive(&mut self) -> u32 {
        let Self {
            socket,
            schedule,
            window,
            tracker,
            latency,
            ..
        } = self;
        let count = socket.receive_each(BATCH, |packet| {
            if let Some(number) = tracker.frame(&packet) {
                let intended = schedule.time(number);
                if window.has(intended) {
                    latency.record(now_ns().saturating_sub(intended));
                }
            }
            packet.recycle()
        });
        self.received += u64::from(count);
        count
    }

    /// Receives until all answers are there or none has come for a while.
    fn drain(&mut self) {
        let start = now_ns();
        let mut last = start;
        let passed = |since: u64, limit: Duration| now_ns() - since >= limit.as_nanos() as u64;
        while !self.all_answered() && !passed(last, QUIET) && !passed(start, DRAIN) {
            if self.receive() > 0 {
                last = now_ns();
            }
        }
    }

    fn all_answered(&self) -> bool {
        self.received - self.tracker.corrupted - self.tracker.duplicates >= self.sent
    }

    fn into_round_trips(self) -> Result<RoundTrips, Failure> {
        let counts = self
            .socket
            .statistics()
            .map_err(|error| failure("statistics", &error))?;
        Ok(RoundTrips {
            sent: self.sent,
            answers: SinkCounts {
                packets: self.received,
                corrupted: self.tracker.corrupted,
                duplicates: self.tracker.duplicates,
                reordered: self.tracker.reordered,
                lost: self.tracker.lost,
            },
            // A packet that found FILL empty is in `rx_dropped` already.
            dropped: counts.rx_dropped + counts.rx_ring_full,
            latency: self.latency.percentiles(),
            delay: self.delay.percentiles(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Parsed {
        #[command(flatten)]
        args: PingerArgs,
    }

    #[test]
    fn words_give_the_same_arguments_again() {
        let args = PingerArgs {
            dev: "weir1".into(),
            pps: Rate(2_500),
            size: 1500,
            warmup_ms: 7,
            window_ms: 8,
            cpu: 3,
        };
        let words = std::iter::once("weir".into()).chain(args.to_words());
        let again = Parsed::try_parse_from(words).expect("its own words").args;
        assert_eq!(format!("{args:?}"), format!("{again:?}"));
    }
}
