//! Packets that the program owns: move-only, one for each chunk.

use crate::error::Error;
use crate::umem::{Chunk, Extent, Umem};
use std::fmt;
use std::ops::{Deref, DerefMut};

/// A packet that the program owns: allocated to be written and sent, or kept from a receive batch.
///
/// It is neither `Copy` nor `Clone`. [`Socket::send`](crate::Socket::send) consumes it; dropping it
/// frees its chunk. It dereferences to the packet's bytes. It keeps its [`Umem`] alive, and can move
/// to other threads.
///
/// ```
/// # fn main() -> xsk::Result<()> {
/// let umem = xsk::Umem::builder().headroom(64).build()?;
/// let mut frame = umem.alloc().expect("a new UMEM has free frames");
/// frame.fill_with(b"payload")?;
/// frame.adjust_head(-4)?;
/// frame[..4].copy_from_slice(b"tag:");
/// assert_eq!(*frame, *b"tag:payload");
/// assert_eq!(frame.headroom(), 60);
/// # Ok(())
/// # }
/// ```
pub struct Frame {
    chunk: Chunk,
    extent: Extent,
}

impl Frame {
    /// An empty frame behind the UMEM's headroom, and room for the metadata of a packet sent.
    #[inline]
    pub(crate) fn empty(chunk: Chunk) -> Self {
        let offset = chunk.area().frame_offset();
        Self::new(chunk, Extent { offset, len: 0 })
    }

    /// A frame with the packet at `extent`, which lies inside the chunk.
    #[inline]
    pub(crate) fn new(chunk: Chunk, extent: Extent) -> Self {
        Self { chunk, extent }
    }

    /// Moves the packet's first byte by `delta` bytes, as `bpf_xdp_adjust_head` does: a negative
    /// delta prepends bytes from the headroom, a positive one removes bytes. Prepended bytes keep
    /// the chunk's former content.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`](crate::ErrorKind::InvalidConfig) when the headroom is smaller
    /// than that, or the packet shorter; the packet is unchanged.
    #[inline]
    pub fn adjust_head(&mut self, delta: i32) -> Result<(), Error> {
        let least = self.chunk.area().least_offset();
        self.extent.adjust_head(delta, least)
    }

    /// Moves the packet's end by `delta` bytes, as `bpf_xdp_adjust_tail` does: a positive delta
    /// appends bytes from the tailroom, a negative one removes bytes. Appended bytes keep the
    /// chunk's former content.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`](crate::ErrorKind::InvalidConfig) when the tailroom is smaller
    /// than that, or the packet shorter; the packet is unchanged.
    #[inline]
    pub fn adjust_tail(&mut self, delta: i32) -> Result<(), Error> {
        self.extent
            .adjust_tail(delta, self.chunk.area().chunk_size())
    }

    /// Replaces the packet's content with `bytes`.
    ///
    /// # Errors
    ///
    /// Same as [`resize`](Self::resize).
    #[inline]
    pub fn fill_with(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.resize(bytes.len())?;
        self.copy_from_slice(bytes);
        Ok(())
    }

    /// Sets the packet's length to `len` bytes. Appended bytes keep the chunk's former content.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`](crate::ErrorKind::InvalidConfig) when `len` is above
    /// [`capacity`](Self::capacity); the packet is unchanged.
    #[inline]
    pub fn resize(&mut self, len: usize) -> Result<(), Error> {
        self.extent.resize(len, self.chunk.area().chunk_size())
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

    /// Bytes between the chunk's start and the packet.
    #[inline]
    pub fn headroom(&self) -> u32 {
        self.extent.offset
    }

    /// Bytes between the packet's end and the chunk's.
    #[inline]
    pub fn tailroom(&self) -> u32 {
        self.capacity() - self.extent.len
    }

    /// Longest packet that fits behind the present headroom, in bytes.
    #[inline]
    pub fn capacity(&self) -> u32 {
        self.chunk.area().chunk_size() - self.extent.offset
    }

    /// The UMEM that the frame belongs to.
    #[inline]
    pub fn umem(&self) -> &Umem {
        self.chunk.umem()
    }

    #[inline]
    pub(crate) fn extent(&self) -> Extent {
        self.extent
    }

    #[inline]
    pub(crate) fn chunk(&self) -> &Chunk {
        &self.chunk
    }

    #[inline]
    pub(crate) fn into_chunk(self) -> Chunk {
        self.chunk
    }
}

impl Deref for Frame {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.chunk.bytes(self.extent)
    }
}

impl DerefMut for Frame {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.chunk.bytes_mut(self.extent)
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("chunk", &self.chunk.addr())
            .field("offset", &self.extent.offset)
            .field("len", &self.extent.len)
            .finish()
    }
}

impl Umem {
    /// Allocates a frame from the free list, empty, behind the UMEM's headroom; `None` when no
    /// chunk is free. [`Socket::alloc`](crate::Socket::alloc) is cheaper.
    pub fn alloc(&self) -> Option<Frame> {
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
