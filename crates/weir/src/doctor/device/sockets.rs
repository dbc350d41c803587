//! AF_XDP sockets.

use anyhow::Result;

use crate::doctor::check::Check;
use crate::doctor::context::device::Device;
use crate::doctor::context::{Context, XdpSocket};
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::severity::Severity;
use crate::doctor::verdict::{HOST, Verdict};

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[XSK_ZERO_COPY];

const XSK_ZERO_COPY: Check = Check {
    id: "xsk-zero-copy",
    title: "an AF_XDP socket is in copy mode although the driver has zero-copy",
    severity: Severity::Warning,
    why: "A socket that accepts any mode falls back to copy mode silently when zero-copy is refused, and the kernel copies each packet.",
    source: "xp_assign_dev in net/xdp/xsk_buff_pool.c; XDP_DU_F_ZEROCOPY in linux/xdp_diag.h",
    more: "Reads the mode of each AF_XDP socket of this network namespace (netlink, xdp_diag: \
           CONFIG_XDP_SOCKETS_DIAG), and whether the driver has zero-copy (NETDEV_A_DEV_XDP_FEATURES, \
           Linux 6.3). The kernel does not report whether a socket uses need_wakeup.\n\n\
           There is no automatic fix: the owner has to require zero-copy (XDP_ZEROCOPY) and report \
           the refusal, as `weir bench rxdrop --mode zc` does. Common causes are another socket's \
           pool on the queue, the ring size and the MTU.",
    counters: &[],
    run,
};

fn run(context: &Context) -> Result<Vec<Verdict>> {
    let Some(sockets) = context.xdp_sockets()? else {
        let reason = "this kernel does not list AF_XDP sockets: load the module xsk_diag, or use a kernel with CONFIG_XDP_SOCKETS_DIAG";
        return Ok(vec![Verdict::unchecked(HOST, reason)]);
    };
    let devices = context.devices()?;
    let mut verdicts = Vec::new();
    for socket in sockets {
        let device = devices.iter().find(|it| it.link.index == socket.device);
        if let Some(device) = device.filter(|device| context.is_selected(device)) {
            verdicts.push(verdict(device, socket)?);
        }
    }
    Ok(verdicts)
}

fn verdict(device: &Device, socket: &XdpSocket) -> Result<Verdict> {
    let (name, queue) = (device.name(), socket.queue);
    let source = format!("xdp_diag, socket on queue {queue} of {name}");
    let mode = if socket.zero_copy {
        "zero-copy"
    } else {
        "copy"
    };
    let mut evidence = vec![Evidence::new(source, mode)];
    if socket.zero_copy {
        return Ok(Verdict::fine(name, evidence));
    }
    let Some(features) = device.xdp_features()? else {
        let reason = "a socket is in copy mode, and this kernel does not report whether the driver has zero-copy: Linux 6.3 does";
        return Ok(Verdict::unchecked(name, reason));
    };
    let source = format!("netdev genetlink, NETDEV_A_DEV_XDP_FEATURES of {name}");
    evidence.push(Evidence::new(source, features.to_string()));
    if !features.zero_copy() {
        return Ok(Verdict::fine(name, evidence));
    }
    Ok(Verdict::found(
        name,
        evidence,
        format!("The AF_XDP socket on queue {queue} of {name} copies each packet."),
        Fix::manual(
            "have its owner require zero-copy and report the refusal, as `weir bench rxdrop --mode zc` does",
        ),
    ))
}
