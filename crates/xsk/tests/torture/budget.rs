//! Time limits. Each ends a hang, and is many times the usual time; `WEIR_TEST_SCALE` multiplies it.

use std::sync::OnceLock;
use std::time::Duration;

/// Longest time for a thread to get from one turn to the next, with its sockets opened or closed.
pub const SET_UP: Duration = Duration::from_secs(20);
/// Longest time until all packets are accounted for, when no more are sent.
pub const SETTLE: Duration = Duration::from_secs(20);

/// A limit times `WEIR_TEST_SCALE`.
pub fn scaled(limit: Duration) -> Duration {
    static SCALE: OnceLock<u32> = OnceLock::new();
    limit
        * *SCALE.get_or_init(|| {
            let set = std::env::var("WEIR_TEST_SCALE").ok();
            let scale = set.and_then(|scale| scale.parse().ok());
            scale.filter(|&scale| scale > 0).unwrap_or(1)
        })
}
