//! Frames that user space owns: move-only, one for each chunk.

use crate::error::Error;
use crate::umem::{Chunk, Extent, Umem};
use std::fmt;
use std::ops::{Deref, DerefMut};

/// A packet's chunk, owned: taken from the pool to be written and sent, or kept from a receive
/// batch. It can be neither copied nor cloned; dropped, its chunk returns to the pool.
///
/// It dereferences to the packet's bytes.
pub struct Frame<'u> {
    chunk: Chunk<'u>,
    extent: Extent,
}

impl<'u> Frame<'u> {
    /// A frame with no bytes yet, behind the UMEM's headroom.
    #[inline]
    pub(crate) fn empty(chunk: Chunk<'u>) -> Self {
        let offset = chunk.umem().headroom();
        Self::new(chunk, Extent { offset, len: 0 })
    }

    /// A frame with the packet at `extent`, which lies inside the chunk.
    #[inline]
    pub(crate) fn new(chunk: Chunk<'u>, extent: Extent) -> Self {
        Self { chunk, extent }
    }

    /// Moves the packet's first byte by `delta` bytes: below zero it grows towards the start of
    /// the chunk, above zero it loses bytes (as `bpf_xdp_adjust_head`). New bytes hold whatever
    /// the chunk held.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`](crate::ErrorKind::InvalidConfig) when there is no such room
    /// or no such byte; the packet is unchanged.
    #[inline]
    pub fn adjust_head(&mut self, delta: i32) -> Result<(), Error> {
        self.extent.adjust_head(delta)
    }

    /// Moves the packet's end by `delta` bytes: above zero it grows towards the end of the
    /// chunk (as `bpf_xdp_adjust_tail`). New bytes hold whatever the chunk held.
    ///
    /// # Errors
    ///
    /// As [`adjust_head`](Self::adjust_head).
    #[inline]
    pub fn adjust_tail(&mut self, delta: i32) -> Result<(), Error> {
        self.extent
            .adjust_tail(delta, self.chunk.umem().chunk_size())
    }

    /// Makes the packet `bytes`, replacing what was there.
    ///
    /// # Errors
    ///
    /// As [`resize`](Self::resize).
    #[inline]
    pub fn fill_with(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.resize(bytes.len())?;
        self.copy_from_slice(bytes);
        Ok(())
    }

    /// Makes the packet `len` bytes long. New bytes hold whatever the chunk held, which is what
    /// was written there before the frame was last free.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`](crate::ErrorKind::InvalidConfig) when that is more than
    /// [`capacity`](Self::capacity); the packet is unchanged.
    #[inline]
    pub fn resize(&mut self, len: usize) -> Result<(), Error> {
        if len > self.capacity() as usize {
            return Err(Error::invalid(format!(
                "a packet of {len} bytes does not fit: the frame has room for {}",
                self.capacity()
            )));
        }
        self.extent.len = len as u32;
        Ok(())
    }

    /// Length of the packet, in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.extent.len as usize
    }

    /// Whether the packet has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.extent.len == 0
    }

    /// Room in front of the packet, in bytes.
    #[inline]
    pub fn headroom(&self) -> u32 {
        self.extent.offset
    }

    /// Room behind the packet, in bytes.
    #[inline]
    pub fn tailroom(&self) -> u32 {
        self.capacity() - self.extent.len
    }

    /// Longest packet that fits without moving its head, in bytes.
    #[inline]
    pub fn capacity(&self) -> u32 {
        self.chunk.umem().chunk_size() - self.extent.offset
    }

    /// The UMEM that the frame is of.
    #[inline]
    pub fn umem(&self) -> &'u Umem {
        self.chunk.umem()
    }

    #[inline]
    pub(crate) fn extent(&self) -> Extent {
        self.extent
    }

    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn chunk(&self) -> &Chunk<'u> {
        &self.chunk
    }

    #[inline]
    pub(crate) fn into_chunk(self) -> Chunk<'u> {
        self.chunk
    }
}

impl Deref for Frame<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.chunk.bytes(self.extent)
    }
}

impl DerefMut for Frame<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.chunk.bytes_mut(self.extent)
    }
}

impl fmt::Debug for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("chunk", &self.chunk.addr())
            .field("offset", &self.extent.offset)
            .field("len", &self.extent.len)
            .finish()
    }
}

impl Umem {
    /// Takes a free frame from the free list, empty and with the UMEM's headroom in front; none
    /// when all are in use. A socket's [`alloc`](crate::Socket::alloc) is cheaper.
    pub fn alloc(&self) -> Option<Frame<'_>> {
        self.take_free().map(Frame::empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_and_tail_move_inside_the_chunk_only() {
        let umem = Umem::on_heap(2, 2048);
        let extent = Extent {
            offset: 256,
            len: 100,
        };
        let mut frame = Frame::new(umem.take_free().expect("a chunk"), extent);
        frame[0] = 7;
        frame.adjust_head(-14).expect("room");
        assert_eq!((frame.len(), frame.headroom(), frame[14]), (114, 242, 7));
        frame.adjust_head(14).expect("bytes");
        frame.adjust_tail(-96).expect("bytes");
        assert_eq!(frame.len(), 4);
        for delta in [5, i32::MAX, i32::MIN, -257] {
            assert!(frame.adjust_head(delta).is_err());
        }
        for delta in [-5, i32::MAX, i32::MIN, 2048 - 256 - 3] {
            assert!(frame.adjust_tail(delta).is_err());
        }
        assert_eq!((frame.len(), frame.headroom(), frame[0]), (4, 256, 7));
        frame.adjust_tail(2048 - 256 - 4).expect("up to the end");
        frame.adjust_head(-256).expect("up to the start");
        assert_eq!(frame.len(), 2048);
    }

    #[test]
    fn filling_checks_the_room() {
        let umem = Umem::on_heap(1, 2048);
        let mut frame = umem.alloc().expect("a frame");
        assert!(umem.alloc().is_none());
        assert!(frame.fill_with(&[1; 2049]).is_err());
        frame.fill_with(&[1; 2048]).expect("exactly fits");
        assert_eq!(frame.iter().map(|&b| u32::from(b)).sum::<u32>(), 2048);
    }
}
