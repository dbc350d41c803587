//! Reasons to distrust the figures of a busy loop.

use std::fmt;

/// A reason to distrust the figures of one CPU. Shares are of the wall time.
#[derive(Debug, Clone, PartialEq)]
pub enum Warning {
    /// For this share, too few units were undisturbed to calibrate by.
    FewUndisturbed(f64),
    /// For this share, the undisturbed time of a unit had more than one value.
    Uneven(f64),
    /// The undisturbed time of a unit differs by this share between slices.
    Drift(f64),
    /// The share of steal time.
    Steal(f64),
    /// For this share, the loop neither ran nor waited, and not for interrupts.
    Unaccounted(f64),
    /// The share of NAPI threads that had migrated from another CPU.
    Migrated(f64),
    /// Reading this clock source takes so many nanoseconds.
    Clock(String, u64),
    /// The CPU went offline after so many seconds.
    Offline(f64),
    /// Something that could not be observed.
    Unseen(String),
}

impl fmt::Display for Warning {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: &f64| share * 100.0;
        match self {
            Self::FewUndisturbed(share) => write!(
                out,
                "for {:.1}% of the time almost every unit of work was disturbed: the undisturbed \
                 time of a unit is that of an earlier slice",
                percent(share)
            ),
            Self::Uneven(share) => write!(
                out,
                "for {:.1}% of the time the duration of a unit of work varied: the CPU's frequency \
                 changed often, or the sibling thread of its core was busy",
                percent(share)
            ),
            Self::Drift(share) => write!(
                out,
                "the duration of a unit of work drifted by {:.1}%: the CPU's frequency changed; \
                 each slice is calibrated anew",
                percent(share)
            ),
            Self::Steal(share) => write!(
                out,
                "{:.1}% steal time by /proc/stat, in ticks of 10 ms",
                percent(share)
            ),
            Self::Unaccounted(share) => write!(
                out,
                "for {:.1}% of the time the busy loop neither ran nor waited: a CPU quota (cpu.max \
                 of its cgroup) throttles it; lift the quota",
                percent(share)
            ),
            Self::Migrated(share) => write!(
                out,
                "NAPI threads that had migrated from another CPU ran for {:.1}% of the time, a \
                 part of it possibly there",
                percent(share)
            ),
            Self::Clock(source, ns) => write!(
                out,
                "the clock source is {source}, and reading it takes {ns} ns: short gaps cannot be \
                 measured; a kernel that trusts the TSC reads it in 30 ns \
                 (/sys/devices/system/clocksource/clocksource0)"
            ),
            Self::Offline(seconds) => write!(
                out,
                "the CPU went offline after {seconds:.1} s; the figures of the busy loop end there"
            ),
            Self::Unseen(reason) => out.write_str(reason),
        }
    }
}
