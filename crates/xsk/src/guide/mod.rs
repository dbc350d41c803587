//! How to choose a socket's packets, its mode, its way of waiting, its way of moving packets, and its
//! sizes; and how to keep it while its device changes.
//!
//! The defaults suit a program that receives and sends on one queue of a device with an MTU of
//! 1500: [`Mode::Auto`](crate::Mode::Auto), [`Wait::adaptive`](crate::Wait::adaptive), 4096 chunks
//! of 2048 bytes, rings of 2048 slots.
//!
//! | Question | Chapter |
//! |---|---|
//! | which packets, and beside which XDP programs? | [`packets`] |
//! | zero-copy, native or generic XDP? | [`modes`] |
//! | spin, poll or adaptive? | [`waiting`] |
//! | one by one, by closures or by arrays? | [`bursts`] |
//! | several queues, threads, devices? | [`queues`] |
//! | chunk size, number of chunks, rings, batch? | [`sizes`] |
//! | packets longer than a chunk? | [`fragments`] |
//! | checksums, timestamps, VLAN tags? | [`metadata`] |
//! | an event loop, or tokio? | [`event_loops`] |
//! | devices that change, leave and return? | [`life_cycle`] |
//! | a socket for an unprivileged process? | [`processes`] |
//!
//! Kernel documentation: `Documentation/networking/af_xdp.rst`.

pub mod bursts;
pub mod event_loops;
pub mod fragments;
pub mod life_cycle;
pub mod metadata;
pub mod modes;
pub mod packets;
pub mod processes;
pub mod queues;
pub mod sizes;
pub mod waiting;
