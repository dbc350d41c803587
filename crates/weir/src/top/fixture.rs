//! Frames of a made-up host, for tests: a card with two queues, a veth in a container with names that try to be
//! commands to the terminal, an AF_XDP socket that starves, and a UDP socket that overflows.

use std::sync::Arc;

use super::frame::{Bill, CpuTime, Frame, NapiTime, Program, Programs, RunPrice, TaskTime};
use super::view::Scene;
use crate::ledger::snapshot::{
    Counted, Counters, Device, Drop, Namespace, Process, Ring, Snapshot, Socket, VERSION, XdpSocket,
};
use crate::ledger::stage::Stage;

/// The name of a process that tries to be a command to the terminal.
pub const HOSTILE: &str = "\u{1b}[2J\u{9b}31mevil\r\n\u{7}";

/// The inode of the host's namespace, and of the container's.
pub const HOST: u64 = 4_026_531_840;
pub const CONTAINER: u64 = 4_026_532_000;

/// The cookie of the socket that overflows.
const UDP: u64 = 77;

const SECOND: u64 = 1_000_000_000;

/// The host after so many seconds: every rate is the same each second.
pub fn frame(seconds: u64) -> Frame {
    Frame {
        snapshot: snapshot(seconds),
        bill: Some(bill(seconds)),
        programs: Some(programs(seconds)),
        own_ns: seconds * 4_000_000,
        no_bill: None,
        no_programs: None,
    }
}

/// Ten seconds of the host.
pub fn scene() -> Scene {
    let [first, before, after] = [0, 9, 10].map(|seconds| Arc::new(frame(seconds)));
    Scene::new(first, Some(before), after)
}

fn counters(counters: &[(&str, u64)]) -> Counters {
    let counters = counters.iter();
    counters
        .map(|(name, value)| ((*name).to_owned(), (*value).into()))
        .collect()
}

fn process(name: &str, pid: u32) -> Process {
    Process {
        pid,
        name: name.into(),
    }
}

fn snapshot(seconds: u64) -> Snapshot {
    let mut snapshot = Snapshot {
        version: VERSION,
        boot_id: "a-boot".into(),
        kernel: "6.18.44".into(),
        realtime_ns: (1_795_528_800 + seconds) * SECOND,
        boottime_ns: (1000 + seconds) * SECOND,
        took_ns: 3_000_000,
        events: Some(Counted {
            drops: vec![Drop {
                reason: "SOCKET_RCVBUFF".into(),
                place: Some("udp_queue_rcv_one_skb".into()),
                netns: HOST,
                device: 2,
                protocol: 0x0800,
                socket: UDP,
                skbs: 250 * seconds,
                segments: 250 * seconds,
                received: true,
            }],
            ..Counted::default()
        }),
        xdp_sockets: Some(vec![xdp_socket(seconds)]),
        ..Snapshot::default()
    };
    snapshot.namespaces.insert(HOST, host(seconds));
    snapshot.namespaces.insert(CONTAINER, container(seconds));
    for cpu in 0..2 {
        // Counters of 32 bits, of which one wraps in the tenth second.
        let processed = (u64::from(u32::MAX) - 9500 + 1000 * seconds) & u64::from(u32::MAX);
        let columns = [
            ("processed", processed),
            ("dropped", 3 * seconds),
            ("time_squeeze", 2 * seconds),
            ("received_rps", 0),
        ];
        snapshot.cpus.insert(cpu, counters(&columns));
    }
    snapshot.gap(
        Stage::Packet,
        "TPACKET rings are not seen",
        "their owner's statistics",
    );
    snapshot
}

fn host(seconds: u64) -> Namespace {
    let mut namespace = Namespace {
        name: "host".into(),
        ..Namespace::default()
    };
    namespace.devices.insert(2, card(seconds));
    namespace.sockets.insert(
        UDP,
        Socket {
            protocol: "udp".into(),
            local: "0.0.0.0:53".into(),
            drops: 5000 + 250 * seconds,
            queued: 106_496,
            limit: 212_992,
            process: Some(process(HOSTILE, 4711)),
            ..Socket::default()
        },
    );
    namespace
}

fn card(seconds: u64) -> Device {
    let mut card = Device {
        name: "eth0".into(),
        queues: 2,
        xdp_driver: Some(42),
        statistics: counters(&[
            ("rx_packets", 1_250_000 * seconds),
            ("rx_bytes", 125_000_000 * seconds),
            ("tx_packets", 1500 * seconds),
            ("tx_bytes", 150_000 * seconds),
            ("rx_dropped", 7 * seconds),
            ("rx_missed_errors", 5 * seconds),
            ("tx_dropped", 0),
            ("rx_errors", 0),
            ("tx_errors", 0),
        ]),
        driver: counters(&[
            ("rx_queue_*_drops", 12 * seconds),
            ("rx_no_dma", 9 * seconds),
        ]),
        ..Device::default()
    };
    let qdiscs = [
        ("mq 0: root", 40),
        ("fq_codel 8001:", 40),
        ("clsact ffff:", 1000),
    ];
    for (name, drops) in qdiscs {
        card.qdiscs
            .insert(name.into(), counters(&[("drops", drops * seconds)]));
    }
    for (queue, packets) in [("rx 0", 1_000_000), ("rx 1", 250_000)] {
        let counted = [
            ("packets", packets * seconds),
            ("drops", 6 * seconds),
            ("xdp_redirect", 100 * seconds),
        ];
        card.by_queue.insert(queue.into(), counters(&counted));
    }
    card
}

fn container(seconds: u64) -> Namespace {
    let mut namespace = Namespace {
        name: "web\u{1b}]0;owned\u{7}".into(),
        container: Some("0123456789ab".into()),
        ..Namespace::default()
    };
    let veth = Device {
        name: "v\u{1b}[31mth".into(),
        kind: Some("veth".into()),
        queues: 1,
        statistics: counters(&[("rx_packets", 10 * seconds)]),
        ..Device::default()
    };
    namespace.devices.insert(5, veth);
    namespace
}

fn xdp_socket(seconds: u64) -> XdpSocket {
    // Indices wrap as the kernel's do.
    let ring = |produced: u64, level: u32| {
        let producer = (produced as u32).wrapping_sub(5);
        Some(Ring {
            size: 2048,
            producer,
            consumer: producer.wrapping_sub(level),
        })
    };
    XdpSocket {
        cookie: 9,
        process: process("forwarder", 815),
        fd: 6,
        netns: HOST,
        device: 2,
        queue: 1,
        zero_copy: true,
        bound: true,
        rx: ring(250_000 * seconds, 2048),
        tx: ring(1500 * seconds, 0),
        fill: ring(250_000 * seconds, 0),
        completion: ring(1500 * seconds, 1024),
        rx_dropped: 20 * seconds,
        rx_full: 30 * seconds,
        fill_empty: 400 * seconds,
        rx_needs_wakeup: true,
        ..XdpSocket::default()
    }
}

fn bill(seconds: u64) -> Bill {
    let ns = |percent: u64| percent * 10_000_000 * seconds;
    let mut bill = Bill {
        begun_ns: 5,
        own_percent: 0.34,
        ..Bill::default()
    };
    for cpu in 0..2 {
        let time = CpuTime {
            observed: ns(100),
            net_rx: ns(30),
            net_tx: ns(5),
            ksoftirqd: ns(1),
            tasks: ns(40),
            idle: ns(24),
            ..CpuTime::default()
        };
        bill.cpus.insert(cpu, time);
    }
    let task = |name: &str, running| TaskTime {
        name: name.into(),
        running: ns(running),
        net_rx: ns(10),
        ..TaskTime::default()
    };
    bill.tasks.insert(0, task("swapper", 50));
    bill.tasks.insert(815, task("forwarder", 60));
    bill.tasks.insert(4711, task(HOSTILE, 20));
    bill.napis.push(NapiTime {
        device: "eth0".into(),
        ifindex: 2,
        netns: HOST,
        id: 8193,
        polls: 10_000 * seconds,
        packets: 320_000 * seconds,
        exhausted: 11 * seconds,
        ns: ns(32),
    });
    bill
}

fn programs(seconds: u64) -> Programs {
    let program = |name: &str, runs, ns| Program {
        name: name.into(),
        kind: "xdp".into(),
        tag: "0123456789abcdef".into(),
        runs: runs * seconds,
        ns: ns * seconds,
    };
    Programs {
        by_id: [
            (42, program("redirect", 1_000_000, 90_000_000)),
            (43, program("\u{1b}c", 0, 0)),
        ]
        .into(),
        price: Some(RunPrice {
            total_ns: 60.0,
            reported_ns: 30.0,
        }),
    }
}
