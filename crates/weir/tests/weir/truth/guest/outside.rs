//! One thread sends packets to the guest while it measures, stops and continues it, and records the
//! run time of its CPU.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use hostnet::cpulist::pin;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::gettid;
use testkit::PacketSocket;
use weir::process::clock::now_ns;

use super::machine::prefer;
use crate::truth::SENDER;

/// The period of its checks.
const LOOK_NS: u64 = 1_000_000;
/// From stop to stop: the shortest time, and the longest. With the smallest share a stop is longer than
/// a tick of the guest: shorter ones within softirqs are not detected.
const PERIOD_NS: (f64, f64) = (100e6, 200e6);

/// The work of that thread.
pub struct Outside {
    /// The guest.
    pub pid: Pid,
    /// Of its CPU.
    pub schedstat: File,
    /// The share that it is stopped.
    pub share: f64,
    /// Packets a second.
    pub pps: u64,
}

/// The run time of the guest's CPU.
#[derive(Debug, Default)]
pub struct History(Vec<Seen>);

/// At a moment, in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Seen {
    at: f64,
    ran: f64,
    waited: f64,
}

/// The missing run time of the guest's CPU, in percent of a time.
#[derive(Debug, Clone, Copy)]
pub struct Missing {
    /// In sum.
    pub all: f64,
    /// While it could have run: others did.
    pub waited: f64,
}

impl Outside {
    /// Until it is over. Tells when the guest leaves the host's CPU free.
    pub fn go_on(
        self,
        socket: &PacketSocket,
        frame: &[u8],
        over: &AtomicBool,
        set_free: impl Fn(bool),
    ) -> Result<History> {
        pin(SENDER)?;
        prefer(gettid().as_raw_nonzero().get().unsigned_abs())?;
        let mut history = History::default();
        let mut stops = Stops::new(self.pid, self.share);
        let mut next_packet = now_ns();
        while !over.load(Ordering::Relaxed) || stops.is_stopped {
            let now = now_ns();
            if now >= next_packet {
                socket.send(frame)?;
                next_packet += 1_000_000_000 / self.pps;
            }
            if stops.next <= now {
                history.see(&self.schedstat, &stops)?;
                stops.toggle(&set_free)?;
            }
            history.see(&self.schedstat, &stops)?;
            let next = (now + LOOK_NS).min(next_packet).min(stops.next);
            thread::sleep(Duration::from_nanos(next.saturating_sub(now_ns())));
        }
        Ok(history)
    }
}

/// Stops and runs in turn, of lengths that are spread evenly and repeat nowhere.
struct Stops {
    pid: Pid,
    share: f64,
    phase: f64,
    /// When to stop or to go on.
    next: u64,
    is_stopped: bool,
}

impl Stops {
    fn new(pid: Pid, share: f64) -> Self {
        Self {
            pid,
            share,
            phase: 0.0,
            next: if share > 0.0 { 0 } else { u64::MAX },
            is_stopped: false,
        }
    }

    fn toggle(&mut self, set_free: impl Fn(bool)) -> Result<()> {
        const GOLDEN: f64 = 0.618_033_988_749_895;
        let period_ns = PERIOD_NS.0 + (PERIOD_NS.1 - PERIOD_NS.0) * self.phase;
        let now = now_ns();
        if self.is_stopped {
            set_free(false);
            kill_process(self.pid, Signal::CONT)?;
            self.next = now + (period_ns * (1.0 - self.share)) as u64;
            self.phase = (self.phase + GOLDEN).fract();
        } else {
            kill_process(self.pid, Signal::STOP)?;
            set_free(true);
            self.next = now + (period_ns * self.share) as u64;
        }
        self.is_stopped = !self.is_stopped;
        Ok(())
    }
}

impl History {
    /// The scheduler updates the time of a running thread from time to time, so only a
    /// change is exact; the time of a stopped thread is exact at any time.
    fn see(&mut self, schedstat: &File, stops: &Stops) -> Result<()> {
        let mut bytes = [0; 128];
        let length = schedstat.read_at(&mut bytes, 0)?;
        let text = String::from_utf8_lossy(&bytes[..length]);
        let mut words = text.split_whitespace().map(str::parse::<f64>);
        let mut next = || words.next().context("a short schedstat");
        let seen = Seen {
            at: now_ns() as f64,
            ran: next()??,
            waited: next()??,
        };
        if stops.is_stopped || self.0.last().is_none_or(|last| last.ran < seen.ran) {
            self.0.push(seen);
        }
        Ok(())
    }

    /// From a moment to another.
    pub fn missing(&self, start: f64, end: f64) -> Result<Missing> {
        let (first, last) = (self.at(start)?, self.at(end)?);
        let percent = |ns: f64| ns / (end - start) * 100.0;
        Ok(Missing {
            all: percent(end - start - (last.ran - first.ran)),
            waited: percent(last.waited - first.waited),
        })
    }

    /// Interpolated between the readings before and after.
    fn at(&self, moment: f64) -> Result<Seen> {
        let pair = self.0.windows(2).find(|pair| pair[1].at >= moment);
        let pair = pair.context("it was not observed until the end")?;
        let (before, after) = (pair[0], pair[1]);
        let part = (moment - before.at) / (after.at - before.at);
        let between = |of: fn(Seen) -> f64| of(before) + (of(after) - of(before)) * part;
        Ok(Seen {
            at: moment,
            ran: between(|it| it.ran),
            waited: between(|it| it.waited),
        })
    }
}
