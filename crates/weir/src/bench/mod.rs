//! `weir bench`: what each engine does on the same packets, and what it costs.

pub mod engine;
pub mod frame;
pub mod load;
pub mod protocol;
pub mod usage;
pub mod worker;
