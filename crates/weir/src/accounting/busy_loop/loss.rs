//! The CPU time that a busy loop lost, and its warnings.

use super::attribution::Attribution;
use super::gaps::OutsideGaps;
use super::slice::{Slice, signed};
use super::warning::Warning;
use crate::report::statistics;
use crate::report::statistics::Estimate;

/// The result of a busy loop.
#[derive(Debug, Clone)]
pub struct CpuLoss {
    /// The CPU of the loop.
    pub cpu: usize,
    /// The whole time.
    pub total: Slice,
    /// The same in slices, in the order of time.
    pub slices: Vec<Slice>,
    /// The loop's part of the CPU's steal time, by /proc/stat. It is in the loss of the slices, and
    /// not in [`CpuLoss::lost_ns`]. `None` if /proc/stat could not be read.
    pub steal_ns: Option<u64>,
    /// The precision of the figures.
    pub calibration: Calibration,
    /// Gaps without any work of the kernel.
    pub outside_gaps: OutsideGaps,
}

/// The precision of a measurement.
#[derive(Debug, Clone)]
pub struct Calibration {
    /// The mean undisturbed time of a unit.
    pub unit_ns: f64,
    /// Its 5th percentile over the slices.
    pub unit_low_ns: f64,
    /// Its 95th percentile over the slices.
    pub unit_high_ns: f64,
    /// Reasons to distrust the figures.
    pub warnings: Vec<Warning>,
}

/// The warning of a share.
type WarningOf = fn(f64) -> Warning;

/// The shares above which a warning is reported.
mod limit {
    pub const FEW_UNDISTURBED: f64 = 0.02;
    pub const UNEVEN: f64 = 0.10;
    pub const DRIFT: f64 = 0.03;
    pub const STEAL: f64 = 0.005;
    pub const UNACCOUNTED: f64 = 0.02;
    pub const MIGRATED: f64 = 0.01;
}

impl CpuLoss {
    /// CPU time lost, without steal time.
    pub fn lost_ns(&self) -> i64 {
        self.total.lost_ns() - signed(self.steal_ns.unwrap_or(0))
    }

    /// The share of the time left by other tasks that was lost: the mean of the slices and its
    /// confidence interval; `None` without any such time.
    ///
    /// The loop does not lose the time of interrupts while another task has the CPU. Where they come
    /// evenly, they take the same share of that time.
    pub fn lost_share(&self) -> Option<Estimate> {
        let slices = self.slices.iter();
        let pairs: Vec<_> = slices
            .map(|slice| (slice.lost_ns() as f64, slice.left_ns() as f64))
            .collect();
        let estimate = statistics::share(&pairs)?;
        let steal = self.steal_ns.unwrap_or(0) as f64 / (self.total.left_ns() as f64).max(1.0);
        Some(Estimate {
            mean: estimate.mean - steal,
            ..estimate
        })
    }

    /// A consumer's share of the CPU, while tracepoints observed it; `None` if they never did.
    pub fn share_of(&self, ns: impl Fn(&Attribution) -> f64) -> Option<Estimate> {
        let pair = |slice: &Slice| (ns(&slice.attribution), slice.attribution.observed_ns as f64);
        statistics::share(&self.slices.iter().map(pair).collect::<Vec<_>>())
    }

    /// The loop's part of the steal time: while other tasks ran, it was theirs.
    pub(super) fn own_steal_ns(&self, steal_ns: u64) -> u64 {
        let total = &self.total;
        let waiting = total.waiting_ns as f64 / (total.wall_ns as f64).max(1.0);
        (steal_ns as f64 * (1.0 - waiting)) as u64
    }

    /// Adds the reasons to distrust the figures. `irq_time` is whether the kernel accounts
    /// interrupt time; `new_threads` are NAPI threads that started during the measurement.
    pub(super) fn warn(&mut self, irq_time: Option<bool>, new_threads: &[String]) {
        let (total, calibration) = (&self.total, &mut self.calibration);
        let share = |ns: i64| ns as f64 / (total.wall_ns as f64).max(1.0);
        let steal = share(signed(self.steal_ns.unwrap_or(0)));
        let drift = (calibration.unit_high_ns - calibration.unit_low_ns) / calibration.unit_ns;
        // Where the kernel accounts interrupt time, or may do so, it is in neither.
        let unaccounted = match irq_time {
            Some(false) => share(total.unaccounted_ns()) - steal,
            Some(true) | None => 0.0,
        };
        let few_undisturbed = share(signed(total.uncalibrated_ns));
        let uneven = share(signed(total.uneven_ns));
        let migrated = share(signed(total.napi_migrated_ns));
        let shares: [(f64, f64, WarningOf); 6] = [
            (
                few_undisturbed,
                limit::FEW_UNDISTURBED,
                Warning::FewUndisturbed,
            ),
            (uneven, limit::UNEVEN, Warning::Uneven),
            (drift, limit::DRIFT, Warning::Drift),
            (steal, limit::STEAL, Warning::Steal),
            (unaccounted, limit::UNACCOUNTED, Warning::Unaccounted),
            (migrated, limit::MIGRATED, Warning::Migrated),
        ];
        let warnings = &mut calibration.warnings;
        for (share, limit, warning) in shares {
            warnings.extend((share > limit).then(|| warning(share)));
        }
        warnings.extend(new_threads.iter().map(|name| {
            Warning::Unseen(format!(
                "the thread {name} started during the measurement and counts as another task"
            ))
        }));
        if self.steal_ns.is_none() {
            let reason = "/proc/stat shows no steal time: the hypervisor's part counts as lost";
            warnings.push(Warning::Unseen(reason.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss_of(total: &Slice) -> CpuLoss {
        CpuLoss {
            cpu: 0,
            total: *total,
            slices: vec![*total; 8],
            steal_ns: Some(0),
            outside_gaps: OutsideGaps::default(),
            calibration: Calibration {
                unit_ns: 1000.0,
                unit_low_ns: 990.0,
                unit_high_ns: 1010.0,
                warnings: Vec::new(),
            },
        }
    }

    #[test]
    fn every_reason_for_distrust_is_a_warning() {
        let clean = Slice {
            work_ns: 99_500,
            running_ns: 100_000,
            ..Slice::example(0, 100_000)
        };
        let clean = Slice {
            waiting_ns: 0,
            ksoftirqd_ns: 0,
            napi_threads_ns: 0,
            ..clean
        };
        let warnings = |change: &dyn Fn(&mut CpuLoss), irq_time| {
            let mut loss = loss_of(&clean);
            change(&mut loss);
            loss.warn(irq_time, &[]);
            loss.calibration.warnings
        };
        assert_eq!(warnings(&|_| (), Some(false)), []);
        let few = warnings(&|it| it.total.uncalibrated_ns = 50_000, None);
        assert_eq!(few, [Warning::FewUndisturbed(0.5)]);
        let uneven = warnings(&|it| it.total.uneven_ns = 50_000, None);
        assert_eq!(uneven, [Warning::Uneven(0.5)]);
        let drift = warnings(&|it| it.calibration.unit_high_ns = 1090.0, None);
        assert_eq!(drift, [Warning::Drift(0.1)]);
        let steal = warnings(&|it| it.steal_ns = Some(25_000), None);
        assert_eq!(steal, [Warning::Steal(0.25)]);
        let migrated = warnings(&|it| it.total.napi_migrated_ns = 50_000, None);
        assert_eq!(migrated, [Warning::Migrated(0.5)]);
        let quota = |it: &mut CpuLoss| it.total.running_ns = 50_000;
        assert_eq!(warnings(&quota, Some(false)), [Warning::Unaccounted(0.5)]);
        // It may be interrupt time.
        assert_eq!(warnings(&quota, Some(true)), []);
        let unseen = warnings(&|it| it.steal_ns = None, None);
        assert!(unseen[0].to_string().contains("hypervisor"));
    }

    #[test]
    fn steal_time_is_not_lost_to_the_network() {
        let mut loss = loss_of(&Slice::example(0, 1000));
        loss.steal_ns = Some(loss.own_steal_ns(100));
        assert_eq!(loss.steal_ns, Some(70));
        assert_eq!(loss.lost_ns(), 280);
        let share = loss.lost_share().expect("a share");
        let left = loss.total.left_ns() as f64;
        assert!((share.mean - 280.0 / left).abs() < 1e-9);
    }
}
