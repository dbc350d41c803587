//! Between the devices and IP: Ethernet types, addresses of other hosts, filters of tc, netfilter, the backlog.

use std::fs;
use std::net::UdpSocket;
use std::thread::sleep;

use anyhow::Result;
use testkit::PacketSocket;
use weir::bpf::hook::TcFilter;
use weir::ledger::sheet::Class;
use weir::ledger::stage::Stage;

use crate::ledger_faults::fault::{Fault, Prepared, Ready, Row};
use crate::ledger_faults::frame::{self, EXPERIMENT, UNKNOWN};
use crate::ledger_faults::kernel::Kernel;
use crate::ledger_faults::lab::{At, LEFT, LEFT_MAC, Lab, MACS, RIGHT, plain};
use crate::ledger_faults::programs::Program;
use crate::ledger_faults::socket::set_segment;
use crate::ledger_faults::tools::has;
use crate::{ledger_faults::LOOK, until};

pub const FAULTS: &[Fault] = &[
    Fault {
        name: "unknown_ethertype",
        prepare: ethertype,
        mixes: true,
    },
    Fault {
        name: "unknown_ethertype_with_a_packet_socket",
        prepare: ethertype_watched,
        mixes: false,
    },
    Fault {
        name: "other_hosts_address",
        prepare: other_host,
        mixes: true,
    },
    Fault {
        name: "tc_clsact",
        prepare: clsact,
        mixes: false,
    },
    Fault {
        name: "tc_tcx",
        prepare: tcx,
        mixes: false,
    },
    Fault {
        name: "netfilter",
        prepare: netfilter,
        mixes: true,
    },
    Fault {
        name: "backlog_full",
        prepare: backlog,
        mixes: false,
    },
];

fn ethertype(_lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    let frame = frame::ethernet(MACS[0], MACS[1], UNKNOWN, &[]);
    let row = Row::lost(Stage::Stack, "UNHANDLED_PROTO", At::Right)
        .place("netif_receive_skb")
        .device("r0")
        .also(&["rx_dropped"]);
    let cause = move |lab: &mut Lab, count| {
        lab.send_all(&frame, count)?;
        Ok(count)
    };
    Ok(Ready::new([row], cause).done())
}

/// The packet socket takes the frames: nothing is lost, and no counter of the stack has them.
fn ethertype_watched(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    let frame = frame::ethernet(MACS[0], MACS[1], UNKNOWN, &[]);
    let index = lab.right.index("r0")?;
    let socket = lab.right.run(|| Ok(PacketSocket::on(index).open()?))?;
    let cause = move |lab: &mut Lab, count| {
        let _ = &socket;
        lab.send_all(&frame, count)?;
        Ok(count)
    };
    Ok(Ready::new([], cause)
        .open(At::Right, Stage::Driver, Stage::Ip, 1)
        .done())
}

fn other_host(_lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    let frame = frame::udp([[2, 0, 0, 0, 9, 9], LEFT_MAC], [9, 9], &plain());
    let row = Row::new(Class::NotLost, Stage::Ip, "OTHERHOST", At::Right)
        .place("ip_rcv")
        .device("r0")
        .also(&["rx_otherhost_dropped"]);
    let cause = move |lab: &mut Lab, count| {
        lab.send_all(&frame, count)?;
        Ok(count)
    };
    Ok(Ready::new([row], cause).done())
}

fn clsact(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    let index = lab.right.index("r0")?;
    let program = Program::load("fault_shot", 0, 0)?;
    lab.right
        .run(|| TcFilter::attach(&program.programs, "fault_shot", index))?;
    let row = tc_row().qdisc("clsact").also(&["clsact ffff: dropped"]);
    Ok(shot(row, program))
}

fn tcx(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    let index = lab.right.index("r0")?;
    let program = Program::load("fault_shot", 0, 0)?;
    let attached = lab
        .right
        .run(|| program.programs.attach_tcx("fault_shot", index));
    let Ok(attached) = attached else {
        return Ok(Prepared::Lacks("tcx (Linux 6.6)"));
    };
    Ok(shot(tc_row(), (program, attached)))
}

fn tc_row() -> Row {
    Row::lost(Stage::Tc, "TC_INGRESS", At::Right)
        .place("netif_receive_skb")
        .device("r0")
}

fn shot(row: Row, held: impl Send + 'static) -> Prepared {
    let frame = frame::ethernet(MACS[0], MACS[1], EXPERIMENT, &[]);
    let cause = move |lab: &mut Lab, count| {
        let _ = &held;
        lab.send_all(&frame, count)?;
        Ok(count)
    };
    Ready::new([row], cause).done()
}

fn netfilter(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    if !has("nft") {
        return Ok(Prepared::Lacks("nft"));
    }
    let port = lab.port();
    for words in [
        "add table ip faults".into(),
        "add chain ip faults in { type filter hook input priority 0 ; policy accept ; }".into(),
        format!("add rule ip faults in udp dport {port} drop"),
    ] {
        if lab.right.command(&format!("nft {words}")).is_err() {
            return Ok(Prepared::Lacks("nf_tables"));
        }
    }
    let frame = frame::udp(MACS, [port, port], &plain());
    let row = Row::lost(Stage::Netfilter, "NETFILTER_DROP", At::Right)
        .place("n")
        .device("r0");
    let cause = move |lab: &mut Lab, count| {
        lab.send_all(&frame, count)?;
        Ok(count)
    };
    Ok(Ready::new([row], cause).done())
}

/// A burst of segments of one skb comes to a backlog of one packet. The limit is the whole host's, so only in a
/// guest.
fn backlog(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    const SEGMENTS: u64 = 50;
    const LIMIT: &str = "/proc/sys/net/core/netdev_max_backlog";
    if std::env::var_os("WEIR_TEST_OWN_HOST").is_none() {
        return Ok(Prepared::Lacks(
            "a netdev_max_backlog that this test may change: it is the whole host's (the guests have one)",
        ));
    }
    let port = lab.port();
    let receiver = lab.right.udp(RIGHT, port)?;
    let sender = lab.left.run(|| Ok(UdpSocket::bind((LEFT, 0))?))?;
    set_segment(&sender, 32)?;
    // The device sends the segments one by one.
    lab.left
        .command("ethtool -K l0 tx-udp-segmentation off tso off gso on")?;
    let before = fs::read_to_string(LIMIT)?;
    let row = Row::lost(Stage::Backlog, "CPU_BACKLOG", At::Right)
        .place("enqueue_to_backlog")
        .device("r0")
        .also(&["softnet dropped", "rx_dropped", "l0 tx_dropped"]);
    let cause = move |_: &mut Lab, count: u64| {
        let bursts = count / SEGMENTS;
        fs::write(LIMIT, "0")?;
        let sent = (0..bursts).try_for_each(|_| {
            let burst = [0; 32 * SEGMENTS as usize];
            sender.send_to(&burst, (RIGHT, port)).map(drop)
        });
        fs::write(LIMIT, &before)?;
        sent?;
        let mut read = 0;
        let mut byte = [0; 64];
        until("all is read", || {
            let before = read;
            sleep(LOOK);
            while receiver.recv(&mut byte).is_ok() {
                read += 1;
            }
            Ok(read > 0 && read == before)
        })?;
        Ok(bursts * SEGMENTS - read)
    };
    // IP counts an skb, and the device its segments.
    let ready = Ready::new([row], cause).open(At::Left, Stage::Ip, Stage::Transmit, -1);
    Ok(ready.done())
}
