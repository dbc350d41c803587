//! A packet of a batch.
#![allow(unsafe_code)] // Its bytes are borrowed from a chunk that is still lent.

use crate::error::Result;
use crate::frame::Frame;
use crate::ring::Cursor;
use crate::send_error::{SendError, SendErrorKind};
use crate::sys::Desc;
use crate::umem::{Extent, Umem};
use crate::umem_rings::{TxRing, UmemRings};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

/// A received packet, borrowed from its [`RxBatch`](crate::RxBatch).
///
/// It dereferences to the packet's bytes. [`send`](Self::send) forwards it, [`keep`](Self::keep)
/// converts it into an owned [`Frame`]; dropping it recycles its chunk for receiving.
///
/// ```no_run
/// # fn main() -> xsk::Result<()> {
/// # let umem = xsk::Umem::builder().build()?;
/// # let mut socket = xsk::Socket::builder(&umem, "eth0", 0).open()?;
/// let mut batch = socket.recv(64);
/// while let Some(mut packet) = batch.next_packet() {
///     if packet.len() < 14 {
///         continue; // dropped
///     }
///     packet[..6].fill(0xff);
///     if let Err(error) = packet.send() {
///         eprintln!("{error}");
///     }
/// }
/// drop(batch);
/// socket.flush()?;
/// # Ok(())
/// # }
/// ```
pub struct Packet<'b, 'u> {
    /// The chunk that it was received into. In the table of owners it is still lent for receiving;
    /// that changes when the packet is sent or kept, and need not change when it is recycled.
    pub(super) chunk_addr: u64,
    pub(super) extent: Extent,
    pub(super) tx: Option<&'b mut TxRing>,
    pub(super) umem_rings: &'b mut UmemRings<'u>,
    pub(super) fill: &'b mut Cursor,
    pub(super) send: &'b mut Cursor,
}

impl<'u> Packet<'_, 'u> {
    /// Forwards the packet through the socket that received it, without copying. The socket's next
    /// [`flush`](crate::Socket::flush) transmits it.
    ///
    /// # Errors
    ///
    /// [`SendErrorKind::Full`], [`SendErrorKind::Empty`] or [`SendErrorKind::NoRing`], with the
    /// packet.
    #[inline(always)]
    pub fn send(self) -> std::result::Result<(), SendError<Self>> {
        let Extent { offset, len } = self.extent;
        let kind = if len == 0 {
            SendErrorKind::Empty
        } else if self.tx.is_none() {
            SendErrorKind::NoRing
        } else {
            SendErrorKind::Full
        };
        let mut packet = ManuallyDrop::new(self);
        let slot = if len == 0 { None } else { packet.send.next() };
        let packet_mut = &mut *packet;
        let (Some(slot), Some(tx)) = (slot, packet_mut.tx.as_deref_mut()) else {
            let packet = ManuallyDrop::into_inner(packet);
            return Err(SendError { packet, kind });
        };
        packet_mut.umem_rings.forward(packet_mut.chunk_addr);
        let addr = packet_mut.chunk_addr + u64::from(offset);
        tx.write_at(
            slot,
            Desc {
                addr,
                len,
                options: 0,
            },
        );
        Ok(())
    }

    /// Takes the packet out of the batch, to hold it or to send it later. The socket lends another
    /// chunk for receiving in its place while one is free.
    #[inline(always)]
    pub fn keep(self) -> Frame<'u> {
        let mut packet = ManuallyDrop::new(self);
        let (chunk_addr, extent) = (packet.chunk_addr, packet.extent);
        Frame::new(packet.umem_rings.take_received(chunk_addr), extent)
    }

    /// Moves the packet's first byte, as [`Frame::adjust_head`] does.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`](crate::ErrorKind::InvalidConfig) when there is no such room or
    /// byte; the packet is unchanged.
    #[inline]
    pub fn adjust_head(&mut self, delta: i32) -> Result<()> {
        self.extent.adjust_head(delta)
    }

    /// Moves the packet's end, as [`Frame::adjust_tail`] does.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`](crate::ErrorKind::InvalidConfig) when there is no such room or
    /// byte; the packet is unchanged.
    #[inline]
    pub fn adjust_tail(&mut self, delta: i32) -> Result<()> {
        let chunk_size = self.umem().chunk_size();
        self.extent.adjust_tail(delta, chunk_size)
    }

    /// The UMEM that the packet is in.
    #[inline]
    pub(crate) fn umem(&self) -> &'u Umem {
        self.umem_rings.umem()
    }

    /// Bytes between the chunk's start and the packet.
    #[inline]
    pub fn headroom(&self) -> u32 {
        self.extent.offset
    }
}

impl Deref for Packet<'_, '_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: needed because the chunk has no `Chunk` yet. `LentChunks::find` checked address
        // and extent, and the extent only moves inside the chunk. The chunk was lent through
        // these rings, and the kernel returned it in the descriptor just read. Only the methods
        // that consume this packet lend it again or make it a `Chunk`. No second packet of it
        // exists: a batch lends one at a time and the rings one batch, and no other rings have an
        // entry in the table for a chunk lent through these.
        unsafe { self.umem().received_bytes(self.chunk_addr, self.extent) }
    }
}

impl DerefMut for Packet<'_, '_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the packet is borrowed exclusively.
        unsafe { self.umem().received_bytes_mut(self.chunk_addr, self.extent) }
    }
}

impl Drop for Packet<'_, '_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.umem_rings.recycle(self.chunk_addr, self.fill);
    }
}

impl fmt::Debug for Packet<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packet")
            .field("chunk_addr", &self.chunk_addr)
            .field("offset", &self.extent.offset)
            .field("len", &self.extent.len)
            .finish_non_exhaustive()
    }
}
