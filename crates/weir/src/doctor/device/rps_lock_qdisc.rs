//! Lock contention on a queueing discipline: RSS or RPS spreads packets over CPUs, and all of them
//! are forwarded through one locked discipline.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use hostnet::cpulist::CpuList;

use super::qdisc;
use crate::doctor::check::Check;
use crate::doctor::context::device::Device;
use crate::doctor::context::{Context, Qdisc};
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::irq;
use crate::doctor::severity::Severity;
use crate::doctor::step::Read;
use crate::doctor::verdict::Verdict;

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[RPS_LOCK_QDISC];

const RPS_LOCK_QDISC: Check = Check {
    id: "rps-lock-qdisc",
    title: "qdisc lock contention: RSS or RPS spreads packets over CPUs, and one qdisc has one lock",
    severity: Severity::Critical,
    why: "All CPUs that RSS or RPS gives packets to spin on the same lock when they forward to one device: a UDP storm at one guest drives ksoftirqd of all CPUs to 100% and stalls the host.",
    source: "David Ahern, \"RSS/RPS + locking qdisc\" (people.kernel.org/dsahern/rss-rps-locking-qdisc): 96.79% in queued_spin_lock_slowpath at 1 Mpps; __dev_xmit_skb in net/core/dev.c",
    more: "Reads the root qdisc of each device (rtnetlink, RTM_GETQDISC) to which a bridge or routing \
           can forward packets of another device that several CPUs receive: by RPS \
           (/sys/class/net/DEV/queues/rx-N/rps_cpus) or by RSS (several receive queues with \
           interrupts on different CPUs).\n\n\
           Exempt are noqueue, pfifo_fast (lockless since Linux 4.16), and one qdisc per transmit queue \
           if there are as many queues as such CPUs. Any other takes one lock per packet.\n\n\
           The fix sets noqueue on a virtual device, whose driver accepts a packet at any time, and \
           pfifo_fast on a real one, which stops when its ring is full. For a qdisc that shapes \
           traffic (tbf, htb, ...) the fix is manual, since no other can replace it: turn RPS off on \
           the device that receives the packets, or steer those of one guest to one CPU (ethtool -N).\n\n\
           Measure the effect with `weir cost` under the load, before and after, or with the \
           ksoftirqd threads in top(1).",
    counters: &[],
    run,
};

/// A device whose packets several CPUs receive.
struct Spread<'a> {
    device: &'a Device,
    cpus: usize,
    evidence: Vec<Evidence>,
    /// The bonds, VLANs and bridges above it.
    above: BTreeSet<u32>,
    /// Whether its packets are routed.
    routed: Option<Evidence>,
}

fn run(context: &Context) -> Result<Vec<Verdict>> {
    let (devices, qdiscs) = (context.devices()?, context.qdiscs()?);
    let without_lo = || devices.iter().filter(|device| !device.link.loopback);
    let (mut spreads, mut verdicts) = (Vec::new(), Vec::new());
    for device in without_lo() {
        match spread(context, device) {
            Ok(spread) => spreads.extend(spread),
            Err(error) => {
                verdicts.push(Verdict::unchecked(device.name(), format!("{error:#}")));
            }
        }
    }
    for device in without_lo() {
        let Some(root) = qdisc::root(qdiscs, device.link.index) else {
            continue;
        };
        let feeders = spreads.iter().filter_map(|spread| {
            let selected = context.is_selected(device) || context.is_selected(spread.device);
            let path = path(devices, spread, device).filter(|_| selected);
            Some((spread, path?))
        });
        let feeders: Vec<_> = feeders.collect();
        verdicts.extend(judge(context, qdiscs, root, device, &feeders)?);
    }
    Ok(verdicts)
}

/// The CPUs that receive the packets of `device`, if there are several.
fn spread<'a>(context: &Context, device: &'a Device) -> Result<Option<Spread<'a>>> {
    let (steered, mut evidence) = rps(context, device.name())?;
    let interrupted = rss(context, device, &mut evidence)?;
    let cpus = steered.as_slice().len().max(interrupted);
    if cpus < 2 {
        return Ok(None);
    }
    Ok(Some(Spread {
        device,
        cpus,
        evidence,
        above: above(context.devices()?, device.link.index),
        routed: routed(context, device.name())?,
    }))
}

/// Whether the kernel routes packets received by `device`.
fn routed(context: &Context, device: &str) -> Result<Option<Evidence>> {
    for family in ["ipv4", "ipv6"] {
        let path = format!("/proc/sys/net/{family}/conf/{device}/forwarding");
        if context.read_if_there(&path)?.as_deref() == Some("1") {
            return Ok(Some(Evidence::new(path, "1")));
        }
    }
    Ok(None)
}

/// The CPUs of RPS.
fn rps(context: &Context, device: &str) -> Result<(CpuList, Vec<Evidence>)> {
    let directory = format!("/sys/class/net/{device}/queues");
    let (mut all, mut evidence) = (Vec::new(), Vec::new());
    for queue in context.list(&directory)? {
        let path = format!("{directory}/{queue}/rps_cpus");
        if !queue.starts_with("rx-") {
            continue;
        }
        // A kernel without CONFIG_RPS has no such file.
        let Some(mask) = context.read_if_there(&path)? else {
            continue;
        };
        let cpus = CpuList::from_mask(&mask).with_context(|| format!("cannot parse {path}"))?;
        if !cpus.as_slice().is_empty() {
            all.extend_from_slice(cpus.as_slice());
            evidence.push(Evidence::new(path, mask));
        }
    }
    Ok((CpuList::new(all), evidence))
}

/// The number of CPUs of RSS.
fn rss(context: &Context, device: &Device, evidence: &mut Vec<Evidence>) -> Result<usize> {
    let Some(channels) = device.channels()? else {
        return Ok(0);
    };
    let name = device.name();
    let queues = channels.used.rx + channels.used.combined;
    let irqs = irq::of(context, name)?;
    let cpus = CpuList::new(irqs.iter().flat_map(|irq| irq.cpus.as_slice()).copied());
    // A device also has interrupts that are not of a receive queue.
    let spread = cpus.as_slice().len().min(usize::try_from(queues)?);
    if spread > 1 {
        let source = format!("ethtool -l {name}, /proc/irq/*/effective_affinity_list");
        evidence.push(Evidence::new(
            source,
            format!("{queues} receive queues, interrupts on CPUs {cpus}"),
        ));
    }
    Ok(spread)
}

/// The path by which packets of `from` reach the device `to`: a common bridge, or routing.
fn path(devices: &[Device], from: &Spread<'_>, to: &Device) -> Option<Evidence> {
    if from.device.link.index == to.link.index {
        return None;
    }
    let bridge = to.link.controller.filter(|it| from.above.contains(it));
    let bridge = bridge.and_then(|index| devices.iter().find(|it| it.link.index == index));
    if let Some(bridge) = bridge {
        let source = format!("rtnetlink, IFLA_MASTER of {}", to.name());
        let (bridge, from) = (bridge.name(), from.device.name());
        return Some(Evidence::new(
            source,
            format!("{bridge}, also above {from}"),
        ));
    }
    from.routed.clone()
}

/// All devices above the device `index`, which get its packets.
fn above(devices: &[Device], index: u32) -> BTreeSet<u32> {
    let (mut found, mut next) = (BTreeSet::new(), vec![index]);
    while let Some(index) = next.pop() {
        if !found.insert(index) {
            continue;
        }
        for device in devices {
            let link = &device.link;
            // IFLA_LINK of a veth is its peer, which is not above it.
            if link.lower == Some(index) && link.lower_netns.is_none() && !device.is_veth() {
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
    context: &Context,
    qdiscs: &[Qdisc],
    root: &Qdisc,
    device: &Device,
    feeders: &[(&Spread<'_>, Evidence)],
) -> Result<Option<Verdict>> {
    let name = device.name();
    let locked: Vec<_> = qdisc::locked(qdiscs, root).into_iter().collect();
    let kinds = match locked.as_slice() {
        [] => root.kind.clone(),
        kinds if kinds == [root.kind.as_str()] => root.kind.clone(),
        kinds => format!("{} with {}", root.kind, kinds.join(", ")),
    };
    let mut evidence = vec![Evidence::new(
        format!("rtnetlink, RTM_GETQDISC of {name}"),
        &kinds,
    )];
    let cpus = feeders.iter().map(|(spread, _)| spread.cpus).max();
    let Some(cpus) = cpus.filter(|_| !locked.is_empty()) else {
        return Ok(Some(Verdict::fine(name, evidence)));
    };
    if qdisc::is_per_queue(root) {
        let queues = tx_queues(qdiscs, root, device)?;
        evidence.push(Evidence::new(
            format!("ethtool -l {name}"),
            format!("{queues} transmit queues"),
        ));
        if queues >= cpus {
            return Ok(Some(Verdict::fine(name, evidence)));
        }
    }
    let from: Vec<_> = feeders
        .iter()
        .map(|(spread, _)| spread.device.name())
        .collect();
    let from = from.join(", ");
    for (spread, path) in feeders {
        evidence.extend(spread.evidence.clone());
        evidence.push(path.clone());
    }
    evidence.dedup();
    let message = format!(
        "Up to {cpus} CPUs receive the packets of {from}, and all spin on the lock of {kinds} to forward them to {name}."
    );
    let fix = fix(context, device, root, &from);
    Ok(Some(Verdict::found(name, evidence, message, fix)))
}

/// The number of transmit queues.
fn tx_queues(qdiscs: &[Qdisc], root: &Qdisc, device: &Device) -> Result<usize> {
    Ok(match device.channels()? {
        Some(channels) => usize::try_from(channels.used.tx + channels.used.combined)?,
        None => qdisc::children(qdiscs, root).count(),
    })
}

fn fix(context: &Context, device: &Device, root: &Qdisc, from: &str) -> Fix {
    let name = device.name();
    let steer = format!(
        "receive the packets on one CPU instead: for each queue of {from}, `echo 0 > /sys/class/net/DEV/queues/rx-N/rps_cpus`, or steer the packets of one receiver with `ethtool -N`"
    );
    if qdisc::is_shaper(&root.kind) || qdisc::is_per_queue(root) {
        return Fix::manual(format!("{} cannot be replaced; {steer}", root.kind));
    }
    let lockless = if device.kind().is_some() {
        "noqueue"
    } else {
        "pfifo_fast"
    };
    let apply = format!("tc qdisc replace dev {name} root {lockless}");
    match qdisc::restore(name, root) {
        Some(undo) => {
            let read = Read::of_namespace(&format!("tc qdisc show dev {name} root"), "");
            Fix::command(context, &apply, &undo, read)
        }
        None => Fix::manual(format!(
            "`{apply}`; --fix cannot run it, since it could not restore the settings of {}: save `tc qdisc show dev {name}` first; or {steer}",
            root.kind
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::context::device::{DeviceState, Link};

    fn device(index: u32, kind: &str, lower: Option<u32>, controller: Option<u32>) -> Device {
        let link = Link {
            index,
            kind: Some(kind.into()),
            lower,
            controller,
            ..Link::default()
        };
        Device::from(DeviceState {
            link,
            ..DeviceState::default()
        })
    }

    #[test]
    fn bonds_vlans_and_bridges_are_above_and_a_peer_is_not() {
        let mut foreign = device(6, "macvlan", Some(1), None);
        foreign.link.lower_netns = Some(0);
        let devices = [
            device(1, "veth", Some(9), Some(2)),
            device(2, "bond", None, None),
            device(3, "vlan", Some(2), Some(4)),
            device(4, "bridge", None, None),
            device(5, "veth", Some(1), None),
            foreign,
        ];
        assert_eq!(above(&devices, 1), BTreeSet::from([2, 3, 4]));
        assert!(above(&devices, 4).is_empty());
    }

    #[test]
    fn a_cycle_of_devices_ends() {
        let devices = [
            device(1, "vlan", Some(2), None),
            device(2, "vlan", Some(1), None),
        ];
        assert_eq!(above(&devices, 1), BTreeSet::from([2]));
    }
}
