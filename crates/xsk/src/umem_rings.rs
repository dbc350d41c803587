//! The FILL and COMPLETION rings of one device queue, and the chunks lent through them.

use crate::frame::Frame;
use crate::ring::{Consumer, Cursor, Mapped, Producer};
use crate::send_error::{SendError, SendErrorKind};
use crate::sys::Desc;
use crate::umem::{Cache, Chunk, Extent, LentChunks, RingsId, Umem};

/// The RX ring of a socket.
pub(crate) type RxRing = Consumer<Desc, Mapped<Desc>>;
/// The TX ring of a socket.
pub(crate) type TxRing = Producer<Desc, Mapped<Desc>>;

/// Most free chunks in the cache; the others are in the UMEM's free list.
const CACHE: usize = 128;

/// A FILL and COMPLETION pair, and the chunks that are lent through it.
#[derive(Debug)]
pub(crate) struct UmemRings<'u> {
    umem: &'u Umem,
    id: RingsId,
    fill: Producer<u64, Mapped<u64>>,
    pub(crate) completion: Consumer<u64, Mapped<u64>>,
    cache: Cache<'u>,
    /// Chunks to lend for receiving, and those that are lent.
    fill_target: u32,
    receiving: u32,
    /// Chunks lent for sending.
    sending: u32,
    /// Descriptors and completions for chunks that were not lent here.
    invalid_descs: u64,
    completed: u64,
}

impl<'u> UmemRings<'u> {
    /// The rings of a UMEM, with no chunk lent yet.
    pub(crate) fn new(
        umem: &'u Umem,
        id: RingsId,
        fill: Producer<u64, Mapped<u64>>,
        completion: Consumer<u64, Mapped<u64>>,
        fill_target: u32,
    ) -> Self {
        let cache_limit = CACHE.min(umem.chunks() as usize / 32).max(1);
        Self {
            umem,
            id,
            fill_target: fill_target.min(fill.size()),
            fill,
            completion,
            cache: Cache::new(umem, cache_limit),
            receiving: 0,
            sending: 0,
            invalid_descs: 0,
            completed: 0,
        }
    }

    pub(crate) fn umem(&self) -> &'u Umem {
        self.umem
    }

    /// Chunks lent for sending: in TX, in the kernel, or in COMPLETION.
    #[inline]
    pub(crate) fn sending(&self) -> u32 {
        self.sending
    }

    /// Chunks reclaimed since the socket was opened.
    pub(crate) fn completed(&self) -> u64 {
        self.completed
    }

    /// Descriptors and completions for chunks that were not lent here, since the socket was opened.
    pub(crate) fn invalid_descs(&self) -> u64 {
        self.invalid_descs
    }

    /// Reads of an impossible kernel index of FILL or COMPLETION.
    pub(crate) fn invalid_indices(&self) -> u64 {
        self.fill.invalid_indices() + self.completion.invalid_indices()
    }

    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn cached(&self) -> impl Iterator<Item = u64> {
        self.cache.addresses()
    }

    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn receiving(&self) -> u32 {
        self.receiving
    }

    /// Whether so few chunks are lent for receiving that packets may stop arriving.
    #[inline]
    pub(crate) fn starves(&self) -> bool {
        self.receiving < self.fill_target.div_ceil(4)
    }

    /// Whether the kernel needs a wake-up for new FILL entries.
    #[inline]
    pub(crate) fn fill_needs_wakeup(&self) -> bool {
        self.fill.needs_wakeup()
    }

    /// Reclaims completed chunks and lends free ones for receiving, as far as needed.
    #[inline(always)]
    pub(crate) fn maintain(&mut self) {
        if self.sending > 0 {
            self.reclaim();
        }
        if self.receiving < self.fill_target {
            self.refill();
        }
    }

    /// Reclaims completed chunks: first for FILL when chunks are missing there, then for the next
    /// packets to send. Returns the number of completions.
    pub(crate) fn reclaim(&mut self) -> u32 {
        let mut completions = self.completion.peek(u32::MAX);
        let count = completions.left();
        if count == 0 {
            return 0;
        }
        let missing = self.fill_target.saturating_sub(self.receiving);
        let mut fill = self.fill.reserve(missing.min(count));
        let (mut refilled, mut kept) = (0, 0);
        for index in completions.by_ref() {
            let addr = self.completion.read_at(index);
            if fill.left() > 0 {
                if self.umem.completed_to_receive(addr, self.id) {
                    let slot = fill.next().expect("a slot is left");
                    self.fill.write_at(slot, self.umem.chunk_start(addr));
                    refilled += 1;
                }
            } else if let Some(chunk) = self.umem.completed(addr, self.id) {
                self.cache.put(chunk);
                kept += 1;
            }
        }
        self.completion.release();
        self.publish_fill(&fill);
        self.receiving += refilled;
        // The packets forwarded from a forgotten batch were not counted.
        self.sending = self.sending.saturating_sub(refilled + kept);
        self.completed += u64::from(refilled + kept);
        self.invalid_descs += u64::from(count - refilled - kept);
        count
    }

    /// Lends free chunks for receiving until the target is met, FILL is full, or no chunk is free.
    fn refill(&mut self) {
        let wanted = self.fill_target - self.receiving;
        for _ in 0..wanted.min(self.fill.free(wanted)) {
            let Some(chunk) = self.cache.take() else {
                break;
            };
            self.lend_to_receive(chunk);
        }
        self.fill.publish();
    }

    /// Allocates a frame. Reclaims completed chunks when the cache is empty.
    #[inline]
    pub(crate) fn alloc(&mut self) -> Option<Frame<'u>> {
        if self.cache.is_empty() && self.sending > 0 {
            self.reclaim();
        }
        self.cache.take().map(Frame::empty)
    }

    #[inline]
    fn lend_to_receive(&mut self, chunk: Chunk<'u>) {
        self.receiving += 1;
        let lent = self.fill.push(chunk.lend_to_receive(self.id));
        debug_assert!(lent, "callers check for room");
    }

    /// The chunks that are lent here for receiving.
    #[inline(always)]
    pub(crate) fn lent_to_receive(&self) -> LentChunks<'u> {
        self.umem.lent_to_receive(self.id)
    }

    /// Counts a descriptor of a chunk that was not lent here, or of a packet outside its chunk.
    // "C" because it does not unwind: otherwise the callers' cursors could not stay in registers.
    #[cold]
    #[inline(never)]
    pub(crate) extern "C" fn reject(&mut self, addr: u64) {
        self.invalid_descs += 1;
        if self.lent_to_receive().contains(addr) {
            self.keep_received(addr);
        }
    }

    #[cold]
    #[inline(never)]
    extern "C" fn keep_received(&mut self, addr: u64) {
        let chunk = self.take_received(addr);
        self.cache.put(chunk);
    }

    /// Takes ownership of a chunk that [`lent_to_receive`](Self::lent_to_receive) contains.
    #[inline]
    pub(crate) fn take_received(&mut self, addr: u64) -> Chunk<'u> {
        self.receiving -= 1;
        let chunk = self.umem.received(addr, self.id);
        chunk.expect("the chunk is still lent for receiving")
    }

    /// Lends the chunk of a received packet for receiving again. Its entry need not change.
    #[inline(always)]
    pub(crate) fn recycle(&mut self, chunk_addr: u64, fill: &mut Cursor) {
        match fill.next() {
            Some(slot) => self.fill.write_at(slot, chunk_addr),
            None => self.keep_received(chunk_addr),
        }
    }

    /// FILL slots for [`recycle`](Self::recycle).
    #[inline]
    pub(crate) fn reserve_fill(&mut self, want: u32) -> Cursor {
        self.fill.reserve(want)
    }

    /// Publishes the recycled chunks.
    #[inline]
    pub(crate) fn publish_fill(&mut self, recycled: &Cursor) {
        self.fill.stage(recycled);
        self.fill.publish();
    }

    /// Lends the chunk of a received packet for sending.
    #[inline(always)]
    pub(crate) fn forward(&mut self, chunk_addr: u64) {
        self.umem.forward(chunk_addr, self.id);
    }

    /// Counts packets whose chunks went through [`forward`](Self::forward).
    #[inline]
    pub(crate) fn forwarded(&mut self, packets: u32) {
        self.receiving -= packets;
        self.sending += packets;
    }

    /// The reason that a packet cannot be sent; `None` when it can.
    #[inline]
    pub(crate) fn cannot_send(
        &self,
        tx: Option<&mut TxRing>,
        umem: &Umem,
        len: u32,
    ) -> Option<SendErrorKind> {
        let Some(tx) = tx else {
            return Some(SendErrorKind::NoRing);
        };
        if !std::ptr::eq(umem, self.umem) {
            Some(SendErrorKind::Foreign)
        } else if len == 0 {
            Some(SendErrorKind::Empty)
        } else if tx.free(1) == 0 {
            Some(SendErrorKind::Full)
        } else {
            None
        }
    }

    /// Puts a frame into the TX ring of a socket on these rings.
    #[inline]
    pub(crate) fn send(
        &mut self,
        mut tx: Option<&mut TxRing>,
        frame: Frame<'u>,
    ) -> Result<(), SendError<Frame<'u>>> {
        let Extent { offset, len } = frame.extent();
        if let Some(kind) = self.cannot_send(tx.as_deref_mut(), frame.umem(), len) {
            return Err(SendError {
                packet: frame,
                kind,
            });
        }
        if let Some(tx) = tx {
            let addr = frame.into_chunk().lend_to_send(self.id) + u64::from(offset);
            tx.push(Desc {
                addr,
                len,
                options: 0,
            });
            self.sending += 1;
        }
        Ok(())
    }
}
