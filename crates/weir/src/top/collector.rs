//! Taking frames in the background, so that keys are answered while a large host is read.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, channel, sync_channel,
};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use rustix::io::{read, write};
use rustix::pipe::{PipeFlags, pipe_with};

use super::frame::Frame;
use super::priced::Priced;
use super::record::Writer;
use super::sample::Sampler;
use crate::ledger::read::Scope;

/// The period of [`Sampler::tick`].
const TICK: Duration = Duration::from_millis(100);

/// Frames on their way to the screen; where it does not take them in time, they are not shown. All are recorded.
const WAITING: usize = 2;

/// Takes frames in a thread of its own, until this is dropped.
pub struct Collector {
    /// None as it ends.
    orders: Option<Sender<Order>>,
    frames: Receiver<Collected>,
    /// Readable while there may be frames.
    bell: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

/// A frame, or an error that ends the collecting.
pub type Collected = Result<Arc<Frame>>;

enum Order {
    Hold(BTreeSet<Priced>),
    Every(Duration),
}

impl Collector {
    /// Begins to take frames, and to record them if there is a file. These parts are measured from the first
    /// frame on.
    pub fn start(
        scope: Scope,
        every: Duration,
        record: Option<&Path>,
        wanted: BTreeSet<Priced>,
    ) -> Result<Self> {
        let writer = record.map(Writer::open).transpose()?;
        let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
        let (bell, button) = pipe_with(flags).context("cannot make a pipe")?;
        let (orders, ordered) = channel();
        let (sender, frames) = sync_channel(WAITING);
        let work = move || {
            let mut sampler = Sampler::open(scope);
            sampler.hold(&wanted);
            let loops = Loop {
                sampler,
                writer,
                every,
                next: Instant::now(),
                ordered,
                frames: sender,
                button,
            };
            loops.run();
        };
        let thread = thread::Builder::new().name("weir-top".into()).spawn(work);
        Ok(Self {
            orders: Some(orders),
            frames,
            bell,
            thread: Some(thread.context("cannot start a thread")?),
        })
    }

    /// Measures these parts from now on, and no others.
    pub fn hold(&self, wanted: BTreeSet<Priced>) {
        self.order(Order::Hold(wanted));
    }

    /// Changes the interval.
    pub fn every(&self, interval: Duration) {
        self.order(Order::Every(interval));
    }

    fn order(&self, order: Order) {
        if let Some(orders) = &self.orders {
            // A thread that has ended has said why.
            let _ = orders.send(order);
        }
    }

    /// Readable while there may be a frame.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// The next frame; none if there is none yet.
    pub fn take(&self) -> Option<Collected> {
        let mut bytes = [0; 64];
        while read(&self.bell, &mut bytes).is_ok_and(|read| read > 0) {}
        match self.frames.try_recv() {
            Ok(collected) => Some(collected),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(anyhow!("the reading of counters ended"))),
        }
    }

    /// Waits for the next frame.
    pub fn wait(&self) -> Collected {
        let ended = || anyhow!("the reading of counters ended");
        self.frames.recv().map_err(|_| ended())?
    }
}

impl Drop for Collector {
    /// Ends it with the last frame recorded in whole.
    fn drop(&mut self) {
        self.orders = None;
        // An error waits for room among the frames, which nobody takes any more.
        self.frames = sync_channel(0).1;
        if let Some(thread) = self.thread.take() {
            // A panic has been reported.
            let _ = thread.join();
        }
    }
}

struct Loop {
    sampler: Sampler,
    writer: Option<Writer>,
    every: Duration,
    next: Instant,
    ordered: Receiver<Order>,
    frames: SyncSender<Collected>,
    /// The end of the pipe that is written to; closed when this ends.
    button: OwnedFd,
}

impl Loop {
    fn run(mut self) {
        loop {
            let mut wait = self.next.saturating_duration_since(Instant::now());
            if self.sampler.ticks() {
                wait = wait.min(TICK);
            }
            // Orders come first, also where reading takes longer than the interval.
            match self.ordered.recv_timeout(wait) {
                Ok(Order::Hold(wanted)) => {
                    self.sampler.hold(&wanted);
                    // So that the first difference is there after one interval.
                    self.next = Instant::now();
                }
                Ok(Order::Every(interval)) => {
                    self.every = interval;
                    self.next = self.next.min(Instant::now() + interval);
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() < self.next => self.sampler.tick(),
                Err(RecvTimeoutError::Timeout) => {
                    let begun = Instant::now();
                    if self.collect().is_err() {
                        return;
                    }
                    // At most half of the time is for reading; intervals that were missed are left out.
                    let rested = Instant::now() + begun.elapsed();
                    self.next = (self.next + self.every).max(rested);
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Takes a frame, records it and sends it; an error is the end.
    fn collect(&mut self) -> Result<(), ()> {
        let collected = self.frame();
        let is_end = collected.is_err();
        let sent = if is_end {
            self.frames.send(collected).map_err(drop)
        } else {
            // A full channel is one whose reader is behind.
            let _ = self.frames.try_send(collected);
            Ok(())
        };
        self.ring();
        if is_end { Err(()) } else { sent }
    }

    fn frame(&mut self) -> Collected {
        let frame = self.sampler.frame()?;
        if let Some(writer) = &mut self.writer {
            writer.append(&frame)?;
        }
        Ok(Arc::new(frame))
    }

    fn ring(&self) {
        // A full pipe is readable already.
        let _: Result<usize, _> = write(&self.button, &[0]).map_err(io::Error::from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_nobody_takes_does_not_hold_up_the_end() {
        let missing = Scope {
            devices: vec!["no-such-device".into()],
            ..Scope::default()
        };
        let (bell, button) = pipe_with(PipeFlags::NONBLOCK).expect("a pipe");
        let (orders, ordered) = channel();
        // One without room, as it is after frames that nobody took.
        let (sender, frames) = sync_channel(0);
        let mut failing = Loop {
            sampler: Sampler::open(missing),
            writer: None,
            every: Duration::from_secs(1),
            next: Instant::now(),
            ordered,
            frames: sender,
            button,
        };
        let collector = Collector {
            orders: Some(orders),
            frames,
            bell,
            thread: Some(thread::spawn(move || {
                assert_eq!(failing.collect(), Err(()));
            })),
        };
        let (ended, end) = channel();
        thread::spawn(move || {
            drop(collector);
            ended.send(())
        });
        assert_eq!(end.recv_timeout(Duration::from_secs(30)), Ok(()));
    }
}
