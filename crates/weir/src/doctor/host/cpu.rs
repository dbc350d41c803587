//! CPU frequency and the accounting of CPU time.

use anyhow::Result;

use super::setting::{fine, fine_all, found, unchecked};
use crate::doctor::check::Check;
use crate::doctor::context::Context;
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::severity::Severity;
use crate::doctor::step::Step;
use crate::doctor::verdict::Verdict;

const CPUFREQ: &str = "/sys/devices/system/cpu/cpufreq";
const STAT: &str = "/proc/stat";
/// On any machine, so many interrupts take longer than one tick in total.
const ENOUGH_INTERRUPTS: u64 = 10_000_000;

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[IRQ_TIME_ACCOUNTING, GOVERNOR];

const IRQ_TIME_ACCOUNTING: Check = Check {
    id: "irq-time-accounting",
    title: "IRQ time accounting is off",
    severity: Severity::Advice,
    why: "%irq and %soft of top, mpstat and /proc/stat are then sampled at each tick: hard interrupts read as 0, and their time is charged to the interrupted task.",
    source: "irqtime_account_irq in kernel/sched/cputime.c; init/Kconfig, IRQ_TIME_ACCOUNTING",
    more: "Reads CONFIG_IRQ_TIME_ACCOUNTING from the kernel's configuration. If that is not readable, \
           it is a finding if /proc/stat shows no time in hard interrupts after ten million of them.\n\n\
           Nothing is slower for it, but these columns are wrong. `weir cost` measures interrupts \
           and softirqs by two other methods.",
    counters: &[],
    run: irq_time,
};

const GOVERNOR: Check = Check {
    id: "governor",
    title: "the cpufreq governor is not performance",
    severity: Severity::Advice,
    why: "A CPU that clocks down between packets adds latency to the next ones, and measurements on it drift.",
    source: "Documentation/admin-guide/pm/cpufreq.rst",
    more: "Reads the governor of every cpufreq policy. The fix sets each to performance, which \
           raises power consumption: it is for hosts that measure, or need low latency.\n\n\
           Measure the effect with `weir bench rtt` before and after the fix.",
    counters: &[],
    run: governor,
};

fn irq_time(context: &Context) -> Result<Vec<Verdict>> {
    const OPTION: &str = "CONFIG_IRQ_TIME_ACCOUNTING";
    let Ok(config) = context.kernel_config() else {
        return irq_time_shown(context);
    };
    if config.has(OPTION) {
        return Ok(fine(config.source(), "CONFIG_IRQ_TIME_ACCOUNTING=y"));
    }
    let read = Evidence::new(config.source(), "CONFIG_IRQ_TIME_ACCOUNTING is not set");
    Ok(irq_time_missing(read))
}

/// For a kernel whose configuration is not readable.
fn irq_time_shown(context: &Context) -> Result<Vec<Verdict>> {
    let stat = context.read(STAT)?;
    let Some((ticks, interrupts)) = irq_ticks(&stat) else {
        return Ok(unchecked("/proc/stat has no such columns"));
    };
    let read = format!("{ticks} ticks in {interrupts} hard interrupts");
    if ticks > 0 {
        Ok(fine(STAT, &read))
    } else if interrupts < ENOUGH_INTERRUPTS {
        Ok(unchecked(
            "the kernel's configuration is not readable, and there were fewer than ten million interrupts",
        ))
    } else {
        Ok(irq_time_missing(Evidence::new(STAT, &read)))
    }
}

fn irq_time_missing(read: Evidence) -> Vec<Verdict> {
    let message = "%irq and %soft are unreliable on this host: use `weir cost`.";
    let fix = "use a kernel with CONFIG_IRQ_TIME_ACCOUNTING";
    found(vec![read], message, Fix::manual(fix))
}

/// Ticks in hard interrupts, and the number of interrupts.
fn irq_ticks(stat: &str) -> Option<(u64, u64)> {
    let column = |name: &str, index: usize| {
        let mut lines = stat.lines().map(str::split_whitespace);
        let mut line = lines.find(|words| words.clone().next() == Some(name))?;
        line.nth(index)?.parse().ok()
    };
    Some((column("cpu", 6)?, column("intr", 1)?))
}

fn governor(context: &Context) -> Result<Vec<Verdict>> {
    let mut evidence: Vec<Evidence> = Vec::new();
    let mut steps = Vec::new();
    let mut offered = true;
    for policy in context.list(CPUFREQ)? {
        let path = format!("{CPUFREQ}/{policy}/scaling_governor");
        let Some(value) = context.read_if_there(&path)? else {
            continue;
        };
        // One policy of each governor is enough evidence.
        if !evidence.iter().any(|it| it.value == value) {
            evidence.push(Evidence::new(&path, &value));
        }
        if value != "performance" {
            let choice = format!("{CPUFREQ}/{policy}/scaling_available_governors");
            let choice = context.read_if_there(&choice)?.unwrap_or_default();
            offered &= choice.split_whitespace().any(|it| it == "performance");
            steps.push(Step::write(&path, &value, "performance"));
        }
    }
    if evidence.is_empty() {
        return Ok(Vec::new());
    }
    if steps.is_empty() {
        return Ok(fine_all(evidence));
    }
    let message = format!("{} cpufreq policies may clock down.", steps.len());
    let fix = if offered {
        Fix::Steps(steps)
    } else {
        Fix::manual("load the governor first: modprobe cpufreq_performance")
    };
    Ok(found(evidence, message, fix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_in_interrupts_are_the_sixth_column() {
        let stat = "cpu  1 2 3 4 5 6 7 0 0 0\ncpu0 1 2 3 4 5 9 7\nintr 88 1 2\n";
        assert_eq!(irq_ticks(stat), Some((6, 88)));
        assert_eq!(irq_ticks("cpu 1 2\nintr 3"), None);
        assert_eq!(irq_ticks(""), None);
    }
}
