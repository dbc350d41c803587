//! The kernel's time on each CPU, by tracepoints: hard interrupts, softirqs by vector, NAPI
//! polls, ksoftirqd and threaded NAPI, and the tasks that these interrupted.
//!
//! The programs of bpf/cost.bpf.c sum in the kernel, in constant memory.

pub mod abi;
mod programs;
mod totals;
pub mod view;

pub use programs::Tracepoints;
pub use totals::{CpuTotals, Irq, Napi, ProgramTime, Sample, Softirq, Task, TaskTime};
