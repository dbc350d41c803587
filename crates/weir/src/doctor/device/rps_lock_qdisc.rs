//! The spinlock storm: packets that were spread over CPUs meet again at the lock of one queue.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use netlink_packet_route::tc::TcHandle;

use super::{command, fine, is_selected, qdisc};
use crate::doctor::{Check, Context, Evidence, Finding, Fix, Read, Severity, Verdict, irq};
use hostnet::cpulist::CpuList;
use hostnet::ethtool;
use hostnet::rtnetlink::{Link, Qdisc, Rtnetlink};

pub const RPS_LOCK_QDISC: Check = Check {
    id: "rps-lock-qdisc",
    title: "packets spread over CPUs meet at the lock of one queueing discipline",
    severity: Severity::Critical,
    why: "Every CPU that RSS or RPS gave a part of the packets spins for the same lock when they are forwarded to one device, so that a UDP storm at one guest drives ksoftirqd of all CPUs to 100% and takes the whole host with it.",
    source: "David Ahern, \"RSS/RPS + locking qdisc\" (people.kernel.org/dsahern/rss-rps-locking-qdisc): 96.79% in queued_spin_lock_slowpath at 1 Mpps; __dev_xmit_skb in net/core/dev.c",
    more: "Looked at: the root queueing discipline of each device (rtnetlink, RTM_GETQDISC) that packets can be forwarded to, by a bridge or by routing, from another device whose packets several CPUs take: by RPS (/sys/class/net/DEV/queues/rx-N/rps_cpus) or by RSS (several receive queues whose interrupts go to different CPUs).\n\n\
        noqueue, pfifo_fast (lockless since Linux 4.16), and one discipline for each of as many transmit queues as there are such CPUs are fine. Any other takes one lock for each packet.\n\n\
        The fix puts noqueue on a virtual device, whose driver takes any packet at any time, and pfifo_fast on a real one, which stops when its ring is full. A discipline that shapes traffic (tbf, htb, ...) is left alone, since nothing else does its work: turn RPS off on the device that packets come from instead, or steer those of one guest to one CPU (ethtool -N).\n\n\
        Its effect: `weir cost` under the load, before and after, or the ksoftirqd threads in top(1).",
    run,
};

/// Several CPUs that take the packets of one device, and where those go.
struct Spread<'a> {
    device: &'a Link,
    cpus: usize,
    evidence: Vec<Evidence>,
    /// The devices that get them from it: bonds, VLANs, bridges.
    above: BTreeSet<u32>,
    /// That they are routed, if they are.
    routed: Option<Evidence>,
}

fn run(context: &Context) -> Result<Vec<Verdict>> {
    let mut route = Rtnetlink::open()?;
    let (links, qdiscs) = (route.links()?, route.qdiscs()?);
    let devices = || links.iter().filter(|device| !device.loopback);
    let mut spreads = Vec::new();
    for device in devices() {
        spreads.extend(spread(context, &links, device)?);
    }
    let mut verdicts = Vec::new();
    for device in devices() {
        let Some(root) = qdisc::root(&qdiscs, device.index) else {
            continue;
        };
        let feeders = spreads.iter().filter_map(|spread| {
            let asked = is_selected(context, device) || is_selected(context, spread.device);
            let path = path(&links, spread, device).filter(|_| asked);
            Some((spread, path?))
        });
        verdicts.extend(judge(&qdiscs, root, device, &feeders.collect::<Vec<_>>())?);
    }
    Ok(verdicts)
}

/// The CPUs that take the packets of `device`, if they are several.
fn spread<'a>(context: &Context, links: &[Link], device: &'a Link) -> Result<Option<Spread<'a>>> {
    let (steered, mut evidence) = rps(context, &device.name)?;
    let interrupted = match ethtool::channels(&device.name)? {
        Some(channels) => rss(context, &device.name, channels.used, &mut evidence)?,
        None => 0,
    };
    let cpus = steered.as_slice().len().max(interrupted);
    if cpus < 2 {
        return Ok(None);
    }
    Ok(Some(Spread {
        device,
        cpus,
        evidence,
        above: above(links, device.index),
        routed: routed(context, &device.name)?,
    }))
}

/// Whether the kernel routes what `device` receives.
fn routed(context: &Context, device: &str) -> Result<Option<Evidence>> {
    for family in ["ipv4", "ipv6"] {
        let path = format!("/proc/sys/net/{family}/conf/{device}/forwarding");
        if context.read_if_there(&path)?.as_deref() == Some("1") {
            return Ok(Some(Evidence::new(path, "1")));
        }
    }
    Ok(None)
}

/// The CPUs that RPS gives packets of `device` to.
fn rps(context: &Context, device: &str) -> Result<(CpuList, Vec<Evidence>)> {
    let directory = format!("/sys/class/net/{device}/queues");
    let (mut all, mut evidence) = (Vec::new(), Vec::new());
    for queue in context.list(&directory)? {
        let path = format!("{directory}/{queue}/rps_cpus");
        if !queue.starts_with("rx-") {
            continue;
        }
        // There is no such file where the kernel has no RPS (CONFIG_RPS).
        let Some(mask) = context.read_if_there(&path)? else {
            continue;
        };
        let cpus =
            CpuList::from_mask(&mask).with_context(|| format!("cannot understand {path}"))?;
        if !cpus.as_slice().is_empty() {
            all.extend_from_slice(cpus.as_slice());
            evidence.push(Evidence::new(path, mask));
        }
    }
    Ok((CpuList::new(all), evidence))
}

/// How many CPUs the interrupts of the receive queues of `device` go to.
fn rss(
    context: &Context,
    device: &str,
    queues: ethtool::Queues,
    evidence: &mut Vec<Evidence>,
) -> Result<usize> {
    let queues = queues.rx + queues.combined;
    let irqs = irq::of(context, device)?;
    let cpus = CpuList::new(irqs.iter().flat_map(|irq| irq.cpus.as_slice()).copied());
    // A device has interrupts besides those of its receive queues.
    let spread = cpus.as_slice().len().min(usize::try_from(queues)?);
    if spread > 1 {
        let source = format!("ethtool -l {device}, /proc/irq/*/effective_affinity_list");
        evidence.push(Evidence::new(
            source,
            format!("{queues} receive queues, interrupts on CPUs {cpus}"),
        ));
    }
    Ok(spread)
}

/// How packets get to the device `to`, if they can: by a bridge that both lead to, or routed.
fn path(links: &[Link], from: &Spread<'_>, to: &Link) -> Option<Evidence> {
    if from.device.index == to.index {
        return None;
    }
    let bridge = to.controller.filter(|bridge| from.above.contains(bridge));
    let bridge = bridge.and_then(|index| links.iter().find(|link| link.index == index));
    if let Some(bridge) = bridge {
        let source = format!("rtnetlink, IFLA_MASTER of {}", to.name);
        let value = format!(
            "{}, which {} leads to as well",
            bridge.name, from.device.name
        );
        return Some(Evidence::new(source, value));
    }
    from.routed.clone()
}

/// Every device that gets packets from the device `index`.
fn above(links: &[Link], index: u32) -> BTreeSet<u32> {
    let (mut found, mut next) = (BTreeSet::new(), vec![index]);
    while let Some(index) = next.pop() {
        if !found.insert(index) {
            continue;
        }
        for link in links {
            // The peer of a veth is its IFLA_LINK too, but what it receives comes out there, not
            // here.
            let lies_upon = link.lower == Some(index)
                && link.lower_netns.is_none()
                && link.kind.as_deref() != Some("veth");
            if lies_upon {
                next.push(link.index);
            }
            if link.index == index {
                next.extend(link.controller);
            }
        }
    }
    found.remove(&index);
    found
}

fn judge(
    qdiscs: &[Qdisc],
    root: &Qdisc,
    device: &Link,
    feeders: &[(&Spread<'_>, Evidence)],
) -> Result<Option<Verdict>> {
    let locked: Vec<_> = qdisc::locked(qdiscs, root).into_iter().collect();
    let kinds = match locked.as_slice() {
        [] => root.kind.clone(),
        kinds if kinds == [root.kind.as_str()] => root.kind.clone(),
        kinds => format!("{} with {}", root.kind, kinds.join(", ")),
    };
    let of_qdisc = Evidence::new(
        format!("rtnetlink, RTM_GETQDISC of {}", device.name),
        &kinds,
    );
    let cpus = feeders.iter().map(|(spread, _)| spread.cpus).max();
    let Some(cpus) = cpus.filter(|_| !locked.is_empty()) else {
        return Ok(Some(fine(&device.name, vec![of_qdisc])));
    };
    let mut evidence = vec![of_qdisc];
    if qdisc::is_per_queue(root) {
        let queues = tx_queues(qdiscs, root, &device.name)?;
        evidence.push(Evidence::new(
            format!("ethtool -l {}", device.name),
            format!("{queues} transmit queues"),
        ));
        if queues >= cpus {
            return Ok(Some(fine(&device.name, evidence)));
        }
    }
    let names: Vec<_> = feeders
        .iter()
        .map(|(spread, _)| spread.device.name.as_str())
        .collect();
    for (spread, path) in feeders {
        evidence.extend(spread.evidence.clone());
        evidence.push(path.clone());
    }
    evidence.dedup();
    Ok(Some(Verdict::Finding(Finding {
        subject: device.name.clone(),
        evidence,
        message: format!(
            "Up to {cpus} CPUs take the packets of {} and all of them spin for the lock of {kinds} when those go to {}.",
            names.join(", "),
            device.name
        ),
        fix: fix(device, root, &names),
    })))
}

/// The transmit queues that packets are spread over.
fn tx_queues(qdiscs: &[Qdisc], root: &Qdisc, device: &str) -> Result<usize> {
    if let Some(channels) = ethtool::channels(device)? {
        return Ok(usize::try_from(channels.used.tx + channels.used.combined)?);
    }
    let below = |qdisc: &&Qdisc| {
        qdisc.device == root.device
            && qdisc.parent != TcHandle::ROOT
            && qdisc.parent.major == root.handle.major
    };
    Ok(qdiscs.iter().filter(below).count())
}

fn fix(device: &Link, root: &Qdisc, from: &[&str]) -> Fix {
    let name = &device.name;
    let steer = format!(
        "let one CPU take the packets instead: for each queue of {}, `echo 0 > /sys/class/net/DEV/queues/rx-N/rps_cpus`, or steer the packets of one receiver with `ethtool -N`",
        from.join(", ")
    );
    if qdisc::is_shaper(&root.kind) || qdisc::is_per_queue(root) {
        return Fix::Text(format!(
            "{} is there on purpose, and nothing else does its work; {steer}",
            root.kind
        ));
    }
    let lockless = if device.kind.is_some() {
        "noqueue"
    } else {
        "pfifo_fast"
    };
    let apply = format!("tc qdisc replace dev {name} root {lockless}");
    match qdisc::restore(name, root) {
        Some(undo) => command::fix(
            command::words(&apply),
            undo,
            Read::of_namespace(&["tc", "qdisc", "show", "dev", name, "root"], ""),
        ),
        None => Fix::Text(format!(
            "`{apply}`; not by itself, since the settings of {} cannot be put back exactly: note `tc qdisc show dev {name}` first; or {steer}",
            root.kind
        )),
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage};

    use super::*;

    fn link(index: u32, kind: InfoKind, attributes: Vec<LinkAttribute>) -> Link {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes = attributes;
        let kind = LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)]);
        message.attributes.push(kind);
        Link::from(message)
    }

    #[test]
    fn packets_go_up_through_bonds_and_vlans_and_not_to_a_peer() {
        use LinkAttribute::{Controller, Link as Lower, LinkNetNsId};
        let links = [
            link(1, InfoKind::Veth, vec![Lower(9), Controller(2)]),
            link(2, InfoKind::Bond, vec![]),
            link(3, InfoKind::Vlan, vec![Lower(2), Controller(4)]),
            link(4, InfoKind::Bridge, vec![]),
            link(5, InfoKind::Veth, vec![Lower(1)]),
            link(6, InfoKind::MacVlan, vec![Lower(1), LinkNetNsId(0)]),
        ];
        assert_eq!(above(&links, 1), BTreeSet::from([2, 3, 4]));
        assert!(above(&links, 4).is_empty());
    }

    #[test]
    fn a_ring_of_devices_comes_to_an_end() {
        let links = [
            link(1, InfoKind::Vlan, vec![LinkAttribute::Link(2)]),
            link(2, InfoKind::Vlan, vec![LinkAttribute::Link(1)]),
        ];
        assert_eq!(above(&links, 1), BTreeSet::from([2]));
    }
}
