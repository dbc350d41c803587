//! The CPU time that a program loses: a busy loop on each CPU does units of fixed arithmetic and
//! reads the clock after each.
//!
//! The undisturbed time of a unit is re-estimated every 50 ms, so that a change of the CPU's
//! frequency does not count as a loss. Then
//!
//! - work = units done × the undisturbed time of a unit,
//! - missing = wall time − work,
//! - lost = missing − the run time of other tasks, which the scheduler knows: the loop's run
//!   delay, less the part of it in which ksoftirqd and NAPI threads ran.
//!
//! So the time that interrupts and softirqs take from the loop counts as lost, and so does the
//! time of the network's own threads. None of this depends on the kernel's accounting of interrupt
//! time: with `CONFIG_IRQ_TIME_ACCOUNTING` the loop's CPU time (`running_ns`) excludes interrupts,
//! without it includes them, and it is not used. No privilege is needed.
//!
//! Where tracepoints are attached, each gap in the loop's work is attributed ([`gaps`]).
//!
//! Interrupts while another task has the CPU are not observed, nor is the network's work in other
//! kernel threads (kworker, vhost): these count as other tasks.

mod attribution;
pub mod gaps;
mod kernel_threads;
mod loops;
mod loss;
mod slice;
mod unit;
mod warning;
mod worker;

pub use attribution::Attribution;
pub use loops::BusyLoops;
pub use loss::{Calibration, CpuLoss};
pub use slice::Slice;
pub use warning::Warning;
