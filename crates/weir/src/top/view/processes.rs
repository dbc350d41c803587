//! Processes: their sockets together.

use std::collections::BTreeMap;

use super::scene::Scene;
use super::sockets::{drops_in, drops_in_all, fill};
use super::xdp_sockets::{by_cookie, lost};
use crate::ledger::snapshot::{Process, XdpSocket};
use crate::top::table::{Column, Explanation, Row, Table, Value};

const PROCESS: Explanation = Explanation {
    meaning: "",
    read: "sock_diag for sockets, a BPF iterator for those of AF_XDP; /proc/PID/fd for their processes",
    scope: "the process: a socket counts for the process with the lowest id of those that have it",
    without: "raw, ICMP, SCTP and unix sockets; processes of other users, without root",
    check: None,
    command: "ss -tuampie; ss -0 -ampie",
};

/// The columns.
pub const COLUMNS: &[Column] = &[
    Column::text(
        "process",
        "PROCESS",
        16,
        Explanation {
            meaning: "the name of the process, which it may choose; (unknown) for sockets whose process is not",
            command: "ps -o comm,args PID",
            ..PROCESS
        },
    ),
    Column::number(
        "pid",
        "PID",
        Explanation {
            meaning: "the id of the process",
            command: "ps PID",
            ..PROCESS
        },
    ),
    Column::number(
        "udp",
        "UDP",
        Explanation {
            meaning: "its UDP sockets",
            ..PROCESS
        },
    ),
    Column::number(
        "tcp",
        "TCP",
        Explanation {
            meaning: "its TCP connections",
            ..PROCESS
        },
    ),
    Column::number(
        "listening",
        "LISTEN",
        Explanation {
            meaning: "its listening TCP sockets",
            ..PROCESS
        },
    ),
    Column::number(
        "packet",
        "PACKET",
        Explanation {
            meaning: "its AF_PACKET sockets: each gets a copy of packets, and hides drops of unknown protocols",
            ..PROCESS
        },
    ),
    Column::number(
        "xdp",
        "AF_XDP",
        Explanation {
            meaning: "its AF_XDP sockets",
            ..PROCESS
        },
    ),
    Column::number(
        "queued_bytes",
        "QUEUED",
        Explanation {
            meaning: "bytes of memory in the receive queues of its sockets",
            read: "sock_diag: SK_MEMINFO_RMEM_ALLOC",
            without: "connections that wait at listeners; rings of AF_XDP and AF_PACKET",
            ..PROCESS
        },
    ),
    Column::number(
        "fullest_percent",
        "FULLEST%",
        Explanation {
            meaning: "the fullest queue of its sockets, in percent of its limit",
            without: "changes between two readings",
            ..PROCESS
        },
    ),
    Column::bad(
        "drops_pps",
        "DROP/s",
        Explanation {
            meaning: "packets that its sockets lost in a second",
            read: "sock_diag: SK_MEMINFO_DROPS; of AF_XDP rx_dropped and rx_ring_full",
            ..PROCESS
        },
    ),
    Column::bad(
        "drops",
        "DROPS",
        Explanation {
            meaning: "packets that its sockets lost since weir top began, or since `z`",
            read: "sock_diag: SK_MEMINFO_DROPS; of AF_XDP rx_dropped and rx_ring_full",
            ..PROCESS
        },
    ),
    Column::namespace(Explanation {
        meaning: "the network namespace of its sockets; the first of several",
        ..PROCESS
    }),
];

/// The sums of a process.
#[derive(Default)]
struct Sums {
    netns: u64,
    udp: u64,
    tcp: u64,
    listening: u64,
    packet: u64,
    xdp: u64,
    queued: u64,
    fullest: Option<f64>,
    /// Drops of the interval, of sockets that were there before.
    now: u64,
    drops: u64,
}

/// The table.
pub fn table(scene: &Scene) -> Table {
    let mut by_process = BTreeMap::<Process, Sums>::new();
    add_sockets(scene, &mut by_process);
    add_xdp_sockets(scene, &mut by_process);
    let rows = by_process
        .iter()
        .map(|(process, sums)| row(scene, process, sums));
    Table {
        columns: COLUMNS,
        rows: rows.collect(),
        ..Table::default()
    }
}

fn add_sockets(scene: &Scene, by_process: &mut BTreeMap<Process, Sums>) {
    for (&netns, namespace) in &scene.now().namespaces {
        for (&cookie, socket) in &namespace.sockets {
            let process = socket.process.clone().unwrap_or_default();
            let sums = by_process.entry(process).or_default();
            sums.netns = if sums.netns == 0 { netns } else { sums.netns };
            match socket.protocol.as_str() {
                "packet" => sums.packet += 1,
                protocol if protocol.starts_with("udp") => sums.udp += 1,
                _ if socket.listening => sums.listening += 1,
                _ => sums.tcp += 1,
            }
            if !socket.listening {
                sums.queued = sums.queued.saturating_add(socket.queued);
            }
            let fill = fill(socket).unwrap_or_default();
            sums.fullest = Some(sums.fullest.unwrap_or_default().max(fill));
            let then = scene.then().and_then(|it| drops_in(it, netns, cookie));
            sums.now += socket.drops.saturating_sub(then.unwrap_or(socket.drops));
            sums.drops += drops_in_all(scene, netns, cookie, socket);
        }
    }
}

fn add_xdp_sockets(scene: &Scene, by_process: &mut BTreeMap<Process, Sums>) {
    let then = scene.then().map(by_cookie).unwrap_or_default();
    let first = by_cookie(scene.at_first());
    for socket in scene.now().xdp_sockets.iter().flatten() {
        let sums = by_process.entry(socket.process.clone()).or_default();
        sums.netns = if sums.netns == 0 {
            socket.netns
        } else {
            sums.netns
        };
        sums.xdp += 1;
        let now = lost(socket);
        let before = |of: &BTreeMap<u64, &XdpSocket>| of.get(&socket.cookie).map(|it| lost(it));
        sums.now += now.saturating_sub(before(&then).unwrap_or(now));
        sums.drops += now.saturating_sub(before(&first).unwrap_or_default());
    }
}

fn row(scene: &Scene, process: &Process, sums: &Sums) -> Row {
    let (name, pid) = match process.pid {
        0 => ("(unknown)", Value::None),
        pid => (process.name.as_str(), Value::Id(pid.into())),
    };
    Row {
        key: format!("{}/{}", process.pid, process.name),
        cells: vec![
            Value::Text(name.into()),
            pid,
            Value::Count(sums.udp),
            Value::Count(sums.tcp),
            Value::Count(sums.listening),
            Value::Count(sums.packet),
            Value::Count(sums.xdp),
            Value::Bytes(sums.queued),
            Value::or_none(sums.fullest, Value::Percent),
            scene.rate(Some(0), Some(sums.now)),
            Value::Count(sums.drops),
            scene.namespace(sums.netns),
        ],
    }
}
