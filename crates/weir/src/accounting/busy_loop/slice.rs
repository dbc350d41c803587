//! A busy loop's time in slices, in constant memory.

use serde::Serialize;

use super::attribution::Attribution;

/// The length of a slice: far longer than a disturbance, far shorter than most changes of
/// frequency last.
pub const SLICE_NS: u64 = 50_000_000;

/// The most slices that are kept; beyond, pairs are merged.
const MOST_SLICES: usize = 4096;

/// A part of the time of a busy loop, in nanoseconds.
///
/// Between two slices the loop reads its counters. That time is in neither.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Slice {
    /// Begin, by `CLOCK_MONOTONIC`.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
    /// The time between, without the reading of counters.
    pub wall_ns: u64,
    /// The undisturbed time of the units done.
    pub work_ns: u64,
    /// On the CPU, by the scheduler: `CLOCK_THREAD_CPUTIME_ID`.
    pub running_ns: u64,
    /// Runnable while other tasks ran.
    pub waiting_ns: u64,
    /// The part of `waiting_ns` in which ksoftirqd ran.
    pub ksoftirqd_ns: u64,
    /// The part of `waiting_ns` in which NAPI threads ran.
    pub napi_threads_ns: u64,
    /// The part of `napi_threads_ns` of threads that migrated from another CPU within a slice: they
    /// may have run there.
    pub napi_migrated_ns: u64,
    /// The undisturbed time of a unit.
    pub unit_ns: f64,
    /// The part of `wall_ns` with too few undisturbed units, for which the unit's time of the
    /// previous slice was used.
    pub uncalibrated_ns: u64,
    /// The part of `wall_ns` in which the undisturbed time of a unit had more than one value.
    pub uneven_ns: u64,
    /// The consumers of the time, while tracepoints observed the CPU.
    pub attribution: Attribution,
}

impl Slice {
    /// All time without work.
    pub fn missing_ns(&self) -> i64 {
        signed(self.wall_ns) - signed(self.work_ns)
    }

    /// The run time of tasks other than ksoftirqd and NAPI threads.
    pub fn other_tasks_ns(&self) -> u64 {
        self.waiting_ns - self.ksoftirqd_ns - self.napi_threads_ns
    }

    /// The time that other tasks left.
    pub fn left_ns(&self) -> u64 {
        self.wall_ns.saturating_sub(self.other_tasks_ns())
    }

    /// The loss while no other task ran. As a measured difference it can be slightly negative.
    pub fn lost_ns(&self) -> i64 {
        self.missing_ns() - signed(self.other_tasks_ns())
    }

    /// Neither on the CPU nor waiting for it: interrupt time where the kernel accounts it, steal
    /// time, or a CPU quota.
    pub fn unaccounted_ns(&self) -> i64 {
        signed(self.wall_ns) - signed(self.running_ns) - signed(self.waiting_ns)
    }

    /// Both in one, where `later` follows.
    #[must_use]
    pub fn join(&self, later: &Self) -> Self {
        let wall_ns = self.wall_ns + later.wall_ns;
        let weighed = |slice: &Self| slice.unit_ns * slice.wall_ns as f64;
        Self {
            start_ns: if self.wall_ns == 0 {
                later.start_ns
            } else {
                self.start_ns
            },
            end_ns: later.end_ns,
            wall_ns,
            work_ns: self.work_ns + later.work_ns,
            running_ns: self.running_ns + later.running_ns,
            waiting_ns: self.waiting_ns + later.waiting_ns,
            ksoftirqd_ns: self.ksoftirqd_ns + later.ksoftirqd_ns,
            napi_threads_ns: self.napi_threads_ns + later.napi_threads_ns,
            napi_migrated_ns: self.napi_migrated_ns + later.napi_migrated_ns,
            unit_ns: (weighed(self) + weighed(later)) / (wall_ns as f64).max(1.0),
            uncalibrated_ns: self.uncalibrated_ns + later.uncalibrated_ns,
            uneven_ns: self.uneven_ns + later.uneven_ns,
            attribution: self.attribution.plus(&later.attribution),
        }
    }
}

/// Slices, of which pairs are merged when there are too many.
#[derive(Default)]
pub struct Slices {
    kept: Vec<Slice>,
    /// The slice that is being merged, and of how many.
    open: Slice,
    merged: usize,
    /// The number of times that pairs were merged.
    halved: u32,
}

impl Slices {
    /// Adds a slice.
    pub fn push(&mut self, slice: &Slice) {
        self.open = self.open.join(slice);
        self.merged += 1;
        if self.merged < 1 << self.halved {
            return;
        }
        self.close();
        if self.kept.len() == MOST_SLICES {
            let pairs = self.kept.chunks(2);
            self.kept = pairs
                .map(|pair| pair.iter().fold(Slice::default(), |sum, it| sum.join(it)))
                .collect();
            self.halved += 1;
        }
    }

    /// The time in all of them, in seconds.
    pub fn seconds(&self) -> f64 {
        let kept: u64 = self.kept.iter().map(|slice| slice.wall_ns).sum();
        (kept + self.open.wall_ns) as f64 / 1e9
    }

    fn close(&mut self) {
        if self.open.wall_ns > 0 {
            self.kept.push(self.open);
        }
        self.open = Slice::default();
        self.merged = 0;
    }

    /// All slices, in the order of time.
    pub fn all(mut self) -> Vec<Slice> {
        self.close();
        self.kept
    }
}

/// Nanoseconds, to be subtracted.
pub fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

#[cfg(test)]
impl Slice {
    /// An example: work in half of the time, and other tasks.
    pub fn example(start_ns: u64, wall_ns: u64) -> Self {
        Self {
            start_ns,
            end_ns: start_ns + wall_ns,
            wall_ns,
            work_ns: wall_ns / 2,
            running_ns: wall_ns * 7 / 10,
            waiting_ns: wall_ns * 3 / 10,
            ksoftirqd_ns: wall_ns / 10,
            napi_threads_ns: wall_ns / 20,
            unit_ns: 1000.0,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_add_up() {
        let slice = Slice::example(0, 1000);
        assert_eq!(slice.missing_ns(), 500);
        assert_eq!(slice.other_tasks_ns(), 150);
        assert_eq!(slice.lost_ns(), 350);
        assert_eq!(slice.unaccounted_ns(), 0);
    }

    #[test]
    fn merged_slices_keep_the_sums() {
        let mut slices = Slices::default();
        let count = MOST_SLICES as u64 * 3;
        for index in 0..count {
            slices.push(&Slice::example(index * 1000, 1000));
        }
        let all = slices.all();
        assert!(all.len() <= MOST_SLICES, "{}", all.len());
        let sum = |total: Slice, slice: &Slice| total.join(slice);
        let total = all.iter().fold(Slice::default(), sum);
        assert_eq!(total.wall_ns, count * 1000);
        assert_eq!(total.lost_ns(), signed(count * 350));
        assert_eq!((total.start_ns, total.end_ns), (0, count * 1000));
        assert!((total.unit_ns - 1000.0).abs() < 1e-6);
    }
}
