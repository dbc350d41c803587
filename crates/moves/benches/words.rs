//! The words and slots of rings in plain memory, as their other side sees them.
#![allow(unsafe_code)] // The words are shared by address, as with the kernel.

use std::sync::atomic::{AtomicU32, Ordering};
use xsk::testing::moves::{SLOTS, Words};

/// RX, TX, FILL and COMPLETION.
pub(crate) type Rings = [Words; 4];

/// The place of a free-running index.
pub(crate) fn slot(index: u32, ahead: u32) -> usize {
    (index.wrapping_add(ahead) & (SLOTS - 1)) as usize
}

/// The index in a word.
pub(crate) fn index(word: *mut u32) -> u32 {
    // Acquire: pairs with the release by which the measured side publishes its indices.
    shared(word).load(Ordering::Acquire)
}

/// Publishes another index.
pub(crate) fn set(word: *mut u32, index: u32) {
    // Release: pairs with the acquire by which the measured side observes the index.
    shared(word).store(index, Ordering::Release);
}

/// Publishes the next `by` slots.
pub(crate) fn step(word: *mut u32, by: u32) {
    set(word, index(word).wrapping_add(by));
}

fn shared<'w>(word: *mut u32) -> &'w AtomicU32 {
    // SAFETY: needed to share the word. It lies in rings that outlive their use by the benches, and is
    // aligned as both sides need it.
    unsafe { AtomicU32::from_ptr(word) }
}
