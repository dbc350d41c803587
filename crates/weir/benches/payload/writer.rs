//! The other side of the rings, on a CPU of its own: it writes packets, as the kernel's half of
//! receiving does, and takes those that are sent.
#![allow(unsafe_code)] // It shares packets and slots by address, as the kernel does.

use anyhow::{Context as _, Result, bail, ensure};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use weir::traffic::frame::swap_macs;
use xsk::XDP_PACKET_HEADROOM;
use xsk::testing::moves::{Moves, SLOTS};

use crate::words::{Rings, index, slot, step};

/// Bytes of a packet: a cache line.
pub(crate) const PACKET: usize = 64;

/// Packets of a burst. FILL has as many chunks for the next one while these are being sent.
pub(crate) const BURST: u32 = SLOTS / 2;

/// The sum of a packet's words; 0 if it is too short.
#[inline(always)]
pub(crate) fn sum(packet: &[u8]) -> u64 {
    let Some(packet) = packet.first_chunk::<PACKET>() else {
        return 0;
    };
    let (words, _) = packet.as_chunks::<8>();
    words
        .iter()
        .fold(0, |sum, word| sum.wrapping_add(u64::from_ne_bytes(*word)))
}

/// The turn of one of the two sides, and what the writer did in its last.
#[derive(Debug)]
#[repr(align(128))] // Away from other data, which the measured side reads.
pub(crate) struct Turns {
    turn: AtomicU32,
    sum: AtomicU64,
    returned: AtomicU32,
}

const READER: u32 = 0;
const BURST_DUE: u32 = 1;
const SENT_ONLY: u32 = 2;
const ENDED: u32 = 3;

/// The writer's work in a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    /// To take the packets that were sent, and to write a burst.
    Burst,
    /// To take the packets that were sent.
    Sent,
}

/// The result of a turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written {
    /// The sum of the burst's packets.
    pub(crate) sum: u64,
    /// Packets that were sent, all as they should be.
    pub(crate) returned: u32,
}

impl Turns {
    pub(crate) fn new() -> Self {
        Self {
            turn: AtomicU32::new(READER),
            sum: AtomicU64::new(0),
            returned: AtomicU32::new(0),
        }
    }

    /// Waits for the writer's next turn to be over.
    pub(crate) fn ask(&self, ask: Ask) -> Result<Written> {
        let turn = match ask {
            Ask::Burst => BURST_DUE,
            Ask::Sent => SENT_ONLY,
        };
        // Release: pairs with the acquire of `wait_for_end_of`, as all stores and loads of the turn do.
        let given = self
            .turn
            .compare_exchange(READER, turn, Ordering::Release, Ordering::Relaxed);
        ensure!(
            given.is_ok() && self.wait_for_end_of(turn) == READER,
            "the writer ended"
        );
        Ok(Written {
            sum: self.sum.load(Ordering::Relaxed),
            returned: self.returned.load(Ordering::Relaxed),
        })
    }

    /// Ends the other side's wait for good.
    pub(crate) fn end(&self) {
        self.turn.store(ENDED, Ordering::Release);
    }

    /// The work of the writer's next turn; none at the end.
    fn next(&self) -> Option<Ask> {
        match self.wait_for_end_of(READER) {
            BURST_DUE => Some(Ask::Burst),
            SENT_ONLY => Some(Ask::Sent),
            _ => None,
        }
    }

    fn answer(&self, written: Written) {
        self.sum.store(written.sum, Ordering::Relaxed);
        self.returned.store(written.returned, Ordering::Relaxed);
        self.turn.store(READER, Ordering::Release);
    }

    fn wait_for_end_of(&self, turn: u32) -> u32 {
        loop {
            let now = self.turn.load(Ordering::Acquire);
            if now != turn {
                return now;
            }
            std::hint::spin_loop();
        }
    }
}

/// The other side of a [`Moves`].
#[derive(Debug)]
pub(crate) struct Writer {
    rings: Rings,
    memory: *mut u8,
    /// Bytes of the memory, and of a chunk.
    len: u64,
    chunk: u64,
    /// Number of the next packet, and of the first of the last burst.
    next: u64,
    first: u64,
}

// SAFETY: needed because of the raw pointers. They point into memory that `Moves` keeps, and which is
// not tied to a thread; the turns keep the two sides apart.
unsafe impl Send for Writer {}

impl Writer {
    /// The other side of `moves`, which must outlive it.
    pub(crate) fn new(moves: &Moves, umem: &xsk::Umem) -> Self {
        let chunk = u64::from(umem.chunk_size());
        Self {
            rings: moves.words(),
            memory: moves.memory(),
            len: u64::from(umem.chunks()) * chunk,
            chunk,
            next: 0,
            first: 0,
        }
    }

    /// Takes turns until the other side ends them; ends them on an error.
    pub(crate) fn serve(mut self, turns: &Turns, cpu: usize) -> Result<()> {
        let result = self.take_turns(turns, cpu);
        turns.end();
        result
    }

    fn take_turns(&mut self, turns: &Turns, cpu: usize) -> Result<()> {
        hostnet::cpulist::pin(cpu)?;
        while let Some(ask) = turns.next() {
            let returned = self.take_sent()?;
            let sum = match ask {
                Ask::Burst => self.write_burst()?,
                Ask::Sent => 0,
            };
            turns.answer(Written { sum, returned });
        }
        Ok(())
    }

    /// Writes a packet into each of the next chunks of FILL, and publishes them in RX. Returns the sum
    /// of their words.
    fn write_burst(&mut self) -> Result<u64> {
        let [rx, _, fill, _] = self.rings;
        let (from, to) = (index(fill.consumer), index(rx.producer));
        let lent = index(fill.producer).wrapping_sub(from);
        ensure!(lent >= BURST, "FILL has {lent} chunks, and a burst {BURST}");
        self.first = self.next;
        let mut total = 0u64;
        for ahead in 0..BURST {
            let addr: *mut u64 = fill.slots.cast();
            // SAFETY: needed to see the other side's slots. The index is masked, so the slot lies in
            // the ring, whose slots are aligned; it is this side's turn.
            let addr = unsafe { addr.wrapping_add(slot(from, ahead)).read() };
            // As the kernel does: an entry may point anywhere into its chunk.
            let addr = addr - addr % self.chunk + u64::from(XDP_PACKET_HEADROOM);
            let packet = packet(self.next);
            // SAFETY: needed to write a packet. `place` checked that it lies in the memory; its chunk is
            // lent to this side.
            unsafe { self.place(addr)?.write(packet) };
            total = total.wrapping_add(sum(&packet));
            let desc = libc::xdp_desc {
                addr,
                len: PACKET as u32,
                options: 0,
            };
            let descs: *mut libc::xdp_desc = rx.slots.cast();
            // SAFETY: as for the slot of FILL.
            unsafe { descs.wrapping_add(slot(to, ahead)).write(desc) };
            self.next += 1;
        }
        step(fill.consumer, BURST);
        step(rx.producer, BURST);
        Ok(total)
    }

    /// Takes and completes the packets in TX. Returns their number.
    fn take_sent(&self) -> Result<u32> {
        let [_, tx, _, completion] = self.rings;
        let (from, to) = (index(tx.consumer), index(completion.producer));
        let sent = index(tx.producer).wrapping_sub(from);
        for ahead in 0..sent {
            let descs: *mut libc::xdp_desc = tx.slots.cast();
            // SAFETY: as in `write_burst`.
            let desc = unsafe { descs.wrapping_add(slot(from, ahead)).read() };
            self.check_sent(desc, ahead)?;
            let completed: *mut u64 = completion.slots.cast();
            // SAFETY: as in `write_burst`.
            unsafe { completed.wrapping_add(slot(to, ahead)).write(desc.addr) };
        }
        step(tx.consumer, sent);
        step(completion.producer, sent);
        Ok(sent)
    }

    /// Checks one packet of the last burst: its MAC addresses are swapped, and nothing else.
    fn check_sent(&self, desc: libc::xdp_desc, ahead: u32) -> Result<()> {
        let mut expected = packet(self.first + u64::from(ahead));
        swap_macs(&mut expected);
        // SAFETY: needed to read a packet. `place` checked that it lies in the memory; its chunk is lent
        // to this side.
        let sent = unsafe { self.place(desc.addr)?.read() };
        if desc.len as usize != PACKET || sent != expected {
            bail!(
                "packet {ahead} of a burst was sent as {sent:?} of {} bytes, not as {expected:?}",
                desc.len
            );
        }
        Ok(())
    }

    fn place(&self, addr: u64) -> Result<*mut [u8; PACKET]> {
        let end = addr.checked_add(PACKET as u64);
        end.filter(|&end| end <= self.len)
            .with_context(|| format!("address {addr:#x} is outside of the memory"))?;
        Ok(self.memory.wrapping_add(addr as usize).cast())
    }
}

/// The content of a packet.
fn packet(number: u64) -> [u8; PACKET] {
    let mut packet = [0; PACKET];
    let (words, _) = packet.as_chunks_mut::<8>();
    for (at, word) in (0..).zip(words) {
        // The golden ratio's bits: no two words in a row are alike.
        let content: u64 = (number * 8 + at).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        *word = content.to_ne_bytes();
    }
    packet
}
