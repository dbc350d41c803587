//! The writing side of a ring.

#[cfg(loom)]
use loom::sync::atomic::{Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{Ordering, fence};

use super::{Cursor, Kernel, NEED_WAKEUP, Protocol, Shared};
use crate::counter::Counter;
use crate::delay::{self, Point};
use std::marker::PhantomData;

/// The side of a ring that writes slots: FILL and TX in user space.
#[derive(Debug)]
pub(crate) struct Producer<T, S: Shared<T>, P: Protocol = Kernel> {
    shared: S,
    /// Next slot to write; ahead of the shared index until [`publish`](Self::publish).
    next: u32,
    /// Copy of the shared producer index, which only we write.
    published: u32,
    /// The kernel's consumer index, as last read, plus the ring's size: the first index that is not
    /// ours to write.
    limit: u32,
    invalid_indices: Counter,
    _protocol: PhantomData<(T, P)>,
}

impl<T, S: Shared<T>, P: Protocol> Producer<T, S, P> {
    /// The producing side of a ring in its present state.
    pub(crate) fn new(shared: S) -> Self {
        // Relaxed: only this side writes the word.
        let next = shared.producer().load(Ordering::Relaxed);
        let limit = next;
        Self {
            shared,
            next,
            published: next,
            limit,
            invalid_indices: Counter::default(),
            _protocol: PhantomData,
        }
    }

    /// Slots that can be written now; reloads the kernel's index only when fewer than `want` are
    /// known to be free.
    #[inline]
    pub(crate) fn free(&mut self, want: u32) -> u32 {
        let known = self.limit.wrapping_sub(self.next);
        if known >= want { known } else { self.reload() }
    }

    fn reload(&mut self) -> u32 {
        let consumer = self.shared.consumer().load(P::OBSERVE);
        let limit = consumer.wrapping_add(self.shared.size());
        // The kernel can have consumed published slots only, and cannot take back slots that we
        // have written since.
        if self.published.wrapping_sub(consumer) > self.shared.size()
            || limit.wrapping_sub(self.next) > self.shared.size()
        {
            self.invalid_indices += 1;
        } else {
            self.limit = limit;
        }
        self.limit.wrapping_sub(self.next)
    }

    /// Writes the next slot, if one is free. [`publish`](Self::publish) makes it visible.
    #[cfg(any(test, xsk_internals))]
    #[inline]
    pub(crate) fn push(&mut self, value: T) -> bool {
        if self.free(1) == 0 {
            return false;
        }
        self.put(value);
        true
    }

    /// Writes the next slot, which [`free`](Self::free) has found.
    #[inline(always)]
    pub(crate) fn put(&mut self, value: T) {
        debug_assert!(self.limit != self.next, "a free slot");
        self.shared.write(self.next, value);
        self.next = self.next.wrapping_add(1);
    }

    /// Up to `want` free slots, to be written with [`write_at`](Self::write_at) and returned with
    /// [`stage`](Self::stage).
    #[inline(always)]
    pub(crate) fn reserve(&mut self, want: u32) -> Cursor {
        let free = self.free(want).min(want);
        Cursor {
            next: self.next,
            end: self.next.wrapping_add(free),
        }
    }

    /// Writes a slot of a [`Cursor`].
    #[inline(always)]
    pub(crate) fn write_at(&mut self, index: u32, value: T) {
        self.shared.write(index, value);
    }

    /// Takes over the slots that were written through a cursor; returns their number.
    #[inline(always)]
    pub(crate) fn stage(&mut self, cursor: &Cursor) -> u32 {
        let written = cursor.next.wrapping_sub(self.next);
        self.next = cursor.next;
        written
    }

    /// Makes all written slots visible to the kernel.
    #[inline]
    pub(crate) fn publish(&mut self) {
        if self.published != self.next {
            delay::at(Point::Publish);
            self.shared.producer().store(self.next, P::PUBLISH);
            self.published = self.next;
        }
    }

    /// Whether the kernel needs a system call.
    ///
    /// A clear flag is read again behind a full fence, which keeps our index store before the load;
    /// without it both sides can miss each other, and the kernel sleeps on a full ring. The kernel
    /// writes its flag without a barrier, so callers repeat the wake-up while packets are pending.
    #[inline]
    pub(crate) fn needs_wakeup(&self) -> bool {
        delay::at(Point::Flag);
        if self.flag() {
            return true;
        }
        if P::FENCE_BEFORE_FLAG {
            fence(Ordering::SeqCst);
        }
        self.flag()
    }

    /// Whether the flag is set as far as is known: one load, which can miss a request.
    #[inline(always)]
    pub(crate) fn asks_for_wakeup(&self) -> bool {
        self.flag()
    }

    #[inline]
    fn flag(&self) -> bool {
        self.shared.flags().load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }

    /// Published slots that the kernel has not consumed.
    pub(crate) fn pending(&mut self) -> u32 {
        let free = self.reload();
        self.shared
            .size()
            .saturating_sub(free)
            .saturating_sub(self.staged())
    }

    /// Written slots that are not published.
    #[inline]
    pub(crate) fn staged(&self) -> u32 {
        self.next.wrapping_sub(self.published)
    }

    /// The slots written and not published.
    pub(crate) fn unpublished(&self) -> Cursor {
        Cursor {
            next: self.published,
            end: self.next,
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

    /// Index of the next slot to write.
    pub(crate) fn next(&self) -> u32 {
        self.next
    }
}

#[cfg(not(loom))]
impl<T: super::Slot, P: Protocol> Producer<T, super::Mapped<T>, P> {
    /// The ring for other code, which writes slots.
    #[cfg(xsk_internals)]
    pub(crate) fn raw(&self) -> super::RawRing {
        self.shared.raw(self.next, self.limit)
    }

    /// The place of our side, for a [`RawRing`](super::RawRing).
    #[cfg(xsk_internals)]
    pub(crate) fn place(&self) -> (u32, u32) {
        (self.next, self.limit)
    }

    /// Goes on after such code, which may have published the slots as well; returns the number of those that it has
    /// written.
    #[cfg(xsk_internals)]
    pub(crate) fn go_on(&mut self, raw: &super::RawRing, are_published: bool) -> u32 {
        let written = raw.next.wrapping_sub(self.next);
        (self.next, self.limit) = (raw.next, raw.limit);
        if are_published {
            self.published = raw.next;
        }
        written
    }

    /// The filled slots that nobody has read; `None` when the indices are impossible.
    pub(crate) fn filled(&self) -> Option<impl Iterator<Item = T>> {
        super::filled(&self.shared)
    }

    /// The slot of a free-running index, to be written.
    #[inline(always)]
    pub(crate) fn slot(&self, index: u32) -> &super::SharedSlot<T> {
        self.shared.slot(index)
    }

    /// The slots of a [`Cursor`], each of which can be written apart from the others.
    #[inline(always)]
    pub(crate) fn own_slots(&mut self, cursor: &Cursor) -> super::OwnSlots<'_, T> {
        super::OwnSlots::new(&mut self.shared, cursor)
    }

    /// The next slots of a [`Cursor`] that lie next to each other.
    #[inline(always)]
    pub(crate) fn run(&self, cursor: &Cursor) -> &[super::SharedSlot<T>] {
        self.shared.run(cursor.next, cursor.left())
    }
}
