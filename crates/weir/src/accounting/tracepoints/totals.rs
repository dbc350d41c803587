//! The sums of the tracepoints.

use serde::Serialize;

use super::abi::{CpuState, CpuTimes, RawTaskTime};
use crate::accounting::interrupts::{LOCAL_TIMER, SOFTIRQS, VECTORS};

/// Totals since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    pub at_ns: u64,
    /// Of each observed CPU, in the order of [`Tracepoints::start`](super::Tracepoints::start).
    pub cpus: Vec<CpuTotals>,
}

/// The sums of one CPU, in nanoseconds where not counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CpuTotals {
    /// The CPU's number.
    pub cpu: usize,
    /// The time observed: all but the pauses.
    pub observed_ns: u64,
    /// Its time by use.
    pub times: CpuTimes,
    /// Runs of devices' interrupt handlers.
    pub irqs: u64,
    /// Interrupts of the timer, and IPIs.
    pub vectors: [u64; VECTORS],
    /// Softirqs by vector.
    pub softirq: [Softirq; SOFTIRQS],
    /// NAPI polls.
    pub polls: u64,
    /// Time of tasks beyond the map's capacity.
    pub unlisted: TaskTime,
}

/// Softirqs of one vector on one CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Softirq {
    /// Nanoseconds, without the hard interrupts in them.
    pub ns: u64,
    /// Runs.
    pub count: u64,
    /// The part of `ns` while the CPU was otherwise idle.
    pub idle_ns: u64,
    /// The part of `ns` in ksoftirqd.
    pub ksoftirqd_ns: u64,
}

/// Nanoseconds of a task on the observed CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct TaskTime {
    /// On a CPU, as the scheduler counts it: interrupts and softirqs included.
    pub running_ns: u64,
    /// Hard interrupts in its context.
    pub irq_ns: u64,
    /// Softirqs in its context: receiving.
    pub net_rx_ns: u64,
    /// Softirqs in its context: sending.
    pub net_tx_ns: u64,
    /// Other softirqs in its context.
    pub other_softirq_ns: u64,
    /// Lost outside the kernel, by late timers.
    pub outside_ns: u64,
}

/// A process, or a kernel thread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Task {
    /// Its PID; 0 is the idle task.
    pub pid: u32,
    /// The name of the thread group's leader.
    pub name: String,
    /// Its time.
    #[serde(flatten)]
    pub time: TaskTime,
}

/// One device's interrupt.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Irq {
    /// Its number, as in /proc/interrupts.
    pub irq: u64,
    /// Nanoseconds in its handlers.
    pub ns: u64,
    /// Runs of a handler.
    pub count: u64,
}

/// One NAPI instance: usually one queue of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Napi {
    /// The device's name in its namespace; empty for the backlog of a CPU, which serves veths
    /// without GRO, loopback and RPS.
    pub device: String,
    /// The device's index in its namespace.
    pub ifindex: u32,
    /// The inode of the network namespace.
    pub netns: u64,
    /// The instance's ID.
    pub napi_id: u64,
    /// Polls.
    pub polls: u64,
    /// Packets, by the driver's count.
    pub packets: u64,
    /// Polls that used up their budget.
    pub budget_exhausted: u64,
    /// Nanoseconds in softirqs and threads, without busy polling.
    pub ns: u64,
}

/// The run time of the programs, in a window in which the kernel measured it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct ProgramTime {
    /// Runs of a program in the window.
    pub runs: u64,
    /// Nanoseconds in them, with two readings of the clock for each.
    pub ns: u64,
    /// The length of the window.
    pub window_ns: u64,
}

impl CpuTotals {
    pub(super) fn of(cpu: usize, state: &CpuState) -> Self {
        Self {
            cpu,
            observed_ns: state.observed_ns,
            times: state.times,
            irqs: state.irqs,
            vectors: state.vectors,
            softirq: std::array::from_fn(|vec| Softirq {
                ns: state.times.softirq_ns[vec],
                count: state.softirqs[vec],
                idle_ns: state.softirq_in_idle_ns[vec],
                ksoftirqd_ns: state.softirq_in_ksoftirqd_ns[vec],
            }),
            polls: state.polls,
            unlisted: state.unlisted.into(),
        }
    }

    /// Nanoseconds for the network.
    pub fn network_ns(&self) -> u64 {
        self.times.network_ns()
    }

    /// Runs of the programs.
    pub fn runs(&self) -> u64 {
        let softirqs: u64 = self.softirq.iter().map(|it| it.count).sum();
        let timers = self.vectors[LOCAL_TIMER];
        2 * (self.times.interrupts + softirqs) + self.polls + self.times.switches + timers
    }

    /// Nanoseconds in interrupts and softirqs of every kind, with their threads.
    pub fn interrupts_ns(&self) -> u64 {
        self.times.network_ns() + self.times.other_interrupts_ns()
    }

    /// The sums after `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        self.with(earlier, u64::saturating_sub)
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    fn with(&self, other: &Self, combine: impl Fn(u64, u64) -> u64 + Copy) -> Self {
        let both = |of: fn(&Self) -> u64| combine(of(self), of(other));
        Self {
            cpu: self.cpu,
            observed_ns: both(|it| it.observed_ns),
            times: self.times.with(&other.times, combine),
            irqs: both(|it| it.irqs),
            vectors: std::array::from_fn(|at| combine(self.vectors[at], other.vectors[at])),
            softirq: std::array::from_fn(|vec| self.softirq[vec].with(other.softirq[vec], combine)),
            polls: both(|it| it.polls),
            unlisted: self.unlisted.with(other.unlisted, combine),
        }
    }
}

impl Softirq {
    fn with(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            ns: combine(self.ns, other.ns),
            count: combine(self.count, other.count),
            idle_ns: combine(self.idle_ns, other.idle_ns),
            ksoftirqd_ns: combine(self.ksoftirqd_ns, other.ksoftirqd_ns),
        }
    }
}

impl From<RawTaskTime> for TaskTime {
    fn from(raw: RawTaskTime) -> Self {
        Self {
            running_ns: raw.running,
            irq_ns: raw.irq,
            net_rx_ns: raw.net_rx,
            net_tx_ns: raw.net_tx,
            other_softirq_ns: raw.other,
            outside_ns: raw.outside,
        }
    }
}

impl TaskTime {
    /// In interrupts and softirqs in its context.
    pub fn interrupts_ns(&self) -> u64 {
        self.irq_ns + self.net_rx_ns + self.net_tx_ns + self.other_softirq_ns
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    fn with(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            running_ns: combine(self.running_ns, other.running_ns),
            irq_ns: combine(self.irq_ns, other.irq_ns),
            net_rx_ns: combine(self.net_rx_ns, other.net_rx_ns),
            net_tx_ns: combine(self.net_tx_ns, other.net_tx_ns),
            other_softirq_ns: combine(self.other_softirq_ns, other.other_softirq_ns),
            outside_ns: combine(self.outside_ns, other.outside_ns),
        }
    }
}

/// A count of a part of the time, extrapolated.
fn scaled(count: u64, factor: f64) -> u64 {
    (count as f64 * factor) as u64
}

impl Task {
    /// Extrapolated to a longer time.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        let all = |_, ns| scaled(ns, factor);
        Self {
            time: TaskTime::default().with(self.time, all),
            ..self
        }
    }
}

impl Irq {
    /// Extrapolated to a longer time.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        Self {
            irq: self.irq,
            ns: scaled(self.ns, factor),
            count: scaled(self.count, factor),
        }
    }
}

impl Napi {
    /// Extrapolated to a longer time.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        Self {
            polls: scaled(self.polls, factor),
            packets: scaled(self.packets, factor),
            budget_exhausted: scaled(self.budget_exhausted, factor),
            ns: scaled(self.ns, factor),
            ..self
        }
    }
}

impl ProgramTime {
    /// In percent of one CPU, summed over all.
    pub fn percent_of_a_cpu(&self) -> f64 {
        self.ns as f64 / self.window_ns.max(1) as f64 * 100.0
    }
}
