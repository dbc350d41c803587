//! BPF programs.

use std::collections::BTreeMap;

use super::scene::{Scene, nothing};
use crate::top::frame::{Program, Programs};
use crate::top::priced::Priced;
use crate::top::table::{Column, Explanation, Row, Table, Value};

const PROGRAM: Explanation = Explanation {
    meaning: "",
    read: "bpf(2), BPF_OBJ_GET_INFO_BY_FD: struct bpf_prog_info",
    scope: "the program, on all CPUs and at all of its hooks; the host",
    without: "programs that a dispatcher of libxdp calls, whose time is the dispatcher's",
    check: None,
    command: "bpftool prog show id ID",
};

const RUN: Explanation = Explanation {
    meaning: "",
    read: "run_time_ns and run_cnt of struct bpf_prog_info, while a descriptor of BPF_ENABLE_STATS is open",
    scope: "the program, on all CPUs and at all of its hooks; the host",
    without: "the work behind the program: the flush of redirects, the driver's sending. A program's run has the \
              kernel's own two readings of the clock in it: the part of the price that is named as reported",
    check: Some("bpf-stats"),
    command: "sysctl kernel.bpf_stats_enabled=1; bpftool prog show id ID",
};

/// The columns.
pub const COLUMNS: &[Column] = &[
    Column::number(
        "id",
        "ID",
        Explanation {
            meaning: "the kernel's id of the program",
            ..PROGRAM
        },
    ),
    Column::text(
        "name",
        "NAME",
        16,
        Explanation {
            meaning: "the name that its loader gave it",
            ..PROGRAM
        },
    ),
    Column::text(
        "kind",
        "TYPE",
        20,
        Explanation {
            meaning: "its type, such as xdp or sched_cls",
            ..PROGRAM
        },
    ),
    Column::number(
        "cpu_percent",
        "CPU%",
        Explanation {
            meaning: "its runs, in percent of one CPU",
            ..RUN
        },
    ),
    Column::number(
        "runs_per_second",
        "RUNS/s",
        Explanation {
            meaning: "runs in a second",
            ..RUN
        },
    ),
    Column::number(
        "ns_per_run",
        "ns/RUN",
        Explanation {
            meaning: "nanoseconds of a run, on average",
            ..RUN
        },
    ),
    Column::number(
        "net_ns_per_run",
        "NET ns/RUN",
        Explanation {
            meaning: "the same without the time that the kernel reports of a program that does nothing, which was \
                   measured as this view was opened",
            ..RUN
        },
    ),
    Column::text(
        "devices",
        "DEVICES",
        24,
        Explanation {
            meaning: "the devices whose XDP program it is",
            read: "rtnetlink, RTM_GETLINK: IFLA_XDP",
            scope: "the network namespaces that are shown",
            without: "hooks of other types of programs",
            check: Some("xdp-foreign"),
            command: "bpftool net",
        },
    ),
    Column::text(
        "tag",
        "TAG",
        16,
        Explanation {
            meaning: "the hash of its instructions: programs of one tag are equal",
            ..PROGRAM
        },
    ),
];

/// The table.
pub fn table(scene: &Scene) -> Table {
    let Some(programs) = &scene.after.programs else {
        return nothing(COLUMNS, scene.without(Priced::Programs).unwrap_or_default());
    };
    let before = scene.before.as_ref().and_then(|it| it.programs.as_ref());
    let devices = devices(scene);
    let mut runs = 0.0;
    let mut rows = Vec::new();
    for (&id, program) in &programs.by_id {
        let before = before.and_then(|it| it.by_id.get(&id));
        let row = row(scene, id, program, before, programs, devices.get(&id));
        runs += row.cells[RUNS].number().unwrap_or_default();
        rows.push(row);
    }
    let mut notes = vec![price(programs, runs)];
    notes.extend(scene.without(Priced::Programs));
    Table {
        columns: COLUMNS,
        rows,
        notes,
        missing: None,
    }
}

/// The column of runs a second.
const RUNS: usize = 4;

fn price(programs: &Programs, runs: f64) -> String {
    let Some(price) = programs.price else {
        return "price: not measured; measuring a run takes tens of nanoseconds, about half of it in ns/RUN".into();
    };
    format!(
        "price: measuring adds {:.0} ns a run ({:.0} ns of them in ns/RUN), {:.2}% of one CPU now",
        price.total_ns,
        price.reported_ns,
        runs * price.total_ns / 1e7
    )
}

fn devices(scene: &Scene) -> BTreeMap<u32, String> {
    let mut by_program = BTreeMap::<u32, String>::new();
    for namespace in scene.now().namespaces.values() {
        for device in namespace.devices.values() {
            for id in [device.xdp_driver, device.xdp_generic]
                .into_iter()
                .flatten()
            {
                let names = by_program.entry(id).or_default();
                if !names.is_empty() {
                    names.push(' ');
                }
                names.push_str(&device.name);
            }
        }
    }
    by_program
}

fn row(
    scene: &Scene,
    id: u32,
    program: &Program,
    before: Option<&Program>,
    programs: &Programs,
    devices: Option<&String>,
) -> Row {
    let runs = before.and_then(|it| program.runs.checked_sub(it.runs));
    let ns = before.and_then(|it| program.ns.checked_sub(it.ns));
    let average = ns.zip(runs).filter(|(_, runs)| *runs > 0);
    let average = average.map(|(ns, runs)| ns as f64 / runs as f64);
    let net = average.zip(programs.price);
    let net = net.map(|(average, price)| (average - price.reported_ns).max(0.0));
    let share = match scene.rate(before.map(|it| it.ns), Some(program.ns)) {
        Value::Rate(ns) => Value::Percent(ns / 1e7),
        none => none,
    };
    Row {
        key: id.to_string(),
        cells: vec![
            Value::Id(id.into()),
            Value::text(Some(&program.name).filter(|name| !name.is_empty())),
            Value::Text(program.kind.clone()),
            share,
            scene.rate(before.map(|it| it.runs), Some(program.runs)),
            Value::or_none(average, Value::Nanoseconds),
            Value::or_none(net, Value::Nanoseconds),
            Value::text(devices),
            Value::Text(program.tag.clone()),
        ],
    }
}
