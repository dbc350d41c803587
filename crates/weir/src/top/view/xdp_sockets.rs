//! AF_XDP sockets of all processes.

use std::collections::BTreeMap;

use super::scene::{Scene, moved_32, nothing};
use crate::ledger::snapshot::{Ring, Snapshot, XdpSocket};
use crate::top::table::{Column, Explanation, Row, Table, Value};

const SOCKET: Explanation = Explanation {
    meaning: "",
    read: "a BPF iterator over the descriptors of all processes (iter/task_file): struct xdp_sock",
    scope: "the socket; all processes and network namespaces of the host",
    without: "sockets that only a map holds, or a message on its way",
    check: None,
    command: "ss --xdp --extended (where the kernel has CONFIG_XDP_SOCKETS_DIAG)",
};

const RING: Explanation = Explanation {
    read: "the same, struct xsk_queue: the producer's and the consumer's index of the ring",
    without: "changes between two readings: a ring may be full and empty in between",
    ..SOCKET
};

/// The columns.
pub const COLUMNS: &[Column] = &[
    Column::text(
        "device",
        "DEVICE",
        15,
        Explanation {
            meaning: "the device that the socket is bound to",
            ..SOCKET
        },
    ),
    Column::number(
        "queue",
        "Q",
        Explanation {
            meaning: "the queue of the device",
            check: Some("queues"),
            ..SOCKET
        },
    ),
    Column::text(
        "process",
        "PROCESS",
        16,
        Explanation {
            meaning: "the process that has the socket; of several the one with the lowest id",
            ..SOCKET
        },
    ),
    Column::text(
        "mode",
        "MODE",
        8,
        Explanation {
            meaning: "zc: the driver writes into the UMEM; copy: the kernel copies; unbound: before bind(2)",
            without: "whether copy mode runs in the driver or behind it: see XDP of the device",
            check: Some("xsk-zero-copy"),
            ..SOCKET
        },
    ),
    Column::number(
        "rx_pps",
        "RX/s",
        Explanation {
            meaning: "frames that the kernel put into the RX ring in a second",
            without: "nothing; the index wraps after 4 billion frames between two readings",
            ..RING
        },
    ),
    Column::number(
        "rx_ring",
        "RX",
        Explanation {
            meaning: "frames that wait in the RX ring for the process. Full: the process is too slow",
            ..RING
        },
    ),
    Column::number(
        "fill_ring",
        "FILL",
        Explanation {
            meaning: "chunks in FILL for the kernel to receive into. Empty: the process gives back too few",
            ..RING
        },
    ),
    Column::bad(
        "starved_per_second",
        "STARVED/s",
        Explanation {
            meaning: "how often the kernel found FILL empty in a second (rx_fill_ring_empty_descs)",
            without: "whether a frame was lost by it: in zero-copy mode the kernel looks ahead",
            ..SOCKET
        },
    ),
    Column::bad(
        "refused_pps",
        "REFUSED/s",
        Explanation {
            meaning: "frames lost in a second since the RX ring was full (rx_ring_full)",
            without: "frames that found no chunk: the next column",
            ..SOCKET
        },
    ),
    Column::bad(
        "lost_pps",
        "LOST/s",
        Explanation {
            meaning: "frames lost in a second since they were too long, or FILL was empty (rx_dropped)",
            without: "frames that the card dropped in zero-copy mode, whose ring had no chunk: see Devices",
            ..SOCKET
        },
    ),
    Column::number(
        "tx_pps",
        "TX/s",
        Explanation {
            meaning: "frames that the kernel took from the TX ring in a second",
            without: "whether the device sent them: a completion says only that the chunk is free",
            ..RING
        },
    ),
    Column::number(
        "tx_ring",
        "TX",
        Explanation {
            meaning: "frames that wait in the TX ring for the kernel. Full: it was not woken, or the device is slower",
            ..RING
        },
    ),
    Column::number(
        "completion_ring",
        "COMPL",
        Explanation {
            meaning: "sent chunks that the process has not taken back. Full: the kernel sends no more",
            ..RING
        },
    ),
    Column::text(
        "wakeup",
        "WAKEUP",
        6,
        Explanation {
            meaning: "the kernel waits for a call: rx to fill from FILL, tx to send",
            without: "whether the process is about to call",
            ..SOCKET
        },
    ),
    Column::bad(
        "lost",
        "LOST",
        Explanation {
            meaning: "frames lost since weir top began, or since `z`: rx_ring_full and rx_dropped",
            without: "frames that the card dropped in zero-copy mode, whose ring had no chunk: see Devices",
            ..SOCKET
        },
    ),
    Column::bad(
        "invalid_per_second",
        "INVALID/s",
        Explanation {
            meaning: "descriptors of TX that the kernel refused in a second (tx_invalid_descs)",
            without: "invalid chunks in FILL: rx_invalid_descs never moves",
            ..SOCKET
        },
    ),
    Column::number(
        "pid",
        "PID",
        Explanation {
            meaning: "the id of the process",
            command: "ls -l /proc/PID/fd",
            ..SOCKET
        },
    ),
    Column::number(
        "fd",
        "FD",
        Explanation {
            meaning: "the descriptor in that process",
            command: "ls -l /proc/PID/fd",
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
    let Some(sockets) = &scene.now().xdp_sockets else {
        let reason = "AF_XDP sockets cannot be listed here; the key i has the reason";
        return nothing(COLUMNS, reason.into());
    };
    let before = scene.then().map(by_cookie).unwrap_or_default();
    let first = by_cookie(scene.at_first());
    let rows = sockets.iter().map(|it| {
        let of = |sockets: &BTreeMap<u64, _>| sockets.get(&it.cookie).copied();
        row(scene, it, of(&before), of(&first))
    });
    Table {
        columns: COLUMNS,
        rows: rows.collect(),
        ..Table::default()
    }
}

/// The sockets by their cookie.
pub(super) fn by_cookie(snapshot: &Snapshot) -> BTreeMap<u64, &XdpSocket> {
    let sockets = snapshot.xdp_sockets.iter().flatten();
    sockets.map(|it| (it.cookie, it)).collect()
}

/// The frames that it lost.
pub(super) fn lost(socket: &XdpSocket) -> u64 {
    socket.rx_full.saturating_add(socket.rx_dropped)
}

fn row(
    scene: &Scene,
    socket: &XdpSocket,
    before: Option<&XdpSocket>,
    first: Option<&XdpSocket>,
) -> Row {
    let rate = |of: fn(&XdpSocket) -> u64| scene.rate(before.map(of), Some(of(socket)));
    // The indices of rings have 32 bits and wrap.
    let frames = |of: fn(&XdpSocket) -> Option<u64>| {
        let moved = moved_32(before.and_then(of), of(socket));
        scene.rate(Some(0), moved)
    };
    let ring =
        |ring: Option<Ring>| Value::or_none(ring, |ring| Value::Ring(ring.level(), ring.size));
    let lost_before = first.map_or(0, lost);
    let mode = match (socket.bound, socket.zero_copy) {
        (false, _) => "unbound",
        (true, true) => "zc",
        (true, false) => "copy",
    };
    let wakeup = match (socket.rx_needs_wakeup, socket.tx_needs_wakeup) {
        (true, true) => "rx tx",
        (true, false) => "rx",
        (false, true) => "tx",
        (false, false) => "no",
    };
    Row {
        key: socket.cookie.to_string(),
        cells: vec![
            scene.device(socket.netns, socket.device),
            if socket.bound {
                Value::Id(socket.queue.into())
            } else {
                Value::None
            },
            Value::Text(socket.process.name.clone()),
            Value::Text(mode.into()),
            frames(|it| Some(it.rx?.producer.into())),
            ring(socket.rx),
            ring(socket.fill),
            rate(|it| it.fill_empty),
            rate(|it| it.rx_full),
            rate(|it| it.rx_dropped),
            frames(|it| Some(it.tx?.consumer.into())),
            ring(socket.tx),
            ring(socket.completion),
            Value::Text(wakeup.into()),
            Value::Count(lost(socket).saturating_sub(lost_before)),
            rate(|it| it.tx_invalid),
            Value::Id(socket.process.pid.into()),
            Value::Id(socket.fd.into()),
            scene.namespace(socket.netns),
        ],
    }
}
