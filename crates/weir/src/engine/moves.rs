//! The moves of an engine: receive, send and forward, a batch of packets at a time.

use rustix::time::Timespec;

use super::{Failure, Mode};
use crate::traffic::frame::{Template, Tracker};

/// The result of one round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Round {
    /// Packets received.
    pub received: u64,
    /// Sent packets that the kernel completed.
    pub completed: u64,
    /// The wait timed out, so the clock may have moved on far.
    pub timed_out: bool,
}

/// An open socket that makes each move in rounds.
///
/// A round waits in the way that was chosen when the socket was opened, for [`WAIT`] at most, and
/// then handles at most one batch. The caller's loop checks the clock and its signals in between.
/// The loop is compiled once for each engine: nothing here is called through a pointer.
pub trait Moves: Sized {
    /// The mode that the kernel reports; `None` for an engine without modes.
    fn mode_obtained(&self) -> Option<Mode>;

    /// Better modes that were tried first, each with its errno and reason.
    fn refusals(&self) -> &[String];

    /// Receives a batch, shows each frame to `inspect` and drops it.
    fn receive(&mut self, inspect: &mut impl Inspect) -> Result<Round, Failure>;

    /// Sends a batch of frames from `source`, and collects completions.
    fn send(&mut self, source: &mut Source) -> Result<Round, Failure>;

    /// Receives a batch, shows each frame to `inspect`, swaps its MAC addresses, sends it
    /// back, and collects completions.
    fn forward(&mut self, inspect: &mut impl Inspect) -> Result<Round, Failure>;

    /// Collects completions and flushes frames that were handed over already; sends nothing new.
    /// Does not wait.
    fn complete(&mut self) -> Result<Round, Failure>;

    /// Frames handed over for sending and not completed yet.
    fn in_flight(&self) -> u64;

    /// Packets that reached this socket since it was opened and were dropped there by the
    /// kernel. Called once, at the end.
    fn kernel_drops(&mut self) -> Result<u64, Failure>;
}

/// The longest sleep of a round.
pub const WAIT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// A look at the bytes of each received frame.
pub trait Inspect {
    /// Looks at one frame.
    fn frame(&mut self, frame: &[u8]);

    /// Looks at one frame that came in several pieces.
    fn pieces<'a>(&mut self, pieces: impl Iterator<Item = &'a [u8]>);

    /// Looks at the UDP payload of one frame, whose headers the kernel has checked.
    fn payload(&mut self, payload: &[u8]);
}

/// Leaves frames unread: the cost is that of receiving alone.
#[derive(Debug, Clone, Copy)]
pub struct Unread;

impl Inspect for Unread {
    #[inline]
    fn frame(&mut self, _: &[u8]) {}

    #[inline]
    fn pieces<'a>(&mut self, _: impl Iterator<Item = &'a [u8]>) {}

    #[inline]
    fn payload(&mut self, _: &[u8]) {}
}

impl Inspect for Tracker {
    #[inline]
    fn frame(&mut self, frame: &[u8]) {
        Tracker::frame(self, frame);
    }

    #[inline]
    fn pieces<'a>(&mut self, pieces: impl Iterator<Item = &'a [u8]>) {
        Tracker::pieces(self, pieces);
    }

    #[inline]
    fn payload(&mut self, payload: &[u8]) {
        Tracker::payload(self, payload);
    }
}

/// Frames to send: copies of one template with ascending sequence numbers.
#[derive(Debug, Clone)]
pub struct Source {
    /// The content of each frame, except its number. An engine may write it to all its
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
