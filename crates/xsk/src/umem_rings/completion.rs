//! The COMPLETION ring, the chunks lent for sending, and sending a frame.

use super::TxRing;
use crate::counter::Counter;
use crate::delay::{self, Point};
use crate::fragments::Fragments;
use crate::frame::Frame;
#[cfg(xsk_internals)]
use crate::ring::RawRing;
use crate::ring::{Consumer, Cursor, Mapped, Producer};
use crate::send_error::{SendError, SendErrorKind};
use crate::sys::{Desc, XDP_PKT_CONTD, XDP_TX_METADATA};
use crate::tx_metadata::{Requests, TxRequest, TxSupport, TxTimestamp};
use crate::umem::{Cache, Extent, RingsId, TX_METADATA_LEN, UNALIGNED, Umem};

/// The way to reclaim chunks while packets are on their way whose time was requested.
const ONE_BY_ONE: u32 = u32::MAX;

/// A COMPLETION ring, and the chunks whose packets complete through it.
#[derive(Debug)]
pub(crate) struct CompletionRing {
    umem: Umem,
    id: RingsId,
    /// When each packet has metadata.
    requests: Option<Box<Requests>>,
    /// How chunks are reclaimed: by the log2 of their size, or [`ONE_BY_ONE`].
    way: u32,
    pub(crate) ring: Consumer<u64, Mapped<u64>>,
    /// Chunks lent for sending.
    lent: u32,
    completed: Counter,
    /// Completions of chunks that were not lent here.
    invalid_descs: Counter,
}

/// A TX ring and the COMPLETION ring of its queue.
#[derive(Debug)]
pub(crate) struct Outgoing<'s> {
    pub(crate) tx: &'s mut TxRing,
    pub(crate) completion: &'s mut CompletionRing,
}

impl CompletionRing {
    /// A ring of a queue through which no chunk is lent yet.
    pub(crate) fn new(umem: &Umem, id: RingsId, ring: Consumer<u64, Mapped<u64>>) -> Self {
        Self {
            umem: umem.clone(),
            id,
            requests: umem.tx_metadata().then(Box::default),
            way: umem.area().chunk_shift(),
            ring,
            lent: 0,
            completed: Counter::default(),
            invalid_descs: Counter::default(),
        }
    }

    /// The ring of a socket of another process, through which `lent` chunks are lent.
    pub(crate) fn with_lent(self, lent: u32) -> Self {
        Self { lent, ..self }
    }

    pub(crate) fn umem(&self) -> &Umem {
        &self.umem
    }

    /// Chunks lent for sending: in TX, in the kernel, or in COMPLETION.
    #[inline(always)]
    pub(crate) fn lent(&self) -> u32 {
        self.lent
    }

    /// Chunks reclaimed since the socket was opened.
    pub(crate) fn completed(&self) -> &Counter {
        &self.completed
    }

    /// Completions of chunks that were not lent here, since the socket was opened.
    pub(crate) fn invalid_descs(&self) -> &Counter {
        &self.invalid_descs
    }

    /// Reads of an impossible kernel index.
    pub(crate) fn invalid_indices(&self) -> &Counter {
        self.ring.invalid_indices()
    }

    /// Goes on after other code, which has put `sent` packets into TX, and taken chunks from this ring.
    #[cfg(xsk_internals)]
    pub(crate) fn go_on(&mut self, raw: &RawRing, sent: u32) {
        let returned = self.ring.go_on(raw);
        self.lent = self.lent.wrapping_add(sent).wrapping_sub(returned);
        self.completed += u64::from(returned);
    }

    /// Reclaims completed chunks, if packets are on their way.
    #[inline(always)]
    pub(crate) fn reclaim_sent(&mut self, cache: &mut Cache) {
        if self.lent > 0 {
            self.reclaim(cache);
        }
    }

    /// Sets the requests that can be sent with packets.
    pub(crate) fn set_support(&mut self, support: TxSupport) {
        if let Some(requests) = &mut self.requests {
            requests.support = support;
        }
    }

    /// The requests that can be sent with packets.
    pub(crate) fn support(&self) -> TxSupport {
        let requests = self.requests.as_ref();
        requests.map_or_else(TxSupport::default, |it| it.support)
    }

    /// The oldest timestamp that was not taken yet.
    pub(crate) fn take_timestamp(&mut self) -> Option<TxTimestamp> {
        self.requests.as_mut()?.take()
    }

    /// Timestamps that were not written, or not taken in time.
    pub(crate) fn lost_timestamps(&self) -> Option<&Counter> {
        self.requests.as_ref().map(|it| it.lost())
    }

    /// Keeps completed chunks, after a look whether the time was requested at which their packets were sent.
    #[cold]
    #[inline(never)]
    fn keep_one_by_one(&mut self, completions: &mut Cursor, cache: &mut Cache) -> u32 {
        let mut kept = 0;
        for index in completions {
            let addr = self.ring.slot(index).read();
            if let Some(chunk) = self.umem.completed(addr, self.id) {
                if let Some(requests) = &mut self.requests {
                    requests.completed(&chunk);
                }
                cache.put(chunk);
                kept += 1;
            }
        }
        if self.requests.as_ref().is_none_or(|it| !it.are_waiting()) {
            self.way = self.umem.area().chunk_shift();
        }
        kept
    }

    /// Reclaims completed chunks. Returns the number of completions.
    #[inline(always)]
    pub(crate) fn reclaim(&mut self, cache: &mut Cache) -> u32 {
        let mut completions = self.ring.peek(u32::MAX);
        let count = completions.left();
        if count > 0 {
            delay::at(Point::Reclaim);
            let kept = match self.way {
                11 => self.keep::<11>(&mut completions, cache),
                12 => self.keep::<12>(&mut completions, cache),
                ONE_BY_ONE => self.keep_one_by_one(&mut completions, cache),
                _ => self.keep::<UNALIGNED>(&mut completions, cache),
            };
            self.end_pass(count, kept);
        }
        count
    }

    // Not inlined, so that all its places are in registers.
    #[inline(never)]
    fn keep<const SHIFT: u32>(&mut self, completions: &mut Cursor, cache: &mut Cache) -> u32 {
        let mut kept = 0;
        while completions.left() > 0 {
            let slots = self.ring.run(completions);
            // As many as fit into any cache beside those that the next packets take.
            let most = slots.len().min(cache.capacity());
            let taken = cache.take_back::<SHIFT>(&slots[..most], self.id);
            kept += taken as u32;
            // The one behind those was not lent.
            completions.advance(if taken < most { taken + 1 } else { taken } as u32);
        }
        kept
    }

    /// Lends completed chunks for receiving, as many as `slots` of FILL there are; the others go to
    /// the cache. Returns the number of slots written.
    #[inline(always)]
    pub(super) fn refill(
        &mut self,
        fill: &Producer<u64, Mapped<u64>>,
        slots: &mut Cursor,
        cache: &mut Cache,
    ) -> u32 {
        match self.way {
            11 => self.refill_sized::<11>(fill, slots, cache),
            12 => self.refill_sized::<12>(fill, slots, cache),
            ONE_BY_ONE => {
                self.reclaim(cache);
                0
            }
            _ => self.refill_sized::<UNALIGNED>(fill, slots, cache),
        }
    }

    #[inline(never)]
    fn refill_sized<const SHIFT: u32>(
        &mut self,
        fill: &Producer<u64, Mapped<u64>>,
        slots: &mut Cursor,
        cache: &mut Cache,
    ) -> u32 {
        let mut completions = self.ring.peek(u32::MAX);
        let count = completions.left();
        if count == 0 {
            return 0;
        }
        let sent = cache.area().owned_by::<SHIFT>(self.id.sending());
        let mut lent = 0;
        while completions.left() > 0 && slots.left() > 0 {
            let (from, to) = (self.ring.run(&completions), fill.run(slots));
            let most = from.len().min(to.len());
            let moved = sent.give_runs(&from[..most], &to[..most], self.id.receiving());
            lent += moved as u32;
            slots.advance(moved as u32);
            // The one behind those was not lent.
            completions.advance(if moved < most { moved + 1 } else { moved } as u32);
        }
        let kept = self.keep::<SHIFT>(&mut completions, cache);
        self.end_pass(count, lent + kept);
        lent
    }

    #[inline(always)]
    fn end_pass(&mut self, completions: u32, returned: u32) {
        self.ring.release();
        #[cfg(xsk_broken = "completion_counted_twice")]
        let (completions, returned) = (completions + returned, 2 * returned);
        // The packets forwarded from a forgotten batch were not counted.
        self.lent = self.lent.saturating_sub(returned);
        self.completed += u64::from(returned);
        if completions != returned {
            self.invalid_descs += u64::from(completions - returned);
        }
    }

    /// The pair of rings that this one belongs to.
    #[inline(always)]
    pub(crate) fn id(&self) -> RingsId {
        self.id
    }

    /// Counts packets whose chunks were lent for sending.
    #[inline(always)]
    pub(crate) fn sent(&mut self, packets: u32) {
        self.lent += packets;
    }
}

/// The reason that a packet cannot be sent; `None` when it can.
#[inline(always)]
pub(crate) fn cannot_send(
    out: Option<&mut Outgoing<'_>>,
    umem: &Umem,
    len: u32,
) -> Option<SendErrorKind> {
    let Some(out) = out else {
        return Some(SendErrorKind::NoRing);
    };
    if !umem.is(&out.completion.umem) {
        Some(SendErrorKind::Foreign)
    } else if len == 0 {
        Some(SendErrorKind::Empty)
    } else if out.tx.free(1) == 0 {
        Some(SendErrorKind::Full)
    } else {
        None
    }
}

/// The reason that a packet cannot be sent with a request; `None` when it can.
pub(crate) fn cannot_send_with(
    mut out: Option<&mut Outgoing<'_>>,
    umem: &Umem,
    at: Extent,
    request: &TxRequest,
) -> Option<SendErrorKind> {
    cannot_send(out.as_deref_mut(), umem, at.len).or_else(|| cannot_request(out?, at, request))
}

/// The reason that nothing can be asked for a packet whose first bytes are there; `None` when it can.
fn cannot_request(out: &Outgoing<'_>, at: Extent, request: &TxRequest) -> Option<SendErrorKind> {
    if *request == TxRequest::new() {
        return None;
    }
    let Some(requests) = &out.completion.requests else {
        return Some(SendErrorKind::NoMetadata);
    };
    if !requests.support.has(request) {
        Some(SendErrorKind::Unsupported)
    } else if !request.fits(at.len) {
        Some(SendErrorKind::Checksum)
    } else if at.offset < TX_METADATA_LEN {
        Some(SendErrorKind::NoHeadroom)
    } else {
        None
    }
}

/// Lends the chunk of a packet that can be sent so, with its request written; returns its descriptor.
fn lend_with(out: &mut Outgoing<'_>, frame: Frame, request: &TxRequest) -> Desc {
    let Extent { offset, len } = frame.extent();
    let (mut chunk, mut options) = (frame.into_chunk(), 0);
    if *request != TxRequest::new()
        && let Some(requests) = &mut out.completion.requests
    {
        let metadata = Extent {
            offset: offset - TX_METADATA_LEN,
            len: TX_METADATA_LEN,
        };
        request.write(chunk.bytes_mut(metadata));
        requests.sent(chunk.addr(), metadata, request);
        if requests.are_waiting() {
            out.completion.way = ONE_BY_ONE;
        }
        options = XDP_TX_METADATA;
    }
    let addr = chunk.lend_to_send(out.completion.id) + u64::from(offset);
    Desc { addr, len, options }
}

impl Outgoing<'_> {
    /// The same rings, for a part of the time.
    #[inline(always)]
    pub(crate) fn reborrow(&mut self) -> Outgoing<'_> {
        Outgoing {
            tx: self.tx,
            completion: self.completion,
        }
    }

    /// Publishes the slots of TX. Where packets have metadata, the drivers of many kernels read it in front of
    /// each zero-copy packet, whether its descriptor says so or not (before 6.18.52).
    #[inline(always)]
    pub(crate) fn publish(&mut self) {
        if self.completion.requests.is_some() {
            self.clear_metadata();
        }
        self.tx.publish();
    }

    #[cold]
    #[inline(never)]
    fn clear_metadata(&self) {
        for index in self.tx.unpublished() {
            let Desc { addr, options, .. } = self.tx.slot(index).read();
            if options & XDP_TX_METADATA == 0 {
                self.completion
                    .umem
                    .clear_metadata(addr, self.completion.id);
            }
        }
    }
}

/// The reason that a packet of several frames cannot be sent; `None` when it can.
fn cannot_send_fragments(
    mut out: Option<&mut Outgoing<'_>>,
    packet: &Fragments,
) -> Option<SendErrorKind> {
    let frames = packet.frames();
    if frames.is_empty() {
        return Some(SendErrorKind::Empty);
    }
    let each = |frame: &Frame| cannot_send(out.as_deref_mut(), frame.umem(), frame.extent().len);
    if let Some(kind) = frames.iter().find_map(each) {
        return Some(kind);
    }
    let (count, out) = (frames.len() as u32, out?);
    if count > 1 && !out.completion.umem.fragments() {
        Some(SendErrorKind::Fragmented)
    } else if count > out.tx.size() {
        Some(SendErrorKind::TooLong)
    } else if out.tx.free(count) < count {
        Some(SendErrorKind::Full)
    } else {
        cannot_request(out, frames[0].extent(), packet.request())
    }
}

/// Writes a packet into slots of TX, of which there is one for each frame. The first one has the request.
fn write_fragments(out: &mut Outgoing<'_>, slots: &mut Cursor, packet: Fragments) {
    let mut request = *packet.request();
    let frames = packet.into_frames();
    let last = frames.len() - 1;
    for ((at, frame), slot) in frames.enumerate().zip(slots) {
        let mut desc = lend_with(out, frame, &std::mem::take(&mut request));
        if at < last {
            desc.options |= XDP_PKT_CONTD;
        }
        out.tx.slot(slot).write(desc);
    }
}

/// Puts a packet into a TX ring, all its frames or none.
pub(crate) fn send_fragments(
    mut out: Option<Outgoing<'_>>,
    packet: Fragments,
) -> Result<(), SendError<Fragments>> {
    if let Some(kind) = cannot_send_fragments(out.as_mut(), &packet) {
        return Err(SendError { packet, kind });
    }
    if let Some(mut out) = out {
        let mut slots = out.tx.reserve(packet.frames().len() as u32);
        write_fragments(&mut out, &mut slots, packet);
        let sent = out.tx.stage(&slots);
        out.completion.sent(sent);
    }
    Ok(())
}

/// Puts a frame into a TX ring.
#[inline(always)]
pub(crate) fn send(mut out: Option<Outgoing<'_>>, frame: Frame) -> Result<(), SendError<Frame>> {
    let Extent { offset, len } = frame.extent();
    if let Some(kind) = cannot_send(out.as_mut(), frame.umem(), len) {
        return Err(SendError {
            packet: frame,
            kind,
        });
    }
    if let Some(out) = out {
        let addr = frame.into_chunk().lend_to_send(out.completion.id) + u64::from(offset);
        out.tx.put(Desc {
            addr,
            len,
            options: 0,
        });
        out.completion.lent += 1;
    }
    Ok(())
}

/// Puts a frame into a TX ring, with a request.
pub(crate) fn send_with(
    mut out: Option<Outgoing<'_>>,
    frame: Frame,
    request: &TxRequest,
) -> Result<(), SendError<Frame>> {
    let (umem, at) = (frame.umem(), frame.extent());
    if let Some(kind) = cannot_send_with(out.as_mut(), umem, at, request) {
        return Err(SendError {
            packet: frame,
            kind,
        });
    }
    if let Some(mut out) = out {
        let desc = lend_with(&mut out, frame, request);
        out.tx.put(desc);
        out.completion.lent += 1;
    }
    Ok(())
}
