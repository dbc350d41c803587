//! Traffic: frames with checked payloads, the BPF programs that send and verify them, and the
//! process that runs the programs.

pub mod frame;
pub mod load;
pub mod programs;
pub mod rate;
pub mod schedule;
pub mod turns;
