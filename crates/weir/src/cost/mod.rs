//! `weir cost`: what the network takes from the CPUs of this host, and by which path.
//!
//! Two independent measurements: the [progress] of a busy loop, and an [accounting] of the kernel's
//! own time by BPF tracepoints; and who took what the loop lost, gap by gap, as a [ledger].

pub mod accounting;
pub mod curve;
pub mod flame;
pub mod ledger;
pub mod measure;
pub mod perf_event;
pub mod proc;
pub mod progress;
pub mod report;
pub mod sample_load;
pub mod statistics;
pub mod table;
pub mod watch;
