//! NAPI instances: usually one queue of a device.

use super::cpus::{price, same_bill};
use super::scene::{Scene, nothing};
use crate::top::frame::{Bill, NapiTime};
use crate::top::priced::Priced;
use crate::top::table::{Column, Explanation, Row, Table, Value};

const NAPI: Explanation = Explanation {
    meaning: "",
    read: "BPF programs at the tracepoints napi_poll and softirq, as weir cost --passive",
    scope: "the NAPI instance, on all CPUs; all network namespaces",
    without: "busy polling by a process; in windows only, where the tracepoints would cost too much",
    check: None,
    command: "weir cost --passive",
};

/// The columns.
pub const COLUMNS: &[Column] = &[
    Column::text(
        "device",
        "DEVICE",
        15,
        Explanation {
            meaning: "the device whose queue it is; (backlog) is that of a CPU: veths without GRO, loopback, RPS",
            ..NAPI
        },
    ),
    Column::namespace(Explanation {
        meaning: "the network namespace of the device",
        ..NAPI
    }),
    Column::number(
        "napi",
        "NAPI",
        Explanation {
            meaning: "the id of the instance",
            without: "the number of its queue: netdev-genl's queue-get tells",
            ..NAPI
        },
    ),
    Column::number(
        "cpu_percent",
        "CPU%",
        Explanation {
            meaning: "its polls, in percent of one CPU, with the part of the stack that they call",
            ..NAPI
        },
    ),
    Column::number(
        "polls_per_second",
        "POLLS/s",
        Explanation {
            meaning: "polls in a second",
            check: Some("coalescing"),
            ..NAPI
        },
    ),
    Column::number(
        "packets_pps",
        "PKT/s",
        Explanation {
            meaning: "packets in a second, by the driver's count: the work that its poll reports",
            ..NAPI
        },
    ),
    Column::number(
        "packets_per_poll",
        "PKT/POLL",
        Explanation {
            meaning: "packets of a poll; few at a high rate mean interrupts that are not coalesced",
            check: Some("coalescing"),
            ..NAPI
        },
    ),
    Column::number(
        "ns_per_packet",
        "ns/PKT",
        Explanation {
            meaning: "nanoseconds of polling for each packet",
            ..NAPI
        },
    ),
    Column::bad(
        "exhausted_per_second",
        "BUDGET/s",
        Explanation {
            meaning: "polls that used up their budget in a second: more packets waited",
            check: Some("napi-budget"),
            ..NAPI
        },
    ),
];

/// The table.
pub fn table(scene: &Scene) -> Table {
    let missing = scene.without(Priced::Cpus);
    let bill = scene.after.bill.as_ref();
    let (Some(bill), None) = (bill, &missing) else {
        return nothing(COLUMNS, missing.unwrap_or_default());
    };
    let before = same_bill(scene, Some(bill));
    let seconds = before.and_then(|before| observed_seconds(before, bill));
    let rows = bill.napis.iter().map(|napi| {
        let before = before.map(|it| of(it, napi));
        row(scene, napi, before.as_ref(), seconds)
    });
    Table {
        columns: COLUMNS,
        rows: rows.collect(),
        notes: vec![price(bill)],
        missing: None,
    }
}

/// The time that was observed in the interval.
pub(super) fn observed_seconds(before: &Bill, now: &Bill) -> Option<f64> {
    let cpus = now.cpus.iter();
    let observed =
        cpus.filter_map(|(cpu, now)| now.observed.checked_sub(before.cpus.get(cpu)?.observed));
    let ns = observed.max().filter(|ns| *ns > 0)?;
    Some(ns as f64 / 1e9)
}

/// A new instance had counted nothing.
fn of(before: &Bill, napi: &NapiTime) -> NapiTime {
    let is_same =
        |it: &&NapiTime| (it.netns, it.ifindex, it.id) == (napi.netns, napi.ifindex, napi.id);
    before
        .napis
        .iter()
        .find(is_same)
        .cloned()
        .unwrap_or_default()
}

fn row(scene: &Scene, napi: &NapiTime, before: Option<&NapiTime>, seconds: Option<f64>) -> Row {
    let moved = |of: fn(&NapiTime) -> u64| of(napi).checked_sub(of(before?));
    let rate = |of| Value::or_none(moved(of).zip(seconds), |(it, s)| Value::Rate(it as f64 / s));
    let ratio = |part: Option<u64>, of: Option<u64>| {
        let (part, of) = (part?, of.filter(|of| *of > 0)?);
        Some(part as f64 / of as f64)
    };
    let (ns, packets) = (moved(|it| it.ns), moved(|it| it.packets));
    let share = ns
        .zip(seconds)
        .map(|(ns, seconds)| ns as f64 / seconds / 1e7);
    let device = match napi.device.as_str() {
        "" => "(backlog)",
        device => device,
    };
    Row {
        key: format!("{}/{}/{}", napi.netns, napi.ifindex, napi.id),
        cells: vec![
            Value::Text(device.into()),
            scene.namespace(napi.netns),
            Value::Id(napi.id),
            Value::or_none(share, Value::Percent),
            rate(|it| it.polls),
            rate(|it| it.packets),
            Value::or_none(ratio(packets, moved(|it| it.polls)), Value::Rate),
            Value::or_none(ratio(ns, packets), Value::Nanoseconds),
            rate(|it| it.exhausted),
        ],
    }
}
