//! The time of a busy loop, by consumer.

use serde::Serialize;

use crate::accounting::tracepoints::abi::CpuTimes;

/// The time of a busy loop by consumer, in nanoseconds. All fields but `observed_ns` sum up to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Attribution {
    /// The time in which tracepoints observed the CPU; nothing here is of another time.
    pub observed_ns: u64,
    /// The loop's work: its units, each at the CPU's highest speed.
    pub work_ns: f64,
    /// The kernel's, by tracepoints.
    pub kernel: CpuTimes,
    /// Entry and exit of interrupts and other tasks: the part of a gap before and after the
    /// tracepoints. In a virtual machine the larger part of it is the hypervisor's.
    pub entry_ns: f64,
    /// Gaps without any work of the kernel, and the excess of gaps over their entry and exit.
    pub gaps_ns: f64,
    /// Units that took longer without an interruption: the CPU's frequency, a busy sibling thread
    /// of the core, caches.
    pub slower_ns: f64,
    /// Between slices, where the loop reads counters.
    pub reading_ns: f64,
}

impl Attribution {
    /// Networking: its softirqs, and the threads that replace them.
    pub fn network_ns(&self) -> f64 {
        self.kernel.network_ns() as f64
    }

    /// Hard interrupts and other softirqs.
    pub fn other_interrupts_ns(&self) -> f64 {
        self.kernel.other_interrupts_ns() as f64
    }

    /// Other tasks.
    pub fn other_tasks_ns(&self) -> f64 {
        self.kernel.task_ns as f64
    }

    /// Idle while the loop was runnable: a CPU quota throttles it.
    pub fn throttled_ns(&self) -> f64 {
        self.kernel.idle_ns as f64
    }

    /// Unknown tasks, before context switches that the kernel did not report.
    pub fn unreported_ns(&self) -> f64 {
        self.kernel.unreported_ns as f64
    }

    /// Outside the kernel: gaps, entry and exit of interrupts, and the lateness of timers while
    /// other tasks ran.
    pub fn outside_ns(&self) -> f64 {
        self.entry_ns + self.gaps_ns + self.kernel.outside_ns as f64
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            observed_ns: self.observed_ns + other.observed_ns,
            work_ns: self.work_ns + other.work_ns,
            kernel: self.kernel.plus(&other.kernel),
            entry_ns: self.entry_ns + other.entry_ns,
            gaps_ns: self.gaps_ns + other.gaps_ns,
            slower_ns: self.slower_ns + other.slower_ns,
            reading_ns: self.reading_ns + other.reading_ns,
        }
    }

    /// The same with work at the CPU's highest speed, at which a unit takes `fastest_ns`; here it
    /// took `unit_ns`.
    #[must_use]
    pub fn at_fastest(self, fastest_ns: f64, unit_ns: f64) -> Self {
        let drift_ns = self.work_ns * (1.0 - fastest_ns / unit_ns.max(1.0));
        Self {
            work_ns: self.work_ns - drift_ns,
            slower_ns: self.slower_ns + drift_ns,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_frequency_is_slower_work() {
        let time = Attribution {
            observed_ns: 3000,
            work_ns: 3000.0,
            ..Attribution::default()
        };
        let time = time.at_fastest(1000.0, 1500.0);
        assert!((time.work_ns - 2000.0).abs() < 1.0, "{time:?}");
        assert!((time.slower_ns - 1000.0).abs() < 1.0, "{time:?}");
    }
}
