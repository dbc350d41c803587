//! How many instructions moving a packet through the rings takes, counted by Callgrind: weir's
//! library beside libxdp's inline functions, and the kernel's part alone, to be taken off both.
//!
//! `./run instructions` runs this, and compares the counts with `instructions.toml`.
#![allow(missing_docs)] // gungraun's macros make public items without documentation.

mod metadata;
mod sides;
mod words;

use gungraun::prelude::*;
use metadata::Metadata;
use sides::{Kernel, Move, Side, Weir};
use std::hint::black_box;
use xsk::testing::moves::SLOTS;

/// Packets that a count is of; `scripts/instructions.sh` reads this line.
const PACKETS: u32 = 8192;

// Some of the work comes once a ring: it is counted as often as it comes.
const _: () = assert!(PACKETS.is_multiple_of(SLOTS));

/// A side that has moved a ring's worth of packets, and the part of it to count.
struct Ready<S> {
    /// Boxed: to hand it on is no call of memcpy, which differs between CPUs.
    side: Box<S>,
    kind: Move,
    batch: u32,
}

fn ready<S: Side>(kind: Move, batch: u32) -> Ready<S> {
    let side = Box::default();
    let mut ready = Ready { side, kind, batch };
    ready.pass(SLOTS);
    ready
}

impl<S: Side> Ready<S> {
    #[inline(always)]
    fn pass(&mut self, packets: u32) {
        for _ in 0..packets / self.batch {
            self.side.pass(self.kind, black_box(self.batch));
        }
    }
}

/// Every move in every batch of one side; the names are read by `scripts/instructions.sh`.
macro_rules! side {
    ($name:ident, $side:ty) => {
        #[library_benchmark(setup = ready)]
        #[bench::receive_1(Move::Receive, 1)]
        #[bench::receive_8(Move::Receive, 8)]
        #[bench::receive_64(Move::Receive, 64)]
        #[bench::receive_256(Move::Receive, 256)]
        #[bench::iterate_1(Move::Iterate, 1)]
        #[bench::iterate_8(Move::Iterate, 8)]
        #[bench::iterate_64(Move::Iterate, 64)]
        #[bench::iterate_256(Move::Iterate, 256)]
        #[bench::send_1(Move::Send, 1)]
        #[bench::send_8(Move::Send, 8)]
        #[bench::send_64(Move::Send, 64)]
        #[bench::send_256(Move::Send, 256)]
        #[bench::forward_1(Move::Forward, 1)]
        #[bench::forward_8(Move::Forward, 8)]
        #[bench::forward_64(Move::Forward, 64)]
        #[bench::forward_256(Move::Forward, 256)]
        #[bench::receive_each_64(Move::ReceiveEach, 64)]
        #[bench::receive_each_256(Move::ReceiveEach, 256)]
        #[bench::receive_each_1024(Move::ReceiveEach, 1024)]
        #[bench::send_each_64(Move::SendEach, 64)]
        #[bench::send_each_256(Move::SendEach, 256)]
        #[bench::send_each_1024(Move::SendEach, 1024)]
        #[bench::send_batch_64(Move::SendBatch, 64)]
        #[bench::send_batch_256(Move::SendBatch, 256)]
        #[bench::send_batch_1024(Move::SendBatch, 1024)]
        #[bench::forward_each_64(Move::ForwardEach, 64)]
        #[bench::forward_each_256(Move::ForwardEach, 256)]
        #[bench::forward_each_1024(Move::ForwardEach, 1024)]
        fn $name(mut ready: Ready<$side>) -> Ready<$side> {
            ready.pass(PACKETS);
            ready // Its end is not counted.
        }
    };
}

side!(weir, Weir);
side!(kernel, Kernel);

// With metadata on: hints are read, and requests sent.
#[library_benchmark(setup = ready)]
#[bench::receive_64(Move::Receive, 64)]
#[bench::send_64(Move::Send, 64)]
#[bench::send_each_64(Move::SendEach, 64)]
fn with_metadata(mut ready: Ready<Metadata>) -> Ready<Metadata> {
    ready.pass(PACKETS);
    ready
}

library_benchmark_group!(name = counted, benchmarks = [weir, kernel, with_metadata]);

#[cfg(libxdp)]
side!(libxdp, sides::Libxdp);
#[cfg(libxdp)]
library_benchmark_group!(name = compared, benchmarks = libxdp);

#[cfg(libxdp)]
main!(library_benchmark_groups = counted, compared);
#[cfg(not(libxdp))]
main!(library_benchmark_groups = counted);
