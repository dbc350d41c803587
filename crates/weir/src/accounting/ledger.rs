//! The ledger of a CPU's time: rows that sum up to 100%, attributed to the network, interrupts, tasks and the outside.

use serde::Serialize;

use super::busy_loop::Progress;
use super::busy_loop::gaps::{GAP_BOUNDS_NS, OutsideGaps, Taken};
use super::tracepoints::abi::{CpuTimes, LOCAL_TIMER, VECTOR_NAMES};
use super::tracepoints::{CpuTotals, SOFTIRQ_NAMES};
use crate::report::statistics::Estimate;

/// A share of a CPU's time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Share {
    /// In percent.
    pub percent: f64,
    /// With 95% confidence the true value is within this of it.
    pub confidence: Option<f64>,
}

/// Who had a CPU, told by the gaps of the load on it. The first nine sum up to 100%.
#[derive(Debug, Clone, Serialize)]
pub struct GapLedger {
    /// By the network: its softirqs, NAPI threads and its part of ksoftirqd.
    pub network: Share,
    /// By hard interrupts, devices' among them, and by softirqs that are not the network's.
    pub other_interrupts: Share,
    /// From outside the kernel: the next three together.
    pub outside: Share,
    /// By other tasks.
    pub other_tasks: Share,
    /// By somebody whose coming or going the kernel did not report.
    pub unreported: Share,
    /// Idle though the load wanted to run: a CPU quota.
    pub throttled: Share,
    /// Units of work that took longer though nothing interrupted them.
    pub slower: Share,
    /// The progress of the load.
    pub progress: Share,
    /// The load's reading of counters.
    pub reading: Share,
    /// The part of `outside` that entering and leaving interrupts and tasks took.
    pub outside_entry_percent: f64,
    /// The part of `outside` in gaps in which the kernel did nothing, and in those that were longer
    /// than entering and leaving it takes.
    pub outside_gaps_percent: f64,
    /// The part of `outside` that made timers late while the load did not run.
    pub outside_late_percent: f64,
    /// Gaps in which the kernel did nothing, by length.
    pub gaps: Vec<GapClass>,
    /// The longest of them, in nanoseconds.
    pub longest_gap_ns: u64,
    /// The same by kind of the kernel's work.
    pub rows: Vec<Row>,
}

/// Gaps of similar length.
#[derive(Debug, Clone, Serialize)]
pub struct GapClass {
    /// Up to so many nanoseconds; `None` for the longest.
    pub up_to_ns: Option<u64>,
    /// How many.
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
    /// That of a load; `None` if the kernel's account could not be read.
    pub fn of(progress: &Progress) -> Option<Self> {
        let taken = &progress.total.taken;
        if taken.looked_ns == 0 {
            return None;
        }
        let share = |ns: fn(&Taken) -> f64| Share::from(progress.share_of(ns).unwrap_or_else(zero));
        let percent = |ns: f64| ns / taken.looked_ns as f64 * 100.0;
        Some(Self {
            network: share(Taken::network_ns),
            other_interrupts: share(Taken::interrupts_ns),
            outside: share(Taken::outside_ns),
            other_tasks: share(Taken::tasks_ns),
            unreported: share(Taken::unreported_ns),
            throttled: share(Taken::throttled_ns),
            slower: share(|it| it.slower_ns),
            progress: share(|it| it.progress_ns),
            reading: share(|it| it.reading_ns),
            outside_entry_percent: percent(taken.entry_ns),
            outside_gaps_percent: percent(taken.gaps_ns),
            outside_late_percent: percent(taken.kernel.outside_ns as f64),
            gaps: gap_classes(&progress.outside_gaps),
            longest_gap_ns: progress.outside_gaps.longest_ns,
            rows: gap_rows(taken),
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
            confidence: estimate.half_width.map(|half| half * 100.0),
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

fn gap_rows(taken: &Taken) -> Vec<Row> {
    let mut rows = vec![
        row("progress of the load", taken.progress_ns),
        row("slower", taken.slower_ns),
        row("reading counters", taken.reading_ns),
    ];
    rows.extend(kernel_rows(&taken.kernel));
    rows.push(row("entering and leaving", taken.entry_ns));
    rows.push(row("outside, in gaps", taken.gaps_ns));
    in_percent(rows, taken.looked_ns)
}

/// The ledger of a CPU by tracepoints: all of its time, as far as it was looked at.
pub fn tracepoint_rows(cpu: &CpuTotals) -> Vec<Row> {
    let mut rows = Vec::new();
    if cpu.times.load_ns > 0 {
        rows.push(row("load of this measurement", cpu.times.load_ns as f64));
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
        row("devices' interrupts", times.irq_ns as f64),
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
        row("not reported by the kernel", times.unreported_ns as f64),
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
            load_ns: 500,
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
        let taken = Taken {
            looked_ns: 784 + 1000 + 60 + 30 + 20 + 5,
            progress_ns: 1000.0,
            kernel: times(),
            entry_ns: 60.0,
            gaps_ns: 30.0,
            slower_ns: 20.0,
            reading_ns: 5.0,
        };
        assert_eq!(times().without_load_ns(), 784);
        let rows = gap_rows(&taken);
        assert!((sum(&rows) - 100.0).abs() < 1e-9, "{rows:?}");
    }

    #[test]
    fn rows_of_tracepoints_sum_up_and_say_what_is_missing() {
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
