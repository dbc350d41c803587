//! A ring for code outside of this library.

use std::ffi::c_void;
use std::ptr::null_mut;

/// A ring for code outside of this library that moves slots itself: its memory, and the place of our side in it.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct RawRing {
    /// The producer's index.
    pub producer: *mut u32,
    /// The consumer's index.
    pub consumer: *mut u32,
    /// The flag word.
    pub flags: *mut u32,
    /// The first slot.
    pub slots: *mut c_void,
    /// The next slot to read or to write, free-running.
    pub next: u32,
    /// The first slot that cannot be read, or is not ours to write.
    pub limit: u32,
    /// Number of slots, less one.
    pub mask: u32,
    /// 0
    pub reserved: u32,
}

impl RawRing {
    /// Moves the place of our side.
    pub(crate) fn set_place(&mut self, (next, limit): (u32, u32)) {
        (self.next, self.limit) = (next, limit);
    }

    /// No ring.
    pub const NONE: Self = Self {
        producer: null_mut(),
        consumer: null_mut(),
        flags: null_mut(),
        slots: null_mut(),
        next: 0,
        limit: 0,
        mask: 0,
        reserved: 0,
    };
}
