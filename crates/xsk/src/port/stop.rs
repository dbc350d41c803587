//! The flag that ends the workers of a port.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A request to the workers of a port to end; see [`Port::run`](crate::Port::run). Clones are the same flag.
///
/// ```
/// let stop = xsk::StopFlag::default();
/// let seen_by_a_worker = stop.clone();
/// assert!(!seen_by_a_worker.is_raised());
/// stop.raise();
/// assert!(seen_by_a_worker.is_raised());
/// ```
#[derive(Debug, Clone, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Asks the workers to end. It may be called in a signal handler.
    pub fn raise(&self) {
        // Relaxed: no data goes with it. A worker's results are seen by joining its thread.
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the workers are asked to end.
    #[inline]
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
