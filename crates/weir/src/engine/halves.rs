//! The engine on the two halves of a socket: one thread receives, the other sends.
//!
//! The receiving thread reads and changes each packet, and hands its frames over, a batch in one
//! message, through a bounded channel. It waits while the channel is full, so the kernel drops the
//! packets for which there is no time, and counts them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ::xsk::{Frame, RxHalf, TxHalf};
use hostnet::cpulist::pin;

use super::moves::{Inspect, Moves, Round, Source};
use super::xsk::{CHUNKS, Xsk, failure};
use super::{Failure, Mode};
use crate::traffic::frame::swap_macs;

/// Most packets in the channel: the other chunks are in the rings.
const WAITING: u32 = CHUNKS / 4;

/// The longest sleep of the sender: while frames are on their way, to see their completions, and else.
const COMPLETIONS: Duration = Duration::from_millis(1);
const IDLE: Duration = Duration::from_millis(100);

/// A split AF_XDP socket, and the thread that sends.
#[derive(Debug)]
pub struct Halves {
    rx: RxHalf,
    frames: SyncSender<Vec<Frame>>,
    /// `None` after it failed.
    sender: Option<JoinHandle<Result<(), Failure>>>,
    completed: Arc<AtomicU64>,
    mode_obtained: Option<Mode>,
    refusals: Vec<String>,
    patience: Duration,
    batch: u32,
    /// Packets handed over, and those whose completion was returned by a round.
    handed_over: u64,
    reported: u64,
}

impl Halves {
    /// Splits an open socket; its sending half runs on `sender_cpu`.
    pub fn new(xsk: Xsk, sender_cpu: usize) -> Result<Self, Failure> {
        let mode_obtained = xsk.mode_obtained();
        let Xsk {
            socket,
            refusals,
            patience,
            batch,
            ..
        } = xsk;
        let (rx, tx) = socket.split();
        let (frames, kept) = sync_channel((WAITING / batch).max(1) as usize);
        let completed = Arc::new(AtomicU64::new(0));
        let sending = Sending {
            tx,
            sent: 0,
            completed: Arc::clone(&completed),
        };
        let sender = thread::Builder::new()
            .name("sender".into())
            .spawn(move || sending.run(&kept, sender_cpu))
            .map_err(|error| Failure::new("thread", &error, "raise the limit of tasks"))?;
        Ok(Self {
            rx,
            frames,
            sender: Some(sender),
            completed,
            mode_obtained,
            refusals,
            patience,
            batch,
            handed_over: 0,
            reported: 0,
        })
    }

    fn hand_over(&mut self, frames: Vec<Frame>) -> Result<(), Failure> {
        let count = frames.len() as u64;
        if count == 0 {
            return Ok(());
        }
        if self.frames.send(frames).is_err() {
            return Err(self.failure_of_sender());
        }
        self.handed_over += count;
        Ok(())
    }

    /// The reason that the sender ended before this engine.
    #[cold]
    fn failure_of_sender(&mut self) -> Failure {
        let ended = self.sender.take().map(JoinHandle::join);
        match ended {
            Some(Ok(Err(failure))) => failure,
            _ => Failure {
                step: "sender",
                errno: 0,
                message: "the sending thread ended early: this is a defect".into(),
            },
        }
    }

    /// Packets completed since the last call.
    fn completed(&mut self) -> u64 {
        let before = self.reported;
        // Relaxed: a count alone.
        self.reported = self.completed.load(Ordering::Relaxed);
        self.reported - before
    }
}

impl Moves for Halves {
    fn mode_obtained(&self) -> Option<Mode> {
        self.mode_obtained
    }

    fn refusals(&self) -> &[String] {
        &self.refusals
    }

    fn receive(&mut self, _: &mut impl Inspect) -> Result<Round, Failure> {
        Err(only_forwards())
    }

    fn send(&mut self, _: &mut Source) -> Result<Round, Failure> {
        Err(only_forwards())
    }

    #[inline]
    fn forward(&mut self, inspect: &mut impl Inspect) -> Result<Round, Failure> {
        let timed_out = !self
            .rx
            .wait(self.patience)
            .map_err(|error| failure("wait", &error))?;
        let mut frames = Vec::with_capacity(self.batch as usize);
        self.rx.receive_each(self.batch, |mut packet| {
            inspect.frame(&packet);
            swap_macs(&mut packet);
            let (frame, done) = packet.keep();
            frames.push(frame);
            done
        });
        let received = frames.len() as u64;
        self.hand_over(frames)?;
        Ok(Round {
            received,
            completed: self.completed(),
            timed_out,
        })
    }

    fn complete(&mut self) -> Result<Round, Failure> {
        Ok(Round {
            completed: self.completed(),
            ..Round::default()
        })
    }

    fn in_flight(&self) -> u64 {
        self.handed_over - self.reported
    }

    fn kernel_drops(&mut self) -> Result<u64, Failure> {
        let counts = self
            .rx
            .statistics()
            .map_err(|error| failure("statistics", &error))?;
        // A packet that found FILL empty is in `rx_dropped` already.
        Ok(counts.rx_dropped + counts.rx_ring_full)
    }
}

fn only_forwards() -> Failure {
    Failure {
        step: "bench",
        errno: 0,
        message: "a split socket only forwards: choose l2fwd".into(),
    }
}

/// The thread that sends.
struct Sending {
    tx: TxHalf,
    sent: u64,
    completed: Arc<AtomicU64>,
}

impl Sending {
    /// Sends until the other side of the channel is gone. It sleeps in the channel, however the
    /// receiver waits: it may have to share its CPU with the load.
    fn run(mut self, kept: &Receiver<Vec<Frame>>, cpu: usize) -> Result<(), Failure> {
        pin(cpu).map_err(|error| Failure {
            step: "cpu",
            errno: error.errno().unwrap_or(0),
            message: error.to_string(),
        })?;
        loop {
            let patience = match self.tx.outstanding() {
                0 => IDLE,
                _ => COMPLETIONS,
            };
            match kept.recv_timeout(patience) {
                Ok(frames) => self.send(frames)?,
                Err(RecvTimeoutError::Timeout) => self.flush()?,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    fn send(&mut self, mut frames: Vec<Frame>) -> Result<(), Failure> {
        while !frames.is_empty() {
            self.sent += self.tx.send_frames(&mut frames) as u64;
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.tx.flush().map_err(|error| failure("send", &error))?;
        self.tx.reclaim();
        let completed = self.sent - u64::from(self.tx.outstanding());
        // Relaxed: a count alone.
        self.completed.store(completed, Ordering::Relaxed);
        Ok(())
    }
}
