//! XDP programs: how they run, and what keeps them from running natively.

use anyhow::Result;
use xsk::{AttachMode, AttachedProgram};

use super::{each, fine, is_wanted, programs, unchecked};
use crate::doctor::{Check, Context, Evidence, Finding, Fix, Severity, Step, Verdict};
use crate::lab::MAX_MTU;
use hostnet::genetlink::netdev;
use hostnet::rtnetlink::{Link, Rtnetlink};

pub const XDP_GENERIC: Check = Check {
    id: "xdp-generic",
    title: "an XDP program runs in generic mode",
    severity: Severity::Critical,
    why: "In generic (SKB) mode the program sees a packet only after the kernel has made a socket buffer for it, so that nothing of what XDP is for is left.",
    source: "netif_receive_generic_xdp in net/core/dev.c; docs/BENCHMARKS.md has SKB beside DRV mode",
    more: "Looked at: how each program is attached (rtnetlink, IFLA_XDP_ATTACHED), and whether the driver has native XDP (netdev genetlink, NETDEV_A_DEV_XDP_FEATURES, Linux 6.3).\n\n\
        Programs often fall back to this mode without a word: when the driver has no native XDP, the MTU is too large for it, a hardware offload is in its way, or the device is a VLAN, a bridge or a bond. The other checks of this device say which it is.\n\n\
        There is no fix by itself, since only the program's owner can attach it again. Its effect: `weir bench rxdrop --mode skb` against `--mode drv`.",
    run: |context| each(context, generic),
};

pub const XDP_FOREIGN: Check = Check {
    id: "xdp-foreign",
    title: "another XDP program is on the device",
    severity: Severity::Warning,
    why: "A device takes one XDP program, so that no other can be attached until it has gone.",
    source: "dev_xdp_attach in net/core/dev.c",
    more: "Looked at: the number, name, tag and mode of each device's program (rtnetlink, IFLA_XDP; bpf(2), BPF_OBJ_GET_INFO_BY_FD). It is a finding only for a device named by --dev, which something of yours is meant for, and if it is not weir's own.\n\n\
        There is no fix by itself: find out whose it is (`bpftool prog show`, `bpftool link show`), and stop that, or detach it with `ip link set dev DEV xdp off`.",
    run: |context| each(context, |device| foreign(context, device)),
};

pub const XDP_MTU: Check = Check {
    id: "xdp-mtu",
    title: "the MTU is too large for native XDP",
    severity: Severity::Warning,
    why: "A driver attaches a program that does not take packets of several buffers only if every packet fits into one page, and says no more than EINVAL or ERANGE.",
    source: "veth_xdp_set in drivers/net/veth.c, virtnet_xdp_set in drivers/net/virtio_net.c",
    more: "Looked at: the MTU of devices that have a program or are named by --dev; for a veth that of its peer, from which the packets come. A veth and a virtio device take 3506 bytes at most: a page less the room for XDP before the packet, the socket buffer's description behind it, and the Ethernet header. Of other drivers the limit is not known here.\n\n\
        A program that takes several buffers (`xdp.frags`, Linux 5.18) has no such limit.",
    run: |context| each(context, |device| mtu(context, device)),
};

pub const XDP_FEATURES: Check = Check {
    id: "xdp-features",
    title: "the driver has no native XDP",
    severity: Severity::Warning,
    why: "Only generic mode is left, in which the kernel has made a socket buffer before the program runs.",
    source: "Documentation/netlink/specs/netdev.yaml, xdp-act; NETDEV_XDP_ACT_* in linux/netdev.h",
    more: "Looked at: what the driver says it can do (netdev genetlink, NETDEV_A_DEV_XDP_FEATURES, Linux 6.3). It is a finding only for a device that has a program or is named by --dev.\n\n\
        There is no fix but another device or driver.",
    run: |context| each(context, |device| features(context, device)),
};

pub const XDP_UPPER_DEVICE: Check = Check {
    id: "xdp-upper-device",
    title: "XDP is wanted on a device that lies upon others",
    severity: Severity::Warning,
    why: "A VLAN, a bridge, a team and their like have no driver that could run a program before the packet is a socket buffer; AF_XDP and native XDP belong on the device below, which gets every packet.",
    source: "ndo_bpf is in no net_device_ops of net/8021q, net/bridge, drivers/net/team, drivers/net/macvlan.c; bond_xdp in drivers/net/bonding/bond_main.c runs a bond's program on its legs",
    more: "Looked at: the kind of each device that has a generic program or is named by --dev (rtnetlink, IFLA_INFO_KIND), and what it lies upon (IFLA_LINK, IFLA_MASTER).\n\n\
        The program then sees the packets of all that lies upon the device below, with their VLAN tags (see the check vlan-offload), and has to choose the leg of a bond to send on by itself.",
    run: upper,
};

/// Those that have no native XDP of their own because they lie upon others.
const UPPER_KINDS: [&str; 9] = [
    "vlan", "bond", "team", "bridge", "macvlan", "ipvlan", "macvtap", "vrf", "vxlan",
];

fn is_upper(device: &Link) -> bool {
    let kind = device.kind.as_deref();
    kind.is_some_and(|kind| UPPER_KINDS.contains(&kind))
}

/// The attached programs as evidence.
fn shown(device: &Link, programs: &[AttachedProgram]) -> Vec<Evidence> {
    let source = format!("rtnetlink, IFLA_XDP of {}", device.name);
    match programs {
        [] => vec![Evidence::new(source, "no program")],
        programs => programs
            .iter()
            .map(|program| Evidence::new(&source, program.to_string()))
            .collect(),
    }
}

fn features_shown(device: &Link, features: netdev::XdpFeatures) -> Evidence {
    let source = format!(
        "netdev genetlink, NETDEV_A_DEV_XDP_FEATURES of {}",
        device.name
    );
    Evidence::new(source, features.to_string())
}

fn generic(device: &Link) -> Result<Option<Verdict>> {
    let programs = programs(device)?;
    let mut evidence = shown(device, &programs);
    if !programs
        .iter()
        .any(|program| program.mode == AttachMode::Skb)
    {
        return Ok(Some(fine(&device.name, evidence)));
    }
    let features = netdev::xdp_features(device.index)?;
    evidence.extend(features.map(|features| features_shown(device, features)));
    let name = &device.name;
    let text = match features {
        Some(features) if !features.native() => {
            format!(
                "the driver of {name} has no native XDP: use another device, or the one that {name} lies upon"
            )
        }
        _ => format!(
            "stop the program's owner, or `ip link set dev {name} xdpgeneric off`; then start it so that it insists on native mode, such as `ip link set dev {name} xdpdrv obj FILE`, and see why it cannot"
        ),
    };
    Ok(Some(Verdict::Finding(Finding {
        subject: name.clone(),
        evidence,
        message: format!("The XDP program on {name} runs on socket buffers, not in the driver."),
        fix: Fix::Text(text),
    })))
}

fn foreign(context: &Context, device: &Link) -> Result<Option<Verdict>> {
    let programs = programs(device)?;
    let evidence = shown(device, &programs);
    let foreign = |program: &&AttachedProgram| program.name.as_deref() != Some("xsk_redirect");
    let foreign = programs.iter().find(foreign);
    let Some(program) = foreign.filter(|_| context.devices().contains(&device.name)) else {
        return Ok(Some(fine(&device.name, evidence)));
    };
    let name = &device.name;
    Ok(Some(Verdict::Finding(Finding {
        subject: name.clone(),
        evidence,
        message: format!("There is {program}; no other can be attached to {name}."),
        fix: Fix::Text(format!(
            "find its owner with `bpftool prog show id {}` and `bpftool link show`, and stop it; one without an owner goes with `ip link set dev {name} xdp off`",
            program.id
        )),
    })))
}

fn mtu(context: &Context, device: &Link) -> Result<Option<Verdict>> {
    if !is_wanted(context, device)? {
        return Ok(None);
    }
    let from = match device.kind.as_deref() {
        Some("veth") => match super::veth::peer(device)? {
            Some(peer) => peer,
            None => {
                return Ok(Some(unchecked(
                    &device.name,
                    super::veth::unseen("whose MTU decides"),
                )));
            }
        },
        None if super::driver(context, device).as_deref() == Some("virtio_net") => device.clone(),
        _ => return Ok(None),
    };
    let path = format!("/sys/class/net/{}/mtu", from.name);
    let evidence = vec![Evidence::new(&path, from.mtu.to_string())];
    let programs = programs(device)?;
    let is_native = programs
        .iter()
        .any(|program| program.mode == AttachMode::Driver);
    if from.mtu <= MAX_MTU || is_native {
        return Ok(Some(fine(&device.name, evidence)));
    }
    Ok(Some(Verdict::Finding(Finding {
        subject: device.name.clone(),
        evidence,
        message: format!(
            "Packets for {} can be of {} bytes, and a native XDP program there takes {MAX_MTU} at most.",
            device.name, from.mtu
        ),
        fix: Fix::Steps(vec![Step::Write {
            path,
            old: from.mtu.to_string(),
            new: MAX_MTU.to_string(),
        }]),
    })))
}

fn features(context: &Context, device: &Link) -> Result<Option<Verdict>> {
    let Some(features) = netdev::xdp_features(device.index)? else {
        let reason = "this kernel does not tell what a driver can do with XDP: Linux 6.3 does";
        return Ok(Some(unchecked(&device.name, reason.into())));
    };
    let evidence = vec![features_shown(device, features)];
    if features.native() || is_upper(device) || !is_wanted(context, device)? {
        return Ok(Some(fine(&device.name, evidence)));
    }
    Ok(Some(Verdict::Finding(Finding {
        subject: device.name.clone(),
        evidence,
        message: format!(
            "An XDP program runs on {} in generic mode only.",
            device.name
        ),
        fix: Fix::Text("none but another device or driver".into()),
    })))
}

fn upper(context: &Context) -> Result<Vec<Verdict>> {
    let links = Rtnetlink::open()?.links()?;
    each(context, |device| {
        if !is_upper(device) || !is_wanted(context, device)? {
            return Ok(None);
        }
        let kind = device.kind.as_deref().unwrap_or_default();
        let below = below(&links, device);
        let name = &device.name;
        let mut evidence = vec![
            Evidence::new(format!("rtnetlink, IFLA_INFO_KIND of {name}"), kind),
            Evidence::new(
                format!("rtnetlink, IFLA_LINK of {name} and IFLA_MASTER of the others"),
                if below.is_empty() {
                    "nothing below"
                } else {
                    &below
                },
            ),
        ];
        let programs = programs(device)?;
        evidence.extend(shown(device, &programs));
        if kind == "bond"
            && programs
                .iter()
                .any(|program| program.mode == AttachMode::Driver)
        {
            return Ok(Some(fine(&device.name, evidence)));
        }
        Ok(Some(Verdict::Finding(Finding {
            subject: name.clone(),
            evidence,
            message: format!(
                "{name} is a {kind} and has no native XDP and no AF_XDP queues of its own."
            ),
            fix: Fix::Text(match below.as_str() {
                "" => format!("use the device that the packets of {name} come in by"),
                below => format!(
                    "attach the program to {below} instead, and detach it from {name} with `ip link set dev {name} xdp off`"
                ),
            }),
        })))
    })
}

/// The devices that `device` gets its packets from.
fn below(links: &[Link], device: &Link) -> String {
    let is_below = |link: &&Link| {
        link.controller == Some(device.index)
            || (device.lower == Some(link.index) && device.lower_netns.is_none())
    };
    let names: Vec<_> = links
        .iter()
        .filter(is_below)
        .map(|link| link.name.as_str())
        .collect();
    names.join(", ")
}
