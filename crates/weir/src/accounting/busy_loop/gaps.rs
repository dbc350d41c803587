//! The gaps in the work of a busy loop, each attributed to its consumers.
//!
//! A gap is a unit that took longer than its work. After each unit the loop compares the event count
//! of the tracepoints on its CPU ([`View`]). Both read one clock, so the kernel's times lie within
//! the gap; the rest of it is entry and exit of the kernel, or outside time. A gap without any event
//! is outside time: the hypervisor, system management mode, firmware. The kernel's `hwlat` and
//! `osnoise` tracers use the same method (Documentation/trace/osnoise-tracer.rst); they count
//! interrupts, and here their times are subtracted.
//!
//! [`View`]: crate::accounting::tracepoints::view::View

use serde::Serialize;

use super::attribution::Attribution;
use crate::accounting::tracepoints::abi::CpuTimes;
use crate::accounting::tracepoints::view::Snapshot;

/// Upper bounds of the classes of gap lengths, in nanoseconds; longer gaps have a class of their
/// own.
pub const GAP_BOUNDS_NS: [u64; 7] = [2_000, 5_000, 10_000, 30_000, 100_000, 1_000_000, 10_000_000];

/// Gaps without any work of the kernel, by length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct OutsideGaps {
    /// Counts, by [`GAP_BOUNDS_NS`].
    pub counts: [u64; GAP_BOUNDS_NS.len() + 1],
    /// Sums of their lengths, by the same.
    pub ns: [u64; GAP_BOUNDS_NS.len() + 1],
    /// The longest.
    pub longest_ns: u64,
}

impl OutsideGaps {
    fn add(&mut self, ns: u64) {
        let class = GAP_BOUNDS_NS.partition_point(|bound| *bound < ns);
        self.counts[class] += 1;
        self.ns[class] += ns;
        self.longest_ns = self.longest_ns.max(ns);
    }
}

/// The sums of the current slice.
#[derive(Debug, Clone)]
pub struct Gaps {
    is_observed: bool,
    /// The time observed and the tracepoints' sums, up to the last unit.
    observed_ns: u64,
    last: CpuTimes,
    /// The shortest unit that is a gap.
    limit_ns: u64,
    unit_ns: f64,
    entry: EntryTimes,
    outside: OutsideGaps,
    /// The same at the begin of the slice.
    outside_before: OutsideGaps,
    shortest_reading_ns: f64,
    sums: Sums,
}

impl Default for Gaps {
    fn default() -> Self {
        Self {
            is_observed: false,
            observed_ns: 0,
            last: CpuTimes::default(),
            limit_ns: 0,
            unit_ns: 0.0,
            entry: EntryTimes::default(),
            outside: OutsideGaps::default(),
            outside_before: OutsideGaps::default(),
            shortest_reading_ns: f64::MAX,
            sums: Sums::default(),
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    observed_ns: u64,
    units: u64,
    kernel: CpuTimes,
    kernel_gaps_ns: u64,
    kernel_gaps: u64,
    /// The excess of gaps with the kernel's work over its entry and exit.
    excess_ns: f64,
    other_gaps_ns: u64,
    other_gaps: u64,
    /// The time since the previous slice, and the kernel's times in it.
    between_ns: u64,
    between: CpuTimes,
    reading_excess_ns: f64,
}

impl Sums {
    fn reading_ns(&self) -> f64 {
        self.between_ns as f64 - self.between.without_loop_ns() as f64
    }
}

/// A reading of the counters that takes more than so many times the shortest one was interrupted
/// from outside.
const MOST_READINGS: f64 = 3.0;

impl Gaps {
    /// Begins a slice, in which an undisturbed unit takes about `unit_ns`. It includes the time since
    /// the end of the previous one, `took_ns`, in which the loop read its counters: slices end at the
    /// end of a gap, so without it the gaps' share would be too large.
    pub fn begin(&mut self, unit_ns: f64, took_ns: Option<u64>, at_ns: u64, snapshot: &Snapshot) {
        let passed = snapshot.times.since(&self.last);
        let observed_ns = snapshot
            .observed_until(at_ns)
            .saturating_sub(self.observed_ns);
        self.sums = Sums::default();
        self.outside_before = self.outside;
        self.unit_ns = unit_ns;
        self.limit_ns = (unit_ns * 2.0) as u64;
        self.follow(at_ns, snapshot);
        if let Some(took_ns) = took_ns {
            self.sums.between_ns = observed_ns.min(took_ns);
            self.sums.between = passed;
            self.sums.reading_excess_ns = self.reading_excess(self.sums.reading_ns());
        }
    }

    /// The excess of the time between slices over reading the counters, which is constant work.
    fn reading_excess(&mut self, ns: f64) -> f64 {
        if ns > 0.0 {
            self.shortest_reading_ns = self.shortest_reading_ns.min(ns);
        }
        if ns > MOST_READINGS * self.shortest_reading_ns {
            ns - self.shortest_reading_ns
        } else {
            0.0
        }
    }

    fn follow(&mut self, at_ns: u64, snapshot: &Snapshot) {
        self.is_observed = snapshot.since_ns.is_some();
        self.observed_ns = snapshot.observed_until(at_ns);
        self.last = snapshot.times;
    }

    /// The last known event count of the tracepoints.
    #[inline(always)]
    pub fn events(&self) -> u64 {
        self.last.events
    }

    /// Adds a unit without an event.
    #[inline(always)]
    pub fn quiet(&mut self, took_ns: u64) {
        if !self.is_observed {
            return;
        }
        self.observed_ns += took_ns;
        self.sums.observed_ns += took_ns;
        self.sums.units += 1;
        if took_ns >= self.limit_ns {
            self.sums.other_gaps_ns += took_ns;
            self.sums.other_gaps += 1;
            self.outside
                .add(took_ns.saturating_sub(self.unit_ns as u64));
        }
    }

    /// Adds a unit with events that took `took_ns` and ended at `at_ns`.
    ///
    /// Where the observation began or ended meanwhile, only the observed part counts, and none of the
    /// unit's own work.
    pub fn kernel(&mut self, took_ns: u64, at_ns: u64, snapshot: &Snapshot) {
        let passed = snapshot.times.since(&self.last);
        let observed_ns = snapshot
            .observed_until(at_ns)
            .saturating_sub(self.observed_ns);
        self.follow(at_ns, snapshot);
        let whole = observed_ns as f64 + self.unit_ns / 2.0 > took_ns as f64;
        let (took_ns, units) = if whole {
            (took_ns, 1)
        } else {
            (observed_ns, 0)
        };
        let sums = &mut self.sums;
        sums.observed_ns += took_ns;
        sums.units += units;
        sums.kernel_gaps_ns += took_ns;
        sums.kernel_gaps += units;
        sums.kernel = sums.kernel.plus(&passed);
        let own_ns = units as f64 * self.unit_ns;
        let rest_ns = took_ns as f64 - own_ns - passed.without_loop_ns() as f64;
        let entries = passed.interrupts + passed.switches;
        let usual_ns = entries as f64 * self.entry.usual_ns;
        if rest_ns > 2.0 * usual_ns + entries.max(1) as f64 * self.unit_ns {
            sums.excess_ns += rest_ns - usual_ns;
        }
        if units == 1 && passed.interrupts > 0 && passed.switches == 0 && rest_ns > 0.0 {
            self.entry.add(rest_ns / passed.interrupts as f64);
        }
    }

    /// Ends the slice, in which an undisturbed unit took `unit_ns`.
    pub fn end(&mut self, unit_ns: f64) -> Attribution {
        let sums = &self.sums;
        let longer = |ns: u64, units: u64| ns as f64 - units as f64 * unit_ns;
        let rest_ns =
            longer(sums.kernel_gaps_ns, sums.kernel_gaps) - sums.kernel.without_loop_ns() as f64;
        let other_ns = longer(sums.other_gaps_ns, sums.other_gaps);
        self.entry.settle();
        Attribution {
            observed_ns: sums.observed_ns + sums.between_ns,
            work_ns: sums.units as f64 * unit_ns,
            kernel: sums.kernel.plus(&sums.between),
            entry_ns: rest_ns - sums.excess_ns,
            gaps_ns: other_ns + sums.excess_ns + sums.reading_excess_ns,
            slower_ns: longer(
                sums.observed_ns - sums.kernel_gaps_ns - sums.other_gaps_ns,
                sums.units - sums.kernel_gaps - sums.other_gaps,
            ),
            reading_ns: sums.reading_ns() - sums.reading_excess_ns,
        }
    }

    /// Removes the gaps of the current or last slice.
    pub fn forget_outside(&mut self) {
        self.outside = self.outside_before;
    }

    /// All gaps without an event so far.
    pub fn outside(&self) -> OutsideGaps {
        self.outside
    }
}

/// The time of entry and exit of an interrupt, from gaps with interrupts only.
#[derive(Debug, Clone)]
struct EntryTimes {
    bins: Box<[u32; ENTRY_BINS]>,
    count: u64,
    /// The median.
    usual_ns: f64,
}

const ENTRY_BINS: usize = 1024;
const ENTRY_BIN_NS: f64 = 64.0;
/// The initial estimate.
const ENTRY_NS: f64 = 1000.0;
/// The fewest gaps for an estimate.
const FEWEST_ENTRIES: u64 = 16;

impl Default for EntryTimes {
    fn default() -> Self {
        Self {
            bins: Box::new([0; ENTRY_BINS]),
            count: 0,
            usual_ns: ENTRY_NS,
        }
    }
}

impl EntryTimes {
    fn add(&mut self, ns: f64) {
        let bin = ((ns / ENTRY_BIN_NS) as usize).min(ENTRY_BINS - 1);
        self.bins[bin] = self.bins[bin].saturating_add(1);
        self.count += 1;
    }

    fn settle(&mut self) {
        if self.count < FEWEST_ENTRIES {
            return;
        }
        let mut below = 0;
        let median = self.bins.iter().position(|count| {
            below += u64::from(*count);
            below * 2 >= self.count
        });
        self.usual_ns = (median.unwrap_or(0) as f64 + 0.5) * ENTRY_BIN_NS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::interrupts::{LOCAL_TIMER, NET_RX};

    const UNIT: f64 = 1000.0;

    /// A scripted kernel, and a loop that reads its sums.
    struct Script {
        gaps: Gaps,
        times: CpuTimes,
        wall_ns: u64,
    }

    impl Script {
        fn new() -> Self {
            let mut gaps = Gaps::default();
            gaps.begin(UNIT, None, 0, &observed(CpuTimes::default()));
            Self {
                gaps,
                times: CpuTimes::default(),
                wall_ns: 0,
            }
        }

        fn quiet(&mut self, count: u64, ns: u64) {
            for _ in 0..count {
                self.gaps.quiet(ns);
            }
            self.wall_ns += count * ns;
        }

        fn kernel(&mut self, took_ns: u64, change: impl Fn(&mut CpuTimes)) {
            change(&mut self.times);
            self.times.events += 1;
            self.wall_ns += took_ns;
            self.gaps
                .kernel(took_ns, self.wall_ns, &observed(self.times));
        }

        fn tick(&mut self, own_ns: u64, entry_ns: u64, outside_ns: u64) {
            self.kernel(1000 + own_ns + entry_ns + outside_ns, |times| {
                times.interrupts += 1;
                times.vector_ns[LOCAL_TIMER] += own_ns;
            });
        }

        fn end(mut self) -> Attribution {
            let time = self.gaps.end(UNIT);
            assert_eq!(time.observed_ns, self.wall_ns);
            let sum = time.work_ns
                + time.network_ns()
                + time.other_interrupts_ns()
                + time.other_tasks_ns()
                + time.throttled_ns()
                + time.unreported_ns()
                + time.outside_ns()
                + time.slower_ns
                + time.reading_ns;
            near(sum, self.wall_ns as f64);
            time
        }
    }

    /// Sums of an observation since the beginning.
    fn observed(times: CpuTimes) -> Snapshot {
        Snapshot {
            times,
            since_ns: Some(0),
            ..Snapshot::default()
        }
    }

    fn near(one: f64, other: f64) {
        assert!((one - other).abs() < 1.0, "{one} instead of {other}");
    }

    #[test]
    fn a_gap_without_an_event_is_outside_time() {
        let mut script = Script::new();
        script.quiet(1000, 1000);
        script.quiet(2, 21_000);
        let outside = script.gaps.outside();
        assert_eq!((outside.counts[3], outside.longest_ns), (2, 20_000));
        let time = script.end();
        near(time.gaps_ns, 40_000.0);
        near(time.outside_ns(), 40_000.0);
        near(time.slower_ns, 0.0);
        near(time.work_ns, 1_002_000.0);
    }

    #[test]
    fn units_that_take_a_little_longer_are_slower_work() {
        let mut script = Script::new();
        script.quiet(1000, 1000);
        script.quiet(1000, 1400);
        let time = script.end();
        near(time.slower_ns, 400_000.0);
        near(time.outside_ns(), 0.0);
    }

    #[test]
    fn the_kernels_work_is_attributed_without_its_entry() {
        let mut script = Script::new();
        for _ in 0..100 {
            script.tick(2000, 3000, 0);
        }
        script.kernel(51_000, |times| times.softirq_ns[NET_RX] += 49_500);
        script.kernel(31_000, |times| {
            times.switches += 2;
            times.task_ns += 28_000;
        });
        let time = script.end();
        near(time.other_interrupts_ns(), 200_000.0);
        near(time.network_ns(), 49_500.0);
        near(time.other_tasks_ns(), 28_000.0);
        near(time.entry_ns, 300_000.0 + 500.0 + 2000.0);
        near(time.gaps_ns, 0.0);
    }

    #[test]
    fn the_excess_over_an_entry_is_outside_time() {
        let mut script = Script::new();
        for _ in 0..100 {
            script.tick(2000, 3000, 0);
        }
        script.gaps.end(UNIT);
        let usual = script.gaps.entry.usual_ns;
        assert!((usual - 3000.0).abs() <= ENTRY_BIN_NS, "{usual}");
        // The hypervisor took the CPU for a millisecond while an interrupt came.
        script.tick(2000, 3000, 1_000_000);
        let time = script.end();
        assert!((time.gaps_ns - 1_000_000.0).abs() < 100.0, "{time:?}");
    }

    #[test]
    fn a_slice_includes_the_time_since_the_previous_one() {
        let mut script = Script::new();
        script.quiet(10, 1000);
        script.gaps.end(UNIT);
        script.times.events += 1;
        script.times.softirq_ns[NET_RX] += 700;
        let snapshot = observed(script.times);
        script.gaps.begin(UNIT, Some(2000), 12_000, &snapshot);
        script.wall_ns = 2000;
        script.quiet(10, 1000);
        let time = script.end();
        near(time.reading_ns, 1300.0);
        near(time.network_ns(), 700.0);
        near(time.work_ns, 10_000.0);
    }

    #[test]
    fn a_long_time_between_slices_is_outside_time() {
        let mut script = Script::new();
        script.gaps.end(UNIT);
        let snapshot = observed(script.times);
        let mut at_ns = 0;
        for (took_ns, outside_ns) in [(2000, 0), (3000, 0), (1_002_000, 1_000_000)] {
            at_ns += took_ns;
            script.gaps.begin(UNIT, Some(took_ns), at_ns, &snapshot);
            let time = script.gaps.end(UNIT);
            near(time.reading_ns, (took_ns - outside_ns) as f64);
            near(time.outside_ns(), outside_ns as f64);
        }
    }

    #[test]
    fn a_gap_counts_as_far_as_it_was_observed() {
        let mut gaps = Gaps::default();
        let mut times = CpuTimes::default();
        let mut snapshot = observed(times);
        gaps.begin(UNIT, None, 0, &snapshot);
        // The observation ends 4 us into a gap of 9, with 3 us of a task.
        times.events += 1;
        times.task_ns += 3000;
        snapshot = Snapshot {
            times,
            observed_ns: 4000,
            ..Snapshot::default()
        };
        gaps.kernel(9000, 9000, &snapshot);
        for _ in 0..50 {
            gaps.quiet(1000);
        }
        // It begins again 2 us into another gap, which ends at 68 us, with the task.
        times.events += 1;
        times.task_ns += 5000;
        snapshot = Snapshot {
            times,
            observed_ns: 4000,
            since_ns: Some(61_000),
            ..Snapshot::default()
        };
        gaps.kernel(9000, 68_000, &snapshot);
        for _ in 0..10 {
            gaps.quiet(1000);
        }
        // It ends and begins within one gap: 2 and 3 us are observed.
        times.events += 2;
        times.task_ns += 5000;
        snapshot = Snapshot {
            times,
            observed_ns: 4000 + 17_000 + 2000,
            since_ns: Some(975_000),
            ..Snapshot::default()
        };
        gaps.kernel(900_000, 978_000, &snapshot);
        let time = gaps.end(UNIT);
        assert_eq!(time.observed_ns, 4000 + 7000 + 10_000 + 5000);
        near(time.other_tasks_ns(), 13_000.0);
        near(time.work_ns, 10_000.0);
        near(time.outside_ns(), 3000.0);
    }
}
