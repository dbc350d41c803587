//! `weir bench`: what each engine does on the same packets, and what it costs.
//!
//! The bench makes a [plan], and its [runner] measures one [combination](plan::Combination)
//! after another: each in a fresh [worker] process, under a [load] that the kernel makes, and
//! with a [check] that the numbers add up. What comes of it goes into a [report].

pub mod check;
pub mod count;
pub mod engine;
pub mod frame;
pub mod load;
pub mod plan;
pub mod protocol;
pub mod report;
pub mod runner;
pub mod traffic;
pub mod turns;
pub mod worker;
