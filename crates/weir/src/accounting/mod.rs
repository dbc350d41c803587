//! CPU time by consumer: interrupts, softirqs, NAPI instances and tasks of each CPU.
//!
//! Two methods account for all of a CPU's time. [`tracepoints`] are BPF programs that measure the
//! kernel's work. A [`busy_loop`] measures the CPU time that a program loses; a [`ledger`]
//! attributes that loss to the kernel's work, gap by gap.

pub mod busy_loop;
pub mod duty_cycle;
pub mod interrupts;
pub mod ledger;
pub mod measure;
pub mod proc_stat;
pub mod tracepoints;
