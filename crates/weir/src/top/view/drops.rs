//! Losses by reason and place, each with one owner.

use std::collections::HashMap;

use super::scene::{Scene, nothing};
use crate::ledger::Sheet;
use crate::ledger::sheet::{Class, Edge, Loss};
use crate::top::table::{Column, Explanation, Row, Table, Value};

const LOSS: Explanation = Explanation {
    meaning: "",
    read: "tracepoints of errors by BPF (skb:kfree_skb, xdp:*), and counters where no event tells; see PROOF",
    scope: "the place, in its network namespace and at its device or socket",
    without: "frames that the card drops without a counter; the overflow of a TPACKET ring, which only its owner \
              can read",
    check: None,
    command: "weir ledger",
};

/// The columns.
pub const COLUMNS: &[Column] = &[
    Column::number(
        "pps",
        "NOW/s",
        Explanation {
            meaning: "packets that ended here in a second, in the interval",
            ..LOSS
        },
    ),
    Column::number(
        "count",
        "COUNT",
        Explanation {
            meaning: "packets that ended here since weir top began, or since `z`",
            ..LOSS
        },
    ),
    Column::text(
        "class",
        "CLASS",
        8,
        Explanation {
            meaning: "lost: nobody received it; copy: a copy for a packet socket, the packet went on; normal: freed in \
                   normal operation",
            ..LOSS
        },
    ),
    Column::text(
        "stage",
        "STAGE",
        11,
        Explanation {
            meaning: "the stage of the packet path that owns the loss",
            ..LOSS
        },
    ),
    Column::text(
        "reason",
        "REASON",
        34,
        Explanation {
            meaning: "the reason, in the kernel's words",
            read: "the reason of skb:kfree_skb, by the names of the running kernel's BTF; the error of an XDP event; \
                   or a counter's name",
            ..LOSS
        },
    ),
    Column::text(
        "device",
        "DEVICE",
        15,
        Explanation {
            meaning: "the device of the packet",
            without: "packets without one: those that a process sends, before a route is found",
            ..LOSS
        },
    ),
    Column::namespace(Explanation {
        meaning: "the network namespace of the device or socket",
        without: "packets without one, such as those of a CPU's backlog",
        ..LOSS
    }),
    Column::text(
        "process",
        "PROCESS",
        24,
        Explanation {
            meaning: "the process of the socket that lost it, with its id",
            read: "the socket's cookie of the event (Linux 6.11), and the descriptors of processes",
            ..LOSS
        },
    ),
    Column::text(
        "socket",
        "SOCKET",
        44,
        Explanation {
            meaning: "the socket that lost it, by its addresses",
            command: "ss -uampie",
            ..LOSS
        },
    ),
    Column::text(
        "place",
        "PLACE",
        32,
        Explanation {
            meaning: "the function, tracepoint or counter where it is seen",
            without: "names, where kernel.kptr_restrict or a missing CAP_SYSLOG hides addresses; packets dropped \
                      in interrupts, which are freed later by net_tx_action",
            ..LOSS
        },
    ),
    Column::text(
        "qdisc",
        "QDISC",
        20,
        Explanation {
            meaning: "the queueing discipline that dropped it",
            command: "tc -s qdisc show dev DEVICE",
            ..LOSS
        },
    ),
    Column::text(
        "unit",
        "UNIT",
        8,
        Explanation {
            meaning: "the unit of the count: frames, skbs (after GRO and before TSO), or segments",
            ..LOSS
        },
    ),
    Column::number(
        "segments",
        "SEGMENTS",
        Explanation {
            meaning: "the same count as packets on the wire: each skb as many as GRO or TSO made of it",
            ..LOSS
        },
    ),
    Column::text(
        "also",
        "ALSO SEEN AS",
        60,
        Explanation {
            meaning: "the other counters that count the same packets; they are no further losses",
            command: "nstat -az; ip -s -s link; ss -uampie; tc -s qdisc",
            ..LOSS
        },
    ),
    Column::text(
        "proof",
        "PROOF",
        32,
        Explanation {
            meaning: "the event or counter that proves the loss",
            ..LOSS
        },
    ),
    Column::text(
        "check",
        "CHECK",
        24,
        Explanation {
            meaning: "the check of weir doctor that belongs to the loss",
            read: "the table of losses of weir ledger",
            command: "weir doctor --explain CHECK",
            ..LOSS
        },
    ),
    Column::text(
        "meaning",
        "MEANING",
        100,
        Explanation {
            meaning: "the loss in a sentence",
            read: "the table of losses of weir ledger",
            ..LOSS
        },
    ),
];

/// The table.
pub fn table(scene: &Scene) -> Table {
    if scene.now().events.is_none() {
        let reason = "losses by reason cannot be counted here; the key i has the reason";
        return nothing(COLUMNS, reason.into());
    }
    let Some(sheet) = scene.balance_in_all() else {
        let reason = "measuring: there is one reading yet, losses need two";
        return nothing(COLUMNS, reason.into());
    };
    let interval = scene.balance().map(by_key);
    let rows = sheet
        .losses
        .iter()
        .map(|loss| row(scene, loss, interval.as_ref()));
    let mut notes = vec![summary(scene, sheet)];
    notes.extend(unexplained(sheet));
    Table {
        columns: COLUMNS,
        rows: rows.collect(),
        notes,
        missing: None,
    }
}

fn summary(scene: &Scene, sheet: &Sheet) -> String {
    let lost: u64 = sheet.lost().map(|loss| loss.count).sum();
    let now: u64 = scene
        .balance()
        .map_or(0, |it| it.lost().map(|loss| loss.count).sum());
    let now = scene.seconds().map_or(0.0, |seconds| now as f64 / seconds);
    format!(
        "lost {} a second now, {} in {:.0} s",
        Value::Rate(now).show(),
        Value::Count(lost).show(),
        scene.seconds_in_all()
    )
}

/// The edge that is furthest from closing.
fn unexplained(sheet: &Sheet) -> Option<String> {
    // An edge with flows that nothing counts has no balance.
    let drawn = sheet.edges.iter().filter(|edge| edge.open.is_empty());
    let most = drawn
        .filter(|edge| !edge.closes())
        .max_by_key(|edge: &&Edge| edge.unexplained.unsigned_abs() - edge.bound)?;
    let subject = most.subject.as_deref().unwrap_or(&most.namespace);
    Some(format!(
        "unexplained {} {}, {} to {}, {subject}",
        Value::Count(most.unexplained.unsigned_abs()).show(),
        most.unit.name(),
        most.from.name(),
        most.to.name(),
    ))
}

/// The counts of a balance by the keys of their rows.
fn by_key(sheet: &Sheet) -> HashMap<String, u64> {
    let mut counts = HashMap::new();
    for loss in &sheet.losses {
        *counts.entry(key(loss)).or_default() += loss.count;
    }
    counts
}

fn row(scene: &Scene, loss: &Loss, interval: Option<&HashMap<String, u64>>) -> Row {
    let key = key(loss);
    let now = interval.map(|counts| counts.get(&key).copied().unwrap_or_default());
    let process = loss.process.as_ref();
    let process = process.map(|it| format!("{} ({})", it.name, it.pid));
    let also: Vec<_> = loss
        .also
        .iter()
        .map(|it| format!("{} {}", it.counter, it.count))
        .collect();
    Row {
        key,
        cells: vec![
            scene.rate(Some(0), now),
            Value::Count(loss.count),
            Value::Text(class(loss).into()),
            Value::Text(loss.stage.name().into()),
            Value::Text(loss.reason.clone()),
            Value::text(loss.device.clone()),
            scene.namespace(loss.netns),
            Value::text(process),
            Value::text(loss.socket.clone()),
            Value::text(loss.place.clone()),
            Value::text(loss.qdisc.clone()),
            Value::Text(loss.unit.name().into()),
            Value::Count(loss.segments),
            Value::text(Some(also.join(", ")).filter(|it| !it.is_empty())),
            Value::Text(loss.proof.clone()),
            Value::text(loss.check.clone()),
            Value::Text(loss.meaning.clone()),
        ],
    }
}

fn class(loss: &Loss) -> &'static str {
    match loss.class {
        Class::Lost => "lost",
        Class::CopyLost => "copy",
        Class::NotLost => "normal",
    }
}

/// The identity of a loss, in each of two balances.
fn key(loss: &Loss) -> String {
    let (place, device) = (loss.place.as_deref(), loss.device.as_deref());
    let parts = [place, device, loss.qdisc.as_deref(), loss.socket.as_deref()];
    let parts = parts.map(Option::unwrap_or_default).join("/");
    format!(
        "{}/{}/{}/{}/{parts}",
        class(loss),
        loss.stage.name(),
        loss.netns,
        loss.reason
    )
}
