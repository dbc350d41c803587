//! XDP programs, and obstacles to native mode.

use anyhow::Result;
use xsk::AttachMode;

use super::each::{below, each, foreign_peer};
use crate::doctor::check::Check;
use crate::doctor::context::device::{Device, Program};
use crate::doctor::context::{Context, XdpFeatures};
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::severity::Severity;
use crate::doctor::verdict::Verdict;
use crate::report::shell::quote;
use hostnet::rtnetlink::max_xdp_mtu;

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[
    XDP_GENERIC,
    XDP_FOREIGN,
    XDP_FEATURES,
    XDP_UPPER_DEVICE,
    XDP_MTU,
];

const XDP_GENERIC: Check = Check {
    id: "xdp-generic",
    title: "an XDP program runs in generic mode",
    severity: Severity::Critical,
    why: "In generic (SKB) mode the kernel allocates a socket buffer for each packet before the program runs, which defeats the purpose of XDP.",
    source: "netif_receive_generic_xdp in net/core/dev.c; docs/BENCHMARKS.md has SKB beside DRV mode",
    more: "Reads the mode of each program (rtnetlink, IFLA_XDP_ATTACHED), and whether the driver has \
           native XDP (netdev genetlink, NETDEV_A_DEV_XDP_FEATURES, Linux 6.3).\n\n\
           Programs often fall back to this mode silently: the driver has no native XDP, the MTU is \
           too large, a hardware offload conflicts, or the device is a VLAN, a bridge or a bond. See \
           the other findings of this device.\n\n\
           There is no automatic fix, since only the program's owner can attach it again. Measure the \
           effect with `weir bench rxdrop --mode skb` against `--mode drv`.",
    counters: &[],
    run: |context| each(context, generic),
};

const XDP_FOREIGN: Check = Check {
    id: "xdp-foreign",
    title: "another XDP program is on the device",
    severity: Severity::Warning,
    why: "A device has one XDP program: no other can be attached until it is detached.",
    source: "dev_xdp_attach in net/core/dev.c",
    more: "Reads the id, name, tag and mode of each device's program (rtnetlink, IFLA_XDP; bpf(2), \
           BPF_OBJ_GET_INFO_BY_FD). It is a finding only for a device named by --dev, and not for \
           weir's own program.\n\n\
           There is no automatic fix: stop the owner. The kernel refuses `ip link` for a program that a link \
           holds (`bpftool link detach` ends that), and ignores it for another mode than the program's.",
    counters: &[],
    run: |context| each(context, |device| foreign(context, device)),
};

const XDP_MTU: Check = Check {
    id: "xdp-mtu",
    title: "the MTU is too large for native XDP",
    severity: Severity::Warning,
    why: "A driver attaches a program without multi-buffer support only if every packet fits into one page; otherwise it returns EINVAL or ERANGE.",
    source: "veth_xdp_set in drivers/net/veth.c, virtnet_xdp_set in drivers/net/virtio_net.c",
    more: "Reads the MTU of devices that have an XDP program or are named by --dev; for a veth that \
           of its peer, which sends the packets. The maximum of veth and virtio is a page less the XDP \
           headroom, the socket buffer's tail and the Ethernet header: 3506 bytes where a page has 4096. For \
           other drivers it is not known.\n\n\
           A multi-buffer program (`xdp.frags`, Linux 5.18) has no such limit.",
    counters: &[],
    run: |context| each(context, |device| mtu(context, device)),
};

const XDP_FEATURES: Check = Check {
    id: "xdp-features",
    title: "the driver has no native XDP",
    severity: Severity::Warning,
    why: "Only generic mode remains, which allocates a socket buffer before the program runs.",
    source: "Documentation/netlink/specs/netdev.yaml, xdp-act; NETDEV_XDP_ACT_* in linux/netdev.h",
    more: "Reads the driver's XDP features (netdev genetlink, NETDEV_A_DEV_XDP_FEATURES, Linux 6.3). \
           It is a finding only for a device that has an XDP program or is named by --dev.\n\n\
           The only fix is another device or driver.",
    counters: &[],
    run: |context| each(context, |device| features(context, device)),
};

const XDP_UPPER_DEVICE: Check = Check {
    id: "xdp-upper-device",
    title: "XDP is on a stacked device (VLAN, bridge, team, ...)",
    severity: Severity::Warning,
    why: "Stacked devices have no driver that runs a program before the packet is a socket buffer; native XDP and AF_XDP belong on the device below, which gets every packet.",
    source: "ndo_bpf is in no net_device_ops of net/8021q, net/bridge, drivers/net/team, drivers/net/macvlan.c; bond_xdp in drivers/net/bonding/bond_main.c runs a bond's program on its legs",
    more: "Reads the kind of each device that has a generic program or is named by --dev (rtnetlink, \
           IFLA_INFO_KIND), and the devices below it (IFLA_LINK, IFLA_MASTER).\n\n\
           A program on the device below sees the packets of all devices above it, with their VLAN \
           tags (see vlan-offload), and selects the leg of a bond to send on itself.",
    counters: &[],
    run: |context| each(context, |device| upper(context, device)),
};

/// Kinds of stacked devices, which have no native XDP of their own.
const UPPER_KINDS: [&str; 9] = [
    "vlan", "bond", "team", "bridge", "macvlan", "ipvlan", "macvtap", "vrf", "vxlan",
];

fn is_upper(device: &Device) -> bool {
    device
        .kind()
        .is_some_and(|kind| UPPER_KINDS.contains(&kind))
}

/// The attached programs as evidence.
fn shown(device: &Device) -> Result<Vec<Evidence>> {
    let source = format!("rtnetlink, IFLA_XDP of {}", device.name());
    Ok(match device.programs()? {
        [] => vec![Evidence::new(source, "no program")],
        programs => programs
            .iter()
            .map(|program| Evidence::new(&source, &program.description))
            .collect(),
    })
}

fn features_shown(device: &Device, features: XdpFeatures) -> Evidence {
    let name = device.name();
    let source = format!("netdev genetlink, NETDEV_A_DEV_XDP_FEATURES of {name}");
    Evidence::new(source, features.to_string())
}

fn generic(device: &Device) -> Result<Option<Verdict>> {
    let name = device.name();
    let mut evidence = shown(device)?;
    let is_generic = |program: &&Program| program.mode == AttachMode::Skb;
    let Some(program) = device.programs()?.iter().find(is_generic) else {
        return Ok(Some(Verdict::fine(name, evidence)));
    };
    let features = device.xdp_features()?;
    evidence.extend(features.map(|features| features_shown(device, features)));
    let fix = match features {
        Some(features) if !features.native() => format!(
            "the driver of {name} has no native XDP: use another device, or the one below {name}"
        ),
        _ => format!(
            "{}; then require native mode, such as `ip link set dev {name} xdpdrv obj FILE`, which reports the cause if it fails",
            program.removal
        ),
    };
    let message = format!("The XDP program on {name} runs on socket buffers, not in the driver.");
    Ok(Some(Verdict::found(
        name,
        evidence,
        message,
        Fix::manual(fix),
    )))
}

fn foreign(context: &Context, device: &Device) -> Result<Option<Verdict>> {
    let name = device.name();
    let evidence = shown(device)?;
    let is_foreign = |program: &&Program| program.name.as_deref() != Some("xsk_redirect");
    let foreign = device.programs()?.iter().find(is_foreign);
    let Some(program) = foreign.filter(|_| context.is_requested(device)) else {
        return Ok(Some(Verdict::fine(name, evidence)));
    };
    let message = format!(
        "{name} has {}: no other can be attached.",
        program.description
    );
    let fix = program.removal.clone();
    Ok(Some(Verdict::found(
        name,
        evidence,
        message,
        Fix::manual(fix),
    )))
}

fn mtu(context: &Context, device: &Device) -> Result<Option<Verdict>> {
    if !context.is_for_xdp(device)? {
        return Ok(None);
    }
    let name = device.name();
    let sender = if device.is_veth() {
        context.veth_peer(device)?
    } else if device.kind().is_none() && context.driver(device).as_deref() == Some("virtio_net") {
        Some(device)
    } else {
        return Ok(None);
    };
    let Some(sender) = sender else {
        let reason = foreign_peer("whose MTU decides");
        return Ok(Some(Verdict::unchecked(name, reason)));
    };
    let path = format!("/sys/class/net/{}/mtu", sender.name());
    let mtu = sender.link.mtu;
    let evidence = vec![Evidence::new(&path, mtu.to_string())];
    let most = max_xdp_mtu();
    if mtu <= most || device.has_native_program()? {
        return Ok(Some(Verdict::fine(name, evidence)));
    }
    let message = format!(
        "Packets to {name} have up to {mtu} bytes; the maximum of a native XDP program is {most}."
    );
    let fix = if sender.elsewhere.is_some() {
        let set = format!("ip link set dev {} mtu {most}", quote(sender.name()));
        Fix::manual(format!(
            "`{}`, undone with `mtu {mtu}`",
            sender.command(&set)
        ))
    } else {
        Fix::write(path, mtu.to_string(), most.to_string())
    };
    Ok(Some(Verdict::found(name, evidence, message, fix)))
}

fn features(context: &Context, device: &Device) -> Result<Option<Verdict>> {
    let name = device.name();
    let Some(features) = device.xdp_features()? else {
        let reason = "this kernel does not report a driver's XDP features: Linux 6.3 does";
        return Ok(Some(Verdict::unchecked(name, reason)));
    };
    let evidence = vec![features_shown(device, features)];
    if features.native() || is_upper(device) || !context.is_for_xdp(device)? {
        return Ok(Some(Verdict::fine(name, evidence)));
    }
    let message = format!("An XDP program runs on {name} in generic mode only.");
    let fix = Fix::manual("use another device or driver");
    Ok(Some(Verdict::found(name, evidence, message, fix)))
}

fn upper(context: &Context, device: &Device) -> Result<Option<Verdict>> {
    if !is_upper(device) || !context.is_for_xdp(device)? {
        return Ok(None);
    }
    let name = device.name();
    let kind = device.kind().unwrap_or_default();
    let below: Vec<_> = below(context.devices()?, device)
        .map(Device::name)
        .collect();
    let below = below.join(", ");
    let mut evidence = vec![
        Evidence::new(format!("rtnetlink, IFLA_INFO_KIND of {name}"), kind),
        Evidence::new(
            format!("rtnetlink, IFLA_LINK of {name} and IFLA_MASTER of the others"),
            if below.is_empty() {
                "no device below"
            } else {
                &below
            },
        ),
    ];
    evidence.extend(shown(device)?);
    if kind == "bond" && device.has_native_program()? {
        return Ok(Some(Verdict::fine(name, evidence)));
    }
    let message =
        format!("{name} is a {kind} and has no native XDP and no AF_XDP queues of its own.");
    let fix = Fix::manual(match below.as_str() {
        "" => format!("use the device that receives the packets of {name}"),
        below => {
            let program = device.programs()?.first();
            let removal = program.map(|it| format!("; of that on {name}: {}", it.removal));
            format!(
                "attach the program to {below} instead{}",
                removal.unwrap_or_default()
            )
        }
    });
    Ok(Some(Verdict::found(name, evidence, message, fix)))
}
