//! The sending side of a socket: TX, COMPLETION, and waking the kernel for them.

use super::bound::Bound;
use crate::counter::Counter;
use crate::delay::{self, Point};
use crate::error::{Error, ErrorKind, Result};
use crate::sys::KernelSocket;
use crate::umem::Cache;
use crate::umem_rings::{CompletionRing, Outgoing, TxRing};
use crate::wait::Wait;
use rustix::event::PollFlags;
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;

/// Flushes with pending packets and no wake-up request before the kernel is woken nevertheless: it
/// sets its flag without a barrier, so a request can be missed.
const PATIENT_FLUSHES: u32 = 64;

/// Longest time that closing a socket waits for packets on their way out.
pub(crate) const DRAIN: Duration = Duration::from_millis(100);

/// The TX ring of one AF_XDP socket.
#[derive(Debug)]
pub(crate) struct TxEnd {
    pub(crate) ring: Option<TxRing>,
    socket: Arc<dyn KernelSocket>,
    zero_copy: bool,
    patient: u32,
    pub(super) wait: Wait,
    pub(super) sleeps: Counter,
    pub(super) sent: Counter,
    pub(super) wakeups: Counter,
    pub(super) send_drops: Counter,
}

impl TxEnd {
    pub(crate) fn new(
        socket: &Arc<dyn KernelSocket>,
        ring: Option<TxRing>,
        wait: Wait,
        zero_copy: bool,
    ) -> Self {
        Self {
            ring,
            socket: Arc::clone(socket),
            zero_copy,
            patient: 0,
            wait,
            sleeps: Counter::default(),
            sent: Counter::default(),
            wakeups: Counter::default(),
            send_drops: Counter::default(),
        }
    }

    pub(super) fn socket(&self) -> &dyn KernelSocket {
        &*self.socket
    }

    pub(super) fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// Free slots of the ring; 0 without one.
    #[inline]
    pub(super) fn room(&mut self) -> u32 {
        self.ring.as_mut().map_or(0, |tx| tx.free(tx.size()))
    }

    /// Whether a packet can be put into the ring.
    pub(super) fn has_room(&mut self) -> bool {
        self.ring.as_mut().is_some_and(|tx| tx.free(1) > 0)
    }

    /// Published packets that the kernel has not consumed.
    pub(super) fn pending(&mut self) -> u32 {
        self.ring.as_mut().map_or(0, TxRing::pending)
    }

    pub(super) fn flush(
        &mut self,
        completion: &mut CompletionRing,
        cache: &mut Cache,
    ) -> Result<()> {
        self.hand_over(completion, cache)?;
        // A program that only forwards to this socket neither receives nor allocates from it, so
        // nothing else would reclaim its chunks.
        completion.reclaim_sent(cache);
        Ok(())
    }

    /// Publishes TX, and wakes the kernel if it has to be.
    pub(super) fn hand_over(
        &mut self,
        completion: &mut CompletionRing,
        cache: &mut Cache,
    ) -> Result<()> {
        let Some(tx) = self.ring.as_mut() else {
            return Ok(());
        };
        self.sent += u64::from(tx.staged());
        Outgoing { tx, completion }.publish();
        if tx.pending() > 0 && self.is_kick_due() {
            self.kick(completion, cache)?;
        }
        Ok(())
    }

    /// Whether the kernel asks for a wake-up, or a request may have been missed.
    fn is_kick_due(&mut self) -> bool {
        let asked = self.ring.as_ref().is_some_and(TxRing::needs_wakeup);
        self.patient += 1;
        let missed = cfg!(not(xsk_broken = "lost_wakeup")) && self.patient >= PATIENT_FLUSHES;
        let due = asked || missed;
        if due {
            self.patient = 0;
        }
        due
    }

    /// Wakes the kernel until it has consumed the TX ring or makes no progress. In copy mode the
    /// call transmits, a limited number of packets each time.
    pub(super) fn kick(
        &mut self,
        completion: &mut CompletionRing,
        cache: &mut Cache,
    ) -> Result<()> {
        loop {
            let before = self.pending();
            self.wakeups += 1;
            delay::at(Point::Send);
            match self.socket.send() {
                Ok(()) | Err(Errno::INTR) => {}
                // The kernel dropped one packet, and completed it.
                Err(Errno::BUSY) => self.send_drops += 1,
                // The call's budget is used up, or COMPLETION or the device's queue is full:
                // reclaiming makes room.
                Err(Errno::AGAIN | Errno::NOBUFS) => {
                    completion.reclaim(cache);
                }
                // No carrier, or a reset, which takes some cards seconds: the packets stay in the ring
                // for the next wake-up.
                Err(Errno::NETDOWN) if self.zero_copy && self.socket.device_is_up() => {
                    return Ok(());
                }
                Err(errno) => return Err(send_error(errno)),
            }
            let after = self.pending();
            if after >= before {
                self.wake_polled_driver();
            }
            if after == 0 || after >= before || self.zero_copy {
                return Ok(());
            }
        }
    }

    /// Wakes the driver of a zero-copy socket that busy polls. In sendto(2) the kernel polls the NAPI instance of the
    /// RX queue in place of it, but some drivers send in another one: virtio-net, and igb with few queues. poll(2)
    /// wakes the driver all the same (`xsk_poll`, `net/xdp/xsk.c`).
    pub(crate) fn wake_polled_driver(&self) {
        if self.zero_copy && self.wait == Wait::BusyPoll {
            // The call itself is the wake-up; its result does not matter.
            let _ = self.socket.poll(PollFlags::empty(), Duration::ZERO);
        }
    }
}

fn send_error(errno: Errno) -> Error {
    match errno {
        Errno::NETDOWN => Error::os(
            ErrorKind::DeviceDown,
            errno,
            "the device was set down: set it up again with `ip link set dev NAME up`",
        ),
        Errno::NXIO | Errno::NODEV => Error::os(
            ErrorKind::DeviceMissing,
            errno,
            "the device is gone or was moved to another network namespace: close the socket and open another",
        ),
        _ => Error::os(ErrorKind::Os, errno, "sending"),
    }
}

/// The sending side of the sockets on one queue, and the chunks that they have free.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) main: TxEnd,
    pub(crate) siblings: Vec<TxEnd>,
    pub(crate) completion: CompletionRing,
    pub(crate) cache: Cache,
    /// Dropped last, after the rings, whose mappings pin the kernel's socket.
    pub(super) bound: Arc<Bound>,
}

impl Sender {
    pub(crate) fn new(
        main: TxEnd,
        completion: CompletionRing,
        cache: Cache,
        bound: Arc<Bound>,
    ) -> Self {
        Self {
            main,
            siblings: Vec::new(),
            completion,
            cache,
            bound,
        }
    }

    /// Wakes the kernel until all sent packets are reclaimed, or the time is up.
    pub(super) fn drain(&mut self) {
        let socket = Arc::clone(&self.main.socket);
        let deadline = socket.now() + DRAIN;
        loop {
            self.completion.reclaim(&mut self.cache);
            let waiting = self.unfinished();
            if waiting == 0 || socket.now() >= deadline {
                return;
            }
            for end in std::iter::once(&mut self.main).chain(&mut self.siblings) {
                let pending = end.pending();
                if pending > 0 && end.kick(&mut self.completion, &mut self.cache).is_err() {
                    return;
                }
            }
            if self.unfinished() >= waiting {
                socket.sleep(Duration::from_micros(100));
            }
        }
    }

    /// Chunks of published packets that were not reclaimed.
    fn unfinished(&mut self) -> u32 {
        self.lent_beside(|tx| tx.staged())
    }

    /// Those of them that the kernel may have taken from a TX ring. Where it publishes its index late,
    /// that may be any.
    fn being_sent(&mut self) -> u32 {
        if !self.main.socket.publishes_taken_packets() {
            return self.unfinished();
        }
        self.lent_beside(|tx| tx.pending() + tx.staged())
    }

    /// Chunks lent for sending, without some of those in the TX rings.
    fn lent_beside(&mut self, in_ring: impl Fn(&mut TxRing) -> u32) -> u32 {
        let ends = std::iter::once(&mut self.main).chain(&mut self.siblings);
        let in_rings: u32 = ends.filter_map(|end| end.ring.as_mut()).map(in_ring).sum();
        self.completion.lent().saturating_sub(in_rings)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if self.bound.lease().umem().is_handed_over() {
            return; // Another process has the rings.
        }
        delay::at(Point::Drain);
        self.drain();
        // While the receiving half lives, its waiting makes the kernel send what is left in TX.
        let is_half = Arc::strong_count(&self.bound) > 1;
        let left = if is_half {
            self.unfinished()
        } else {
            self.being_sent()
        };
        if left > 0 {
            self.bound.leave_sending();
        }
    }
}
