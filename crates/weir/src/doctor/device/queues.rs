//! Queues, rings and interrupts of a device.

use std::collections::BTreeMap;

use anyhow::Result;

use super::{command, each, fine, is_wanted, traffic};
use crate::doctor::{Check, Context, Evidence, Finding, Fix, Read, Severity, Step, Verdict, irq};
use hostnet::cpulist::CpuList;
use hostnet::ethtool;
use hostnet::ethtool::{Channels, Queues, RxCoalesce, RxRing};
use hostnet::rtnetlink::Link;

pub const QUEUES: Check = Check {
    id: "queues",
    title: "there are fewer transmit queues than CPUs",
    severity: Severity::Advice,
    why: "A program on any CPU may redirect to the device: with fewer queues than CPUs they take turns at one lock, and some drivers drop what comes from a CPU without a queue.",
    source: "veth_xdp_xmit, virtnet_xdp_get_sq in drivers/net/virtio_net.c; ixgbe_xdp_xmit",
    more: "Looked at: the queues in use and the most that there can be (ethtool -l), and the CPUs that are online. It is a finding only for a device that has a program or is named by --dev, and that could have more.\n\n\
        Its effect: `weir bench l2fwd` with the load on another CPU than the application.",
    run: |context| each(context, |device| queues(context, device)),
};

pub const RING_SIZES: Check = Check {
    id: "ring-sizes",
    title: "packets are lost while the receive ring is small",
    severity: Severity::Warning,
    why: "A card drops what arrives while its ring has no free descriptor: a larger ring rides out the time until the CPU comes to it.",
    source: "ethtool(8), -g; rx_missed_errors in Documentation/networking/statistics.rst",
    more: "Looked at: the ring in use and the largest possible (ethtool -g), and whether the device lost packets for want of room (rx_missed_errors, rx_fifo_errors) while the doctor watched. A small ring without loss is no finding: it keeps packets in the CPU's cache.\n\n\
        The fix makes the link go down for a moment with many drivers.",
    run: |context| each(context, |device| ring(context, device)),
};

pub const COALESCING: Check = Check {
    id: "coalescing",
    title: "interrupts come too often or too late",
    severity: Severity::Advice,
    why: "An interrupt for each packet takes CPU from the work on them, and one that waits for milliseconds adds that to every round trip.",
    source: "ethtool(8), -c; include/uapi/linux/ethtool.h, struct ethtool_coalesce",
    more: "Looked at: rx-usecs, rx-frames and adaptive-rx (ethtool -c), and the packets received while the doctor watched. A finding is a wait of 1000 us or more, or none at all while more than 100000 packets a second come, and that only where the driver does not adapt it by itself. Virtual devices and virtio are left out: these have no interrupts, that holds them back while it takes packets.\n\n\
        Its effect: `weir cost` (hard interrupts), and `weir bench rtt`.",
    run: |context| each(context, |device| coalescing(context, device)),
};

pub const THREADED_NAPI: Check = Check {
    id: "threaded-napi",
    title: "packets are handled by threads that compete with programs",
    severity: Severity::Advice,
    why: "With threaded NAPI the work is in kernel threads that the scheduler treats as any program: where CPUs are busy it waits, and %soft and softnet_stat show none of it.",
    source: "napi_threaded_poll in net/core/dev.c; Documentation/networking/napi.rst",
    more: "Looked at: /sys/class/net/DEV/threaded. It may be wanted, to move the work to CPUs of its own with taskset(1) on the threads napi/DEV-N. WireGuard always has it.\n\n\
        Its effect: `weir cost`, which counts such threads.",
    run: |context| each(context, |device| threaded(context, device)),
};

pub const IRQ_NUMA: Check = Check {
    id: "irq-numa",
    title: "interrupts of a card go to CPUs far from it",
    severity: Severity::Warning,
    why: "A CPU of another NUMA node fetches each descriptor and packet over the interconnect.",
    source: "Documentation/networking/scaling.rst, \"RSS: Suggested Configuration\"; /sys/class/net/DEV/device/numa_node",
    more: "Looked at: the card's NUMA node, that node's CPUs (/sys/devices/system/node/nodeN/cpulist), and where its interrupts go (/proc/irq/N/effective_affinity_list). There is nothing to look at on a machine of one node.\n\n\
        irqbalance(1) moves them again, unless it is told not to (IRQBALANCE_BANNED_CPULIST, --banirq). The kernel refuses to move those that a driver manages.\n\n\
        Its effect: `weir cost` (ns per packet).",
    run: |context| each(context, |device| irq_numa(context, device)),
};

/// From here on an interrupt is late, in microseconds.
const LATE_USECS: u32 = 1000;
/// From here on one for each packet is too many, in packets a second.
const MANY_PPS: f64 = 100_000.0;

fn queues(context: &Context, device: &Link) -> Result<Option<Verdict>> {
    if !is_wanted(context, device)? {
        return Ok(None);
    }
    let Some(channels) = ethtool::channels(&device.name)? else {
        return Ok(None);
    };
    let cpus = context
        .read("/sys/devices/system/cpu/online")?
        .parse::<CpuList>()?
        .as_slice()
        .len();
    let count = |queues: Queues| queues.tx + queues.combined;
    let evidence = vec![
        Evidence::new(
            format!("ethtool -l {}", device.name),
            format!(
                "{} transmit queues of at most {}",
                count(channels.used),
                count(channels.most)
            ),
        ),
        Evidence::new("/sys/devices/system/cpu/online", format!("{cpus} CPUs")),
    ];
    // A tap that nobody has opened has none, and needs none.
    let better = more_queues(&channels, cpus).filter(|_| count(channels.used) > 0);
    let Some(better) = better else {
        return Ok(Some(fine(&device.name, evidence)));
    };
    let name = &device.name;
    let set = |queues: Queues| command::words(&format!("ethtool -L {name} {}", settings(queues)));
    Ok(Some(Verdict::Finding(Finding {
        subject: name.clone(),
        evidence,
        message: format!(
            "{cpus} CPUs share {} of the transmit queues that {name} could have.",
            count(channels.used)
        ),
        fix: if device.kind.as_deref() == Some("tun") {
            Fix::Text(
                "a tap has as many as its owner opens: for QEMU, queues=N of -netdev tap".into(),
            )
        } else {
            command::fix(
                set(better),
                set(channels.used),
                Read::of_namespace(&["ethtool", "-l", name], ""),
            )
        },
    })))
}

/// A transmit queue for each CPU, or as many as there can be; none if that is what there is.
fn more_queues(channels: &Channels, cpus: usize) -> Option<Queues> {
    let (most, used) = (channels.most, channels.used);
    let cpus = u32::try_from(cpus).unwrap_or(u32::MAX);
    let wanted = cpus.min(most.tx + most.combined);
    if used.tx + used.combined >= wanted {
        return None;
    }
    Some(if most.combined > 0 {
        Queues {
            combined: wanted.saturating_sub(used.tx).min(most.combined),
            ..used
        }
    } else {
        Queues {
            rx: used.rx.max(wanted.min(most.rx)),
            tx: wanted,
            ..used
        }
    })
}

fn settings(queues: Queues) -> String {
    let named = [
        ("rx", queues.rx),
        ("tx", queues.tx),
        ("combined", queues.combined),
    ];
    let settings = named
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{name} {count}"));
    settings.collect::<Vec<_>>().join(" ")
}

fn ring(context: &Context, device: &Link) -> Result<Option<Verdict>> {
    let Some(ring) = ethtool::rx_ring(&device.name)? else {
        return Ok(None);
    };
    let lost = traffic::missed(context, &device.name)?;
    Ok(Some(ring_verdict(&device.name, ring, lost)))
}

/// What the check `ring-sizes` says of a device that lost so many packets while it was watched.
pub fn ring_verdict(device: &str, ring: RxRing, lost: u64) -> Verdict {
    let evidence = vec![
        Evidence::new(
            format!("ethtool -g {device}"),
            format!("RX {} of at most {}", ring.used, ring.most),
        ),
        Evidence::new(
            format!("/sys/class/net/{device}/statistics/rx_missed_errors, rx_fifo_errors"),
            format!("{lost} more while watched"),
        ),
    ];
    if lost == 0 || ring.used >= ring.most {
        return fine(device, evidence);
    }
    let set = |size: u32| command::words(&format!("ethtool -G {device} rx {size}"));
    Verdict::Finding(Finding {
        subject: device.into(),
        evidence,
        message: format!(
            "{device} lost {lost} packets for want of room, with a ring of {} where {} are possible.",
            ring.used, ring.most
        ),
        fix: command::fix(
            set(ring.most),
            set(ring.used),
            Read::of_namespace(&["ethtool", "-g", device], ""),
        ),
    })
}

fn coalescing(context: &Context, device: &Link) -> Result<Option<Verdict>> {
    // A virtual device has no interrupts of its own, and virtio holds them back while packets are
    // being taken.
    let is_virtio = super::driver(context, device).as_deref() == Some("virtio_net");
    if device.kind.is_some() || is_virtio {
        return Ok(None);
    }
    let Some(now) = ethtool::rx_coalesce(&device.name)? else {
        return Ok(None);
    };
    let traffic = traffic::of(context, &device.name)?;
    Ok(Some(coalescing_verdict(
        &device.name,
        now,
        traffic.rx_pps(),
    )))
}

/// What the check `coalescing` says of a device that receives so many packets a second.
pub fn coalescing_verdict(device: &str, now: RxCoalesce, pps: f64) -> Verdict {
    let evidence = vec![
        Evidence::new(
            format!("ethtool -c {device}"),
            format!(
                "rx-usecs {}, rx-frames {}, adaptive-rx {}",
                now.usecs,
                now.frames,
                if now.adaptive { "on" } else { "off" }
            ),
        ),
        Evidence::new(
            "/proc/net/dev",
            format!("{pps:.0} packets received a second"),
        ),
    ];
    let Some((message, usecs)) = wrong_coalescing(now, pps) else {
        return fine(device, evidence);
    };
    let set = |usecs: u32| command::words(&format!("ethtool -C {device} rx-usecs {usecs}"));
    Verdict::Finding(Finding {
        subject: device.into(),
        evidence,
        message: format!("{device} {message}."),
        fix: command::fix(
            set(usecs),
            set(now.usecs),
            Read::of_namespace(&["ethtool", "-c", device], "rx-usecs:"),
        ),
    })
}

/// What is wrong with it, and a better time to wait.
fn wrong_coalescing(now: RxCoalesce, pps: f64) -> Option<(&'static str, u32)> {
    match now {
        RxCoalesce { adaptive: true, .. } => None,
        RxCoalesce { usecs, .. } if usecs >= LATE_USECS => {
            Some(("interrupts a millisecond or more after a packet", 50))
        }
        RxCoalesce {
            usecs: 0,
            frames: 0 | 1,
            ..
        } if pps > MANY_PPS => Some(("may interrupt for each of very many packets", 20)),
        _ => None,
    }
}

fn threaded(context: &Context, device: &Link) -> Result<Option<Verdict>> {
    let path = format!("/sys/class/net/{}/threaded", device.name);
    let Some(value) = context.read_if_there(&path)? else {
        return Ok(None);
    };
    let evidence = vec![Evidence::new(&path, &value)];
    if value == "0" || device.kind.as_deref() == Some("wireguard") {
        return Ok(Some(fine(&device.name, evidence)));
    }
    Ok(Some(Verdict::Finding(Finding {
        subject: device.name.clone(),
        evidence,
        message: format!(
            "Threads handle the packets of {0}: napi/{0}-N.",
            device.name
        ),
        fix: Fix::Steps(vec![Step::Write {
            path,
            old: value,
            new: "0".into(),
        }]),
    })))
}

fn irq_numa(context: &Context, device: &Link) -> Result<Option<Verdict>> {
    let nodes = nodes(context)?;
    let Some((path, node)) = node_of(context, &device.name)? else {
        return Ok(None);
    };
    let Some(near) = nodes.get(&node).filter(|_| nodes.len() > 1) else {
        return Ok(None);
    };
    let far: Vec<_> = irq::of(context, &device.name)?
        .into_iter()
        .filter(|irq| irq.cpus.is_disjoint(near))
        .collect();
    let mut evidence = vec![
        Evidence::new(path, node.to_string()),
        Evidence::new(
            format!("/sys/devices/system/node/node{node}/cpulist"),
            near.to_string(),
        ),
    ];
    if far.is_empty() {
        return Ok(Some(fine(&device.name, evidence)));
    }
    let mut steps = Vec::new();
    for irq in far {
        evidence.push(irq.evidence());
        steps.push(Step::Write {
            path: irq.setting(),
            old: irq.allowed,
            new: context.read(&format!("/sys/devices/system/node/node{node}/cpulist"))?,
        });
    }
    Ok(Some(Verdict::Finding(Finding {
        subject: device.name.clone(),
        evidence,
        message: format!(
            "{} of the interrupts of {} go to CPUs of another NUMA node than its own, {node}.",
            steps.len(),
            device.name
        ),
        fix: Fix::Steps(steps),
    })))
}

/// The CPUs of each NUMA node.
fn nodes(context: &Context) -> Result<BTreeMap<u32, CpuList>> {
    let directory = "/sys/devices/system/node";
    let mut nodes = BTreeMap::new();
    for name in context.list(directory)? {
        let Some(Ok(number)) = name.strip_prefix("node").map(str::parse) else {
            continue;
        };
        let cpus: CpuList = context
            .read(&format!("{directory}/{name}/cpulist"))?
            .parse()?;
        // A node may be memory alone.
        if !cpus.as_slice().is_empty() {
            nodes.insert(number, cpus);
        }
    }
    Ok(nodes)
}

/// The NUMA node of a device and where that was read; a virtio device is a child of the PCI
/// device that has one. The kernel says -1 where it does not know.
fn node_of(context: &Context, device: &str) -> Result<Option<(String, u32)>> {
    for directory in ["device", "device/.."] {
        let path = format!("/sys/class/net/{device}/{directory}/numa_node");
        let node = context.read_if_there(&path)?;
        if let Some(Ok(node)) = node.map(|node| node.parse()) {
            return Ok(Some((path, node)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues(rx: u32, tx: u32, combined: u32) -> Queues {
        Queues { rx, tx, combined }
    }

    #[test]
    fn a_queue_for_each_cpu_as_far_as_there_are() {
        let more = |most, used, cpus| more_queues(&Channels { most, used }, cpus);
        assert_eq!(
            more(queues(2, 2, 0), queues(1, 1, 0), 2),
            Some(queues(2, 2, 0))
        );
        assert_eq!(more(queues(1, 1, 0), queues(1, 1, 0), 2), None);
        assert_eq!(
            more(queues(0, 0, 8), queues(0, 0, 2), 4),
            Some(queues(0, 0, 4))
        );
        assert_eq!(
            more(queues(0, 0, 3), queues(0, 0, 2), 64),
            Some(queues(0, 0, 3))
        );
        assert_eq!(more(queues(0, 0, 8), queues(0, 0, 8), 4), None);
        assert_eq!(settings(queues(0, 1, 4)), "tx 1 combined 4");
    }

    #[test]
    fn waits_are_wrong_when_late_or_missing_under_load() {
        let wrong = |usecs, frames, adaptive, pps| {
            let now = RxCoalesce {
                usecs,
                frames,
                adaptive,
            };
            wrong_coalescing(now, pps).is_some()
        };
        assert!(wrong(1000, 0, false, 0.0));
        assert!(!wrong(1000, 0, true, 0.0));
        assert!(!wrong(50, 0, false, 1e6));
        assert!(!wrong(0, 1, false, 1e3));
        assert!(wrong(0, 1, false, 1e6));
        assert!(!wrong(0, 64, false, 1e6));
    }
}
