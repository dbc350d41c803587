//! The kernel's clocks.

use std::fs;

use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC`, the clock of `bpf_ktime_get_ns`, in nanoseconds.
#[inline(always)]
pub fn now_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// `CLOCK_BOOTTIME`, which goes on while the machine sleeps, in nanoseconds.
pub fn boottime_ns() -> u64 {
    nanoseconds(ClockId::Boottime)
}

/// `CLOCK_REALTIME`, in nanoseconds.
pub fn realtime_ns() -> u64 {
    nanoseconds(ClockId::Realtime)
}

/// CPU time of the calling thread, in nanoseconds; without waits, such as those for RCU where a load
/// begins and ends.
pub fn thread_cpu_ns() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

#[inline(always)]
fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The file with the name of the clock source in use.
pub const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// The clock source in use.
pub fn clock_source() -> String {
    let name = fs::read_to_string(CLOCK_SOURCE).unwrap_or_default();
    match name.trim() {
        "" => "unknown".into(),
        name => name.into(),
    }
}
