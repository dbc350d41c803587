//! The UMEM: memory shared with the kernel, cut into chunks, and the record of who owns each.
//!
//! The kernel checks nothing of ownership: it sends and fills whatever address it is given, and
//! believes that the address was ours to give. So every chunk has an entry in a table here that
//! says which side has it, and a [`Chunk`] exists in user space exactly while the entry says that
//! it is ours. A descriptor or completion for a chunk that the table says was not lent to that
//! queue is refused and counted, so that two owners in user space of the same bytes cannot come
//! about, whatever the other side writes. What no table can tell: a driver that publishes one
//! received chunk twice, the second time after it was lent again, looks like one that received
//! into it again.
#![allow(unsafe_code)] // Chunks are slices of the mapping.
use crate::error::{Error, ErrorKind, Result, errno_text};
use crate::frame::Extent;
use crate::sys::Mapping;
use crossbeam_queue::ArrayQueue;
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use std::fmt;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

/// What the kernel keeps in front of every received packet (`XDP_PACKET_HEADROOM`), in bytes.
pub const XDP_PACKET_HEADROOM: u32 = 256;

/// Room that the kernel wants behind the headroom for its own structures and the smallest frame:
/// `sizeof(struct skb_shared_info)` and a cache line pair, in bytes (`net/xdp/xdp_umem.c`).
const KERNEL_TAILROOM: u32 = 320 + 128;

/// Most chunks in a UMEM; 64 GiB at 4096 bytes each.
const MAX_CHUNKS: u32 = 1 << 24;

const HUGE_PAGE: usize = 2 << 20;

/// Settings of a [`Umem`], each with its default.
#[derive(Debug, Clone)]
#[must_use = "call `build` to get the UMEM"]
pub struct UmemBuilder {
    chunks: u32,
    chunk_size: u32,
    headroom: u32,
    huge_pages: bool,
}

impl UmemBuilder {
    /// Number of chunks. Default 4096. At least as many as all sockets' FILL and TX rings can
    /// hold at once, plus what the program keeps for itself, plus those that each queue keeps at
    /// hand: a thirty-second part of all, at most 128.
    pub fn chunks(mut self, chunks: u32) -> Self {
        self.chunks = chunks;
        self
    }

    /// Bytes in a chunk: 2048 (the default) or 4096. A received packet has the chunk less
    /// [`XDP_PACKET_HEADROOM`] and the headroom.
    pub fn chunk_size(mut self, bytes: u32) -> Self {
        self.chunk_size = bytes;
        self
    }

    /// Bytes kept free in front of every packet, for headers that the program will add; on
    /// receive they come on top of the kernel's [`XDP_PACKET_HEADROOM`]. Default 0.
    pub fn headroom(mut self, bytes: u32) -> Self {
        self.headroom = bytes;
        self
    }

    /// Asks for pages of 2 MiB. When the system has none free the UMEM gets ordinary pages, and
    /// [`Umem::pages`] says so and why. Default off.
    pub fn huge_pages(mut self, on: bool) -> Self {
        self.huge_pages = on;
        self
    }

    /// Checks the sizes, then makes and maps the memory.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for sizes that the kernel would refuse, and
    /// [`ErrorKind::OutOfMemory`] when there is no such memory.
    pub fn build(self) -> Result<Umem> {
        self.check()?;
        let len = self.chunks as usize * self.chunk_size as usize;
        let (memory, pages) = allocate(len, self.huge_pages)?;
        Ok(Umem::new(memory, &self, pages))
    }

    fn check(&self) -> Result<()> {
        if !matches!(self.chunk_size, 2048 | 4096) {
            return Err(Error::invalid(format!(
                "chunk size {} is not possible: the kernel takes 2048 or 4096 bytes in aligned mode",
                self.chunk_size
            )));
        }
        if self.chunks == 0 || self.chunks > MAX_CHUNKS {
            return Err(Error::invalid(format!(
                "a UMEM of {} chunks is not possible: choose 1 to {MAX_CHUNKS}",
                self.chunks
            )));
        }
        let most = self.chunk_size - XDP_PACKET_HEADROOM - KERNEL_TAILROOM;
        if self.headroom > most {
            return Err(Error::invalid(format!(
                "headroom {} leaves no room for packets: at most {most} bytes with chunks of {}",
                self.headroom, self.chunk_size
            )));
        }
        Ok(())
    }
}

/// The pages that a UMEM got.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pages {
    /// The system's ordinary pages, as asked for.
    Ordinary,
    /// Pages of 2 MiB, as asked for.
    Huge,
    /// Ordinary pages although huge ones were asked for, and why.
    FellBack(String),
}

fn allocate(len: usize, huge: bool) -> Result<(Mapping, Pages)> {
    if !huge {
        return Ok((
            memfd(len, MemfdFlags::empty()).map_err(out_of_memory(len))?,
            Pages::Ordinary,
        ));
    }
    match memfd(
        len.next_multiple_of(HUGE_PAGE),
        MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB,
    ) {
        Ok(memory) => Ok((memory, Pages::Huge)),
        Err(errno) => {
            let memory = memfd(len, MemfdFlags::empty()).map_err(out_of_memory(len))?;
            let needed = len.div_ceil(HUGE_PAGE);
            let why = format!(
                "no huge pages ({}): {needed} pages of 2 MiB are needed; reserve them with `sysctl vm.nr_hugepages={needed}`",
                errno_text(errno)
            );
            Ok((memory, Pages::FellBack(why)))
        }
    }
}

fn out_of_memory(len: usize) -> impl FnOnce(Errno) -> Error {
    move |errno| {
        let message = format!("no memory for a UMEM of {len} bytes: ask for fewer chunks");
        Error::os(ErrorKind::OutOfMemory, errno, message)
    }
}

fn memfd(len: usize, flags: MemfdFlags) -> std::result::Result<Mapping, Errno> {
    let file = rustix::fs::memfd_create("xsk-umem", flags | MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&file, len as u64)?;
    Mapping::new(file.as_fd(), 0, len)
}

/// Memory for packets, shared with the kernel by every socket that is opened on it.
///
/// A `Umem` can be used from several threads; each socket keeps a few free chunks to itself and
/// balances them over a lock-free queue here.
pub struct Umem {
    memory: Mapping,
    chunks: u32,
    chunk_shift: u32,
    /// The bits of an address that are inside a chunk.
    chunk_mask: u64,
    headroom: u32,
    pages: Pages,
    /// Who has each chunk: an [`Owner`] as its number.
    owners: Box<[AtomicU16]>,
    /// Indices of chunks that nobody has.
    free: ArrayQueue<u32>,
    registry: Mutex<Registry>,
}

/// What is written down only when sockets open and close.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// One entry for each [`QueueId`] ever given; true while in use.
    queues: Vec<bool>,
    /// Bound sockets; any that lives can lend its UMEM registration to the next.
    pub(crate) sockets: Vec<Weak<OwnedFd>>,
}

/// One FILL and COMPLETION pair of a UMEM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueId(u16);

impl QueueId {
    const MOST: usize = 4096;

    /// A chunk in FILL, in the kernel's receive side, or in an RX descriptor nobody has read.
    #[inline]
    fn receiving(self) -> u16 {
        FIRST_QUEUE + 2 * self.0
    }

    /// A chunk in TX, in the kernel's send side, or in COMPLETION.
    #[inline]
    fn sending(self) -> u16 {
        FIRST_QUEUE + 2 * self.0 + 1
    }
}

/// User space has the chunk: in the free queue, a socket's cache, a frame or a packet.
const OURS: u16 = 0;
/// The kernel may still touch the chunk after its socket has gone; it is not used again.
const RETIRED: u16 = 1;
const FIRST_QUEUE: u16 = 2;

/// Where all chunks of a UMEM are, at one moment. The sum is always [`Umem::chunks`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Accounting {
    /// In the common pool.
    pub free: u32,
    /// In user space but not in the common pool: sockets' caches, frames, packets.
    pub held: u32,
    /// In FILL, with the kernel for receiving, or received and not read.
    pub receiving: u32,
    /// In TX, with the kernel for sending, or completed and not reclaimed.
    pub sending: u32,
    /// Lost to a socket that closed before the kernel gave them back.
    pub retired: u32,
}

impl Umem {
    /// A builder with the defaults: 4096 chunks of 2048 bytes, no headroom, ordinary pages. That
    /// is 8 MiB, the usual memory lock limit of an unprivileged process.
    pub fn builder() -> UmemBuilder {
        UmemBuilder {
            chunks: 4096,
            chunk_size: 2048,
            headroom: 0,
            huge_pages: false,
        }
    }

    fn new(memory: Mapping, config: &UmemBuilder, pages: Pages) -> Self {
        let free = ArrayQueue::new(config.chunks as usize);
        for index in 0..config.chunks {
            let _fits = free.push(index);
        }
        Self {
            memory,
            chunks: config.chunks,
            chunk_shift: config.chunk_size.trailing_zeros(),
            chunk_mask: u64::from(config.chunk_size) - 1,
            headroom: config.headroom,
            pages,
            owners: (0..config.chunks).map(|_| AtomicU16::new(OURS)).collect(),
            free,
            registry: Mutex::default(),
        }
    }

    /// A UMEM on the heap, for what needs no kernel.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn on_heap(chunks: u32, chunk_size: u32) -> Self {
        let config = Self::builder().chunks(chunks).chunk_size(chunk_size);
        let memory = Mapping::heap(chunks as usize * chunk_size as usize);
        Self::new(memory, &config, Pages::Ordinary)
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

    /// Longest packet that fits into one chunk on receive, in bytes.
    pub fn max_rx_packet(&self) -> u32 {
        self.chunk_size() - XDP_PACKET_HEADROOM - self.headroom
    }

    /// The pages that the memory got.
    pub fn pages(&self) -> &Pages {
        &self.pages
    }

    /// Takes a free frame from the common pool, empty and with the UMEM's headroom in front; none
    /// when all are in use. A socket's [`alloc`](crate::Socket::alloc) is cheaper.
    pub fn alloc(&self) -> Option<crate::Frame<'_>> {
        self.take_free().map(crate::Frame::empty)
    }

    /// Counts where every chunk is. Walks the whole table; while other threads work the parts
    /// are of slightly different moments.
    pub fn accounting(&self) -> Accounting {
        let mut count = Accounting::default();
        for owner in &self.owners {
            match owner.load(Relaxed) {
                OURS => count.held += 1,
                RETIRED => count.retired += 1,
                queue if (queue - FIRST_QUEUE).is_multiple_of(2) => count.receiving += 1,
                _ => count.sending += 1,
            }
        }
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
        // Nothing in there can be half done, so a panic elsewhere does not spoil it.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn register_queue(&self) -> Result<QueueId> {
        let mut registry = self.registry();
        let unused = registry.queues.iter().position(|used| !used);
        let id = unused.unwrap_or(registry.queues.len());
        if id == QueueId::MOST {
            let most = QueueId::MOST;
            return Err(Error::invalid(format!(
                "a UMEM serves at most {most} queues at once"
            )));
        }
        if unused.is_none() {
            registry.queues.push(false);
        }
        registry.queues[id] = true;
        Ok(QueueId(id as u16))
    }

    /// Ends a queue: what was lent to it comes back to the pool, unless the kernel may still
    /// touch it. Returns how many chunks were retired.
    pub(crate) fn release_queue(&self, id: QueueId, kernel: AfterClose) -> u32 {
        let mut retired = 0;
        for (index, owner) in self.owners.iter().enumerate() {
            let state = owner.load(Relaxed);
            let receiving = state == id.receiving();
            if !receiving && state != id.sending() {
                continue;
            }
            if kernel == AfterClose::LetGo || (receiving && kernel == AfterClose::MaySend) {
                owner.store(OURS, Relaxed);
                let _fits = self.free.push(index as u32);
            } else {
                owner.store(RETIRED, Relaxed);
                retired += 1;
            }
        }
        self.registry().queues[usize::from(id.0)] = false;
        retired
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn take_free(&self) -> Option<Chunk<'_>> {
        self.free.pop().map(|index| Chunk { umem: self, index })
    }

    /// Takes a chunk back that was lent to `queue` for receiving; `addr` is anywhere inside it.
    #[inline]
    pub(crate) fn received(&self, addr: u64, queue: QueueId) -> Option<Chunk<'_>> {
        self.returned(addr, queue.receiving())
    }

    /// Takes a chunk back that was lent to `queue` for sending. The address need not be the one
    /// that was sent: copy mode clears its lowest bit.
    #[inline(always)]
    pub(crate) fn completed(&self, addr: u64, queue: QueueId) -> Option<Chunk<'_>> {
        self.returned(addr, queue.sending())
    }

    #[inline(always)]
    fn returned(&self, addr: u64, lent: u16) -> Option<Chunk<'_>> {
        let index = addr >> self.chunk_shift;
        let owner = self.owners.get(usize::try_from(index).ok()?)?;
        // Relaxed, and not one atomic step: `lent` names a queue, a queue is used by one thread
        // at a time, and only that thread changes entries that name it.
        if owner.load(Relaxed) != lent {
            return None;
        }
        owner.store(OURS, Relaxed);
        Some(Chunk {
            umem: self,
            index: index as u32,
        })
    }

    /// Moves a chunk that is lent to `queue` for receiving over to sending on the same queue.
    #[inline(always)]
    pub(crate) fn forward(&self, addr: u64, queue: QueueId) {
        self.relend(addr, queue.receiving(), queue.sending());
    }

    /// Moves a chunk that `queue` has sent over to receiving; false when it was not being sent.
    #[inline(always)]
    pub(crate) fn completed_to_receive(&self, addr: u64, queue: QueueId) -> bool {
        self.relend(addr, queue.sending(), queue.receiving())
    }

    #[inline(always)]
    fn relend(&self, addr: u64, from: u16, to: u16) -> bool {
        let owner = self.owners.get((addr >> self.chunk_shift) as usize);
        match owner {
            Some(owner) if owner.load(Relaxed) == from => {
                owner.store(to, Relaxed);
                true
            }
            _ => false,
        }
    }

    /// The bytes of a packet that was received into a chunk lent to some queue.
    ///
    /// # Safety
    ///
    /// `chunk` is the address of a chunk of this UMEM and `at` lies inside a chunk. The chunk
    /// was lent for receiving and the kernel has given it back in a descriptor; while the slice
    /// lives it is not lent again, nor made a [`Chunk`], nor borrowed another time.
    #[inline]
    pub(crate) unsafe fn received_bytes(&self, chunk: u64, at: Extent) -> &[u8] {
        // SAFETY: needed to reach mapped memory; the caller promises that it is inside.
        let start = unsafe { self.start(chunk, at) };
        // SAFETY: needed because the memory is mapped; all else is the caller's promise.
        unsafe { std::slice::from_raw_parts(start, at.len as usize) }
    }

    /// As [`received_bytes`](Self::received_bytes), for writing.
    ///
    /// # Safety
    ///
    /// As there.
    #[inline]
    #[allow(clippy::mut_from_ref)] // The promise is what makes it exclusive.
    pub(crate) unsafe fn received_bytes_mut(&self, chunk: u64, at: Extent) -> &mut [u8] {
        // SAFETY: as in `received_bytes`.
        let start = unsafe { self.start(chunk, at) };
        // SAFETY: as in `received_bytes`.
        unsafe { std::slice::from_raw_parts_mut(start, at.len as usize) }
    }

    /// Where bytes of a chunk start.
    ///
    /// # Safety
    ///
    /// `chunk` is the address of a chunk of this UMEM, and `at` lies inside a chunk.
    #[inline]
    unsafe fn start(&self, chunk: u64, at: Extent) -> *mut u8 {
        let offset = chunk as usize + at.offset as usize;
        // SAFETY: needed to reach mapped memory; the caller promises that it is inside.
        unsafe { self.memory.start().as_ptr().add(offset) }
    }

    /// A view of what is lent to `queue` for receiving.
    #[inline(always)]
    pub(crate) fn receiving(&self, queue: QueueId) -> Receiving<'_> {
        Receiving {
            owners: &self.owners,
            shift: self.chunk_shift,
            mask: self.chunk_mask,
            lent: queue.receiving(),
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

/// What [`Umem::receiving`] shows: a copy of all that is needed to check a descriptor, so that it
/// need not be loaded again for each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Receiving<'u> {
    owners: &'u [AtomicU16],
    shift: u32,
    mask: u64,
    lent: u16,
}

impl Receiving<'_> {
    /// The chunk that a packet was received into, and the packet's place in there; `None` when
    /// the chunk is not lent to the queue for receiving or the packet does not lie inside it.
    #[inline(always)]
    pub(crate) fn find(self, addr: u64, len: u32) -> Option<(u64, Extent)> {
        let offset = addr & self.mask;
        let inside = offset + u64::from(len) <= self.mask + 1;
        let extent = Extent {
            offset: offset as u32,
            len,
        };
        (inside && self.holds(addr)).then_some((addr & !self.mask, extent))
    }

    /// Whether the chunk that an address lies in is lent to the queue for receiving.
    #[inline(always)]
    pub(crate) fn holds(self, addr: u64) -> bool {
        let owner = self.owners.get((addr >> (self.shift & 63)) as usize);
        owner.is_some_and(|owner| owner.load(Relaxed) == self.lent)
    }
}

/// What the kernel may still do with a queue's chunks after its socket was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterClose {
    /// Nothing.
    LetGo,
    /// Read those that were being sent.
    MaySend,
    /// Read and write all of them (zero-copy, until the driver has drained).
    MayTouchAll,
}

/// The right to read and write the bytes of one chunk. It exists while the table says that the
/// chunk is ours, so there is never more than one for a chunk. Dropped, the chunk is free.
#[derive(Debug)]
pub(crate) struct Chunk<'u> {
    umem: &'u Umem,
    index: u32,
}

impl<'u> Chunk<'u> {
    #[inline]
    pub(crate) fn umem(&self) -> &'u Umem {
        self.umem
    }

    /// Address of the first byte, in the UMEM.
    #[inline]
    pub(crate) fn addr(&self) -> u64 {
        u64::from(self.index) << self.umem.chunk_shift
    }

    /// Lends the chunk to the kernel for receiving on `queue`, and tells its address for FILL.
    #[inline]
    pub(crate) fn lend_to_receive(self, queue: QueueId) -> u64 {
        self.lend(queue.receiving())
    }

    /// Lends the chunk to the kernel for sending on `queue`, and tells its address for TX.
    #[inline]
    pub(crate) fn lend_to_send(self, queue: QueueId) -> u64 {
        self.lend(queue.sending())
    }

    #[inline]
    fn lend(self, state: u16) -> u64 {
        let chunk = ManuallyDrop::new(self);
        if let Some(owner) = chunk.umem.owners.get(chunk.index as usize) {
            owner.store(state, Relaxed);
        }
        chunk.addr()
    }

    #[inline]
    pub(crate) fn bytes(&self, at: Extent) -> &[u8] {
        assert!(
            at.fits(self.umem.chunk_size()),
            "a packet lies in its chunk"
        );
        // SAFETY: needed to reach mapped memory. The index was below the number of chunks when
        // the chunk was made, and the extent was just checked.
        let start = unsafe { self.umem.start(self.addr(), at) };
        // SAFETY: needed because the memory is mapped. The range is inside the chunk; `self` is the only right to it, borrowed for as long as the slice; the kernel
        // has not been lent the chunk, so nobody writes.
        unsafe { std::slice::from_raw_parts(start, at.len as usize) }
    }

    #[inline]
    pub(crate) fn bytes_mut(&mut self, at: Extent) -> &mut [u8] {
        assert!(
            at.fits(self.umem.chunk_size()),
            "a packet lies in its chunk"
        );
        // SAFETY: as in `bytes`.
        let start = unsafe { self.umem.start(self.addr(), at) };
        // SAFETY: as in `bytes`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(start, at.len as usize) }
    }
}

/// Free chunks that one queue keeps to itself, at hand without an atomic step. What does not fit
/// is for every queue of the UMEM.
#[derive(Debug)]
pub(crate) struct Cache<'u> {
    umem: &'u Umem,
    /// Indices of chunks that are ours, up to `len`.
    indices: Box<[u32]>,
    len: usize,
}

impl<'u> Cache<'u> {
    /// An empty cache for at most `most` chunks.
    pub(crate) fn new(umem: &'u Umem, most: usize) -> Self {
        Self {
            umem,
            indices: vec![0; most].into(),
            len: 0,
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Keeps a free chunk, here or in the common pool.
    #[inline(always)]
    pub(crate) fn put(&mut self, chunk: Chunk<'u>) {
        if let Some(slot) = self.indices.get_mut(self.len) {
            *slot = ManuallyDrop::new(chunk).index;
            self.len += 1;
        }
    }

    /// A free chunk, from here or from the common pool.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Option<Chunk<'u>> {
        let Some(last) = self.len.checked_sub(1) else {
            return self.umem.take_free();
        };
        self.len = last;
        let index = *self.indices.get(last)?;
        let umem = self.umem;
        Some(Chunk { umem, index })
    }

    /// Addresses of the chunks here.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn addresses(&self) -> impl Iterator<Item = u64> {
        let shift = self.umem.chunk_shift;
        self.indices[..self.len]
            .iter()
            .map(move |&index| u64::from(index) << shift)
    }
}

impl Drop for Cache<'_> {
    fn drop(&mut self) {
        for _ in 0..self.len {
            drop(self.take());
        }
    }
}

impl Drop for Chunk<'_> {
    #[inline]
    fn drop(&mut self) {
        // The queue has room for every chunk, so this cannot fail.
        let _fits = self.umem.free.push(self.index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_checked_before_the_kernel_is_asked() {
        let bad = [
            Umem::builder().chunk_size(1024),
            Umem::builder().chunk_size(3000),
            Umem::builder().chunk_size(8192),
            Umem::builder().chunks(0),
            Umem::builder().chunks(u32::MAX),
            Umem::builder().headroom(1345),
            Umem::builder().chunk_size(4096).headroom(3393),
        ];
        for config in bad {
            assert_eq!(
                config.check().map_err(|e| e.kind()),
                Err(ErrorKind::InvalidConfig)
            );
        }
        assert!(Umem::builder().headroom(1344).check().is_ok());
        assert!(
            Umem::builder()
                .chunk_size(4096)
                .headroom(3392)
                .check()
                .is_ok()
        );
    }

    #[test]
    fn a_chunk_lent_to_one_queue_comes_back_from_that_queue_only() {
        let umem = Umem::on_heap(4, 2048);
        let first = umem.register_queue().expect("a queue");
        let second = umem.register_queue().expect("a queue");
        let addr = umem.take_free().expect("a chunk").lend_to_receive(first);
        assert!(umem.received(addr, second).is_none());
        assert!(umem.completed(addr, first).is_none());
        let chunk = umem.received(addr + 300, first).expect("the chunk");
        assert!(umem.received(addr, first).is_none(), "handed out twice");
        assert_eq!(chunk.addr(), addr);
        drop(chunk);
        assert_eq!(umem.accounting().free, 4);
    }

    #[test]
    fn an_address_outside_the_umem_is_refused() {
        let umem = Umem::on_heap(4, 2048);
        let queue = umem.register_queue().expect("a queue");
        for addr in [4 * 2048, u64::MAX, 1 << 48, u64::from(u32::MAX) * 2048] {
            assert!(umem.received(addr, queue).is_none());
            assert!(umem.completed(addr, queue).is_none());
            assert!(umem.receiving(queue).find(addr, 0).is_none());
        }
    }

    #[test]
    fn closing_a_queue_returns_or_retires_what_it_had() {
        for (kernel, free, retired) in [
            (AfterClose::LetGo, 4, 0),
            (AfterClose::MaySend, 3, 1),
            (AfterClose::MayTouchAll, 2, 2),
        ] {
            let umem = Umem::on_heap(4, 2048);
            let queue = umem.register_queue().expect("a queue");
            umem.take_free().expect("a chunk").lend_to_receive(queue);
            umem.take_free().expect("a chunk").lend_to_send(queue);
            assert_eq!(umem.release_queue(queue, kernel), retired);
            let count = umem.accounting();
            assert_eq!((count.free, count.retired), (free, retired));
            assert_eq!(umem.register_queue().expect("the same again"), queue);
        }
    }
}
