//! Verdicts and redirects of XDP, in the driver and behind it.

use anyhow::Result;
use hostnet::ethtool::{self, Offload};
use weir::ledger::stage::Stage;

use crate::ledger_faults::fault::{Fault, Prepared, Ready, Row};
use crate::ledger_faults::frame::{self, EXPERIMENT};
use crate::ledger_faults::kernel::Kernel;
use crate::ledger_faults::lab::{At, Lab, MACS, Place};
use crate::ledger_faults::programs::{Program, Xdp};

pub const FAULTS: &[Fault] = &[
    fault("xdp_drop_native", drop_native),
    fault("xdp_drop_native_of_redirected_frames", drop_redirected),
    fault("xdp_drop_generic", drop_generic),
    fault("xdp_aborted_native", aborted_native),
    fault("xdp_aborted_generic", aborted_generic),
    fault("xdp_tx_to_a_peer_without_napi", tx),
    fault("xdp_redirect_to_no_device_native", no_device_native),
    fault("xdp_redirect_to_no_device_generic", no_device_generic),
    fault("xdp_redirect_to_an_empty_slot", empty_slot),
    fault("xdp_redirect_to_a_peer_without_napi", no_napi),
    fault("xdp_redirect_over_mtu", over_mtu),
    fault("xdp_redirect_to_a_peer_that_is_down", peer_down),
];

const fn fault(name: &'static str, prepare: fn(&mut Lab, &Kernel) -> Result<Prepared>) -> Fault {
    Fault {
        name,
        prepare,
        mixes: false,
    }
}

/// An index that no device has.
const NOBODY: u32 = 9999;

fn on_r0(lab: &Lab, name: &'static str, target: u32, place: Xdp) -> Result<Program> {
    let index = lab.right.index("r0")?;
    lab.right
        .run(|| Program::load(name, target, 0)?.attach(index, place))
}

/// Frames of a packet socket, which are skbs.
fn sent(row: Row, length: usize, held: impl Send + 'static) -> Ready {
    let frame = frame::ethernet(MACS[0], MACS[1], EXPERIMENT, &vec![0; length]);
    Ready::new([row], move |lab: &mut Lab, count| {
        let _ = &held;
        lab.send_all(&frame, count)?;
        Ok(count)
    })
}

fn xdp_row(reason: &str) -> Row {
    Row::lost(Stage::Xdp, reason, At::Right).device("r0")
}

fn drop_native(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    let program = on_r0(lab, "fault_drop", 0, Xdp::Native)?;
    let row = xdp_row("NOT_SPECIFIED")
        .place("veth_xdp_rcv_skb")
        .also(&["rx_queue_*_xdp_drops"]);
    Ok(sent(row, 46, program).done())
}

/// No skb is freed, so that the driver's counter alone tells.
fn drop_redirected(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    let program = on_r0(lab, "fault_drop", 0, Xdp::Native)?;
    let index = lab.left.index("l0")?;
    let load = lab.left.run(|| Program::load("fault_redirect", index, 0))?;
    let frame = frame::ethernet(MACS[0], MACS[1], EXPERIMENT, &[]);
    let row = xdp_row("rx_queue_*_xdp_drops");
    let cause = move |lab: &mut Lab, count: u64| {
        let _ = &program;
        lab.left.run(|| load.send(&frame, count as u32))?;
        Ok(count)
    };
    Ok(Ready::new([row], cause).done())
}

fn drop_generic(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    let program = on_r0(lab, "fault_drop", 0, Xdp::Generic)?;
    let row = xdp_row("NOT_SPECIFIED").place("generic");
    Ok(sent(row, 46, program).done())
}

fn aborted_native(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    let program = on_r0(lab, "fault_abort", 0, Xdp::Native)?;
    let row = xdp_row("XDP_ABORTED")
        .place("fault_abort")
        .also(&["event skb:kfree_skb NOT_SPECIFIED", "rx_queue_*_xdp_drops"]);
    Ok(sent(row, 46, program).done())
}

fn aborted_generic(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    let program = on_r0(lab, "fault_abort", 0, Xdp::Generic)?;
    let row = xdp_row("XDP_ABORTED")
        .place("fault_abort")
        .also(&["event skb:kfree_skb NOT_SPECIFIED"]);
    Ok(sent(row, 46, program).done())
}

fn tx(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    let program = on_r0(lab, "fault_tx", 0, Xdp::Native)?;
    let row = xdp_row("rx_queue_*_xdp_tx_errors").also(&["tx_dropped", "l0 rx_dropped"]);
    Ok(sent(row, 46, program).done())
}

fn no_device_native(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    let program = on_r0(lab, "fault_redirect", NOBODY, Xdp::Native)?;
    let row = xdp_row("xdp_redirect_err EINVAL (no map)")
        .place("fault_redirect")
        .also(&["rx_queue_*_drops", "rx_dropped"]);
    Ok(sent(row, 46, program).done())
}

fn no_device_generic(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    let program = on_r0(lab, "fault_redirect", NOBODY, Xdp::Generic)?;
    let row = xdp_row("xdp_redirect_err EINVAL (no map)")
        .place("fault_redirect")
        .also(&["event skb:kfree_skb XDP"]);
    Ok(sent(row, 46, program).done())
}

fn empty_slot(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    let program = on_r0(lab, "fault_socket", 0, Xdp::Native)?;
    let row = xdp_row("XDP_ABORTED")
        .place("fault_socket")
        .also(&["event skb:kfree_skb NOT_SPECIFIED", "rx_queue_*_xdp_drops"]);
    Ok(sent(row, 46, program).done())
}

/// From r0 out of r1, whose peer is f0.
fn to_r1(lab: &Lab) -> Result<Program> {
    let index = lab.right.index("r1")?;
    on_r0(lab, "fault_redirect", index, Xdp::Native)
}

fn with_napi(place: &Place, device: &str) -> Result<()> {
    place.run(|| Ok(ethtool::set(device, Offload::Gro, true)?))
}

fn no_napi(lab: &mut Lab, kernel: &Kernel) -> Result<Prepared> {
    let program = to_r1(lab)?;
    if !kernel.has_xdp_features {
        return Ok(lost_with_its_bulk(program));
    }
    let row = xdp_row("xdp_redirect_err EOPNOTSUPP (no map)")
        .place("fault_redirect")
        .also(&["rx_queue_*_drops", "rx_dropped"]);
    Ok(sent(row, 46, program).done())
}

/// The redirect succeeds, and only the counter of the target tells that the frames of a bulk were lost.
fn lost_with_its_bulk(program: Program) -> Prepared {
    let row = Row::lost(Stage::Transmit, "tx_dropped", At::Right).device("r1");
    sent(row, 46, program)
        .open(At::Right, Stage::Ip, Stage::Transmit, -1)
        .done()
}

fn over_mtu(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    with_napi(&lab.far, "f0")?;
    for place in [&lab.right, &lab.far] {
        let device = if place.inode == lab.far.inode {
            "f0"
        } else {
            "r1"
        };
        place.command(&format!("ip link set {device} mtu 500"))?;
    }
    let program = to_r1(lab)?;
    let row = xdp_row("xdp_redirect_err EMSGSIZE (no map)")
        .place("fault_redirect")
        .also(&["rx_queue_*_drops", "rx_dropped"]);
    Ok(sent(row, 1000, program).done())
}

fn peer_down(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    with_napi(&lab.far, "f0")?;
    let program = to_r1(lab)?;
    lab.far.command("ip link set f0 down")?;
    Ok(lost_with_its_bulk(program))
}
