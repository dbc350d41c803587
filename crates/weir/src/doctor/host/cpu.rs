//! How fast CPUs run, and how their time is counted.

use anyhow::Result;

use super::setting::{fine, fine_all, found, unchecked, write};
use crate::doctor::{Check, Context, Evidence, Fix, Severity, Verdict};

const CPUFREQ: &str = "/sys/devices/system/cpu/cpufreq";
const STAT: &str = "/proc/stat";
/// So many interrupts take longer than one tick together, on any machine.
const ENOUGH_INTERRUPTS: u64 = 10_000_000;

pub const IRQ_TIME_ACCOUNTING: Check = Check {
    id: "irq-time-accounting",
    title: "time in interrupts is not measured",
    severity: Severity::Advice,
    why: "%irq and %soft of top, mpstat and /proc/stat are then guessed at each tick: hard interrupts read as 0, and their time is charged to whoever they interrupt.",
    source: "irqtime_account_irq in kernel/sched/cputime.c; init/Kconfig, IRQ_TIME_ACCOUNTING",
    more: "It reads the kernel's configuration for CONFIG_IRQ_TIME_ACCOUNTING, or, where there is \
           none to read, whether /proc/stat shows any time in hard interrupts after ten million of them.\n\n\
           Nothing is slower for it; but do not trust those columns. `weir cost` measures what \
           interrupts and softirqs take by two other ways.",
    run: irq_time,
};

pub const GOVERNOR: Check = Check {
    id: "governor",
    title: "CPUs save power",
    severity: Severity::Advice,
    why: "A CPU that clocks down between packets handles the next ones slowly, and every figure measured on it drifts.",
    source: "Documentation/admin-guide/pm/cpufreq.rst",
    more: "It reads the governor of every cpufreq policy. The fix sets each to performance. That \
           takes more power: it is meant for hosts that measure, or whose latency matters.\n\n\
           Measure it with `weir bench rtt --lab` before and after the fix.",
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

/// From what a kernel that keeps its configuration to itself shows.
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
            "no configuration of the kernel can be read, and there were too few interrupts to tell",
        ))
    } else {
        Ok(irq_time_missing(Evidence::new(STAT, &read)))
    }
}

fn irq_time_missing(read: Evidence) -> Vec<Verdict> {
    let message = "%irq and %soft cannot be trusted on this host: use `weir cost`.";
    let fix = "nothing while this kernel runs: it takes one with CONFIG_IRQ_TIME_ACCOUNTING";
    found(vec![read], message, Fix::Text(fix.into()))
}

/// Ticks in hard interrupts, and how many interrupts there were.
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
        // One reading of each kind is enough.
        if !evidence.iter().any(|it| it.value == value) {
            evidence.push(Evidence::new(&path, &value));
        }
        if value != "performance" {
            let choice = format!("{CPUFREQ}/{policy}/scaling_available_governors");
            let choice = context.read_if_there(&choice)?.unwrap_or_default();
            offered &= choice.split_whitespace().any(|it| it == "performance");
            steps.push(write(&path, &value, "performance"));
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
        Fix::Text("load the governor first: modprobe cpufreq_performance".into())
    };
    Ok(found(evidence, message, fix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_interrupts() {
        let stat = "cpu  1 2 3 4 5 6 7 0 0 0\ncpu0 1 2 3 4 5 9 7\nintr 88 1 2\n";
        assert_eq!(irq_ticks(stat), Some((6, 88)));
        assert_eq!(irq_ticks("cpu 1 2\nintr 3"), None);
        assert_eq!(irq_ticks(""), None);
    }
}
