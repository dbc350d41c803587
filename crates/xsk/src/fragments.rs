//! Packets of several chunks that the program owns.

use crate::error::{Error, Result};
use crate::frame::Frame;
use crate::hints::RxHints;
use crate::tx_metadata::TxRequest;
use crate::umem::{MAX_FRAGMENTS, Umem};
use arrayvec::{ArrayVec, CapacityError};

/// A packet that the program owns, in one chunk or several: received, or composed of frames to be sent.
///
/// [`RxBatch::next_fragments`](crate::RxBatch::next_fragments) returns one, and
/// [`Socket::send_fragments`](crate::Socket::send_fragments) sends one, on a UMEM with
/// [fragments](crate::UmemBuilder::fragments). Its bytes are those of its [frames](Self::frames), one
/// after the other. Dropping it frees their chunks.
///
/// ```
/// # fn main() -> xsk::Result<()> {
/// let umem = xsk::Umem::builder().fragments(true).build()?;
/// let mut packet = umem.alloc_fragments(9000).expect("a new UMEM has free frames");
/// packet.fill_with(&[7; 9000])?;
/// assert_eq!((packet.frames().len(), packet.len()), (5, 9000));
///
/// // A header in front of it, without copying.
/// let mut header = umem.alloc().expect("a free frame");
/// header.fill_with(b"header")?;
/// let mut whole = xsk::Fragments::from(header);
/// for frame in packet.into_frames() {
///     whole.push(frame).expect("fewer than 18 frames");
/// }
/// assert_eq!(whole.to_vec()[..7], *b"header\x07");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Fragments {
    frames: ArrayVec<Frame, MAX_FRAGMENTS>,
    hints: RxHints,
    request: TxRequest,
}

impl Fragments {
    /// A packet without frames.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a frame.
    ///
    /// # Errors
    ///
    /// The frame, when the packet has [`MAX_FRAGMENTS`] already.
    #[inline]
    pub fn push(&mut self, frame: Frame) -> std::result::Result<(), Frame> {
        self.frames.try_push(frame).map_err(CapacityError::element)
    }

    /// The driver's hints of a received packet, as those of [`Packet::hints`](crate::Packet::hints).
    pub fn hints(&self) -> RxHints {
        self.hints
    }

    /// Reads the hints in front of the packet's first bytes.
    pub(crate) fn read_hints(&mut self) {
        if let Some(first) = self.frames.first() {
            self.hints = first.chunk().hints();
        }
    }

    /// Sets the request to send the packet with, as [`Socket::send_with`](crate::Socket::send_with) has it for one
    /// frame: the metadata is in front of the first frame, which has to hold the place of a checksum, too.
    /// Default: none.
    pub fn set_request(&mut self, request: TxRequest) {
        self.request = request;
    }

    /// The request to send the packet with.
    pub(crate) fn request(&self) -> &TxRequest {
        &self.request
    }

    /// The frames, in the order of the packet's bytes.
    #[inline]
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// The frames, to be written.
    #[inline]
    pub fn frames_mut(&mut self) -> &mut [Frame] {
        &mut self.frames
    }

    /// Takes the packet apart.
    pub fn into_frames(self) -> impl ExactSizeIterator<Item = Frame> {
        self.frames.into_iter()
    }

    /// Length of the packet, in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.frames.iter().map(Frame::len).sum()
    }

    /// Whether the packet has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A copy of the packet's bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.frames
            .iter()
            .flat_map(|frame| frame.iter().copied())
            .collect()
    }

    /// Copies the packet's first bytes into `bytes`, as many as fit. Returns their number.
    pub fn copy_to(&self, bytes: &mut [u8]) -> usize {
        let mut copied = 0;
        for frame in &self.frames {
            let room = &mut bytes[copied..];
            let count = room.len().min(frame.len());
            room[..count].copy_from_slice(&frame[..count]);
            copied += count;
        }
        copied
    }

    /// Replaces the packet's content with `bytes`, in the frames that it has: the first are filled up,
    /// and those left over are freed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`](crate::ErrorKind::InvalidConfig) when the frames have no room for
    /// that; the packet is unchanged.
    pub fn fill_with(&mut self, bytes: &[u8]) -> Result<()> {
        let room: usize = self
            .frames
            .iter()
            .map(|frame| frame.capacity() as usize)
            .sum();
        if bytes.len() > room {
            return Err(Error::invalid(format!(
                "a packet of {} bytes does not fit: its frames have room for {room}",
                bytes.len()
            )));
        }
        let mut rest = bytes;
        let mut used = 0;
        for frame in &mut self.frames {
            let (now, later) = rest.split_at(rest.len().min(frame.capacity() as usize));
            frame.fill_with(now)?;
            rest = later;
            used += usize::from(!now.is_empty());
        }
        self.frames.truncate(used);
        Ok(())
    }

    /// Moves all bytes into the first frame, and frees the others: for code that needs a slice.
    ///
    /// # Errors
    ///
    /// The packet, unchanged, when they do not fit there, or it has no frame. [`to_vec`](Self::to_vec) and
    /// [`copy_to`](Self::copy_to) copy any packet.
    pub fn linearize(mut self) -> std::result::Result<Frame, Self> {
        let len = self.len();
        let Some((first, others)) = self.frames.split_first_mut() else {
            return Err(self);
        };
        let at = first.len();
        if first.resize(len).is_err() {
            return Err(self);
        }
        let mut rest = &mut first[at..];
        for frame in others {
            let (now, later) = rest.split_at_mut(frame.len());
            now.copy_from_slice(frame);
            rest = later;
        }
        self.frames.truncate(1);
        self.frames.pop().ok_or(self)
    }

    /// Takes frames from `alloc` until a packet of `len` bytes fits into them, and makes it that long;
    /// `None` when there are fewer, or [`MAX_FRAGMENTS`] do not suffice.
    #[inline]
    pub(crate) fn alloc(len: usize, mut alloc: impl FnMut() -> Option<Frame>) -> Option<Self> {
        let mut packet = Self::new();
        let mut left = len;
        while left > 0 || packet.frames.is_empty() {
            if packet.frames.is_full() {
                return None;
            }
            let mut frame = alloc()?;
            let here = left.min(frame.capacity() as usize);
            frame.resize(here).ok()?;
            left -= here;
            packet.push(frame).ok()?;
        }
        Some(packet)
    }
}

impl From<Frame> for Fragments {
    fn from(frame: Frame) -> Self {
        Self {
            frames: [frame].into_iter().collect(),
            ..Self::default()
        }
    }
}

impl Umem {
    /// Allocates a packet of `len` bytes from the free list, in as many frames as it needs, each filled up
    /// behind the UMEM's headroom; their bytes are the chunks' former content. `None` when fewer are free,
    /// or it would need more than [`MAX_FRAGMENTS`].
    /// [`Socket::alloc_fragments`](crate::Socket::alloc_fragments) is cheaper.
    pub fn alloc_fragments(&self, len: usize) -> Option<Fragments> {
        Fragments::alloc(len, || self.alloc())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    #[test]
    fn a_packet_has_the_bytes_of_its_frames() {
        let umem = Umem::on_heap(18, 2048);
        let mut packet = umem.alloc_fragments(5000).expect("free chunks");
        let lens: Vec<usize> = packet.frames().iter().map(Frame::len).collect();
        assert_eq!((packet.len(), lens), (5000, vec![2048, 2048, 904]));
        packet.fill_with(&bytes(4097)).expect("room");
        assert_eq!((packet.len(), packet.to_vec()), (4097, bytes(4097)));
        packet.fill_with(&bytes(2048)).expect("room");
        assert_eq!(umem.accounting().free, 17, "frames left over are freed");
        let mut part = [0; 100];
        assert_eq!(packet.copy_to(&mut part), 100);
        assert_eq!(part[..], bytes(100));
        assert_eq!(packet.copy_to(&mut [0; 3000]), 2048);
        assert!(packet.fill_with(&bytes(2049)).is_err());
        assert_eq!(packet.to_vec(), bytes(2048), "unchanged");
        packet.fill_with(&[]).expect("nothing fits");
        assert!(packet.is_empty() && packet.frames().is_empty());
        assert_eq!(umem.accounting().free, 18);
    }

    #[test]
    fn a_packet_is_allocated_whole_or_not_at_all() {
        let umem = Umem::on_heap(20, 2048);
        assert_eq!(umem.alloc_fragments(0).expect("one").frames().len(), 1);
        let most = umem.alloc_fragments(18 * 2048).expect("18 chunks");
        assert_eq!(umem.accounting().free, 2);
        assert!(umem.alloc_fragments(2 * 2048 + 1).is_none());
        assert_eq!(umem.accounting().free, 2);
        drop(most);
        assert!(umem.alloc_fragments(18 * 2048 + 1).is_none());
        assert_eq!(umem.accounting().free, 20);
    }

    #[test]
    fn frames_are_gathered_up_to_the_limit() {
        let umem = Umem::on_heap(19, 2048);
        let mut packet = Fragments::new();
        for _ in 0..MAX_FRAGMENTS {
            packet.push(umem.alloc().expect("free")).expect("room");
        }
        let one_more = umem.alloc().expect("free");
        assert!(packet.push(one_more).is_err());
        assert_eq!(packet.into_frames().len(), 18);
        assert_eq!(umem.accounting().free, 19);
    }

    #[test]
    fn a_packet_is_made_linear_where_it_fits() {
        let umem = Umem::on_heap(3, 2048);
        let mut packet = umem.alloc_fragments(4000).expect("free chunks");
        packet.fill_with(&bytes(4000)).expect("room");
        let mut packet = packet.linearize().expect_err("too long");
        assert_eq!(packet.to_vec(), bytes(4000), "unchanged");
        packet.frames_mut()[0].resize(1000).expect("shorter");
        packet.frames_mut()[1].resize(1048).expect("shorter");
        let expected = [&bytes(4000)[..1000], &bytes(4000)[2048..3096]].concat();
        let frame = packet.linearize().expect("2048 bytes");
        assert_eq!(*frame, *expected);
        assert_eq!(umem.accounting().free, 2);
        assert!(Fragments::new().linearize().is_err());
    }
}
