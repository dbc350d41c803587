//! A unit of work, and its undisturbed duration.

use std::hint::black_box;

use crate::process::clock::now_ns;

/// The duration of a unit, with the reading of the clock after it.
///
/// Long against the clock's resolution and cost (10 ns and 25 ns with the CPU's counter), short
/// against the time between two interrupts, so that most units are undisturbed.
const TARGET_NS: u64 = 1000;

/// A fixed amount of arithmetic.
///
/// Each step depends on the result of the previous one, so that the CPU's latencies determine its
/// duration: memory and the sibling thread of the core hardly matter.
pub struct Unit {
    steps: u32,
    state: u64,
    shortest_ns: u64,
}

impl Unit {
    /// A unit of about [`TARGET_NS`] on this CPU.
    pub fn sized() -> Self {
        const TRIES: u32 = 200;
        const MOST: u32 = 1 << 20;
        let mut unit = Self {
            steps: 16,
            state: 1,
            shortest_ns: 0,
        };
        loop {
            unit.shortest_ns = (0..TRIES).map(|_| unit.time_ns()).min().unwrap_or(0);
            if unit.shortest_ns >= TARGET_NS || unit.steps >= MOST {
                return unit;
            }
            // A part of the time is the clock's, so this approaches the target from below.
            let steps = u64::from(unit.steps) * TARGET_NS / unit.shortest_ns.max(1);
            let steps = steps.clamp(u64::from(unit.steps) + 8, u64::from(unit.steps) * 4);
            unit.steps = steps as u32;
        }
    }

    /// The shortest duration when it was sized.
    pub fn shortest_ns(&self) -> u64 {
        self.shortest_ns
    }

    /// Does the work once.
    #[inline(always)]
    pub fn run(&mut self) {
        let mut state = self.state;
        for _ in 0..self.steps {
            // No compiler can fold alternating shifts and multiplications into fewer steps.
            state ^= state >> 29;
            state = state.wrapping_mul(0xBF58_476D_1CE4_E5B9);
        }
        self.state = black_box(state);
    }

    fn time_ns(&mut self) -> u64 {
        let before = now_ns();
        self.run();
        now_ns() - before
    }
}

/// The bins of a histogram: four times [`TARGET_NS`] with bins of 1 ns.
const BINS: usize = 4096;

/// The fewest units to recognise undisturbed ones by.
const FEWEST: u64 = 32;

/// A histogram of the durations of a slice's units.
pub struct UnitTimes {
    bins: Box<[u32; BINS]>,
    /// A bin is `1 << shift` nanoseconds wide.
    shift: u32,
    /// The bins that the durations of undisturbed units are spread over.
    spread: usize,
    count: u64,
}

/// The undisturbed unit of a slice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Undisturbed {
    /// The mean duration of undisturbed units.
    pub unit_ns: f64,
    /// Units that took longer, but less than twice as long. An interrupt is seldom so short: many of
    /// these mean that the duration of the unit itself varies.
    pub slower: u64,
    /// Units that took less time.
    pub faster: u64,
}

impl UnitTimes {
    /// For units of at least this duration.
    pub fn new(shortest_ns: u64) -> Self {
        let mut shift = 0;
        while shortest_ns >> shift > BINS as u64 / 3 {
            shift += 1;
        }
        // A sixteenth for the clock's resolution, the CPU's frequency and the pipeline, and the
        // step of a slow counter: shorter than any interrupt.
        let spread = (shortest_ns / 16 + 42) >> shift;
        Self {
            bins: Box::new([0; BINS]),
            shift,
            spread: (spread as usize).max(1),
            count: 0,
        }
    }

    /// Adds a unit.
    #[inline(always)]
    pub fn add(&mut self, ns: u64) {
        self.count += 1;
        if let Some(bin) = self.bins.get_mut((ns >> self.shift) as usize) {
            *bin += 1;
        }
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.bins.fill(0);
        self.count = 0;
    }

    /// The undisturbed unit; `None` if there are too few of them.
    ///
    /// Undisturbed units take nearly the same time, disturbed ones any longer time. So the undisturbed
    /// ones are the cluster of more than half of all units, or, where most are disturbed, that of
    /// the lowest 64th. The estimate is their mean: a quantile would be off by the clock's
    /// resolution.
    pub fn undisturbed(&self) -> Option<Undisturbed> {
        let start = self.cluster()?;
        let end = (start + self.spread).min(BINS);
        let units = self.units(start, end);
        if units < FEWEST {
            return None;
        }
        let middle = ((1_u64 << self.shift) - 1) as f64 / 2.0;
        let time = |bin: usize| ((bin as u64) << self.shift) as f64 + middle;
        let sum: f64 = (start..end)
            .map(|bin| f64::from(self.bins[bin]) * time(bin))
            .sum();
        let unit_ns = sum / units as f64;
        let twice = ((unit_ns * 2.0) as usize >> self.shift).clamp(end, BINS);
        Some(Undisturbed {
            unit_ns,
            slower: self.units(end, twice),
            faster: self.units(0, start),
        })
    }

    /// The first bin of the undisturbed units.
    fn cluster(&self) -> Option<usize> {
        let enough = (self.count / 64).max(FEWEST);
        let mut inside = self.units(0, self.spread);
        let mut most = (inside, 0);
        let mut lowest: Option<(u64, usize)> = None;
        for start in 0..BINS - self.spread {
            if inside > most.0 {
                most = (inside, start);
            }
            // The first window with enough units may have only the lower edge of the cluster.
            lowest = match lowest {
                None if inside >= enough => Some((inside, start)),
                Some((units, first)) if inside > units && start <= first + self.spread => {
                    Some((inside, start))
                }
                same => same,
            };
            inside -= u64::from(self.bins[start]);
            inside += u64::from(self.bins[start + self.spread]);
        }
        if most.0 * 2 > self.count {
            return Some(most.1);
        }
        lowest.map(|(_, start)| start)
    }

    fn units(&self, start: usize, end: usize) -> u64 {
        self.bins[start..end]
            .iter()
            .map(|&count| u64::from(count))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn undisturbed(times: impl IntoIterator<Item = u64>, shortest_ns: u64) -> Option<Undisturbed> {
        let mut histogram = UnitTimes::new(shortest_ns);
        for ns in times {
            histogram.add(ns);
        }
        histogram.undisturbed()
    }

    /// Undisturbed units by a clock of 10 ns: 1121 to 1142 ns.
    fn clean(count: u64) -> impl Iterator<Item = u64> {
        (0..count).map(|index| [1121, 1131, 1132, 1142][index as usize % 4])
    }

    #[test]
    fn the_undisturbed_time_is_the_mean_of_the_cluster() {
        let ticks = (0..100).map(|index| 5_000 + index * 300);
        let unit = undisturbed(clean(40_000).chain(ticks), 1121).expect("enough");
        assert!((unit.unit_ns - 1131.5).abs() < 0.01, "{unit:?}");
        assert_eq!((unit.slower, unit.faster), (0, 0));
    }

    #[test]
    fn it_is_found_where_most_units_are_disturbed() {
        // One in forty is undisturbed, the others take any time from 1.3 to 3.9 us.
        let disturbed = (0..39_000).map(|index| 1_300 + index % 2_600);
        let unit = undisturbed(clean(1_000).chain(disturbed), 1121).expect("enough");
        assert!((unit.unit_ns - 1131.5).abs() < 1.0, "{unit:?}");
    }

    #[test]
    fn a_few_faster_units_do_not_mislead() {
        let unit = undisturbed(clean(40_000).chain([900; 100]), 900).expect("enough");
        assert!((unit.unit_ns - 1131.5).abs() < 0.01, "{unit:?}");
        assert_eq!(unit.faster, 100);
    }

    #[test]
    fn two_durations_are_found() {
        let slow = clean(30_000).map(|ns| ns * 3 / 2);
        let unit = undisturbed(clean(40_000).chain(slow), 1121).expect("enough");
        assert!((unit.unit_ns - 1131.5).abs() < 0.01, "{unit:?}");
        assert_eq!(unit.slower, 30_000);
    }

    #[test]
    fn too_few_units_give_no_estimate() {
        assert_eq!(undisturbed(clean(FEWEST - 1), 1121), None);
        assert_eq!(
            undisturbed((0..10_000).map(|index| 1_000_000 + index), 1121),
            None
        );
        assert_eq!(undisturbed([], 1121), None);
    }

    #[test]
    fn a_slow_machine_has_wider_bins() {
        let slow = clean(10_000).map(|ns| ns * 100);
        let unit = undisturbed(slow, 112_100).expect("enough");
        assert!((unit.unit_ns / 113_150.0 - 1.0).abs() < 1e-3, "{unit:?}");
    }

    #[test]
    fn it_is_emptied() {
        let mut times = UnitTimes::new(1000);
        times.add(1000);
        times.clear();
        assert_eq!((times.count, times.units(0, BINS)), (0, 0));
    }

    #[test]
    fn a_unit_is_of_the_size_wanted() {
        let unit = Unit::sized();
        assert!(
            (TARGET_NS..TARGET_NS * 10).contains(&unit.shortest_ns()),
            "{} ns",
            unit.shortest_ns()
        );
    }
}
