//! The queues of devices, as far as their drivers count by queue.

use super::devices::NAMESPACE;
use super::scene::{Scene, count, nothing, sum};
use crate::ledger::snapshot::{Counters, Device};
use crate::top::table::{Column, Explanation, Row, Table, Value};

const DRIVER: Explanation = Explanation {
    meaning: "",
    read: "ioctl SIOCETHTOOL, ETHTOOL_GSTATS: the driver's counters with the queue's number in their name",
    scope: "the queue",
    without: "packets that the driver does not count by queue",
    check: None,
    command: "ethtool -S DEVICE",
};

/// The columns.
pub const COLUMNS: &[Column] = &[
    Column::text(
        "device",
        "DEVICE",
        15,
        Explanation {
            meaning: "the name of the device",
            without: "devices whose drivers have no counters by queue",
            ..DRIVER
        },
    ),
    NAMESPACE,
    Column::text(
        "queue",
        "QUEUE",
        10,
        Explanation {
            meaning: "the direction and the number of the queue",
            without: "which CPU its interrupt goes to: /proc/interrupts",
            check: Some("irq-affinity"),
            ..DRIVER
        },
    ),
    Column::number(
        "packets_pps",
        "PKT/s",
        Explanation {
            meaning: "packets of the queue in a second. Of a veth, packets that its XDP program saw",
            check: Some("queues"),
            ..DRIVER
        },
    ),
    Column::number(
        "bits_per_second",
        "bit/s",
        Explanation {
            meaning: "bits of these packets in a second",
            ..DRIVER
        },
    ),
    Column::number(
        "share_percent",
        "SHARE%",
        Explanation {
            meaning: "the queue's part of the packets of all queues of the device in this direction",
            without: "whether an even spread is possible: RSS gives all packets of a flow to one queue",
            check: Some("queues"),
            command: "ethtool -S DEVICE; ethtool -x DEVICE",
            ..DRIVER
        },
    ),
    Column::bad(
        "dropped_pps",
        "DROP/s",
        Explanation {
            meaning: "the sum of the queue's counters with drop or discard in their name, in a second",
            without: "XDP_DROP, which is the program's will: the column XDP/s",
            check: Some("ring-sizes"),
            ..DRIVER
        },
    ),
    Column::bad(
        "errors_pps",
        "ERRORS/s",
        Explanation {
            meaning: "the sum of the queue's counters with err, fail or no_buf in their name, in a second",
            check: Some("device-errors"),
            ..DRIVER
        },
    ),
    Column::number(
        "xdp_pps",
        "XDP/s",
        Explanation {
            meaning: "packets that an XDP program dropped, redirected or sent back, in a second",
            without: "XDP_PASS; drivers that do not count verdicts",
            check: Some("xdp-features"),
            ..DRIVER
        },
    ),
];

/// The table.
pub fn table(scene: &Scene) -> Table {
    let mut rows = Vec::new();
    for (&netns, namespace) in &scene.now().namespaces {
        for (&index, device) in &namespace.devices {
            let before = scene.then().and_then(|it| it.device(netns, index));
            rows.extend(rows_of(scene, netns, index, device, before));
        }
    }
    if rows.is_empty() {
        let reason = "no driver here counts by queue (ethtool -S)";
        return nothing(COLUMNS, reason.into());
    }
    Table {
        columns: COLUMNS,
        rows,
        ..Table::default()
    }
}

fn rows_of(
    scene: &Scene,
    netns: u64,
    index: u32,
    device: &Device,
    before: Option<&Device>,
) -> Vec<Row> {
    let packets = |queue: &str| {
        let then = before
            .and_then(|it| it.by_queue.get(queue))
            .and_then(packets);
        scene.rate(then, packets_now(device, queue))
    };
    let of_all = |direction: &str| -> f64 {
        let queues = device.by_queue.keys();
        let queues = queues.filter(|queue| queue.starts_with(direction));
        queues.filter_map(|queue| packets(queue).number()).sum()
    };
    let sums = ["rx", "tx"].map(|direction| (direction, of_all(direction)));
    let row = |(queue, counters): (&String, &Counters)| {
        let then = before.and_then(|it| it.by_queue.get(queue));
        let rate =
            |of: &dyn Fn(&Counters) -> Option<u64>| scene.rate(then.and_then(of), of(counters));
        let in_all = sums
            .iter()
            .find(|(direction, _)| queue.starts_with(direction));
        let share = match (packets(queue).number(), in_all) {
            (Some(packets), Some((_, all))) if *all > 0.0 => Value::Percent(packets / all * 100.0),
            _ => Value::None,
        };
        let bits = match rate(&|it| first(it, &["bytes", "xdp_bytes"])) {
            Value::Rate(bytes) => Value::Rate(bytes * 8.0),
            none => none,
        };
        Row {
            key: format!("{netns}/{index}/{queue}"),
            cells: vec![
                Value::Text(device.name.clone()),
                scene.namespace(netns),
                Value::Text(queue.clone()),
                packets(queue),
                bits,
                share,
                rate(&|it| matching(it, |name| is_loss(name) && !is_verdict(name))),
                rate(&|it| matching(it, is_error)),
                rate(&|it| matching(it, |name| is_verdict(name) && !is_error(name))),
            ],
        }
    };
    device.by_queue.iter().map(row).collect()
}

fn packets_now(device: &Device, queue: &str) -> Option<u64> {
    device.by_queue.get(queue).and_then(packets)
}

/// The packets of a queue: mlx5 counts those of zero-copy sockets apart, veth those that XDP saw.
fn packets(counters: &Counters) -> Option<u64> {
    let plain = sum(counters, &["packets", "xsk_packets"]);
    plain.or_else(|| first(counters, &["xdp_packets", "cnt"]))
}

fn first(counters: &Counters, names: &[&str]) -> Option<u64> {
    names.iter().find_map(|name| count(counters, name))
}

fn is_loss(name: &str) -> bool {
    name.contains("drop") || name.contains("discard")
}

fn is_error(name: &str) -> bool {
    ["err", "fail", "no_buf"].iter().any(|it| name.contains(it))
}

fn is_verdict(name: &str) -> bool {
    let verdicts = ["drop", "redirect", "tx", "xmit"];
    let verdict = name.strip_prefix("xdp_");
    verdict.is_some_and(|name| verdicts.iter().any(|it| name.starts_with(it)))
}

fn matching(counters: &Counters, is_one: impl Fn(&str) -> bool) -> Option<u64> {
    let names = counters.keys().filter(|name| is_one(name));
    let values = names.filter_map(|name| count(counters, name));
    values.reduce(u64::saturating_add)
}
