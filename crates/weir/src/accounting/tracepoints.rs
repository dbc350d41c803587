//! The kernel's time on each CPU, by tracepoints: hard interrupts, softirqs by vector, NAPI
//! polls, ksoftirqd and threaded NAPI, and the tasks that all of it interrupted.
//!
//! The programs (bpf/cost.bpf.c) sum in the kernel, in constant memory; this reads the sums.

pub mod abi;
pub mod view;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::bpf;
use crate::bpf::layout::text;
use crate::bpf::{Attached, Map, Object, Programs, RunTime};

use abi::{
    CPU_ENTRIES, CpuState, CpuTimes, IrqKey, IrqValue, LOCAL_TIMER, NapiKey, NapiValue,
    RawTaskTime, SETTLED, SOFTIRQS, TaskKey, TaskValue, VECTORS,
};
use view::Views;

const OBJECT: Object = Object {
    name: "cost",
    bytes: include_bytes!(concat!(env!("OUT_DIR"), "/cost.bpf.o")),
    needs: "Linux 5.17 with BTF (CONFIG_DEBUG_INFO_BTF), whose tracepoints it reads",
    layouts: abi::LAYOUTS,
    constants: abi::CONSTANTS,
    arrays_by_cpu: &["cpus"],
};

/// The names of softirqs, as in /proc/softirqs.
pub const SOFTIRQ_NAMES: [&str; SOFTIRQS] = [
    "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU",
];

/// The programs that user space runs.
const BEGIN: &str = "begin";
const SETTLE: &str = "settle";
const END: &str = "end";
const CLAIM: &str = "claim";
/// The programs that may run for each packet, and so cost most.
const PER_PACKET: [&str; 3] = ["softirq_entry", "softirq_exit", "napi_poll"];
/// How long a softirq that was under way when the looking began is waited for: what it takes is
/// known of those only that began later.
const TRACK: Duration = Duration::from_millis(2);
/// The programs at x86's tracepoints of the timer and IPIs.
const VECTOR: &str = "vector_";
/// The program that finds time taken from outside by late timers.
const LATE: &str = "late_timer";

/// The tracepoints, attached for as long as this lives.
///
/// Those that may come with each packet can be detached for a while, so that they cost nothing
/// then: [`pause`](Self::pause) and [`resume`](Self::resume).
#[must_use = "the tracepoints are detached when this is dropped"]
pub struct Accounting {
    per_packet: Vec<Attached>,
    /// Only held.
    _others: Vec<Attached>,
    programs: Programs,
    cpus: Vec<usize>,
    states: Map<u32, CpuState>,
    tasks: Map<TaskKey, TaskValue>,
    irqs: Map<IrqKey, IrqValue>,
    napis: Map<NapiKey, NapiValue>,
    views: Views,
    sees_vectors: bool,
    sees_late_timers: bool,
}

/// Totals since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    pub at_ns: u64,
    /// Of each CPU that is watched, in the order they were named.
    pub cpus: Vec<CpuTotals>,
}

/// The sums of one CPU, in nanoseconds where not counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CpuTotals {
    /// The CPU's number.
    pub cpu: usize,
    /// How long it was looked at: all, but for pauses.
    pub observed_ns: u64,
    /// Where its time went.
    pub times: CpuTimes,
    /// How many handlers of devices' interrupts ran.
    pub irqs: u64,
    /// How many interrupts of the timer and of other CPUs came.
    pub vectors: [u64; VECTORS],
    /// Softirqs by vector.
    pub softirq: [Softirq; SOFTIRQS],
    /// NAPI polls.
    pub polls: u64,
    /// Time of tasks that there was no room to list.
    pub unlisted: TaskTime,
}

/// Softirqs of one vector on one CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Softirq {
    /// Nanoseconds, without the hard interrupts in them.
    pub ns: u64,
    /// How many ran.
    pub count: u64,
    /// The part of `ns` while the CPU was otherwise idle.
    pub idle_ns: u64,
    /// The part of `ns` in ksoftirqd.
    pub ksoftirqd_ns: u64,
}

/// Nanoseconds of a task on the watched CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct TaskTime {
    /// As the scheduler sees it: on a CPU, whatever that CPU did meanwhile.
    pub running_ns: u64,
    /// Hard interrupts in its context.
    pub irq_ns: u64,
    /// Softirqs in its context: receiving.
    pub net_rx_ns: u64,
    /// Softirqs in its context: sending.
    pub net_tx_ns: u64,
    /// Softirqs in its context that are not the network's.
    pub other_ns: u64,
    /// Taken from outside the kernel, as late timers tell it.
    pub outside_ns: u64,
}

/// A process, or a kernel thread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Task {
    /// Its number; 0 is the idle task.
    pub pid: u32,
    /// What it calls itself.
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
    /// How often a handler ran.
    pub count: u64,
}

/// One NAPI instance: usually one queue of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Napi {
    /// The device's name in its namespace; empty for a CPU's own backlog, which veths without
    /// GRO, loopback and RPS use.
    pub device: String,
    /// The device's number in its namespace.
    pub ifindex: u32,
    /// The inode of the network namespace.
    pub netns: u64,
    /// The instance's number.
    pub napi_id: u64,
    /// Polls.
    pub polls: u64,
    /// Packets, or what the driver counts as such.
    pub packets: u64,
    /// Polls that used up their budget.
    pub full: u64,
    /// Nanoseconds in softirqs and threads; those of busy polling are not seen.
    pub ns: u64,
}

/// What the programs themselves have cost, in a window in which the kernel timed them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct OwnCost {
    /// Runs of a program in the window.
    pub runs: u64,
    /// Nanoseconds in them, two readings of the clock included.
    pub ns: u64,
    /// The window.
    pub window_ns: u64,
}

impl Accounting {
    /// Attaches the tracepoints, for these CPUs.
    pub fn start(cpus: &[usize]) -> Result<Self> {
        let realtime = std::fs::read_to_string("/sys/kernel/realtime").unwrap_or_default();
        ensure!(
            realtime.trim() != "1",
            "this kernel is a realtime one (PREEMPT_RT), whose softirqs can be interrupted by tasks: \
             their tracepoints do not tell what they take"
        );
        let (programs, sees_vectors, sees_late_timers) = load()?;
        let is_tracepoint = |name: &&String| ![BEGIN, SETTLE, END, CLAIM].contains(&name.as_str());
        let others = programs
            .names()
            .iter()
            .filter(is_tracepoint)
            .filter(|name| !PER_PACKET.contains(&name.as_str()))
            .map(|name| programs.attach(name))
            .collect::<Result<_>>()?;
        let states = programs.map("cpus")?;
        let views = Views {
            states: Arc::new(states.mapped()?),
            claim: Arc::new(programs.runner(CLAIM)?),
        };
        let mut accounting = Self {
            per_packet: Vec::new(),
            _others: others,
            cpus: cpus.to_vec(),
            states,
            tasks: programs.map("tasks")?,
            irqs: programs.map("irqs")?,
            napis: programs.map("napis")?,
            programs,
            views,
            sees_vectors,
            sees_late_timers,
        };
        accounting.resume()?;
        Ok(accounting)
    }

    /// Looks again, and returns when it sees all.
    pub fn resume(&mut self) -> Result<()> {
        if !self.per_packet.is_empty() {
            return Ok(());
        }
        self.per_packet = PER_PACKET
            .iter()
            .map(|name| self.programs.attach(name))
            .collect::<Result<_>>()?;
        self.on_each_cpu(BEGIN);
        sleep(TRACK);
        Ok(())
    }

    /// Looks no longer, and costs nearly nothing.
    pub fn pause(&mut self) {
        self.on_each_cpu(END);
        self.per_packet.clear();
    }

    /// Whether the timer's interrupt and those from other CPUs are seen: on x86.
    pub fn sees_vectors(&self) -> bool {
        self.sees_vectors
    }

    /// Whether late timers show time taken from outside while the load does not run.
    pub fn sees_late_timers(&self) -> bool {
        self.sees_late_timers
    }

    /// The accounts of the CPUs, for their loads.
    pub fn views(&self) -> Views {
        self.views.clone()
    }

    fn on_each_cpu(&self, program: &str) {
        for cpu in &self.cpus {
            // A CPU that has gone offline has nothing under way.
            let _ = self.programs.run_on_cpu(program, *cpu);
        }
    }

    /// The totals up to now.
    pub fn sample(&self) -> Result<Sample> {
        // A task may run for as long as the whole measurement.
        self.on_each_cpu(SETTLE);
        let cpus = self
            .cpus
            .iter()
            .map(|cpu| self.settled(*cpu))
            .collect::<Result<_>>()?;
        Ok(Sample {
            at_ns: now_ns(),
            cpus,
        })
    }

    fn settled(&self, cpu: usize) -> Result<CpuTotals> {
        let key = (cpu * CPU_ENTRIES + SETTLED) as u32;
        let state = self.states.get(&key)?;
        let state = state.with_context(|| format!("the kernel knows of no CPU {cpu}"))?;
        Ok(CpuTotals::of(cpu, &state))
    }

    /// The tasks that ran, with what was taken from them, up to the last [`sample`](Self::sample).
    pub fn tasks(&self) -> Result<Vec<Task>> {
        let mut all = BTreeMap::<u32, Task>::new();
        for (key, values) in entries(&self.tasks)? {
            let task = all.entry(key.tgid as u32).or_default();
            task.pid = key.tgid as u32;
            for value in values {
                task.time = task.time.plus(value.time.into());
                let name = text(&value.comm);
                if !name.is_empty() {
                    task.name = name;
                }
            }
        }
        Ok(all.into_values().collect())
    }

    /// The devices' interrupts.
    pub fn irqs(&self) -> Result<Vec<Irq>> {
        let entries = entries(&self.irqs)?;
        let irqs = entries.iter().map(|(key, values)| Irq {
            irq: key.irq,
            ns: values.iter().map(|value| value.ns).sum(),
            count: values.iter().map(|value| value.count).sum(),
        });
        Ok(irqs.collect())
    }

    /// The NAPI instances that were polled.
    pub fn napis(&self) -> Result<Vec<Napi>> {
        let entries = entries(&self.napis)?;
        let napis = entries.iter().map(|(key, values)| {
            let sum = |of: fn(&NapiValue) -> u64| values.iter().map(of).sum();
            let mut names = values.iter().map(|value| text(&value.name));
            Napi {
                device: names.rfind(|name| !name.is_empty()).unwrap_or_default(),
                ifindex: key.ifindex as u32,
                netns: key.netns,
                napi_id: key.napi_id,
                polls: sum(|it| it.polls),
                packets: sum(|it| it.packets),
                full: sum(|it| it.full),
                ns: sum(|it| it.ns),
            }
        });
        Ok(napis.filter(|napi| napi.polls > 0).collect())
    }

    /// Whether interrupts or NAPI instances may have come that there was no room to list.
    pub fn is_full(&self, irqs: &[Irq], napis: &[Napi]) -> bool {
        irqs.len() >= self.irqs.capacity() || napis.len() >= self.napis.capacity()
    }

    /// Has the kernel time the programs for the length of `window`, which it waits out.
    pub fn own_cost(&self, window: Duration) -> Result<OwnCost> {
        let total = || -> Result<RunTime> {
            let times = self.programs.run_times()?;
            Ok(times
                .iter()
                .fold(RunTime::default(), |sum, (_, time)| RunTime {
                    count: sum.count + time.count,
                    ns: sum.ns + time.ns,
                }))
        };
        let before = total()?;
        let begun = Instant::now();
        let counting = bpf::count_run_time()?;
        sleep(window);
        let after = total()?;
        drop(counting);
        Ok(OwnCost {
            runs: after.count - before.count,
            ns: after.ns - before.ns,
            window_ns: begun.elapsed().as_nanos() as u64,
        })
    }
}

/// Loads the programs, without those that this kernel has no place for: the timer's and IPIs'
/// tracepoints are x86's, and the fields of a timer are no promise of any kernel. Tells whether
/// these two are among those loaded.
fn load() -> Result<(Programs, bool, bool)> {
    let loaded = |vectors: bool, late: bool| {
        Programs::load(&OBJECT, None, |name| {
            (vectors || !name.starts_with(VECTOR)) && (late || name != LATE)
        })
    };
    for (vectors, late) in [(true, true), (true, false), (false, true)] {
        if let Ok(programs) = loaded(vectors, late) {
            return Ok((programs, vectors, late));
        }
    }
    Ok((loaded(false, false)?, false, false))
}

/// All entries of a per-CPU map: the key, and a value for each CPU.
fn entries<K, V>(map: &Map<K, V>) -> Result<Vec<(K, Vec<V>)>>
where
    K: FromBytes + IntoBytes + Immutable,
    V: FromBytes,
{
    let mut all = Vec::new();
    for key in map.keys()? {
        // It may have gone meanwhile.
        if let Some(values) = map.get_per_cpu(&key)? {
            all.push((key, values));
        }
    }
    Ok(all)
}

/// `CLOCK_MONOTONIC`, which the programs use too.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl CpuTotals {
    fn of(cpu: usize, state: &CpuState) -> Self {
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
    pub fn net_ns(&self) -> u64 {
        self.times.network_ns()
    }

    /// How often programs ran to find all this.
    pub fn runs(&self) -> u64 {
        let softirqs: u64 = self.softirq.iter().map(|it| it.count).sum();
        let timers = self.vectors[LOCAL_TIMER];
        2 * (self.times.interrupts + softirqs) + self.polls + self.times.switches + timers
    }

    /// Nanoseconds that interrupts and softirqs of every kind took, with their threads: what a
    /// program that wants this CPU does not get.
    pub fn stolen_ns(&self) -> u64 {
        self.times.network_ns() + self.times.interrupts_ns()
    }

    /// What came after `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        self.with(earlier, u64::saturating_sub)
    }

    /// Both together.
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
            other_ns: raw.other,
            outside_ns: raw.outside,
        }
    }
}

impl TaskTime {
    /// What was taken from the task while it seemed to run.
    pub fn stolen_ns(&self) -> u64 {
        self.irq_ns + self.net_rx_ns + self.net_tx_ns + self.other_ns
    }

    /// Both together.
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
            other_ns: combine(self.other_ns, other.other_ns),
            outside_ns: combine(self.outside_ns, other.outside_ns),
        }
    }
}

/// `count` of a part of the time, for all of it.
fn scaled(count: u64, factor: f64) -> u64 {
    (count as f64 * factor) as u64
}

impl Task {
    /// The same for a longer time.
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
    /// The same for a longer time.
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
    /// The same for a longer time.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        Self {
            polls: scaled(self.polls, factor),
            packets: scaled(self.packets, factor),
            full: scaled(self.full, factor),
            ns: scaled(self.ns, factor),
            ..self
        }
    }
}

impl OwnCost {
    /// As a share of one CPU, summed over all.
    pub fn percent_of_a_cpu(&self) -> f64 {
        self.ns as f64 / self.window_ns.max(1) as f64 * 100.0
    }
}

#[cfg(test)]
mod tests {
    use super::OBJECT;

    #[test]
    fn types_are_those_of_the_header() {
        OBJECT.check().expect("the same types");
    }
}
