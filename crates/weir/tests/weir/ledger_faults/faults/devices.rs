//! Devices that hand packets to others: the packet names one of them when it is freed, and another one counts it.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Barrier;
use std::thread;

use anyhow::{Context as _, Result, ensure};
use hostnet::cpulist::{self, CpuList};
use rustix::net::sockopt::set_socket_send_buffer_size_force;
use weir::ledger::stage::Stage;

use crate::ledger_faults::fault::{Fault, Prepared, Ready, Row};
use crate::ledger_faults::frame;
use crate::ledger_faults::kernel::Kernel;
use crate::ledger_faults::lab::{At, LEFT, Lab, RIGHT, plain};
use crate::ledger_faults::programs::{Program, Xdp, hold};

pub const FAULTS: &[Fault] = &[
    fault("veth_ring_full", ring),
    fault("veth_over_the_mtu_of_its_peer", over_mtu),
    fault("bridge_port_qdisc_full", bridge_port),
    fault("bridge_over_a_full_qdisc", bridge),
    fault("bond_over_a_full_qdisc", bond),
    fault("team_without_a_mode", team),
    fault("vlan_over_a_full_qdisc", vlan),
    fault("macvlan_over_a_full_qdisc", macvlan),
    fault("ipvlan_over_a_full_qdisc", ipvlan),
    fault("vxlan_over_a_full_qdisc", vxlan),
    fault("geneve_over_a_full_qdisc", geneve),
    fault("gre_over_a_full_qdisc", gre),
    fault("ipip_over_a_full_qdisc", ipip),
];

const fn fault(name: &'static str, prepare: fn(&mut Lab, &Kernel) -> Result<Prepared>) -> Fault {
    Fault {
        name,
        prepare,
        mixes: false,
    }
}

/// `VETH_RING_SIZE` of `drivers/net/veth.c`.
const RING: u64 = 256;
/// Slots that are kept after their frames have been taken (`__ptr_ring_discard_one` of `linux/ptr_ring.h`).
const BATCH: u64 = 16;
const SEND_BUFFER: usize = 4 << 20;
/// Looks at a counter that stands still.
const STILL: usize = 10;
/// A datagram that a queue of a byte a second keeps for half an hour.
const LARGE: [u8; 1400] = [0; 1400];
/// Behind the devices above `l0`.
const BEYOND: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 2);

/// The receiving NAPI is kept at a frame, on a CPU of its own, until all others are sent.
fn ring(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    let allowed = CpuList::allowed()?;
    let [own, other, ..] = *allowed.as_slice() else {
        return Ok(Prepared::Lacks("a second CPU"));
    };
    // A frame that does not fit into the ring must be lost there: no qdisc may hold it back.
    lab.left.command("tc qdisc replace dev l0 root noqueue")?;
    let index = lab.right.index("r0")?;
    let program = lab
        .right
        .run(|| Program::load("fault_hold", 0, 0)?.attach(index, Xdp::Native))?;
    let port = lab.port();
    let receiver = lab.right.udp(RIGHT, port)?;
    let sender = lab.left.run(|| {
        let socket = UdpSocket::bind((LEFT, 0))?;
        // The frames of a full ring are more than the default allows on some kernels: the sender would wait.
        set_socket_send_buffer_size_force(&socket, SEND_BUFFER)?;
        socket.connect((RIGHT, port))?;
        Ok(socket)
    })?;
    let cause = move |_: &mut Lab, count: u64| {
        let _ = &receiver;
        let (hold, before) = (program.hold()?, program.sampled()?);
        // No thread is left on the CPU that is to be held.
        let pinned = Barrier::new(2);
        thread::scope(|scope| {
            hold.set(&0, &hold::NEXT)?;
            // NAPI runs on the CPU of the first sender.
            let first = scope.spawn(|| {
                let is_pinned = cpulist::pin(other);
                pinned.wait();
                is_pinned?;
                anyhow::Ok(sender.send(&[0])?)
            });
            let rest = scope.spawn(|| {
                let is_pinned = cpulist::pin(own);
                pinned.wait();
                is_pinned?;
                crate::until("NAPI is held", || {
                    Ok(matches!(hold.get(&0)?, Some(hold::HOLDING | hold::OVER)))
                })?;
                for _ in 0..RING + count {
                    sender.send(&[0])?;
                }
                anyhow::Ok(())
            });
            let sent = rest.join();
            let is_over = hold.get(&0)? == Some(hold::OVER);
            hold.set(&0, &hold::NOTHING)?;
            let first = first.join();
            sent.ok().context("a sender panicked")??;
            first.ok().context("a sender panicked")??;
            if is_over {
                let lacks = "needs a CPU to send a ring of frames in 8 s: NAPI went on before";
                return Err(testkit::skip(lacks));
            }
            anyhow::Ok(())
        })?;
        let mut seen = Vec::new();
        crate::until("the samples stand still", || {
            seen.push(program.sampled()? - before);
            Ok(seen.len() > STILL
                && seen[seen.len() - STILL..]
                    .iter()
                    .all(|it| Some(it) == seen.last()))
        })?;
        let passed = seen.last().copied().unwrap_or_default();
        ensure!(passed < 1 + RING + count, "the ring had room for all");
        ensure!(
            passed > RING - BATCH,
            "{passed} frames passed a ring of {RING}"
        );
        Ok(1 + RING + count - passed)
    };
    let row = Row::lost(Stage::Transmit, "NOT_SPECIFIED", At::Left)
        .place("veth_xmit")
        .device("l0")
        .also(&["tx_dropped"]);
    Ok(Ready::new([row], cause).done())
}

fn over_mtu(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    lab.right.command("ip link set r0 mtu 500")?;
    let socket = lab.left.run(|| Ok(UdpSocket::bind((LEFT, 0))?))?;
    let port = lab.port();
    let row = Row::lost(Stage::Transmit, "NOT_SPECIFIED", At::Left)
        .place("dev_forward_skb")
        .device("l0")
        .also(&["tx_dropped", "r0 rx_dropped"]);
    Ok(Ready::new([row], sends(socket, (RIGHT, port))).done())
}

fn sends(socket: UdpSocket, to: (Ipv4Addr, u16)) -> impl FnMut(&mut Lab, u64) -> Result<u64> {
    move |_, count| {
        for _ in 0..count {
            socket.send_to(&LARGE, to)?;
        }
        Ok(count)
    }
}

/// `right` is a bridge, whose frames IP never sees.
fn bridge_port(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    const FAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 4];
    for words in [
        "link add b0 type bridge mcast_snooping 0",
        "link set r0 master b0",
        "link set r1 master b0",
        "link set b0 up",
    ] {
        lab.right.command(&format!("ip {words}"))?;
    }
    lab.right
        .command("tc qdisc add dev r1 root handle 7: tbf rate 8bit burst 1600 limit 8000")?;
    lab.right.command(&format!(
        "bridge fdb add {} dev r1 master static",
        text(FAR_MAC)
    ))?;
    let datagram = frame::Odd {
        payload: LARGE.len(),
        ..plain()
    };
    let frame = frame::udp(
        [FAR_MAC, crate::ledger_faults::lab::LEFT_MAC],
        [9, 9],
        &datagram,
    );
    crate::until("the bridge's port forwards", || {
        Ok(lab
            .right
            .command("ip -d link show r1")?
            .contains("state forwarding"))
    })?;
    lab.send_all(&frame, 20)?;
    let row = Row::lost(Stage::Qdisc, "QDISC_DROP", At::Right)
        .place("")
        .device("r1")
        .qdisc("tbf 7: root");
    let cause = move |lab: &mut Lab, count| {
        lab.send_all(&frame, count)?;
        Ok(count)
    };
    Ok(Ready::new([row], cause).done())
}

fn text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

fn bridge(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    above(lab, "type bridge", &["ip link set l0 master u0"])
}

fn bond(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    controller(lab, "type bond mode active-backup")
}

/// As `ip link add` makes it: a mode is set by another program.
fn team(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    let prepared = controller(lab, "type team")?;
    let row = Row::lost(Stage::Transmit, "NOT_SPECIFIED", At::Left)
        .place("team_dummy_transmit")
        .device("u0")
        .also(&["tx_dropped"]);
    Ok(match prepared {
        Prepared::Ready(ready) => Prepared::Ready(Box::new(Ready {
            rows: vec![row],
            ..*ready
        })),
        lacks @ Prepared::Lacks(_) => lacks,
    })
}

/// It takes only devices that are down.
fn controller(lab: &mut Lab, kind: &str) -> Result<Prepared> {
    let words = [
        "ip link set l0 down",
        "ip link set l0 master u0",
        "ip link set l0 up",
    ];
    above(lab, kind, &words)
}

fn vlan(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    above(lab, "link l0 type vlan id 5", &[])
}

fn macvlan(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    above(lab, "link l0 type macvlan mode bridge", &[])
}

fn ipvlan(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    above(lab, "link l0 type ipvlan mode l2", &[])
}

fn vxlan(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    let kind = format!("type vxlan id 5 dstport 4789 local {LEFT} remote {RIGHT}");
    above(lab, &kind, &[])
}

fn geneve(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    above(lab, &format!("type geneve id 5 remote {RIGHT}"), &[])
}

fn gre(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    above(lab, &format!("type gre local {LEFT} remote {RIGHT}"), &[])
}

fn ipip(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    above(lab, &format!("type ipip local {LEFT} remote {RIGHT}"), &[])
}

/// A device above `l0`, whose qdisc is full.
fn above(lab: &mut Lab, kind: &str, more: &[&str]) -> Result<Prepared> {
    let mut kind_words = kind.split_whitespace().peekable();
    let link = match kind_words.next_if_eq(&"link") {
        Some(_) => format!("link {} ", kind_words.next().context("a device")?),
        None => String::new(),
    };
    let kind = kind_words.collect::<Vec<_>>().join(" ");
    match lab
        .left
        .command(&format!("ip link add {link}name u0 {kind}"))
    {
        Err(error) if error.to_string().contains("Unknown device type") => {
            return Ok(Prepared::Lacks("this kind of device"));
        }
        other => other?,
    };
    for words in more {
        lab.left.command(words)?;
    }
    for words in [
        "ip link set u0 up",
        "ip link set u0 mtu 1450",
        "ip address add 203.0.113.1/24 dev u0",
    ] {
        lab.left.command(words)?;
    }
    // Tunnels of IP have no neighbours.
    let _ = lab.left.command(&format!(
        "ip neigh replace {BEYOND} lladdr 02:00:00:00:00:09 dev u0 nud permanent"
    ));
    lab.left
        .command("tc qdisc replace dev l0 root handle 7: tbf rate 8bit burst 1600 limit 8000")?;
    let port = lab.port();
    let socket = lab
        .left
        .run(|| Ok(UdpSocket::bind((Ipv4Addr::new(203, 0, 113, 1), 0))?))?;
    let mut cause = sends(socket, (BEYOND, port));
    // Until it is full.
    cause(lab, 20)?;
    let row = Row::lost(Stage::Qdisc, "QDISC_DROP", At::Left)
        .place("")
        .device("l0")
        .qdisc("tbf 7: root");
    Ok(Ready::new([row], cause).done())
}
