//! The library's moves with metadata on.
#![allow(unsafe_code)] // Hints are written in place of an XDP program.

use crate::sides::{Side, Weir};
use std::hint::black_box;
use xsk::TxRequest;
use xsk::testing::moves::{Moves, SLOTS, umem_with_metadata};

/// weir's library with metadata: each packet received has hints, and each one sent asks for its checksum; those of
/// `send_each` for a timestamp, too.
pub(crate) struct Metadata(Weir);

impl Default for Metadata {
    fn default() -> Self {
        let weir = Weir::on(&umem_with_metadata());
        for chunk in 0..SLOTS as usize {
            let packet = chunk * 2048 + xsk::XDP_PACKET_HEADROOM as usize;
            let hints = weir.moves.memory().wrapping_add(packet - HINTS.len());
            // SAFETY: needed to be the XDP program, which writes into the memory. The bytes lie in a chunk,
            // and nobody else uses them yet.
            unsafe { hints.cast::<[u8; HINTS.len()]>().write(HINTS) };
        }
        Self(weir)
    }
}

/// A timestamp, a hash and a VLAN tag, as the library's XDP program writes them.
const HINTS: [u8; 24] = [
    1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0x81, 0, 7, 0, 7, 0x69, 0x65, 0x77,
];

impl Side for Metadata {
    #[inline(always)]
    fn receive(&mut self, batch: u32) {
        self.0.kernel.receives(batch);
        black_box(receive_hints(&mut self.0.moves, batch));
    }

    #[inline(always)]
    fn iterate(&mut self, batch: u32) {
        self.0.iterate(batch);
    }

    #[inline(always)]
    fn send(&mut self, batch: u32) {
        send_with(&mut self.0.moves, batch, checksum());
        self.0.kernel.sends(batch);
        black_box(self.0.moves.reclaim());
    }

    #[inline(always)]
    fn send_each(&mut self, batch: u32) {
        send_with(&mut self.0.moves, batch, checksum().timestamp(1));
        self.0.kernel.sends(batch);
        black_box(self.0.moves.reclaim());
    }

    #[inline(always)]
    fn forward(&mut self, batch: u32) {
        self.0.forward(batch);
    }
}

#[inline(never)]
fn receive_hints(moves: &mut Moves, batch: u32) -> u64 {
    let mut sum = 0;
    let mut packets = moves.recv(batch);
    while let Some(packet) = packets.next_packet() {
        sum += (packet.as_ptr() as u64).wrapping_add(packet.len() as u64);
        sum += packet.hints().timestamp.expect("each packet has one");
    }
    sum
}

#[inline(always)]
fn checksum() -> TxRequest {
    TxRequest::new().checksum(34, 6)
}

#[inline(never)]
fn send_with(moves: &mut Moves, batch: u32, request: TxRequest) {
    for _ in 0..batch {
        let mut frame = moves.alloc().expect("completed frames come back");
        frame.resize(64).expect("there is room");
        moves.send_with(frame, &request).expect("the ring has room");
    }
    moves.publish();
}
