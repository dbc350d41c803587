//! The cost of moving a packet through the rings, in nanoseconds a packet, without a kernel:
//! weir's library beside libxdp's inline functions, on the same rings with the same moves.
//!
//! The other side of the rings is the same code for both, and `kernel` shows its price alone: take it
//! off both sides before comparing. `instructions.rs` counts instructions.

mod sides;
mod words;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sides::{Kernel, Move, Side, Weir};
use std::hint::black_box;

/// One packet at a time, in a batch.
const BATCHES: &[u32] = &[1, 8, 64, 256];
/// In bulk.
const BULK_BATCHES: &[u32] = &[64, 256, 1024];

const MOVES: [(&str, Move, &[u32]); 8] = [
    ("receive", Move::Receive, BATCHES),
    ("iterate", Move::Iterate, BATCHES),
    ("send", Move::Send, BATCHES),
    ("forward", Move::Forward, BATCHES),
    ("receive_each", Move::ReceiveEach, BULK_BATCHES),
    ("send_each", Move::SendEach, BULK_BATCHES),
    ("send_batch", Move::SendBatch, BULK_BATCHES),
    ("forward_each", Move::ForwardEach, BULK_BATCHES),
];

/// Measures a pass of each move for each size of batch.
fn measure(criterion: &mut Criterion, name: &str, side: &mut impl Side) {
    for (group, kind, batches) in MOVES {
        let mut group = criterion.benchmark_group(group);
        for &batch in batches {
            group.throughput(Throughput::Elements(u64::from(batch)));
            group.bench_function(BenchmarkId::new(name, batch), |b| {
                b.iter(|| side.pass(kind, black_box(batch)));
            });
        }
        group.finish();
    }
}

fn all_sides(criterion: &mut Criterion) {
    measure(criterion, "weir", &mut Weir::default());
    #[cfg(libxdp)]
    measure(criterion, "libxdp", &mut sides::Libxdp::default());
    measure(criterion, "kernel", &mut Kernel::default());
    #[cfg(not(libxdp))]
    eprintln!(
        "libxdp's side was not built: install libxdp's and libbpf's development packages to compare"
    );
}

criterion_group!(benches, all_sides);
criterion_main!(benches);
