//! Sockets: their queues and drops.

use super::scene::Scene;
use crate::ledger::snapshot::{Snapshot, Socket};
use crate::top::table::{Column, Explanation, Row, Table, Value};

const SOCKET: Explanation = Explanation {
    meaning: "",
    read: "sock_diag: UDP, listening and connected TCP, and AF_PACKET sockets",
    scope: "the socket, in its network namespace",
    without: "raw, ICMP, SCTP and unix sockets",
    check: None,
    command: "ss -tuampie; ss -0 -ampie",
};

/// The columns.
pub const COLUMNS: &[Column] = &[
    Column::text(
        "protocol",
        "PROTO",
        7,
        Explanation {
            meaning: "the protocol",
            ..SOCKET
        },
    ),
    Column::text(
        "local",
        "LOCAL",
        44,
        Explanation {
            meaning: "the address and port that it is bound to; of AF_PACKET the protocol",
            ..SOCKET
        },
    ),
    Column::text(
        "process",
        "PROCESS",
        16,
        Explanation {
            meaning: "the process that has it; of several the one with the lowest id",
            read: "/proc/PID/fd, by the socket's inode",
            without: "processes of other users, without root; the kernel's own sockets",
            ..SOCKET
        },
    ),
    Column::number(
        "pid",
        "PID",
        Explanation {
            meaning: "the id of the process",
            read: "/proc/PID/fd, by the socket's inode",
            ..SOCKET
        },
    ),
    Column::number(
        "queued",
        "QUEUED",
        Explanation {
            meaning: "bytes of memory in its receive queue; of a listener, connections that wait for accept(2)",
            read: "sock_diag: SK_MEMINFO_RMEM_ALLOC; of a listener idiag_rqueue",
            without: "the payload alone: memory has headers and unused room in it",
            ..SOCKET
        },
    ),
    Column::number(
        "limit",
        "LIMIT",
        Explanation {
            meaning: "the limit of the queue; of a listener, its backlog",
            read: "sock_diag: SK_MEMINFO_RCVBUF; of a listener idiag_wqueue",
            command: "sysctl net.core.rmem_max net.core.somaxconn",
            ..SOCKET
        },
    ),
    Column::bad(
        "fill_percent",
        "FILL%",
        Explanation {
            meaning: "the queue in percent of its limit",
            without: "changes between two readings",
            ..SOCKET
        },
    ),
    Column::bad(
        "drops_pps",
        "DROP/s",
        Explanation {
            meaning: "packets that the socket lost in a second",
            read: "sock_diag: SK_MEMINFO_DROPS; of a packet ring tp_drops",
            without: "of a packet ring, drops that its owner has read and cleared",
            ..SOCKET
        },
    ),
    Column::bad(
        "drops",
        "DROPS",
        Explanation {
            meaning: "packets that the socket lost since weir top began, or since `z`",
            read: "sock_diag: SK_MEMINFO_DROPS; of a packet ring tp_drops",
            without: "of a packet ring, drops that its owner has read and cleared",
            ..SOCKET
        },
    ),
    Column::text(
        "remote",
        "REMOTE",
        44,
        Explanation {
            meaning: "the address and port that it is connected to",
            ..SOCKET
        },
    ),
    Column::namespace(Explanation {
        meaning: "the network namespace of the socket",
        ..SOCKET
    }),
];

/// The table.
pub fn table(scene: &Scene) -> Table {
    let mut rows = Vec::new();
    for (&netns, namespace) in &scene.now().namespaces {
        for (&cookie, socket) in &namespace.sockets {
            rows.push(row(scene, netns, cookie, socket));
        }
    }
    Table {
        columns: COLUMNS,
        rows,
        ..Table::default()
    }
}

/// The drops of a socket in a snapshot.
pub(super) fn drops_in(snapshot: &Snapshot, netns: u64, cookie: u64) -> Option<u64> {
    Some(snapshot.namespaces.get(&netns)?.sockets.get(&cookie)?.drops)
}

/// Its drops since the first frame, all of one that was opened since.
pub(super) fn drops_in_all(scene: &Scene, netns: u64, cookie: u64, socket: &Socket) -> u64 {
    let first = drops_in(scene.at_first(), netns, cookie);
    // An owner may have reset them.
    socket
        .drops
        .checked_sub(first.unwrap_or_default())
        .unwrap_or(socket.drops)
}

/// How full its queue is, in percent; none without a limit.
pub(super) fn fill(socket: &Socket) -> Option<f64> {
    (socket.limit > 0).then(|| socket.queued as f64 / socket.limit as f64 * 100.0)
}

fn row(scene: &Scene, netns: u64, cookie: u64, socket: &Socket) -> Row {
    let before = scene.then().and_then(|it| drops_in(it, netns, cookie));
    let (queued, limit) = if socket.listening {
        (Value::Count(socket.queued), Value::Count(socket.limit))
    } else {
        (Value::Bytes(socket.queued), Value::Bytes(socket.limit))
    };
    let process = socket.process.as_ref();
    Row {
        key: format!("{netns}/{cookie}"),
        cells: vec![
            Value::Text(socket.protocol.clone()),
            Value::Text(socket.local.clone()),
            Value::text(process.map(|it| it.name.clone())),
            Value::or_none(process, |it| Value::Id(it.pid.into())),
            queued,
            limit,
            Value::or_none(fill(socket), Value::Percent),
            scene.rate(before, Some(socket.drops)),
            Value::Count(drops_in_all(scene, netns, cookie, socket)),
            Value::text(socket.remote.clone()),
            scene.namespace(netns),
        ],
    }
}
