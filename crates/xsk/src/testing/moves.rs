//! The rings of one socket in plain memory, to measure the cost of moving packets without a kernel.
//! The owner of the [`Words`] is the other side of the rings.

use crate::batch::RxBatch;
use crate::frame::Frame;
use crate::ring::{Consumer, Mapped, Producer, Slot};
use crate::send_error::SendError;
use crate::socket::{Done, Received, TxBatch, forward_each, receive_each, send_each};
use crate::sys::{Desc, Mapping, Offsets};
use crate::tx_metadata::{TxRequest, TxSupport};
use crate::umem::{Cache, Geometry, Umem, XDP_PACKET_HEADROOM};
use crate::umem_rings::{
    CompletionRing, FillRing, Outgoing, RxRing, TxRing, alloc, cache_size, look_after, send,
    send_with,
};
use std::sync::Arc;

/// The layout of a ring on x86-64 with Linux 6.18: each index has a pair of cache lines.
const LAYOUT: Offsets = Offsets {
    producer: 0,
    consumer: 128,
    flags: 196,
    slots: 320,
};

/// Slots of each ring.
pub const SLOTS: u32 = 2048;

/// Addresses of one ring's shared words and slots, for code in C.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Words {
    /// The producer's index.
    pub producer: *mut u32,
    /// The consumer's index.
    pub consumer: *mut u32,
    /// The flag word.
    pub flags: *mut u32,
    /// The slots.
    pub slots: *mut u8,
}

/// A ring's memory.
#[derive(Debug)]
struct Memory(Arc<Mapping>);

impl Memory {
    fn new<T: Slot>() -> Self {
        let len = LAYOUT.slots + SLOTS as usize * size_of::<T>();
        Self(Arc::new(Mapping::heap(len)))
    }

    fn ring<T: Slot>(&self) -> Mapped<T> {
        Mapped::new(Arc::clone(&self.0), LAYOUT, SLOTS).expect("the layout fits")
    }

    fn words(&self) -> Words {
        let start = self.0.start().as_ptr();
        let word = |offset| start.wrapping_add(offset).cast();
        Words {
            producer: word(LAYOUT.producer),
            consumer: word(LAYOUT.consumer),
            flags: word(LAYOUT.flags),
            slots: start.wrapping_add(LAYOUT.slots),
        }
    }
}

/// A UMEM for [`Moves`]: enough chunks to fill RX and TX.
pub fn umem() -> Umem {
    Umem::on_heap(2 * SLOTS, 2048)
}

/// The same with metadata in front of packets.
pub fn umem_with_metadata() -> Umem {
    Umem::of_geometry_on_heap(Geometry {
        chunks: 2 * SLOTS,
        chunk_size: 2048,
        headroom: 0,
        fragments: false,
        tx_metadata: true,
        unaligned: false,
    })
}

/// A socket's user side, with a packet in every slot of RX.
#[derive(Debug)]
pub struct Moves {
    fill: FillRing,
    completion: CompletionRing,
    cache: Cache,
    umem: Umem,
    rx: RxRing,
    tx: TxRing,
    memory: [Memory; 4],
}

impl Moves {
    /// Makes the rings and lends half of the chunks for receiving. Where the UMEM has metadata, received packets
    /// have hints, and each request can be sent.
    ///
    /// # Panics
    ///
    /// For a UMEM that has 4096 queues.
    pub fn new(umem: &Umem) -> Self {
        let memory = [
            Memory::new::<Desc>(),
            Memory::new::<Desc>(),
            Memory::new::<u64>(),
            Memory::new::<u64>(),
        ];
        let [rx, tx, fill, completion] = &memory;
        let mut received = Producer::<Desc, _>::new(rx.ring());
        for chunk in 0..SLOTS {
            let addr = u64::from(chunk * umem.chunk_size() + XDP_PACKET_HEADROOM);
            received.push(Desc {
                addr,
                len: 64,
                options: 0,
            });
        }
        let id = umem.register_rings().expect("the first queue");
        let fill = Producer::new(fill.ring());
        let completion = Consumer::new(completion.ring());
        let mut fill = FillRing::new(umem, id, 0, fill, SLOTS);
        let mut cache = Cache::new(umem, cache_size(umem.chunks(), SLOTS));
        fill.refill(&mut cache);
        let (rx, tx) = (Consumer::new(rx.ring()), Producer::new(tx.ring()));
        let mut completion = CompletionRing::new(umem, id, completion);
        fill.set_hints(umem.tx_metadata());
        completion.set_support(TxSupport {
            checksum: true,
            timestamp: true,
            launch_time: true,
        });
        Self {
            fill,
            completion,
            cache,
            umem: umem.clone(),
            rx,
            tx,
            memory,
        }
    }

    /// The words of RX, TX, FILL and COMPLETION, in this order.
    pub fn words(&self) -> [Words; 4] {
        [0, 1, 2, 3].map(|ring: usize| self.memory[ring].words())
    }

    /// The first byte of the UMEM, where address 0 is.
    pub fn memory(&self) -> *mut u8 {
        self.umem.area().memory().at(0)
    }

    /// Same as [`Socket::recv`](crate::Socket::recv).
    #[inline(always)]
    pub fn recv(&mut self, max: u32) -> RxBatch<'_> {
        look_after(&mut self.completion, &mut self.fill, &mut self.cache);
        let out = Outgoing {
            tx: &mut self.tx,
            completion: &mut self.completion,
        };
        RxBatch::new(
            Some(&mut self.rx),
            Some(out),
            &mut self.fill,
            &mut self.cache,
            self.umem.area(),
            max,
        )
    }

    /// Same as [`Socket::alloc`](crate::Socket::alloc).
    #[inline(always)]
    pub fn alloc(&mut self) -> Option<Frame> {
        alloc(Some(&mut self.completion), &mut self.cache)
    }

    /// Same as [`Socket::send`](crate::Socket::send).
    ///
    /// # Errors
    ///
    /// Same as [`Socket::send`](crate::Socket::send).
    #[inline]
    pub fn send(&mut self, frame: Frame) -> Result<(), SendError<Frame>> {
        let out = Outgoing {
            tx: &mut self.tx,
            completion: &mut self.completion,
        };
        send(Some(out), frame)
    }

    /// Same as [`Socket::send_with`](crate::Socket::send_with).
    ///
    /// # Errors
    ///
    /// Same as [`Socket::send_with`](crate::Socket::send_with).
    #[inline]
    pub fn send_with(&mut self, frame: Frame, request: &TxRequest) -> Result<(), SendError<Frame>> {
        let out = Outgoing {
            tx: &mut self.tx,
            completion: &mut self.completion,
        };
        send_with(Some(out), frame, request)
    }

    /// Same as [`Socket::flush`](crate::Socket::flush), without waking the kernel.
    #[inline]
    pub fn publish(&mut self) {
        self.tx.publish();
    }

    /// Same as [`Socket::reclaim`](crate::Socket::reclaim).
    #[inline]
    pub fn reclaim(&mut self) -> u32 {
        self.completion.reclaim(&mut self.cache)
    }

    /// Same as [`Socket::receive_each`](crate::Socket::receive_each).
    #[inline(always)]
    pub fn receive_each<F>(&mut self, max: u32, each: F) -> u32
    where
        F: for<'p> FnMut(Received<'p>) -> Done<'p>,
    {
        look_after(&mut self.completion, &mut self.fill, &mut self.cache);
        let (fill, cache) = (&mut self.fill, &mut self.cache);
        receive_each(&mut self.rx, fill, cache, &self.umem, max, each)
    }

    /// Same as [`Socket::forward_each`](crate::Socket::forward_each).
    #[inline(always)]
    pub fn forward_each<F>(&mut self, max: u32, each: F) -> u32
    where
        F: for<'p> FnMut(Received<'p, true>) -> Done<'p>,
    {
        look_after(&mut self.completion, &mut self.fill, &mut self.cache);
        let out = Outgoing {
            tx: &mut self.tx,
            completion: &mut self.completion,
        };
        let (fill, cache) = (&mut self.fill, &mut self.cache);
        forward_each(&mut self.rx, out, fill, cache, &self.umem, max, each)
    }

    /// Same as [`Socket::send_batch`](crate::Socket::send_batch).
    #[inline(always)]
    pub fn send_batch(&mut self, max: u32) -> TxBatch<'_> {
        let (completion, cache) = (&mut self.completion, &mut self.cache);
        TxBatch::new(Some(&mut self.tx), completion, cache, max)
    }

    /// Same as [`Socket::send_each`](crate::Socket::send_each).
    #[inline(always)]
    pub fn send_each(&mut self, max: u32, write: impl FnMut(&mut [u8]) -> usize) -> u32 {
        let (completion, cache) = (&mut self.completion, &mut self.cache);
        send_each(&mut self.tx, completion, cache, max, write)
    }
}
