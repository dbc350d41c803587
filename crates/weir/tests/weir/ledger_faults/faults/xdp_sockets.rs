//! AF_XDP sockets that are left to themselves, in copy mode, in the driver and behind it.

use anyhow::Result;
use weir::ledger::stage::Stage;

use crate::ledger_faults::fault::{Fault, Prepared, Ready, Row};
use crate::ledger_faults::frame::{self, EXPERIMENT};
use crate::ledger_faults::kernel::Kernel;
use crate::ledger_faults::lab::{At, Lab, MACS};
use crate::ledger_faults::programs::{Program, Xdp};
use crate::ledger_faults::socket::XdpSocket;

pub const FAULTS: &[Fault] = &[
    fault("af_xdp_no_fill_native", |lab, _| no_fill(lab, Xdp::Native)),
    fault("af_xdp_no_fill_generic", |lab, _| {
        no_fill(lab, Xdp::Generic)
    }),
    fault("af_xdp_rx_ring_full_native", |lab, _| {
        ring_full(lab, Xdp::Native)
    }),
    fault("af_xdp_rx_ring_full_generic", |lab, _| {
        ring_full(lab, Xdp::Generic)
    }),
    fault("af_xdp_frame_too_long_native", |lab, _| {
        too_long(lab, Xdp::Native)
    }),
    fault("af_xdp_frame_too_long_generic", |lab, _| {
        too_long(lab, Xdp::Generic)
    }),
];

const fn fault(name: &'static str, prepare: fn(&mut Lab, &Kernel) -> Result<Prepared>) -> Fault {
    Fault {
        name,
        prepare,
        mixes: false,
    }
}

const RX: u32 = 8;
const FILL: u32 = 64;

fn no_fill(lab: &mut Lab, place: Xdp) -> Result<Prepared> {
    starved(lab, place, "rx_dropped", 0, 46)
}

fn ring_full(lab: &mut Lab, place: Xdp) -> Result<Prepared> {
    starved(lab, place, "rx_ring_full", FILL, 46)
}

fn too_long(lab: &mut Lab, place: Xdp) -> Result<Prepared> {
    lab.left.command("ip link set l0 mtu 3000")?;
    lab.right.command("ip link set r0 mtu 3000")?;
    starved(lab, place, "rx_dropped", FILL, 2500)
}

fn starved(lab: &mut Lab, place: Xdp, reason: &str, fill: u32, length: usize) -> Result<Prepared> {
    let index = lab.right.index("r0")?;
    let (program, socket) = lab.right.run(|| {
        let socket = XdpSocket::open(index, RX, fill)?;
        let program = Program::load("fault_socket", 0, 0)?;
        program.sockets()?.set(&0, &socket.descriptor())?;
        Ok((program.attach(index, place)?, socket))
    })?;
    let frame = frame::ethernet(MACS[0], MACS[1], EXPERIMENT, &vec![0; length]);
    // Until the RX ring is full.
    lab.send_all(&frame, u64::from(RX) * 2)?;
    let also: &[&str] = match place {
        Xdp::Native => &[
            "event xdp:xdp_redirect_err",
            "rx_queue_*_drops",
            "rx_dropped",
        ],
        Xdp::Generic => &["event xdp:xdp_redirect_err", "event skb:kfree_skb XDP"],
    };
    let row = Row::lost(Stage::AfXdp, reason, At::Right)
        .device("r0")
        .socket("queue 0 (copy)")
        .also(also);
    let cause = move |lab: &mut Lab, count| {
        let _ = (&program, &socket);
        lab.send_all(&frame, count)?;
        Ok(count)
    };
    Ok(Ready::new([row], cause).done())
}
