//! The reading side of a ring.

#[cfg(loom)]
use loom::sync::atomic::Ordering;
#[cfg(not(loom))]
use std::sync::atomic::Ordering;

use super::{Cursor, Kernel, Protocol, Shared};
use crate::counter::Counter;
use crate::delay::{self, Point};
use std::marker::PhantomData;

/// The side of a ring that reads slots: RX and COMPLETION in user space.
#[derive(Debug)]
pub(crate) struct Consumer<T, S: Shared<T>, P: Protocol = Kernel> {
    shared: S,
    /// Next slot to read.
    next: u32,
    /// Copy of the shared consumer index, which only we write.
    released: u32,
    /// The kernel's producer index, as last read.
    limit: u32,
    invalid_indices: Counter,
    _protocol: PhantomData<(T, P)>,
}

impl<T, S: Shared<T>, P: Protocol> Consumer<T, S, P> {
    /// The consuming side of a ring in its present state.
    pub(crate) fn new(shared: S) -> Self {
        // Relaxed: only this side writes the word.
        let next = shared.consumer().load(Ordering::Relaxed);
        Self {
            shared,
            next,
            released: next,
            limit: next,
            invalid_indices: Counter::default(),
            _protocol: PhantomData,
        }
    }

    /// Slots that can be read now, at most `max`; reloads the kernel's index only when none is
    /// known to be filled.
    #[inline]
    pub(crate) fn available(&mut self, max: u32) -> u32 {
        if self.limit == self.next {
            self.reload();
        }
        self.limit.wrapping_sub(self.next).min(max)
    }

    fn reload(&mut self) {
        let producer = self.shared.producer().load(P::OBSERVE);
        // The kernel can be ahead of our released index by one ring at most.
        if producer.wrapping_sub(self.released) > self.shared.size()
            || producer.wrapping_sub(self.next) > self.shared.size()
        {
            self.invalid_indices += 1;
        } else {
            self.limit = producer;
        }
    }

    /// Reads the next slot; [`available`](Self::available) is the number of permitted calls.
    #[cfg(any(test, xsk_internals))]
    pub(crate) fn pop(&mut self) -> T {
        let value = self.shared.read(self.next);
        self.next = self.next.wrapping_add(1);
        value
    }

    /// Takes the slots that can be read now, at most `max`, to be read with
    /// [`read_at`](Self::read_at). The ring does not return them again: after a forgotten cursor, a
    /// slot read twice could name a chunk that has changed its owner in between.
    #[inline(always)]
    pub(crate) fn peek(&mut self, max: u32) -> Cursor {
        let available = self.available(max);
        self.take(available)
    }

    /// The same with slots that [`available`](Self::available) has counted, all of them.
    #[inline(always)]
    pub(crate) fn take(&mut self, count: u32) -> Cursor {
        debug_assert!(
            count <= self.limit.wrapping_sub(self.next),
            "they are filled"
        );
        let next = self.next;
        self.next = next.wrapping_add(count);
        Cursor {
            next,
            end: self.next,
        }
    }

    /// The same for packets of several slots: `goes_on` tells whether a packet goes on behind a slot. The
    /// last packet is taken whole, which can be more slots than `max`, or not at all while its end is
    /// missing.
    pub(crate) fn peek_packets(
        &mut self,
        max: u32,
        goes_on: impl Fn(&Self, u32) -> bool,
    ) -> Cursor {
        let mut count = self.available(max);
        let ends = |ring: &Self, count: u32| !goes_on(ring, ring.next.wrapping_add(count - 1));
        while count > 0 && !ends(self, count) {
            if count >= self.limit.wrapping_sub(self.next) {
                self.reload();
            }
            let filled = self.limit.wrapping_sub(self.next);
            if count >= filled {
                // A hostile peer takes its index back.
                count = filled;
                // No end can come into a full ring: its reader refuses such a packet.
                let is_full = count == self.shared.size();
                while !is_full && count > 0 && !ends(self, count) {
                    count -= 1;
                }
                break;
            }
            count += 1;
        }
        self.peek(count)
    }

    /// Gives back the slots that are left in a cursor, and that nobody has read: they come again.
    pub(crate) fn give_back(&mut self, cursor: &mut Cursor) {
        self.next = self.next.wrapping_sub(cursor.left());
        cursor.shorten(0);
    }

    /// Reads a slot of a [`Cursor`].
    #[cfg(all(test, loom))]
    pub(crate) fn read_at(&self, index: u32) -> T {
        self.shared.read(index)
    }

    /// Returns all slots taken so far to the kernel.
    #[inline]
    pub(crate) fn release(&mut self) {
        if self.released != self.next {
            delay::at(Point::Release);
            self.shared.consumer().store(self.next, P::PUBLISH);
            self.released = self.next;
        }
    }

    /// Number of slots.
    pub(crate) fn size(&self) -> u32 {
        self.shared.size()
    }

    /// Reads of an impossible kernel index.
    pub(crate) fn invalid_indices(&self) -> &Counter {
        &self.invalid_indices
    }

    /// Index of the next slot to read.
    #[inline(always)]
    pub(crate) fn next(&self) -> u32 {
        self.next
    }
}

#[cfg(not(loom))]
impl<T: super::Slot, P: Protocol> Consumer<T, super::Mapped<T>, P> {
    /// The ring for other code, which reads slots and releases them.
    #[cfg(xsk_internals)]
    pub(crate) fn raw(&self) -> super::RawRing {
        self.shared.raw(self.next, self.limit)
    }

    /// The place of our side, for a [`RawRing`](super::RawRing).
    #[cfg(xsk_internals)]
    pub(crate) fn place(&self) -> (u32, u32) {
        (self.next, self.limit)
    }

    /// Goes on after such code; returns the number of slots that it has read.
    #[cfg(xsk_internals)]
    pub(crate) fn go_on(&mut self, raw: &super::RawRing) -> u32 {
        let read = raw.next.wrapping_sub(self.next);
        (self.next, self.released, self.limit) = (raw.next, raw.next, raw.limit);
        read
    }

    /// The filled slots that nobody has read; `None` when the indices are impossible.
    pub(crate) fn filled(&self) -> Option<impl Iterator<Item = T>> {
        super::filled(&self.shared)
    }

    /// The slot of a free-running index.
    #[inline(always)]
    pub(crate) fn slot(&self, index: u32) -> &super::SharedSlot<T> {
        self.shared.slot(index)
    }

    /// The next slots of a [`Cursor`] that lie next to each other.
    #[inline(always)]
    pub(crate) fn run(&self, cursor: &Cursor) -> &[super::SharedSlot<T>] {
        self.shared.run(cursor.next, cursor.left())
    }
}
