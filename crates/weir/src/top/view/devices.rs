//! Network devices.

use super::scene::{Scene, count, moved, sum};
use crate::ledger::snapshot::{Counters, Device};
use crate::top::table::{Column, Explanation, Row, Table, Value};

const LINK: Explanation = Explanation {
    meaning: "",
    read: "rtnetlink, RTM_GETLINK: IFLA_STATS64 (struct rtnl_link_stats64 of linux/if_link.h)",
    scope: "the device, in its network namespace",
    without: "of packets before the driver: those that the card drops without a counter of the device",
    check: Some("device-errors"),
    command: "ip -s -s link show dev DEVICE",
};

const RECEIVED: Explanation = Explanation {
    without: "a merged packet (GRO) counts once for each packet on the wire; frames that zero-copy sockets or XDP \
              take count in most drivers, not in all",
    check: None,
    ..LINK
};

/// The namespace of the device of a row.
pub(super) const NAMESPACE: Column = Column::namespace(Explanation {
    meaning: "the network namespace, by its mount or its first process, and its container",
    read: "mounts of nsfs, /proc/PID/ns/net and /proc/PID/cgroup",
    scope: "the host, as far as its processes are visible",
    without: "namespaces that neither a process nor a mount holds",
    check: None,
    command: "lsns -t net; ip netns list",
});

/// The columns.
pub const COLUMNS: &[Column] = &[
    Column::text(
        "device",
        "DEVICE",
        15,
        Explanation {
            meaning: "the name of the device",
            without: "devices of namespaces that no process and no mount shows",
            check: None,
            ..LINK
        },
    ),
    NAMESPACE,
    Column::number(
        "rx_pps",
        "RX/s",
        Explanation {
            meaning: "packets received in a second (rx_packets)",
            ..RECEIVED
        },
    ),
    Column::number(
        "rx_bits_per_second",
        "RXbit/s",
        Explanation {
            meaning: "bits received in a second (rx_bytes)",
            without: "preamble, checksum and gap on the wire: 24 bytes a frame of Ethernet",
            check: None,
            ..LINK
        },
    ),
    Column::number(
        "tx_pps",
        "TX/s",
        Explanation {
            meaning: "packets sent in a second (tx_packets)",
            without: "packets that a queueing discipline dropped before; a segmented packet (TSO) counts by \
                      segments in most drivers, once in some",
            check: None,
            ..LINK
        },
    ),
    Column::number(
        "tx_bits_per_second",
        "TXbit/s",
        Explanation {
            meaning: "bits sent in a second (tx_bytes)",
            without: "preamble, checksum and gap on the wire: 24 bytes a frame of Ethernet",
            check: None,
            ..LINK
        },
    ),
    Column::bad(
        "rx_dropped_pps",
        "RXDROP/s",
        Explanation {
            meaning: "received packets dropped in a second: rx_dropped and rx_missed_errors",
            without: "drops of sockets, qdiscs, netfilter and protocols: see Drops. A veth's sending end counts \
                      drops of its peer as tx_dropped too",
            ..LINK
        },
    ),
    Column::bad(
        "tx_dropped_pps",
        "TXDROP/s",
        Explanation {
            meaning: "packets dropped in sending in a second (tx_dropped)",
            without: "drops of the queueing discipline, which are the next column's",
            ..LINK
        },
    ),
    Column::bad(
        "qdisc_dropped_pps",
        "QDISC/s",
        Explanation {
            meaning: "packets that queueing disciplines dropped in a second: those of its root, which has its children's as well",
            read: "rtnetlink, RTM_GETQDISC: TCA_STATS2, drops",
            scope: "the device, sending",
            without: "programs at tcx, which have no counter",
            check: None,
            command: "tc -s qdisc show dev DEVICE",
        },
    ),
    Column::bad(
        "errors_pps",
        "ERRORS/s",
        Explanation {
            meaning: "rx_errors and tx_errors in a second",
            without: "errors that the card keeps to its own counters (ethtool -S)",
            ..LINK
        },
    ),
    Column::bad(
        "dropped",
        "DROPPED",
        Explanation {
            meaning: "packets dropped since weir top began, or since `z`: rx_dropped, rx_missed_errors, tx_dropped \
                   and the queueing discipline's",
            ..LINK
        },
    ),
    Column::text(
        "driver_loss",
        "DRIVER'S LOSS",
        34,
        Explanation {
            meaning: "the driver's own counter of losses that moved most in the interval, with its rate a second",
            read: "ioctl SIOCETHTOOL, ETHTOOL_GSTATS; names with drop, discard, err, miss, no_buf or full",
            scope: "as the driver defines it: the queue, the device, or the whole port with other hosts' packets",
            without: "drivers name and count as they like; part of it may be in the other columns as well",
            check: Some("device-errors"),
            command: "ethtool -S DEVICE",
        },
    ),
    Column::text(
        "xdp",
        "XDP",
        16,
        Explanation {
            meaning: "the id of the device's XDP program, and where it runs: driver or generic",
            read: "rtnetlink, RTM_GETLINK: IFLA_XDP",
            scope: "the device",
            without: "programs behind a dispatcher of libxdp, which is the only one that the device shows",
            check: Some("xdp-generic"),
            command: "ip -d link show dev DEVICE; bpftool net",
        },
    ),
    Column::text(
        "kind",
        "KIND",
        10,
        Explanation {
            meaning: "the kind of a virtual device, such as veth; none for hardware",
            read: "rtnetlink, RTM_GETLINK: IFLA_INFO_KIND",
            without: "nothing",
            check: None,
            command: "ip -d link show dev DEVICE",
            ..LINK
        },
    ),
    Column::number(
        "queues",
        "QUEUES",
        Explanation {
            meaning: "the device's receive queues",
            read: "rtnetlink, RTM_GETLINK: IFLA_NUM_RX_QUEUES",
            without: "how many of them the driver uses: ethtool -l",
            check: Some("queues"),
            command: "ethtool -l DEVICE",
            ..LINK
        },
    ),
];

/// The table.
pub fn table(scene: &Scene) -> Table {
    let mut rows = Vec::new();
    for (&netns, namespace) in &scene.now().namespaces {
        for (&index, device) in &namespace.devices {
            rows.push(row(scene, netns, index, device));
        }
    }
    Table {
        columns: COLUMNS,
        rows,
        ..Table::default()
    }
}

fn row(scene: &Scene, netns: u64, index: u32, device: &Device) -> Row {
    let before = scene.then().and_then(|it| it.device(netns, index));
    let rate = |names: &[&str]| {
        let then = before.and_then(|it| sum(&it.statistics, names));
        scene.rate(then, sum(&device.statistics, names))
    };
    let bits = |name| match rate(&[name]) {
        Value::Rate(bytes) => Value::Rate(bytes * 8.0),
        none => none,
    };
    let cells = vec![
        Value::Text(device.name.clone()),
        scene.namespace(netns),
        rate(&["rx_packets"]),
        bits("rx_bytes"),
        rate(&["tx_packets"]),
        bits("tx_bytes"),
        rate(&RX_DROPS),
        rate(&["tx_dropped"]),
        scene.rate(before.map(qdisc_drops), Some(qdisc_drops(device))),
        rate(&["rx_errors", "tx_errors"]),
        Value::or_none(dropped(scene, netns, index, device), Value::Count),
        Value::text(driver_loss(scene, before, device)),
        Value::text(xdp(device)),
        Value::text(device.kind.clone()),
        Value::Count(device.queues.into()),
    ];
    Row {
        key: format!("{netns}/{index}"),
        cells,
    }
}

const RX_DROPS: [&str; 2] = ["rx_dropped", "rx_missed_errors"];

/// Since the first frame, or since the device is there.
fn dropped(scene: &Scene, netns: u64, index: u32, device: &Device) -> Option<u64> {
    let of = |device: &Device| {
        let driver = sum(
            &device.statistics,
            &[&RX_DROPS[..], &["tx_dropped"]].concat(),
        );
        driver.unwrap_or_default() + qdisc_drops(device)
    };
    match scene.at_first().device(netns, index) {
        Some(first) => moved(Some(of(first)), Some(of(device))),
        None => Some(of(device)),
    }
}

/// Of a tree of queueing disciplines, the root has the drops of its children as well.
fn qdisc_drops(device: &Device) -> u64 {
    let roots = device
        .qdiscs
        .iter()
        .filter(|(name, _)| name.ends_with(" root"));
    roots
        .filter_map(|(_, counters)| count(counters, "drops"))
        .sum()
}

/// The words by which drivers name losses.
const LOSSES: [&str; 6] = ["drop", "discard", "err", "miss", "no_buf", "full"];

fn driver_loss(scene: &Scene, before: Option<&Device>, device: &Device) -> Option<String> {
    let then = &before?.driver;
    let moved = |name: &str, counters: &Counters| {
        moved(count(then, name), count(counters, name)).filter(|moved| *moved > 0)
    };
    let names = device.driver.keys();
    let losses = names.filter(|name| LOSSES.iter().any(|loss| name.contains(loss)));
    let most = losses.filter_map(|name| Some((moved(name, &device.driver)?, name)));
    let (most, name) = most.max_by_key(|(moved, _)| *moved)?;
    let rate = Value::Rate(most as f64 / scene.seconds()?);
    Some(format!("{name} {}", rate.show()))
}

fn xdp(device: &Device) -> Option<String> {
    let driver = device.xdp_driver.map(|id| format!("{id} driver"));
    driver.or_else(|| device.xdp_generic.map(|id| format!("{id} generic")))
}
