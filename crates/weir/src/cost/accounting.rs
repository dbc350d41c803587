//! The kernel's time on each CPU, by tracepoints: hard interrupts, softirqs by vector, NAPI
//! polls, ksoftirqd and threaded NAPI, and the tasks that all of it interrupted.
//!
//! The programs (bpf/cost.bpf.c) sum in the kernel, in constant memory; this reads the sums.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::bpf::{self, Attached, Map, Object, Programs, RunTime};

static OBJECT: Object = Object {
    name: "cost",
    bytes: include_bytes!(concat!(env!("OUT_DIR"), "/cost.bpf.o")),
    needs: "Linux 5.17 with BTF (CONFIG_DEBUG_INFO_BTF), whose tracepoints it reads",
};

/// `NR_SOFTIRQS` of linux/interrupt.h.
pub const SOFTIRQS: usize = 10;
/// The vectors' names, as in /proc/softirqs.
pub const SOFTIRQ_NAMES: [&str; SOFTIRQS] = [
    "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU",
];
/// The vector of what a device or another CPU has sent, or completed: NAPI.
pub const NET_RX: usize = 3;
/// The vector of qdiscs that could not send at once.
pub const NET_TX: usize = 2;

/// The key of the sums as they were when last settled, as in bpf/cost.h.
const SETTLED: u32 = 1;
/// The programs that user space runs.
const BEGIN: &str = "begin";
const SETTLE: &str = "settle";
const END: &str = "end";
/// The programs that may run for each packet, and so cost most.
const PER_PACKET: [&str; 3] = ["softirq_entry", "softirq_exit", "napi_poll"];
/// How long a softirq that was under way when the looking began is waited for: what it takes is
/// known of those only that began later.
const TRACK: Duration = Duration::from_millis(2);
/// Where x86's tracepoints of the timer and IPIs go.
const VECTOR: &str = "vector_";

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
    states: Map,
    tasks: Map,
    irqs: Map,
    napis: Map,
    sees_vectors: bool,
}

/// Totals since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    pub at_ns: u64,
    /// Of each CPU that is watched, in the order they were named.
    pub cpus: Vec<CpuTotals>,
}

/// What was counted on one CPU, in nanoseconds where not counts. Times do not overlap.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CpuTotals {
    /// The CPU's number.
    pub cpu: usize,
    /// How long it was looked at: all, but for pauses.
    pub observed_ns: u64,
    /// In handlers of devices' interrupts.
    pub irq_ns: u64,
    /// How many such handlers ran.
    pub irqs: u64,
    /// In the timer's interrupt and in those from other CPUs, where they can be seen (x86).
    pub vector_ns: u64,
    /// How many of them.
    pub vectors: u64,
    /// Softirqs by vector.
    pub softirq: [Softirq; SOFTIRQS],
    /// In threads of threaded NAPI.
    pub napi_thread_ns: u64,
    /// In ksoftirqd, outside its softirqs.
    pub ksoftirqd_ns: u64,
    /// Idle.
    pub idle_ns: u64,
    /// NAPI polls.
    pub polls: u64,
    /// How often the scheduler switched between tasks.
    pub switches: u64,
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
        // The tracepoints of the timer and IPIs are x86's; without them the rest is still told.
        let all = Programs::load(&OBJECT, None, |_| true);
        let (programs, sees_vectors) = if let Ok(programs) = all {
            (programs, true)
        } else {
            let some = Programs::load(&OBJECT, None, |name| !name.starts_with(VECTOR))?;
            (some, false)
        };
        let is_tracepoint = |name: &&String| ![BEGIN, SETTLE, END].contains(&name.as_str());
        let others = programs
            .names()
            .iter()
            .filter(is_tracepoint)
            .filter(|name| !PER_PACKET.contains(&name.as_str()))
            .map(|name| programs.attach(name))
            .collect::<Result<_>>()?;
        let map = |name| programs.map(name);
        let mut accounting = Self {
            per_packet: Vec::new(),
            _others: others,
            cpus: cpus.to_vec(),
            states: map("cpus")?,
            tasks: map("tasks")?,
            irqs: map("irqs")?,
            napis: map("napis")?,
            programs,
            sees_vectors,
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
        self.on_each_cpu(SETTLE);
        self.on_each_cpu(END);
        self.per_packet.clear();
    }

    /// Whether the timer's interrupt and those from other CPUs are seen: on x86.
    pub fn sees_vectors(&self) -> bool {
        self.sees_vectors
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
        let states = self
            .states
            .get_per_cpu(&SETTLED.to_ne_bytes())?
            .context("the kernel does not know its own CPUs")?;
        let cpus = self
            .cpus
            .iter()
            .filter_map(|cpu| Some(CpuTotals::read(*cpu, &mut Words::new(states.get(*cpu)?))))
            .collect();
        Ok(Sample {
            at_ns: now_ns(),
            cpus,
        })
    }

    /// The tasks that ran, with what was taken from them, up to the last [`sample`](Self::sample).
    pub fn tasks(&self) -> Result<Vec<Task>> {
        let mut all = BTreeMap::<u32, Task>::new();
        for (key, values) in entries(&self.tasks)? {
            let pid = key.first().copied().unwrap_or(0) as u32;
            let task = all.entry(pid).or_default();
            task.pid = pid;
            for value in values {
                let mut words = Words::new(&value);
                task.time = task.time.plus(TaskTime::read(&mut words));
                let name = words.name();
                if !name.is_empty() {
                    task.name = name;
                }
            }
        }
        Ok(all.into_values().collect())
    }

    /// The devices' interrupts.
    pub fn irqs(&self) -> Result<Vec<Irq>> {
        let irqs = entries(&self.irqs)?.into_iter().map(|(key, values)| {
            let mut irq = Irq {
                irq: key.first().copied().unwrap_or(0),
                ..Irq::default()
            };
            for value in values {
                let mut words = Words::new(&value);
                irq.ns += words.word();
                irq.count += words.word();
            }
            irq
        });
        Ok(irqs.collect())
    }

    /// The NAPI instances that were polled.
    pub fn napis(&self) -> Result<Vec<Napi>> {
        let napis = entries(&self.napis)?.into_iter().map(|(key, values)| {
            let word = |index| key.get(index).copied().unwrap_or(0);
            let mut napi = Napi {
                netns: word(0),
                ifindex: word(1) as u32,
                napi_id: word(2),
                ..Napi::default()
            };
            for value in values {
                let mut words = Words::new(&value);
                napi.polls += words.word();
                napi.packets += words.word();
                napi.full += words.word();
                napi.ns += words.word();
                let name = words.name();
                if !name.is_empty() {
                    napi.device = name;
                }
            }
            napi
        });
        Ok(napis.filter(|napi| napi.polls > 0).collect())
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

/// An entry of a per-CPU map: the words of the key, and a value for each CPU.
type Entry = (Vec<u64>, Vec<Vec<u8>>);

/// All entries of a map.
fn entries(map: &Map) -> Result<Vec<Entry>> {
    let mut all = Vec::new();
    for key in map.keys() {
        if let Some(values) = map.get_per_cpu(&key)? {
            all.push((Words::new(&key).all(), values));
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
    /// In the order of `struct cpu_state`.
    fn read(cpu: usize, words: &mut Words<'_>) -> Self {
        let [_enabled, observed_ns] = std::array::from_fn(|_| words.word());
        let [irq_ns, irqs, vector_ns, vectors] = std::array::from_fn(|_| words.word());
        let ns: [u64; SOFTIRQS] = std::array::from_fn(|_| words.word());
        let counts: [u64; SOFTIRQS] = std::array::from_fn(|_| words.word());
        let [napi_thread_ns, own_ksoftirqd_ns, idle_ns] = std::array::from_fn(|_| words.word());
        let in_idle: [u64; SOFTIRQS] = std::array::from_fn(|_| words.word());
        let in_ksoftirqd: [u64; SOFTIRQS] = std::array::from_fn(|_| words.word());
        let [polls, switches] = std::array::from_fn(|_| words.word());
        Self {
            cpu,
            observed_ns,
            irq_ns,
            irqs,
            vector_ns,
            vectors,
            softirq: std::array::from_fn(|vec| Softirq {
                ns: ns[vec],
                count: counts[vec],
                idle_ns: in_idle[vec],
                ksoftirqd_ns: in_ksoftirqd[vec],
            }),
            napi_thread_ns,
            ksoftirqd_ns: own_ksoftirqd_ns,
            idle_ns,
            polls,
            switches,
            unlisted: TaskTime::read(words),
        }
    }

    /// Nanoseconds that the network took: NAPI in softirqs and in threads, what qdiscs sent
    /// later, and ksoftirqd's own time, in proportion to what it worked on.
    pub fn net_ns(&self) -> u64 {
        let softirq = self.softirq[NET_RX].ns + self.softirq[NET_TX].ns;
        softirq + self.napi_thread_ns + self.net_part_of_ksoftirqd()
    }

    /// How often programs ran to find all this.
    pub fn runs(&self) -> u64 {
        let softirqs: u64 = self.softirq.iter().map(|it| it.count).sum();
        2 * (self.irqs + self.vectors + softirqs) + self.polls + self.switches
    }

    fn net_part_of_ksoftirqd(&self) -> u64 {
        let all: u64 = self.softirq.iter().map(|it| it.ksoftirqd_ns).sum();
        let net = self.softirq[NET_RX].ksoftirqd_ns + self.softirq[NET_TX].ksoftirqd_ns;
        if all == 0 {
            return 0;
        }
        (u128::from(self.ksoftirqd_ns) * u128::from(net) / u128::from(all)) as u64
    }

    /// Nanoseconds that interrupts and softirqs of every kind took, with their threads: what a
    /// program that wants this CPU does not get.
    pub fn stolen_ns(&self) -> u64 {
        let softirqs: u64 = self.softirq.iter().map(|it| it.ns).sum();
        self.irq_ns + self.vector_ns + softirqs + self.napi_thread_ns + self.ksoftirqd_ns
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
            irq_ns: both(|it| it.irq_ns),
            irqs: both(|it| it.irqs),
            vector_ns: both(|it| it.vector_ns),
            vectors: both(|it| it.vectors),
            softirq: std::array::from_fn(|vec| self.softirq[vec].with(other.softirq[vec], combine)),
            napi_thread_ns: both(|it| it.napi_thread_ns),
            ksoftirqd_ns: both(|it| it.ksoftirqd_ns),
            idle_ns: both(|it| it.idle_ns),
            polls: both(|it| it.polls),
            switches: both(|it| it.switches),
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

impl TaskTime {
    /// In the order of `struct task_time`.
    fn read(words: &mut Words<'_>) -> Self {
        Self {
            running_ns: words.word(),
            irq_ns: words.word(),
            net_rx_ns: words.word(),
            net_tx_ns: words.word(),
            other_ns: words.word(),
        }
    }

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

/// 64-bit words, one after the other. Past the end all are 0.
struct Words<'a> {
    bytes: &'a [u8],
}

impl<'a> Words<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    fn take(&mut self) -> Option<[u8; 8]> {
        let (first, rest) = self.bytes.split_first_chunk::<8>()?;
        self.bytes = rest;
        Some(*first)
    }

    fn word(&mut self) -> u64 {
        self.take().map_or(0, u64::from_ne_bytes)
    }

    fn all(mut self) -> Vec<u64> {
        std::iter::from_fn(|| self.take().map(u64::from_ne_bytes)).collect()
    }

    /// Two words that are the text of a name.
    fn name(&mut self) -> String {
        let bytes = [self.take(), self.take()]
            .into_iter()
            .flatten()
            .flatten()
            .take_while(|byte| *byte != 0)
            .collect::<Vec<_>>();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More words than `struct cpu_state` in bpf/cost.h has.
    fn state() -> Vec<u8> {
        (0..100_u64).flat_map(u64::to_ne_bytes).collect()
    }

    #[test]
    fn words_are_those_of_the_program() {
        let totals = CpuTotals::read(3, &mut Words::new(&state()));
        assert_eq!(totals.cpu, 3);
        assert_eq!(totals.observed_ns, 1);
        assert_eq!((totals.irq_ns, totals.vectors), (2, 5));
        let receive = totals.softirq[NET_RX];
        assert_eq!((receive.ns, receive.count), (9, 19));
        assert_eq!((receive.idle_ns, receive.ksoftirqd_ns), (32, 42));
        assert_eq!((totals.napi_thread_ns, totals.idle_ns), (26, 28));
        assert_eq!((totals.polls, totals.switches), (49, 50));
        assert_eq!(totals.unlisted.running_ns, 51);
        assert_eq!(totals.unlisted.other_ns, 55);
    }

    #[test]
    fn the_network_pays_its_part_of_ksoftirqd() {
        let mut totals = CpuTotals {
            ksoftirqd_ns: 100,
            ..CpuTotals::default()
        };
        assert_eq!(totals.net_ns(), 0);
        totals.softirq[NET_RX].ns = 1000;
        totals.softirq[NET_RX].ksoftirqd_ns = 300;
        totals.softirq[9].ksoftirqd_ns = 100;
        assert_eq!(totals.net_ns(), 1075);
        assert_eq!(totals.stolen_ns(), 1100);
    }

    #[test]
    fn names_end_where_the_kernel_ends_them() {
        let mut words = Words::new(b"weir0\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(words.name(), "weir0");
        assert_eq!(words.word(), 0);
    }
}
