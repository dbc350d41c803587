//! `weir bench`: packet rate and CPU time per packet of each engine, side by side.
//!
//! A [session] follows a [plan] in one [place]. Its [runner] measures one
//! [combination](plan::Combination) after another: each in a fresh
//! [worker](crate::engine::worker) process, under a [load](crate::traffic::load) that the kernel
//! makes, and with a [check] that the packet counts add up. The results go into a [report].
//! [`instructions`] counts instructions instead of measuring time; [`rtt`] measures the latency of one
//! packet there and back.

pub mod check;
pub mod instructions;
pub mod place;
pub mod plan;
pub mod report;
pub mod rtt;
pub mod runner;
pub mod session;
