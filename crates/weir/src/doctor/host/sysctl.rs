//! Settings in /proc/sys/net/core.

use anyhow::Result;

use super::setting::{Wrong, absent, fine, found, judge};
use crate::doctor::check::Check;
use crate::doctor::context::Context;
use crate::doctor::context::device::Device;
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::severity::Severity;
use crate::doctor::verdict::Verdict;

const BUDGET: &str = "/proc/sys/net/core/netdev_budget";
const BUDGET_USECS: &str = "/proc/sys/net/core/netdev_budget_usecs";
const BACKLOG: &str = "/proc/sys/net/core/netdev_max_backlog";
const BUSY: [&str; 2] = [
    "/proc/sys/net/core/busy_poll",
    "/proc/sys/net/core/busy_read",
];
const DEFAULT_QDISC_FILE: &str = "/proc/sys/net/core/default_qdisc";
const FLOWS: &str = "/proc/sys/net/core/rps_sock_flow_entries";
/// Enough for the connections of most hosts (Documentation/networking/scaling.rst).
const ENOUGH_FLOWS: &str = "32768";

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[
    NAPI_BUDGET,
    NETDEV_BACKLOG,
    BUSY_POLL,
    DEFAULT_QDISC,
    RPS_FLOW_TABLE,
];

const NAPI_BUDGET: Check = Check {
    id: "napi-budget",
    title: "netdev_budget is below the default",
    severity: Severity::Warning,
    why: "A small budget ends each softirq early, and the remaining packets wait.",
    source: "Documentation/admin-guide/sysctl/net.rst, netdev_budget; net/core/hotdata.c",
    more: "Reads net.core.netdev_budget, in packets, and netdev_budget_usecs. The defaults are 300 \
           packets, and two ticks or 2000 us; less is a finding. See also softnet-squeezed.",
    counters: &[],
    run: napi_budget,
};

const NETDEV_BACKLOG: Check = Check {
    id: "netdev-backlog",
    title: "netdev_max_backlog is below the default",
    severity: Severity::Warning,
    why: "It limits a burst that RPS spreads, or that passes a veth without NAPI: the rest is dropped.",
    source: "enqueue_to_backlog in net/core/dev.c; Documentation/admin-guide/sysctl/net.rst, netdev_max_backlog",
    more: "Reads net.core.netdev_max_backlog. The default is 1000 packets; less is a finding. See \
           also softnet-dropped.",
    counters: &[],
    run: backlog,
};

const BUSY_POLL: Check = Check {
    id: "busy-poll",
    title: "busy polling is on for every socket",
    severity: Severity::Advice,
    why: "Each poll, select or read without data then spins on its CPU before it sleeps.",
    source: "Documentation/admin-guide/sysctl/net.rst, busy_poll and busy_read; sk_busy_loop in net/core/dev.c",
    more: "Reads net.core.busy_poll and busy_read, in microseconds, which apply to every socket of \
           the host. A program can set SO_BUSY_POLL for its own sockets; for AF_XDP see \
           SO_PREFER_BUSY_POLL in Documentation/networking/napi.rst.\n\n\
           Measure the effect with `weir cost` before and after the fix.",
    counters: &[],
    run: busy_poll,
};

const DEFAULT_QDISC: Check = Check {
    id: "default-qdisc",
    title: "the default qdisc of taps takes a lock",
    severity: Severity::Warning,
    why: "If RSS or RPS spreads the packets for one tap over CPUs, these spin on the lock of its qdisc; a packet storm to one VM then loads every CPU of the host.",
    source: "David Ahern, RSS/RPS + locking qdisc; __dev_xmit_skb in net/core/dev.c",
    more: "Reads net.core.default_qdisc, which new taps get. Without a tap it is no finding: veths \
           and bridges have no queue by default. fq_codel, which systemd sets, fq, sfq, cake and pfifo \
           take a lock; pfifo_fast, the kernel's default, is lockless since Linux 4.16, and noqueue \
           has no queue.\n\n\
           The fix affects new devices only: for existing ones see rps-lock-qdisc. Measure the \
           effect with `weir cost` under a load of many flows.",
    counters: &[],
    run: default_qdisc,
};

const RPS_FLOW_TABLE: Check = Check {
    id: "rps-flow-table",
    title: "RFS is half configured",
    severity: Severity::Advice,
    why: "Queues have a flow table, but the global one is empty, so no packet is steered to the CPU of its reader.",
    source: "Documentation/networking/scaling.rst, RFS Configuration",
    more: "Reads rps_flow_cnt of each receive queue, and net.core.rps_sock_flow_entries; RFS needs \
           both.",
    counters: &[],
    run: rps_flow_table,
};

fn at_least(least: u64) -> impl Fn(&str) -> Option<Wrong> {
    move |value| {
        let value: u64 = value.parse().ok()?;
        (value < least).then(|| Wrong {
            message: "It is below the kernel's default.".into(),
            new: least.to_string(),
        })
    }
}

fn napi_budget(context: &Context) -> Result<Vec<Verdict>> {
    judge(context, &[BUDGET, BUDGET_USECS], |path, value| {
        at_least(if path == BUDGET { 300 } else { 2000 })(value)
    })
}

fn backlog(context: &Context) -> Result<Vec<Verdict>> {
    judge(context, &[BACKLOG], |_, value| at_least(1000)(value))
}

fn busy_poll(context: &Context) -> Result<Vec<Verdict>> {
    judge(context, &BUSY, |_, value| {
        (value != "0").then(|| Wrong {
            message: "Every waiting socket spins on its CPU.".into(),
            new: "0".into(),
        })
    })
}

fn default_qdisc(context: &Context) -> Result<Vec<Verdict>> {
    let Some(qdisc) = context.read_if_there(DEFAULT_QDISC_FILE)? else {
        return Ok(absent(context, DEFAULT_QDISC_FILE));
    };
    let lockless = is_lockless_pfifo(&context.read("/proc/sys/kernel/osrelease")?);
    let has_lock = match qdisc.as_str() {
        "noqueue" => false,
        "pfifo_fast" => !lockless,
        _ => true,
    };
    let is_tap = |device: &&Device| device.kind() == Some("tun");
    let taps: Vec<_> = context.devices()?.iter().filter(is_tap).collect();
    if !has_lock || taps.is_empty() {
        return Ok(fine(DEFAULT_QDISC_FILE, &qdisc));
    }
    let names: Vec<_> = taps.iter().map(|tap| tap.name()).collect();
    let evidence = vec![
        Evidence::new(DEFAULT_QDISC_FILE, &qdisc),
        Evidence::new("netlink, devices of kind tun", names.join(" ")),
    ];
    let new = if lockless { "pfifo_fast" } else { "noqueue" };
    let fix = Fix::write(DEFAULT_QDISC_FILE, &qdisc, new);
    Ok(found(evidence, format!("New taps get {qdisc}."), fix))
}

/// Whether `pfifo_fast` is lockless (Linux 4.16).
fn is_lockless_pfifo(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or(0u32);
    (next(), next()) >= (4, 16)
}

fn rps_flow_table(context: &Context) -> Result<Vec<Verdict>> {
    let mut set = Vec::new();
    for device in context.class_net()? {
        let queues = format!("/sys/class/net/{device}/queues");
        for queue in context.list(&queues)? {
            let path = format!("{queues}/{queue}/rps_flow_cnt");
            let count = context.read_if_there(&path)?;
            if let Some(count) = count.filter(|count| count != "0") {
                set.push(Evidence::new(path, count));
            }
        }
    }
    if set.is_empty() {
        return Ok(Vec::new());
    }
    let verdicts = judge(context, &[FLOWS], |_, value| {
        (value == "0").then(|| Wrong {
            message: "The kernel steers no flow.".into(),
            new: ENOUGH_FLOWS.into(),
        })
    })?;
    Ok(verdicts
        .into_iter()
        .map(|verdict| with_evidence(verdict, &set))
        .collect())
}

fn with_evidence(verdict: Verdict, more: &[Evidence]) -> Verdict {
    match verdict {
        Verdict::Finding(mut finding) => {
            finding.evidence.extend_from_slice(more);
            Verdict::Finding(finding)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::is_lockless_pfifo;

    #[test]
    fn releases_are_compared_by_number() {
        for release in ["4.16.0", "4.19.0-6-amd64", "5.4", "6.18.44-fc", "10.0"] {
            assert!(is_lockless_pfifo(release), "{release}");
        }
        for release in ["4.15.0-66-generic", "3.19", "", "x"] {
            assert!(!is_lockless_pfifo(release), "{release}");
        }
    }
}
