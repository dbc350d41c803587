//! The ledger of a CPU's time: rows that sum up to 100%, attributed to the network, other
//! interrupts, tasks and the outside.

use serde::Serialize;

use super::busy_loop::gaps::{GAP_BOUNDS_NS, OutsideGaps};
use super::busy_loop::{Attribution, CpuLoss};
use super::interrupts::{LOCAL_TIMER, SOFTIRQ_NAMES, VECTOR_NAMES};
use super::tracepoints::CpuTotals;
use super::tracepoints::abi::CpuTimes;
use crate::report::statistics::Estimate;

/// A share of a CPU's time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Share {
    /// In percent.
    pub percent: f64,
    /// Half the width of its 95% confidence interval, in percentage points.
    pub ci95_half_width: Option<f64>,
}

/// A CPU's time by consumer, by the gaps of its busy loop. The first nine sum up to 100%.
#[derive(Debug, Clone, Serialize)]
pub struct GapLedger {
    /// Networking: softirqs, NAPI threads and a part of ksoftirqd.
    pub network: Share,
    /// Hard interrupts, also of devices, and other softirqs.
    pub other_interrupts: Share,
    /// Outside the kernel: the sum of the next three percentages.
    pub outside: Share,
    /// Other tasks.
    pub other_tasks: Share,
    /// Unknown tasks, before context switches that the kernel did not report.
    pub unreported: Share,
    /// Idle while the busy loop was runnable: a CPU quota.
    pub throttled: Share,
    /// Units of work that took longer without an interruption.
    pub slower: Share,
    /// The work of the busy loop.
    pub work: Share,
    /// The busy loop's reading of counters.
    pub reading_counters: Share,
    /// The part of `outside` in entry and exit of interrupts and tasks.
    pub outside_entry_percent: f64,
    /// The part of `outside` in gaps without any work of the kernel, and in the excess of gaps over
    /// their entry and exit.
    pub outside_gaps_percent: f64,
    /// The part of `outside` by late timers, while the busy loop did not run.
    pub outside_late_timers_percent: f64,
    /// Gaps without any work of the kernel, by length.
    pub gaps: Vec<GapClass>,
    /// The longest of them, in nanoseconds.
    pub longest_gap_ns: u64,
    /// All of the time by kind of the kernel's work.
    pub rows: Vec<Row>,
}

/// Gaps of similar length.
#[derive(Debug, Clone, Serialize)]
pub struct GapClass {
    /// Up to so many nanoseconds; `None` for the longest.
    pub up_to_ns: Option<u64>,
    /// Their number.
    pub count: u64,
    /// Their sum, in nanoseconds.
    pub ns: u64,
}

/// A row of a ledger.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The consumer of the time.
    pub name: String,
    /// In percent of the CPU's time.
    pub percent: f64,
}

impl GapLedger {
    /// The ledger of a busy loop; `None` without tracepoints.
    pub fn of(loss: &CpuLoss) -> Option<Self> {
        let time = &loss.total.attribution;
        if time.observed_ns == 0 {
            return None;
        }
        let share =
            |ns: fn(&Attribution) -> f64| Share::from(loss.share_of(ns).unwrap_or_else(zero));
        let percent = |ns: f64| ns / time.observed_ns as f64 * 100.0;
        Some(Self {
            network: share(Attribution::network_ns),
            other_interrupts: share(Attribution::other_interrupts_ns),
            outside: share(Attribution::outside_ns),
            other_tasks: share(Attribution::other_tasks_ns),
            unreported: share(Attribution::unreported_ns),
            throttled: share(Attribution::throttled_ns),
            slower: share(|it| it.slower_ns),
            work: share(|it| it.work_ns),
            reading_counters: share(|it| it.reading_ns),
            outside_entry_percent: percent(time.entry_ns),
            outside_gaps_percent: percent(time.gaps_ns),
            outside_late_timers_percent: percent(time.kernel.outside_ns as f64),
            gaps: gap_classes(&loss.outside_gaps),
            longest_gap_ns: loss.outside_gaps.longest_ns,
            rows: gap_rows(time),
        })
    }

    /// In interrupts and softirqs of any kind, and the network's threads.
    pub fn kernel_percent(&self) -> f64 {
        self.network.percent + self.other_interrupts.percent
    }
}

fn zero() -> Estimate {
    Estimate {
        mean: 0.0,
        half_width: None,
    }
}

impl From<Estimate> for Share {
    fn from(estimate: Estimate) -> Self {
        Self {
            percent: estimate.mean * 100.0,
            ci95_half_width: estimate.half_width.map(|half| half * 100.0),
        }
    }
}

fn gap_classes(gaps: &OutsideGaps) -> Vec<GapClass> {
    let bounds = GAP_BOUNDS_NS.into_iter().map(Some).chain([None]);
    let counts = gaps.counts.iter().zip(gaps.ns);
    bounds
        .zip(counts)
        .map(|(up_to_ns, (&count, ns))| GapClass {
            up_to_ns,
            count,
            ns,
        })
        .collect()
}

fn gap_rows(time: &Attribution) -> Vec<Row> {
    let mut rows = vec![
        row("work of the busy loop", time.work_ns),
        row("slower", time.slower_ns),
        row("reading counters", time.reading_ns),
    ];
    rows.extend(kernel_rows(&time.kernel));
    rows.push(row("interrupt entry and exit", time.entry_ns));
    rows.push(row("outside, in gaps", time.gaps_ns));
    in_percent(rows, time.observed_ns)
}

/// The ledger of a CPU by tracepoints: all of the time observed.
pub fn tracepoint_rows(cpu: &CpuTotals) -> Vec<Row> {
    let mut rows = Vec::new();
    if cpu.times.loop_ns > 0 {
        rows.push(row("busy loop", cpu.times.loop_ns as f64));
    }
    rows.extend(kernel_rows(&cpu.times));
    let sum: f64 = rows.iter().map(|(_, ns)| ns).sum();
    rows.push(row("not accounted for", cpu.observed_ns as f64 - sum));
    in_percent(rows, cpu.observed_ns)
}

/// A row's name and its nanoseconds.
type Nanoseconds = (String, f64);

fn row(name: &str, ns: f64) -> Nanoseconds {
    (name.into(), ns)
}

fn kernel_rows(times: &CpuTimes) -> Vec<Nanoseconds> {
    let ksoftirqd_other = times.ksoftirqd_ns.saturating_sub(times.ksoftirqd_net_ns);
    let softirqs = SOFTIRQ_NAMES.iter().zip(times.softirq_ns);
    let mut rows: Vec<_> = softirqs
        .map(|(name, ns)| row(&format!("{name} softirq"), ns as f64))
        .collect();
    rows.extend([
        row("NAPI threads", times.napi_thread_ns as f64),
        row("ksoftirqd, network", times.ksoftirqd_net_ns as f64),
        row("ksoftirqd, other", ksoftirqd_other as f64),
        row("device interrupts", times.irq_ns as f64),
    ]);
    for (vector, name) in VECTOR_NAMES.iter().enumerate() {
        let kind = if vector == LOCAL_TIMER { "" } else { " IPI" };
        rows.push(row(
            &format!("{name}{kind} interrupt"),
            times.vector_ns[vector] as f64,
        ));
    }
    rows.extend([
        row("other tasks", times.task_ns as f64),
        row("unreported switches", times.unreported_ns as f64),
        row("idle", times.idle_ns as f64),
        row("outside, by late timers", times.outside_ns as f64),
    ]);
    rows
}

fn in_percent(rows: Vec<Nanoseconds>, of_ns: u64) -> Vec<Row> {
    rows.into_iter()
        .map(|(name, ns)| Row {
            name,
            percent: ns / of_ns.max(1) as f64 * 100.0,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times() -> CpuTimes {
        CpuTimes {
            irq_ns: 10,
            vector_ns: [100, 1, 2, 3, 4],
            softirq_ns: [1, 2, 3, 400, 5, 6, 7, 8, 9, 10],
            napi_thread_ns: 50,
            ksoftirqd_ns: 20,
            ksoftirqd_net_ns: 5,
            task_ns: 70,
            loop_ns: 500,
            idle_ns: 30,
            outside_ns: 40,
            unreported_ns: 3,
            ..CpuTimes::default()
        }
    }

    fn sum(rows: &[Row]) -> f64 {
        rows.iter().map(|row| row.percent).sum()
    }

    #[test]
    fn rows_of_gaps_sum_up() {
        let time = Attribution {
            observed_ns: 784 + 1000 + 60 + 30 + 20 + 5,
            work_ns: 1000.0,
            kernel: times(),
            entry_ns: 60.0,
            gaps_ns: 30.0,
            slower_ns: 20.0,
            reading_ns: 5.0,
        };
        assert_eq!(times().without_loop_ns(), 784);
        let rows = gap_rows(&time);
        assert!((sum(&rows) - 100.0).abs() < 1e-9, "{rows:?}");
    }

    #[test]
    fn rows_of_tracepoints_sum_up_with_the_time_not_accounted_for() {
        let cpu = CpuTotals {
            observed_ns: 1303,
            times: times(),
            ..CpuTotals::default()
        };
        let rows = tracepoint_rows(&cpu);
        assert!((sum(&rows) - 100.0).abs() < 1e-9, "{rows:?}");
        let missing = rows.last().expect("a row");
        assert_eq!(missing.name, "not accounted for");
        assert!(
            (missing.percent - 1900.0 / 1303.0).abs() < 1e-9,
            "{missing:?}"
        );
    }
}
