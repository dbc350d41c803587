//! The UMEM: memory shared with the kernel, divided into chunks, and the owner of each chunk.
//!
//! The kernel does not check ownership: it reads and writes any address that it is given. So the
//! owner table has an entry for each chunk, and a [`Chunk`] exists in user space exactly while the
//! entry is "ours". A descriptor or completion of a chunk that was not lent through those rings is
//! rejected and counted, so that no two owners in user space have the same bytes, with any
//! values in the shared rings. One fault is beyond the table: a driver that publishes a received
//! chunk twice, the second time after it was lent again, looks like one that received twice.

mod builder;
mod chunk;
mod extent;
mod lease;
mod owner;
mod pages;

pub use builder::UmemBuilder;
pub(crate) use chunk::{Cache, Chunk};
pub(crate) use extent::Extent;
pub(crate) use lease::RingsLease;
pub use owner::Accounting;
pub(crate) use owner::{AfterClose, LentChunks, RingsId};
pub use pages::Pages;

use crate::error::{Error, Result};
use crate::sys::Mapping;
use crossbeam_queue::ArrayQueue;
use owner::OwnerTable;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

/// Bytes that the kernel reserves in front of every received packet (`XDP_PACKET_HEADROOM` in
/// `include/uapi/linux/bpf.h`).
///
/// ```
/// # fn main() -> xsk::Result<()> {
/// let umem = xsk::Umem::builder().build()?;
/// assert_eq!(umem.max_rx_packet(), umem.chunk_size() - xsk::XDP_PACKET_HEADROOM);
/// # Ok(())
/// # }
/// ```
pub const XDP_PACKET_HEADROOM: u32 = 256;

/// The sizes of a UMEM.
#[derive(Debug, Clone, Copy)]
struct Geometry {
    chunks: u32,
    /// Bytes in a chunk.
    chunk_size: u32,
    /// Bytes kept free in front of every packet.
    headroom: u32,
}

impl Geometry {
    /// Bytes in all chunks.
    fn len(self) -> usize {
        self.chunks as usize * self.chunk_size as usize
    }
}

/// Memory for packets, shared with the kernel by all sockets opened on it.
///
/// Threads can share a `Umem`: each socket has a cache of free chunks, and all have a lock-free list
/// in common.
///
/// ```
/// use xsk::Umem;
///
/// # fn main() -> xsk::Result<()> {
/// let umem = Umem::builder().chunks(1024).build()?;
/// let frame = umem.alloc().expect("a new UMEM has free frames");
/// assert_eq!(umem.accounting().free, 1023);
/// drop(frame);
/// assert_eq!(umem.accounting().free, 1024);
/// # Ok(())
/// # }
/// ```
pub struct Umem {
    memory: Mapping,
    chunks: u32,
    chunk_shift: u32,
    /// The bits of an address that are the offset in a chunk.
    chunk_mask: u64,
    headroom: u32,
    pages: Pages,
    owners: OwnerTable,
    /// Indices of free chunks.
    free: ArrayQueue<u32>,
    registry: Mutex<Registry>,
}

/// The rings and sockets of a UMEM, changed only when sockets open and close.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// One entry for each [`RingsId`] ever given; true while in use.
    rings: Vec<bool>,
    /// Bound sockets; the next socket can share the registration of any open one.
    pub(crate) sockets: Vec<Weak<OwnedFd>>,
}

impl Umem {
    fn new(memory: Mapping, geometry: Geometry, pages: Pages) -> Self {
        let Geometry {
            chunks,
            chunk_size,
            headroom,
        } = geometry;
        let free = ArrayQueue::new(chunks as usize);
        for index in 0..chunks {
            let _fits = free.push(index);
        }
        Self {
            memory,
            chunks,
            chunk_shift: chunk_size.trailing_zeros(),
            chunk_mask: u64::from(chunk_size) - 1,
            headroom,
            pages,
            owners: OwnerTable::new(chunks),
            free,
            registry: Mutex::default(),
        }
    }

    /// A UMEM on the heap, for tests without a kernel.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn on_heap(chunks: u32, chunk_size: u32) -> Self {
        let geometry = Geometry {
            chunks,
            chunk_size,
            headroom: 0,
        };
        Self::new(Mapping::heap(geometry.len()), geometry, Pages::Ordinary)
    }

    /// Number of chunks.
    pub fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Bytes in a chunk.
    pub fn chunk_size(&self) -> u32 {
        self.chunk_mask as u32 + 1
    }

    /// Bytes kept free in front of every packet.
    pub fn headroom(&self) -> u32 {
        self.headroom
    }

    /// Longest packet that can be received, in bytes, link header included.
    pub fn max_rx_packet(&self) -> u32 {
        self.chunk_size() - XDP_PACKET_HEADROOM - self.headroom
    }

    /// The kind of pages that the memory has.
    pub fn pages(&self) -> &Pages {
        &self.pages
    }

    /// Counts the chunks by owner. It reads the whole table, in time proportional to the number of
    /// chunks; while other threads use the UMEM the counts are not of one moment.
    pub fn accounting(&self) -> Accounting {
        let mut count = self.owners.count();
        count.free = (self.free.len() as u32).min(count.held);
        count.held -= count.free;
        count
    }

    /// Address and length of the memory, as the kernel registers it.
    pub(crate) fn region(&self) -> (u64, u64) {
        let len = u64::from(self.chunks) << self.chunk_shift;
        (self.memory.start().as_ptr() as u64, len)
    }

    pub(crate) fn registry(&self) -> MutexGuard<'_, Registry> {
        // No change to it has a second step, so it is valid after a panic elsewhere.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn register_rings(&self) -> Result<RingsId> {
        let mut registry = self.registry();
        let unused = registry.rings.iter().position(|used| !used);
        let id = unused.unwrap_or(registry.rings.len());
        if id == RingsId::MOST {
            let most = RingsId::MOST;
            return Err(Error::invalid(format!(
                "a UMEM serves at most {most} device queues at once"
            )));
        }
        if unused.is_none() {
            registry.rings.push(false);
        }
        registry.rings[id] = true;
        Ok(RingsId(id as u16))
    }

    /// Ends a pair of rings: the chunks lent through it become free, unless the kernel may still
    /// touch them. Returns the number of retired chunks.
    pub(crate) fn release_rings(&self, id: RingsId, kernel: AfterClose) -> u32 {
        let retired = self.owners.release(id, kernel, |index| {
            let _fits = self.free.push(index);
        });
        self.registry().rings[usize::from(id.0)] = false;
        retired
    }

    /// Moves a chunk that is lent through `rings` for receiving over to sending.
    #[inline(always)]
    pub(crate) fn forward(&self, addr: u64, rings: RingsId) {
        let index = addr >> self.chunk_shift;
        self.owners
            .change(index, rings.receiving(), rings.sending());
    }

    /// Moves a chunk that was sent through `rings` over to receiving; false when it was not being
    /// sent.
    #[inline(always)]
    pub(crate) fn completed_to_receive(&self, addr: u64, rings: RingsId) -> bool {
        let index = addr >> self.chunk_shift;
        self.owners
            .change(index, rings.sending(), rings.receiving())
    }

    /// The chunks that are lent through `rings` for receiving.
    #[inline(always)]
    pub(crate) fn lent_to_receive(&self, rings: RingsId) -> LentChunks<'_> {
        // The order of the loads decides which of them stay in registers: measured.
        LentChunks {
            owners: self.owners.entries(),
            shift: self.chunk_shift,
            mask: self.chunk_mask,
            lent: rings.receiving(),
        }
    }

    /// The first address of the chunk that an address lies in.
    #[inline(always)]
    pub(crate) fn chunk_start(&self, addr: u64) -> u64 {
        addr & !self.chunk_mask
    }
}

impl fmt::Debug for Umem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Umem")
            .field("chunks", &self.chunks)
            .field("chunk_size", &self.chunk_size())
            .field("headroom", &self.headroom)
            .field("pages", &self.pages)
            .finish_non_exhaustive()
    }
}
