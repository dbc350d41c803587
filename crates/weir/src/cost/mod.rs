//! `weir cost`: what the network takes from the CPUs of this host, and by which path.
//!
//! The [progress] of a busy loop measures what a program loses, an [accounting] by BPF tracepoints what
//! the kernel does; who took what the loop lost, gap by gap, is a [ledger].

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
