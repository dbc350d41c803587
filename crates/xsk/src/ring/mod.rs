//! The four rings that user space and the kernel share. User space produces FILL and TX, and
//! consumes RX and COMPLETION.
//!
//! A ring is an array of a power of two slots with two free-running 32-bit indices, each written by
//! one side only (`net/xdp/xsk_queue.h`). Each side here keeps a copy of the kernel's index and
//! reloads it only when the copy has no free or no filled slot left, so a batch costs one acquire
//! and one release.
//!
//! The kernel's values are not trusted: an index beyond the ring's size is ignored and counted, and
//! slots are masked, so that no value can reach outside the mapping.
#![cfg_attr(loom, allow(dead_code))] // Loom builds the rings alone.

mod consumer;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(not(loom))]
mod mapped;
mod producer;
#[cfg(xsk_internals)]
mod raw;

pub(crate) use consumer::Consumer;
#[cfg(not(loom))]
pub(crate) use mapped::{Mapped, OwnSlot, OwnSlots, SharedSlot, Size, Slot};
pub(crate) use producer::Producer;
#[cfg(xsk_internals)]
pub use raw::RawRing;

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering};

/// `XDP_RING_NEED_WAKEUP`: the kernel sleeps and needs a system call to read the ring again.
const NEED_WAKEUP: u32 = 1;

/// The orderings of the ring protocol, in one trait so that a loom model can break each of them.
pub(crate) trait Protocol {
    /// Store of our index, after our writes to the slots or our reads from them. As producer it pairs with the kernel's `smp_load_acquire` (`__xskq_cons_peek`), as
    /// consumer with its `READ_ONCE` and the branch that its writes to the slots stand in
    /// (`xskq_prod_nb_free`).
    const PUBLISH: Ordering;
    /// Load of the kernel's index. Pairs with the kernel's `smp_store_release`
    /// (`__xskq_prod_submit` and `__xskq_cons_release`), which follows its writes to the slots or
    /// its reads from them. An acquire as producer too: Rust has no control dependencies, on which
    /// the kernel relies.
    const OBSERVE: Ordering;
    /// Whether a full fence is between publishing and reading the kernel's wake-up flag. Pairs with
    /// the barrier of a kernel that sets its flag and reads the index again before it sleeps.
    const FENCE_BEFORE_FLAG: bool;
}

/// The protocol that the kernel expects.
#[derive(Debug)]
pub(crate) struct Kernel;

impl Protocol for Kernel {
    const PUBLISH: Ordering = Ordering::Release;
    const OBSERVE: Ordering = Ordering::Acquire;
    const FENCE_BEFORE_FLAG: bool = cfg!(not(xsk_broken = "missing_fence"));
}

/// The shared words and slots of a ring.
pub(crate) trait Shared<T> {
    /// The producer's index.
    fn producer(&self) -> &AtomicU32;
    /// The consumer's index.
    fn consumer(&self) -> &AtomicU32;
    /// The flag word, in which the kernel requests a wake-up.
    fn flags(&self) -> &AtomicU32;
    /// Number of slots, a power of two.
    fn size(&self) -> u32;
    /// Reads the slot of a free-running index.
    #[cfg(any(test, xsk_internals))]
    fn read(&self, index: u32) -> T;
    /// Writes the slot of a free-running index.
    fn write(&self, index: u32, value: T);
}

/// The filled slots that nobody has read; `None` when the indices are further apart than the ring has
/// slots.
#[cfg(not(loom))]
fn filled<T: Slot>(ring: &Mapped<T>) -> Option<impl Iterator<Item = T>> {
    // Acquire: the slots were written before the producer's index.
    let producer = ring.producer().load(Ordering::Acquire);
    let consumer = ring.consumer().load(Ordering::Acquire);
    let count = producer.wrapping_sub(consumer);
    let slots = (0..count).map(move |at| ring.slot(consumer.wrapping_add(at)).read());
    (count <= ring.size()).then_some(slots)
}

/// A range of slots being read or written, apart from the ring so that the compiler can keep it in
/// registers.
#[derive(Debug)]
pub(crate) struct Cursor {
    /// The next slot, free-running.
    pub(crate) next: u32,
    /// The first slot behind the range.
    pub(crate) end: u32,
}

impl Cursor {
    /// No slots.
    pub(crate) const NONE: Self = Self { next: 0, end: 0 };

    /// Slots left.
    #[inline(always)]
    pub(crate) fn left(&self) -> u32 {
        self.end.wrapping_sub(self.next)
    }
}

impl Cursor {
    /// Gives up slots at the end, of which at most so many stay.
    #[inline(always)]
    pub(crate) fn shorten(&mut self, most: u32) {
        self.end = self.next.wrapping_add(self.left().min(most));
    }

    /// Passes over slots that were read or written as a run.
    #[inline(always)]
    pub(crate) fn advance(&mut self, slots: u32) {
        debug_assert!(slots <= self.left(), "a run lies inside its cursor");
        self.next = self.next.wrapping_add(slots);
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
