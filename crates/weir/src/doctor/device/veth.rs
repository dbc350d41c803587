//! What a veth's XDP depends on at its peer.

use anyhow::Result;
use xsk::AttachMode;

use super::{each, ethtool_fix, fine, is_on, programs, unchecked};
use crate::bpf;
use crate::doctor::{Check, Context, Evidence, Finding, Fix, Severity, Verdict};
use hostnet::ethtool;
use hostnet::genetlink::netdev;
use hostnet::rtnetlink::{Link, Rtnetlink};

pub const VETH_NAPI: Check = Check {
    id: "veth-napi",
    title: "packets that XDP redirects into a veth vanish",
    severity: Severity::Warning,
    why: "A veth takes a redirected packet only if its peer has NAPI, which it has with GRO on or a native XDP program; without, the packet is dropped, and only the tracepoint xdp:xdp_devmap_xmit tells.",
    source: "veth_xdp_xmit in drivers/net/veth.c; veth_set_features, Linux 5.13",
    more: "Looked at: whether a device takes redirected packets (netdev genetlink, NDO_XMIT of NETDEV_A_DEV_XDP_FEATURES). It is a finding only where a native program of another device has a map of devices to redirect to (BPF_MAP_TYPE_DEVMAP).\n\n\
        The fix turns GRO of the peer on. For a peer in another network namespace: `nsenter --net=FILE ethtool -K PEER gro on`, where FILE is its entry in /run/netns or /proc/PID/ns/net.",
    run: napi,
};

pub const GUEST_OFFLOADS: Check = Check {
    id: "guest-offloads",
    title: "a packet that XDP redirects has no checksum",
    severity: Severity::Warning,
    why: "A container leaves the checksum of what it sends to the veth, which only the network stack fills in; a packet that an XDP program sends on by XDP_TX or XDP_REDIRECT never gets there, and its receiver drops it.",
    source: "veth_xdp_rcv_skb in drivers/net/veth.c makes no difference between them; xdp-project/xdp-tutorial, issue 292",
    more: "Looked at: whether the peer of a veth with an XDP program leaves checksums to it (ethtool -k PEER, tx-checksumming). Segmentation the kernel turns off by itself.\n\n\
        The fix is `ethtool -K PEER tx off`; where the peer is in another namespace, it is to be run there. The same holds for a virtual machine: start it with csum=off for its network device.",
    run: |context| each(context, guest_offloads),
};

/// The other end of a veth, if it is in this network namespace.
pub fn peer(device: &Link) -> Result<Option<Link>> {
    if device.kind.as_deref() != Some("veth") || device.lower_netns.is_some() {
        return Ok(None);
    }
    let links = Rtnetlink::open()?.links()?;
    Ok(links
        .into_iter()
        .find(|link| Some(link.index) == device.lower && link.index != device.index))
}

/// Why a peer could not be looked at, which is needed for `what`.
pub fn unseen(what: &str) -> String {
    format!(
        "its peer, {what}, is in another network namespace: run weir doctor there too (`ip netns`, `lsns -t net`)"
    )
}

fn napi(context: &Context) -> Result<Vec<Verdict>> {
    let redirecting = redirecting()?;
    each(context, |device| napi_of(device, &redirecting))
}

/// The devices whose native program has a map of devices.
fn redirecting() -> Result<Vec<(Link, Evidence)>> {
    let mut found = Vec::new();
    for device in Rtnetlink::open()?.links()? {
        for program in programs(&device)? {
            if program.mode == AttachMode::Driver && bpf::has_device_map(program.id) {
                let source = format!("bpf(2), the maps of the program on {}", device.name);
                let evidence = Evidence::new(source, format!("{program}: a DEVMAP"));
                found.push((device.clone(), evidence));
            }
        }
    }
    Ok(found)
}

fn napi_of(device: &Link, redirecting: &[(Link, Evidence)]) -> Result<Option<Verdict>> {
    if device.kind.as_deref() != Some("veth") {
        return Ok(None);
    }
    let Some(features) = netdev::xdp_features(device.index)? else {
        let reason =
            "this kernel does not tell whether a veth takes redirected packets: Linux 6.3 does";
        return Ok(Some(unchecked(&device.name, reason.into())));
    };
    let source = format!(
        "netdev genetlink, NETDEV_A_DEV_XDP_FEATURES of {}",
        device.name
    );
    let mut evidence = vec![Evidence::new(source, features.to_string())];
    let other = redirecting
        .iter()
        .find(|(from, _)| from.index != device.index);
    let Some((from, program)) = other.filter(|_| !features.redirect_target()) else {
        return Ok(Some(fine(&device.name, evidence)));
    };
    evidence.push(program.clone());
    let fix = match peer(device)? {
        Some(peer) => ethtool_fix(&peer.name, "gro", true, "generic-receive-offload"),
        None => Fix::Text(
            "in the peer's network namespace: `ethtool -K PEER gro on`; undo with `gro off`".into(),
        ),
    };
    Ok(Some(Verdict::Finding(Finding {
        subject: device.name.clone(),
        evidence,
        message: format!(
            "What the program on {} redirects to {} is dropped, since the peer of {} has no NAPI.",
            from.name, device.name, device.name
        ),
        fix,
    })))
}

fn guest_offloads(device: &Link) -> Result<Option<Verdict>> {
    if device.kind.as_deref() != Some("veth") || programs(device)?.is_empty() {
        return Ok(None);
    }
    let Some(peer) = peer(device)? else {
        return Ok(Some(unchecked(
            &device.name,
            unseen("which may leave checksums to it"),
        )));
    };
    let on = is_on(&ethtool::features(&peer.name)?, "tx-checksum-ip-generic");
    let source = format!("ethtool -k {}, tx-checksum-ip-generic", peer.name);
    let evidence = vec![Evidence::new(source, if on { "on" } else { "off" })];
    if !on {
        return Ok(Some(fine(&device.name, evidence)));
    }
    Ok(Some(Verdict::Finding(Finding {
        subject: device.name.clone(),
        evidence,
        message: format!(
            "{} sends packets without checksums, and the XDP program on {} does not fill them in.",
            peer.name, device.name
        ),
        fix: ethtool_fix(&peer.name, "tx", false, "tx-checksumming"),
    })))
}
