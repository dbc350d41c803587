//! Who moves packets through the rings in the micro-benchmarks: weir's library, libxdp's inline
//! functions, and the kernel, whose part is the same code for both.
#![allow(unsafe_code)] // The kernel's part, and calls into C, over rings that both sides see.

use crate::words::{Rings, index, slot, step};
use std::hint::black_box;
use xsk::Umem;
use xsk::testing::moves::{Moves, umem};

/// A measured move.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Move {
    /// RX to FILL.
    Receive,
    /// RX to the free list, which is lent in FILL.
    Iterate,
    /// Free list to TX, COMPLETION to free list.
    Send,
    /// RX to TX, COMPLETION to FILL.
    Forward,
    /// The same in bulk, where a side has calls for that.
    ReceiveEach,
    SendEach,
    SendBatch,
    ForwardEach,
}

/// A pass of each move: a batch, with the kernel's part in it.
pub(crate) trait Side: Default {
    fn receive(&mut self, batch: u32);
    fn iterate(&mut self, batch: u32);
    fn send(&mut self, batch: u32);
    fn forward(&mut self, batch: u32);

    #[inline(always)]
    fn receive_each(&mut self, batch: u32) {
        self.receive(batch);
    }

    #[inline(always)]
    fn send_each(&mut self, batch: u32) {
        self.send(batch);
    }

    #[inline(always)]
    fn send_batch(&mut self, batch: u32) {
        self.send(batch);
    }

    #[inline(always)]
    fn forward_each(&mut self, batch: u32) {
        self.forward(batch);
    }

    #[inline(always)]
    fn pass(&mut self, kind: Move, batch: u32) {
        match kind {
            Move::Receive => self.receive(batch),
            Move::Iterate => self.iterate(batch),
            Move::Send => self.send(batch),
            Move::Forward => self.forward(batch),
            Move::ReceiveEach => self.receive_each(batch),
            Move::SendEach => self.send_each(batch),
            Move::SendBatch => self.send_batch(batch),
            Move::ForwardEach => self.forward_each(batch),
        }
    }
}

/// The kernel's part on one set of rings; as a [`Side`], that alone.
pub(crate) struct Kernel {
    rings: Rings,
}

impl Default for Kernel {
    fn default() -> Self {
        let moves = Box::leak(Box::new(Moves::new(&umem())));
        Self {
            rings: moves.words(),
        }
    }
}

impl Kernel {
    /// The slots of RX hold good descriptors already.
    #[inline(never)]
    pub(crate) fn receives(&self, packets: u32) {
        let [rx, _, fill, _] = &self.rings;
        step(fill.consumer, packets);
        step(rx.producer, packets);
    }

    /// Receives into the chunks that are next in FILL.
    #[inline(never)]
    pub(crate) fn receives_from_fill(&self, packets: u32) {
        let [rx, _, fill, _] = &self.rings;
        let addrs: *mut u64 = fill.slots.cast();
        let descs: *mut libc::xdp_desc = rx.slots.cast();
        let (from, to) = (index(fill.consumer), index(rx.producer));
        for packet in 0..packets {
            let chunk = addrs.wrapping_add(slot(from, packet));
            // SAFETY: needed to see the other side's slots. The index is masked, so the slot lies
            // in the ring, whose slots are aligned, and nobody else uses it during the call.
            let chunk = unsafe { chunk.read() };
            let desc = libc::xdp_desc {
                addr: chunk + u64::from(xsk::XDP_PACKET_HEADROOM),
                len: 64,
                options: 0,
            };
            let received = descs.wrapping_add(slot(to, packet));
            // SAFETY: as for the slot of FILL.
            unsafe { received.write(desc) };
        }
        step(fill.consumer, packets);
        step(rx.producer, packets);
    }

    /// Sends the descriptors in TX, and completes them.
    #[inline(never)]
    pub(crate) fn sends(&self, packets: u32) {
        let [_, tx, _, completion] = &self.rings;
        let descs: *mut libc::xdp_desc = tx.slots.cast();
        let addrs: *mut u64 = completion.slots.cast();
        let (from, to) = (index(tx.consumer), index(completion.producer));
        for packet in 0..packets {
            let desc = descs.wrapping_add(slot(from, packet));
            // SAFETY: needed to see the other side's slots. The index is masked, so the slot lies
            // in the ring, whose slots are aligned, and nobody else uses it during the call.
            let addr = unsafe { desc.read() }.addr;
            let completed = addrs.wrapping_add(slot(to, packet));
            // SAFETY: as for the slot of TX.
            unsafe { completed.write(addr) };
        }
        step(tx.consumer, packets);
        step(completion.producer, packets);
    }
}

impl Side for Kernel {
    #[inline(always)]
    fn receive(&mut self, batch: u32) {
        self.receives(batch);
    }

    #[inline(always)]
    fn iterate(&mut self, batch: u32) {
        self.receives_from_fill(batch);
    }

    #[inline(always)]
    fn send(&mut self, batch: u32) {
        self.sends(batch);
    }

    #[inline(always)]
    fn forward(&mut self, batch: u32) {
        self.receives(batch);
        self.sends(batch);
    }
}

/// weir's library.
pub(crate) struct Weir {
    pub(crate) moves: Moves,
    pub(crate) kernel: Kernel,
}

impl Default for Weir {
    fn default() -> Self {
        Self::on(&umem())
    }
}

impl Weir {
    pub(crate) fn on(umem: &Umem) -> Self {
        let moves = Moves::new(umem);
        let kernel = Kernel {
            rings: moves.words(),
        };
        Self { moves, kernel }
    }
}

impl Side for Weir {
    #[inline(always)]
    fn receive(&mut self, batch: u32) {
        self.kernel.receives(batch);
        black_box(receive(&mut self.moves, batch));
    }

    #[inline(always)]
    fn iterate(&mut self, batch: u32) {
        self.kernel.receives_from_fill(batch);
        black_box(iterate(&mut self.moves, batch));
    }

    #[inline(always)]
    fn send(&mut self, batch: u32) {
        send(&mut self.moves, batch);
        self.kernel.sends(batch);
        black_box(self.moves.reclaim());
    }

    #[inline(always)]
    fn forward(&mut self, batch: u32) {
        self.kernel.receives(batch);
        forward(&mut self.moves, batch);
        self.kernel.sends(batch);
    }

    #[inline(always)]
    fn receive_each(&mut self, batch: u32) {
        self.kernel.receives(batch);
        black_box(receive_each(&mut self.moves, batch));
    }

    #[inline(always)]
    fn send_each(&mut self, batch: u32) {
        send_each(&mut self.moves, batch);
        self.kernel.sends(batch);
        black_box(self.moves.reclaim());
    }

    #[inline(always)]
    fn send_batch(&mut self, batch: u32) {
        send_batch(&mut self.moves, batch);
        self.kernel.sends(batch);
        black_box(self.moves.reclaim());
    }

    #[inline(always)]
    fn forward_each(&mut self, batch: u32) {
        self.kernel.receives(batch);
        forward_each(&mut self.moves, batch);
        self.kernel.sends(batch);
    }
}

#[inline(never)]
fn receive(moves: &mut Moves, batch: u32) -> u64 {
    let mut sum = 0;
    let mut packets = moves.recv(batch);
    while let Some(packet) = packets.next_packet() {
        sum += (packet.as_ptr() as u64).wrapping_add(packet.len() as u64);
    }
    sum
}

#[inline(never)]
fn iterate(moves: &mut Moves, batch: u32) -> u64 {
    let mut sum = 0;
    for packet in moves.recv(batch) {
        sum += (packet.as_ptr() as u64).wrapping_add(packet.len() as u64);
    }
    sum
}

#[inline(never)]
fn send(moves: &mut Moves, batch: u32) {
    for _ in 0..batch {
        let mut frame = moves.alloc().expect("completed frames come back");
        frame.resize(64).expect("there is room");
        moves.send(frame).expect("the ring has room");
    }
    moves.publish();
}

#[inline(never)]
fn forward(moves: &mut Moves, batch: u32) {
    let mut packets = moves.recv(batch);
    while let Some(packet) = packets.next_packet() {
        packet.send().expect("the ring has room");
    }
    drop(packets);
    moves.publish();
}

#[inline(never)]
fn receive_each(moves: &mut Moves, batch: u32) -> u64 {
    let mut sum = 0;
    moves.receive_each(batch, |packet| {
        sum += (packet.as_ptr() as u64).wrapping_add(packet.len() as u64);
        packet.recycle()
    });
    sum
}

#[inline(never)]
fn send_each(moves: &mut Moves, batch: u32) {
    let sent = moves.send_each(batch, |_| 64);
    assert_eq!(sent, batch, "completed frames come back");
    moves.publish();
}

#[inline(never)]
fn send_batch(moves: &mut Moves, batch: u32) {
    for mut packet in &mut moves.send_batch(batch) {
        packet.resize(64).expect("there is room");
        packet.send();
    }
    moves.publish();
}

#[inline(never)]
fn forward_each(moves: &mut Moves, batch: u32) {
    // The method alone is of one lifetime, and each packet has its own.
    #[expect(clippy::redundant_closure_for_method_calls)]
    moves.forward_each(batch, |packet| packet.send());
    moves.publish();
}

#[cfg(libxdp)]
pub(crate) use libxdp::Libxdp;

#[cfg(libxdp)]
mod libxdp {
    use super::{Kernel, Rings, Side, black_box};
    use crate::words::set;
    use xsk_moves as _; // It links them.

    unsafe extern "C" {
        fn moves_set_up(rings: *const Rings, memory: *const u8);
        safe fn moves_receive(batch: u32) -> u64;
        safe fn moves_send(batch: u32) -> u32;
        safe fn moves_complete(batch: u32) -> u32;
        safe fn moves_forward(batch: u32) -> u32;
    }

    /// libxdp's inline functions. Their state is C's and there once: the last one made counts.
    pub(crate) struct Libxdp {
        kernel: Kernel,
    }

    impl Default for Libxdp {
        fn default() -> Self {
            let kernel = Kernel::default();
            for ring in &kernel.rings {
                set(ring.producer, 0);
                set(ring.consumer, 0);
            }
            // SAFETY: needed to call C. Rings are laid out as it expects, and outlive its use; it
            // computes with the address of the packets' memory and never reads there.
            unsafe { moves_set_up(&raw const kernel.rings, std::ptr::dangling()) };
            Self { kernel }
        }
    }

    impl Side for Libxdp {
        #[inline(always)]
        fn receive(&mut self, batch: u32) {
            self.kernel.receives(batch);
            black_box(moves_receive(batch));
        }

        #[inline(always)]
        fn iterate(&mut self, batch: u32) {
            self.kernel.receives_from_fill(batch);
            black_box(moves_receive(batch));
        }

        #[inline(always)]
        fn send(&mut self, batch: u32) {
            black_box(moves_send(batch));
            self.kernel.sends(batch);
            black_box(moves_complete(batch));
        }

        #[inline(always)]
        fn forward(&mut self, batch: u32) {
            self.kernel.receives(batch);
            black_box(moves_forward(batch));
            self.kernel.sends(batch);
        }
    }
}
