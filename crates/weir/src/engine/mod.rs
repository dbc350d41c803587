//! The engines: different ways to do the same benches.

use std::{fmt, io};

use crate::engine::protocol::Mode;
use crate::traffic::frame::{Template, Tracker};

pub mod libxdp;
pub mod packet;
pub mod protocol;
pub mod tpacket;
pub mod worker;
pub mod xsk;

/// What one round of an engine did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Round {
    /// Packets received.
    pub received: u64,
    /// Sent packets that the kernel completed.
    pub completed: u64,
    /// The engine slept until its time ran out, so the clock may have moved on far.
    pub timed_out: bool,
}

/// An open socket that can do each bench, a round at a time.
///
/// A round waits as the worker was told to, for [`WAIT`] at most, and then handles at most
/// one batch. The worker calls it in a loop and looks at the clock and at its signals
/// in between. The loop is compiled once for each engine: nothing here is called through
/// a pointer.
pub trait Engine: Sized {
    /// The mode that the kernel reports; `None` where there is no choice.
    fn mode_obtained(&self) -> Option<Mode>;

    /// Better modes that were tried first, each with its errno and reason.
    fn refusals(&self) -> &[String];

    /// Receives a batch, shows each frame to `inspect` and drops it.
    fn rxdrop(&mut self, inspect: &mut impl Inspect) -> Result<Round, Failure>;

    /// Sends a batch of what `source` makes, and collects completions.
    fn txpush(&mut self, source: &mut Source) -> Result<Round, Failure>;

    /// Receives a batch, shows each frame to `inspect`, swaps its MAC addresses, sends it
    /// back, and collects completions.
    fn l2fwd(&mut self, inspect: &mut impl Inspect) -> Result<Round, Failure>;

    /// Collects completions without sending anything new, but what was handed over
    /// already is sent. Does not wait.
    fn complete(&mut self) -> Result<Round, Failure>;

    /// Frames handed over for sending that were not completed yet.
    fn in_flight(&self) -> u64;

    /// Packets that reached this socket since it was opened and were dropped there by the
    /// kernel. Called once, at the end.
    fn kernel_drops(&mut self) -> Result<u64, Failure>;
}

/// The longest that a round may sleep.
pub const WAIT: rustix::time::Timespec = rustix::time::Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// What is done with the bytes of a received frame.
pub trait Inspect {
    /// Looks at one frame.
    fn frame(&mut self, frame: &[u8]);
}

/// Does not look: what rxdrop measures is then the cost of receiving alone.
#[derive(Debug, Clone, Copy)]
pub struct Unread;

impl Inspect for Unread {
    #[inline]
    fn frame(&mut self, _: &[u8]) {}
}

impl Inspect for Tracker {
    #[inline]
    fn frame(&mut self, frame: &[u8]) {
        Tracker::frame(self, frame);
    }
}

/// The frames that txpush sends: one template under ascending sequence numbers.
#[derive(Debug, Clone)]
pub struct Source {
    /// What each frame holds but for its number. An engine may write it to all its
    /// frames in advance.
    pub template: Template,
    next: u64,
}

impl Source {
    /// Numbers copies of `template` from 0.
    pub fn new(template: Template) -> Self {
        Self { template, next: 0 }
    }

    /// Numbers a frame that holds the template already.
    #[inline]
    pub fn stamp(&mut self, frame: &mut [u8]) {
        self.template.stamp(frame, self.next);
        self.next += 1;
    }
}

/// Why an engine cannot go on: the step, the errno, the likely cause and its cure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What was being done.
    pub step: &'static str,
    /// The error number, or 0 if there is none.
    pub errno: i32,
    /// Cause and cure.
    pub message: String,
}

impl Failure {
    /// A failure of `step` by `error`, explained by `hint`.
    pub fn new(step: &'static str, error: &io::Error, hint: impl fmt::Display) -> Self {
        Self {
            step,
            errno: error.raw_os_error().unwrap_or(0),
            message: format!("{error}: {hint}"),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.step, self.message)
    }
}

impl std::error::Error for Failure {}
