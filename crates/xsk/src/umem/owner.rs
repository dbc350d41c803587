//! The owner of each chunk: user space, or the FILL and COMPLETION rings that it was lent through.

use super::extent::Extent;
use std::sync::atomic::AtomicU16;
use std::sync::atomic::Ordering::Relaxed;

/// Identifies one FILL and COMPLETION pair of a UMEM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingsId(pub(super) u16);

impl RingsId {
    /// Most pairs that a UMEM has at once.
    pub(super) const MOST: usize = 4096;

    /// The owner of a chunk in FILL, in the kernel's receive side, in RX, or in a batch.
    #[inline]
    pub(super) fn receiving(self) -> u16 {
        FIRST_LENT + 2 * self.0
    }

    /// The owner of a chunk in TX, in the kernel's send side, or in COMPLETION.
    #[inline]
    pub(super) fn sending(self) -> u16 {
        FIRST_LENT + 2 * self.0 + 1
    }
}

/// User space has the chunk: in the free list, a cache, a frame or a packet.
pub(super) const OURS: u16 = 0;
/// The kernel may still touch the chunk after its socket has gone; it is not used again.
const RETIRED: u16 = 1;
/// From here on: lent to the kernel, see [`RingsId`].
const FIRST_LENT: u16 = 2;

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
    /// Not used again, because their socket was closed before the kernel returned them.
    pub retired: u32,
}

/// One entry for each chunk.
pub(super) struct OwnerTable(Box<[AtomicU16]>);

impl OwnerTable {
    /// A table of chunks that user space owns.
    pub(super) fn new(chunks: u32) -> Self {
        Self((0..chunks).map(|_| AtomicU16::new(OURS)).collect())
    }

    /// Sets the owner of a chunk of ours.
    #[inline]
    pub(super) fn set(&self, index: u32, owner: u16) {
        if let Some(entry) = self.0.get(index as usize) {
            entry.store(owner, Relaxed);
        }
    }

    /// Changes a chunk's owner from `from` to `to`; false when another has it, or there is no
    /// such chunk.
    #[inline(always)]
    pub(super) fn change(&self, index: u64, from: u16, to: u16) -> bool {
        // Relaxed, and not one atomic step: `from` names a pair of rings, which one thread at a
        // time uses, and only that thread changes entries that name it.
        match usize::try_from(index).ok().and_then(|at| self.0.get(at)) {
            Some(entry) if entry.load(Relaxed) == from => {
                entry.store(to, Relaxed);
                true
            }
            _ => false,
        }
    }

    /// Ends the loans through `rings`. Calls `free` for each chunk that is ours again; returns
    /// the number of those that are retired.
    pub(super) fn release(&self, rings: RingsId, kernel: AfterClose, free: impl Fn(u32)) -> u32 {
        let mut retired = 0;
        for (index, entry) in self.0.iter().enumerate() {
            let owner = entry.load(Relaxed);
            let receiving = owner == rings.receiving();
            if !receiving && owner != rings.sending() {
                continue;
            }
            if kernel == AfterClose::LetGo || (receiving && kernel == AfterClose::MaySend) {
                entry.store(OURS, Relaxed);
                free(index as u32);
            } else {
                entry.store(RETIRED, Relaxed);
                retired += 1;
            }
        }
        retired
    }

    /// Counts the chunks of each kind of owner; those of user space all as held.
    pub(super) fn count(&self) -> Accounting {
        let mut count = Accounting::default();
        for entry in &self.0 {
            match entry.load(Relaxed) {
                OURS => count.held += 1,
                RETIRED => count.retired += 1,
                lent if (lent - FIRST_LENT).is_multiple_of(2) => count.receiving += 1,
                _ => count.sending += 1,
            }
        }
        count
    }

    /// The owner of each chunk, by index.
    #[inline(always)]
    pub(super) fn entries(&self) -> &[AtomicU16] {
        &self.0
    }
}

/// The chunks that are lent through one pair of rings for receiving: a copy of all that a check
/// of a descriptor needs, so that it need not be loaded again for each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LentChunks<'u> {
    pub(super) owners: &'u [AtomicU16],
    pub(super) shift: u32,
    pub(super) mask: u64,
    pub(super) lent: u16,
}

impl LentChunks<'_> {
    /// The address of the chunk that a packet was received into, and the packet's place in
    /// there; `None` when the chunk is not lent or the packet does not lie inside it.
    #[inline(always)]
    pub(crate) fn find(self, addr: u64, len: u32) -> Option<(u64, Extent)> {
        let offset = addr & self.mask;
        let inside = offset + u64::from(len) <= self.mask + 1;
        let extent = Extent {
            offset: offset as u32,
            len,
        };
        (inside && self.contains(addr)).then_some((addr & !self.mask, extent))
    }

    /// Whether the chunk that an address lies in is lent.
    #[inline(always)]
    pub(crate) fn contains(self, addr: u64) -> bool {
        let owner = self.owners.get((addr >> (self.shift & 63)) as usize);
        owner.is_some_and(|owner| owner.load(Relaxed) == self.lent)
    }
}
