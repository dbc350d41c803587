//! How much slower this machine is at present than the reference machine, one vCPU of an AMD EPYC that no one else
//! uses. Other programs, other guests of the hypervisor and an emulator all count.

use std::hint::black_box;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The most that a limit grows, so that a hang ends.
pub(crate) const MAX: f64 = 30.0;

/// Steps of the piece of work.
const STEPS: u32 = 16_000_000;

/// The time of the piece on the reference machine, built as `Cargo.toml` of the workspace says.
const NOMINAL: Duration = Duration::from_millis(30);

/// Measures the slowdown: 1 or more. Takes [`NOMINAL`] times that.
pub(crate) fn measure() -> f64 {
    /// When the last measurement began, and what it gave. One at a time, as two would slow each other down.
    static LAST: Mutex<Option<(Instant, f64)>> = Mutex::new(None);
    let asked = Instant::now();
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    match *last {
        Some((begun, ratio)) if begun >= asked => ratio,
        _ => {
            let begun = Instant::now();
            let ratio = slowest().as_secs_f64() / NOMINAL.as_secs_f64();
            last.insert((begun, ratio.max(1.0))).1
        }
    }
}

/// The longest time of a piece, when each CPU that this process may use has one to do.
fn slowest() -> Duration {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let threads: Vec<_> = (0..cpus).map(|_| thread::spawn(piece)).collect();
    let times = threads.into_iter().filter_map(|thread| thread.join().ok());
    times.max().unwrap_or(NOMINAL)
}

/// Does the piece of work: a chain of steps, each of which needs the one before it.
fn piece() -> Duration {
    let begun = Instant::now();
    let mut word = black_box(1_u64);
    for _ in 0..STEPS {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
    }
    black_box(word);
    begun.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Threads for each CPU that take all time there is, until this is dropped.
    struct Busy(Arc<AtomicBool>);

    impl Busy {
        fn new(for_each_cpu: usize) -> Self {
            let is_over = Arc::new(AtomicBool::new(false));
            let cpus = thread::available_parallelism().map_or(1, usize::from);
            for _ in 0..cpus * for_each_cpu {
                let is_over = Arc::clone(&is_over);
                thread::spawn(move || while !is_over.load(Ordering::Relaxed) {});
            }
            Self(is_over)
        }
    }

    impl Drop for Busy {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// A machine that is twice as fast as the reference still shows half of it.
    const LEAST: f64 = 3.0;

    #[test]
    fn busy_cpus_slow_the_machine_down_and_no_limit_ends_early() {
        let busy = Busy::new(8);
        let slowdown = measure();
        assert!(slowdown >= LEAST, "{slowdown} with 8 threads for each CPU");
        let begun = Instant::now();
        let mut limit = crate::Limit::new(Duration::from_millis(200));
        assert!(!crate::wait_until(Duration::from_millis(200), || false));
        while !limit.is_over() {
            thread::sleep(Duration::from_millis(1));
        }
        let elapsed = begun.elapsed();
        drop(busy);
        assert!(elapsed.as_secs_f64() >= 0.2 * LEAST, "{elapsed:?}");
    }
}
