//! Traffic: frames with checked payloads, the BPF programs that send and verify them, and the
//! process that runs the programs, or sends longer frames from a ring of AF_PACKET.

pub mod frame;
pub mod load;
pub mod programs;
pub mod rate;
pub mod ring;
pub mod schedule;
pub mod tpacket;
pub mod turns;
