//! Chunks that user space owns, and the bytes of received packets.
#![allow(unsafe_code)] // Chunks are slices of the mapping.

use super::owner::OURS;
use super::{Extent, RingsId, Umem};
use std::mem::ManuallyDrop;

/// The right to read and write the bytes of one chunk. It exists exactly while the owner of the
/// chunk is "ours", so at most once for each chunk. Dropping it frees the chunk.
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

    /// Lends the chunk to the kernel for receiving through `rings`; returns its address for FILL.
    #[inline]
    pub(crate) fn lend_to_receive(self, rings: RingsId) -> u64 {
        self.lend(rings.receiving())
    }

    /// Lends the chunk to the kernel for sending through `rings`; returns its address for TX.
    #[inline]
    pub(crate) fn lend_to_send(self, rings: RingsId) -> u64 {
        self.lend(rings.sending())
    }

    #[inline]
    fn lend(self, owner: u16) -> u64 {
        let chunk = ManuallyDrop::new(self);
        chunk.umem.owners.set(chunk.index, owner);
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
        // SAFETY: needed because the memory is mapped. The range is inside the chunk; `self` is the
        // only right to it, borrowed for as long as the slice; the kernel has not been lent the
        // chunk, so nobody writes.
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

/// Free chunks of one pair of rings, which need no atomic operation. The UMEM's free list has the
/// others.
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

    /// Keeps a free chunk, here or in the free list.
    #[inline(always)]
    pub(crate) fn put(&mut self, chunk: Chunk<'u>) {
        if let Some(slot) = self.indices.get_mut(self.len) {
            *slot = ManuallyDrop::new(chunk).index;
            self.len += 1;
        }
    }

    /// A free chunk, from here or from the free list.
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
        // The free list has room for every chunk, so this cannot fail.
        let _fits = self.umem.free.push(self.index);
    }
}

impl Umem {
    #[cold]
    #[inline(never)]
    pub(crate) fn take_free(&self) -> Option<Chunk<'_>> {
        self.free.pop().map(|index| Chunk { umem: self, index })
    }

    /// Takes back a chunk that was lent through `rings` for receiving; `addr` is anywhere inside it.
    #[inline]
    pub(crate) fn received(&self, addr: u64, rings: RingsId) -> Option<Chunk<'_>> {
        self.returned(addr, rings.receiving())
    }

    /// Takes back a chunk that was lent through `rings` for sending. The address can differ from the
    /// descriptor's: copy mode clears its lowest bit.
    #[inline(always)]
    pub(crate) fn completed(&self, addr: u64, rings: RingsId) -> Option<Chunk<'_>> {
        self.returned(addr, rings.sending())
    }

    #[inline(always)]
    fn returned(&self, addr: u64, lent: u16) -> Option<Chunk<'_>> {
        let index = addr >> self.chunk_shift;
        self.owners.change(index, lent, OURS).then(|| Chunk {
            umem: self,
            index: index as u32,
        })
    }

    /// The bytes of a packet that was received into a chunk lent through any rings.
    ///
    /// # Safety
    ///
    /// `chunk_addr` is the address of a chunk of this UMEM and `at` lies inside a chunk. The chunk
    /// was lent for receiving, and the kernel returned it in a descriptor. During the lifetime of
    /// the slice it is not lent again, not made a [`Chunk`], and not borrowed again.
    #[inline]
    pub(crate) unsafe fn received_bytes(&self, chunk_addr: u64, at: Extent) -> &[u8] {
        // SAFETY: needed to reach mapped memory; the caller promises that it is inside.
        let start = unsafe { self.start(chunk_addr, at) };
        // SAFETY: needed because the memory is mapped; the caller promises the rest.
        unsafe { std::slice::from_raw_parts(start, at.len as usize) }
    }

    /// Same as [`received_bytes`](Self::received_bytes), for writing.
    ///
    /// # Safety
    ///
    /// Same as [`received_bytes`](Self::received_bytes).
    #[inline]
    #[allow(clippy::mut_from_ref)] // The caller promises exclusive access.
    pub(crate) unsafe fn received_bytes_mut(&self, chunk_addr: u64, at: Extent) -> &mut [u8] {
        // SAFETY: as in `received_bytes`.
        let start = unsafe { self.start(chunk_addr, at) };
        // SAFETY: as in `received_bytes`.
        unsafe { std::slice::from_raw_parts_mut(start, at.len as usize) }
    }

    /// The first byte of an extent.
    ///
    /// # Safety
    ///
    /// `chunk_addr` is the address of a chunk of this UMEM, and `at` lies inside a chunk.
    #[inline]
    unsafe fn start(&self, chunk_addr: u64, at: Extent) -> *mut u8 {
        let offset = chunk_addr as usize + at.offset as usize;
        // SAFETY: needed to reach mapped memory; the caller promises that it is inside.
        unsafe { self.memory.start().as_ptr().add(offset) }
    }
}

#[cfg(test)]
mod tests {
    use crate::umem::{AfterClose, Umem};

    #[test]
    fn a_chunk_comes_back_through_the_rings_that_it_was_lent_through() {
        let umem = Umem::on_heap(4, 2048);
        let first = umem.register_rings().expect("a pair");
        let second = umem.register_rings().expect("a pair");
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
        let rings = umem.register_rings().expect("a pair");
        for addr in [4 * 2048, u64::MAX, 1 << 48, u64::from(u32::MAX) * 2048] {
            assert!(umem.received(addr, rings).is_none());
            assert!(umem.completed(addr, rings).is_none());
            assert!(umem.lent_to_receive(rings).find(addr, 0).is_none());
        }
    }

    #[test]
    fn closing_rings_frees_or_retires_their_chunks() {
        for (kernel, free, retired) in [
            (AfterClose::LetGo, 4, 0),
            (AfterClose::MaySend, 3, 1),
            (AfterClose::MayTouchAll, 2, 2),
        ] {
            let umem = Umem::on_heap(4, 2048);
            let rings = umem.register_rings().expect("a pair");
            umem.take_free().expect("a chunk").lend_to_receive(rings);
            umem.take_free().expect("a chunk").lend_to_send(rings);
            assert_eq!(umem.release_rings(rings, kernel), retired);
            let count = umem.accounting();
            assert_eq!((count.free, count.retired), (free, retired));
            assert_eq!(umem.register_rings().expect("the same again"), rings);
        }
    }
}
