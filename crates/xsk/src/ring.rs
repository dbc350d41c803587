//! The four rings that user space and the kernel share: FILL and TX, where we produce, RX and
//! COMPLETION, where we consume.
//!
//! A ring is a power-of-two array with two free-running 32-bit indices, each written by one side
//! only (`net/xdp/xsk_queue.h`). We keep a copy of the other side's index and reload it only when
//! the copy says that there is nothing to do, so that a batch costs one acquire and one release.
//!
//! What the other side writes is never trusted: an index that claims more than the ring holds is
//! ignored and counted, and slots are masked, so that no value can reach outside the mapping.
#![allow(unsafe_code)] // Slots are read and written through the mapping's raw pointer.
#![cfg_attr(loom, allow(dead_code))] // The model checker sees the rings alone.

#[cfg(all(test, loom))]
mod loom_tests;

use std::marker::PhantomData;

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// `XDP_RING_NEED_WAKEUP`: the kernel sleeps and wants a system call before it looks again.
const NEED_WAKEUP: u32 = 1;

/// The orderings of the ring protocol, gathered so that the model checker can break each of them.
pub(crate) trait Protocol {
    /// Our index store: what we wrote, or finished reading, comes before the index that says so.
    /// As producer it pairs with the kernel's `smp_load_acquire` (`__xskq_cons_peek`), as
    /// consumer with its `READ_ONCE` and the branch that its writes to the slots stand in
    /// (`xskq_prod_nb_free`).
    const PUBLISH: Ordering;
    /// Our load of the kernel's index. Pairs with the kernel's `smp_store_release`
    /// (`__xskq_prod_submit` and `__xskq_cons_release`): its writes to the slots, or the end of
    /// its reads, are visible once the index is. An acquire as producer too: Rust has no control
    /// dependency to lean on as the kernel does.
    const OBSERVE: Ordering;
    /// Whether a full fence stands between publishing and reading the kernel's wake-up flag.
    /// Pairs with the barrier of a kernel that sets its flag and looks once more before it sleeps.
    const FENCE_BEFORE_FLAG: bool;
}

/// The protocol as the kernel expects it.
#[derive(Debug)]
pub(crate) struct Kernel;

impl Protocol for Kernel {
    const PUBLISH: Ordering = Ordering::Release;
    const OBSERVE: Ordering = Ordering::Acquire;
    const FENCE_BEFORE_FLAG: bool = true;
}

/// The words and slots that both sides see.
pub(crate) trait Shared<T> {
    /// The producer's index.
    fn producer(&self) -> &AtomicU32;
    /// The consumer's index.
    fn consumer(&self) -> &AtomicU32;
    /// The flag word, where the kernel asks for a wake-up.
    fn flags(&self) -> &AtomicU32;
    /// Number of slots, a power of two.
    fn size(&self) -> u32;
    /// Copies the slot of a free-running index out.
    fn read(&self, index: u32) -> T;
    /// Writes the slot of a free-running index.
    fn write(&self, index: u32, value: T);
}

/// Slots of a ring that are being worked through, apart from the ring so that the compiler can
/// keep the place in registers.
#[derive(Debug)]
pub(crate) struct Cursor {
    /// The next slot, free-running.
    pub(crate) next: u32,
    /// The first that is not included.
    pub(crate) end: u32,
}

impl Cursor {
    /// Slots left.
    #[inline]
    pub(crate) fn left(&self) -> u32 {
        self.end.wrapping_sub(self.next)
    }
}

impl Iterator for Cursor {
    type Item = u32;

    #[inline(always)]
    fn next(&mut self) -> Option<u32> {
        let index = self.next;
        (index != self.end).then(|| {
            self.next = index.wrapping_add(1);
            index
        })
    }
}

/// The side of a ring that writes slots: FILL and TX in user space.
#[derive(Debug)]
pub(crate) struct Producer<T, S: Shared<T>, P: Protocol = Kernel> {
    shared: S,
    /// Next slot to write; ahead of the shared index until [`publish`](Self::publish).
    next: u32,
    /// Copy of the shared producer index, which only we write.
    published: u32,
    /// What we last saw of the kernel's consumer index, plus the ring's size: the first index
    /// that is not ours to write.
    limit: u32,
    hostile: u64,
    _protocol: PhantomData<(T, P)>,
}

impl<T, S: Shared<T>, P: Protocol> Producer<T, S, P> {
    /// Takes the producing side of a ring as it stands.
    pub(crate) fn new(shared: S) -> Self {
        // Relaxed: only this side writes the word.
        let next = shared.producer().load(Ordering::Relaxed);
        let limit = next;
        Self {
            shared,
            next,
            published: next,
            limit,
            hostile: 0,
            _protocol: PhantomData,
        }
    }

    /// Slots that can be written now, looking at the kernel's index only when fewer than `want`
    /// are known to be free.
    #[inline]
    pub(crate) fn free(&mut self, want: u32) -> u32 {
        let known = self.limit.wrapping_sub(self.next);
        if known >= want { known } else { self.reload() }
    }

    fn reload(&mut self) -> u32 {
        let consumer = self.shared.consumer().load(P::OBSERVE);
        let limit = consumer.wrapping_add(self.shared.size());
        // The kernel can have consumed what was published, no more; and it cannot take slots back
        // that we have written to since. Anything else is a lie.
        if self.published.wrapping_sub(consumer) > self.shared.size()
            || limit.wrapping_sub(self.next) > self.shared.size()
        {
            self.hostile += 1;
        } else {
            self.limit = limit;
        }
        self.limit.wrapping_sub(self.next)
    }

    /// Writes the next slot, if one is free. Nothing is visible before [`publish`](Self::publish).
    #[inline]
    pub(crate) fn push(&mut self, value: T) -> bool {
        if self.free(1) == 0 {
            return false;
        }
        self.shared.write(self.next, value);
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Up to `want` free slots, to be written with [`write_at`](Self::write_at) by whoever keeps
    /// the cursor in registers, and given back with [`stage`](Self::stage).
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

    /// Takes over what was written up to where the cursor stands, and tells how many slots that
    /// were.
    #[inline(always)]
    pub(crate) fn stage(&mut self, cursor: &Cursor) -> u32 {
        let written = cursor.next.wrapping_sub(self.next);
        self.next = cursor.next;
        written
    }

    /// Lets the kernel see every slot pushed so far.
    #[inline]
    pub(crate) fn publish(&mut self) {
        if self.published != self.next {
            self.shared.producer().store(self.next, P::PUBLISH);
            self.published = self.next;
        }
    }

    /// Whether the kernel has asked for a system call.
    ///
    /// The flag counts when it is found set. Found clear it is looked at again behind a full
    /// fence, which keeps our index store before the load; without it the two sides can both
    /// miss each other, and the kernel sleeps on a full ring. The kernel writes its flag without
    /// a barrier, so callers repeat their kick while work is pending instead of relying on this
    /// alone.
    #[inline]
    pub(crate) fn needs_wakeup(&self) -> bool {
        if self.flag() {
            return true;
        }
        if P::FENCE_BEFORE_FLAG {
            fence(Ordering::SeqCst);
        }
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

    /// Slots pushed and not yet published.
    #[inline]
    pub(crate) fn staged(&self) -> u32 {
        self.next.wrapping_sub(self.published)
    }

    /// Number of slots.
    pub(crate) fn size(&self) -> u32 {
        self.shared.size()
    }

    /// Times the other side's index was impossible.
    pub(crate) fn hostile(&self) -> u64 {
        self.hostile
    }

    /// Index of the next slot to write.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn next(&self) -> u32 {
        self.next
    }
}

/// The side of a ring that reads slots: RX and COMPLETION in user space.
#[derive(Debug)]
pub(crate) struct Consumer<T, S: Shared<T>, P: Protocol = Kernel> {
    shared: S,
    /// Next slot to read.
    next: u32,
    /// Copy of the shared consumer index, which only we write.
    released: u32,
    /// What we last saw of the kernel's producer index.
    limit: u32,
    hostile: u64,
    _protocol: PhantomData<(T, P)>,
}

impl<T, S: Shared<T>, P: Protocol> Consumer<T, S, P> {
    /// Takes the consuming side of a ring as it stands.
    pub(crate) fn new(shared: S) -> Self {
        // Relaxed: only this side writes the word.
        let next = shared.consumer().load(Ordering::Relaxed);
        Self {
            shared,
            next,
            released: next,
            limit: next,
            hostile: 0,
            _protocol: PhantomData,
        }
    }

    /// Slots that can be read now, at most `max`; looks at the kernel's index only when none is
    /// known.
    #[inline]
    pub(crate) fn available(&mut self, max: u32) -> u32 {
        if self.limit == self.next {
            self.reload();
        }
        self.limit.wrapping_sub(self.next).min(max)
    }

    fn reload(&mut self) {
        let producer = self.shared.producer().load(P::OBSERVE);
        // The kernel can be ahead of what we released by a whole ring, no more.
        if producer.wrapping_sub(self.released) > self.shared.size()
            || producer.wrapping_sub(self.next) > self.shared.size()
        {
            self.hostile += 1;
        } else {
            self.limit = producer;
        }
    }

    /// Copies the next slot out. Call it as often as [`available`](Self::available) said.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn pop(&mut self) -> T {
        let value = self.shared.read(self.next);
        self.next = self.next.wrapping_add(1);
        value
    }

    /// Takes the slots that can be read now, at most `max`, to be read with
    /// [`read_at`](Self::read_at). They are not seen again: should the cursor be forgotten
    /// half-way, a slot read twice could name a chunk that has changed hands in between.
    #[inline(always)]
    pub(crate) fn peek(&mut self, max: u32) -> Cursor {
        let available = self.available(max);
        let next = self.next;
        self.next = next.wrapping_add(available);
        Cursor {
            next,
            end: self.next,
        }
    }

    /// Copies a slot of a [`Cursor`] out.
    #[inline(always)]
    pub(crate) fn read_at(&self, index: u32) -> T {
        self.shared.read(index)
    }

    /// Gives every slot read so far back to the kernel.
    #[inline]
    pub(crate) fn release(&mut self) {
        if self.released != self.next {
            self.shared.consumer().store(self.next, P::PUBLISH);
            self.released = self.next;
        }
    }

    /// Times the other side's index was impossible.
    pub(crate) fn hostile(&self) -> u64 {
        self.hostile
    }

    /// Index of the next slot to read.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn next(&self) -> u32 {
        self.next
    }
}

#[cfg(not(loom))]
pub(crate) use mapped::{Mapped, Slot};

#[cfg(not(loom))]
mod mapped {
    use super::{AtomicU32, Shared};
    use crate::sys::Mapping;
    use std::ptr::NonNull;
    use std::sync::Arc;

    /// Plain integers that any bit pattern is a valid value of, so that a slot another party
    /// wrote can be read as one.
    pub(crate) trait Slot: Copy + Send {}
    impl Slot for u64 {}
    impl Slot for crate::sys::Desc {}

    /// A ring in memory mapped from an AF_XDP socket.
    #[derive(Debug)]
    pub(crate) struct Mapped<T> {
        producer: NonNull<AtomicU32>,
        consumer: NonNull<AtomicU32>,
        flags: NonNull<AtomicU32>,
        slots: NonNull<T>,
        mask: u32,
        /// Keeps the memory mapped for as long as the pointers above are. Shared by the two
        /// sides of a ring when the kernel is modelled; a ring of a socket has it alone.
        _mapping: Arc<Mapping>,
    }

    // SAFETY: needed because of the raw pointers. They point into the mapping that this value
    // keeps, which is not tied to a thread; one side of the ring is used through `&mut`.
    unsafe impl<T: Slot> Send for Mapped<T> {}

    /// Where the parts of a ring lie inside its mapping, in bytes (`struct xdp_ring_offset`).
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct Offsets {
        pub(crate) producer: usize,
        pub(crate) consumer: usize,
        pub(crate) flags: usize,
        pub(crate) slots: usize,
    }

    impl<T: Slot> Mapped<T> {
        /// Lays a ring of `size` slots over a mapping. `None` when the offsets that the kernel
        /// gave do not fit into it or are not aligned.
        pub(crate) fn new(
            mapping: impl Into<Arc<Mapping>>,
            at: Offsets,
            size: u32,
        ) -> Option<Self> {
            let mapping = mapping.into();
            let slots_end = at
                .slots
                .checked_add((size as usize).checked_mul(size_of::<T>())?)?;
            let words = [at.producer, at.consumer, at.flags];
            let fits = slots_end <= mapping.len()
                && words
                    .iter()
                    .all(|w| w.is_multiple_of(4) && w + 4 <= mapping.len())
                && at.slots.is_multiple_of(align_of::<T>())
                && size.is_power_of_two();
            if !fits {
                return None;
            }
            let base = mapping.start();
            // SAFETY: needed to form the pointers; the offset was checked to lie inside.
            let word = |offset| unsafe { base.add(offset) }.cast();
            // SAFETY: as above.
            let slots = unsafe { base.add(at.slots) }.cast();
            Some(Self {
                producer: word(at.producer),
                consumer: word(at.consumer),
                flags: word(at.flags),
                slots,
                mask: size - 1,
                _mapping: mapping,
            })
        }
    }

    impl<T: Slot> Shared<T> for Mapped<T> {
        #[inline]
        fn producer(&self) -> &AtomicU32 {
            // SAFETY: needed to reach shared memory. The pointer is aligned and inside the
            // mapping (checked in `new`), which lives as long as `self`; atomics may be written
            // by others at any time.
            unsafe { self.producer.as_ref() }
        }

        #[inline]
        fn consumer(&self) -> &AtomicU32 {
            // SAFETY: as in `producer`.
            unsafe { self.consumer.as_ref() }
        }

        #[inline]
        fn flags(&self) -> &AtomicU32 {
            // SAFETY: as in `producer`.
            unsafe { self.flags.as_ref() }
        }

        #[inline]
        fn size(&self) -> u32 {
            self.mask + 1
        }

        #[inline]
        fn read(&self, index: u32) -> T {
            // SAFETY: needed to reach shared memory. Masked, so inside the slots, which `new`
            // checked to lie in the mapping.
            let slot = unsafe { self.slots.add((index & self.mask) as usize) };
            // SAFETY: any bits are a `T` (see `Slot`). The protocol gives the slot to us: the
            // other side wrote it before the index that we acquired. Should it write now all the
            // same, the copy is torn; volatile makes it one copy, so that what is checked is what
            // is used.
            unsafe { slot.read_volatile() }
        }

        #[inline]
        fn write(&self, index: u32, value: T) {
            // SAFETY: as in `read`.
            let slot = unsafe { self.slots.add((index & self.mask) as usize) };
            // SAFETY: the protocol gives the slot to us until we publish it.
            unsafe { slot.write(value) }
        }
    }
}
#[cfg(not(loom))]
pub(crate) use mapped::Offsets;
