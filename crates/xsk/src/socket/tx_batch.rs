//! Packets to be sent, written in place.

use super::sending::Sending;
use crate::error::Result;
use crate::ring::{Cursor, OwnSlot, OwnSlots};
use crate::sys::Desc;
use crate::umem::{Cache, Reserved, Room, Rooms};
use crate::umem_rings::{CompletionRing, TxRing};
use std::fmt;
use std::ops::{Deref, DerefMut};

/// Free chunks, each with a slot of the TX ring, to write packets into; see
/// [`Socket::send_batch`](crate::Socket::send_batch).
///
/// It is iterated by reference. A [packet](TxPacket) that is [sent](TxPacket::send) takes the next slot; one that is
/// dropped returns its chunk, as do those that the iteration did not come to. Dropping the batch hands the packets sent to
/// the TX ring, also when a panic drops it, and the socket's next [`flush`](crate::Socket::flush) transmits them.
///
/// ```no_run
/// # fn main() -> xsk::Result<()> {
/// # let umem = xsk::Umem::builder().build()?;
/// # let mut socket = xsk::Socket::builder(&umem, "eth0", 0).open()?;
/// let mut sequence = 0_u32;
/// for mut packet in &mut socket.send_batch(64) {
///     packet.fill_with(&[0xff; 60])?;
///     packet[42..46].copy_from_slice(&sequence.to_be_bytes());
///     packet.send();
///     sequence += 1;
/// }
/// socket.flush()?;
/// println!("{sequence} packets");
/// # Ok(())
/// # }
/// ```
///
/// A batch that is forgotten ([`std::mem::forget`]) sends nothing, and its chunks are lost for the socket, as those of
/// forgotten frames are.
#[derive(Debug)]
#[must_use = "it sends the packets that are written into it"]
pub struct TxBatch<'s> {
    rings: Option<(&'s mut TxRing, &'s mut CompletionRing)>,
    /// As many as there are chunks. Each chunk has its slot, until the end.
    slots: Cursor,
    chunks: Reserved<'s>,
}

impl<'s> TxBatch<'s> {
    #[inline(always)]
    pub(super) fn of(sending: Sending<'s>, max: u32) -> Self {
        let Sending {
            tx,
            completion,
            cache,
        } = sending;
        Self::new(tx.ring.as_mut(), completion, cache, max)
    }

    #[inline(always)]
    pub(crate) fn new(
        mut tx: Option<&'s mut TxRing>,
        completion: &'s mut CompletionRing,
        cache: &'s mut Cache,
        max: u32,
    ) -> Self {
        completion.reclaim_sent(cache);
        let mut slots = match &mut tx {
            Some(tx) => tx.reserve(max),
            None => Cursor::NONE,
        };
        let chunks = cache.reserve(slots.left() as usize, completion.id());
        slots.shorten(chunks.left() as u32);
        Self {
            rings: tx.map(|tx| (tx, completion)),
            slots,
            chunks,
        }
    }

    /// Packets that can still be written: less than asked for when TX has no more room, fewer chunks are free, or more were
    /// asked for than a batch [has at most](crate::Socket::send_batch).
    #[inline]
    pub fn len(&self) -> usize {
        self.chunks.left()
    }

    /// Whether none can be written.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The packets that can still be written. Several may be held at a time, and they take their places in the ring in
    /// the order of the iteration, whichever is sent first.
    #[inline(always)]
    pub fn iter_mut(&mut self) -> TxPackets<'_> {
        let mut slots = Cursor {
            next: self.slots.next,
            end: self.slots.end,
        };
        slots.advance(self.chunks.taken() as u32);
        TxPackets {
            slots: self.rings.as_mut().map(|(tx, _)| tx.own_slots(&slots)),
            rooms: self.chunks.rooms(),
        }
    }

    /// Closes the gaps between the descriptors of packets that were sent.
    #[cold]
    #[inline(never)]
    fn close_gaps(&mut self) {
        let mut sent = 0;
        let Some((tx, _)) = &self.rings else { return };
        for at in 0..self.chunks.taken() {
            if self.chunks.is_lent(at) {
                let slot = |at| tx.slot(self.slots.next.wrapping_add(at));
                // A peer may change both: what is read is no more trusted than what the kernel will read.
                slot(sent).write(slot(at as u32).read());
                sent += 1;
            }
        }
    }
}

impl Drop for TxBatch<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let sent = self.chunks.lent();
        if (sent as usize) < self.chunks.taken() {
            self.close_gaps();
        }
        if (sent as usize) < self.chunks.len() {
            self.chunks.return_rest();
        }
        if let Some((tx, completion)) = &mut self.rings {
            self.slots.advance(sent);
            tx.stage(&self.slots);
            completion.sent(sent);
        }
    }
}

impl<'b> IntoIterator for &'b mut TxBatch<'_> {
    type Item = TxPacket<'b>;
    type IntoIter = TxPackets<'b>;

    #[inline(always)]
    fn into_iter(self) -> TxPackets<'b> {
        self.iter_mut()
    }
}

/// Iterates over the packets to be written into a [`TxBatch`].
#[derive(Debug)]
pub struct TxPackets<'b> {
    /// None without a TX ring; then there are no rooms either.
    slots: Option<OwnSlots<'b, Desc>>,
    rooms: Rooms<'b>,
}

impl<'b> Iterator for TxPackets<'b> {
    type Item = TxPacket<'b>;

    #[inline(always)]
    fn next(&mut self) -> Option<TxPacket<'b>> {
        let slot = self.slots.as_mut()?.next()?;
        let room = self.rooms.next()?;
        Some(TxPacket { slot, room })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.rooms.left(), Some(self.rooms.left()))
    }
}

impl ExactSizeIterator for TxPackets<'_> {}

/// A packet to be written, borrowed from a [`TxBatch`].
///
/// It dereferences to the packet's bytes, of which there are none at first: [`fill_with`](Self::fill_with) copies some
/// there, and [`resize`](Self::resize) makes room to write them. [`send`](Self::send) sends it; dropping it returns its
/// chunk.
#[must_use = "send it, or its chunk returns unused"]
pub struct TxPacket<'b> {
    slot: OwnSlot<'b, Desc>,
    room: Room<'b>,
}

impl TxPacket<'_> {
    /// Sends the packet when the batch ends, which needs a [`flush`](crate::Socket::flush) after it. One without bytes is
    /// dropped: the kernel refuses such a descriptor.
    #[inline(always)]
    pub fn send(self) {
        if let Some((addr, len)) = self.room.lend_to_send() {
            self.slot.write_packet(addr, len);
        }
    }

    /// Sets the packet's length to `len` bytes, behind the UMEM's headroom. Appended bytes keep the chunk's former
    /// content.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`](crate::ErrorKind::InvalidConfig) when `len` is above
    /// [`capacity`](Self::capacity); the packet is unchanged.
    #[inline(always)]
    pub fn resize(&mut self, len: usize) -> Result<()> {
        self.room.resize(len)
    }

    /// Replaces the packet's content with `bytes`.
    ///
    /// # Errors
    ///
    /// Same as [`resize`](Self::resize).
    #[inline(always)]
    pub fn fill_with(&mut self, bytes: &[u8]) -> Result<()> {
        self.resize(bytes.len())?;
        self.copy_from_slice(bytes);
        Ok(())
    }

    /// Longest packet that fits, in bytes.
    #[inline]
    pub fn capacity(&self) -> u32 {
        self.room.capacity()
    }
}

impl Deref for TxPacket<'_> {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        self.room.bytes()
    }
}

impl DerefMut for TxPacket<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.room.bytes_mut()
    }
}

impl fmt::Debug for TxPacket<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxPacket")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
