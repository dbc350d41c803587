//! Received packets, borrowed from the socket one by one.

mod packet;

pub use packet::Packet;

use crate::frame::Frame;
use crate::ring::Cursor;
use crate::send_error::SendError;
use crate::umem::{Area, Cache, LentChunks, Memory};
use crate::umem_rings::{FillRing, Outgoing, RxRing, cannot_send};

/// Packets ahead of the one returned whose first bytes are loaded into the CPU's caches: a miss takes
/// as long as a few packets.
pub(crate) const PREFETCH: u32 = 4;

/// The packets of one read of the RX ring; see [`Socket::recv`](crate::Socket::recv).
///
/// [`next_packet`](Self::next_packet) borrows them one after the other. Dropping the batch releases
/// the ring's slots to the kernel, and returns the chunks of packets that were neither sent nor
/// kept to FILL.
///
/// ```no_run
/// # fn main() -> xsk::Result<()> {
/// # let umem = xsk::Umem::builder().build()?;
/// # let mut socket = xsk::Socket::builder(&umem, "eth0", 0).open()?;
/// let mut batch = socket.recv(64);
/// let mut bytes = 0;
/// while let Some(packet) = batch.next_packet() {
///     bytes += packet.len();
/// }
/// # Ok(())
/// # }
/// ```
// The cursors are here and not in the rings, so that they stay in registers for the whole batch.
#[derive(Debug)]
#[must_use = "dropping a batch drops the packets in it"]
pub struct RxBatch<'s> {
    rx: Option<&'s mut RxRing>,
    out: Option<Outgoing<'s>>,
    fill: &'s mut FillRing,
    cache: &'s mut Cache,
    /// The chunks that a descriptor may name, and their memory.
    lent: LentChunks<'s>,
    memory: Memory,
    /// Unread descriptors.
    received: Cursor,
    /// FILL slots for recycled chunks.
    recycled: Cursor,
    /// TX slots for packets forwarded and frames sent.
    send: Cursor,
    /// Frames sent through those slots.
    frames: u32,
}

impl<'s> RxBatch<'s> {
    #[inline(always)]
    pub(crate) fn new(
        mut rx: Option<&'s mut RxRing>,
        mut out: Option<Outgoing<'s>>,
        fill: &'s mut FillRing,
        cache: &'s mut Cache,
        area: &'s Area,
        max: u32,
    ) -> Self {
        let received = rx.as_mut().map_or(Cursor::NONE, |rx| rx.peek(max));
        fill.received(received.left());
        let recycled = fill.reserve(received.left());
        let send = match &mut out {
            Some(out) => out.tx.reserve(received.left()),
            None => Cursor::NONE,
        };
        let lent = fill.lent_chunks(area);
        Self {
            rx,
            out,
            fill,
            cache,
            lent,
            memory: area.memory(),
            received,
            recycled,
            send,
            frames: 0,
        }
    }

    /// Packets left in the batch.
    #[inline]
    pub fn len(&self) -> usize {
        self.received.left() as usize
    }

    /// Whether no packet is left in the batch.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.received.left() == 0
    }

    /// The next packet. Descriptors of chunks that were not lent for receiving on this queue are
    /// skipped and counted in [`Statistics::invalid_descs`](crate::Statistics::invalid_descs).
    #[inline(always)]
    pub fn next_packet(&mut self) -> Option<Packet<'_, 's>> {
        let rx = self.rx.as_deref_mut()?;
        for index in self.received.by_ref() {
            // Beyond the batch this is an old descriptor, or a forged one: no harm to a prefetch.
            let ahead = rx.slot(index.wrapping_add(PREFETCH)).addr();
            self.memory.prefetch(ahead);
            let (addr, len) = rx.slot(index).packet();
            if self.lent.has(addr, len) {
                return Some(Packet {
                    addr,
                    len,
                    batch: self,
                });
            }
            self.fill.reject(addr, self.cache);
        }
        None
    }

    /// Allocates a frame, as [`Socket::alloc`](crate::Socket::alloc) does.
    #[inline]
    pub fn alloc(&mut self) -> Option<Frame> {
        if let Some(out) = &mut self.out
            && self.cache.len() == 0
        {
            out.completion.reclaim_sent(self.cache);
        }
        self.cache.take().map(Frame::empty)
    }

    /// Puts a frame into the TX ring, as [`Socket::send`](crate::Socket::send) does.
    ///
    /// # Errors
    ///
    /// Same as [`Socket::send`](crate::Socket::send).
    pub fn send(&mut self, frame: Frame) -> Result<(), SendError<Frame>> {
        self.stage_sent();
        let out = self.out.as_mut();
        if let Some(out) = out {
            self.send = out.tx.reserve(self.received.left() + 1);
        }
        let extent = frame.extent();
        if let Some(kind) = cannot_send(self.out.as_mut(), frame.umem(), extent.len) {
            return Err(SendError {
                packet: frame,
                kind,
            });
        }
        if let (Some(out), Some(slot)) = (&mut self.out, self.send.next()) {
            let chunk_addr = frame.into_chunk().lend_to_send(out.completion.id());
            let addr = chunk_addr + u64::from(extent.offset);
            out.tx.slot(slot).write_packet(addr, extent.len);
            self.frames += 1;
        }
        Ok(())
    }

    /// Hands the TX slots written so far to the ring, and counts their chunks.
    #[inline(always)]
    fn stage_sent(&mut self) {
        if let Some(out) = &mut self.out {
            let frames = std::mem::take(&mut self.frames);
            stage_sent(out, self.fill, &self.send, frames);
        }
    }
}

#[inline(always)]
fn stage_sent(out: &mut Outgoing<'_>, fill: &mut FillRing, slots: &Cursor, frames: u32) {
    let sent = out.tx.stage(slots);
    out.completion.sent(sent);
    fill.forwarded(sent - frames);
}

impl Drop for RxBatch<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let take = |cursor: &mut Cursor| std::mem::replace(cursor, Cursor::NONE);
        end(
            self.rx.take(),
            self.out.take(),
            self.fill,
            self.cache,
            self.lent,
            [
                take(&mut self.received),
                take(&mut self.recycled),
                take(&mut self.send),
            ],
            self.frames,
        );
    }
}

/// Ends a batch. Outlined, and all by value, so that the batch's cursors stay in registers.
#[inline(never)]
fn end(
    rx: Option<&mut RxRing>,
    out: Option<Outgoing<'_>>,
    fill: &mut FillRing,
    cache: &mut Cache,
    lent: LentChunks<'_>,
    [received, mut recycled, send]: [Cursor; 3],
    frames: u32,
) {
    if let Some(rx) = rx {
        if received.left() > 0 {
            recycled = recycle_unread(rx, fill, cache, lent, received, recycled);
        }
        rx.release();
    }
    if let Some(mut out) = out {
        stage_sent(&mut out, fill, &send, frames);
    }
    fill.publish(&recycled);
}

/// Lends the chunks of unread packets for receiving again.
#[inline(never)]
fn recycle_unread(
    rx: &RxRing,
    fill: &mut FillRing,
    cache: &mut Cache,
    lent: LentChunks<'_>,
    mut received: Cursor,
    mut recycled: Cursor,
) -> Cursor {
    while received.left() > 0 {
        let packets = rx.run(&received);
        let mut read = 0;
        let mut written = 0;
        for (packet, slot) in packets.iter().zip(fill.ring().run(&recycled)) {
            let (addr, len) = packet.packet();
            if !lent.has(addr, len) {
                break;
            }
            slot.write(lent.start(addr));
            read += 1;
            written = read;
        }
        received.advance(read);
        recycled.advance(written);
        if let Some(index) = received.next() {
            // No slot next to the last, or none at all, or no such chunk.
            let (addr, len) = rx.slot(index).packet();
            if lent.has(addr, len) {
                fill.recycle(lent.start(addr), &mut recycled, cache);
            } else {
                fill.reject(addr, cache);
            }
        }
    }
    recycled
}
