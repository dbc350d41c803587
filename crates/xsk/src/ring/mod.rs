//! The four rings that user space and the kernel share: FILL and TX, where we produce, RX and
//! COMPLETION, where we consume.
//!
//! A ring is a power-of-two array with two free-running 32-bit indices, each written by one side
//! only (`net/xdp/xsk_queue.h`). We keep a copy of the other side's index and reload it only when
//! the copy says that there is nothing to do, so that a batch costs one acquire and one release.
//!
//! What the other side writes is never trusted: an index that claims more than the ring holds is
//! ignored and counted, and slots are masked, so that no value can reach outside the mapping.
#![cfg_attr(loom, allow(dead_code))] // The model checker sees the rings alone.

mod consumer;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(not(loom))]
mod mapped;
mod producer;

pub(crate) use consumer::Consumer;
#[cfg(not(loom))]
pub(crate) use mapped::{Mapped, Offsets, Slot};
pub(crate) use producer::Producer;

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering};

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
