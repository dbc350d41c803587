//! Settings below /proc/sys/net/core.

use anyhow::Result;

use super::setting::{Wrong, absent, fine, found, judge, write};
use crate::doctor::{Check, Context, Evidence, Fix, Severity, Verdict};

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

pub const NAPI_BUDGET: Check = Check {
    id: "napi-budget",
    title: "the budget of softirqs is small",
    severity: Severity::Warning,
    why: "A small budget ends each run of the softirq early, and the rest of the packets waits.",
    source: "Documentation/admin-guide/sysctl/net.rst, netdev_budget; net/core/hotdata.c",
    more: "It reads net.core.netdev_budget, in packets, and netdev_budget_usecs. The kernel's own \
           values are 300 packets, and two ticks or 2000 us; less is a finding. See also softnet-squeezed.",
    run: napi_budget,
};

pub const NETDEV_BACKLOG: Check = Check {
    id: "netdev-backlog",
    title: "the backlog of CPUs is short",
    severity: Severity::Warning,
    why: "A burst that RPS spreads, or that crosses a veth without NAPI, is cut off at so many packets.",
    source: "enqueue_to_backlog in net/core/dev.c; Documentation/admin-guide/sysctl/net.rst, netdev_max_backlog",
    more: "It reads net.core.netdev_max_backlog. The kernel's own value is 1000 packets; less is a \
           finding. See also softnet-dropped.",
    run: backlog,
};

pub const BUSY_POLL: Check = Check {
    id: "busy-poll",
    title: "every socket busy-polls",
    severity: Severity::Advice,
    why: "Each poll, select or read that finds nothing then spins on its CPU before it sleeps.",
    source: "Documentation/admin-guide/sysctl/net.rst, busy_poll and busy_read; sk_busy_loop in net/core/dev.c",
    more: "It reads net.core.busy_poll and busy_read, in microseconds, which hold for every socket \
           of the host. A program that wants it sets SO_BUSY_POLL for its own sockets; for AF_XDP see \
           SO_PREFER_BUSY_POLL in Documentation/networking/napi.rst.\n\n\
           Measure what it takes with `weir cost` before and after the fix.",
    run: busy_poll,
};

pub const DEFAULT_QDISC: Check = Check {
    id: "default-qdisc",
    title: "taps get a queueing discipline with a lock",
    severity: Severity::Warning,
    why: "When RSS or RPS spreads packets for one tap over several CPUs, these spin on the lock of its queueing discipline; a storm of packets to one VM then takes every CPU of the host.",
    source: "David Ahern, RSS/RPS + locking qdisc; __dev_xmit_skb in net/core/dev.c",
    more: "It reads net.core.default_qdisc, and looks for taps, which take it when they are made; \
           without a tap it is no finding, since veths and bridges have no queue by themselves. \
           fq_codel, which systemd sets, fq, sfq, cake and pfifo have a lock; pfifo_fast, the kernel's \
           own, has none since Linux 4.16, and noqueue has no queue at all.\n\n\
           The fix holds for devices that are made from then on: see rps-lock-qdisc for those there \
           are. Measure it with `weir cost` under a load of many flows.",
    run: default_qdisc,
};

pub const RPS_FLOW_TABLE: Check = Check {
    id: "rps-flow-table",
    title: "receive flow steering is set up by half",
    severity: Severity::Advice,
    why: "Queues have a table of flows, but the host's table is empty, so no packet is steered to the CPU of its reader.",
    source: "Documentation/networking/scaling.rst, RFS Configuration",
    more: "It reads rps_flow_cnt of each receive queue, and net.core.rps_sock_flow_entries; both \
           have to be set.",
    run: rps_flow_table,
};

fn at_least(least: u64) -> impl Fn(&str) -> Option<Wrong> {
    move |value| {
        let value: u64 = value.parse().ok()?;
        (value < least).then(|| Wrong {
            message: "It is less than what the kernel starts with.".into(),
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
            message: "Sockets that wait burn CPU time, whoever's they are.".into(),
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
    let is_tap = |kind: &Option<String>| kind.as_deref() == Some("tun");
    let links = context.links()?;
    let taps: Vec<_> = links.iter().filter(|link| is_tap(&link.kind)).collect();
    if !has_lock || taps.is_empty() {
        return Ok(fine(DEFAULT_QDISC_FILE, &qdisc));
    }
    let names: Vec<_> = taps.iter().map(|link| link.name.as_str()).collect();
    let evidence = vec![
        Evidence::new(DEFAULT_QDISC_FILE, &qdisc),
        Evidence::new("netlink, devices of kind tun", names.join(" ")),
    ];
    let new = if lockless { "pfifo_fast" } else { "noqueue" };
    let fix = Fix::Steps(vec![write(DEFAULT_QDISC_FILE, &qdisc, new)]);
    Ok(found(
        evidence,
        format!("A tap that is made now gets {qdisc}."),
        fix,
    ))
}

/// Whether `pfifo_fast` works without a lock, as it does since Linux 4.16.
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
            message: "Nothing is steered.".into(),
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
    fn releases() {
        for release in ["4.16.0", "4.19.0-6-amd64", "5.4", "6.18.44-fc", "10.0"] {
            assert!(is_lockless_pfifo(release), "{release}");
        }
        for release in ["4.15.0-66-generic", "3.19", "", "x"] {
            assert!(!is_lockless_pfifo(release), "{release}");
        }
    }
}
