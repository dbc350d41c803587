//! Sending: queueing disciplines, neighbours, taps, devices that are down.

use std::net::{Ipv4Addr, UdpSocket};

use anyhow::Result;
use hostnet::rtnetlink::Rtnetlink;
use hostnet::tap::Tap;
use testkit::PacketSocket;
use weir::ledger::stage::Stage;

use crate::ledger_faults::fault::{Fault, Prepared, Ready, Row};
use crate::ledger_faults::frame;
use crate::ledger_faults::kernel::Kernel;
use crate::ledger_faults::lab::{At, LEFT, Lab, MACS, RIGHT, plain};
use crate::until;

pub const FAULTS: &[Fault] = &[
    Fault {
        name: "qdisc_tbf_full",
        prepare: tbf,
        mixes: false,
    },
    Fault {
        name: "qdisc_htb_full",
        prepare: htb,
        mixes: false,
    },
    Fault {
        name: "neighbour_queue_full",
        prepare: neighbour_queue,
        mixes: true,
    },
    Fault {
        name: "neighbour_failed",
        prepare: neighbour_failed,
        mixes: false,
    },
    Fault {
        name: "tap_queue_full",
        prepare: tap,
        mixes: false,
    },
    Fault {
        name: "peer_down",
        prepare: down,
        mixes: false,
    },
];

/// A datagram that a queue of a byte a second keeps for half an hour.
const LARGE: [u8; 1400] = [0; 1400];

fn send(to: (Ipv4Addr, u16), socket: UdpSocket) -> impl FnMut(&mut Lab, u64) -> Result<u64> {
    move |_, count| {
        for _ in 0..count {
            socket.send_to(&LARGE, to)?;
        }
        Ok(count)
    }
}

fn socket(lab: &Lab) -> Result<UdpSocket> {
    lab.left.run(|| Ok(UdpSocket::bind((LEFT, 0))?))
}

fn tbf(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    lab.left
        .command("tc qdisc add dev l0 root handle 7: tbf rate 8bit burst 1600 limit 8000")?;
    Ok(full_qdisc(lab, "tbf 7: root")?.done())
}

fn htb(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    for words in [
        "qdisc add dev l0 root handle 7: htb default 1",
        "class add dev l0 parent 7: classid 7:1 htb rate 8bit burst 1600 cburst 1600",
        "qdisc add dev l0 parent 7:1 handle 8: pfifo limit 4",
    ] {
        lab.left.command(&format!("tc {words}"))?;
    }
    Ok(full_qdisc(lab, "pfifo 8:")?.done())
}

fn full_qdisc(lab: &mut Lab, qdisc: &'static str) -> Result<Ready> {
    let (port, socket) = (lab.port(), socket(lab)?);
    let mut cause = send((RIGHT, port), socket);
    // Until it is full.
    cause(lab, 20)?;
    let row = Row::lost(Stage::Qdisc, "QDISC_DROP", At::Left)
        .place("")
        .device("l0")
        .qdisc(qdisc)
        .also(&["Ip.OutDiscards", "Udp.SndbufErrors"]);
    Ok(Ready::new([row], cause))
}

fn neighbour_queue(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    // The question stays unanswered beyond the test.
    lab.left.sysctl("ipv4/neigh/l0/retrans_time_ms", "600000")?;
    lab.left.sysctl("ipv4/neigh/l0/unres_qlen", "3")?;
    let (port, socket) = (lab.port(), socket(lab)?);
    let mut cause = send((Ipv4Addr::new(192, 0, 2, 77), port), socket);
    cause(lab, 10)?;
    let row = Row::lost(Stage::Neighbour, "NEIGH_QUEUEFULL", At::Left)
        .place("neigh_event_send")
        .device("l0");
    Ok(Ready::new([row], cause).done())
}

fn neighbour_failed(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    // Without a question there is no answer.
    lab.left.sysctl("ipv4/neigh/l0/mcast_solicit", "0")?;
    let (port, socket) = (lab.port(), socket(lab)?);
    let cause = send((Ipv4Addr::new(192, 0, 2, 78), port), socket);
    let row = Row::lost(Stage::Neighbour, "NEIGH_FAILED", At::Left)
        .place("neigh_event_send")
        .device("l0");
    Ok(Ready::new([row], cause).done())
}

/// A tap that nobody reads.
fn tap(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    let frame = frame::udp(MACS, [9, 9], &plain());
    let tap = lab.left.run(|| Ok(Tap::create("t0")?))?;
    lab.left.command("ip link set t0 txqueuelen 4")?;
    lab.left.command("ip link set t0 up")?;
    let index = lab.left.index("t0")?;
    let sender = lab
        .left
        .run(|| Ok(PacketSocket::on(index).sending_only().open()?))?;
    for _ in 0..100 {
        let _ = sender.send(&frame);
    }
    let row = Row::lost(Stage::Transmit, "FULL_RING", At::Left)
        .place("tun_net_xmit")
        .device("t0")
        .also(&["tx_dropped"]);
    let cause = move |lab: &mut Lab, count| {
        let _ = &tap;
        for _ in 0..count {
            // A queue that is full may say so.
            let _ = sender.send(&frame);
            lab.raw += 1;
        }
        Ok(count)
    };
    Ok(Ready::new([row], cause).done())
}

/// The kernel takes the queues from a device whose peer is down.
fn down(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    lab.right.command("ip link set r0 down")?;
    until("the device knows", || {
        lab.left.run(|| Ok(!Rtnetlink::open()?.link("l0")?.running))
    })?;
    let (port, socket) = (lab.port(), socket(lab)?);
    let cause = send((RIGHT, port), socket);
    let row = Row::lost(Stage::Qdisc, "QDISC_DROP", At::Left)
        .place("")
        .device("l0");
    Ok(Ready::new([row], cause).done())
}
