//! Time limits. A limit ends a hang, and a loaded machine does not end it early: it is multiplied by
//! `WEIR_TEST_SCALE` (a whole number, 1 by default) and by what the machine is slower at present than the
//! reference machine, by at most 30. That is measured where a limit would be over, so a good run does not measure.

use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::error::Failure;
use crate::slowdown;

/// The pauses between two looks at a condition: the first ones, and the longest.
const FIRST_PAUSE: Duration = Duration::from_micros(200);
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// `WEIR_TEST_SCALE`.
pub fn scale() -> u32 {
    static SCALE: OnceLock<u32> = OnceLock::new();
    *SCALE.get_or_init(|| {
        let set = std::env::var("WEIR_TEST_SCALE").ok();
        let scale = set.and_then(|scale| scale.parse().ok());
        scale.filter(|&scale| scale > 0).unwrap_or(1)
    })
}

/// The longest that a [`Limit`] can last here: for a time-out that other code keeps, and that only a hang reaches.
pub fn longest(limit: Duration) -> Duration {
    (limit * scale()).mul_f64(slowdown::MAX)
}

/// A time limit that begins when it is made.
#[derive(Debug, Clone)]
pub struct Limit {
    begun: Instant,
    /// Its length on the reference machine, idle.
    nominal: Duration,
    /// When it may be over, after its begin.
    end: Duration,
    is_past: bool,
}

impl Limit {
    /// A limit of `limit` on the idle reference machine.
    pub fn new(limit: Duration) -> Self {
        let nominal = limit * scale();
        Self {
            begun: Instant::now(),
            nominal,
            end: nominal,
            is_past: false,
        }
    }

    /// Begins again, such as when there is progress.
    pub fn restart(&mut self) {
        self.begun = Instant::now();
        self.end = self.nominal;
        self.is_past = false;
    }

    /// Whether it is over. Measures the machine if it would be over on an idle one.
    pub fn is_over(&mut self) -> bool {
        self.is_over_at(self.begun.elapsed(), slowdown::measure)
    }

    fn is_over_at(&mut self, elapsed: Duration, slowdown: impl FnOnce() -> f64) -> bool {
        if self.is_past || elapsed < self.end {
            return self.is_past;
        }
        let longest = self.nominal.mul_f64(slowdown::MAX);
        if elapsed < longest {
            self.end = self
                .nominal
                .mul_f64(slowdown())
                .clamp(self.nominal, longest);
        }
        self.is_past = elapsed >= self.end;
        self.is_past
    }

    /// The time for which it is surely not over: a time-out for one call of several.
    pub fn left(&self) -> Duration {
        let left = self.end.saturating_sub(self.begun.elapsed());
        left.max(Duration::from_millis(1))
    }

    /// Receives a message, unless the limit is over before.
    pub fn receive<T>(&mut self, receiver: &Receiver<T>) -> Result<T, RecvTimeoutError> {
        loop {
            match receiver.recv_timeout(self.left()) {
                Err(RecvTimeoutError::Timeout) if !self.is_over() => {}
                result => return result,
            }
        }
    }

    /// Waits until `is_so`, and returns false if the limit is over before.
    pub fn wait_until(&mut self, mut is_so: impl FnMut() -> bool) -> bool {
        let waited = self.until("", || Ok::<_, Failure>(is_so()));
        waited.is_ok()
    }

    /// Waits until `is_so`; an error of `is_so` ends the wait.
    ///
    /// # Errors
    ///
    /// The words `not in time: WHAT` if the limit is over before.
    pub fn until<E: From<Failure>>(
        &mut self,
        what: &str,
        mut is_so: impl FnMut() -> Result<bool, E>,
    ) -> Result<(), E> {
        let begun = Instant::now();
        // Also at the end: whoever gets no CPU for the whole time still looks once.
        while !is_so()? {
            if self.is_over() {
                return if is_so()? {
                    Ok(())
                } else {
                    Err(Failure::new(format!("not in time: {what}")).into())
                };
            }
            let pause = begun.elapsed() / 64;
            std::thread::sleep(pause.clamp(FIRST_PAUSE, LONGEST_PAUSE));
        }
        Ok(())
    }
}

/// [`Limit::wait_until`] with a limit that begins now.
pub fn wait_until(limit: Duration, is_so: impl FnMut() -> bool) -> bool {
    Limit::new(limit).wait_until(is_so)
}

/// [`Limit::until`] with a limit that begins now.
pub fn until<E: From<Failure>>(
    limit: Duration,
    what: &str,
    is_so: impl FnMut() -> Result<bool, E>,
) -> Result<(), E> {
    Limit::new(limit).until(what, is_so)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn limit() -> Limit {
        Limit {
            begun: Instant::now(),
            nominal: SECOND,
            end: SECOND,
            is_past: false,
        }
    }

    #[test]
    fn a_good_run_measures_nothing() {
        let mut limit = limit();
        assert!(!limit.is_over_at(SECOND / 2, || unreachable!("it measures")));
        assert!(limit.left() > SECOND / 2);
    }

    #[test]
    fn a_limit_is_longer_on_a_loaded_machine_and_looks_again() {
        let mut limit = limit();
        assert!(!limit.is_over_at(SECOND, || 3.0));
        assert!(limit.left() > 2 * SECOND);
        assert!(!limit.is_over_at(2 * SECOND, || unreachable!("it measures")));
        assert!(!limit.is_over_at(3 * SECOND, || 5.0));
        assert!(limit.is_over_at(5 * SECOND, || 1.0));
        assert!(limit.is_over_at(5 * SECOND, || unreachable!("it measures")));
        limit.restart();
        assert!(!limit.is_over());
    }

    #[test]
    fn a_limit_is_over_on_an_idle_machine() {
        assert!(limit().is_over_at(SECOND, || 1.0));
        // A faster machine shortens nothing.
        assert!(!limit().is_over_at(SECOND / 2, || 0.1));
    }

    #[test]
    fn a_hang_ends_on_any_machine() {
        let mut limit = limit();
        assert!(!limit.is_over_at(29 * SECOND, || 1e9));
        assert!(limit.is_over_at(30 * SECOND, || unreachable!("it measures")));
    }

    #[test]
    fn a_wait_ends_with_its_words() {
        let tick = Duration::from_millis(1);
        let late: Result<(), Failure> = until(tick, "the moon falls", || Ok(false));
        assert_eq!(
            late.expect_err("it is late").to_string(),
            "not in time: the moon falls"
        );
        let failed = until(tick, "", || Err(Failure::new("broken")));
        assert_eq!(failed, Err(Failure::new("broken")));
        assert!(wait_until(tick, || true));
    }

    #[test]
    fn a_receiver_waits_for_its_limit() {
        let (sender, receiver) = std::sync::mpsc::channel();
        sender.send(1).expect("a receiver");
        let mut limit = Limit::new(Duration::from_millis(1));
        assert_eq!(limit.receive(&receiver), Ok(1));
        assert_eq!(limit.receive(&receiver), Err(RecvTimeoutError::Timeout));
    }
}
