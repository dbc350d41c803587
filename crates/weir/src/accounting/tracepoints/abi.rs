//! The structures and constants of bpf/cost.h, which describes the fields.
#![allow(missing_docs)]

use crate::accounting::interrupts::{
    CALL_FUNCTION, CALL_FUNCTION_SINGLE, IRQ_WORK, LOCAL_TIMER, NET_RX, NET_TX, RESCHEDULE,
    SOFTIRQS, VECTORS,
};
use crate::bpf::layout::{Constants, Layout, shared_structs};

/// Keys of the map of CPUs.
pub const CPU_ENTRIES: usize = 2;
pub const LIVE: usize = 0;
pub const SETTLED: usize = 1;

const NAME_BYTES: usize = 16;

/// Every constant, to be compared when the programs are loaded.
pub const CONSTANTS: &[Constants] = &[
    Constants {
        name: "cost_constants",
        values: &[
            ("SOFTIRQS", SOFTIRQS),
            ("NET_RX", NET_RX),
            ("NET_TX", NET_TX),
            ("CPU_ENTRIES", CPU_ENTRIES),
            ("LIVE", LIVE),
            ("SETTLED", SETTLED),
            ("NAME_BYTES", NAME_BYTES),
        ],
    },
    Constants {
        name: "vector",
        values: &[
            ("LOCAL_TIMER", LOCAL_TIMER),
            ("RESCHEDULE", RESCHEDULE),
            ("CALL_FUNCTION", CALL_FUNCTION),
            ("CALL_FUNCTION_SINGLE", CALL_FUNCTION_SINGLE),
            ("IRQ_WORK", IRQ_WORK),
            ("VECTORS", VECTORS),
        ],
    },
];

/// Every structure, to be compared when the programs are loaded.
pub const LAYOUTS: &[Layout] = &[
    RawTaskTime::LAYOUT,
    CpuTimes::LAYOUT,
    CpuState::LAYOUT,
    TaskKey::LAYOUT,
    TaskValue::LAYOUT,
    IrqKey::LAYOUT,
    IrqValue::LAYOUT,
    NapiKey::LAYOUT,
    NapiValue::LAYOUT,
];

shared_structs! {
    /// Nanoseconds of one task, or of one CPU while it ran.
    #[derive(Default)]
    pub struct RawTaskTime = "task_time" {
        running: u64,
        irq: u64,
        net_rx: u64,
        net_tx: u64,
        other: u64,
        outside: u64,
    }

    /// A CPU's time by use, in nanoseconds where not counts. Apart from `ksoftirqd_net_ns` the
    /// times do not overlap; while the CPU is observed they sum up to the wall time.
    #[derive(Default, serde::Serialize)]
    pub struct CpuTimes = "cpu_times" {
        /// Changes whenever one of the following does.
        events: u64,
        /// Hard interrupts.
        interrupts: u64,
        /// Context switches.
        switches: u64,
        /// In handlers of devices' interrupts.
        irq_ns: u64,
        /// In the timer's interrupt and in IPIs, where they have tracepoints (x86).
        vector_ns: [u64; VECTORS],
        /// In softirqs, without the hard interrupts in them.
        softirq_ns: [u64; SOFTIRQS],
        /// In threads of threaded NAPI.
        napi_thread_ns: u64,
        /// In ksoftirqd, outside its softirqs.
        ksoftirqd_ns: u64,
        /// The part of it for the network.
        ksoftirqd_net_ns: u64,
        /// In tasks, without the interrupts in their context.
        task_ns: u64,
        /// In the busy loop on this CPU, the same.
        loop_ns: u64,
        /// Idle.
        idle_ns: u64,
        /// Of the unknown task before a context switch that the kernel did not report.
        unreported_ns: u64,
        /// Such context switches.
        unreported_switches: u64,
        /// Lost outside the kernel, by late timers: without the busy loop's and the idle task's
        /// own time.
        outside_ns: u64,
    }

    /// The state and the sums of a CPU.
    pub struct CpuState = "cpu_state" {
        times: CpuTimes,
        enabled: u64,
        observed_ns: u64,
        irqs: u64,
        vectors: [u64; VECTORS],
        softirqs: [u64; SOFTIRQS],
        softirq_in_idle_ns: [u64; SOFTIRQS],
        softirq_in_ksoftirqd_ns: [u64; SOFTIRQS],
        polls: u64,
        unlisted: RawTaskTime,
        observed_start: u64,
        loop_pid: u64,
        pid: u64,
        kind: u64,
        slice_start: u64,
        slice: RawTaskTime,
        softirq_start: u64,
        softirq_vec: u64,
        softirq_irq: u64,
        irq_start: u64,
        poll_start: u64,
        seen: u64,
        late_seen: u64,
    }

    /// A process.
    pub struct TaskKey = "task_key" {
        tgid: u64,
    }

    /// Its time on one CPU.
    pub struct TaskValue = "task_value" {
        time: RawTaskTime,
        comm: [u8; NAME_BYTES],
    }

    /// A device's interrupt.
    pub struct IrqKey = "irq_key" {
        irq: u64,
    }

    /// Its time on one CPU.
    #[derive(Default)]
    pub struct IrqValue = "irq_value" {
        ns: u64,
        count: u64,
    }

    /// A NAPI instance.
    pub struct NapiKey = "napi_key" {
        netns: u64,
        ifindex: u64,
        napi_id: u64,
    }

    /// Its work on one CPU.
    pub struct NapiValue = "napi_value" {
        polls: u64,
        packets: u64,
        full: u64,
        ns: u64,
        name: [u8; NAME_BYTES],
    }
}

impl CpuTimes {
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

    pub(super) fn with(&self, other: &Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        let both = |of: fn(&Self) -> u64| combine(of(self), of(other));
        Self {
            events: both(|it| it.events),
            interrupts: both(|it| it.interrupts),
            switches: both(|it| it.switches),
            irq_ns: both(|it| it.irq_ns),
            vector_ns: std::array::from_fn(|at| combine(self.vector_ns[at], other.vector_ns[at])),
            softirq_ns: std::array::from_fn(|at| {
                combine(self.softirq_ns[at], other.softirq_ns[at])
            }),
            napi_thread_ns: both(|it| it.napi_thread_ns),
            ksoftirqd_ns: both(|it| it.ksoftirqd_ns),
            ksoftirqd_net_ns: both(|it| it.ksoftirqd_net_ns),
            task_ns: both(|it| it.task_ns),
            loop_ns: both(|it| it.loop_ns),
            idle_ns: both(|it| it.idle_ns),
            unreported_ns: both(|it| it.unreported_ns),
            unreported_switches: both(|it| it.unreported_switches),
            outside_ns: both(|it| it.outside_ns),
        }
    }

    /// Spent on networking: NAPI in softirqs and in threads, deferred transmission of qdiscs, and
    /// ksoftirqd's own time, in proportion to its softirqs.
    pub fn network_ns(&self) -> u64 {
        let softirqs = self.softirq_ns[NET_RX] + self.softirq_ns[NET_TX];
        softirqs + self.napi_thread_ns + self.ksoftirqd_net_ns
    }

    /// In hard interrupts, other softirqs, and their threads.
    pub fn other_interrupts_ns(&self) -> u64 {
        let vectors: u64 = self.vector_ns.iter().sum();
        let softirqs: u64 = self.softirq_ns.iter().sum();
        (self.irq_ns + vectors + softirqs + self.napi_thread_ns + self.ksoftirqd_ns)
            .saturating_sub(self.network_ns())
    }

    /// All but the busy loop's own time.
    pub fn without_loop_ns(&self) -> u64 {
        let others = self.task_ns + self.idle_ns + self.outside_ns + self.unreported_ns;
        self.network_ns() + self.other_interrupts_ns() + others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ksoftirqd_counts_as_network_in_proportion_to_its_softirqs() {
        let mut times = CpuTimes {
            ksoftirqd_ns: 100,
            ..CpuTimes::default()
        };
        assert_eq!((times.network_ns(), times.other_interrupts_ns()), (0, 100));
        times.softirq_ns[NET_RX] = 1000;
        times.softirq_ns[9] = 50;
        times.ksoftirqd_net_ns = 75;
        times.vector_ns[LOCAL_TIMER] = 7;
        times.task_ns = 3;
        assert_eq!(times.network_ns(), 1075);
        assert_eq!(times.other_interrupts_ns(), 25 + 50 + 7);
        assert_eq!(times.without_loop_ns(), 1000 + 50 + 100 + 7 + 3);
    }
}
