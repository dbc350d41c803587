//! How the kernel tells the time.

use std::time::Instant;

use anyhow::Result;
use rustix::time::{ClockId, clock_gettime};

use super::setting::{fine_all, found, write};
use crate::accounting::clock::CLOCK_SOURCE;
use crate::doctor::{Check, Context, Evidence, Fix, Severity, Verdict};

const AVAILABLE: &str = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
/// Those that a program cannot read by itself, or that are behind a slow bus.
const SLOW: [&str; 6] = [
    "hpet",
    "acpi_pm",
    "xen",
    "jiffies",
    "refined-jiffies",
    "hyperv_clocksource_msr",
];
/// Readings are timed in so many runs of so many each.
const RUNS: usize = 10;
const READS: u32 = 100;

pub const CLOCKSOURCE: Check = Check {
    id: "clocksource",
    title: "reading the time is slow",
    severity: Severity::Warning,
    why: "Every time stamp of a packet, every time-out and every measurement reads the clock; a slow one takes a microsecond each time instead of some 30 ns.",
    source: "Brendan Gregg, The Speed of Time; Documentation/timers/timekeeping.rst",
    more: "It reads the clock source in use and those to choose from, and times 10 runs of 100 \
           readings of the clock, of which the fastest counts: the others may have been interrupted. The TSC, kvm-clock and the counters of other architectures are fast; hpet, acpi_pm \
           and xen are not.\n\n\
           The fix chooses tsc where the kernel offers it. Where it does not, the kernel found it \
           unreliable: `dmesg | grep -i -e tsc -e clocksource` tells why. On a virtual machine that \
           moves between hosts of different speeds, ask who runs them first.",
    run: clocksource,
};

fn clocksource(context: &Context) -> Result<Vec<Verdict>> {
    let Some(current) = context.read_if_there(CLOCK_SOURCE)? else {
        return Ok(Vec::new());
    };
    let available = context.read(AVAILABLE)?;
    let mut evidence = vec![
        Evidence::new(CLOCK_SOURCE, &current),
        Evidence::new(AVAILABLE, &available),
    ];
    if context.is_host() {
        let cost = format!("{} ns each", ns_per_read());
        evidence.push(Evidence::new(
            "100 times clock_gettime(CLOCK_MONOTONIC)",
            cost,
        ));
    }
    if !SLOW.contains(&current.as_str()) {
        return Ok(fine_all(evidence));
    }
    let fix = if available.split_whitespace().any(|it| it == "tsc") {
        Fix::Steps(vec![write(CLOCK_SOURCE, &current, "tsc")])
    } else {
        Fix::Text(
            "the kernel offers no faster one: `dmesg | grep -i -e tsc -e clocksource` tells why"
                .into(),
        )
    };
    Ok(found(evidence, format!("The clock is {current}."), fix))
}

/// That of the fastest run: on a busy machine something else runs during the others.
fn ns_per_read() -> u128 {
    let run = || {
        let start = Instant::now();
        for _ in 0..READS {
            std::hint::black_box(clock_gettime(ClockId::Monotonic));
        }
        start.elapsed().as_nanos()
    };
    let fastest = std::iter::repeat_with(run).take(RUNS).min();
    fastest.unwrap_or_default() / u128::from(READS)
}
