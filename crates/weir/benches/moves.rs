//! What moving a packet through the rings costs, in nanoseconds a packet, without a kernel:
//! weir's library beside libxdp's inline functions, on the same rings with the same moves.
//!
//! The other side of the rings is the same C code for both, and `kernel` shows what that alone
//! costs: take it off both sides before comparing.
#![allow(unsafe_code)] // Calls into C, over rings that both sides see.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use xsk::testing::moves::{Moves, Words, umem};

/// RX, TX, FILL and COMPLETION.
type Rings = [Words; 4];

const BATCHES: [u32; 3] = [1, 8, 64];

#[cfg(libxdp)]
mod c {
    use super::Rings;

    // `libxdp/moves.c`, linked by the build script.
    unsafe extern "C" {
        pub(super) fn moves_kernel_receives(rings: *const Rings, packets: u32);
        pub(super) fn moves_kernel_sends(rings: *const Rings, packets: u32);
        pub(super) fn moves_set_up(rings: *const Rings, memory: *const u8);
        pub(super) safe fn moves_receive(batch: u32) -> u64;
        pub(super) safe fn moves_send(batch: u32) -> u32;
        pub(super) safe fn moves_complete(batch: u32) -> u32;
        pub(super) safe fn moves_forward(batch: u32) -> u32;
    }
}

/// The kernel's moves on one set of rings.
struct Kernel {
    rings: Rings,
}

#[cfg(libxdp)]
impl Kernel {
    fn receives(&self, packets: u32) {
        // SAFETY: needed to call C. The rings are laid out as `moves.c` expects and outlive the
        // call; their other side is used by this thread, between the calls.
        unsafe { c::moves_kernel_receives(&raw const self.rings, packets) }
    }

    fn sends(&self, packets: u32) {
        // SAFETY: as in `receives`.
        unsafe { c::moves_kernel_sends(&raw const self.rings, packets) }
    }
}

/// Measures `pass`, which moves a batch, for each size of batch.
fn measure(criterion: &mut Criterion, group: &str, side: &str, mut pass: impl FnMut(u32)) {
    let mut group = criterion.benchmark_group(group);
    for batch in BATCHES {
        group.throughput(Throughput::Elements(u64::from(batch)));
        group.bench_function(BenchmarkId::new(side, batch), |b| {
            b.iter(|| pass(black_box(batch)));
        });
    }
    group.finish();
}

#[cfg(libxdp)]
fn weir(criterion: &mut Criterion) {
    let umem = umem();
    let mut moves = Moves::new(&umem);
    let kernel = Kernel {
        rings: moves.words(),
    };
    measure(criterion, "receive", "weir", |batch| {
        kernel.receives(batch);
        black_box(receive(&mut moves, batch));
    });
    measure(criterion, "send", "weir", |batch| {
        send(&mut moves, batch);
        kernel.sends(batch);
        black_box(moves.reclaim());
    });
    measure(criterion, "forward", "weir", |batch| {
        kernel.receives(batch);
        forward(&mut moves, batch);
        kernel.sends(batch);
    });
}

#[inline(never)]
fn receive(moves: &mut Moves<'_>, batch: u32) -> u64 {
    let mut sum = 0;
    let mut packets = moves.recv(batch);
    while let Some(packet) = packets.next_packet() {
        sum += (packet.as_ptr() as u64).wrapping_add(packet.len() as u64);
    }
    sum
}

#[inline(never)]
fn send(moves: &mut Moves<'_>, batch: u32) {
    for _ in 0..batch {
        let mut frame = moves.alloc().expect("completed frames come back");
        frame.resize(64).expect("there is room");
        moves.send(frame).expect("the ring has room");
    }
    moves.publish();
}

#[inline(never)]
fn forward(moves: &mut Moves<'_>, batch: u32) {
    let mut packets = moves.recv(batch);
    while let Some(packet) = packets.next_packet() {
        packet.send().expect("the ring has room");
    }
    drop(packets);
    moves.publish();
}

#[cfg(libxdp)]
fn libxdp(criterion: &mut Criterion) {
    // The memory alone is wanted of these: zeroed rings, which C lays out anew.
    let umem = umem();
    let moves = Moves::new(&umem);
    let kernel = Kernel {
        rings: moves.words(),
    };
    for ring in &kernel.rings {
        for word in [ring.producer, ring.consumer] {
            // SAFETY: needed to start from zero. The words lie in `moves`, which nothing uses
            // any more but to keep the memory.
            unsafe { word.write(0) };
        }
    }
    // SAFETY: needed to call C. Rings are laid out as it expects, and outlive its use; it
    // computes with the address of the packets' memory and never reads there.
    unsafe { c::moves_set_up(&raw const kernel.rings, std::ptr::dangling()) };
    measure(criterion, "receive", "libxdp", |batch| {
        kernel.receives(batch);
        black_box(c::moves_receive(batch));
    });
    measure(criterion, "send", "libxdp", |batch| {
        black_box(c::moves_send(batch));
        kernel.sends(batch);
        black_box(c::moves_complete(batch));
    });
    measure(criterion, "forward", "libxdp", |batch| {
        kernel.receives(batch);
        black_box(c::moves_forward(batch));
        kernel.sends(batch);
    });
    measure(criterion, "receive", "kernel", |batch| {
        kernel.receives(batch);
    });
    measure(criterion, "send", "kernel", |batch| kernel.sends(batch));
    measure(criterion, "forward", "kernel", |batch| {
        kernel.receives(batch);
        kernel.sends(batch);
    });
}

#[cfg(libxdp)]
criterion_group!(benches, weir, libxdp);
#[cfg(libxdp)]
criterion_main!(benches);

#[cfg(not(libxdp))]
fn main() {
    eprintln!(
        "the rings' other side is built with libxdp's headers: install libxdp's and libbpf's development packages"
    );
}
