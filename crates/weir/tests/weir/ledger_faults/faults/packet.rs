//! Packet sockets: a full queue and a full ring lose copies, not packets.

use anyhow::Result;
use testkit::PacketSocket;
use weir::ledger::sheet::Class;
use weir::ledger::stage::Stage;

use crate::ledger_faults::fault::{Fault, Prepared, Ready, Row};
use crate::ledger_faults::frame;
use crate::ledger_faults::kernel::Kernel;
use crate::ledger_faults::lab::{At, Lab, MACS, RIGHT, plain};

pub const FAULTS: &[Fault] = &[
    Fault {
        name: "packet_socket_queue_full",
        prepare: queue,
        mixes: false,
    },
    Fault {
        name: "packet_ring_full",
        prepare: ring,
        mixes: false,
    },
];

const IPV4: u16 = 0x0800;

fn queue(lab: &mut Lab, kernel: &Kernel) -> Result<Prepared> {
    let index = lab.right.index("r0")?;
    let tap = lab
        .right
        .run(|| Ok(PacketSocket::on(index).protocol(IPV4).buffer(4096).open()?))?;
    let name = format!("packet r0 protocol {IPV4:#06x}");
    let reason = if kernel.has("PACKET_SOCK_ERROR") {
        "PACKET_SOCK_ERROR"
    } else {
        "NOT_SPECIFIED"
    };
    let row = Row::new(Class::CopyLost, Stage::Packet, reason, At::Right)
        .place("packet_rcv")
        .device("r0")
        .socket(name)
        .also(&["socket drops"]);
    copied(lab, row, tap)
}

fn ring(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    let index = lab.right.index("r0")?;
    let tap = lab
        .right
        .run(|| Ok(PacketSocket::on(index).protocol(IPV4).ring(16).open()?))?;
    let row = Row::new(Class::CopyLost, Stage::Packet, "drops", At::Right)
        .socket(format!("packet r0 protocol {IPV4:#06x}"));
    copied(lab, row, tap)
}

/// The packets themselves arrive.
fn copied(lab: &mut Lab, row: Row, tap: PacketSocket) -> Result<Prepared> {
    let port = lab.port();
    let receiver = lab.right.udp(RIGHT, port)?;
    let frame = frame::udp(MACS, [port, port], &plain());
    // Far more than it can hold.
    lab.send_all(&frame, 100)?;
    let cause = move |lab: &mut Lab, count| {
        let _ = (&receiver, &tap);
        lab.send_all(&frame, count)?;
        Ok(count)
    };
    Ok(Ready::new([row], cause).done())
}
