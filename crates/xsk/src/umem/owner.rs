//! The owner of each chunk: user space, or the FILL and COMPLETION rings that it was lent through.
#![allow(unsafe_code)] // One entry is reached without a check.

use crate::ring::{SharedSlot, Size};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// Identifies one FILL and COMPLETION pair of a UMEM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct RingsId(pub(super) u16);

impl RingsId {
    /// Most pairs that a UMEM has at once.
    pub(super) const MOST: usize = 4096;

    /// A pair through which no chunk is ever lent.
    pub(crate) const NONE: Self = Self(Self::MOST as u16);

    /// The entry of a chunk in FILL, in the kernel's receive side, in RX, or in a batch, which no [`Burst`] has
    /// read.
    #[inline]
    pub(crate) fn receiving(self) -> u32 {
        FIRST_LENT + 2 * u32::from(self.0) * OWNER
    }

    /// The entry of a chunk in TX, in the kernel's send side, or in COMPLETION.
    #[inline]
    pub(crate) fn sending(self) -> u32 {
        self.receiving() + OWNER
    }
}

/// The upper bits of an entry are the owner, of which two follow each other by this; the lower bits are the
/// number of a [`Burst`].
const OWNER: u32 = 1 << 18;
/// User space has the chunk: in the free list, a cache, a frame or a packet.
pub(super) const OURS: u32 = 0;
/// From here on: lent to the kernel, see [`RingsId`].
const FIRST_LENT: u32 = OWNER;
const _: () = assert!(RingsId::MOST as u64 * 2 + 2 < (1 << 32) / OWNER as u64);

/// The entry of an owner, without the number of a burst.
#[inline(always)]
fn owner(entry: u32) -> u32 {
    entry & !(OWNER - 1)
}

/// The descriptors read from RX between two publications of FILL. The kernel gets none of their chunks during that
/// time, so a chunk comes at most once: its entry has the number of the burst that read it last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Burst {
    /// The entry of a chunk that no burst has read.
    lent: u32,
    /// From 1 on. Entries of these rings have lower numbers, or this one.
    number: u32,
}

impl Burst {
    /// The largest number.
    pub(crate) const LAST: u32 = OWNER - 1;

    #[inline(always)]
    pub(crate) fn new(rings: RingsId, number: u32) -> Self {
        let lent = rings.receiving();
        Self { lent, number }
    }

    /// Whether a chunk with this entry is lent for receiving, and was not read in this burst.
    #[inline(always)]
    fn may_read(self, entry: u32) -> bool {
        entry.wrapping_sub(self.lent) < self.number
    }

    /// The entry of a chunk that this burst has read.
    #[inline(always)]
    fn read(self) -> u32 {
        self.lent + self.number
    }
}

/// Access that the kernel may still have to chunks lent through closed rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterClose {
    /// None.
    LetGo,
    /// Reads those that were being sent.
    MaySend,
    /// Reads and writes all of them (zero-copy, until the driver has drained).
    MayTouchAll,
}

/// The chunks of a UMEM by owner; see [`Umem::accounting`](crate::Umem::accounting). The sum of the
/// fields is [`Umem::chunks`](crate::Umem::chunks).
///
/// ```
/// # fn main() -> xsk::Result<()> {
/// let umem = xsk::Umem::builder().chunks(64).build()?;
/// let held = umem.alloc();
/// let count = umem.accounting();
/// assert_eq!((count.free, count.held, count.retired), (63, 1, 0));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Accounting {
    /// In the UMEM's free list.
    pub free: u32,
    /// In user space otherwise: sockets' caches and frames.
    pub held: u32,
    /// In FILL, in the kernel for receiving, in RX, or in a packet of a batch.
    pub receiving: u32,
    /// In TX, in the kernel for sending, or in COMPLETION.
    pub sending: u32,
    /// Not used for now, because their socket was closed and the kernel may still touch them; see
    /// [`Umem::recover`](crate::Umem::recover). Or for good, because another process has them.
    pub retired: u32,
}

/// The place of a chunk while its UMEM passes from one process to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Free.
    Free,
    /// Lent for receiving.
    Receiving,
    /// Lent for sending.
    Sending,
    /// Not used any more: a former socket's, which the kernel may still touch.
    Retired,
}

/// One entry for each chunk.
pub(super) struct OwnerTable(Box<[AtomicU32]>);

impl OwnerTable {
    /// A table of chunks that user space owns.
    pub(super) fn new(chunks: u32) -> Self {
        Self((0..chunks).map(|_| AtomicU32::new(OURS)).collect())
    }

    /// Sets the owner of a chunk of ours.
    #[inline]
    pub(super) fn set(&self, index: u32, owner: u32) {
        if let Some(entry) = self.0.get(index as usize) {
            entry.store(owner, Relaxed);
        }
    }

    /// Changes a chunk's entry to `to` if `is_from` is true of it; false when it is not, or there is no such
    /// chunk.
    #[inline(always)]
    pub(super) fn change(&self, index: u64, is_from: impl Fn(u32) -> bool, to: u32) -> bool {
        change(&self.0, index, is_from, to)
    }

    /// Whether a chunk is lent through `rings` for receiving, read or not.
    #[inline(always)]
    pub(super) fn is_receiving(rings: RingsId) -> impl Fn(u32) -> bool {
        move |entry| owner(entry) == rings.receiving()
    }

    /// The same, and not read in this burst.
    #[inline(always)]
    pub(super) fn is_unread(burst: Burst) -> impl Fn(u32) -> bool {
        move |entry| burst.may_read(entry)
    }

    /// Forgets in which bursts chunks that are lent through `rings` were read, so that numbers start again.
    pub(super) fn forget_bursts(&self, rings: RingsId) {
        for entry in &self.0 {
            if owner(entry.load(Relaxed)) == rings.receiving() {
                entry.store(rings.receiving(), Relaxed);
            }
        }
    }

    /// Ends loans through `rings`, of all its chunks or of those for receiving. Calls `free` for
    /// each chunk that is ours again; returns the number of those that stay lent.
    pub(super) fn release(&self, rings: RingsId, all: bool, free: impl Fn(u32)) -> u32 {
        let mut kept = 0;
        for (index, entry) in self.0.iter().enumerate() {
            let owner = owner(entry.load(Relaxed));
            let receiving = owner == rings.receiving();
            if !receiving && owner != rings.sending() {
                continue;
            }
            if all || receiving {
                entry.store(OURS, Relaxed);
                free(index as u32);
            } else {
                kept += 1;
            }
        }
        kept
    }

    /// The number of chunks that are lent through `rings`.
    pub(super) fn lent(&self, rings: RingsId) -> usize {
        let is_lent = |owner: u32| owner == rings.receiving() || owner == rings.sending();
        let owners = self.0.iter().map(|entry| owner(entry.load(Relaxed)));
        owners.filter(|&owner| is_lent(owner)).count()
    }

    /// The place of each chunk, for a process to which it is lent through `rings`, and those of user
    /// space are free.
    pub(super) fn places(&self, rings: RingsId) -> Vec<Place> {
        let place = |owner: u32| match owner {
            OURS => Place::Free,
            _ if owner == rings.receiving() => Place::Receiving,
            _ if owner == rings.sending() => Place::Sending,
            _ => Place::Retired,
        };
        let owners = self.0.iter().map(|entry| owner(entry.load(Relaxed)));
        owners.map(place).collect()
    }

    /// Counts the chunks of each kind of owner; those of user space all as held.
    pub(super) fn count(&self, is_retired: impl Fn(RingsId) -> bool) -> Accounting {
        let mut count = Accounting::default();
        for entry in &self.0 {
            let Some(lent) = entry.load(Relaxed).checked_sub(FIRST_LENT) else {
                count.held += 1;
                continue;
            };
            let lent = lent / OWNER;
            if is_retired(RingsId((lent / 2) as u16)) {
                count.retired += 1;
            } else if lent.is_multiple_of(2) {
                count.receiving += 1;
            } else {
                count.sending += 1;
            }
        }
        count
    }

    /// The owner of each chunk, by index.
    #[inline(always)]
    pub(super) fn entries(&self) -> &[AtomicU32] {
        &self.0
    }
}

/// See [`OwnerTable::change`].
#[inline(always)]
fn change(owners: &[AtomicU32], index: u64, is_from: impl Fn(u32) -> bool, to: u32) -> bool {
    // Relaxed, and not one atomic step: `is_from` is true of one side of a pair of rings, which one
    // thread at a time uses, and only that thread changes entries that name it.
    match usize::try_from(index).ok().and_then(|at| owners.get(at)) {
        Some(entry) if is_from(entry.load(Relaxed)) => {
            entry.store(to, Relaxed);
            true
        }
        _ => false,
    }
}

/// In the place of the log2 of a chunk's size, where that is any number: chunks lie one behind the other, and
/// an address is divided by their size.
pub(crate) const UNALIGNED: u32 = 0;

/// The address that a descriptor of unaligned chunks names: its upper 16 bits are an offset
/// (`XSK_UNALIGNED_BUF_OFFSET_SHIFT` in `include/uapi/linux/if_xdp.h`).
#[inline]
pub(crate) fn decode(addr: u64) -> u64 {
    const BITS: u32 = 48;
    (addr & ((1 << BITS) - 1)) + (addr >> BITS)
}

/// Bytes in a chunk: a constant, unless they are unaligned.
#[inline(always)]
pub(super) fn chunk_size<const SHIFT: u32>(size: u32) -> u64 {
    if SHIFT == UNALIGNED {
        size.into()
    } else {
        1 << SHIFT
    }
}

/// The chunks of 2^`SHIFT` bytes whose owner is one side of one pair of rings. The size is a constant,
/// so that a loop over many packets needs no registers for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnedBy<'u, const SHIFT: u32> {
    pub(super) owners: &'u [AtomicU32],
    pub(super) owner: u32,
    /// Bytes in a chunk, used where `SHIFT` is [`UNALIGNED`].
    pub(super) size: u32,
}

impl<'u, const SHIFT: u32> OwnedBy<'u, SHIFT> {
    /// Bytes in a chunk.
    #[inline(always)]
    pub(crate) fn size(self) -> u64 {
        chunk_size::<SHIFT>(self.size)
    }

    /// The address that a descriptor's or completion's names.
    #[inline(always)]
    pub(crate) fn decode(addr: u64) -> u64 {
        if SHIFT == UNALIGNED {
            decode(addr)
        } else {
            addr
        }
    }

    /// The first address of the chunk that an address lies in.
    #[inline(always)]
    pub(crate) fn start(self, addr: u64) -> u64 {
        addr - self.offset(addr)
    }

    /// The offset of an address in its chunk.
    #[inline(always)]
    fn offset(self, addr: u64) -> u64 {
        // A mask, where the size is a constant.
        addr % self.size()
    }

    /// The index of the chunk that an address lies in.
    #[inline(always)]
    pub(crate) fn index(self, addr: u64) -> usize {
        (addr / self.size()) as usize
    }

    /// Notes that a burst has read a packet. False when the packet does not lie inside a chunk that is lent and
    /// that the burst has not read: one without bytes does not, nor one with options.
    #[inline(always)]
    pub(crate) fn mark_read(self, burst: Burst, addr: u64, size: Size) -> bool {
        let entry = self.unread(burst, addr, size);
        entry
            .map(|entry| entry.store(burst.read(), Relaxed))
            .is_some()
    }

    /// The entry of the chunk that a packet lies in, unless [`mark_read`](Self::mark_read) would be false.
    #[inline(always)]
    pub(super) fn unread(self, burst: Burst, addr: u64, size: Size) -> Option<&'u AtomicU32> {
        let entry = self.owners.get(self.index(addr))?;
        let is_inside = size.ends_within(self.size() - 1 - self.offset(addr));
        (burst.may_read(entry.load(Relaxed)) && is_inside).then_some(entry)
    }

    /// Whether the burst has read the chunk, which has no other owner since.
    pub(super) fn is_read(self, burst: Burst, addr: u64) -> bool {
        let entry = self.owners.get(self.index(addr));
        entry.is_some_and(|entry| entry.load(Relaxed) == burst.read())
    }

    /// Gives a chunk of this owner to another.
    ///
    /// # Safety
    ///
    /// It is the index of a chunk.
    #[inline(always)]
    pub(crate) unsafe fn set_unchecked(self, index: usize, to: u32) {
        // SAFETY: needed to skip the check; the caller promises that the entry is there.
        unsafe { self.owners.get_unchecked(index) }.store(to, Relaxed);
    }

    /// Gives the chunks of addresses in one run of slots to another owner, and writes their first addresses
    /// into another run, as long. Returns their number: it ends at the first that is not owned.
    #[inline(always)]
    pub(crate) fn give_runs(
        self,
        from: &[SharedSlot<u64>],
        slots: &[SharedSlot<u64>],
        to: u32,
    ) -> usize {
        let slots = &slots[..from.len()];
        let mut given = 0;
        while given < from.len() {
            let addr = from[given].read();
            if self.give(addr, to).is_none() {
                return given;
            }
            slots[given].write(self.start(Self::decode(addr)));
            given += 1;
        }
        given
    }

    /// Gives the chunk that an address lies in to another owner; `None` when it was not owned.
    /// Returns its index.
    #[inline(always)]
    pub(crate) fn give(self, addr: u64, to: u32) -> Option<u32> {
        let index = Self::decode(addr) / self.size();
        change(self.owners, index, |entry| entry == self.owner, to).then_some(index as u32)
    }
}

/// The chunks that are lent through one pair of rings for receiving: a copy of all that a check
/// of a descriptor needs, so that it need not be loaded again for each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LentChunks<'u> {
    pub(super) owners: &'u [AtomicU32],
    pub(super) shift: u32,
    pub(super) mask: u64,
    pub(super) burst: Burst,
}

impl<'u> LentChunks<'u> {
    /// Notes that the burst has read a packet; see [`OwnedBy::mark_read`].
    #[inline(always)]
    pub(crate) fn mark_read(self, addr: u64, size: Size) -> bool {
        let entry = self.unread(addr, size);
        entry
            .map(|entry| entry.store(self.burst.read(), Relaxed))
            .is_some()
    }

    #[inline(always)]
    fn unread(self, addr: u64, size: Size) -> Option<&'u AtomicU32> {
        let entry = self.owners.get(self.index(addr))?;
        let is_inside = size.ends_within(!addr & self.mask);
        (self.burst.may_read(entry.load(Relaxed)) && is_inside).then_some(entry)
    }

    /// The first address of the chunk that an address lies in.
    #[inline(always)]
    pub(crate) fn start(self, addr: u64) -> u64 {
        addr & !self.mask
    }

    #[inline(always)]
    fn index(self, addr: u64) -> usize {
        (addr >> (self.shift & 63)) as usize
    }

    /// Gives the chunk that an address lies in to another owner.
    ///
    /// # Safety
    ///
    /// [`mark_read`](Self::mark_read) was true of the chunk.
    #[inline(always)]
    pub(crate) unsafe fn give_unchecked(self, addr: u64, to: u32) {
        // SAFETY: needed to skip the check; the caller promises that the entry is there.
        unsafe { self.owners.get_unchecked(self.index(addr)) }.store(to, Relaxed);
    }
}
