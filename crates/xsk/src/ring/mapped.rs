//! A ring in memory mapped from an AF_XDP socket.
#![allow(unsafe_code)] // Slots are read and written through the mapping's raw pointer.

#[cfg(xsk_internals)]
use super::RawRing;
use super::{Cursor, Shared};
use crate::sys::{Desc, Mapping, Offsets};
use std::cell::UnsafeCell;
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

impl<T: Slot> Mapped<T> {
    /// Bytes from the beginning of a mapping to the end of `size` slots; `None` when no mapping is as long.
    pub(crate) fn bytes(at: Offsets, size: u32) -> Option<usize> {
        let slots = (size as usize).checked_mul(size_of::<T>())?;
        at.slots.checked_add(slots)
    }

    /// A ring of `size` slots in a mapping. `None` when the kernel's offsets do not fit into it or
    /// are not aligned.
    pub(crate) fn new(mapping: impl Into<Arc<Mapping>>, at: Offsets, size: u32) -> Option<Self> {
        let mapping = mapping.into();
        let slots_end = Self::bytes(at, size)?;
        let words = [at.producer, at.consumer, at.flags];
        let is_inside = |word: usize| {
            let end = word.checked_add(size_of::<AtomicU32>());
            word.is_multiple_of(align_of::<AtomicU32>())
                && end.is_some_and(|end| end <= mapping.len())
        };
        let fits = slots_end <= mapping.len()
            && words.into_iter().all(is_inside)
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

/// Length and options of a descriptor, as one number, so that one comparison refuses a packet that is
/// too long for its chunk, and one with options.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size(u64);

impl Size {
    /// The size of a packet in one buffer.
    #[cfg(test)]
    pub(crate) fn of(len: u32) -> Self {
        Self(len.into())
    }

    /// Whether the packet, without options, ends at most `room` bytes behind its first. One without bytes
    /// does not.
    #[inline(always)]
    pub(crate) fn ends_within(self, room: u64) -> bool {
        self.0.wrapping_sub(1) <= room
    }

    /// Number of bytes.
    #[inline(always)]
    pub(crate) fn len(self) -> u32 {
        self.0 as u32
    }

    /// Without the options.
    #[inline(always)]
    pub(crate) fn without_options(self) -> Self {
        Self(self.len().into())
    }

    /// The options.
    #[inline(always)]
    pub(crate) fn options(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Whether the packet goes on in the next slot.
    #[inline(always)]
    pub(crate) fn goes_on(self) -> bool {
        self.options() & crate::sys::XDP_PKT_CONTD != 0
    }

    /// Whether the options are those that a received packet has.
    #[inline(always)]
    pub(crate) fn has_known_options(self) -> bool {
        self.options() & !crate::sys::XDP_PKT_CONTD == 0
    }

    /// Between the order of the numbers in the slot and that in this value.
    #[inline(always)]
    fn swap_halves(self) -> Self {
        if cfg!(target_endian = "little") {
            self
        } else {
            Self(self.0.rotate_left(32))
        }
    }
}

/// One slot, in memory that others may write.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct SharedSlot<T>(UnsafeCell<T>);

impl<T: Slot> SharedSlot<T> {
    #[inline(always)]
    pub(crate) fn read(&self) -> T {
        // SAFETY: as in `Mapped::read`.
        unsafe { self.0.get().read_volatile() }
    }

    #[inline(always)]
    pub(crate) fn write(&self, value: T) {
        // SAFETY: as in `Mapped::write`.
        unsafe { self.0.get().write(value) }
    }
}

impl SharedSlot<Desc> {
    /// Address of the packet.
    #[inline(always)]
    pub(crate) fn addr(&self) -> u64 {
        // SAFETY: needed to form the pointer. A field of the slot, so inside it.
        let addr = unsafe { &raw const (*self.0.get()).addr };
        // SAFETY: as in `Mapped::read`.
        unsafe { addr.read_volatile() }
    }

    /// Writes a packet in one buffer.
    #[inline(always)]
    pub(crate) fn write_packet(&self, addr: u64, len: u32) {
        // Length and options are written together.
        let size = Size(len.into()).swap_halves();
        // SAFETY: as in `Mapped::write`. A descriptor is as large and as aligned as two u64.
        unsafe { self.0.get().cast::<[u64; 2]>().write([addr, size.0]) };
    }

    /// Address and size of the packet.
    #[inline(always)]
    pub(crate) fn packet(&self) -> (u64, Size) {
        // SAFETY: needed to form the pointer. The second half of the slot, which is as large and as
        // aligned as two u64.
        let size = unsafe { self.0.get().cast::<u64>().add(1) };
        // SAFETY: as in `Mapped::read`. Each half is read once; the two need not be of one write.
        let size = Size(unsafe { size.read_volatile() });
        (self.addr(), size.swap_halves())
    }
}

impl<T: Slot> Mapped<T> {
    /// The slot of a free-running index.
    #[inline(always)]
    pub(crate) fn slot(&self, index: u32) -> &SharedSlot<T> {
        // SAFETY: needed to reach shared memory. Masked, so inside the slots.
        let slot = unsafe { self.slots.add((index & self.mask) as usize) };
        // SAFETY: as in `run`.
        unsafe { slot.cast().as_ref() }
    }

    /// The slots from a free-running index on that lie next to each other in memory, at most `most`.
    #[inline(always)]
    pub(crate) fn run(&self, index: u32, most: u32) -> &[SharedSlot<T>] {
        let at = index & self.mask;
        let count = most.min(self.mask + 1 - at);
        // SAFETY: needed to reach shared memory. Masked, so inside the slots.
        let start = unsafe { self.slots.add(at as usize) };
        // SAFETY: needed to reach shared memory. The range ends with the slots at the latest, which
        // `new` checked to lie in the mapping, aligned; they live as long as `self`. A
        // `SharedSlot` is an `UnsafeCell`, so others may write it.
        unsafe { std::slice::from_raw_parts(start.as_ptr().cast(), count as usize) }
    }
}

/// Slots that are ours until they are published, one after the other. They can go to other threads.
#[derive(Debug)]
pub(crate) struct OwnSlots<'r, T> {
    ring: &'r Mapped<T>,
    // Not a `Cursor`: the compiler would put its two numbers into one register, and take them apart for each slot.
    next: usize,
    left: usize,
}

/// A slot of [`OwnSlots`], of which there is no second value.
#[derive(Debug)]
pub(crate) struct OwnSlot<'r, T>(&'r SharedSlot<T>);

// SAFETY: needed because a `Mapped` may be written by reference. `new` takes the producing side exclusively, and all that
// this value does with the ring is to hand out each slot of its range once.
unsafe impl<T: Slot> Send for OwnSlots<'_, T> {}

// SAFETY: needed because a `SharedSlot` may be written by reference. There is one value for each slot, which is not copied,
// so no two threads write the slot.
unsafe impl<T: Slot> Send for OwnSlot<'_, T> {}

impl<'r, T: Slot> OwnSlots<'r, T> {
    /// Slots that the producing side has reserved.
    #[inline(always)]
    pub(super) fn new(ring: &'r mut Mapped<T>, slots: &Cursor) -> Self {
        Self {
            ring,
            next: slots.next as usize,
            left: slots.left() as usize,
        }
    }
}

impl<'r, T: Slot> Iterator for OwnSlots<'r, T> {
    type Item = OwnSlot<'r, T>;

    #[inline(always)]
    fn next(&mut self) -> Option<OwnSlot<'r, T>> {
        self.left = self.left.checked_sub(1)?;
        let slot = self.ring.slot(self.next as u32);
        self.next = self.next.wrapping_add(1);
        Some(OwnSlot(slot))
    }
}

impl OwnSlot<'_, Desc> {
    /// Writes a packet in one buffer.
    #[inline(always)]
    pub(crate) fn write_packet(self, addr: u64, len: u32) {
        self.0.write_packet(addr, len);
    }
}

#[cfg(xsk_internals)]
impl<T> Mapped<T> {
    /// The ring for other code, with a side of it at these indices.
    pub(crate) fn raw(&self, next: u32, limit: u32) -> RawRing {
        RawRing {
            producer: self.producer.as_ptr().cast(),
            consumer: self.consumer.as_ptr().cast(),
            flags: self.flags.as_ptr().cast(),
            slots: self.slots.as_ptr().cast(),
            next,
            limit,
            mask: self.mask,
            reserved: 0,
        }
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

    #[cfg(any(test, xsk_internals))]
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring at `at` in a mapping of 4096 bytes.
    fn ring(at: Offsets, size: u32) -> Option<Mapped<u64>> {
        Mapped::new(Mapping::heap(4096), at, size)
    }

    #[test]
    fn offsets_outside_the_mapping_are_refused() {
        let right = Offsets {
            producer: 0,
            consumer: 64,
            flags: 128,
            slots: 192,
        };
        assert!(ring(right, 64).is_some());
        let fields: [fn(&mut Offsets) -> &mut usize; 4] = [
            |at| &mut at.producer,
            |at| &mut at.consumer,
            |at| &mut at.flags,
            |at| &mut at.slots,
        ];
        for field in fields {
            // Outside, at the end, not aligned, and so large that the end of the word or slots wraps around.
            for wrong in [4096, 4094, 2, 1 << 40, usize::MAX - 3, usize::MAX - 7] {
                let mut at = right;
                *field(&mut at) = wrong;
                assert!(ring(at, 64).is_none(), "{at:?}");
            }
        }
        for size in [0, 3, 1 << 31, u32::MAX] {
            assert!(ring(right, size).is_none(), "{size} slots");
        }
    }

    #[test]
    fn a_size_with_options_or_without_bytes_ends_nowhere() {
        assert!(Size::of(1).ends_within(0));
        assert!(Size::of(2048).ends_within(2047));
        for size in [
            0,
            2049,
            1 << 32,
            1 << 32 | 0x3c,
            u64::MAX,
            u64::MAX << 32 | 0x3c,
        ] {
            assert!(!Size(size).ends_within(2047), "{size:#x}");
        }
        assert!(Size(1 << 32 | 0x3c).without_options().ends_within(59));
        assert_eq!(
            (Size(3 << 32 | 0x3c).len(), Size(3 << 32).options()),
            (60, 3)
        );
    }
}
