//! Time limits: one that ends a hang, and that of a repetition, the same on all machines.

use std::time::{Duration, Instant};

/// Longest time without any progress while packets are under way.
pub const STALL: Duration = Duration::from_secs(10);
/// Longest time for repetitions.
const STRESS: Duration = Duration::from_secs(15);

/// The numbers of `most` rounds, of fewer where they take too long, and of two at least.
pub fn rounds(most: u32) -> impl Iterator<Item = u32> {
    let begin = Instant::now();
    (0..most).take_while(move |&round| round < 2 || begin.elapsed() < STRESS)
}
