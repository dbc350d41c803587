//! The AF_XDP sockets that are open.

use anyhow::Result;

use super::is_selected;
use crate::doctor::{Check, Context, Evidence, Finding, Fix, HOST, Severity, Verdict};
use hostnet::genetlink::netdev::{self, XdpFeatures};
use hostnet::rtnetlink::Rtnetlink;
use hostnet::sock_diag::xdp_diag::{self, XdpSocket};

pub const XSK_ZERO_COPY: Check = Check {
    id: "xsk-zero-copy",
    title: "an AF_XDP socket copies packets where the driver need not",
    severity: Severity::Warning,
    why: "A socket that asks for any mode gets copy mode without a word when zero-copy is refused, and each packet is copied by the kernel.",
    source: "xp_assign_dev in net/xdp/xsk_buff_pool.c; XDP_DU_F_ZEROCOPY in linux/xdp_diag.h",
    more: "Looked at: each AF_XDP socket of this network namespace (netlink, xdp_diag: CONFIG_XDP_SOCKETS_DIAG), whether it got zero-copy, and whether the driver has that (NETDEV_A_DEV_XDP_FEATURES, Linux 6.3). The kernel does not tell whether a socket uses need_wakeup.\n\n\
        There is no fix by itself: the owner has to ask for zero-copy (XDP_ZEROCOPY) and show why it is refused; `weir bench rxdrop --mode zc` says so. Often it is another socket's pool on the queue, the ring size or the MTU.",
    run,
};

fn run(context: &Context) -> Result<Vec<Verdict>> {
    let Some(sockets) = xdp_diag::xdp_sockets()? else {
        return Ok(vec![Verdict::Unchecked {
            subject: HOST.into(),
            reason: "this kernel does not list AF_XDP sockets: it needs CONFIG_XDP_SOCKETS_DIAG (module xsk_diag)".into(),
        }]);
    };
    let devices = Rtnetlink::open()?.links()?;
    let mut verdicts = Vec::new();
    for socket in sockets {
        let device = devices.iter().find(|device| device.index == socket.device);
        if let Some(device) = device.filter(|device| is_selected(context, device)) {
            let features = netdev::xdp_features(device.index)?;
            verdicts.push(socket_verdict(&device.name, socket, features));
        }
    }
    Ok(verdicts)
}

/// What the check `xsk-zero-copy` says of a socket, by what the driver of its device can do.
pub fn socket_verdict(device: &str, socket: XdpSocket, features: Option<XdpFeatures>) -> Verdict {
    let queue = socket.queue;
    let mut evidence = vec![Evidence::new(
        format!("xdp_diag, socket on queue {queue} of {device}"),
        if socket.zero_copy {
            "zero-copy"
        } else {
            "copy"
        },
    )];
    if socket.zero_copy {
        return super::fine(device, evidence);
    }
    let Some(features) = features else {
        let reason = "a socket copies, and this kernel does not tell whether the driver has zero-copy: Linux 6.3 does";
        return super::unchecked(device, reason.into());
    };
    let source = format!("netdev genetlink, NETDEV_A_DEV_XDP_FEATURES of {device}");
    evidence.push(Evidence::new(source, features.to_string()));
    if !features.zero_copy() {
        return super::fine(device, evidence);
    }
    Verdict::Finding(Finding {
        subject: device.into(),
        evidence,
        message: format!(
            "The AF_XDP socket on queue {queue} of {device} copies each packet, though the driver has zero-copy."
        ),
        fix: Fix::Text(
            "let its owner ask for zero-copy alone, and say why it is refused: `weir bench rxdrop --mode zc` does".into(),
        ),
    })
}
