//! The unit that is shown, recorded and replayed: all counters of a host at one moment.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::accounting::duty_cycle::SoFar;
use crate::accounting::interrupts::{NET_RX, NET_TX};
use crate::accounting::tracepoints::{CpuTotals, Napi, Task};
use crate::bpf::ProgramInfo;
use crate::ledger::Snapshot;

/// All counters of a host at one moment. Everything in it is a sum: rates are the difference of two frames.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Frame {
    /// The counters of the packet path.
    pub snapshot: Snapshot,
    /// The CPUs' time; none while nobody looked at it.
    pub bill: Option<Bill>,
    /// The BPF programs; none while nobody looked at them.
    pub programs: Option<Programs>,
    /// CPU time of `weir top` itself since it began, in nanoseconds.
    pub own_ns: u64,
    /// The reason why the CPUs' time could not be measured.
    pub no_bill: Option<String>,
    /// The reason why the BPF programs could not be measured.
    pub no_programs: Option<String>,
}

/// The time of each CPU by use, by the tracepoints of `weir cost --passive`.
///
/// The tracepoints are attached in short windows where they would cost too much: the sums count the time
/// observed only.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Bill {
    /// When the observation began, in nanoseconds of `CLOCK_MONOTONIC`: sums of two observations have nothing
    /// in common.
    pub begun_ns: u64,
    /// By CPU.
    pub cpus: BTreeMap<usize, CpuTime>,
    /// By process, over all CPUs.
    pub tasks: BTreeMap<u32, TaskTime>,
    /// NAPI instances, over all CPUs.
    pub napis: Vec<NapiTime>,
    /// The tracepoints' mean cost, in percent of one CPU.
    pub own_percent: f64,
    /// Whether NAPI instances may be missing.
    pub lists_full: bool,
}

/// A CPU's time by use, in nanoseconds. But for `observed`, they do not overlap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTime {
    /// The time observed.
    pub observed: u64,
    /// Softirq `NET_RX`.
    pub net_rx: u64,
    /// Softirq `NET_TX`.
    pub net_tx: u64,
    /// Threads of threaded NAPI.
    pub napi_threads: u64,
    /// ksoftirqd's own time, as far as it is for the network.
    pub ksoftirqd: u64,
    /// Other softirqs, and the rest of ksoftirqd.
    pub other_softirqs: u64,
    /// Devices' interrupts.
    pub interrupts: u64,
    /// The timer's interrupt, and IPIs.
    pub vectors: u64,
    /// Tasks, without the interrupts in their context.
    pub tasks: u64,
    /// Idle.
    pub idle: u64,
    /// Lost outside the kernel, by late timers.
    pub outside: u64,
}

/// A process's time on all CPUs, in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskTime {
    /// Its name.
    pub name: String,
    /// On a CPU, interrupts and softirqs included.
    pub running: u64,
    /// Softirqs `NET_RX` in its context.
    pub net_rx: u64,
    /// Softirqs `NET_TX` in its context.
    pub net_tx: u64,
    /// Interrupts and other softirqs in its context.
    pub interrupts: u64,
}

/// A NAPI instance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NapiTime {
    /// The device's name; empty for the backlog of a CPU.
    pub device: String,
    /// The device's index.
    pub ifindex: u32,
    /// The inode of the network namespace.
    pub netns: u64,
    /// The instance's id.
    pub id: u64,
    /// Polls.
    pub polls: u64,
    /// Packets, by the driver's count.
    pub packets: u64,
    /// Polls that used up their budget.
    pub exhausted: u64,
    /// Nanoseconds in them.
    pub ns: u64,
}

/// The BPF programs of the host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Programs {
    /// By id.
    pub by_id: BTreeMap<u32, Program>,
    /// The price of measuring them; none where it could not be found out.
    pub price: Option<RunPrice>,
}

/// A BPF program. It is measured only while the programs are shown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: String,
    /// The hash of its instructions.
    pub tag: String,
    /// Measured runs.
    pub runs: u64,
    /// Nanoseconds in them.
    pub ns: u64,
}

/// The price of measuring a run of a program, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct RunPrice {
    /// All that a run takes longer.
    pub total_ns: f64,
    /// The part of it in the figures: the time that the kernel reports of a program that does nothing.
    pub reported_ns: f64,
}

impl Bill {
    /// The sums of an observation that began then.
    pub fn of(sums: SoFar, begun_ns: u64) -> Self {
        Self {
            begun_ns,
            cpus: sums.cpus.iter().map(|it| (it.cpu, it.into())).collect(),
            tasks: sums.tasks.into_iter().map(task).collect(),
            napis: sums.napis.into_iter().map(NapiTime::from).collect(),
            own_percent: sums.own_percent,
            lists_full: sums.lists_full,
        }
    }
}

impl From<&CpuTotals> for CpuTime {
    fn from(cpu: &CpuTotals) -> Self {
        let times = &cpu.times;
        let (net_rx, net_tx) = (times.softirq_ns[NET_RX], times.softirq_ns[NET_TX]);
        let softirqs: u64 = times.softirq_ns.iter().sum();
        let ksoftirqd_other = times.ksoftirqd_ns.saturating_sub(times.ksoftirqd_net_ns);
        Self {
            observed: cpu.observed_ns,
            net_rx,
            net_tx,
            napi_threads: times.napi_thread_ns,
            ksoftirqd: times.ksoftirqd_net_ns,
            other_softirqs: softirqs - net_rx - net_tx + ksoftirqd_other,
            interrupts: times.irq_ns,
            vectors: times.vector_ns.iter().sum(),
            tasks: times.task_ns + times.unreported_ns,
            idle: times.idle_ns,
            outside: times.outside_ns,
        }
    }
}

fn task(task: Task) -> (u32, TaskTime) {
    let time = TaskTime {
        name: task.name,
        running: task.time.running_ns,
        net_rx: task.time.net_rx_ns,
        net_tx: task.time.net_tx_ns,
        interrupts: task.time.irq_ns + task.time.other_softirq_ns,
    };
    (task.pid, time)
}

impl From<Napi> for NapiTime {
    fn from(napi: Napi) -> Self {
        Self {
            device: napi.device,
            ifindex: napi.ifindex,
            netns: napi.netns,
            id: napi.napi_id,
            polls: napi.polls,
            packets: napi.packets,
            exhausted: napi.budget_exhausted,
            ns: napi.ns,
        }
    }
}

impl Programs {
    /// All programs as they are now.
    pub fn of(all: Vec<ProgramInfo>, price: Option<RunPrice>) -> Self {
        let by_id = all.into_iter().map(|program| {
            let shown = Program {
                name: program.name,
                kind: program.kind,
                tag: program.tag,
                runs: program.run.count,
                ns: program.run.ns,
            };
            (program.id, shown)
        });
        Self {
            by_id: by_id.collect(),
            price,
        }
    }
}
