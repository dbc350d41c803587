//! The counters that are read twice: protocols, devices, drivers and queueing disciplines.

use std::collections::BTreeMap;

use anyhow::Result;
use hostnet::ethtool;
use hostnet::mib::{self, Mib};
use hostnet::rtnetlink::{Link, Qdisc, Rtnetlink, TcHandle};

use crate::ledger::snapshot::{Counters, Device, Namespace, Reading, Snapshot, is_pair};

/// The counters of a namespace by one reading.
#[derive(Debug)]
pub struct Quick {
    mib: Mib,
    links: Vec<Link>,
    qdiscs: Vec<Qdisc>,
    drivers: BTreeMap<u32, Driver>,
}

/// A driver's statistics.
#[derive(Debug, Clone, Default)]
struct Driver {
    /// Those of its queues added.
    all: Counters,
    by_queue: BTreeMap<String, Counters>,
}

impl Quick {
    /// Reads those of the calling thread's namespace; of these devices, if any are named.
    /// Of a device that has not moved since `earlier`, the driver is not asked again.
    pub fn read(devices: &[String], earlier: Option<&Self>) -> Result<Self> {
        let mib = if devices.is_empty() {
            mib::read()?
        } else {
            Mib::default()
        };
        let mut rtnetlink = Rtnetlink::open()?;
        let mut links = rtnetlink.links()?;
        let is_wanted = |link: &Link| devices.iter().any(|name| link.is_named(name));
        links.retain(|link| devices.is_empty() || is_wanted(link));
        let qdiscs = rtnetlink.qdiscs()?;
        let drivers = links.iter().filter(|link| !link.loopback).map(|link| {
            let unmoved = earlier.and_then(|earlier| earlier.unmoved(link));
            // A device may vanish, or have none.
            let read = || driver(&link.name).unwrap_or_default();
            (link.index, unmoved.cloned().unwrap_or_else(read))
        });
        Ok(Self {
            drivers: drivers.collect(),
            mib,
            links,
            qdiscs,
        })
    }

    /// The driver's statistics of a device whose own have stayed the same.
    fn unmoved(&self, now: &Link) -> Option<&Driver> {
        let mut links = self.links.iter();
        let then = links.find(|link| link.index == now.index)?;
        (then.statistics == now.statistics).then(|| self.drivers.get(&now.index))?
    }

    /// Whether a device was read.
    pub fn has_device(&self, name: &str) -> bool {
        self.links.iter().any(|link| link.is_named(name))
    }

    /// Puts them into a namespace of a snapshot.
    pub fn fill(&self, namespace: &mut Namespace) {
        namespace.mib = readings(&self.mib);
        for link in &self.links {
            let statistics = link.statistics.iter();
            let driver = self.drivers.get(&link.index).cloned().unwrap_or_default();
            let device = Device {
                name: link.name.clone(),
                kind: link.kind.clone(),
                loopback: link.loopback,
                queues: link.queues,
                controller: link.controller,
                lower: link.lower.filter(|_| link.lower_netns.is_none()),
                peer: None,
                xdp_driver: link.xdp_programs.driver,
                xdp_generic: link.xdp_programs.generic,
                statistics: statistics
                    .map(|(name, value)| (name.to_owned(), value.into()))
                    .collect(),
                driver: driver.all,
                by_queue: driver.by_queue,
                qdiscs: BTreeMap::new(),
                qdisc_parents: BTreeMap::new(),
            };
            namespace.devices.insert(link.index, device);
        }
        for qdisc in &self.qdiscs {
            let Some(device) = namespace.devices.get_mut(&qdisc.device) else {
                continue;
            };
            let name = qdisc_name(qdisc);
            if let Some(parent) = parent_of(qdisc, &self.qdiscs) {
                device
                    .qdisc_parents
                    .insert(name.clone(), qdisc_name(parent));
            }
            if let Some(statistics) = qdisc.statistics {
                // Those that the kernel made below `mq` have one name: no handle tells them apart.
                let counters = device.qdiscs.entry(name).or_default();
                for (name, value) in [
                    ("packets", statistics.packets),
                    ("bytes", statistics.bytes),
                    ("drops", statistics.drops.into()),
                    ("overlimits", statistics.overlimits.into()),
                    ("requeues", statistics.requeues.into()),
                    ("backlog", statistics.backlog.into()),
                    ("queue_length", statistics.queue_length.into()),
                ] {
                    counters.entry(name.to_owned()).or_default().value += value;
                }
            }
        }
    }
}

/// The discipline that a discipline is below. The kernel's own `mq` has the handle 0, and so have its children,
/// whose parents are `:1`, `:2` and so on.
fn parent_of<'q>(qdisc: &Qdisc, all: &'q [Qdisc]) -> Option<&'q Qdisc> {
    // The root and those of filters have parents of a number that is no discipline's.
    if qdisc.parent.major == TcHandle::ROOT.major || qdisc.parent == TcHandle::UNSPEC {
        return None;
    }
    all.iter().find(|it| {
        it.device == qdisc.device
            && it.handle.major == qdisc.parent.major
            && (it.handle.major != 0 || it.parent == TcHandle::ROOT)
    })
}

/// Kind and handle as `tc` prints them; `root` for the root.
fn qdisc_name(qdisc: &Qdisc) -> String {
    let root = if qdisc.parent == TcHandle::ROOT {
        " root"
    } else {
        ""
    };
    format!("{} {:x}:{root}", qdisc.kind, qdisc.handle.major)
}

fn driver(device: &str) -> Result<Driver> {
    let mut driver = Driver::default();
    for statistic in ethtool::statistics(device)? {
        let counter = driver
            .all
            .entry(without_queue(&statistic.name))
            .or_default();
        counter.value = counter.value.wrapping_add(statistic.value);
        if let Some((queue, name)) = queue_of(&statistic.name) {
            let counters = driver.by_queue.entry(queue).or_default();
            counters.insert(name.to_owned(), statistic.value.into());
        }
    }
    Ok(driver)
}

/// The forms of names of a queue's counters: before the number, behind it, and the direction.
const OF_QUEUES: [(&str, &str, &str); 8] = [
    // igb, igc, ixgbe, ice, virtio_net, veth, hv_netvsc.
    ("rx_queue_", "_", "rx"),
    ("tx_queue_", "_", "tx"),
    // i40e, iavf; sfc repeats the direction.
    ("rx-", ".", "rx"),
    ("tx-", ".", "tx"),
    // mlx5, mlx4.
    ("rx", "_", "rx"),
    ("tx", "_", "tx"),
    // ena.
    ("queue_", "_rx_", "rx"),
    ("queue_", "_tx_", "tx"),
];

/// The queue of a counter, and its name without it: `rx 0` and `drops` of `rx_queue_0_drops`.
fn queue_of(name: &str) -> Option<(String, &str)> {
    OF_QUEUES.iter().find_map(|(before, behind, direction)| {
        let rest = name.strip_prefix(before)?;
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let queue: u32 = rest[..digits].parse().ok()?;
        let name = rest[digits..].strip_prefix(behind)?;
        let name = name.strip_prefix(&format!("{direction}_")).unwrap_or(name);
        Some((format!("{direction} {queue}"), name))
    })
}

/// `rx_queue_0_drops` is `rx_queue_*_drops`: a number between separators, or behind `rx`, `tx`, `q`.
fn without_queue(name: &str) -> String {
    let mut out = String::new();
    let mut rest = name;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let end = rest[start..]
            .find(|c: char| !c.is_ascii_digit())
            .map_or(rest.len(), |length| start + length);
        let (before, after) = (&rest[..start], &rest[end..]);
        let is_queue = ["_", "-", ".", "rx", "tx", "q"]
            .iter()
            .any(|mark| before.ends_with(mark))
            && (after.is_empty() || after.starts_with(['_', '-', '.', ':']));
        out.push_str(before);
        out.push_str(if is_queue { "*" } else { &rest[start..end] });
        rest = after;
    }
    out + rest
}

/// The counters of protocols as readings.
pub fn readings(mib: &Mib) -> Counters {
    mib.iter()
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect()
}

/// Notes how far counters moved until `later`. One that went back began anew.
pub fn note_motion(counters: &mut Counters, later: &Counters) {
    for (name, reading) in counters {
        let later = later.get(name).map_or(reading.value, |later| later.value);
        *reading = Reading {
            value: reading.value,
            moved: later.saturating_sub(reading.value),
        };
    }
}

/// The same for all counters of a namespace.
pub fn note_motion_of(namespace: &mut Namespace, later: &Namespace) {
    note_motion(&mut namespace.mib, &later.mib);
    for (index, device) in &mut namespace.devices {
        let Some(later) = later.devices.get(index) else {
            continue;
        };
        note_motion(&mut device.statistics, &later.statistics);
        note_motion(&mut device.driver, &later.driver);
        for (name, qdisc) in &mut device.qdiscs {
            if let Some(later) = later.qdiscs.get(name) {
                note_motion(qdisc, later);
            }
        }
    }
}

/// Finds the other end of each veth and netkit, by the two indices that each end knows; none where two pairs have the same.
pub fn find_peers(snapshot: &mut Snapshot, quick: &BTreeMap<u64, Quick>) {
    let ends: Vec<(u64, u32, u32, bool)> = quick
        .iter()
        .flat_map(|(inode, quick)| quick.links.iter().map(move |link| (*inode, link)))
        .filter(|(_, link)| is_pair(link.kind.as_deref()))
        .filter_map(|(inode, link)| {
            Some((inode, link.index, link.lower?, link.lower_netns.is_some()))
        })
        .collect();
    for &(inode, index, lower, is_foreign) in &ends {
        let mut peers = ends.iter().filter(|&&(other, its_index, its_lower, _)| {
            its_index == lower && its_lower == index && (other != inode) == is_foreign
        });
        if let (Some(peer), None) = (peers.next(), peers.next())
            && let Some(device) = snapshot
                .namespaces
                .get_mut(&inode)
                .and_then(|namespace| namespace.devices.get_mut(&index))
        {
            device.peer = Some((peer.0, peer.1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_queues_are_left_out() {
        for (name, without) in [
            ("rx_queue_0_xdp_drops", "rx_queue_*_xdp_drops"),
            ("tx_queue_12_xdp_xmit", "tx_queue_*_xdp_xmit"),
            ("rx0_packets", "rx*_packets"),
            ("rx-3.bytes", "rx-*.bytes"),
            ("queue_7_rx_cnt", "queue_*_rx_cnt"),
            ("rx_crc_errors", "rx_crc_errors"),
            ("rx_size_64", "rx_size_*"),
            ("rx_64_to_127_bytes", "rx_*_to_*_bytes"),
            ("ipv4_packets", "ipv4_packets"),
        ] {
            assert_eq!(without_queue(name), without);
        }
    }

    #[test]
    fn counters_of_queues_are_known() {
        for (name, queue, counter) in [
            ("rx_queue_0_xdp_drops", "rx 0", "xdp_drops"),
            ("tx_queue_12_xdp_xmit", "tx 12", "xdp_xmit"),
            ("rx0_packets", "rx 0", "packets"),
            ("rx-3.bytes", "rx 3", "bytes"),
            ("rx-3.rx_packets", "rx 3", "packets"),
            ("queue_7_rx_cnt", "rx 7", "cnt"),
        ] {
            assert_eq!(queue_of(name), Some((queue.to_owned(), counter)));
        }
        for name in [
            "rx_packets",
            "rx_64_to_127_bytes",
            "rx0",
            "queue_1_rx",
            "peer_ifindex",
        ] {
            assert_eq!(queue_of(name), None, "{name}");
        }
    }

    #[test]
    fn a_discipline_is_below_another() {
        let qdisc = |kind: &str, major, parent| Qdisc {
            device: 2,
            kind: kind.into(),
            handle: TcHandle { major, minor: 0 },
            parent,
            options: hostnet::rtnetlink::QdiscOptions::None,
            statistics: None,
        };
        let queue = TcHandle { major: 0, minor: 2 };
        let class = TcHandle { major: 1, minor: 5 };
        let of_kernel = [qdisc("mq", 0, TcHandle::ROOT), qdisc("fq_codel", 0, queue)];
        assert_eq!(parent_of(&of_kernel[1], &of_kernel), Some(&of_kernel[0]));
        assert_eq!(parent_of(&of_kernel[0], &of_kernel), None);
        let of_person = [qdisc("htb", 1, TcHandle::ROOT), qdisc("pfifo", 2, class)];
        assert_eq!(parent_of(&of_person[1], &of_person), Some(&of_person[0]));
        let filters = qdisc("clsact", 0xffff, TcHandle::INGRESS);
        assert_eq!(parent_of(&filters, &of_kernel), None);
    }

    #[test]
    fn motion_is_what_came_between_the_readings() {
        let counters = |value: u64| Counters::from([("a".to_owned(), Reading::from(value))]);
        let mut first = counters(5);
        note_motion(&mut first, &counters(7));
        assert_eq!(first["a"], Reading { value: 5, moved: 2 });
        note_motion(&mut first, &counters(1));
        assert_eq!(first["a"], Reading { value: 5, moved: 0 }, "it began anew");
    }
}
