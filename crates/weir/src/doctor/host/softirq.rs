//! Softirqs: drops, the NAPI budget and ksoftirqd.

use anyhow::{Context as _, Result, ensure};
use hostnet::softnet;
use hostnet::softnet::Softnet;

use super::setting::{NOT_INITIAL, fine, fine_all, found, unchecked};
use crate::doctor::check::Check;
use crate::doctor::context::Context;
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::severity::Severity;
use crate::doctor::step::Step;
use crate::doctor::verdict::Verdict;

const SOFTNET: &str = "/proc/net/softnet_stat";
const BACKLOG: &str = "/proc/sys/net/core/netdev_max_backlog";
const BUDGET: &str = "/proc/sys/net/core/netdev_budget";
const BUDGET_USECS: &str = "/proc/sys/net/core/netdev_budget_usecs";
const ONLINE: &str = "/sys/devices/system/cpu/online";
/// Fewer squeezes are normal.
const SQUEEZES_A_SECOND: f64 = 10.0;
/// The share of a CPU from which on ksoftirqd is a finding.
const KSOFTIRQD_SHARE: f64 = 0.1;
/// A longer backlog only adds latency.
const MAX_BACKLOG: u64 = 16_000;

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[SOFTNET_DROPPED, SOFTNET_SQUEEZED, KSOFTIRQD_TIME];

const SOFTNET_DROPPED: Check = Check {
    id: "softnet-dropped",
    title: "packets are dropped at a CPU's backlog (softnet_stat)",
    severity: Severity::Critical,
    why: "A packet that meets a full backlog is lost, and no device counts it.",
    source: "enqueue_to_backlog in net/core/dev.c",
    more: "Reads the second column of /proc/net/softnet_stat twice, some seconds apart: it is a \
           finding only if packets are dropped meanwhile. A backlog takes packets that RPS spreads, \
           that a veth without NAPI receives, or that the host sends to itself.\n\n\
           The fix makes the backlog four times as long, up to 16000, which helps with bursts. \
           Against a constant overload only less work per packet helps: see `weir cost`.",
    counters: &[SOFTNET],
    run: dropped,
};

const SOFTNET_SQUEEZED: Check = Check {
    id: "softnet-squeezed",
    title: "softirqs run out of budget (time_squeeze)",
    severity: Severity::Warning,
    why: "The packets left over wait, at worst until the scheduler runs ksoftirqd.",
    source: "net_rx_action in net/core/dev.c; Documentation/admin-guide/sysctl/net.rst, netdev_budget",
    more: "Reads the third column of /proc/net/softnet_stat (time_squeeze) twice, some seconds apart: it \
           is a finding from 10 times a second on a CPU.\n\n\
           The fix doubles net.core.netdev_budget and netdev_budget_usecs once. If they are already \
           doubled, the CPU is overloaded: see `weir cost`.",
    counters: &[SOFTNET],
    run: squeezed,
};

const KSOFTIRQD_TIME: Check = Check {
    id: "ksoftirqd-time",
    title: "softirq work spills into ksoftirqd",
    severity: Severity::Warning,
    why: "The CPU cannot handle its softirqs at once: packets wait for the scheduler, and ksoftirqd competes with programs.",
    source: "kernel/softirq.c, wakeup_softirqd; David Ahern, The CPU cost of networking on a host",
    more: "Reads the CPU time in the schedstat of each ksoftirqd twice, some seconds apart: it is \
           a finding from 10% of a CPU.\n\n\
           No setting fixes it. `weir cost` attributes the time to devices and tasks; spread the \
           device's queues (irq-affinity), or reduce the work per packet with XDP.",
    counters: &[],
    run: ksoftirqd,
};

/// One counter of one CPU at both moments.
struct Grown {
    cpu: usize,
    before: u32,
    after: u32,
}

impl Grown {
    fn by(&self) -> u64 {
        self.after.wrapping_sub(self.before).into()
    }

    fn evidence(&self, column: &str, seconds: f64) -> Evidence {
        Evidence::new(
            format!("{SOFTNET}, {column} of CPU {}", self.cpu),
            format!("{} -> {} in {seconds:.1} s", self.before, self.after),
        )
    }
}

/// One counter of each CPU at both moments.
fn grown(context: &Context, counter: fn(&Softnet) -> u32) -> Result<(Vec<Grown>, f64)> {
    let online = context.read(ONLINE)?.parse()?;
    let twice = context.twice(SOFTNET)?;
    let [before, after] = [twice.before, twice.after].map(|text| softnet::parse(text, &online));
    // CPUs that went online or offline between are left out.
    let both = after.iter().filter_map(|(&cpu, after)| {
        let (before, after) = (counter(before.get(&cpu)?), counter(after));
        Some(Grown { cpu, before, after })
    });
    let both: Vec<_> = both.collect();
    ensure!(!both.is_empty(), "{SOFTNET} has no such columns");
    Ok((both, twice.elapsed.as_secs_f64()))
}

fn dropped(context: &Context) -> Result<Vec<Verdict>> {
    let (all, seconds) = grown(context, |cpu| cpu.dropped)?;
    let losing: Vec<_> = all.iter().filter(|it| it.by() > 0).collect();
    if losing.is_empty() {
        let value = format!("no packet dropped in {seconds:.1} s");
        return Ok(fine(SOFTNET, &value));
    }
    let lost: u64 = losing.iter().map(|it| it.by()).sum();
    let mut evidence: Vec<_> = losing
        .iter()
        .map(|it| it.evidence("dropped", seconds))
        .collect();
    let backlog = context.read_if_there(BACKLOG)?;
    if let Some(backlog) = &backlog {
        evidence.push(Evidence::new(BACKLOG, backlog));
    }
    let message = format!("{lost} packets were lost in {seconds:.1} s.");
    Ok(found(evidence, message, longer_backlog(backlog.as_deref())))
}

fn longer_backlog(backlog: Option<&str>) -> Fix {
    let Some(backlog) = backlog else {
        return Fix::manual(format!("raise net.core.netdev_max_backlog: {NOT_INITIAL}"));
    };
    match backlog.parse::<u64>() {
        Ok(length) if length < MAX_BACKLOG => {
            let new = (length.max(250) * 4).min(MAX_BACKLOG).to_string();
            Fix::write(BACKLOG, backlog, new)
        }
        _ => Fix::manual(
            "the backlog is long enough, and the CPU overloaded: see `weir cost` for the cost per packet",
        ),
    }
}

fn squeezed(context: &Context) -> Result<Vec<Verdict>> {
    let (all, seconds) = grown(context, |cpu| cpu.time_squeeze)?;
    let too_often = |it: &&Grown| it.by() as f64 / seconds >= SQUEEZES_A_SECOND;
    let squeezed: Vec<_> = all.iter().filter(too_often).collect();
    if squeezed.is_empty() {
        return Ok(fine(SOFTNET, "fewer than 10 squeezes a second on each CPU"));
    }
    let mut evidence: Vec<_> = squeezed
        .iter()
        .map(|it| it.evidence("squeezed", seconds))
        .collect();
    let budgets = [BUDGET, BUDGET_USECS].map(|path| (path, context.read_if_there(path)));
    let mut steps = Vec::new();
    for (path, value) in budgets {
        let Some(value) = value? else { continue };
        evidence.push(Evidence::new(path, &value));
        if let Some(new) = doubled(path, &value) {
            steps.push(Step::write(path, &value, new));
        }
    }
    let fix = if !context.is_initial_netns() {
        Fix::manual(format!("raise net.core.netdev_budget: {NOT_INITIAL}"))
    } else if steps.is_empty() {
        Fix::manual("the budget is large enough, and the CPU overloaded: see `weir cost`")
    } else {
        Fix::Steps(steps)
    };
    let message = "More packets arrive than the budget of a softirq allows.";
    Ok(found(evidence, message, fix))
}

/// Twice the value, unless it is doubled already.
fn doubled(path: &str, value: &str) -> Option<String> {
    let most = if path == BUDGET { 600 } else { 16_000 };
    let value: u64 = value.parse().ok()?;
    (value < most).then(|| (value * 2).min(most).to_string())
}

fn ksoftirqd(context: &Context) -> Result<Vec<Verdict>> {
    if context.ksoftirqd().is_empty() {
        return Ok(unchecked(
            "ksoftirqd is in another PID namespace: run weir outside of the container",
        ));
    }
    let mut all = Vec::new();
    let mut busy = Vec::new();
    for thread in context.ksoftirqd() {
        let twice = context.twice(&thread.schedstat)?;
        let ran = on_cpu(twice.after)?.saturating_sub(on_cpu(twice.before)?);
        let share = ran as f64 / twice.elapsed.as_nanos() as f64;
        let percent = format!("{:.1}% of the CPU", share * 100.0);
        let name = format!("{}, ksoftirqd/{}", thread.schedstat, thread.cpu);
        let evidence = Evidence::new(name, percent);
        if share >= KSOFTIRQD_SHARE {
            busy.push(evidence.clone());
        }
        all.push(evidence);
    }
    if busy.is_empty() {
        return Ok(fine_all(all));
    }
    let fix = "find the device with `weir cost`; spread its queues over CPUs, or handle its packets in XDP";
    let message = format!("ksoftirqd takes more than 10% of {} CPUs.", busy.len());
    Ok(found(busy, message, Fix::manual(fix)))
}

/// The CPU time in nanoseconds, the first number of a schedstat.
fn on_cpu(schedstat: &str) -> Result<u64> {
    let first = schedstat.split_whitespace().next();
    first
        .and_then(|word| word.parse().ok())
        .context("schedstat has no CPU time: the kernel may lack CONFIG_SCHED_INFO")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_may_wrap() {
        let grown = Grown {
            cpu: 0,
            before: 0xffff_ffff,
            after: 1,
        };
        assert_eq!(grown.by(), 2);
    }

    #[test]
    fn a_raised_setting_is_not_raised_again() {
        assert_eq!(doubled(BUDGET, "300").as_deref(), Some("600"));
        assert_eq!(doubled(BUDGET, "600"), None);
        assert_eq!(doubled(BUDGET_USECS, "8000").as_deref(), Some("16000"));
        assert_eq!(doubled(BUDGET_USECS, "x"), None);
        let steps = |backlog| matches!(longer_backlog(backlog), Fix::Steps(_));
        assert!(steps(Some("1000")) && steps(Some("0")));
        assert!(!steps(Some("16000")) && !steps(Some("x")) && !steps(None));
    }

    #[test]
    fn cpu_time_is_the_first_number() {
        assert_eq!(on_cpu("12 34 5").ok(), Some(12));
        assert!(on_cpu("").is_err());
    }
}
