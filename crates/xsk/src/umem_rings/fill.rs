//! The FILL ring, and the chunks lent for receiving.

use super::RxRing;
use super::completion::CompletionRing;
use crate::counter::Counter;
#[cfg(xsk_internals)]
use crate::ring::RawRing;
use crate::ring::{Cursor, Mapped, Producer, Size};
use crate::umem::{Area, Burst, Cache, Chunk, LentChunks, RingsId, UNALIGNED, Umem};
use std::time::{Duration, Instant};

/// A FILL ring, and the chunks that are lent through it.
#[derive(Debug)]
pub(crate) struct FillRing {
    umem: Umem,
    id: RingsId,
    /// The same, for a batch; that of no chunk where they are unaligned.
    in_batches: RingsId,
    /// The number of the last burst.
    burst: u32,
    /// The device's queue that it serves.
    queue: u32,
    ring: Producer<u64, Mapped<u64>>,
    /// Chunks to lend, and those that are lent.
    target: u32,
    lent: u32,
    /// Descriptors of chunks that were not lent here.
    invalid_descs: Counter,
    /// Packets of several chunks that were dropped; see [`drop_fragmented`](Self::drop_fragmented).
    fragmented: Counter,
    /// Whether the XDP program writes hints in front of packets.
    hints: bool,
    /// Whether a driver takes chunks ahead of packets, and asks for a wake-up when it gets none.
    zero_copy: bool,
    /// FILL as it was last looked at, and the first time that it was found like that.
    looked_at: Option<(Entries, Instant)>,
}

/// The entries of FILL: those written so far, and those of them that the driver has not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entries {
    written: u32,
    untaken: u32,
}

impl FillRing {
    /// A ring through which no chunk is lent yet.
    pub(crate) fn new(
        umem: &Umem,
        id: RingsId,
        queue: u32,
        ring: Producer<u64, Mapped<u64>>,
        target: u32,
    ) -> Self {
        Self {
            umem: umem.clone(),
            id,
            in_batches: if umem.unaligned() { RingsId::NONE } else { id },
            burst: 0,
            queue,
            target: target.min(ring.size()),
            ring,
            lent: 0,
            invalid_descs: Counter::default(),
            fragmented: Counter::default(),
            hints: false,
            zero_copy: false,
            looked_at: None,
        }
    }

    /// The ring of a socket of another process, through which `lent` chunks are lent.
    pub(crate) fn with_lent(self, lent: u32) -> Self {
        Self { lent, ..self }
    }

    /// Whether the XDP program writes hints in front of packets.
    pub(crate) fn has_hints(&self) -> bool {
        self.hints
    }

    /// Says that it does.
    pub(crate) fn set_hints(&mut self, hints: bool) {
        self.hints = hints;
    }

    /// Says that the socket is in zero-copy mode.
    pub(crate) fn set_zero_copy(&mut self, zero_copy: bool) {
        self.zero_copy = zero_copy;
    }

    /// Chunks to lend.
    pub(crate) fn target(&self) -> u32 {
        self.target
    }

    /// Chunks lent for receiving: in FILL, in the kernel, in RX, or in a batch.
    #[cfg(any(test, xsk_internals))]
    pub(crate) fn lent(&self) -> u32 {
        self.lent
    }

    /// Descriptors of chunks that were not lent here, since the socket was opened.
    pub(crate) fn invalid_descs(&self) -> &Counter {
        &self.invalid_descs
    }

    /// Packets of several chunks that were dropped, since the socket was opened.
    pub(crate) fn fragmented(&self) -> &Counter {
        &self.fragmented
    }

    /// Counts one: read as a packet of one chunk, or of more chunks than a packet can have, or with an invalid one.
    pub(crate) fn drop_fragmented(&mut self) {
        self.fragmented += 1;
    }

    /// Reads of an impossible kernel index.
    pub(crate) fn invalid_indices(&self) -> &Counter {
        self.ring.invalid_indices()
    }

    /// Whether the kernel has taken none of the entries.
    pub(crate) fn is_unread(&mut self) -> bool {
        self.ring.pending() == self.lent
    }

    /// Changes the number of chunks to lend.
    pub(crate) fn set_target(&mut self, target: u32) {
        self.target = target.min(self.ring.size());
    }

    /// The number of chunks that it lacks.
    #[cfg(xsk_internals)]
    pub(crate) fn lacking(&self) -> u32 {
        self.target.saturating_sub(self.lent)
    }

    /// Goes on after such code, which has published what it wrote, and taken `received` packets from RX.
    #[cfg(xsk_internals)]
    pub(crate) fn go_on(&mut self, raw: &RawRing, received: u32) {
        let lent = self.ring.go_on(raw, true);
        self.lent = self.lent.wrapping_add(lent).wrapping_sub(received);
    }

    /// Whether so few chunks are lent for receiving that packets may stop arriving.
    #[inline]
    pub(crate) fn starves(&self) -> bool {
        self.lent < self.target.div_ceil(4)
    }

    /// Whether as many chunks are lent as should be.
    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.lent >= self.target
    }

    /// Whether the kernel asks for a wake-up, and has entries to read. A request can be missed, and is
    /// seen the next time.
    #[inline(always)]
    pub(crate) fn asks_for_wakeup(&mut self) -> bool {
        self.ring.asks_for_wakeup() && self.has_entries()
    }

    #[cold]
    #[inline(never)]
    fn has_entries(&mut self) -> bool {
        self.ring.pending() > 0
    }

    /// The longest sleep after which a driver's request for a wake-up is seen in time, at least `least`; `None`
    /// if there can be none.
    ///
    /// Drivers (i40e, ice, igb, ixgbe, mlx5) fail to get a chunk, and set the flag a moment later, without
    /// looking at FILL again. Entries written in between are not seen by the driver, nor the flag by a program
    /// that looked before; and a card without chunks receives nothing that could wake either. So entries that
    /// were not taken are looked at again, and again after twice the time: the driver's moment, which may be
    /// long if its CPU has other work, at most doubles, and an idle socket ceases to look.
    pub(crate) fn look_again_after(&mut self, now: Instant, least: Duration) -> Option<Duration> {
        let entries = Entries {
            written: self.ring.next(),
            untaken: self.ring.pending(),
        };
        if !self.zero_copy || entries.untaken == 0 {
            return None;
        }
        let since = match self.looked_at {
            Some((before, since)) if before == entries => since,
            _ => now,
        };
        self.looked_at = Some((entries, since));
        Some(now.saturating_duration_since(since).max(least))
    }

    /// Whether the kernel needs a wake-up for new entries.
    #[inline]
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }

    /// Lends free chunks until the target is met, FILL is full, or no chunk is free.
    #[inline(always)]
    pub(crate) fn refill(&mut self, cache: &mut Cache) {
        if !self.is_full() {
            let mut slots = self.ring.reserve(self.target - self.lent);
            self.refill_from(cache, &mut slots);
            self.publish(&slots);
        }
    }

    /// Lends completed chunks, then free ones, until the target is met, FILL is full, or no chunk is
    /// free.
    #[inline(always)]
    pub(super) fn refill_with(&mut self, completion: &mut CompletionRing, cache: &mut Cache) {
        let mut slots = self.ring.reserve(self.target - self.lent);
        self.lent += completion.refill(&self.ring, &mut slots, cache);
        if slots.left() > 0 {
            self.refill_from(cache, &mut slots);
        }
        self.publish(&slots);
    }

    #[inline(never)]
    fn refill_from(&mut self, cache: &mut Cache, slots: &mut Cursor) {
        match cache.area().chunk_shift() {
            11 => self.refill_sized::<11>(cache, slots),
            12 => self.refill_sized::<12>(cache, slots),
            _ => self.refill_sized::<UNALIGNED>(cache, slots),
        }
    }

    #[inline(always)]
    fn refill_sized<const SHIFT: u32>(&mut self, cache: &mut Cache, slots: &mut Cursor) {
        // A cache may be smaller than the ring.
        while slots.left() > 0 {
            let run = self.ring.run(slots);
            let lent = cache.lend_to_receive::<SHIFT>(run, self.id) as u32;
            if lent == 0 {
                break;
            }
            slots.advance(lent);
            self.lent += lent;
        }
    }

    /// The chunks that are lent here, as a batch finds them: none of them where they are unaligned.
    #[inline(always)]
    pub(crate) fn lent_chunks<'a>(&self, area: &'a Area) -> LentChunks<'a> {
        area.lent_to_receive(Burst::new(self.in_batches, self.burst))
    }

    /// Starts the next burst. Of the last chunks lent again, none may come a second time before they are published.
    #[inline(always)]
    pub(crate) fn start_burst(&mut self) {
        if self.burst == Burst::LAST {
            self.umem.area().forget_bursts(self.id);
            self.burst = 0;
        }
        self.burst += 1;
    }

    /// The present burst, or the last.
    #[inline(always)]
    pub(crate) fn burst(&self) -> Burst {
        Burst::new(self.id, self.burst)
    }

    /// Drops the packet that begins in the first of the slots, which names no packet of one aligned chunk lent here. It is
    /// dropped whole, so that no part of it is taken for a packet, and whichever of its descriptors are invalid. Returns
    /// the number of its slots.
    // "C" because it does not unwind: otherwise the callers' cursors could not stay in registers.
    #[cold]
    #[inline(never)]
    #[expect(improper_ctypes_definitions, reason = "no C code calls it")]
    pub(crate) extern "C" fn drop_packet(
        &mut self,
        rx: &RxRing,
        mut slots: Cursor,
        cache: &mut Cache,
    ) -> u32 {
        let (mut parts, mut goes_on, mut is_valid) = (0, true, false);
        while goes_on && let Some(index) = slots.next() {
            let (addr, size) = rx.slot(index).packet();
            goes_on = size.goes_on();
            is_valid = self.drop_part(addr, size, cache);
            parts += 1;
        }
        // Only a broken ring has packets without an end.
        if parts > 1 || goes_on || is_valid {
            self.drop_fragmented();
        }
        parts
    }

    /// Frees the chunk of a part of a packet; returns whether its descriptor was valid.
    fn drop_part(&mut self, addr: u64, size: Size, cache: &mut Cache) -> bool {
        let (area, burst) = (cache.area(), self.burst());
        let is_there = area.unread_at(burst, addr, size.without_options());
        if is_there.is_none() || !size.has_known_options() {
            self.reject(addr, cache);
            return false;
        }
        self.free_received(addr, cache)
    }

    /// Counts a descriptor of a chunk that was not lent here, or of a packet outside its chunk, which is free then.
    pub(crate) fn reject(&mut self, addr: u64, cache: &mut Cache) {
        self.free_received(addr, cache);
        self.invalid_descs += 1;
    }

    /// Frees the chunk that an address lies in; false when it is not lent here, or a packet of the burst is in it.
    pub(crate) fn free_received(&mut self, addr: u64, cache: &mut Cache) -> bool {
        let Some(chunk) = self.umem.unread(addr, self.burst()) else {
            return false;
        };
        self.lent -= 1;
        cache.put(chunk);
        true
    }

    /// Frees the chunk of a packet that is dropped.
    #[cold]
    #[inline(never)]
    pub(crate) extern "C" fn keep_received(&mut self, addr: u64, cache: &mut Cache) {
        let chunk = self.take_received(addr);
        cache.put(chunk);
    }

    /// Takes ownership of a chunk that [`lent_chunks`](Self::lent_chunks) contains.
    #[inline(always)]
    pub(crate) fn take_received(&mut self, addr: u64) -> Chunk {
        self.lent -= 1;
        let chunk = self.umem.received(addr, self.id);
        chunk.expect("the chunk is still lent for receiving")
    }

    /// Lends the chunk of a received packet for receiving again. Its entry need not change.
    #[inline(always)]
    pub(crate) fn recycle(&mut self, chunk_addr: u64, slots: &mut Cursor, cache: &mut Cache) {
        match slots.next() {
            Some(slot) => self.ring.write_at(slot, chunk_addr),
            None => self.keep_received(chunk_addr, cache),
        }
    }

    /// Slots for [`recycle`](Self::recycle).
    #[inline(always)]
    pub(crate) fn reserve(&mut self, want: u32) -> Cursor {
        self.ring.reserve(want)
    }

    /// The ring, to write runs of recycled chunks.
    #[inline(always)]
    pub(crate) fn ring(&self) -> &Producer<u64, Mapped<u64>> {
        &self.ring
    }

    /// Publishes the recycled chunks.
    #[inline(always)]
    pub(crate) fn publish(&mut self, recycled: &Cursor) {
        self.ring.stage(recycled);
        self.ring.publish();
    }

    /// The pair of rings that this one belongs to.
    #[inline(always)]
    pub(crate) fn id(&self) -> RingsId {
        self.id
    }

    /// Writes a slot of those reserved.
    #[inline(always)]
    pub(crate) fn write_at(&mut self, slot: u32, chunk_addr: u64) {
        self.ring.write_at(slot, chunk_addr);
    }

    /// Publishes the recycled chunks of a pass that has read `received` packets, without those that were dropped here.
    #[inline(always)]
    pub(crate) fn end_pass(&mut self, recycled: &Cursor, received: u32) {
        let again = self.ring.stage(recycled);
        self.ring.publish();
        // What came and was not lent again.
        self.lent -= received - again;
    }

    /// Whether its chunks are unaligned.
    #[inline(always)]
    pub(crate) fn is_unaligned(&self) -> bool {
        self.in_batches == RingsId::NONE
    }

    /// The device's queue that it serves.
    #[inline]
    pub(crate) fn queue(&self) -> u32 {
        self.queue
    }

    /// Counts packets whose chunks were forwarded.
    #[inline(always)]
    pub(crate) fn forwarded(&mut self, packets: u32) {
        self.lent -= packets;
    }
}
