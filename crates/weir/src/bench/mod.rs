//! `weir bench`: each engine on the same packets, and its cost.
//!
//! The bench makes a [plan], and its [runner] measures one [combination](plan::Combination)
//! after another: each in a fresh [worker](crate::engine::worker) process, under a
//! [load](crate::traffic::load) that the kernel makes, and with a [check] that the numbers add
//! up. The results go into a [report].

pub mod check;
pub mod count;
pub mod plan;
pub mod report;
pub mod runner;
