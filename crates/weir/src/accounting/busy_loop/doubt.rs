//! Reasons to distrust the figures of a load.

use std::fmt;

use serde::Serialize;

use super::{Progress, signed};

/// How sure a measurement is.
#[derive(Debug, Clone, Serialize)]
pub struct Calibration {
    /// The undisturbed time of a unit, over all.
    pub unit_ns: f64,
    /// The same in the slice where it was shortest, but for a twentieth of them.
    pub unit_low_ns: f64,
    /// And longest.
    pub unit_high_ns: f64,
    /// Reasons to distrust the figures.
    pub doubts: Vec<Doubt>,
}

/// Something that speaks against the figures of one CPU. Shares are of the wall time.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Doubt {
    /// In this share of the time, too few units were undisturbed to tell how long one takes.
    FewUndisturbed(f64),
    /// In this share of the time, the undisturbed unit took more than one time.
    Uneven(f64),
    /// The time of a unit differs between slices by this share.
    Drift(f64),
    /// The hypervisor took this share.
    Steal(f64),
    /// In this share of the time, the load neither ran nor waited, and not for interrupts.
    Unaccounted(f64),
    /// Threads of NAPI instances that had come from another CPU ran for this share.
    Moved(f64),
    /// Reading this clock source takes so many nanoseconds.
    Clock(String, u64),
    /// The CPU went offline after so many seconds.
    Offline(f64),
    /// Something that could not be seen.
    Unseen(String),
}

impl fmt::Display for Doubt {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: &f64| share * 100.0;
        match self {
            Self::FewUndisturbed(share) => write!(
                out,
                "for {:.1}% of the time almost every unit of work was disturbed, and how long \
                 one takes was taken from before",
                percent(share)
            ),
            Self::Uneven(share) => write!(
                out,
                "for {:.1}% of the time a unit of work took more than one time: the frequency \
                 changed often, or the other thread of the core was busy",
                percent(share)
            ),
            Self::Drift(share) => write!(
                out,
                "the time of a unit of work drifted by {:.1}%: the frequency changed, which is \
                 followed from slice to slice",
                percent(share)
            ),
            Self::Steal(share) => write!(
                out,
                "the hypervisor took {:.1}% of the CPU by /proc/stat, known to 10 ms",
                percent(share)
            ),
            Self::Unaccounted(share) => write!(
                out,
                "for {:.1}% of the time the load neither ran nor waited: a CPU quota (cpu.max \
                 of its cgroup) stops it; lift the quota",
                percent(share)
            ),
            Self::Moved(share) => write!(
                out,
                "threads of NAPI instances that had come from another CPU ran for {:.1}% of the \
                 time; some of it may have been there",
                percent(share)
            ),
            Self::Clock(source, ns) => write!(
                out,
                "the clock source is {source}, and reading it takes {ns} ns: short gaps cannot be \
                 told; a kernel that trusts the TSC reads it in 30 ns \
                 (/sys/devices/system/clocksource/clocksource0)"
            ),
            Self::Offline(seconds) => write!(
                out,
                "the CPU went offline after {seconds:.1} s; the figures of the load end there"
            ),
            Self::Unseen(reason) => out.write_str(reason),
        }
    }
}

/// Shares from which on a doubt is reported.
mod limit {
    pub const UNSURE: f64 = 0.02;
    pub const UNEVEN: f64 = 0.10;
    pub const DRIFT: f64 = 0.03;
    pub const STEAL: f64 = 0.005;
    pub const UNACCOUNTED: f64 = 0.02;
    pub const MOVED: f64 = 0.01;
}

impl Progress {
    /// The load's part of the hypervisor's time: while others ran, it was theirs.
    pub(super) fn own_steal_ns(&self, steal_ns: u64) -> u64 {
        let total = &self.total;
        let waiting = total.waiting_ns as f64 / (total.wall_ns as f64).max(1.0);
        (steal_ns as f64 * (1.0 - waiting)) as u64
    }

    /// Notes the reasons to distrust the figures.
    pub(super) fn judge(&mut self, irq_time: Option<bool>, new_threads: &[String]) {
        let (total, calibration) = (&self.total, &mut self.calibration);
        let share = |ns: i64| ns as f64 / (total.wall_ns as f64).max(1.0);
        let steal = share(signed(self.steal_ns.unwrap_or(0)));
        let drift = (calibration.unit_high_ns - calibration.unit_low_ns) / calibration.unit_ns;
        // Where interrupt time is accounted, or may be, it is in neither.
        let unaccounted = match irq_time {
            Some(false) => share(total.unaccounted_ns()) - steal,
            Some(true) | None => 0.0,
        };
        let mut doubt = |share: f64, limit: f64, doubt: fn(f64) -> Doubt| {
            if share > limit {
                calibration.doubts.push(doubt(share));
            }
        };
        doubt(
            share(signed(total.unsure_ns)),
            limit::UNSURE,
            Doubt::FewUndisturbed,
        );
        doubt(share(signed(total.uneven_ns)), limit::UNEVEN, Doubt::Uneven);
        doubt(drift, limit::DRIFT, Doubt::Drift);
        doubt(steal, limit::STEAL, Doubt::Steal);
        doubt(unaccounted, limit::UNACCOUNTED, Doubt::Unaccounted);
        doubt(
            share(signed(total.napi_moved_ns)),
            limit::MOVED,
            Doubt::Moved,
        );
        let unseen = &mut calibration.doubts;
        unseen.extend(new_threads.iter().map(|name| {
            Doubt::Unseen(format!(
                "the thread {name} started meanwhile and counts as another task"
            ))
        }));
        if self.steal_ns.is_none() {
            let reason = "/proc/stat does not tell the time of the hypervisor: it counts as stolen";
            unseen.push(Doubt::Unseen(reason.into()));
        }
    }
}
