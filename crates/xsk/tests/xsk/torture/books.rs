//! The books of a round: packets sent in a direction are received, or counted as dropped.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};

/// The packets in one direction.
#[derive(Debug, Default)]
pub struct Book {
    /// Accepted by a socket for sending.
    pub begun: AtomicU64,
    /// Published to the kernel, by closed sockets and open ones.
    pub sent: AtomicU64,
    /// Received by the program.
    pub received: AtomicU64,
    /// Counted by the receiving sockets' kernel side as dropped.
    pub dropped: AtomicU64,
    /// Most packets that faults may have taken without a count.
    pub allowance: AtomicU64,
    /// Packets that a thread still has to send or complete.
    pub unfinished: AtomicI64,
}

/// A time in which packets may be lost uncounted: until its end, all that are sent may be.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    sent: u64,
}

impl Book {
    /// Begins a window, before the cause of losses.
    pub fn begin_window(&self) -> Window {
        Window {
            sent: self.sent.load(SeqCst),
        }
    }

    /// Ends a window, after the cause; `under_way` packets sent before may be lost as well.
    pub fn end_window(&self, window: Window, under_way: u32) {
        let begun = self.begun.load(SeqCst);
        let lost = begun.saturating_sub(window.sent) + u64::from(under_way);
        self.allowance.fetch_add(lost, SeqCst);
    }

    /// Packets sent that are neither received nor in `dropped_elsewhere`.
    pub fn missing(&self, dropped_elsewhere: u64) -> i64 {
        let found = self.received.load(SeqCst) + dropped_elsewhere;
        self.sent.load(SeqCst).cast_signed() - found.cast_signed()
    }
}
