//! A packet of a batch.
#![allow(unsafe_code)] // Its bytes are borrowed from a chunk that is still lent.

use super::RxBatch;
use crate::error::Result;
use crate::frame::Frame;
use crate::hints::RxHints;
use crate::owned_packet::OwnedPacket;
use crate::send_error::{SendError, SendErrorKind};
use crate::tx_metadata::TxRequest;
use crate::umem::{Extent, Umem};
use crate::umem_rings::cannot_send_with;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::slice;

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
pub struct Packet<'b, 's> {
    /// Its first byte. In the table of owners its chunk is lent for receiving, and read in this burst; that changes
    /// when the packet is sent or kept, and need not change when it is recycled.
    pub(super) addr: u64,
    pub(super) len: u32,
    pub(super) batch: &'b mut RxBatch<'s>,
}

impl Packet<'_, '_> {
    /// Forwards the packet through the socket that received it, without copying. The socket's next
    /// [`flush`](crate::Socket::flush) transmits it.
    ///
    /// # Errors
    ///
    /// [`SendErrorKind::Full`], [`SendErrorKind::Empty`] or [`SendErrorKind::NoRing`], with the
    /// packet.
    #[inline(always)]
    pub fn send(self) -> std::result::Result<(), SendError<Self>> {
        let kind = if self.len == 0 {
            SendErrorKind::Empty
        } else if self.batch.out.is_none() {
            SendErrorKind::NoRing
        } else {
            SendErrorKind::Full
        };
        let mut packet = ManuallyDrop::new(self);
        let (addr, len) = (packet.addr, packet.len);
        let batch = &mut *packet.batch;
        let slot = if len == 0 { None } else { batch.send.next() };
        let (Some(slot), Some(out)) = (slot, batch.out.as_mut()) else {
            let packet = ManuallyDrop::into_inner(packet);
            return Err(SendError { packet, kind });
        };
        // SAFETY: needed because the check would be the second. `mark_read` found the packet's chunk, which
        // `set_extent` leaves it in.
        unsafe { batch.lent.give_unchecked(addr, batch.fill.id().sending()) };
        out.tx.slot(slot).write_packet(addr, len);
        Ok(())
    }

    /// Forwards the packet as [`send`](Self::send) does, with a request.
    ///
    /// # Errors
    ///
    /// Same as [`Socket::send_with`](crate::Socket::send_with), with the packet.
    pub fn send_with(self, request: &TxRequest) -> std::result::Result<(), SendError<Self>> {
        let at = self.extent();
        self.batch.stage_sent();
        let RxBatch { out, cache, .. } = &mut *self.batch;
        if let Some(kind) = cannot_send_with(out.as_mut(), cache.umem(), at, request) {
            return Err(SendError { packet: self, kind });
        }
        let mut packet = ManuallyDrop::new(self);
        let addr = packet.addr;
        let batch = &mut *packet.batch;
        let frame = Frame::new(batch.fill.take_received(addr), at);
        // There is room, so this succeeds; otherwise the frame would be freed.
        let _ = batch.send_with(frame, request);
        Ok(())
    }

    /// Allocates a frame from the socket that received the packet, as
    /// [`Socket::alloc`](crate::Socket::alloc) does: for an answer longer than the packet.
    #[inline]
    pub fn alloc(&mut self) -> Option<Frame> {
        self.batch.alloc()
    }

    /// Sends a frame through the socket that received the packet, as
    /// [`Socket::send`](crate::Socket::send) does.
    ///
    /// # Errors
    ///
    /// Same as [`Socket::send`](crate::Socket::send).
    #[inline]
    pub fn send_frame(&mut self, frame: Frame) -> std::result::Result<(), SendError<Frame>> {
        self.batch.send(frame)
    }

    /// Takes the packet out of the batch, to hold it or to send it later. The socket lends another
    /// chunk for receiving in its place while one is free.
    #[inline(always)]
    pub fn keep(self) -> Frame {
        let mut packet = ManuallyDrop::new(self);
        let (addr, extent) = (packet.addr, packet.extent());
        #[cfg(xsk_broken = "recycled_early")]
        if let Some(slot) = packet.batch.recycled.next() {
            let chunk_addr = packet.batch.lent.start(addr);
            packet.batch.fill.write_at(slot, chunk_addr);
        }
        Frame::new(packet.batch.fill.take_received(addr), extent)
    }

    /// The same with the driver's [hints](Self::hints).
    #[inline(always)]
    pub fn keep_with_hints(self) -> OwnedPacket {
        let hints = self.hints();
        OwnedPacket::new(self.keep(), hints)
    }

    /// Moves the packet's first byte, as [`Frame::adjust_head`] does.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`](crate::ErrorKind::InvalidConfig) when there is no such room or
    /// byte; the packet is unchanged.
    #[inline]
    pub fn adjust_head(&mut self, delta: i32) -> Result<()> {
        let mut extent = self.extent();
        extent.adjust_head(delta, self.batch.cache.area().least_offset())?;
        self.set_extent(extent);
        Ok(())
    }

    /// Moves the packet's end, as [`Frame::adjust_tail`] does.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`](crate::ErrorKind::InvalidConfig) when there is no such room or
    /// byte; the packet is unchanged.
    #[inline]
    pub fn adjust_tail(&mut self, delta: i32) -> Result<()> {
        let chunk_size = self.batch.cache.area().chunk_size();
        let mut extent = self.extent();
        extent.adjust_tail(delta, chunk_size)?;
        self.set_extent(extent);
        Ok(())
    }

    /// The packet's place in its chunk.
    #[inline]
    fn extent(&self) -> Extent {
        Extent {
            offset: self.headroom(),
            len: self.len,
        }
    }

    #[inline]
    fn set_extent(&mut self, Extent { offset, len }: Extent) {
        self.addr = self.batch.lent.start(self.addr) + u64::from(offset);
        self.len = len;
    }

    /// What the driver knows of the packet, when the socket was opened with
    /// [`SocketBuilder::rx_hints`](crate::SocketBuilder::rx_hints). They are in the headroom: ask before
    /// the head moves more than 232 bytes there.
    pub fn hints(&self) -> RxHints {
        if !self.batch.fill.has_hints() {
            return RxHints::default();
        }
        let chunk = self.batch.lent.start(self.addr);
        // SAFETY: needed as in `deref`, which has why the packet's chunk is one of this memory and borrowed.
        unsafe { self.batch.cache.area().hints(chunk) }
    }

    /// The UMEM that the packet is in.
    #[inline]
    pub(crate) fn umem(&self) -> &Umem {
        self.batch.cache.umem()
    }

    /// The device's queue that received the packet.
    #[inline]
    pub fn queue(&self) -> u32 {
        self.batch.fill.queue()
    }

    /// Bytes between the chunk's start and the packet.
    #[inline]
    pub fn headroom(&self) -> u32 {
        (self.addr - self.batch.lent.start(self.addr)) as u32
    }
}

impl Deref for Packet<'_, '_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: needed because the chunk has no `Chunk` yet. `LentChunks::mark_read` checked that the packet
        // lies inside a chunk of this memory, where `set_extent` leaves it. The chunk was lent through
        // these rings, and the kernel returned it in the descriptor just read. Only the methods
        // that consume this packet lend it again or make it a `Chunk`. No second packet of it
        // exists: the mark refuses another descriptor of the chunk in this burst, the rings lend one batch
        // at a time, and no other rings have an entry in the table for a chunk lent through these.
        unsafe { slice::from_raw_parts(self.batch.memory.at(self.addr), self.len as usize) }
    }
}

impl DerefMut for Packet<'_, '_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the packet is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.batch.memory.at(self.addr), self.len as usize) }
    }
}

impl Drop for Packet<'_, '_> {
    #[inline(always)]
    fn drop(&mut self) {
        let batch = &mut *self.batch;
        let chunk_addr = batch.lent.start(self.addr);
        batch
            .fill
            .recycle(chunk_addr, &mut batch.recycled, batch.cache);
    }
}

impl fmt::Debug for Packet<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packet")
            .field("addr", &self.addr)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
