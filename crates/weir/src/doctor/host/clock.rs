//! The clock source.

use anyhow::Result;

use super::setting::{fine_all, found};
use crate::doctor::check::Check;
use crate::doctor::context::Context;
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::severity::Severity;
use crate::doctor::verdict::Verdict;
use crate::process::clock::CLOCK_SOURCE;

const AVAILABLE: &str = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
/// Clock sources without a vDSO read, or behind a slow bus.
const SLOW: [&str; 6] = [
    "hpet",
    "acpi_pm",
    "xen",
    "jiffies",
    "refined-jiffies",
    "hyperv_clocksource_msr",
];

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[CLOCKSOURCE];

const CLOCKSOURCE: Check = Check {
    id: "clocksource",
    title: "the clock source is slow",
    severity: Severity::Warning,
    why: "Packet timestamps, timeouts and measurements read the clock: about 1 us with a slow source, 30 ns with the TSC.",
    source: "Brendan Gregg, The Speed of Time; Documentation/timers/timekeeping.rst",
    more: "Reads the current and the available clock sources, and times 10 runs of 100 reads of the \
           clock; the fastest run counts. The TSC, kvm-clock and the counters of other architectures \
           are fast; hpet, acpi_pm and xen are slow.\n\n\
           The fix selects tsc if it is available. If not, the kernel considers it unstable: see \
           `dmesg | grep -i -e tsc -e clocksource`. On a virtual machine that migrates between hosts \
           of different speeds, ask the operator first.",
    counters: &[],
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
    evidence.extend(context.clock_read_ns().map(|ns| {
        let source = "100 times clock_gettime(CLOCK_MONOTONIC)";
        Evidence::new(source, format!("{ns} ns each"))
    }));
    if !SLOW.contains(&current.as_str()) {
        return Ok(fine_all(evidence));
    }
    let fix = if available.split_whitespace().any(|it| it == "tsc") {
        Fix::write(CLOCK_SOURCE, &current, "tsc")
    } else {
        Fix::manual(
            "the kernel offers no faster one: see `dmesg | grep -i -e tsc -e clocksource` for the cause",
        )
    };
    Ok(found(
        evidence,
        format!("The clock source is {current}."),
        fix,
    ))
}
