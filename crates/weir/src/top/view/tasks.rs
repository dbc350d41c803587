//! CPU time of processes, with the interrupts in their context.

use super::cpus::{price, same_bill};
use super::napi::observed_seconds;
use super::scene::{Scene, nothing};
use crate::top::frame::{Bill, TaskTime};
use crate::top::priced::Priced;
use crate::top::table::{Column, Explanation, Row, Table, Value};

const TASK: Explanation = Explanation {
    meaning: "",
    read: "BPF programs at the tracepoints of sched_switch, irq and softirq, as weir cost --passive",
    scope: "the process with all of its threads, on all CPUs; 100 is one CPU",
    without: "in windows only, where the tracepoints would cost too much",
    check: None,
    command: "weir cost --passive",
};

/// The columns.
pub const COLUMNS: &[Column] = &[
    Column::text(
        "process",
        "PROCESS",
        16,
        Explanation {
            meaning: "the name of the process, which it may choose",
            command: "ps -o comm,args PID",
            ..TASK
        },
    ),
    Column::number(
        "pid",
        "PID",
        Explanation {
            meaning: "the id of the process",
            command: "ps PID",
            ..TASK
        },
    ),
    Column::number(
        "running_percent",
        "CPU%",
        Explanation {
            meaning: "on a CPU, interrupts and softirqs in its context included, as top shows it",
            command: "top -p PID; weir cost --passive",
            ..TASK
        },
    ),
    Column::number(
        "own_percent",
        "OWN%",
        Explanation {
            meaning: "its own work: CPU% without interrupts and softirqs",
            ..TASK
        },
    ),
    Column::number(
        "net_rx_percent",
        "NET_RX%",
        Explanation {
            meaning: "receiving in its context: packets of whomever, which it pays for",
            check: Some("irq-affinity"),
            ..TASK
        },
    ),
    Column::number(
        "net_tx_percent",
        "NET_TX%",
        Explanation {
            meaning: "deferred sending in its context",
            ..TASK
        },
    ),
    Column::number(
        "interrupts_percent",
        "IRQ%",
        Explanation {
            meaning: "interrupts and other softirqs in its context",
            ..TASK
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
    let none = TaskTime::default();
    let mut rows = Vec::new();
    // The idle task's time is that of the CPUs.
    for (pid, task) in bill.tasks.iter().filter(|(pid, _)| **pid != 0) {
        let then = before.map(|it: &Bill| it.tasks.get(pid).unwrap_or(&none));
        if then.is_none_or(|then| then.running != task.running) {
            rows.push(row(*pid, task, then, seconds));
        }
    }
    Table {
        columns: COLUMNS,
        rows,
        notes: vec![price(bill)],
        missing: None,
    }
}

fn row(pid: u32, task: &TaskTime, before: Option<&TaskTime>, seconds: Option<f64>) -> Row {
    let share = |of: fn(&TaskTime) -> u64| {
        let moved = of(task).checked_sub(of(before?))?;
        Some(moved as f64 / seconds? / 1e7)
    };
    let share = |of| Value::or_none(share(of), Value::Percent);
    let own = |it: &TaskTime| {
        it.running
            .saturating_sub(it.net_rx + it.net_tx + it.interrupts)
    };
    Row {
        key: pid.to_string(),
        cells: vec![
            Value::Text(task.name.clone()),
            Value::Id(pid.into()),
            share(|it| it.running),
            share(own),
            share(|it| it.net_rx),
            share(|it| it.net_tx),
            share(|it| it.interrupts),
        ],
    }
}
