//! The programs of bpf/cost.bpf.c, attached to their tracepoints.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::abi;
use super::abi::{
    CPU_ENTRIES, CpuState, IrqKey, IrqValue, NapiKey, NapiValue, SETTLED, TaskKey, TaskValue,
};
use super::totals::{CpuTotals, Irq, Napi, ProgramTime, Sample, Task};
use super::view::Views;
use crate::bpf;
use crate::bpf::layout::text;
use crate::bpf::{Attached, Map, Object, Programs, RunTime};
use crate::process::clock::now_ns;

const OBJECT: Object = Object {
    name: "cost",
    bytes: include_bytes!(concat!(env!("OUT_DIR"), "/cost.bpf.o")),
    needs: "Linux 5.17 with BTF (CONFIG_DEBUG_INFO_BTF), whose tracepoints it reads",
    layouts: abi::LAYOUTS,
    constants: abi::CONSTANTS,
    arrays_by_cpu: &["cpus"],
};

/// The programs that user space runs.
const BEGIN: &str = "begin";
const SETTLE: &str = "settle";
const END: &str = "end";
const CLAIM: &str = "claim";
/// The programs that may run for each packet, and so cost the most.
const PER_PACKET: [&str; 3] = ["softirq_entry", "softirq_exit", "napi_poll"];
/// The time for a softirq that was running when the observation began to end: only later ones are
/// measured in whole.
const SETTLE_TIME: Duration = Duration::from_millis(2);
/// The programs at x86's tracepoints of the timer and IPIs.
const VECTOR: &str = "vector_";
/// The program that finds CPU time lost outside the kernel, by late timers.
const LATE: &str = "late_timer";

/// The tracepoints, attached until this is dropped.
///
/// Those that may fire for each packet can be detached for a while, and cost nothing then:
/// [`pause`](Self::pause) and [`resume`](Self::resume).
#[must_use = "the tracepoints are detached when this is dropped"]
pub struct Tracepoints {
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

impl Tracepoints {
    /// Attaches the tracepoints, for these CPUs.
    pub fn start(cpus: &[usize]) -> Result<Self> {
        let realtime = std::fs::read_to_string("/sys/kernel/realtime").unwrap_or_default();
        ensure!(
            realtime.trim() != "1",
            "this kernel is a realtime one (PREEMPT_RT), where tasks preempt softirqs: the time \
             between the tracepoints of a softirq is not its CPU time"
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

    /// Observes again, and returns when the observation is complete.
    pub fn resume(&mut self) -> Result<()> {
        if !self.per_packet.is_empty() {
            return Ok(());
        }
        self.per_packet = PER_PACKET
            .iter()
            .map(|name| self.programs.attach(name))
            .collect::<Result<_>>()?;
        self.on_each_cpu(BEGIN);
        sleep(SETTLE_TIME);
        Ok(())
    }

    /// Observes no longer, and costs almost nothing.
    pub fn pause(&mut self) {
        self.on_each_cpu(END);
        self.per_packet.clear();
    }

    /// Whether the timer's interrupt and IPIs are observed: on x86.
    pub fn sees_vectors(&self) -> bool {
        self.sees_vectors
    }

    /// Whether late timers show time lost outside the kernel while the busy loop does not run.
    pub fn sees_late_timers(&self) -> bool {
        self.sees_late_timers
    }

    /// The kernel's sums of each CPU, for the busy loop on it.
    pub fn views(&self) -> Views {
        self.views.clone()
    }

    fn on_each_cpu(&self, program: &str) {
        for cpu in &self.cpus {
            // A CPU that has gone offline runs nothing.
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

    /// The tasks that ran, with the interrupts in their context, up to the last
    /// [`sample`](Self::sample).
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

    /// Devices' interrupts.
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
                budget_exhausted: sum(|it| it.full),
                ns: sum(|it| it.ns),
            }
        });
        Ok(napis.filter(|napi| napi.polls > 0).collect())
    }

    /// Whether interrupts or NAPI instances may be missing, as their map is full.
    pub fn is_full(&self, irqs: &[Irq], napis: &[Napi]) -> bool {
        irqs.len() >= self.irqs.capacity() || napis.len() >= self.napis.capacity()
    }

    /// Makes the kernel measure the run time of the programs for `window`, and waits for its end.
    pub fn program_time(&self, window: Duration) -> Result<ProgramTime> {
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
        Ok(ProgramTime {
            runs: after.count - before.count,
            ns: after.ns - before.ns,
            window_ns: begun.elapsed().as_nanos() as u64,
        })
    }
}

/// Loads the programs, without those whose tracepoint or field this kernel lacks: only x86 has the
/// timer's and the IPIs' tracepoints, and no kernel promises the fields of a timer. Returns also
/// whether these two were loaded.
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
        // The entry may have been removed meanwhile.
        if let Some(values) = map.get_per_cpu(&key)? {
            all.push((key, values));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::OBJECT;

    #[test]
    fn types_are_those_of_the_header() {
        OBJECT.check().expect("the same types");
    }
}
