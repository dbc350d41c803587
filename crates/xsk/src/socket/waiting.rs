//! Waiting for packets, and for room to send.

use super::receiver::{Receiver, RxEnd};
use super::sender::{Sender, TxEnd};
use crate::error::{Error, ErrorKind, Result};
use crate::sys::KernelSocket;
use crate::umem::Cache;
use crate::umem_rings::{CompletionRing, FillRing};
use crate::wait::{Interest, Pause, Ready, Wait};
use rustix::event::PollFlags;
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// Longest sleep while the socket has to be looked after: the kernel has yet to take packets from TX,
/// or too few chunks are lent for receiving. Also the longest time that it spins without looking, and the
/// shortest after which FILL is looked at again.
const LOOK_AFTER: Duration = Duration::from_millis(1);

/// Longest sleep while TX has room and every chunk is lent. The kernel reports no completions.
const COMPLETION: Duration = Duration::from_micros(100);

/// Most pauses between two reads of the ring index while spinning, about a microsecond. Each read
/// takes the index's cache line from the CPU that fills the ring.
const MOST_PAUSES: u32 = 32;

/// Reads of the ring index between two reads of the clock while spinning.
const LOOKS_PER_CLOCK: u32 = 16;

/// The parts of a socket that are looked after while it waits; one side of a split socket has one.
pub(super) struct Waiting<'s> {
    pub(super) rx: Option<(&'s mut RxEnd, &'s mut FillRing)>,
    pub(super) tx: Option<(&'s mut TxEnd, &'s mut CompletionRing)>,
    pub(super) cache: &'s mut Cache,
}

impl<'s> Waiting<'s> {
    pub(super) fn new(receiver: &'s mut Receiver, sender: &'s mut Sender) -> Self {
        Self {
            rx: Some((&mut receiver.main, &mut receiver.fill)),
            tx: Some((&mut sender.main, &mut sender.completion)),
            cache: &mut sender.cache,
        }
    }

    /// Waits for a packet; returns whether there is one.
    #[inline]
    pub(super) fn wait(&mut self, timeout: Duration) -> Result<bool> {
        if self.has_packets() {
            return Ok(true);
        }
        self.wait_until(Interest::Receive, timeout)
            .map(|ready| ready.receive)
    }

    /// Waits for the events of `interest`.
    pub(super) fn wait_for(&mut self, interest: Interest, timeout: Duration) -> Result<Ready> {
        let ready = self.ready(interest);
        if ready.any() {
            return Ok(ready);
        }
        self.wait_until(interest, timeout)
    }

    /// Waits with nothing ready. While other threads may free chunks that FILL lacks, or the kernel
    /// has yet to take packets or chunks, it looks after them at intervals.
    fn wait_until(&mut self, interest: Interest, timeout: Duration) -> Result<Ready> {
        let start = self.now();
        loop {
            self.look_after()?;
            let ready = self.ready(interest);
            let now = self.now();
            let left = timeout.saturating_sub(now.saturating_duration_since(start));
            if ready.any() {
                return Ok(ready);
            }
            let pause = self.next_pause(interest, now);
            let mut slice = left.min(self.sleep_at_most(interest, now).unwrap_or(left));
            if pause == Pause::Spin {
                slice = slice.min(LOOK_AFTER);
            }
            let interrupted = self.pause(pause, interest, slice)?;
            let ready = self.ready(interest);
            if ready.any() || interrupted || slice == left {
                return Ok(ready);
            }
        }
    }

    /// Gets the socket ready for the caller's own sleep; see
    /// [`Socket::prepare_to_wait`](crate::Socket::prepare_to_wait).
    pub(super) fn prepare(&mut self, interest: Interest) -> Result<Ready> {
        self.look_after()?;
        let events = self.events(interest);
        self.socket()
            .watch(events)
            .map_err(|errno| Error::os(ErrorKind::Os, errno, "setting the events to wait for"))?;
        let now = self.now();
        Ok(Ready {
            sleep_at_most: self.sleep_at_most(interest, now),
            ..self.ready(interest)
        })
    }

    /// Reclaims completed chunks, refills FILL, and wakes the kernel for either ring if it has to be.
    fn look_after(&mut self) -> Result<()> {
        if let Some((_, completion)) = &mut self.tx {
            completion.reclaim_sent(self.cache);
        }
        if let Some((rx, fill)) = &mut self.rx {
            fill.refill(self.cache);
            rx.wake_for(fill);
        }
        if let Some((tx, completion)) = &mut self.tx
            && tx.pending() > 0
        {
            tx.kick(completion, self.cache)?;
        }
        Ok(())
    }

    /// The longest sleep before the socket has to be looked after again.
    fn sleep_at_most(&mut self, interest: Interest, now: Instant) -> Option<Duration> {
        if interest.sends() && self.lacks_chunks() {
            return Some(COMPLETION);
        }
        let pending = self.tx.as_mut().is_some_and(|(tx, _)| tx.pending() > 0);
        let starves = self.rx.as_ref().is_some_and(|(_, fill)| fill.starves());
        if pending || starves {
            return Some(LOOK_AFTER);
        }
        let (_, fill) = self.rx.as_mut()?;
        fill.look_again_after(now, LOOK_AFTER)
    }

    #[inline]
    fn has_packets(&mut self) -> bool {
        self.rx.as_mut().is_some_and(|(rx, _)| rx.has_packets())
    }

    fn has_room(&mut self) -> bool {
        self.tx.as_mut().is_some_and(|(tx, _)| tx.has_room())
    }

    /// Whether all chunks are lent, and some are on their way back.
    fn lacks_chunks(&mut self) -> bool {
        let Some((_, completion)) = &mut self.tx else {
            return false;
        };
        if !self.cache.has_free() {
            completion.reclaim_sent(self.cache);
        }
        !self.cache.has_free() && completion.lent() > 0
    }

    fn ready(&mut self, interest: Interest) -> Ready {
        Ready {
            receive: interest.receives() && self.has_packets(),
            send: interest.sends() && self.has_room() && !self.lacks_chunks(),
            sleep_at_most: None,
        }
    }

    /// The events that end a sleep in the kernel. Room in TX is none while chunks are what is
    /// lacking: it would end each sleep at once.
    fn events(&mut self, interest: Interest) -> PollFlags {
        let mut events = PollFlags::empty();
        events.set(PollFlags::IN, interest.receives());
        events.set(PollFlags::OUT, interest.sends() && !self.has_room());
        events
    }

    fn next_pause(&mut self, interest: Interest, now: Instant) -> Pause {
        match (self.strategy(), &mut self.rx) {
            (Wait::Spin | Wait::BusyPoll, _) => Pause::Spin,
            (Wait::Adaptive { .. }, Some((rx, _))) if interest.receives() => {
                let received = rx.received.get() + rx.received_elsewhere;
                rx.pacer.pause(received, now)
            }
            _ => Pause::Block,
        }
    }

    /// Returns whether a signal ended it.
    fn pause(&mut self, pause: Pause, interest: Interest, time: Duration) -> Result<bool> {
        match pause {
            Pause::Spin => self.spin(interest, time),
            Pause::Block => return self.block(interest, time),
            Pause::Gather(delay) => {
                let start = self.now();
                self.count_sleep();
                let asked = delay.min(time);
                self.socket().sleep(asked);
                let slept = self.now().saturating_duration_since(start);
                if let Some((rx, _)) = &mut self.rx {
                    rx.pacer.slept(asked, slept);
                }
                let rest = time.saturating_sub(slept);
                if !rest.is_zero() && !self.ready(interest).any() {
                    return self.block(interest, rest);
                }
            }
        }
        Ok(false)
    }

    fn spin(&mut self, interest: Interest, time: Duration) {
        let start = self.now();
        let busy = self.strategy() == Wait::BusyPoll;
        let mut pauses = 1;
        loop {
            for _ in 0..LOOKS_PER_CLOCK {
                if self.ready(interest).any() {
                    return;
                }
                if busy && self.poll_driver() {
                    continue;
                }
                for _ in 0..pauses {
                    std::hint::spin_loop();
                }
                pauses = MOST_PAUSES.min(pauses * 2);
            }
            if self.now().saturating_duration_since(start) >= time {
                return;
            }
        }
    }

    /// Runs the driver, which leaves packets in RX; the result of the call does not matter. Without an RX ring the
    /// kernel refuses to receive, and sending may drop a packet unless the driver does it. Returns whether there
    /// is a call.
    fn poll_driver(&self) -> bool {
        let _ = match (&self.rx, &self.tx) {
            (Some((rx, _)), _) if rx.ring.is_some() => self.socket().recv(),
            (_, Some((tx, _))) if tx.is_zero_copy() => self.socket().send(),
            _ => return false,
        };
        true
    }

    fn block(&mut self, interest: Interest, time: Duration) -> Result<bool> {
        self.count_sleep();
        let events = self.events(interest);
        match self.socket().poll(events, time) {
            Ok(()) => Ok(false),
            Err(Errno::INTR) => Ok(true),
            Err(errno) => Err(Error::os(ErrorKind::Os, errno, "waiting for the socket")),
        }
    }

    fn count_sleep(&mut self) {
        match (&mut self.rx, &mut self.tx) {
            (Some((rx, _)), _) => rx.sleeps += 1,
            (None, Some((tx, _))) => tx.sleeps += 1,
            (None, None) => {}
        }
    }

    fn strategy(&self) -> Wait {
        match (&self.rx, &self.tx) {
            (Some((rx, _)), _) => rx.wait,
            (None, Some((tx, _))) => tx.wait,
            (None, None) => Wait::Poll,
        }
    }

    fn now(&self) -> Instant {
        self.socket().now()
    }

    fn socket(&self) -> &dyn KernelSocket {
        match (&self.rx, &self.tx) {
            (Some((rx, _)), _) => &**rx.socket(),
            (None, Some((tx, _))) => tx.socket(),
            (None, None) => unreachable!("one side waits"),
        }
    }
}
