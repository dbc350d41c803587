//! `weir cost`: what the network takes from the CPUs of this host, and by which path.
//!
//! The [progress] of a busy loop measures the loss of a program, an [accounting] by BPF tracepoints the
//! work of the kernel; a [ledger] attributes the loss, gap by gap.

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
