//! Who took the time that a load lost, gap by gap.
//!
//! A gap is a unit of work that took longer than its work. After each unit the load looks whether
//! the kernel has accounted for anything on its CPU meanwhile (`accounting/view.rs`); both read
//! one clock, so the kernel's times lie within the gap, and the rest of it was spent
//! entering and leaving the kernel, or outside. A gap in which the kernel did nothing came from
//! outside: the hypervisor, system management mode, firmware. `hwlat` and `osnoise` of the
//! kernel's tracers find it in the same way (Documentation/trace/osnoise-tracer.rst); they count
//! interrupts, here their times are taken off.

use serde::Serialize;

use crate::accounting::tracepoints::abi::CpuTimes;
use crate::accounting::tracepoints::view::Account;

/// Time of a load, in nanoseconds, by who had it. All but `looked_ns` sum up to that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Taken {
    /// The time in which the kernel's account was kept too; nothing here is of another time.
    pub looked_ns: u64,
    /// The load's own: its units, each as long as when the CPU is fastest.
    pub progress_ns: f64,
    /// The kernel's account.
    pub kernel: CpuTimes,
    /// Entering and leaving interrupts and other tasks: the part of a gap before and after the
    /// kernel's own readings. In a virtual machine the larger part of it is the hypervisor's.
    pub entry_ns: f64,
    /// In gaps in which the kernel did nothing, or that were longer than entering and leaving it
    /// takes.
    pub gaps_ns: f64,
    /// Units that took longer though nothing interrupted them: the CPU's frequency, a busy
    /// sibling thread of the core, caches.
    pub slower_ns: f64,
    /// Between slices, where the load reads counters.
    pub reading_ns: f64,
}

impl Taken {
    /// By the network: its softirqs, and the threads that work in their place.
    pub fn network_ns(&self) -> f64 {
        self.kernel.network_ns() as f64
    }

    /// By hard interrupts and by softirqs that are not the network's.
    pub fn interrupts_ns(&self) -> f64 {
        self.kernel.interrupts_ns() as f64
    }

    /// By other tasks.
    pub fn tasks_ns(&self) -> f64 {
        self.kernel.task_ns as f64
    }

    /// Idle though the load wanted to run: a CPU quota holds it back.
    pub fn throttled_ns(&self) -> f64 {
        self.kernel.idle_ns as f64
    }

    /// By somebody whose coming or going the kernel did not report.
    pub fn unreported_ns(&self) -> f64 {
        self.kernel.unreported_ns as f64
    }

    /// From outside the kernel: gaps, the way into and out of interrupts, and the time by which
    /// timers were late while others ran.
    pub fn outside_ns(&self) -> f64 {
        self.entry_ns + self.gaps_ns + self.kernel.outside_ns as f64
    }

    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            looked_ns: self.looked_ns + other.looked_ns,
            progress_ns: self.progress_ns + other.progress_ns,
            kernel: self.kernel.plus(&other.kernel),
            entry_ns: self.entry_ns + other.entry_ns,
            gaps_ns: self.gaps_ns + other.gaps_ns,
            slower_ns: self.slower_ns + other.slower_ns,
            reading_ns: self.reading_ns + other.reading_ns,
        }
    }

    /// The same for a load whose units take `fastest_ns` when the CPU is fastest, and took
    /// `unit_ns` in this time.
    #[must_use]
    pub fn at_fastest(self, fastest_ns: f64, unit_ns: f64) -> Self {
        let drift_ns = self.progress_ns * (1.0 - fastest_ns / unit_ns.max(1.0));
        Self {
            progress_ns: self.progress_ns - drift_ns,
            slower_ns: self.slower_ns + drift_ns,
            ..self
        }
    }
}

/// Upper bounds of the lengths of gaps that are told apart, in nanoseconds; longer ones are in a
/// class of their own.
pub const GAP_BOUNDS_NS: [u64; 7] = [2_000, 5_000, 10_000, 30_000, 100_000, 1_000_000, 10_000_000];

/// Gaps in which the kernel did nothing, by length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct OutsideGaps {
    /// How many, by [`GAP_BOUNDS_NS`].
    pub counts: [u64; GAP_BOUNDS_NS.len() + 1],
    /// Their length, by the same.
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

/// Sums of one slice, while it lasts.
#[derive(Debug, Clone)]
pub struct Gaps {
    looking: bool,
    /// The time in which the kernel's account was kept, and its sums, up to the last unit.
    looked_ns: u64,
    last: CpuTimes,
    /// A unit from this long on is a gap.
    limit_ns: u64,
    unit_ns: f64,
    entry: EntryTimes,
    outside: OutsideGaps,
    /// The same when the slice began.
    outside_before: OutsideGaps,
    shortest_reading_ns: f64,
    sums: Sums,
}

impl Default for Gaps {
    fn default() -> Self {
        Self {
            looking: false,
            looked_ns: 0,
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
    looked_ns: u64,
    units: u64,
    kernel: CpuTimes,
    kernel_gaps_ns: u64,
    kernel_gaps: u64,
    /// In gaps with the kernel's work: in excess of entering and leaving it.
    over_ns: f64,
    other_gaps_ns: u64,
    other_gaps: u64,
    /// Since the slice before, and the kernel's account of that.
    between_ns: u64,
    between: CpuTimes,
    reading_over_ns: f64,
}

impl Sums {
    fn reading_ns(&self) -> f64 {
        self.between_ns as f64 - self.between.without_load_ns() as f64
    }
}

/// From so many times the shortest on, reading the counters was held up from outside.
const MOST_READINGS: f64 = 3.0;

impl Gaps {
    /// Begins a slice, in which an undisturbed unit takes about `unit_ns`. It has the time since the
    /// end of the one before, `took_ns`, in which the load read its counters: slices end where a gap
    /// ends, so without it the gaps' share would be too large.
    pub fn begin(&mut self, unit_ns: f64, took_ns: Option<u64>, at_ns: u64, account: &Account) {
        let passed = account.times.since(&self.last);
        let looked_ns = account.looked_until(at_ns).saturating_sub(self.looked_ns);
        self.sums = Sums::default();
        self.outside_before = self.outside;
        self.unit_ns = unit_ns;
        self.limit_ns = (unit_ns * 2.0) as u64;
        self.follow(at_ns, account);
        if let Some(took_ns) = took_ns {
            self.sums.between_ns = looked_ns.min(took_ns);
            self.sums.between = passed;
            self.sums.reading_over_ns = self.over_reading(self.sums.reading_ns());
        }
    }

    /// The time between slices in excess of reading the counters, which is always the same work.
    fn over_reading(&mut self, ns: f64) -> f64 {
        if ns > 0.0 {
            self.shortest_reading_ns = self.shortest_reading_ns.min(ns);
        }
        if ns > MOST_READINGS * self.shortest_reading_ns {
            ns - self.shortest_reading_ns
        } else {
            0.0
        }
    }

    fn follow(&mut self, at_ns: u64, account: &Account) {
        self.looking = account.since_ns.is_some();
        self.looked_ns = account.looked_until(at_ns);
        self.last = account.times;
    }

    /// The number of changes in the kernel's account that is known.
    #[inline(always)]
    pub fn events(&self) -> u64 {
        self.last.events
    }

    /// A unit in which the kernel did nothing.
    #[inline(always)]
    pub fn quiet(&mut self, took_ns: u64) {
        if !self.looking {
            return;
        }
        self.looked_ns += took_ns;
        self.sums.looked_ns += took_ns;
        self.sums.units += 1;
        if took_ns >= self.limit_ns {
            self.sums.other_gaps_ns += took_ns;
            self.sums.other_gaps += 1;
            self.outside
                .add(took_ns.saturating_sub(self.unit_ns as u64));
        }
    }

    /// A unit that took `took_ns` until `at_ns`, and in which the kernel accounted for something.
    ///
    /// Where it began or ceased to look meanwhile, only that part counts, and none of the unit's
    /// own work.
    pub fn kernel(&mut self, took_ns: u64, at_ns: u64, account: &Account) {
        let passed = account.times.since(&self.last);
        let looked_ns = account.looked_until(at_ns).saturating_sub(self.looked_ns);
        self.follow(at_ns, account);
        let whole = looked_ns as f64 + self.unit_ns / 2.0 > took_ns as f64;
        let (took_ns, units) = if whole { (took_ns, 1) } else { (looked_ns, 0) };
        let sums = &mut self.sums;
        sums.looked_ns += took_ns;
        sums.units += units;
        sums.kernel_gaps_ns += took_ns;
        sums.kernel_gaps += units;
        sums.kernel = sums.kernel.plus(&passed);
        let own_ns = units as f64 * self.unit_ns;
        let rest_ns = took_ns as f64 - own_ns - passed.without_load_ns() as f64;
        let entries = passed.interrupts + passed.switches;
        let usual_ns = entries as f64 * self.entry.usual_ns;
        if rest_ns > 2.0 * usual_ns + entries.max(1) as f64 * self.unit_ns {
            sums.over_ns += rest_ns - usual_ns;
        }
        if units == 1 && passed.interrupts > 0 && passed.switches == 0 && rest_ns > 0.0 {
            self.entry.add(rest_ns / passed.interrupts as f64);
        }
    }

    /// Ends the slice, of which it is now known how long an undisturbed unit took.
    pub fn end(&mut self, unit_ns: f64) -> Taken {
        let sums = &self.sums;
        let longer = |ns: u64, units: u64| ns as f64 - units as f64 * unit_ns;
        let rest_ns =
            longer(sums.kernel_gaps_ns, sums.kernel_gaps) - sums.kernel.without_load_ns() as f64;
        let other_ns = longer(sums.other_gaps_ns, sums.other_gaps);
        self.entry.settle();
        Taken {
            looked_ns: sums.looked_ns + sums.between_ns,
            progress_ns: sums.units as f64 * unit_ns,
            kernel: sums.kernel.plus(&sums.between),
            entry_ns: rest_ns - sums.over_ns,
            gaps_ns: other_ns + sums.over_ns + sums.reading_over_ns,
            slower_ns: longer(
                sums.looked_ns - sums.kernel_gaps_ns - sums.other_gaps_ns,
                sums.units - sums.kernel_gaps - sums.other_gaps,
            ),
            reading_ns: sums.reading_ns() - sums.reading_over_ns,
        }
    }

    /// Leaves out the gaps of the slice that is under way or has ended last.
    pub fn forget_outside(&mut self) {
        self.outside = self.outside_before;
    }

    /// Gaps so far in which the kernel did nothing.
    pub fn outside(&self) -> OutsideGaps {
        self.outside
    }
}

/// The time of entering and leaving an interrupt, from gaps with interrupts alone.
#[derive(Debug, Clone)]
struct EntryTimes {
    bins: Box<[u32; ENTRY_BINS]>,
    count: u64,
    /// The median.
    usual_ns: f64,
}

const ENTRY_BINS: usize = 1024;
const ENTRY_BIN_NS: f64 = 64.0;
/// Before anything is known.
const ENTRY_NS: f64 = 1000.0;
/// Fewer gaps tell nothing.
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
    use crate::accounting::tracepoints::abi::{LOCAL_TIMER, NET_RX};

    const UNIT: f64 = 1000.0;

    /// A scripted kernel, and a load that reads its account.
    struct Played {
        gaps: Gaps,
        times: CpuTimes,
        wall_ns: u64,
    }

    impl Played {
        fn new() -> Self {
            let mut gaps = Gaps::default();
            gaps.begin(UNIT, None, 0, &looking(CpuTimes::default()));
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
                .kernel(took_ns, self.wall_ns, &looking(self.times));
        }

        fn tick(&mut self, own_ns: u64, entry_ns: u64, outside_ns: u64) {
            self.kernel(1000 + own_ns + entry_ns + outside_ns, |times| {
                times.interrupts += 1;
                times.vector_ns[LOCAL_TIMER] += own_ns;
            });
        }

        fn end(mut self) -> Taken {
            let taken = self.gaps.end(UNIT);
            assert_eq!(taken.looked_ns, self.wall_ns);
            let sum = taken.progress_ns
                + taken.network_ns()
                + taken.interrupts_ns()
                + taken.tasks_ns()
                + taken.throttled_ns()
                + taken.unreported_ns()
                + taken.outside_ns()
                + taken.slower_ns
                + taken.reading_ns;
            near(sum, self.wall_ns as f64);
            taken
        }
    }

    /// The account of a kernel that has looked from the beginning.
    fn looking(times: CpuTimes) -> Account {
        Account {
            times,
            since_ns: Some(0),
            ..Account::default()
        }
    }

    fn near(one: f64, other: f64) {
        assert!((one - other).abs() < 1.0, "{one} instead of {other}");
    }

    #[test]
    fn a_gap_without_the_kernel_is_from_outside() {
        let mut played = Played::new();
        played.quiet(1000, 1000);
        played.quiet(2, 21_000);
        let outside = played.gaps.outside();
        assert_eq!((outside.counts[3], outside.longest_ns), (2, 20_000));
        let taken = played.end();
        near(taken.gaps_ns, 40_000.0);
        near(taken.outside_ns(), 40_000.0);
        near(taken.slower_ns, 0.0);
        near(taken.progress_ns, 1_002_000.0);
    }

    #[test]
    fn units_that_take_a_little_longer_are_slower() {
        let mut played = Played::new();
        played.quiet(1000, 1000);
        played.quiet(1000, 1400);
        let taken = played.end();
        near(taken.slower_ns, 400_000.0);
        near(taken.outside_ns(), 0.0);
    }

    #[test]
    fn the_kernels_work_is_named_and_its_entry_apart() {
        let mut played = Played::new();
        for _ in 0..100 {
            played.tick(2000, 3000, 0);
        }
        played.kernel(51_000, |times| times.softirq_ns[NET_RX] += 49_500);
        played.kernel(31_000, |times| {
            times.switches += 2;
            times.task_ns += 28_000;
        });
        let taken = played.end();
        near(taken.interrupts_ns(), 200_000.0);
        near(taken.network_ns(), 49_500.0);
        near(taken.tasks_ns(), 28_000.0);
        near(taken.entry_ns, 300_000.0 + 500.0 + 2000.0);
        near(taken.gaps_ns, 0.0);
    }

    #[test]
    fn what_is_longer_than_an_entry_takes_is_from_outside() {
        let mut played = Played::new();
        for _ in 0..100 {
            played.tick(2000, 3000, 0);
        }
        played.gaps.end(UNIT);
        let usual = played.gaps.entry.usual_ns;
        assert!((usual - 3000.0).abs() <= ENTRY_BIN_NS, "{usual}");
        // The hypervisor took the CPU for a millisecond while an interrupt came.
        played.tick(2000, 3000, 1_000_000);
        let taken = played.end();
        assert!((taken.gaps_ns - 1_000_000.0).abs() < 100.0, "{taken:?}");
    }

    #[test]
    fn a_slice_has_the_time_since_the_one_before() {
        let mut played = Played::new();
        played.quiet(10, 1000);
        played.gaps.end(UNIT);
        played.times.events += 1;
        played.times.softirq_ns[NET_RX] += 700;
        let account = looking(played.times);
        played.gaps.begin(UNIT, Some(2000), 12_000, &account);
        played.wall_ns = 2000;
        played.quiet(10, 1000);
        let taken = played.end();
        near(taken.reading_ns, 1300.0);
        near(taken.network_ns(), 700.0);
        near(taken.progress_ns, 10_000.0);
    }

    #[test]
    fn a_long_time_between_slices_is_from_outside() {
        let mut played = Played::new();
        played.gaps.end(UNIT);
        let account = looking(played.times);
        let mut at_ns = 0;
        for (took_ns, outside_ns) in [(2000, 0), (3000, 0), (1_002_000, 1_000_000)] {
            at_ns += took_ns;
            played.gaps.begin(UNIT, Some(took_ns), at_ns, &account);
            let taken = played.gaps.end(UNIT);
            near(taken.reading_ns, (took_ns - outside_ns) as f64);
            near(taken.outside_ns(), outside_ns as f64);
        }
    }

    #[test]
    fn of_a_time_in_which_the_kernel_began_or_ceased_to_look_that_part_counts() {
        let mut gaps = Gaps::default();
        let mut times = CpuTimes::default();
        let mut account = looking(times);
        gaps.begin(UNIT, None, 0, &account);
        // It ceases 4 us into a gap of 9, having seen 3 us of a task.
        times.events += 1;
        times.task_ns += 3000;
        account = Account {
            times,
            looked_ns: 4000,
            ..Account::default()
        };
        gaps.kernel(9000, 9000, &account);
        for _ in 0..50 {
            gaps.quiet(1000);
        }
        // It begins again 2 us into another, which ends at 68 us, and sees the task.
        times.events += 1;
        times.task_ns += 5000;
        account = Account {
            times,
            looked_ns: 4000,
            since_ns: Some(61_000),
            ..Account::default()
        };
        gaps.kernel(9000, 68_000, &account);
        for _ in 0..10 {
            gaps.quiet(1000);
        }
        // It ceases and begins within one gap, of which it sees 2 and 3 us.
        times.events += 2;
        times.task_ns += 5000;
        account = Account {
            times,
            looked_ns: 4000 + 17_000 + 2000,
            since_ns: Some(975_000),
            ..Account::default()
        };
        gaps.kernel(900_000, 978_000, &account);
        let taken = gaps.end(UNIT);
        assert_eq!(taken.looked_ns, 4000 + 7000 + 10_000 + 5000);
        near(taken.tasks_ns(), 13_000.0);
        near(taken.progress_ns, 10_000.0);
        near(taken.outside_ns(), 3000.0);
    }

    #[test]
    fn a_slower_clock_rate_is_slower_work() {
        let taken = Taken {
            looked_ns: 3000,
            progress_ns: 3000.0,
            ..Taken::default()
        };
        let taken = taken.at_fastest(1000.0, 1500.0);
        near(taken.progress_ns, 2000.0);
        near(taken.slower_ns, 1000.0);
    }
}
