//! The most requests in a time: a bucket of tokens.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A bucket that holds some tokens and gains one in each interval. A request takes one.
#[derive(Debug)]
pub struct Limit {
    interval: Duration,
    burst: u32,
    state: Mutex<(f64, Instant)>,
}

impl Limit {
    /// A full bucket.
    pub fn new(interval: Duration, burst: u32, now: Instant) -> Self {
        Self {
            interval,
            burst,
            state: Mutex::new((f64::from(burst), now)),
        }
    }

    /// Takes a token, if there is one.
    pub fn admit(&self, now: Instant) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (tokens, last) = *state;
        let passed = now.saturating_duration_since(last).as_secs_f64();
        let gained = passed / self.interval.as_secs_f64();
        let tokens = (tokens + gained).min(f64::from(self.burst));
        let admitted = tokens >= 1.0;
        *state = (if admitted { tokens - 1.0 } else { tokens }, now.max(last));
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_one_an_interval() {
        let start = Instant::now();
        let limit = Limit::new(Duration::from_secs(1), 3, start);
        let admitted = |at: f64| limit.admit(start + Duration::from_secs_f64(at));
        assert_eq!(
            [0.0, 0.0, 0.0, 0.0].map(admitted),
            [true, true, true, false]
        );
        assert_eq!([0.5, 1.1, 1.2].map(admitted), [false, true, false]);
        assert_eq!(
            [100.0, 100.0, 100.0, 100.0].map(admitted),
            [true, true, true, false]
        );
    }
}
