//! Receivers that may not use the CPU.

use std::collections::BTreeSet;

use anyhow::Result;

use crate::doctor::check::Check;
use crate::doctor::context::Context;
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::host::setting::{fine_all, found};
use crate::doctor::owner::process;
use crate::doctor::severity::Severity;
use crate::doctor::verdict::Verdict;

/// Less of the look is a matter of one period of 100 ms.
const LEAST_PERCENT: f64 = 1.0;

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[CGROUP_THROTTLED];

const CGROUP_THROTTLED: Check = Check {
    id: "cgroup-throttled",
    title: "a control group's CPU limit stops a process that receives (nr_throttled)",
    severity: Severity::Warning,
    why: "Once a group has used its quota, its processes wait for the next period, up to 100 ms, and their receive buffers and listen queues fill.",
    source: "throttle_cfs_rq in kernel/sched/fair.c; Documentation/scheduler/sched-bwc.rst; Documentation/admin-guide/cgroup-v2.rst, cpu.max",
    more: "Reads cpu.stat of each control group with a quota (cpu.max, or cpu.cfs_quota_us of version 1) \
           twice, some seconds apart: it is a finding if a group was throttled for 1% of that time or \
           more, and one of its processes has a UDP socket or a TCP listener in this network \
           namespace. A quota of several CPUs is used up sooner by more threads.\n\n\
           The limit is somebody's decision, so there is no automatic fix: raise the limit in the \
           unit (CPUQuota=), the container's or the pod's specification, or run fewer threads. \
           cpu.stat shows the effect.",
    counters: &[],
    run: throttled,
};

/// The throttling of a group within the look.
struct Throttled<'a> {
    group: &'a str,
    times: u64,
    /// The length of the look, and the throttled time in it.
    period: String,
    /// That time, the sum of all CPUs, in percent of the look.
    share: f64,
    evidence: Evidence,
}

fn throttled(context: &Context) -> Result<Vec<Verdict>> {
    let mut all = Vec::new();
    for group in context.limited_groups() {
        all.extend(of_group(context, group));
    }
    if all.is_empty() {
        // No group has a quota, or none is shown here.
        return Ok(Vec::new());
    }
    let mut slow: Vec<_> = all.iter().filter(|it| it.share >= LEAST_PERCENT).collect();
    slow.sort_by(|a, b| b.share.total_cmp(&a.share));
    let receivers = if slow.is_empty() {
        Vec::new()
    } else {
        receivers(context)?
    };
    for it in slow {
        let processes = context.processes_of_group(it.group);
        let receiver = receivers.iter().find(|(pid, _)| processes.contains(pid));
        if let Some((pid, name)) = receiver {
            let receiver = process(*pid, name);
            let message = format!(
                "The group of {receiver} was throttled {} times {}: its packets wait.",
                it.times, it.period
            );
            let evidence = vec![
                it.evidence.clone(),
                Evidence::new("sock_diag, a socket of the group", receiver),
            ];
            let fix = format!(
                "raise the limit where it is set (CPUQuota= of the unit, the container's or the pod's specification), or run fewer threads; the group is {}",
                it.group
            );
            return Ok(found(evidence, message, Fix::manual(fix)));
        }
    }
    Ok(fine_all(all.into_iter().map(|it| it.evidence).collect()))
}

fn of_group<'a>(context: &Context, group: &'a str) -> Option<Throttled<'a>> {
    let path = format!("{group}/cpu.stat");
    // A group may have been removed meanwhile.
    let twice = context.twice(&path).ok()?;
    let moved = |name: &str| {
        let both = field(twice.before, name).zip(field(twice.after, name));
        both.map_or(0, |(before, after)| after.saturating_sub(before))
    };
    // Version 2 has microseconds, version 1 nanoseconds.
    let usecs = moved("throttled_usec") + moved("throttled_time") / 1000;
    let (times, seconds) = (moved("nr_throttled"), twice.elapsed.as_secs_f64());
    let share = usecs as f64 / 10_000.0 / seconds;
    let period = format!(
        "in {seconds:.1} s, for {} ms, the sum of its CPUs",
        usecs / 1000
    );
    let value = format!("{times} {period}");
    Some(Throttled {
        group,
        times,
        period,
        share,
        evidence: Evidence::new(format!("{path}, nr_throttled"), value),
    })
}

/// The processes with a UDP socket or a TCP listener, with their names.
fn receivers(context: &Context) -> Result<Vec<(u32, String)>> {
    let lists = context.lists()?;
    let (udp, listeners) = (&lists.after.udp, &lists.after.listeners);
    let sockets = udp.iter().chain(listeners).flatten();
    let inodes: BTreeSet<_> = sockets.map(|socket| socket.inode).collect();
    let owners = context.owners(&inodes)?.into_values();
    Ok(owners.map(|owner| (owner.pid, owner.comm)).collect())
}

fn field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let (_, value) = lines.find(|(field, _)| *field == name)?;
    value.trim().parse().ok()
}
