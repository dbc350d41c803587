//! Counts and latencies of supervised calls.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Buckets of a [`Histogram`]: the last one takes all of 2^30 ns, a second, and more.
pub const BUCKETS: usize = 32;

/// Latencies in powers of two: bucket `n` counts those below 2^n nanoseconds that are in no lower one.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    /// All of them together, in nanoseconds.
    sum: AtomicU64,
}

impl Histogram {
    fn record(&self, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = (u64::BITS - nanoseconds.leading_zeros()) as usize;
        if let Some(bucket) = self.buckets.get(bucket.min(BUCKETS - 1)) {
            bucket.fetch_add(1, Relaxed);
        }
        self.sum.fetch_add(nanoseconds, Relaxed);
    }
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The handler answered it.
    Answered,
    /// The handler made it fail.
    Refused,
    /// The kernel ran it.
    Continued,
    /// Its caller died meanwhile.
    Gone,
}

/// Of one handler.
#[derive(Debug, Default)]
pub struct HandlerMetrics {
    answered: AtomicU64,
    refused: AtomicU64,
    continued: AtomicU64,
    gone: AtomicU64,
    latency: Histogram,
}

impl HandlerMetrics {
    /// Counts a call.
    pub fn record(&self, outcome: Outcome, took: Duration) {
        let count = match outcome {
            Outcome::Answered => &self.answered,
            Outcome::Refused => &self.refused,
            Outcome::Continued => &self.continued,
            Outcome::Gone => &self.gone,
        };
        count.fetch_add(1, Relaxed);
        self.latency.record(took);
    }
}

/// The figures of a handler at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures {
    /// Calls that it answered.
    pub answered: u64,
    /// Calls that it made fail.
    pub refused: u64,
    /// Calls that it left to the kernel.
    pub continued: u64,
    /// Calls whose caller died before the answer.
    pub gone: u64,
    /// Calls by latency, from their arrival to the answer: below 2^n nanoseconds at index n.
    pub buckets: [u64; BUCKETS],
    /// The latencies' sum.
    pub nanoseconds: u64,
}

/// Of all handlers of one tenant, by name; all its sessions share it.
#[derive(Debug, Default)]
pub struct Metrics(Mutex<BTreeMap<&'static str, Arc<HandlerMetrics>>>);

impl Metrics {
    /// Those of a handler.
    pub fn of(&self, handler: &'static str) -> Arc<HandlerMetrics> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(handler).or_default())
    }

    /// The figures of each handler so far.
    pub fn figures(&self) -> Vec<(&'static str, Figures)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter()
            .map(|(name, of)| {
                let figures = Figures {
                    answered: of.answered.load(Relaxed),
                    refused: of.refused.load(Relaxed),
                    continued: of.continued.load(Relaxed),
                    gone: of.gone.load(Relaxed),
                    buckets: of
                        .latency
                        .buckets
                        .each_ref()
                        .map(|count| count.load(Relaxed)),
                    nanoseconds: of.latency.sum.load(Relaxed),
                };
                (*name, figures)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_latency_is_in_the_bucket_of_its_power_of_two() {
        let metrics = Metrics::default();
        for nanoseconds in [0, 1, 2, 3, 1023, 1024, 1 << 40] {
            let took = Duration::from_nanos(nanoseconds);
            metrics.of("a").record(Outcome::Answered, took);
        }
        metrics.of("b").record(Outcome::Gone, Duration::ZERO);
        let figures = metrics.figures();
        let (name, a) = &figures[0];
        assert_eq!((*name, a.answered, a.gone), ("a", 7, 0));
        let filled: Vec<_> = (0..)
            .zip(a.buckets)
            .filter(|(_, count)| *count > 0)
            .collect();
        assert_eq!(filled, [(0, 1), (1, 1), (2, 2), (10, 1), (11, 1), (31, 1)]);
        assert_eq!((figures[1].0, figures[1].1.gone), ("b", 1));
    }
}
