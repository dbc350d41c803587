//! Latencies as a histogram of high dynamic range, and its percentiles.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The percentiles of a [`Latency`], beside the maximum.
pub const PERCENTS: [f64; 15] = [
    0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99, 99.995, 99.999,
    99.9999,
];

/// Values from 1 ns to 100 s have three significant digits; longer ones count as 100 s.
const LONGEST_NS: u64 = 100_000_000_000;
const DIGITS: u8 = 3;

/// A histogram of latencies.
#[derive(Debug, Clone)]
pub struct Recorder(Histogram<u64>);

impl Recorder {
    /// Counts a latency.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// Its percentiles.
    pub fn percentiles(&self) -> Latency {
        let samples = self.0.len();
        let told = PERCENTS.iter().filter(|&&percent| tells(samples, percent));
        let percentiles = told.map(|&percent| Percentile {
            percent,
            ns: self.0.value_at_quantile(quantile(percent)),
        });
        Latency {
            samples,
            percentiles: percentiles.collect(),
            max_ns: (samples > 0).then(|| self.0.max()),
        }
    }
}

impl Default for Recorder {
    /// Without a value.
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, DIGITS);
        Self(histogram.expect("these bounds are valid"))
    }
}

/// The nearest number to a percentile's: a division by 100 alone can be a little above, and then the
/// histogram counts one sample more.
fn quantile(percent: f64) -> f64 {
    (percent * 1e7).round() / 1e9
}

/// Whether so many samples have at least one beyond the percentile: without it the percentile would be
/// the maximum by another name.
fn tells(samples: u64, percent: f64) -> bool {
    // With some room for binary fractions.
    samples as f64 * (1.0 - quantile(percent)) >= 1.0 - 1e-6
}

/// Latencies of a run: what most packets met, and what the slowest did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Packets measured.
    pub samples: u64,
    /// Those percentiles that the number of samples has something to say about, ascending.
    pub percentiles: Vec<Percentile>,
    /// The longest; `None` without a sample.
    pub max_ns: Option<u64>,
}

/// A percentile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Percentile {
    /// The share of the samples, in percent, that took no longer.
    pub percent: f64,
    /// The latency, rounded up to three digits.
    pub ns: u64,
}

impl Latency {
    /// The latency at a percentile; `None` with too few samples.
    pub fn at(&self, percent: f64) -> Option<u64> {
        let same = |it: &&Percentile| it.percent.total_cmp(&percent).is_eq();
        let found = self.percentiles.iter().find(same);
        found.map(|it| it.ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_known_values() {
        let mut recorder = Recorder::default();
        (1..=1000).for_each(|number| recorder.record(number * 1000));
        let latency = recorder.percentiles();
        let near = |percent: f64, expected: u64| {
            let ns = latency.at(percent).expect("a percentile");
            assert!(ns.abs_diff(expected) <= expected / 1000, "{percent}: {ns}");
        };
        near(50.0, 500_000);
        near(99.0, 990_000);
        near(99.9, 999_000);
        assert_eq!(latency.samples, 1000);
        assert!(
            latency
                .max_ns
                .is_some_and(|ns| ns.abs_diff(1_000_000) <= 1000)
        );
    }

    #[test]
    fn few_samples_say_nothing_about_rare_ones() {
        let mut recorder = Recorder::default();
        assert_eq!(recorder.percentiles(), Latency::default());
        (0..999).for_each(|_| recorder.record(5));
        let latency = recorder.percentiles();
        assert_eq!((latency.at(99.5), latency.at(99.9)), (Some(5), None));
        recorder.record(7);
        assert_eq!(recorder.percentiles().at(99.9), Some(5));
    }

    #[test]
    fn a_value_out_of_bounds_counts() {
        let mut recorder = Recorder::default();
        recorder.record(0);
        recorder.record(u64::MAX);
        assert_eq!(recorder.percentiles().samples, 2);
    }
}
