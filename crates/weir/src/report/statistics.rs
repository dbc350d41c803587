//! Medians, and means with their confidence intervals.
//!
//! Neighbouring slices of a measurement resemble each other, so their scatter alone would
//! promise too much. They are therefore gathered into a few long batches, whose means are
//! nearly independent, and the interval is Student's over these: the method of batch means.
//! Schmeiser, "Batch Size Effects in the Analysis of Simulation Output", Operations Research
//! 30 (1982), finds little gain beyond 10 to 30 batches.

use serde::Serialize;

/// The most batches that slices are gathered into.
const MOST_BATCHES: usize = 20;

/// Fewer batches than this give no interval: the quantile, and with it the interval, explodes.
const FEWEST_BATCHES: usize = 5;

/// Two-sided 95 % quantiles of Student's t by degrees of freedom, from 1: NIST/SEMATECH
/// e-Handbook of Statistical Methods, 1.3.6.7.2, column 0.975.
const T_975: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, //
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, //
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// The same for any number of degrees of freedom above the table: that of the normal
/// distribution, at most 4 % below the true one.
const Z_975: f64 = 1.960;

/// A mean, and how sure it is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// The true mean lies within this of it with 95 % confidence; `None` if there is too
    /// few values.
    pub half_width: Option<f64>,
}

/// The mean of independent values, such as repetitions; `None` without any.
pub fn mean(values: &[f64]) -> Option<Estimate> {
    ratio(values.iter().map(|&value| (value, 1.0)))
}

/// The share that parts have of their wholes, `(part, whole)` slice by slice in the order of
/// time, by batch means; `None` without any whole.
pub fn share(slices: &[(f64, f64)]) -> Option<Estimate> {
    let batches = slices.len().min(MOST_BATCHES);
    let batch = |index: usize| {
        let range = index * slices.len() / batches..(index + 1) * slices.len() / batches;
        let sum = |(part, whole), slice: &(f64, f64)| (part + slice.0, whole + slice.1);
        slices[range].iter().fold((0.0, 0.0), sum)
    };
    let estimate = ratio((0..batches).map(batch))?;
    Some(Estimate {
        half_width: estimate.half_width.filter(|_| batches >= FEWEST_BATCHES),
        ..estimate
    })
}

/// The ratio estimator for pairs that need not weigh the same (Cochran, "Sampling
/// Techniques", 2.11): with equal wholes it is the plain mean with the usual standard error.
fn ratio(pairs: impl Iterator<Item = (f64, f64)> + Clone) -> Option<Estimate> {
    let (count, parts, wholes) = pairs
        .clone()
        .fold((0.0, 0.0, 0.0), |(count, parts, wholes), (part, whole)| {
            (count + 1.0, parts + part, wholes + whole)
        });
    if wholes <= 0.0 {
        return None;
    }
    let mean = parts / wholes;
    let squares: f64 = pairs
        .map(|(part, whole)| (part - mean * whole).powi(2))
        .sum();
    let freedom = count - 1.0;
    let half_width = (freedom >= 1.0).then(|| {
        let error = (squares / freedom / count).sqrt() / (wholes / count);
        error * t_975(freedom as usize)
    });
    Some(Estimate { mean, half_width })
}

/// The two-sided 95 % quantile of Student's t.
fn t_975(freedom: usize) -> f64 {
    let index = freedom.saturating_sub(1);
    T_975.get(index).copied().unwrap_or(Z_975)
}

/// The median: the middle value, or the mean of the two in the middle; `None` without any.
pub fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(values[middle - 1], upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, expected: f64) {
        assert!(
            (value - expected).abs() < 5e-4,
            "{value} instead of {expected}"
        );
    }

    #[test]
    fn the_interval_of_known_values() {
        // Mean 5, s = sqrt(32 / 7) = 2.13809, s / sqrt(8) = 0.75593, t(7) = 2.365.
        let known = mean(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).expect("a mean");
        near(known.mean, 5.0);
        near(known.half_width.expect("an interval"), 1.7878);
        // t(1) = 12.706, s = sqrt(2) / 2, s / sqrt(2) = 0.5.
        let two = mean(&[1.0, 2.0]).expect("a mean");
        near(two.half_width.expect("an interval"), 6.353);
    }

    #[test]
    fn too_little_has_no_interval() {
        assert_eq!(mean(&[]), None);
        assert_eq!(share(&[]), None);
        assert_eq!(share(&[(0.0, 0.0)]), None);
        let one = mean(&[3.0]).expect("a mean");
        assert_eq!((one.mean, one.half_width), (3.0, None));
        let four = share(&[(1.0, 2.0); 4]).expect("a share");
        assert_eq!((four.mean, four.half_width), (0.5, None));
        assert!(share(&[(1.0, 2.0); 5]).is_some_and(|five| five.half_width == Some(0.0)));
    }

    #[test]
    fn a_share_weighs_its_slices_by_their_wholes() {
        let slices = [
            (1.0, 10.0),
            (9.0, 30.0),
            (1.0, 10.0),
            (9.0, 30.0),
            (2.0, 20.0),
        ];
        near(share(&slices).expect("a share").mean, 0.22);
    }

    #[test]
    fn slow_waves_widen_the_interval() {
        // 400 slices that are 0 for half of the time and 1 for the other: by slices their mean
        // would seem sure to ±0.05; by 20 batches it is ±0.24.
        let wave = |index: usize| (f64::from(u8::from(index / 200 == 1)), 1.0);
        let slices: Vec<_> = (0..400).map(wave).collect();
        let estimate = share(&slices).expect("a share");
        near(estimate.mean, 0.5);
        near(estimate.half_width.expect("an interval"), 0.2401);
    }

    #[test]
    fn the_interval_holds_what_it_promises() {
        // A linear congruential generator (Knuth's MMIX) gives uniform values with mean 0.5:
        // about 95 of 100 intervals have to hold it.
        let mut state = 1_u64;
        let mut uniform = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let holds = (0..1000).filter(|_| {
            let slices: Vec<_> = (0..100).map(|_| (uniform(), 1.0)).collect();
            let estimate = share(&slices).expect("a share");
            (estimate.mean - 0.5).abs() <= estimate.half_width.unwrap_or(0.0)
        });
        let holds = holds.count();
        assert!((925..=975).contains(&holds), "{holds} of 1000");
    }

    #[test]
    fn medians_of_few() {
        assert_eq!(median([].into_iter()), None);
        assert_eq!(median([3.0].into_iter()), Some(3.0));
        assert_eq!(median([4.0, 1.0].into_iter()), Some(2.5));
        assert_eq!(median([9.0, 1.0, 2.0].into_iter()), Some(2.0));
    }
}
