//! The peer of a veth with XDP.

use anyhow::Result;

use super::each::{each, foreign_peer};
use crate::doctor::check::Check;
use crate::doctor::context::Context;
use crate::doctor::context::device::Device;
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::severity::Severity;
use crate::doctor::verdict::Verdict;

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[VETH_NAPI, GUEST_OFFLOADS];

const VETH_NAPI: Check = Check {
    id: "veth-napi",
    title: "XDP_REDIRECT into a veth drops packets: its peer has no NAPI",
    severity: Severity::Warning,
    why: "A veth accepts a redirected packet only if its peer has NAPI, by GRO or by a native XDP program; otherwise it drops the packet, and only the tracepoint xdp:xdp_devmap_xmit shows that.",
    source: "veth_xdp_xmit in drivers/net/veth.c; veth_set_features, Linux 5.13",
    more: "Reads whether a veth accepts redirected packets (netdev genetlink, NDO_XMIT of \
           NETDEV_A_DEV_XDP_FEATURES). It is a finding only if a native program of another device has \
           a map of devices to redirect to (BPF_MAP_TYPE_DEVMAP): of a program that calls bpf_redirect(ifindex) the \
           kernel does not show the target.\n\n\
           The fix turns GRO of the peer on. For a peer in another network namespace: `nsenter \
           --net=FILE ethtool -K PEER gro on`, where FILE is its entry in /run/netns or \
           /proc/PID/ns/net.",
    counters: &[],
    run: napi,
};

const GUEST_OFFLOADS: Check = Check {
    id: "guest-offloads",
    title: "packets redirected by XDP have no checksum",
    severity: Severity::Warning,
    why: "A container leaves checksums to the veth, where only the network stack fills them in; a packet that an XDP program sends with XDP_TX or XDP_REDIRECT bypasses the stack, and its receiver drops it.",
    source: "veth_xdp_rcv_skb in drivers/net/veth.c, which does not distinguish them; xdp-project/xdp-tutorial, issue 292",
    more: "Reads whether the peer of a veth with an XDP program leaves checksums to the device \
           (ethtool -k PEER, tx-checksumming). The kernel itself turns segmentation offload off.\n\n\
           The fix is `ethtool -K PEER tx off`, in the namespace of the peer. The same applies to \
           virtual machines: start them with csum=off for their network device.",
    counters: &[],
    run: |context| each(context, |device| guest_offloads(context, device)),
};

fn napi(context: &Context) -> Result<Vec<Verdict>> {
    let redirecting = redirecting(context)?;
    each(context, |device| napi_of(context, device, &redirecting))
}

/// The devices whose native program has a DEVMAP.
fn redirecting(context: &Context) -> Result<Vec<(&Device, Evidence)>> {
    let mut found = Vec::new();
    for device in context.devices()? {
        // A device that was removed meanwhile redirects nothing.
        let programs = device.programs().unwrap_or_default().iter();
        for program in programs.filter(|program| program.native_devmap) {
            let source = format!("bpf(2), the maps of the program on {}", device.name());
            let value = format!("{}: a DEVMAP", program.description);
            found.push((device, Evidence::new(source, value)));
        }
    }
    Ok(found)
}

fn napi_of(
    context: &Context,
    device: &Device,
    redirecting: &[(&Device, Evidence)],
) -> Result<Option<Verdict>> {
    if !device.is_veth() {
        return Ok(None);
    }
    let name = device.name();
    let Some(features) = device.xdp_features()? else {
        let reason =
            "this kernel does not report whether a veth accepts redirected packets: Linux 6.3 does";
        return Ok(Some(Verdict::unchecked(name, reason)));
    };
    let source = format!("netdev genetlink, NETDEV_A_DEV_XDP_FEATURES of {name}");
    let mut evidence = vec![Evidence::new(source, features.to_string())];
    let other = redirecting
        .iter()
        .find(|(from, _)| from.link.index != device.link.index);
    let Some((from, program)) = other.filter(|_| !features.redirect_target()) else {
        return Ok(Some(Verdict::fine(name, evidence)));
    };
    evidence.push(program.clone());
    let fix = match context.veth_peer(device)? {
        Some(peer) => Fix::ethtool(context, peer, "gro", true, "generic-receive-offload"),
        None => Fix::manual(
            "in the peer's network namespace: `ethtool -K PEER gro on`; undo with `gro off`",
        ),
    };
    let message = format!(
        "Packets that the program on {} redirects to {name} are dropped: the peer of {name} has no NAPI.",
        from.name()
    );
    Ok(Some(Verdict::found(name, evidence, message, fix)))
}

fn guest_offloads(context: &Context, device: &Device) -> Result<Option<Verdict>> {
    if !device.is_veth() || device.programs()?.is_empty() {
        return Ok(None);
    }
    let name = device.name();
    let Some(peer) = context.veth_peer(device)? else {
        let reason = foreign_peer("which may leave checksums to it");
        return Ok(Some(Verdict::unchecked(name, reason)));
    };
    let on = peer.has_feature("tx-checksum-ip-generic")?;
    let command = peer.command(&format!("ethtool -k {}", peer.name()));
    let source = format!("{command}, tx-checksum-ip-generic");
    let evidence = vec![Evidence::on_off(source, on)];
    if !on {
        return Ok(Some(Verdict::fine(name, evidence)));
    }
    let message = format!(
        "{} sends packets without checksums, and the XDP program on {name} does not fill them in.",
        peer.name()
    );
    let fix = Fix::ethtool(context, peer, "tx", false, "tx-checksumming");
    Ok(Some(Verdict::found(name, evidence, message, fix)))
}
