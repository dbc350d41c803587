//! Time limits: those that end a hang, generous and scaled by `WEIR_TEST_SCALE` for slow machines,
//! and that of a repetition, the same on all machines.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Longest time for one command that sets up the network.
pub const SET_UP: Duration = Duration::from_secs(20);
/// Longest time for a whole test, with setup, repetitions and cleanup.
pub const TEST: Duration = Duration::from_secs(120);
/// Longest time without any progress while packets are under way.
pub const STALL: Duration = Duration::from_secs(10);
/// Longest time for repetitions.
const STRESS: Duration = Duration::from_secs(15);

/// A limit times `WEIR_TEST_SCALE`.
pub fn scaled(limit: Duration) -> Duration {
    static SCALE: OnceLock<u32> = OnceLock::new();
    let scale = SCALE.get_or_init(|| {
        let set = std::env::var("WEIR_TEST_SCALE").ok();
        set.and_then(|scale| scale.parse().ok())
            .filter(|&scale| scale > 0)
            .unwrap_or(1)
    });
    limit * *scale
}

/// The numbers of `most` rounds, of fewer where they take too long, and of two at least.
pub fn rounds(most: u32) -> impl Iterator<Item = u32> {
    let begin = Instant::now();
    (0..most).take_while(move |&round| round < 2 || begin.elapsed() < STRESS)
}

/// Waits until `done`, or until the limit is over.
pub fn wait_until(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + scaled(limit);
    loop {
        if done() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}
