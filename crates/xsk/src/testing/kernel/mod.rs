//! The kernel's side of the four rings, modelled in memory: for property tests, fuzzing and Miri.
//!
//! A [`Model`] is one device queue on a UMEM on the heap, with the library's own code on one side of
//! the rings and a kernel on the other, which moves step by step. It has the freedoms of the kernel:
//! it keeps FILL entries, publishes its indices late, completes in any order, and clears the lowest
//! bit of a completed address. It can also forge indices and slots, as a hostile peer would.
//! [`check`] finds every chunk, and fails when one is in two places or in none;
//! [`check_user_space`] checks our side alone, which must hold against any forgery.
//!
//! The kernel accesses packets by taking the chunk from the owner table, so that it needs no
//! `unsafe`, and finds chunks that were not lent.

mod places;
pub mod play;
#[cfg(test)]
mod tests;

pub use places::{check, check_user_space};

use crate::batch::RxBatch;
use crate::frame::Frame;
use crate::ring::{Consumer, Mapped, Offsets, Producer, Shared, Slot};
use crate::send_error::SendError;
use crate::sys::{Desc, Mapping};
use crate::umem::{AfterClose, Extent, RingsId, Umem, XDP_PACKET_HEADROOM};
use crate::umem_rings::{RxRing, TxRing, UmemRings};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A result whose error names the fault of the library or of the model.
pub type Checked<T> = Result<T, String>;

/// A UMEM of `chunks` chunks of `chunk_size` bytes on the heap.
pub fn umem(chunks: u32, chunk_size: u32) -> Umem {
    Umem::on_heap(chunks, chunk_size)
}

/// Slots of each ring, powers of two.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Slots of FILL, which the library keeps as full as it can.
    pub fill: u32,
    /// Slots of COMPLETION.
    pub completion: u32,
    /// Slots of RX.
    pub rx: u32,
    /// Slots of TX.
    pub tx: u32,
    /// The first index of all rings; near `u32::MAX` they soon wrap around.
    pub first_index: u32,
}

/// One of the four rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ring {
    /// Chunks to receive into, from us to the kernel.
    Fill,
    /// Chunks that were sent, from the kernel to us.
    Completion,
    /// Packets received, from the kernel to us.
    Rx,
    /// Packets to send, from us to the kernel.
    Tx,
}

/// One of a ring's shared words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// The producer's index.
    Producer,
    /// The consumer's index.
    Consumer,
    /// The flags, where the kernel asks for a wake-up.
    Flags,
}

/// The layout of a ring on x86, in bytes.
const LAYOUT: Offsets = Offsets {
    producer: 0,
    consumer: 128,
    flags: 196,
    slots: 320,
};

/// Three handles of one ring: for the user's side, the kernel's side, and the checks.
fn ring<T: Slot>(size: u32, first_index: u32) -> [Mapped<T>; 3] {
    let len = LAYOUT.slots + size as usize * size_of::<T>();
    let memory = Arc::new(Mapping::heap(len));
    let handles = [(); 3]
        .map(|()| Mapped::new(memory.clone(), LAYOUT, size).expect("the size is a power of two"));
    handles[0].producer().store(first_index, Ordering::Relaxed);
    handles[0].consumer().store(first_index, Ordering::Relaxed);
    handles
}

/// A packet that the kernel took from TX, with its bytes at that time.
#[derive(Debug)]
struct InFlight {
    desc: Desc,
    bytes: Vec<u8>,
}

/// One device queue with one socket on it, and the kernel behind them.
#[derive(Debug)]
pub struct Model<'u> {
    umem: &'u Umem,
    id: RingsId,
    // The library's side.
    umem_rings: UmemRings<'u>,
    rx: RxRing,
    tx: TxRing,
    // The kernel's side.
    kernel_fill: Consumer<u64, Mapped<u64>>,
    kernel_completion: Producer<u64, Mapped<u64>>,
    kernel_rx: Producer<Desc, Mapped<Desc>>,
    kernel_tx: Consumer<Desc, Mapped<Desc>>,
    /// Chunks taken from FILL that have no packet yet.
    pool: VecDeque<u64>,
    in_flight: Vec<InFlight>,
    // Both sides' memory.
    fill_memory: Mapped<u64>,
    completion_memory: Mapped<u64>,
    rx_memory: Mapped<Desc>,
    tx_memory: Mapped<Desc>,
}

impl<'u> Model<'u> {
    /// Opens another queue on a UMEM.
    ///
    /// # Panics
    ///
    /// When a size is not a power of two, or the UMEM has too many queues.
    pub fn new(umem: &'u Umem, sizes: Sizes) -> Self {
        let id = umem.register_rings().expect("a test has few queues");
        let [fill, kernel_fill, fill_memory] = ring(sizes.fill, sizes.first_index);
        let [completion, kernel_completion, completion_memory] =
            ring(sizes.completion, sizes.first_index);
        let [rx, kernel_rx, rx_memory] = ring(sizes.rx, sizes.first_index);
        let [tx, kernel_tx, tx_memory] = ring(sizes.tx, sizes.first_index);
        let (fill, completion) = (Producer::new(fill), Consumer::new(completion));
        Self {
            umem,
            id,
            umem_rings: UmemRings::new(umem, id, fill, completion, sizes.fill),
            rx: Consumer::new(rx),
            tx: Producer::new(tx),
            kernel_fill: Consumer::new(kernel_fill),
            kernel_completion: Producer::new(kernel_completion),
            kernel_rx: Producer::new(kernel_rx),
            kernel_tx: Consumer::new(kernel_tx),
            pool: VecDeque::new(),
            in_flight: Vec::new(),
            fill_memory,
            completion_memory,
            rx_memory,
            tx_memory,
        }
    }

    /// Same as [`Socket::recv`](crate::Socket::recv).
    pub fn recv(&mut self, max: u32) -> RxBatch<'_, 'u> {
        self.umem_rings.maintain();
        RxBatch::new(
            Some(&mut self.rx),
            Some(&mut self.tx),
            &mut self.umem_rings,
            max,
        )
    }

    /// Same as [`Socket::alloc`](crate::Socket::alloc).
    pub fn alloc(&mut self) -> Option<Frame<'u>> {
        self.umem_rings.alloc()
    }

    /// Same as [`Socket::send`](crate::Socket::send).
    ///
    /// # Errors
    ///
    /// Same as [`Socket::send`](crate::Socket::send).
    pub fn send(&mut self, frame: Frame<'u>) -> Result<(), SendError<Frame<'u>>> {
        self.umem_rings.send(Some(&mut self.tx), frame)
    }

    /// Same as [`Socket::flush`](crate::Socket::flush), without the system call; returns whether
    /// one is due.
    pub fn flush(&mut self) -> bool {
        self.tx.publish();
        self.tx.pending() > 0 && self.tx.needs_wakeup()
    }

    /// Same as [`Socket::reclaim`](crate::Socket::reclaim).
    pub fn reclaim(&mut self) -> u32 {
        self.umem_rings.reclaim()
    }

    /// Descriptors and completions that the library rejected.
    pub fn invalid_descs(&self) -> u64 {
        self.umem_rings.invalid_descs()
    }

    /// Impossible indices that the library read.
    pub fn invalid_indices(&self) -> u64 {
        self.umem_rings.invalid_indices() + self.rx.invalid_indices() + self.tx.invalid_indices()
    }

    /// The kernel takes up to `most` chunks from FILL, and does not publish that yet.
    pub fn take_fill(&mut self, most: u32) -> u32 {
        let count = self.kernel_fill.available(most);
        for _ in 0..count {
            self.pool.push_back(self.kernel_fill.pop());
        }
        count
    }

    /// The kernel receives a packet. False when it drops the packet: because it is too long, there
    /// is no chunk, or RX is full, in which case the kernel keeps the chunk.
    ///
    /// # Errors
    ///
    /// When FILL held a chunk that the library had not lent.
    pub fn receive(&mut self, packet: &[u8]) -> Checked<bool> {
        if packet.len() > self.umem.max_rx_packet() as usize {
            return Ok(false);
        }
        if self.pool.is_empty() {
            self.take_fill(1);
        }
        if self.pool.is_empty() || self.kernel_rx.free(1) == 0 {
            return Ok(false);
        }
        let Some(addr) = self.pool.pop_front() else {
            return Ok(false);
        };
        let mut chunk = self
            .umem
            .received(addr, self.id)
            .ok_or_else(|| format!("FILL held {addr:#x}, which was not lent"))?;
        let (offset, len) = (self.packet_offset(), packet.len() as u32);
        chunk
            .bytes_mut(Extent { offset, len })
            .copy_from_slice(packet);
        let addr = chunk.lend_to_receive(self.id) + u64::from(offset);
        let options = 0;
        self.kernel_rx.push(Desc { addr, len, options });
        Ok(true)
    }

    /// Offset of a received packet in its chunk.
    fn packet_offset(&self) -> u32 {
        self.umem.headroom() + XDP_PACKET_HEADROOM
    }

    /// The kernel publishes RX and its index of FILL (`xsk_flush`).
    pub fn announce(&mut self) {
        self.kernel_rx.publish();
        self.kernel_fill.release();
    }

    /// The kernel takes up to `most` packets from TX, as far as COMPLETION has room for them, and
    /// does not publish that before [`release_tx`](Self::release_tx).
    ///
    /// # Errors
    ///
    /// When the kernel would reject a descriptor, or its chunk was not lent.
    pub fn transmit(&mut self, most: u32) -> Checked<u32> {
        let reserved = self.in_flight.len() as u32;
        let room = self
            .kernel_completion
            .free(u32::MAX)
            .saturating_sub(reserved);
        let count = self.kernel_tx.available(most.min(room));
        for _ in 0..count {
            let desc = self.kernel_tx.pop();
            let bytes = self.bytes_to_send(desc)?;
            self.in_flight.push(InFlight { desc, bytes });
        }
        Ok(count)
    }

    /// Checks a TX descriptor as the kernel does (`xp_aligned_validate_desc`), and reads it.
    fn bytes_to_send(&self, desc: Desc) -> Checked<Vec<u8>> {
        let offset = (desc.addr - self.umem.chunk_start(desc.addr)) as u32;
        let end = u64::from(offset) + u64::from(desc.len);
        if desc.len == 0 || desc.options != 0 || end > u64::from(self.umem.chunk_size()) {
            return Err(format!("TX held {desc:?}, which the kernel refuses"));
        }
        let chunk = self
            .umem
            .completed(desc.addr, self.id)
            .ok_or_else(|| format!("TX held {desc:?}, whose chunk was not lent"))?;
        let bytes = chunk
            .bytes(Extent {
                offset,
                len: desc.len,
            })
            .to_vec();
        chunk.lend_to_send(self.id);
        Ok(bytes)
    }

    /// The kernel publishes its index of TX.
    pub fn release_tx(&mut self) {
        self.kernel_tx.release();
    }

    /// The kernel completes one of the packets in flight, with the lowest bit of its address cleared
    /// or not. False when there is none.
    ///
    /// # Errors
    ///
    /// When the packet's bytes have changed since they were taken.
    pub fn complete(&mut self, which: usize, clear_lowest_bit: bool) -> Checked<bool> {
        if self.in_flight.is_empty() {
            return Ok(false);
        }
        let sent = self.in_flight.swap_remove(which % self.in_flight.len());
        if self.bytes_to_send(sent.desc)? != sent.bytes {
            let desc = sent.desc;
            return Err(format!("the packet of {desc:?} changed while it was sent"));
        }
        let addr = sent.desc.addr & !u64::from(clear_lowest_bit);
        if !self.kernel_completion.push(addr) {
            return Err("COMPLETION is full although room was reserved".into());
        }
        self.kernel_completion.publish();
        Ok(true)
    }

    fn word(&self, ring: Ring, word: Word) -> &AtomicU32 {
        fn of<T>(memory: &impl Shared<T>, word: Word) -> &AtomicU32 {
            match word {
                Word::Producer => memory.producer(),
                Word::Consumer => memory.consumer(),
                Word::Flags => memory.flags(),
            }
        }
        match ring {
            Ring::Fill => of(&self.fill_memory, word),
            Ring::Completion => of(&self.completion_memory, word),
            Ring::Rx => of(&self.rx_memory, word),
            Ring::Tx => of(&self.tx_memory, word),
        }
    }

    /// A shared word of a ring.
    pub fn load(&self, ring: Ring, word: Word) -> u32 {
        self.word(ring, word).load(Ordering::Relaxed)
    }

    /// A peer writes a shared word of a ring.
    pub fn store(&mut self, ring: Ring, word: Word, value: u32) {
        self.word(ring, word).store(value, Ordering::Relaxed);
    }

    /// A hostile peer writes a slot of RX, `ahead` of the kernel's last.
    pub fn forge_rx(&mut self, ahead: u32, addr: u64, len: u32, options: u32) {
        let index = self.kernel_rx.next().wrapping_add(ahead);
        self.rx_memory.write(index, Desc { addr, len, options });
    }

    /// A hostile peer writes a slot of COMPLETION, `ahead` of the kernel's last.
    pub fn forge_completion(&mut self, ahead: u32, addr: u64) {
        let index = self.kernel_completion.next().wrapping_add(ahead);
        self.completion_memory.write(index, addr);
    }
}

impl Drop for Model<'_> {
    fn drop(&mut self) {
        self.umem.release_rings(self.id, AfterClose::LetGo);
    }
}
