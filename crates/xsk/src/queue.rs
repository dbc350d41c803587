//! One (device, queue) pair of a UMEM: its FILL and COMPLETION rings and its share of the free
//! chunks.

use crate::frame::{Extent, Frame, Reason, Refused};
use crate::ring::{Consumer, Cursor, Mapped, Producer};
use crate::sys::Desc;
use crate::umem::{Cache, Chunk, QueueId, Receiving, Umem};

/// The RX ring of a socket.
pub(crate) type RxRing = Consumer<Desc, Mapped<Desc>>;
/// The TX ring of a socket.
pub(crate) type TxRing = Producer<Desc, Mapped<Desc>>;

/// Most free chunks that a queue keeps to itself; the rest is for every queue of the UMEM.
const CACHE: usize = 128;

/// The FILL and COMPLETION pair of a queue and the chunks that are lent through it.
#[derive(Debug)]
pub(crate) struct Queue<'u> {
    umem: &'u Umem,
    id: QueueId,
    fill: Producer<u64, Mapped<u64>>,
    pub(crate) completion: Consumer<u64, Mapped<u64>>,
    cache: Cache<'u>,
    /// Chunks that should be lent for receiving, and those that are.
    fill_target: u32,
    receiving: u32,
    /// Chunks lent for sending and not reclaimed.
    sending: u32,
    /// Descriptors and completions for chunks that this queue was not lent.
    refused: u64,
    completed: u64,
}

impl<'u> Queue<'u> {
    /// Puts rings together with the UMEM that they serve. No chunk is lent yet.
    pub(crate) fn new(
        umem: &'u Umem,
        id: QueueId,
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
            refused: 0,
            completed: 0,
        }
    }

    pub(crate) fn umem(&self) -> &'u Umem {
        self.umem
    }

    /// Chunks in TX, with the kernel's send side, or in COMPLETION.
    #[inline]
    pub(crate) fn sending(&self) -> u32 {
        self.sending
    }

    /// Chunks that came back from sending, ever.
    pub(crate) fn completed(&self) -> u64 {
        self.completed
    }

    /// Descriptors and completions that were refused, ever.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// Times that the kernel's index of FILL or COMPLETION was impossible.
    pub(crate) fn hostile(&self) -> u64 {
        self.fill.hostile() + self.completion.hostile()
    }

    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn cached(&self) -> impl Iterator<Item = u64> {
        self.cache.addresses()
    }

    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn receiving(&self) -> u32 {
        self.receiving
    }

    /// Whether so few chunks are lent for receiving that no packet may come to look for more.
    #[inline]
    pub(crate) fn starves(&self) -> bool {
        self.receiving < self.fill_target.div_ceil(4)
    }

    /// Whether the kernel asks to be told of new FILL entries.
    #[inline]
    pub(crate) fn fill_needs_wakeup(&self) -> bool {
        self.fill.needs_wakeup()
    }

    /// Takes completed chunks back and lends free ones for receiving, as far as needed.
    #[inline(always)]
    pub(crate) fn maintain(&mut self) {
        if self.sending > 0 {
            self.reclaim();
        }
        if self.receiving < self.fill_target {
            self.refill();
        }
    }

    /// Takes back what the kernel has sent, in whatever order it says so: first for FILL when
    /// chunks are missing there, then for the next packets to send.
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
        // A forgotten batch leaves chunks that were sent and not counted.
        self.sending = self.sending.saturating_sub(refilled + kept);
        self.completed += u64::from(refilled + kept);
        self.refused += u64::from(count - refilled - kept);
        count
    }

    /// Lends free chunks for receiving until the target is met, FILL is full, or none is left.
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

    /// A free frame for sending. Reclaims completed ones when none is at hand.
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
        debug_assert!(lent, "callers look for room first");
    }

    /// What is lent here for receiving.
    #[inline(always)]
    pub(crate) fn lent(&self) -> Receiving<'u> {
        self.umem.receiving(self.id)
    }

    /// Counts a descriptor that names no chunk lent here, or a packet outside its chunk.
    // "C" says that it does not unwind, without which the callers' cursors could not stay in
    // registers.
    #[cold]
    #[inline(never)]
    pub(crate) extern "C" fn refuse(&mut self, addr: u64) {
        self.refused += 1;
        if self.lent().holds(addr) {
            self.keep_received(addr);
        }
    }

    #[cold]
    #[inline(never)]
    extern "C" fn keep_received(&mut self, addr: u64) {
        let chunk = self.take_received(addr);
        self.cache.put(chunk);
    }

    /// Makes a chunk ours that [`lent`](Self::lent) has shown.
    #[inline]
    pub(crate) fn take_received(&mut self, addr: u64) -> Chunk<'u> {
        self.receiving -= 1;
        let chunk = self.umem.received(addr, self.id);
        chunk.expect("the table still says what it said when the packet was shown")
    }

    /// Lends the chunk of a received packet for receiving again. The table need not change.
    #[inline(always)]
    pub(crate) fn recycle(&mut self, chunk: u64, fill: &mut Cursor) {
        match fill.next() {
            Some(slot) => self.fill.write_at(slot, chunk),
            None => self.keep_received(chunk),
        }
    }

    /// FILL slots for [`recycle`](Self::recycle).
    #[inline]
    pub(crate) fn reserve_fill(&mut self, want: u32) -> Cursor {
        self.fill.reserve(want)
    }

    /// Lets the kernel see what was recycled.
    #[inline]
    pub(crate) fn publish_fill(&mut self, recycled: &Cursor) {
        self.fill.stage(recycled);
        self.fill.publish();
    }

    /// Lends the chunk of a received packet for sending.
    #[inline(always)]
    pub(crate) fn forward(&mut self, chunk: u64) {
        self.umem.forward(chunk, self.id);
    }

    /// Accounts for chunks that went through [`forward`](Self::forward).
    #[inline]
    pub(crate) fn forwarded(&mut self, packets: u32) {
        self.receiving -= packets;
        self.sending += packets;
    }

    /// Why a packet cannot be sent, if it cannot.
    #[inline]
    pub(crate) fn cannot_send(
        &self,
        tx: Option<&mut TxRing>,
        umem: &Umem,
        len: u32,
    ) -> Option<Reason> {
        let Some(tx) = tx else {
            return Some(Reason::NoRing);
        };
        if !std::ptr::eq(umem, self.umem) {
            Some(Reason::Foreign)
        } else if len == 0 {
            Some(Reason::Empty)
        } else if tx.free(1) == 0 {
            Some(Reason::Full)
        } else {
            None
        }
    }

    /// Puts a frame into the TX ring of a socket on this queue.
    #[inline]
    pub(crate) fn send(
        &mut self,
        mut tx: Option<&mut TxRing>,
        frame: Frame<'u>,
    ) -> Result<(), Refused<Frame<'u>>> {
        let Extent { offset, len } = frame.extent();
        if let Some(reason) = self.cannot_send(tx.as_deref_mut(), frame.umem(), len) {
            return Err(Refused { frame, reason });
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
