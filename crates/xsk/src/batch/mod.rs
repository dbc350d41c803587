//! Received packets, borrowed from the socket one by one.

mod iterator;
mod packet;

pub use packet::Packet;

use crate::fragments::Fragments;
use crate::frame::Frame;
use crate::ring::{Cursor, Size};
use crate::umem::{Area, Cache, Extent, LentChunks, Memory};
use crate::umem_rings::{CompletionRing, FillRing, Outgoing, RxRing, frame_sending_methods};

/// Packets ahead of the one returned whose first bytes are loaded into the CPU's caches: a miss takes
/// as long as a few packets.
pub(crate) const PREFETCH: u32 = 4;

/// The packets of one read of the RX ring; see [`Socket::recv`](crate::Socket::recv).
///
/// It is an iterator of packets that the program [owns](crate::OwnedPacket), which can be held together, and dropped in any
/// order:
///
/// ```no_run
/// # fn main() -> xsk::Result<()> {
/// # let umem = xsk::Umem::builder().build()?;
/// # let mut socket = xsk::Socket::builder(&umem, "eth0", 0).open()?;
/// for packet in socket.recv(64) {
///     println!("{} bytes", packet.len());
/// }
/// # Ok(())
/// # }
/// ```
///
/// [`next_packet`](Self::next_packet) takes fewer instructions: it borrows the packets one after the other, and those that
/// are neither sent nor kept go back to FILL with the batch. [The guide](crate::guide::bursts) compares the two.
/// Dropping the batch releases the ring's slots to the kernel, and drops the packets that are left in it. A batch that is
/// forgotten ([`std::mem::forget`]) loses the chunks of its packets for the socket, and transmits none of those that were
/// sent from it since.
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
///
/// It can move to another thread, so a task can hold a packet while it waits:
///
/// ```
/// # async fn is_wanted(_: &[u8]) -> bool { true }
/// async fn forward(mut socket: xsk::Socket) -> xsk::Result<()> {
///     let mut batch = socket.recv(64);
///     while let Some(packet) = batch.next_packet() {
///         if is_wanted(&packet).await {
///             // When the TX ring is full, the packet is dropped.
///             let _ = packet.send();
///         }
///     }
///     drop(batch);
///     socket.flush()
/// }
///
/// // As `tokio::spawn` has it.
/// fn spawn(_: impl Future<Output = xsk::Result<()>> + Send + 'static) {}
/// # #[expect(unused)]
/// fn start(socket: xsk::Socket) {
///     spawn(forward(socket));
/// }
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
    /// TX slots for packets forwarded.
    send: Cursor,
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
        let received = match &mut rx {
            None => Cursor::NONE,
            Some(rx) if area.fragments() => rx.peek_packets(max, goes_on),
            Some(rx) => rx.peek(max),
        };
        if received.left() > 0 {
            fill.start_burst();
        }
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

    /// The next packet of one chunk. Descriptors of chunks that were not lent for receiving on this queue, or that
    /// the batch has had already, are skipped and counted in [`Statistics::invalid_descs`](crate::Statistics::invalid_descs), packets
    /// of several chunks, or in an [unaligned](crate::UmemBuilder::unaligned) one, in
    /// [`Statistics::fragmented`](crate::Statistics::fragmented): with those, call
    /// [`next_fragments`](Self::next_fragments).
    #[inline(always)]
    pub fn next_packet(&mut self) -> Option<Packet<'_, 's>> {
        let rx = self.rx.as_deref_mut()?;
        while let Some(index) = self.received.next() {
            // Beyond the batch this is an old descriptor, or a forged one: no harm to a prefetch.
            let ahead = rx.slot(index.wrapping_add(PREFETCH)).addr();
            self.memory.prefetch(ahead);
            let (addr, size) = rx.slot(index).packet();
            if self.lent.mark_read(addr, size) {
                return Some(Packet {
                    addr,
                    len: size.len(),
                    batch: self,
                });
            }
            let slots = Cursor {
                next: index,
                end: self.received.end,
            };
            let parts = self.fill.drop_packet(rx, slots, self.cache);
            self.received.next = index.wrapping_add(parts);
        }
        None
    }

    /// The next packet, of one chunk or several, as an owned one. Packets with an invalid descriptor, or of
    /// more than [`MAX_FRAGMENTS`](crate::MAX_FRAGMENTS), are skipped and counted.
    ///
    /// ```no_run
    /// # fn main() -> xsk::Result<()> {
    /// # let umem = xsk::Umem::builder().fragments(true).build()?;
    /// # let mut socket = xsk::Socket::builder(&umem, "eth0", 0).open()?;
    /// let mut batch = socket.recv(64);
    /// while let Some(packet) = batch.next_fragments() {
    ///     println!("{} bytes in {} chunks", packet.len(), packet.frames().len());
    ///     // When the TX ring is full, the packet is dropped.
    ///     let _ = batch.send_fragments(packet);
    /// }
    /// drop(batch);
    /// socket.flush()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn next_fragments(&mut self) -> Option<Fragments> {
        loop {
            let mut packet = Fragments::new();
            if self.take_packet(&mut packet)? {
                if self.fill.has_hints() {
                    packet.read_hints();
                }
                return Some(packet);
            }
            for frame in packet.into_frames() {
                self.cache.put(frame.into_chunk());
            }
        }
    }

    /// Takes the chunks of the next packet; returns whether it is whole, and `None` when there is no other.
    fn take_packet(&mut self, packet: &mut Fragments) -> Option<bool> {
        let first = self.received.next;
        let (mut whole, mut more) = (true, true);
        while more && let Some(index) = self.received.next() {
            let (addr, size) = self.rx.as_deref()?.slot(index).packet();
            more = size.goes_on();
            whole &= self.take_fragment(addr, size, packet);
        }
        let read = self.received.next.wrapping_sub(first);
        // Only a broken ring has packets without an end.
        let whole = whole && !more;
        if !whole && (read > 1 || read == 1 && more) {
            self.fill.drop_fragmented();
        }
        (read > 0).then_some(whole)
    }

    /// Takes the chunk of a descriptor; false when it has none, or the packet has no room for it.
    fn take_fragment(&mut self, addr: u64, size: Size, packet: &mut Fragments) -> bool {
        let area = self.cache.area();
        let found = area.unread_at(self.fill.burst(), addr, size.without_options());
        let Some(addr) = found.filter(|_| size.has_known_options()) else {
            self.fill.reject(addr, self.cache);
            return false;
        };
        let extent = Extent {
            offset: (addr - area.chunk_start(addr)) as u32,
            len: size.len(),
        };
        // From here on a second descriptor of this chunk is invalid.
        let chunk = self.fill.take_received(addr);
        match packet.push(Frame::new(chunk, extent)) {
            Ok(()) => true,
            Err(frame) => {
                self.cache.put(frame.into_chunk());
                false
            }
        }
    }

    frame_sending_methods!();

    #[inline(always)]
    fn free_chunks(&mut self) -> (Option<&mut CompletionRing>, &mut Cache) {
        let completion = self.out.as_mut().map(|out| &mut *out.completion);
        (completion, self.cache)
    }

    /// Sends by the rings themselves, between packets of the batch.
    #[inline(always)]
    fn with_outgoing<R>(&mut self, send: impl FnOnce(Option<Outgoing<'_>>) -> R) -> R {
        self.stage_sent();
        let result = send(self.out.as_mut().map(Outgoing::reborrow));
        if let Some(out) = &mut self.out {
            // One for the packet at hand, too.
            self.send = out.tx.reserve(self.received.left() + 1);
        }
        result
    }

    /// Hands the TX slots written so far to the ring, and counts their chunks.
    #[inline(always)]
    fn stage_sent(&mut self) {
        if let Some(out) = &mut self.out {
            stage_sent(out, self.fill, &self.send);
        }
    }
}

/// Whether a packet goes on behind a slot of RX.
pub(crate) fn goes_on(rx: &RxRing, index: u32) -> bool {
    rx.slot(index).packet().1.goes_on()
}

#[inline(always)]
fn stage_sent(out: &mut Outgoing<'_>, fill: &mut FillRing, slots: &Cursor) {
    let sent = out.tx.stage(slots);
    out.completion.sent(sent);
    fill.forwarded(sent);
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
) {
    if let Some(rx) = rx {
        if received.left() > 0 {
            recycled = recycle_unread(rx, fill, cache, lent, received, recycled);
        }
        rx.release();
    }
    if let Some(mut out) = out {
        stage_sent(&mut out, fill, &send);
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
            let (addr, size) = packet.packet();
            if !lent.mark_read(addr, size.without_options()) {
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
            let (addr, size) = rx.slot(index).packet();
            if lent.mark_read(addr, size.without_options()) {
                fill.recycle(lent.start(addr), &mut recycled, cache);
            } else if fill.is_unaligned() && fill.free_received(addr, cache) {
                // Not before it is refilled.
            } else {
                fill.reject(addr, cache);
            }
        }
    }
    recycled
}
