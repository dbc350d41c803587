//! `weir cost`: CPU time spent on networking, by CPU, task and datapath.

pub mod accelerated;
pub mod curve;
pub mod flame;
pub mod forwarding;
pub mod host;
pub mod report;
pub mod sample_load;
pub mod table;
