//! How to choose a socket's mode, its way of waiting, and its sizes.
//!
//! The defaults suit a program that receives and sends on one queue of a device with an MTU of
//! 1500: [`Mode::Auto`](crate::Mode::Auto), [`Wait::adaptive`](crate::Wait::adaptive), 4096 chunks
//! of 2048 bytes, rings of 2048 slots.
//!
//! | Question | Chapter |
//! |---|---|
//! | zero-copy, native or generic XDP? | [`modes`] |
//! | spin, poll or adaptive? | [`waiting`] |
//! | chunk size, number of chunks, rings, batch? | [`sizes`] |
//!
//! Kernel documentation: `Documentation/networking/af_xdp.rst`.

pub mod modes;
pub mod sizes;
pub mod waiting;
