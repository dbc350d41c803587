//! The UMEM: memory shared with the kernel, divided into chunks, and the owner of each chunk.
//!
//! The kernel does not check ownership: it reads and writes any address that it is given. So the
//! owner table has an entry for each chunk, and a [`Chunk`] exists in user space exactly while the
//! entry is "ours". A descriptor or completion of a chunk that was not lent through those rings is
//! rejected and counted, as is a second one of a chunk in one burst, so that no two owners in user space
//! have the same bytes, with any values in the shared rings. One fault is beyond the table: a driver that
//! publishes a received chunk twice, the second time in a later burst, looks like one that received twice.

mod builder;
mod chunk;
mod claim;
mod extent;
mod hand_over;
mod lease;
mod owner;
mod pages;
mod share;

pub use crate::sys::TX_METADATA_LEN;
pub use builder::UmemBuilder;
pub(crate) use chunk::{Cache, Chunk, Memory, Reserved, Room, Rooms};
pub(crate) use extent::Extent;
pub(crate) use lease::RingsLease;
pub use owner::Accounting;
pub(crate) use owner::{AfterClose, Burst, LentChunks, OwnedBy, Place, RingsId, UNALIGNED};
pub(crate) use pages::HUGE_PAGE;
pub use pages::Pages;

use crate::error::{Error, ErrorKind, Result};
use crate::pool::Pool;
use crate::ring::Size;
use crate::sys::{Kernel, KernelSocket, Linux, Mapping, QueueOwner};
use claim::Claim;
use owner::OwnerTable;
use pages::Backing;
use share::Share;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

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

/// Most chunks of one packet: those of a `struct sk_buff`, `MAX_SKB_FRAGS` (17 by default, `include/linux/skbuff.h`)
/// and its linear part. A card in zero-copy mode may send fewer, and a kernel built with a larger
/// `CONFIG_MAX_SKB_FRAGS` (at most 45, Linux 6.4) would send more.
///
/// In copy mode the kernel receives a packet into as many chunks as its length needs (`__xsk_rcv` in `net/xdp/xsk.c`); one
/// of more chunks than these is dropped, and counted in [`Statistics::fragmented`](crate::Statistics::fragmented).
/// Of 4096 bytes each, 18 chunks hold a packet of 64 KiB.
pub const MAX_FRAGMENTS: usize = 18;

/// The sizes of a UMEM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) chunks: u32,
    /// Bytes in a chunk.
    pub(crate) chunk_size: u32,
    /// Bytes kept free in front of every packet.
    pub(crate) headroom: u32,
    /// Whether packets may take several chunks.
    pub(crate) fragments: bool,
    /// Whether each packet sent has metadata in front of it.
    pub(crate) tx_metadata: bool,
    /// Whether chunks may have any size, and lie across pages.
    pub(crate) unaligned: bool,
}

impl Geometry {
    /// Bytes in all chunks.
    fn len(self) -> usize {
        self.chunks as usize * self.chunk_size as usize
    }

    /// The index of the chunk that an address in a ring lies in.
    pub(crate) fn index(self, addr: u64) -> u64 {
        let addr = if self.unaligned {
            owner::decode(addr)
        } else {
            addr
        };
        addr / u64::from(self.chunk_size)
    }
}

/// Memory for packets, shared with the kernel by all sockets opened on it.
///
/// A clone refers to the same memory, as sockets and frames do: it lasts as long as any of them.
/// Threads can share it: each socket has a cache of free chunks, and all have a lock-free list in
/// common.
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
#[derive(Clone)]
pub struct Umem(Share<Area>);

/// The memory of a UMEM and all that is known of its chunks.
pub(crate) struct Area {
    memory: Mapping,
    /// The file of the memory.
    file: Option<OwnedFd>,
    chunks: u32,
    chunk_size: u32,
    /// Log2 of the size, or [`UNALIGNED`].
    chunk_shift: u32,
    /// The bits of an address that are the offset in a chunk; none when they are unaligned.
    chunk_mask: u64,
    headroom: u32,
    /// Offset in its chunk of the first packet that can be sent: its metadata is in front of it.
    least_offset: u32,
    /// Offset of an empty frame.
    frame_offset: u32,
    fragments: bool,
    tx_metadata: bool,
    pages: Pages,
    owners: OwnerTable,
    /// Indices of free chunks.
    pool: Pool,
    registry: Mutex<Registry>,
}

/// The state of a pair of rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rings {
    Unused,
    Open,
    /// Closed, with chunks that the kernel may still touch.
    Retired(DeviceQueue),
}

/// A queue of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeviceQueue {
    /// The network namespace, in which alone the device has this index; none when it is unknown.
    pub(crate) namespace: Option<u64>,
    pub(crate) ifindex: u32,
    pub(crate) queue: u32,
    /// Whether the kernel showed that a socket had it, while one had.
    pub(crate) is_shown: bool,
}

/// A queue for tests without a kernel.
#[cfg(test)]
const QUEUE: DeviceQueue = DeviceQueue {
    namespace: Some(1),
    is_shown: false,
    ifindex: 1,
    queue: 0,
};

impl DeviceQueue {
    /// Whether both are known to be the same queue.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.namespace.is_some()
            && (self.namespace, self.ifindex, self.queue)
                == (other.namespace, other.ifindex, other.queue)
    }

    /// Whether the kernel shows that no socket has the queue any more, nor the driver its chunks.
    fn is_free(&self, kernel: &dyn Kernel) -> bool {
        if self.namespace.is_none() || self.namespace != kernel.namespace() {
            return false;
        }
        match kernel.queue_owner(self.ifindex, self.queue) {
            QueueOwner::NoDevice => true,
            QueueOwner::Stack => self.is_shown,
            QueueOwner::Socket | QueueOwner::Unknown => false,
        }
    }
}

/// The rings and sockets of a UMEM, changed only when sockets open and close.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// One entry for each [`RingsId`] ever given.
    rings: Vec<Rings>,
    /// Bound sockets; the next socket can share the registration of any open one.
    sockets: Vec<Weak<dyn KernelSocket>>,
    /// Until the memory is handed over.
    claim: Option<Claim>,
    /// Whether another process has the chunks: in here, so that it stays as it is while a thread acts on it.
    handed_over: bool,
}

impl Registry {
    /// A bound socket, whose registration another can share. While the registry is locked, it stays
    /// open; a reference kept for longer would keep a closed socket open.
    pub(crate) fn lender(&self) -> Option<Arc<dyn KernelSocket>> {
        self.sockets.iter().find_map(Weak::upgrade)
    }

    /// Lets other sockets share the registration of a bound one.
    pub(crate) fn lend(&mut self, socket: &Arc<dyn KernelSocket>) {
        self.sockets.push(Arc::downgrade(socket));
    }

    /// Ends that. No other thread uses the socket afterwards, since they do only under this lock.
    pub(crate) fn stop_lending(&mut self, socket: &Arc<dyn KernelSocket>) {
        let ended = Arc::as_ptr(socket);
        self.sockets
            .retain(|lender| !std::ptr::addr_eq(lender.as_ptr(), ended));
    }
}

impl Umem {
    fn new(memory: Backing, geometry: Geometry, pages: Pages) -> Result<Self> {
        let Geometry {
            chunks,
            chunk_size,
            headroom,
            fragments,
            tx_metadata,
            unaligned,
        } = geometry;
        // The kernel clears the lowest bit of an address that it completes, which must not lead into another
        // chunk.
        let even = if chunk_size % 2 == 1 { 2 } else { 0 };
        let least_offset = if tx_metadata { TX_METADATA_LEN } else { even };
        let (chunk_shift, chunk_mask) = if unaligned {
            (UNALIGNED, 0)
        } else {
            (chunk_size.trailing_zeros(), u64::from(chunk_size) - 1)
        };
        let claim = memory.file.as_ref().map(Claim::new).transpose()?;
        let registry = Registry {
            claim,
            ..Registry::default()
        };
        Ok(Self(Share::new(Area {
            memory: memory.mapping,
            file: memory.file,
            chunks,
            chunk_size,
            chunk_shift,
            chunk_mask,
            headroom,
            least_offset,
            frame_offset: headroom + least_offset,
            fragments,
            tx_metadata,
            pages,
            owners: OwnerTable::new(chunks),
            pool: Pool::full(chunks),
            registry: Mutex::new(registry),
        })))
    }

    /// A UMEM on the heap, for tests without a kernel.
    #[cfg(any(test, xsk_internals))]
    pub(crate) fn on_heap(chunks: u32, chunk_size: u32) -> Self {
        Self::of_geometry_on_heap(Geometry {
            chunks,
            chunk_size,
            headroom: 0,
            fragments: false,
            tx_metadata: false,
            unaligned: false,
        })
    }

    /// The same with any sizes.
    #[cfg(any(test, xsk_internals))]
    pub(crate) fn of_geometry_on_heap(geometry: Geometry) -> Self {
        let memory = Backing {
            mapping: Mapping::heap(geometry.len()),
            file: None,
        };
        Self::new(memory, geometry, Pages::Ordinary).expect("memory on the heap has no other user")
    }

    /// Number of chunks.
    pub fn chunks(&self) -> u32 {
        self.0.chunks
    }

    /// Bytes in a chunk.
    pub fn chunk_size(&self) -> u32 {
        self.0.chunk_size()
    }

    /// Bytes kept free in front of every packet.
    pub fn headroom(&self) -> u32 {
        self.0.headroom
    }

    /// Whether packets may take several chunks; see [`UmemBuilder::fragments`].
    pub fn fragments(&self) -> bool {
        self.0.fragments
    }

    /// Whether each packet sent has metadata in front of it; see [`UmemBuilder::tx_metadata`].
    pub fn tx_metadata(&self) -> bool {
        self.0.has_tx_metadata()
    }

    /// Whether chunks may have any size, and lie across pages; see [`UmemBuilder::unaligned`].
    pub fn unaligned(&self) -> bool {
        self.0.chunk_shift == UNALIGNED
    }

    /// Longest packet that can be received, in bytes, link header included. With
    /// [fragments](Self::fragments) that is one of [`MAX_FRAGMENTS`] chunks.
    pub fn max_rx_packet(&self) -> u32 {
        room(self.receiving_sizes())
    }

    /// Chunks that a received packet can have, bytes in each, and those of them that are headroom.
    fn receiving_sizes(&self) -> [u32; 3] {
        let most = if self.fragments() { MAX_FRAGMENTS } else { 1 };
        [most as u32, self.chunk_size(), self.headroom()]
    }

    /// The settings with which packets of `len` bytes could be received, as few as possible together; `None` if there are
    /// none, or they can be now.
    pub(crate) fn settings_for(&self, len: u32) -> Option<String> {
        const WIDEST: [(u32, &str); 3] = [
            (MAX_FRAGMENTS as u32, "`fragments`"),
            (4096, "chunks of 4096 bytes"),
            (0, "less headroom"),
        ];
        let now = self.receiving_sizes();
        let changed = |set: u32| {
            let (mut sizes, mut words) = (now, Vec::new());
            for (at, (widest, name)) in WIDEST.into_iter().enumerate() {
                if set & 1 << at != 0 && sizes[at] != widest {
                    sizes[at] = widest;
                    words.push(name);
                }
            }
            let is_all = words.len() == set.count_ones() as usize;
            (is_all && room(sizes) >= len).then(|| words.join(" and "))
        };
        (0..=3)
            .find_map(|count| {
                let sets = (0..8_u32).filter(|set| set.count_ones() == count);
                let ways: Vec<_> = sets.filter_map(changed).collect();
                (!ways.is_empty()).then(|| ways.join(" or "))
            })
            .filter(|settings| !settings.is_empty())
    }

    /// Whether no chunk lies across two pages, which may not lie together for a card.
    pub(crate) fn chunks_lie_in_pages(&self) -> bool {
        let page = self.0.pages.size();
        page.is_multiple_of(self.chunk_size() as usize) || self.region().1 <= page as u64
    }

    /// The kind of pages that the memory has.
    pub fn pages(&self) -> &Pages {
        &self.0.pages
    }

    /// Counts the chunks by owner. It reads the whole table, in time proportional to the number of
    /// chunks; while other threads use the UMEM the counts are not of one moment.
    pub fn accounting(&self) -> Accounting {
        let registry = self.registry();
        let mut count = self.0.owners.count(|id| {
            let rings = registry.rings.get(usize::from(id.0));
            matches!(rings, Some(Rings::Retired(_)))
        });
        count.free = self.0.pool.len().min(count.held);
        count.held -= count.free;
        count
    }

    /// Address and length of the memory, as the kernel registers it.
    pub(crate) fn region(&self) -> (u64, u64) {
        let len = u64::from(self.0.chunks) * u64::from(self.0.chunk_size);
        (self.0.memory.start().as_ptr() as u64, len)
    }

    pub(crate) fn registry(&self) -> MutexGuard<'_, Registry> {
        // No change to it has a second step, so it is valid after a panic elsewhere.
        let registry = &self.0.registry;
        registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn register_rings(&self) -> Result<RingsId> {
        let mut registry = self.registry();
        if registry.handed_over {
            let message =
                "the UMEM was handed over to another process with its socket: build another";
            return Err(Error::new(ErrorKind::Foreign, message));
        }
        let unused = registry
            .rings
            .iter()
            .position(|is| matches!(is, Rings::Unused));
        let id = unused.unwrap_or(registry.rings.len());
        if id == RingsId::MOST {
            let most = RingsId::MOST;
            return Err(Error::invalid(format!(
                "a UMEM serves at most {most} device queues at once"
            )));
        }
        if unused.is_none() {
            registry.rings.push(Rings::Unused);
        }
        registry.rings[id] = Rings::Open;
        Ok(RingsId(id as u16))
    }

    /// Frees retired chunks (see [`Accounting::retired`]) whose device is gone, or whose queue the
    /// kernel shows to have no AF_XDP socket any more (Linux 6.15). Call it in the network namespace
    /// in which the socket was opened. Opening a socket does so too; and one on the same queue
    /// shows, on any kernel, that the chunks are free.
    ///
    /// ```
    /// # fn main() -> xsk::Result<()> {
    /// let umem = xsk::Umem::builder().build()?;
    /// umem.recover();
    /// assert_eq!(umem.accounting().retired, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn recover(&self) {
        self.recover_from(&Linux);
    }

    pub(crate) fn recover_from(&self, kernel: &dyn Kernel) {
        self.recover_retired(|queue| queue.is_free(kernel));
    }

    /// The number of pairs of rings that are open.
    pub(crate) fn open_rings(&self) -> u32 {
        let rings = &self.registry().rings;
        rings.iter().filter(|is| **is == Rings::Open).count() as u32
    }

    /// Frees the chunks of closed rings whose queue the kernel has let go of since.
    pub(crate) fn recover_retired(&self, let_go: impl Fn(&DeviceQueue) -> bool) {
        // Locked throughout: the rings must not be recovered twice, nor handed over in between.
        let mut registry = self.registry();
        if registry.handed_over {
            return;
        }
        for (id, rings) in (0..).zip(&mut registry.rings) {
            if let Rings::Retired(queue) = rings
                && let_go(queue)
            {
                let put = |index| self.0.pool.put(&[index]);
                self.0.owners.release(RingsId(id), true, put);
                *rings = Rings::Unused;
            }
        }
    }
}

impl Area {
    /// Bytes in a chunk.
    #[inline(always)]
    pub(crate) fn chunk_size(&self) -> u32 {
        self.chunk_size
    }

    /// Bytes kept free in front of every packet.
    pub(crate) fn headroom(&self) -> u32 {
        self.headroom
    }

    /// Offset of an empty frame in its chunk: behind the headroom, and the metadata of a packet sent.
    #[inline(always)]
    pub(crate) fn frame_offset(&self) -> u32 {
        self.frame_offset
    }

    /// Offset of the first packet in a chunk that can be sent.
    #[inline(always)]
    pub(crate) fn least_offset(&self) -> u32 {
        self.least_offset
    }

    /// Whether each packet sent has metadata in front of it.
    #[inline(always)]
    pub(crate) fn has_tx_metadata(&self) -> bool {
        self.tx_metadata
    }

    /// Whether packets may take several chunks.
    #[inline(always)]
    pub(crate) fn fragments(&self) -> bool {
        self.fragments
    }

    /// The chunks that are lent for receiving, through the rings of a burst.
    #[inline(always)]
    pub(crate) fn lent_to_receive(&self, burst: Burst) -> LentChunks<'_> {
        // The order of the loads decides which of them stay in registers: measured.
        LentChunks {
            owners: self.owners.entries(),
            shift: self.chunk_shift,
            mask: self.chunk_mask,
            burst,
        }
    }

    /// Log2 of the bytes in a chunk, or [`UNALIGNED`].
    #[inline(always)]
    pub(crate) fn chunk_shift(&self) -> u32 {
        self.chunk_shift
    }

    /// The chunks of an owner, where [`chunk_shift`](Self::chunk_shift) is `SHIFT`.
    #[inline(always)]
    pub(crate) fn owned_by<const SHIFT: u32>(&self, owner: u32) -> OwnedBy<'_, SHIFT> {
        debug_assert_eq!(SHIFT, self.chunk_shift);
        OwnedBy {
            owners: self.owners.entries(),
            owner,
            size: self.chunk_size,
        }
    }

    /// The first address of the chunk that an address lies in.
    #[inline(always)]
    pub(crate) fn chunk_start(&self, addr: u64) -> u64 {
        if self.chunk_shift == UNALIGNED {
            self.index(addr) * u64::from(self.chunk_size)
        } else {
            addr & !self.chunk_mask
        }
    }

    /// The index of the chunk that an address in a ring lies in.
    #[inline(always)]
    fn index(&self, addr: u64) -> u64 {
        if self.chunk_shift == UNALIGNED {
            self.decode(addr) / u64::from(self.chunk_size)
        } else {
            addr >> self.chunk_shift
        }
    }

    /// The address that one in a ring names.
    #[inline(always)]
    fn decode(&self, addr: u64) -> u64 {
        match self.chunk_shift {
            UNALIGNED => owner::decode(addr),
            _ => addr,
        }
    }

    /// The address of a packet that a burst may read, whatever the chunks' alignment; `None` when
    /// [`OwnedBy::mark_read`] would be false.
    pub(crate) fn unread_at(&self, burst: Burst, addr: u64, size: Size) -> Option<u64> {
        let addr = self.decode(addr);
        self.any_chunks().unread(burst, addr, size).map(|_| addr)
    }

    /// The same, and notes that the burst has read it.
    pub(crate) fn mark_read_at(&self, burst: Burst, addr: u64, size: Size) -> Option<u64> {
        let addr = self.decode(addr);
        let is_read = self.any_chunks().mark_read(burst, addr, size);
        is_read.then_some(addr)
    }

    /// Whether the burst has read a packet at an address in its chunk, which has no other owner since.
    pub(crate) fn is_read_at(&self, burst: Burst, addr: u64) -> bool {
        self.any_chunks().is_read(burst, addr)
    }

    /// Our chunks, of any alignment.
    #[inline(always)]
    pub(super) fn any_chunks(&self) -> OwnedBy<'_, UNALIGNED> {
        OwnedBy {
            owners: self.owners.entries(),
            owner: owner::OURS,
            size: self.chunk_size,
        }
    }

    /// Starts the numbers of the bursts of `rings` again.
    #[cold]
    #[inline(never)]
    pub(crate) fn forget_bursts(&self, rings: RingsId) {
        self.owners.forget_bursts(rings);
    }
}

impl fmt::Debug for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Umem")
            .field("chunks", &self.chunks)
            .field("chunk_size", &self.chunk_size())
            .field("headroom", &self.headroom)
            .field("pages", &self.pages)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Umem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.area().fmt(f)
    }
}

/// Longest packet that fits into chunks of these [sizes](Umem::receiving_sizes).
fn room([most, chunk_size, headroom]: [u32; 3]) -> u32 {
    most * (chunk_size - XDP_PACKET_HEADROOM - headroom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_for_long_packets_are_those_that_help() {
        for (len, fragments, chunk_size, headroom, expected) in [
            (1792, false, 2048, 0, None),
            (
                1793,
                false,
                2048,
                0,
                Some("`fragments` or chunks of 4096 bytes"),
            ),
            (
                1793,
                false,
                2048,
                1,
                Some("`fragments` or chunks of 4096 bytes"),
            ),
            (
                1792,
                false,
                2048,
                1,
                Some("`fragments` or chunks of 4096 bytes or less headroom"),
            ),
            (3841, false, 2048, 0, Some("`fragments`")),
            (3841, false, 4096, 0, Some("`fragments`")),
            (3840, false, 4096, 1, Some("`fragments` or less headroom")),
            (
                65_554,
                false,
                2048,
                0,
                Some("`fragments` and chunks of 4096 bytes"),
            ),
            (65_554, true, 2048, 0, Some("chunks of 4096 bytes")),
            (65_554, true, 4096, 256, Some("less headroom")),
            (
                65_554,
                false,
                2048,
                256,
                Some("`fragments` and chunks of 4096 bytes and less headroom"),
            ),
            (65_554, true, 4096, 0, None),
            (u32::MAX, false, 2048, 0, None),
        ] {
            let umem = Umem::of_geometry_on_heap(Geometry {
                chunks: 8,
                chunk_size,
                headroom,
                fragments,
                tx_metadata: false,
                unaligned: false,
            });
            let settings = umem.settings_for(len);
            assert_eq!(settings.as_deref(), expected, "{len}: {umem:?}");
        }
    }
}
