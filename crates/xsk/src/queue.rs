//! One (device, queue) pair of a UMEM: its FILL and COMPLETION rings and its share of the free
//! chunks.

use crate::frame::{Frame, Reason, Refused};
use crate::ring::{Consumer, Mapped, Producer};
use crate::sys::Desc;
use crate::umem::{Chunk, QueueId, Umem};

/// The RX ring of a socket.
pub(crate) type RxRing = Consumer<Desc, Mapped<Desc>>;
/// The TX ring of a socket.
pub(crate) type TxRing = Producer<Desc, Mapped<Desc>>;

/// Most free chunks that a queue keeps to itself; the rest is for every queue of the UMEM.
const CACHE: usize = 512;

/// The FILL and COMPLETION pair of a queue and the chunks that are lent through it.
#[derive(Debug)]
pub(crate) struct Queue<'u> {
    umem: &'u Umem,
    id: QueueId,
    fill: Producer<u64, Mapped<u64>>,
    pub(crate) completion: Consumer<u64, Mapped<u64>>,
    /// Free chunks; never longer than its first capacity, so that it never allocates.
    cache: Vec<Chunk<'u>>,
    cache_limit: usize,
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
        let cache_limit = CACHE.min(umem.chunks() as usize / 8).max(1);
        Self {
            umem,
            id,
            fill_target: fill_target.min(fill.size()),
            fill,
            completion,
            cache: Vec::with_capacity(cache_limit),
            cache_limit,
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
        self.cache.iter().map(Chunk::addr)
    }

    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn receiving(&self) -> u32 {
        self.receiving
    }

    /// Whether the kernel asks to be told of new FILL entries.
    #[inline]
    pub(crate) fn fill_needs_wakeup(&self) -> bool {
        self.fill.needs_wakeup()
    }

    /// Takes completed chunks back and lends free ones for receiving, as far as needed.
    #[inline]
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
        let completions = self.completion.available(u32::MAX);
        for _ in 0..completions {
            let addr = self.completion.pop();
            match self.umem.completed(addr, self.id) {
                Some(chunk) => {
                    self.sending = self.sending.saturating_sub(1);
                    self.completed += 1;
                    self.put(chunk);
                }
                None => self.refused += 1,
            }
        }
        self.completion.release();
        self.fill.publish();
        completions
    }

    /// Lends free chunks for receiving until the target is met, FILL is full, or none is left.
    fn refill(&mut self) {
        let wanted = self.fill_target - self.receiving;
        for _ in 0..wanted.min(self.fill.free(wanted)) {
            let Some(chunk) = self.take() else { break };
            self.lend_to_receive(chunk);
        }
        self.fill.publish();
    }

    /// A free chunk: from the cache, or else from the pool.
    #[inline]
    fn take(&mut self) -> Option<Chunk<'u>> {
        self.cache.pop().or_else(|| self.umem.take_free())
    }

    /// A free frame for sending. Reclaims completed ones when none is at hand.
    #[inline]
    pub(crate) fn alloc(&mut self) -> Option<Frame<'u>> {
        if self.cache.is_empty() && self.sending > 0 {
            self.reclaim();
        }
        self.take().map(Frame::empty)
    }

    /// Puts a chunk where it is needed most.
    #[inline]
    fn put(&mut self, chunk: Chunk<'u>) {
        if self.receiving < self.fill_target && self.fill.free(1) > 0 {
            self.lend_to_receive(chunk);
        } else {
            self.keep_free(chunk);
        }
    }

    #[inline]
    fn lend_to_receive(&mut self, chunk: Chunk<'u>) {
        self.receiving += 1;
        let lent = self.fill.push(chunk.lend_to_receive(self.id));
        debug_assert!(lent, "callers look for room first");
    }

    #[inline]
    fn keep_free(&mut self, chunk: Chunk<'u>) {
        if self.cache.len() < self.cache_limit {
            self.cache.push(chunk);
        }
        // Else it is dropped here, which gives it to every queue of the UMEM.
    }

    /// Takes the chunk of a received packet; `None`, counted, when it is not one that was lent
    /// here, or the packet does not lie inside it.
    #[inline]
    pub(crate) fn receive(&mut self, desc: Desc) -> Option<Frame<'u>> {
        let Some(chunk) = self.umem.received(desc.addr, self.id) else {
            self.refused += 1;
            return None;
        };
        self.receiving -= 1;
        let frame = Frame::received(chunk, self.umem.offset_in_chunk(desc.addr), desc.len);
        if frame.is_none() {
            self.refused += 1;
        }
        frame
    }

    /// Lends the chunk of a packet that nobody took for receiving again.
    #[inline]
    pub(crate) fn recycle(&mut self, chunk: Chunk<'u>) {
        if self.fill.free(1) > 0 {
            self.lend_to_receive(chunk);
        } else {
            self.keep_free(chunk);
        }
    }

    /// The same for a descriptor that was not even looked at: the table need not change when
    /// the chunk goes straight back.
    #[inline]
    pub(crate) fn recycle_unread(&mut self, desc: Desc) {
        if self.fill.free(1) == 0 || !self.umem.is_receiving(desc.addr, self.id) {
            if let Some(frame) = self.receive(desc) {
                self.keep_free(frame.into_chunk());
            }
            return;
        }
        self.fill.push(self.umem.chunk_start(desc.addr));
    }

    /// Lets the kernel see what was recycled.
    #[inline]
    pub(crate) fn publish_fill(&mut self) {
        self.fill.publish();
    }

    /// Puts a frame into the TX ring of a socket on this queue.
    #[inline]
    pub(crate) fn send(
        &mut self,
        tx: Option<&mut TxRing>,
        frame: Frame<'u>,
    ) -> Result<(), Refused<Frame<'u>>> {
        let Some(tx) = tx else {
            return Err(Refused {
                frame,
                reason: Reason::NoRing,
            });
        };
        if !frame.chunk().belongs_to(self.umem) {
            return Err(Refused {
                frame,
                reason: Reason::Foreign,
            });
        }
        if frame.is_empty() {
            return Err(Refused {
                frame,
                reason: Reason::Empty,
            });
        }
        if tx.free(1) == 0 {
            return Err(Refused {
                frame,
                reason: Reason::Full,
            });
        }
        let (offset, len) = (frame.offset(), frame.len() as u32);
        let addr = frame.into_chunk().lend_to_send(self.id) + u64::from(offset);
        tx.push(Desc {
            addr,
            len,
            options: 0,
        });
        self.sending += 1;
        Ok(())
    }
}
