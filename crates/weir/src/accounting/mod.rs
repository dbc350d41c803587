//! CPU time by user: interrupts, softirqs, NAPI instances and tasks of each CPU.
//!
//! Two methods account for all of a CPU's time. [`tracepoints`] are BPF programs that take the
//! times of the kernel's work. A [`busy_loop`] measures the loss of a program; a [`ledger`]
//! attributes that loss to the kernel's work, gap by gap.

pub mod busy_loop;
pub mod ledger;
pub mod measure;
pub mod perf_event;
pub mod proc;
pub mod tracepoints;
pub mod watch;
