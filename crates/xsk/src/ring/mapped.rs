//! A ring in memory mapped from an AF_XDP socket.
#![allow(unsafe_code)] // Slots are read and written through the mapping's raw pointer.

use super::Shared;
use crate::sys::{Desc, Mapping};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

/// Plain integers, of which any bit pattern is a valid value, so that a slot written by another
/// party can be read as one.
pub(crate) trait Slot: Copy + Send {}
impl Slot for u64 {}
impl Slot for Desc {}

/// A ring in memory mapped from an AF_XDP socket.
#[derive(Debug)]
pub(crate) struct Mapped<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    slots: NonNull<T>,
    mask: u32,
    /// Keeps the memory of the pointers above mapped. The two sides of a ring share it when the
    /// kernel is modelled; a ring of a socket has it alone.
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
    /// A ring of `size` slots in a mapping. `None` when the kernel's offsets do not fit into it or
    /// are not aligned.
    pub(crate) fn new(mapping: impl Into<Arc<Mapping>>, at: Offsets, size: u32) -> Option<Self> {
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
        // other side wrote it before the index that we acquired. If it writes now nevertheless,
        // the copy is torn; volatile makes it one copy, so that the value checked is the value
        // used.
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
