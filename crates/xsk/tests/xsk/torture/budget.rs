//! Time limits. Each ends a hang, and is many times the usual time. A loaded machine can keep the kernel's workers, which closing a socket or a device waits for, from their CPU for a minute.

use std::time::Duration;

/// Longest time for a thread to get from one turn to the next, with its sockets opened or closed.
pub const SET_UP: Duration = Duration::from_secs(240);
/// Longest time until the kernel has let go of a queue: a worker of its does that, milliseconds after the close.
pub const BUSY: Duration = Duration::from_secs(120);
/// Longest time without any change in which packets are not accounted for, when no more are sent.
pub const SETTLE: Duration = Duration::from_secs(60);
