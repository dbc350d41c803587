//! Packets that a queueing discipline drops.

use anyhow::Result;
use hostnet::rtnetlink::QdiscStatistics;

use super::each::each;
use super::qdisc;
use super::traffic::matters;
use crate::doctor::check::Check;
use crate::doctor::context::device::Device;
use crate::doctor::context::watch::Lists;
use crate::doctor::context::{Context, Qdisc, QdiscOptions, TcHandle};
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::mib::{period, rate};
use crate::doctor::severity::Severity;
use crate::doctor::step::Read;
use crate::doctor::verdict::Verdict;
use crate::report::shell::quote;

/// Disciplines that drop to tell senders of a queue, long before it is full.
const AQM: [&str; 7] = ["fq_codel", "codel", "cake", "fq_pie", "pie", "red", "choke"];
/// Such a discipline drops one in so many packets in normal operation.
const AQM_PART: u64 = 100;
/// Their drops are those of filters, which somebody has set.
const FILTERS: [&str; 2] = ["ingress", "clsact"];
/// A longer queue only adds latency.
const MOST_PACKETS: u32 = 10_000;

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[QDISC_DROPS];

const QDISC_DROPS: Check = Check {
    id: "qdisc-drops",
    title: "a queueing discipline or shaper drops packets (tc -s qdisc: dropped)",
    severity: Severity::Warning,
    why: "Packets of this host are lost before they reach the device, whose own counters do not show it.",
    source: "dev_qdisc_enqueue in net/core/dev.c; tc(8)",
    more: "Reads the drops of each queueing discipline (RTM_GETQDISC, TCA_STATS2) twice, some seconds \
           apart: it is a finding from more than 10 a second and 1 in 1000 packets; of fq_codel, cake \
           and other disciplines that drop on purpose from 1 in 100. Filters at ingress and egress \
           are left out, since somebody wants their drops.\n\n\
           The fix makes the queue of a pfifo or bfifo four times as long, which helps with bursts. A \
           shaper (tbf, htb) drops the excess over its rate once its queue is full: raise the rate, \
           or its limit and burst; otherwise the device or the link is too slow. `tc -s qdisc show dev \
           DEV` shows the effect, and UDP senders see it as SndbufErrors.",
    counters: &[],
    run: drops,
};

/// A discipline that has dropped within the look.
struct Dropping<'a> {
    qdisc: &'a Qdisc,
    lost: u64,
    sent: u64,
}

fn drops(context: &Context) -> Result<Vec<Verdict>> {
    let lists = context.lists()?;
    each(context, |device| Ok(of_device(context, device, &lists)))
}

fn of_device(context: &Context, device: &Device, lists: &Lists<'_>) -> Option<Verdict> {
    let name = device.name();
    let is_of_device =
        |it: &&Qdisc| it.device == device.link.index && !FILTERS.contains(&it.kind.as_str());
    let qdiscs = lists.after.qdiscs.iter().filter(is_of_device);
    let all: Vec<_> = qdiscs.map(|qdisc| moved(qdisc, lists)).collect();
    let sent = all.iter().map(|it| it.sent).max()?;
    let source =
        |it: &Dropping<'_>| format!("rtnetlink, drops of {} on {name}", described(it.qdisc));
    let too_many = |it: &&Dropping<'_>| {
        let packets = it.sent + it.lost;
        matters(it.lost, packets, lists.seconds)
            && (!AQM.contains(&it.qdisc.kind.as_str()) || it.lost > packets / AQM_PART)
    };
    let mut dropping: Vec<_> = all.iter().filter(too_many).collect();
    // The root of a tree has the sum: the leaf that drops is further down.
    dropping.sort_by_key(|it| {
        (
            it.qdisc.parent == TcHandle::ROOT,
            std::cmp::Reverse(it.lost),
        )
    });
    let Some(worst) = dropping.first() else {
        let value = format!("{} sent, none or few dropped", rate(sent, lists.seconds));
        let source = format!("rtnetlink, queueing disciplines of {name}");
        return Some(Verdict::fine(name, vec![Evidence::new(source, value)]));
    };
    let evidence = dropping.iter().map(|it| {
        let (lost, sent) = (rate(it.lost, lists.seconds), it.sent);
        Evidence::new(source(it), format!("{lost}, {sent} sent"))
    });
    let message = format!(
        "{} of {name} dropped {} packets {}, and sent {}.",
        described(worst.qdisc),
        worst.lost,
        period(worst.lost, lists.seconds),
        worst.sent
    );
    let fix = fix(context, name, worst.qdisc);
    Some(Verdict::found(name, evidence.collect(), message, fix))
}

fn moved<'a>(qdisc: &'a Qdisc, lists: &Lists<'_>) -> Dropping<'a> {
    let same = |it: &&Qdisc| {
        (it.device, it.parent, it.handle, &it.kind)
            == (qdisc.device, qdisc.parent, qdisc.handle, &qdisc.kind)
    };
    // One that was made meanwhile starts at zero.
    let before = lists.before.qdiscs.iter().find(same);
    let before = before.and_then(|it| it.statistics).unwrap_or_default();
    let (lost, sent) = counted(before, qdisc.statistics.unwrap_or_default());
    Dropping { qdisc, lost, sent }
}

/// The packets that a discipline dropped and sent between two readings.
fn counted(before: QdiscStatistics, after: QdiscStatistics) -> (u64, u64) {
    let lost = after.drops.wrapping_sub(before.drops);
    // Replaced under its old handle, a discipline counts from zero. The drops have 32 bits, and may wrap.
    if after.packets < before.packets || lost > u32::MAX / 2 {
        return (after.drops.into(), after.packets);
    }
    (lost.into(), after.packets - before.packets)
}

/// Kind, handle and place, as tc(8) shows them.
fn described(qdisc: &Qdisc) -> String {
    let (kind, handle) = (&qdisc.kind, qdisc.handle.major);
    format!("{kind} {handle:x}: {}", place(qdisc))
}

fn place(qdisc: &Qdisc) -> String {
    let TcHandle { major, minor } = qdisc.parent;
    if qdisc.parent == TcHandle::ROOT {
        "root".into()
    } else {
        format!("parent {major:x}:{minor:x}")
    }
}

fn fix(context: &Context, device: &str, qdisc: &Qdisc) -> Fix {
    let (kind, handle) = (&qdisc.kind, qdisc.handle.major);
    // A default that the kernel chose has no handle.
    if let QdiscOptions::Fifo { limit } = qdisc.options
        && handle != 0
        && (kind != "pfifo" || limit <= MOST_PACKETS / 4)
    {
        let place = place(qdisc);
        let set = |limit: u32| {
            format!("tc qdisc replace dev {device} {place} handle {handle:x}: {kind} limit {limit}")
        };
        let read = Read::of_namespace(
            &format!("tc qdisc show dev {device}"),
            format!("qdisc {kind} {handle:x}:"),
        );
        return Fix::command(context, &set(limit.saturating_mul(4)), &set(limit), read);
    }
    let device = quote(device);
    Fix::manual(if qdisc::is_shaper(kind) {
        format!(
            "raise the rate of {kind} on {device}, or its limit and burst: `tc qdisc show dev {device}` has them, and `tc class show dev {device}` those of classes"
        )
    } else {
        format!(
            "send less, or let bursts wait: `ip link set {device} txqueuelen N` for pfifo_fast, `limit` of `tc qdisc change dev {device}` for others"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_may_wrap_or_start_anew() {
        let at = |packets, drops| QdiscStatistics {
            packets,
            drops,
            ..QdiscStatistics::default()
        };
        assert_eq!(counted(at(10, 1), at(15, 4)), (3, 5));
        assert_eq!(counted(at(10, u32::MAX), at(15, 1)), (2, 5), "wrapped");
        assert_eq!(counted(at(10, 500), at(12, 0)), (0, 12), "replaced");
        assert_eq!(counted(at(10, 5), at(2, 7)), (7, 2), "replaced");
    }
}
