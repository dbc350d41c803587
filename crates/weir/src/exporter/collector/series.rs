//! Series of a snapshot and a sheet: who they are about, and their values.

use std::collections::{BTreeMap, BTreeSet};

use crate::exporter::family::{Labels, Subject};
use crate::ledger::sheet::{Direction, Edge, Loss};
use crate::ledger::snapshot::{Device, Ring, Snapshot, XdpSocket};

/// Counters of IPv4 and of IPv6.
const IP: &[&str] = &[
    "InReceives",
    "InDelivers",
    "InDiscards",
    "InHdrErrors",
    "InAddrErrors",
    "OutDiscards",
    "OutNoRoutes",
    "ReasmFails",
];

/// Counters of UDP over each of them.
const UDP: &[&str] = &[
    "InDatagrams",
    "OutDatagrams",
    "NoPorts",
    "InErrors",
    "RcvbufErrors",
    "SndbufErrors",
    "InCsumErrors",
    "MemErrors",
];

/// Counters of protocols that the page shows, by protocol.
pub(super) const MIB: &[(&str, &[&str])] = &[
    ("Ip", IP),
    ("Ip6", IP),
    ("Udp", UDP),
    ("Udp6", UDP),
    (
        "Tcp",
        &[
            "InSegs",
            "OutSegs",
            "RetransSegs",
            "InErrs",
            "OutRsts",
            "AttemptFails",
        ],
    ),
    (
        "TcpExt",
        &[
            "ListenOverflows",
            "ListenDrops",
            "TCPBacklogDrop",
            "TCPRcvQDrop",
            "TCPZeroWindowDrop",
            "RcvPruned",
            "TCPTimeouts",
            "TCPReqQFullDrop",
            "IPReversePathFilter",
            "TCPSynRetrans",
        ],
    ),
];

pub(super) const XDP_SOCKET: [&str; 5] = [
    "rx_dropped",
    "rx_full",
    "fill_empty",
    "tx_empty",
    "tx_invalid",
];

/// The subjects that exist.
pub(super) struct Subjects(BTreeMap<u64, BTreeSet<String>>);

impl Subjects {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let names =
            |devices: &BTreeMap<u32, Device>| devices.values().map(|it| it.name.clone()).collect();
        Self(
            snapshot
                .namespaces
                .iter()
                .map(|(inode, namespace)| (*inode, names(&namespace.devices)))
                .collect(),
        )
    }

    pub(super) fn has(&self, subject: &Subject) -> bool {
        let devices = match subject.netns {
            0 => None,
            inode => match self.0.get(&inode) {
                Some(devices) => Some(devices),
                None => return false,
            },
        };
        match (devices, &subject.device) {
            (Some(devices), Some(device)) => devices.contains(device),
            _ => true,
        }
    }
}

/// The label of a namespace: its name, and its container's where that is known.
pub(super) fn namespace(snapshot: &Snapshot, inode: u64) -> String {
    let Some(namespace) = snapshot.namespaces.get(&inode) else {
        return String::new();
    };
    // A process ends before its namespace does, and its id says nothing a day later.
    let is_process = namespace.name.starts_with("process ");
    match &namespace.container {
        Some(container) if is_process => container.clone(),
        Some(container) => format!("{} ({container})", namespace.name),
        None if is_process => format!("net:[{inode}]"),
        None => namespace.name.clone(),
    }
}

/// The same in a sheet, which has a name for a namespace that the snapshot lacks.
fn namespace_of(snapshot: &Snapshot, inode: u64, named: &str) -> String {
    if snapshot.namespaces.contains_key(&inode) {
        namespace(snapshot, inode)
    } else {
        named.to_owned()
    }
}

pub(super) fn count_losses<'a>(
    losses: impl Iterator<Item = &'a Loss>,
    snapshot: &Snapshot,
) -> BTreeMap<Labels, (u64, Subject)> {
    let mut counted: BTreeMap<Labels, (u64, Subject)> = BTreeMap::new();
    for loss in losses {
        let labels = Labels::new(&[
            loss.stage.name(),
            &loss.reason,
            loss.place.as_deref().unwrap_or_default(),
            &namespace_of(snapshot, loss.netns, &loss.namespace),
            loss.device.as_deref().unwrap_or_default(),
        ]);
        let subject = Subject {
            netns: loss.netns,
            device: loss.device.clone(),
        };
        let entry = counted.entry(labels).or_default();
        entry.0 += loss.count;
        entry.1 = subject;
    }
    counted
}

/// Edges by their device; those of sockets, whose names are addresses, are added up. One that cannot be drawn to
/// the last packet here has nothing to compare.
pub(super) fn sum_edges(
    edges: &[Edge],
    snapshot: &Snapshot,
) -> (BTreeMap<Labels, f64>, BTreeMap<Labels, f64>) {
    let mut unexplained: BTreeMap<Labels, f64> = BTreeMap::new();
    let mut bound: BTreeMap<Labels, f64> = BTreeMap::new();
    for edge in edges.iter().filter(|edge| edge.open.is_empty()) {
        let is_device = |name: &&str| {
            let found = snapshot.namespaces.get(&edge.netns);
            found.is_some_and(|it| it.devices.values().any(|device| device.name == *name))
        };
        let direction = match edge.direction {
            Direction::Receive => "receive",
            Direction::Transmit => "transmit",
        };
        let labels = Labels::new(&[
            direction,
            edge.from.name(),
            edge.to.name(),
            &namespace_of(snapshot, edge.netns, &edge.namespace),
            edge.subject
                .as_deref()
                .filter(is_device)
                .unwrap_or_default(),
        ]);
        *bound.entry(labels.clone()).or_default() += edge.bound as f64;
        *unexplained.entry(labels).or_default() += edge.unexplained as f64;
    }
    (unexplained, bound)
}

/// Adds up values with the same labels: two namespaces may have the same name.
pub(super) fn sum(values: impl Iterator<Item = (Labels, u64)>) -> BTreeMap<Labels, u64> {
    let mut sums: BTreeMap<Labels, u64> = BTreeMap::new();
    for (labels, value) in values {
        let sum = sums.entry(labels).or_default();
        *sum = sum.saturating_add(value);
    }
    sums
}

pub(super) fn devices(snapshot: &Snapshot) -> impl Iterator<Item = (String, &Device)> {
    snapshot.namespaces.iter().flat_map(|(inode, it)| {
        let name = namespace(snapshot, *inode);
        it.devices
            .values()
            .map(move |device| (name.clone(), device))
    })
}

pub(super) fn device_packets(snapshot: &Snapshot) -> BTreeMap<Labels, u64> {
    sum(devices(snapshot).flat_map(|(namespace, device)| {
        [("receive", "rx_packets"), ("transmit", "tx_packets")]
            .into_iter()
            .filter_map(move |(direction, counter)| {
                let value = device.statistics.get(counter)?.value;
                let labels = Labels::new(&[direction, &namespace, &device.name]);
                Some((labels, value))
            })
    }))
}

/// Those that are not zero: most devices never have any.
pub(super) fn device_errors(snapshot: &Snapshot) -> BTreeMap<Labels, u64> {
    sum(devices(snapshot).flat_map(|(namespace, device)| {
        device
            .statistics
            .iter()
            .filter(|(name, reading)| is_error(name) && reading.value > 0)
            .map(move |(name, reading)| {
                let labels = Labels::new(&[name, &namespace, &device.name]);
                (labels, reading.value)
            })
    }))
}

pub(super) fn is_error(counter: &str) -> bool {
    !matches!(
        counter,
        "rx_packets"
            | "tx_packets"
            | "rx_bytes"
            | "tx_bytes"
            | "multicast"
            | "rx_compressed"
            | "tx_compressed"
    )
}

pub(super) fn mib(snapshot: &Snapshot) -> BTreeMap<Labels, u64> {
    sum(snapshot.namespaces.iter().flat_map(|(inode, it)| {
        let namespace = namespace(snapshot, *inode);
        MIB.iter().flat_map(move |(protocol, counters)| {
            let namespace = namespace.clone();
            counters.iter().filter_map(move |counter| {
                let value = it.mib.get(&format!("{protocol}.{counter}"))?.value;
                let labels = Labels::new(&[protocol, counter, &namespace]);
                Some((labels, value))
            })
        })
    }))
}

pub(super) fn neighbours(snapshot: &Snapshot) -> BTreeMap<Labels, u64> {
    // The entries are no counter.
    let counters = snapshot.neighbours.iter().filter_map(|(name, reading)| {
        let (table, counter) = name.split_once('.').filter(|(_, it)| *it != "entries")?;
        Some((Labels::new(&[table, counter]), reading.value))
    });
    counters.collect()
}

pub(super) fn bound(snapshot: &Snapshot) -> impl Iterator<Item = &XdpSocket> {
    snapshot.xdp_sockets.iter().flatten().filter(|it| it.bound)
}

pub(super) fn rings(socket: &XdpSocket) -> impl Iterator<Item = (&'static str, Ring)> {
    [
        ("rx", socket.rx),
        ("tx", socket.tx),
        ("fill", socket.fill),
        ("completion", socket.completion),
    ]
    .into_iter()
    .filter_map(|(name, ring)| Some((name, ring?)))
}

pub(super) fn xdp_labels(snapshot: &Snapshot, socket: &XdpSocket, first: &str) -> Labels {
    let mode = if socket.zero_copy {
        "zero-copy"
    } else {
        "copy"
    };
    let device = snapshot.device(socket.netns, socket.device);
    Labels::new(&[
        first,
        mode,
        &namespace(snapshot, socket.netns),
        device.map_or("", |it| &it.name),
        &socket.queue.to_string(),
    ])
}

/// Growth of the sockets' counters since the last snapshot. A new socket counts from its beginning, except in the
/// first snapshot.
pub(super) fn xdp_socket_counts(
    snapshot: &Snapshot,
    last: &mut BTreeMap<u64, [u64; 5]>,
    is_first: bool,
) -> BTreeMap<Labels, (u64, Subject)> {
    let mut counted: BTreeMap<Labels, (u64, Subject)> = BTreeMap::new();
    let mut now = BTreeMap::new();
    for socket in bound(snapshot) {
        let values = [
            socket.rx_dropped,
            socket.rx_full,
            socket.fill_empty,
            socket.tx_empty,
            socket.tx_invalid,
        ];
        let before = match last.get(&socket.cookie) {
            Some(before) => *before,
            None if is_first => values,
            None => [0; 5],
        };
        let device = snapshot.device(socket.netns, socket.device);
        for ((name, value), before) in XDP_SOCKET.into_iter().zip(values).zip(before) {
            let entry = counted
                .entry(xdp_labels(snapshot, socket, name))
                .or_default();
            entry.0 += value.saturating_sub(before);
            entry.1 = Subject {
                netns: socket.netns,
                device: device.map(|it| it.name.clone()),
            };
        }
        now.insert(socket.cookie, values);
    }
    *last = now;
    counted
}
