//! What has been received, borrowed from the socket packet by packet.
#![allow(unsafe_code)]
// A packet's bytes are borrowed from a chunk that is still lent.

use crate::error::Result;
use crate::frame::{Extent, Frame, Reason, Refused};
use crate::queue::{Queue, RxRing, TxRing};
use crate::ring::Cursor;
use crate::socket::Socket;
use crate::sys::Desc;
use crate::umem::Receiving;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

/// Packets received by one look at the RX ring, taken out one after the other. When the batch
/// is dropped the kernel gets the ring's slots back, and the chunks that nobody took go to FILL.
///
/// The places in the rings are kept here and not in the rings, so that they stay in registers
/// for as long as the batch is worked on.
#[derive(Debug)]
#[must_use = "dropping a batch drops the packets in it"]
pub struct RxBatch<'s, 'u> {
    rx: Option<&'s mut RxRing>,
    tx: Option<&'s mut TxRing>,
    queue: &'s mut Queue<'u>,
    /// Which chunks a descriptor may name.
    lent: Receiving<'u>,
    /// Descriptors not yet read.
    received: Cursor,
    /// FILL slots for what nobody takes.
    fill: Cursor,
    /// TX slots for what is sent on.
    send: Cursor,
}

/// No slots of a ring.
const NONE: Cursor = Cursor { next: 0, end: 0 };

impl<'s, 'u> RxBatch<'s, 'u> {
    #[inline(always)]
    pub(crate) fn new(
        mut rx: Option<&'s mut RxRing>,
        mut tx: Option<&'s mut TxRing>,
        queue: &'s mut Queue<'u>,
        max: u32,
    ) -> Self {
        let received = rx.as_mut().map_or(NONE, |rx| rx.peek(max));
        let fill = queue.reserve_fill(received.left());
        let send = tx.as_mut().map_or(NONE, |tx| tx.reserve(received.left()));
        let lent = queue.lent();
        Self {
            rx,
            tx,
            queue,
            lent,
            received,
            fill,
            send,
        }
    }

    /// Packets still in the batch.
    #[inline]
    pub fn len(&self) -> usize {
        self.received.left() as usize
    }

    /// Whether no packet is left in the batch.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.received.left() == 0
    }

    /// The next packet. A descriptor that does not name a chunk lent to this queue is passed
    /// over and counted in [`Statistics::refused`](crate::Statistics::refused).
    #[inline(always)]
    pub fn next_packet(&mut self) -> Option<Packet<'_, 'u>> {
        let rx = self.rx.as_deref_mut()?;
        for index in self.received.by_ref() {
            let Desc { addr, len, .. } = rx.read_at(index);
            if let Some((chunk, extent)) = self.lent.find(addr, len) {
                let (tx, queue) = (self.tx.as_deref_mut(), &mut *self.queue);
                let (fill, send) = (&mut self.fill, &mut self.send);
                return Some(Packet {
                    chunk,
                    extent,
                    tx,
                    queue,
                    fill,
                    send,
                });
            }
            self.queue.refuse(addr);
        }
        None
    }
}

impl Drop for RxBatch<'_, '_> {
    #[inline(always)]
    fn drop(&mut self) {
        let Some(rx) = self.rx.as_deref_mut() else {
            return;
        };
        if self.received.left() > 0 {
            let received = std::mem::replace(&mut self.received, NONE);
            let fill = std::mem::replace(&mut self.fill, NONE);
            self.fill = recycle_unread(rx, self.queue, received, fill);
        }
        rx.release();
        if let Some(tx) = self.tx.as_deref_mut() {
            let sent = tx.stage(&self.send);
            self.queue.forwarded(sent);
        }
        self.queue.publish_fill(&self.fill);
    }
}

/// Lends what nobody looked at for receiving again. Apart from the drop, and by value, so that the
/// drop is small enough to be inlined and the batch's cursors can stay in registers.
#[inline(never)]
fn recycle_unread(
    rx: &mut RxRing,
    queue: &mut Queue<'_>,
    received: Cursor,
    mut fill: Cursor,
) -> Cursor {
    let lent = queue.lent();
    for index in received {
        let Desc { addr, len, .. } = rx.read_at(index);
        match lent.find(addr, len) {
            Some((chunk, _)) => queue.recycle(chunk, &mut fill),
            None => queue.refuse(addr),
        }
    }
    fill
}

/// A received packet, borrowed from its [`RxBatch`]. It dereferences to the packet's bytes.
///
/// Dropped, its chunk is lent for receiving again. [`send`](Self::send) forwards it,
/// [`keep`](Self::keep) makes an owned [`Frame`] of it.
pub struct Packet<'b, 'u> {
    /// The chunk that it was received into. The table of owners still says that it is lent to
    /// this queue; that changes when the packet is sent or kept, and need not change when it is
    /// recycled.
    chunk: u64,
    extent: Extent,
    tx: Option<&'b mut TxRing>,
    queue: &'b mut Queue<'u>,
    fill: &'b mut Cursor,
    send: &'b mut Cursor,
}

impl<'u> Packet<'_, 'u> {
    /// Sends the packet from the socket that received it, without copying. It leaves at the
    /// socket's next [`flush`](Socket::flush).
    ///
    /// # Errors
    ///
    /// The packet comes back, with the [`Reason`], when the TX ring is full or there is none.
    #[inline(always)]
    pub fn send(self) -> std::result::Result<(), Refused<Self>> {
        let Extent { offset, len } = self.extent;
        let reason = if len == 0 {
            Reason::Empty
        } else if self.tx.is_none() {
            Reason::NoRing
        } else {
            Reason::Full
        };
        let mut packet = ManuallyDrop::new(self);
        let slot = if len == 0 { None } else { packet.send.next() };
        let packet_mut = &mut *packet;
        let (Some(slot), Some(tx)) = (slot, packet_mut.tx.as_deref_mut()) else {
            let frame = ManuallyDrop::into_inner(packet);
            return Err(Refused { frame, reason });
        };
        packet_mut.queue.forward(packet_mut.chunk);
        let addr = packet_mut.chunk + u64::from(offset);
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

    /// Sends the packet from another socket on the same UMEM, without copying. It leaves at
    /// that socket's next [`flush`](Socket::flush).
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send); and [`Reason::Foreign`] when the other socket is on another
    /// UMEM.
    #[inline]
    pub fn send_on(self, socket: &mut Socket<'u>) -> std::result::Result<(), Refused<Self>> {
        if let Some(reason) = socket.cannot_send(self.queue.umem(), self.extent.len) {
            return Err(Refused {
                frame: self,
                reason,
            });
        }
        // Room was looked for, so this is not refused; were it, the frame would be free.
        let _ = socket.send(self.keep());
        Ok(())
    }

    /// Takes the packet out of the batch, to hold it or send it later. The socket lends another
    /// chunk for receiving in its place, as long as there is one.
    #[inline(always)]
    pub fn keep(self) -> Frame<'u> {
        let mut packet = ManuallyDrop::new(self);
        let (chunk, extent) = (packet.chunk, packet.extent);
        Frame::new(packet.queue.take_received(chunk), extent)
    }

    /// Moves the packet's first byte; see [`Frame::adjust_head`].
    ///
    /// # Errors
    ///
    /// As there.
    #[inline]
    pub fn adjust_head(&mut self, delta: i32) -> Result<()> {
        self.extent.adjust_head(delta)
    }

    /// Moves the packet's end; see [`Frame::adjust_tail`].
    ///
    /// # Errors
    ///
    /// As there.
    #[inline]
    pub fn adjust_tail(&mut self, delta: i32) -> Result<()> {
        let chunk_size = self.queue.umem().chunk_size();
        self.extent.adjust_tail(delta, chunk_size)
    }

    /// Room in front of the packet, in bytes.
    #[inline]
    pub fn headroom(&self) -> u32 {
        self.extent.offset
    }
}

impl Deref for Packet<'_, '_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: needed because the chunk has no `Chunk` yet. `Receiving::find` checked address
        // and extent, and the extent only moves inside the chunk. The table said that it was lent
        // to this queue, and the kernel has given it back in the descriptor just read. It is
        // lent again, or made a `Chunk`, only by what consumes this packet. No second packet of
        // it exists: a batch hands out one at a time and a queue one batch, and what names this
        // queue in the table is no other queue's.
        unsafe { self.queue.umem().received_bytes(self.chunk, self.extent) }
    }
}

impl DerefMut for Packet<'_, '_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the packet is borrowed exclusively.
        unsafe {
            self.queue
                .umem()
                .received_bytes_mut(self.chunk, self.extent)
        }
    }
}

impl Drop for Packet<'_, '_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.queue.recycle(self.chunk, self.fill);
    }
}

impl fmt::Debug for Packet<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packet")
            .field("chunk", &self.chunk)
            .field("offset", &self.extent.offset)
            .field("len", &self.extent.len)
            .finish_non_exhaustive()
    }
}
