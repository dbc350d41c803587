//! The receiving side of a socket: RX, FILL, and waking the kernel for them.

use super::bound::Bound;
use super::xskmap::{CallersEntries, XskmapEntry};
use crate::counter::Counter;
use crate::error::Result;
use crate::sys::KernelSocket;
use crate::umem_rings::{FillRing, RxRing};
use crate::wait::{Pacer, Wait};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// The RX ring of one AF_XDP socket.
#[derive(Debug)]
pub(crate) struct RxEnd {
    /// XSKMAPs that the caller inserted the socket into. Dropped first, so that packets stop.
    entries: CallersEntries,
    pub(crate) ring: Option<RxRing>,
    socket: Arc<dyn KernelSocket>,
    pub(super) wait: Wait,
    pub(super) pacer: Pacer,
    pub(super) received: Counter,
    /// Packets that other code has received from the ring, and counted.
    pub(super) received_elsewhere: u64,
    pub(super) wakeups: Counter,
    pub(super) sleeps: Counter,
}

impl RxEnd {
    pub(crate) fn new(
        socket: &Arc<dyn KernelSocket>,
        ring: Option<RxRing>,
        slots: u32,
        wait: Wait,
    ) -> Self {
        let max_delay = match wait {
            Wait::Adaptive { max_delay } => max_delay,
            Wait::Spin | Wait::Poll | Wait::BusyPoll => Duration::ZERO,
        };
        Self {
            entries: CallersEntries::default(),
            ring,
            socket: Arc::clone(socket),
            wait,
            pacer: Pacer::new(max_delay, slots, socket.now()),
            received: Counter::default(),
            received_elsewhere: 0,
            wakeups: Counter::default(),
            sleeps: Counter::default(),
        }
    }

    pub(crate) fn socket(&self) -> &Arc<dyn KernelSocket> {
        &self.socket
    }

    pub(crate) fn wait_strategy(&self) -> Wait {
        self.wait
    }

    /// The RX ring for a pass over its packets, which are counted at its end.
    #[inline(always)]
    pub(super) fn count_pass(&mut self) -> Option<CountedPass<'_>> {
        let rx = self.ring.as_mut()?;
        Some(CountedPass {
            first: rx.next(),
            rx,
            received: &mut self.received,
        })
    }

    #[inline]
    pub(super) fn has_packets(&mut self) -> bool {
        self.ring.as_mut().is_some_and(|rx| rx.available(1) > 0)
    }

    /// Wakes the kernel to read FILL, if it asks for that. For a program that is about to sleep.
    pub(super) fn wake_for(&mut self, fill: &FillRing) {
        if fill.needs_wakeup() {
            self.wake();
        }
    }

    /// The same with one load, in the way of packets: a driver whose FILL ran dry sleeps until it is
    /// told of new entries, and a program that never waits would not tell it.
    #[inline(always)]
    pub(super) fn wake_if_asked(&mut self, fill: &mut FillRing) {
        if fill.asks_for_wakeup() {
            self.wake();
        }
    }

    #[cold]
    #[inline(never)]
    fn wake(&mut self) {
        self.wakeups += 1;
        // The call itself is the wake-up; its result does not matter.
        let _ = self.socket.recv();
    }

    /// Puts the socket into a slot of an XSKMAP, until it is closed.
    pub(super) fn insert_into(
        &mut self,
        bound: &Bound,
        map: BorrowedFd<'_>,
        slot: u32,
    ) -> Result<()> {
        let left_in_map = bound.lease().left_in_map();
        self.entries
            .insert(bound.kernel(), map, slot, &*self.socket, left_in_map)
    }

    /// Leaves the entries in XSKMAPs to another process.
    pub(super) fn leave_maps(&mut self) {
        self.entries.leave();
    }

    /// Leaves the XSKMAPs: packets stop.
    pub(super) fn clear_maps(&mut self) {
        self.entries = CallersEntries::default();
    }

    /// The descriptor for event loops.
    pub(super) fn pollable(&self) -> BorrowedFd<'_> {
        self.socket.pollable().expect("a socket of Linux has one")
    }
}

/// The RX ring during a pass. Its end counts the packets that have left the ring, also when a closure panics.
pub(super) struct CountedPass<'s> {
    pub(super) rx: &'s mut RxRing,
    received: &'s mut Counter,
    /// Index of the first slot.
    first: u32,
}

impl Drop for CountedPass<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        *self.received += u64::from(self.rx.next().wrapping_sub(self.first));
    }
}

/// The receiving side of the sockets on one queue.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// Dropped first, so that packets stop.
    pub(super) entry: Option<XskmapEntry>,
    pub(crate) main: RxEnd,
    pub(crate) siblings: Vec<RxEnd>,
    pub(crate) fill: FillRing,
    /// Dropped last, after the rings, whose mappings pin the kernel's socket.
    _bound: Arc<Bound>,
}

impl Receiver {
    pub(crate) fn new(
        entry: Option<XskmapEntry>,
        main: RxEnd,
        fill: FillRing,
        bound: Arc<Bound>,
    ) -> Self {
        if main.ring.is_some() {
            bound.note_receiving();
        }
        Self {
            entry,
            main,
            siblings: Vec::new(),
            fill,
            _bound: bound,
        }
    }
}
