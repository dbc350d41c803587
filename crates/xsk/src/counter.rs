//! Counters that any thread can read.

use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A counter to which one thread adds. A clone is the same counter, to be read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counter(Arc<AtomicU64>);

impl Counter {
    pub(crate) fn get(&self) -> u64 {
        // Relaxed, as below: each counter is read for itself.
        self.0.load(Relaxed)
    }
}

impl AddAssign<u64> for Counter {
    #[inline(always)]
    fn add_assign(&mut self, count: u64) {
        // Not one atomic step, which takes longer: only the thread that has the rings adds.
        self.0.store(self.0.load(Relaxed) + count, Relaxed);
    }
}
