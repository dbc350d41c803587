//! CPUs: their time by use, and the backlog of each.

use super::scene::{Scene, count, moved_32};
use crate::ledger::snapshot::Counters;
use crate::top::frame::{Bill, CpuTime};
use crate::top::priced::Priced;
use crate::top::table::{Column, Explanation, Row, Table, Value};

const TIME: Explanation = Explanation {
    meaning: "",
    read: "BPF programs at the tracepoints of irq, softirq, napi and sched_switch, as weir cost --passive",
    scope: "the CPU; all network namespaces",
    without: "the tracepoints' entry and exit; time of the hypervisor or firmware while a program runs, which \
              only the busy loop of weir cost sees",
    check: None,
    command: "weir cost --passive",
};

const SOFTNET: Explanation = Explanation {
    meaning: "",
    read: "/proc/net/softnet_stat",
    scope: "the CPU; all network namespaces",
    without: "nothing of the backlog; a poll of a driver counts its packets as the driver says",
    check: None,
    command: "cat /proc/net/softnet_stat",
};

/// The columns.
pub const COLUMNS: &[Column] = &[
    Column::number(
        "cpu",
        "CPU",
        Explanation {
            meaning: "the number of the CPU",
            command: "lscpu -e",
            ..SOFTNET
        },
    ),
    Column::number(
        "network_percent",
        "NET%",
        Explanation {
            meaning: "networking: the sum of NET_RX, NET_TX, threaded NAPI and ksoftirqd for the network",
            check: Some("irq-affinity"),
            ..TIME
        },
    ),
    Column::number(
        "tasks_percent",
        "TASKS%",
        Explanation {
            meaning: "processes and kernel threads, without the interrupts in their context",
            ..TIME
        },
    ),
    Column::number(
        "idle_percent",
        "IDLE%",
        Explanation {
            meaning: "idle",
            ..TIME
        },
    ),
    Column::number(
        "processed_pps",
        "SOFTNET/s",
        Explanation {
            meaning: "packets that the backlog or a poll of a driver handled in a second (processed)",
            without: "nothing, but it counts a packet again with each round: VLAN, bridge, macvlan",
            ..SOFTNET
        },
    ),
    Column::bad(
        "dropped_pps",
        "DROP/s",
        Explanation {
            meaning: "packets dropped in a second since the CPU's backlog was full (dropped)",
            check: Some("softnet-dropped"),
            ..SOFTNET
        },
    ),
    Column::bad(
        "squeezed_per_second",
        "SQUEEZE/s",
        Explanation {
            meaning: "how often a softirq ended in a second with packets left, out of budget or time \
                       (time_squeeze)",
            check: Some("softnet-squeezed"),
            ..SOFTNET
        },
    ),
    Column::number(
        "rps_per_second",
        "RPS/s",
        Explanation {
            meaning: "how often another CPU woke this one for its backlog in a second (received_rps)",
            check: Some("rps-flow-table"),
            ..SOFTNET
        },
    ),
    Column::number(
        "net_rx_percent",
        "NET_RX%",
        Explanation {
            meaning: "softirq NET_RX: polls of NAPI, and the stack that they call",
            ..TIME
        },
    ),
    Column::number(
        "net_tx_percent",
        "NET_TX%",
        Explanation {
            meaning: "softirq NET_TX: deferred sending of queueing disciplines, and freeing of sent packets",
            ..TIME
        },
    ),
    Column::number(
        "napi_threads_percent",
        "NAPITHR%",
        Explanation {
            meaning: "kernel threads of threaded NAPI",
            check: Some("threaded-napi"),
            ..TIME
        },
    ),
    Column::number(
        "ksoftirqd_percent",
        "KSOFTIRQD%",
        Explanation {
            meaning: "ksoftirqd's own time, in proportion to its softirqs for the network",
            check: Some("ksoftirqd-time"),
            ..TIME
        },
    ),
    Column::number(
        "other_softirqs_percent",
        "SOFTIRQ%",
        Explanation {
            meaning: "other softirqs: timers, RCU, scheduler, block",
            ..TIME
        },
    ),
    Column::number(
        "interrupts_percent",
        "IRQ%",
        Explanation {
            meaning: "handlers of devices' interrupts, also of disks",
            ..TIME
        },
    ),
    Column::number(
        "vectors_percent",
        "TIMER+IPI%",
        Explanation {
            meaning: "the timer's interrupt, and interrupts between CPUs",
            without: "all of it but on x86, where alone they have tracepoints; on arm64 the timer's is in IRQ%",
            ..TIME
        },
    ),
    Column::number(
        "outside_percent",
        "OUTSIDE%",
        Explanation {
            meaning: "lost outside the kernel, to a hypervisor or to firmware, as late timers show it",
            without: "losses that made no timer late: weir cost measures them by a busy loop",
            command: "weir cost",
            ..TIME
        },
    ),
];

/// The table.
pub fn table(scene: &Scene) -> Table {
    let bill = scene.after.bill.as_ref();
    let before = same_bill(scene, bill);
    let rows = scene.now().cpus.iter().map(|(&cpu, softnet)| {
        let time = |bill: &Bill| bill.cpus.get(&cpu).copied();
        let shares = |parts| shares(parts, before.and_then(time), bill.and_then(time));
        let mut cells = vec![Value::Id(cpu as u64)];
        cells.extend(shares(&MAIN_PARTS));
        cells.extend(backlog(scene, cpu, softnet));
        cells.extend(shares(&OTHER_PARTS));
        Row {
            key: cpu.to_string(),
            cells,
        }
    });
    let mut notes: Vec<_> = bill.map(price).into_iter().collect();
    notes.extend(scene.without(Priced::Cpus));
    Table {
        columns: COLUMNS,
        rows: rows.collect(),
        notes,
        missing: None,
    }
}

/// The sums before, of the same observation.
pub(super) fn same_bill<'a>(scene: &'a Scene, bill: Option<&Bill>) -> Option<&'a Bill> {
    let before = scene.before.as_ref()?.bill.as_ref()?;
    (before.begun_ns == bill?.begun_ns).then_some(before)
}

/// The price of the bill.
pub(super) fn price(bill: &Bill) -> String {
    let full = if bill.lists_full {
        "; NAPI instances are missing: their map is full"
    } else {
        ""
    };
    format!(
        "price: tracepoints take {:.2}% of one CPU while this is shown{full}",
        bill.own_percent
    )
}

/// A part of a CPU's time.
type Part = fn(&CpuTime) -> u64;

const MAIN_PARTS: [Part; 3] = [
    |it| it.net_rx + it.net_tx + it.napi_threads + it.ksoftirqd,
    |it| it.tasks,
    |it| it.idle,
];

const OTHER_PARTS: [Part; 8] = [
    |it| it.net_rx,
    |it| it.net_tx,
    |it| it.napi_threads,
    |it| it.ksoftirqd,
    |it| it.other_softirqs,
    |it| it.interrupts,
    |it| it.vectors,
    |it| it.outside,
];

fn shares(parts: &[Part], before: Option<CpuTime>, now: Option<CpuTime>) -> Vec<Value> {
    let share = |of: &Part| {
        let (before, now) = (before?, now?);
        let observed = now.observed.checked_sub(before.observed)?;
        let part = of(&now).checked_sub(of(&before))?;
        (observed > 0).then(|| part as f64 / observed as f64 * 100.0)
    };
    let values = parts
        .iter()
        .map(|of| Value::or_none(share(of), Value::Percent));
    values.collect()
}

fn backlog(scene: &Scene, cpu: usize, now: &Counters) -> Vec<Value> {
    let before = scene.then().and_then(|it| it.cpus.get(&cpu));
    let names = ["processed", "dropped", "time_squeeze", "received_rps"];
    let values = names.map(|name| {
        let then = before.and_then(|it| count(it, name));
        let moved = moved_32(then, count(now, name));
        // The counters have 32 bits and wrap.
        scene.rate(Some(0), moved)
    });
    values.into()
}
