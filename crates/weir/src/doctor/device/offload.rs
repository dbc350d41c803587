//! Offloads that conflict with XDP.

use anyhow::Result;

use xsk::AttachMode;

use super::each::{below, each, foreign_peer};
use crate::doctor::check::Check;
use crate::doctor::context::Context;
use crate::doctor::context::device::{Device, Program};
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::severity::Severity;
use crate::doctor::verdict::Verdict;

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[VLAN_OFFLOAD, LRO, XDP_LONG_PACKETS];

const LRO: Check = Check {
    id: "lro",
    title: "LRO or hardware GRO is on",
    severity: Severity::Warning,
    why: "LRO and hardware GRO merge packets into larger ones than a page: drivers refuse an XDP program meanwhile, and packets merged by LRO cannot be forwarded.",
    source: "virtnet_xdp_set in drivers/net/virtio_net.c, mlx5e_xdp_allowed in drivers/net/ethernet/mellanox/mlx5/core/en_main.c; Documentation/networking/segmentation-offloads.rst",
    more: "Reads the features rx-lro and rx-gro-hw (ethtool -k) of devices that have an XDP program \
           or are named by --dev.\n\n\
           With the fix the stack handles more packets. Software GRO stays on.",
    counters: &[],
    run: |context| each(context, |device| lro(context, device)),
};

const VLAN_OFFLOAD: Check = Check {
    id: "vlan-offload",
    title: "VLAN offload hides the tag from XDP",
    severity: Severity::Warning,
    why: "With rx-vlan-offload or rx-vlan-stag-hw-parse the card removes the tag of 802.1Q or 802.1ad: the program sees an untagged packet, and redirects it without its VLAN. rx-vlan-filter and rx-vlan-stag-filter drop packets of VLANs without a device in the kernel.",
    source: "David Ahern, \"XDP vs OVS\" (people.kernel.org/dsahern): XDP \"requires VLAN acceleration in the NIC [...] to be disabled\"; for a veth, NETIF_F_HW_VLAN_CTAG_TX and NETIF_F_HW_VLAN_STAG_TX in VETH_FEATURES (drivers/net/veth.c)",
    more: "Reads the features rx-vlan-hw-parse, rx-vlan-stag-hw-parse, rx-vlan-filter and \
           rx-vlan-stag-filter (ethtool -k) of devices that have an XDP program or are named by --dev. A filter that the driver cannot turn off is no \
           finding: promiscuous mode (`ip link set dev DEV promisc on`), as a bridge sets it, bypasses \
           it. For a veth with a program it reads tx-vlan-hw-insert and tx-vlan-stag-hw-insert of the peer, \
           which sends the tag beside the packet.\n\n\
           Verify the effect with tagged packets in `xdpdump`, or counted by the program.",
    counters: &[],
    run: |context| each(context, |device| vlan(context, device)),
};

const XDP_LONG_PACKETS: Check = Check {
    id: "xdp-long-packets",
    title: "packets longer than the MTU (TSO, GSO, GRO) reach an XDP program that redirects",
    severity: Severity::Warning,
    why: "Senders on the same host and virtual machines leave packets of up to 64 KiB for others to segment, at any MTU; generic XDP, and a tap also in native mode, gets them whole, and a redirect drops those that do not fit into a chunk of the AF_XDP socket, or the MTU of the other device.",
    source: "xsk_rcv in net/xdp/xsk.c, xdp_ok_fwd_dev in include/linux/filter.h, tun_get_user in drivers/net/tun.c; Documentation/networking/segmentation-offloads.rst",
    more: "Reads the features of the senders (ethtool -k) of each device with a generic program that has a map to \
           redirect to (BPF_MAP_TYPE_XSKMAP, BPF_MAP_TYPE_DEVMAP): of a veth the segmentation of its peer, also in another \
           network namespace that this process may enter; of the loopback its \
           own; of a bridge, bond, VLAN or macvlan the merging of packets (GRO) by the devices below, and their senders. For a tap \
           in any mode it reads whether its packets have a header for pending segments (IFLA_TUN_VNET_HDR). LRO \
           and hardware GRO are subjects of the check lro.\n\n\
           The fix turns segmentation and merging off, so that packets of at most the MTU arrive; senders use more CPU \
           time. A socket on a UMEM with fragments and chunks of 4096 bytes takes long packets too, and needs no \
           fix; the kernel does not show whether a socket has such a UMEM.\n\n\
           The loss is in rx_dropped of the socket's statistics (`weir ledger`), and shows with \
           `iperf3` or another TCP stream of the sender.",
    counters: &[],
    run: |context| each(context, |device| long_packets(context, device)),
};

/// A feature by its names in the kernel, for `ethtool -K` and in `ethtool -k`.
struct Switch {
    kernel: &'static str,
    set: &'static str,
    shown: &'static str,
    /// The cure if the driver cannot turn it off.
    otherwise: &'static str,
}

const LRO_SWITCHES: [Switch; 2] = [
    Switch {
        kernel: "rx-lro",
        set: "lro",
        shown: "large-receive-offload",
        otherwise: "",
    },
    Switch {
        kernel: "rx-gro-hw",
        set: "rx-gro-hw",
        shown: "rx-gro-hw",
        otherwise: "; for a virtio device its host can: guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off in QEMU",
    },
];

/// Of both kinds of tags: 802.1Q, and 802.1ad (`stag`).
const VLAN_SWITCHES: [Switch; 4] = [
    Switch {
        kernel: "rx-vlan-hw-parse",
        set: "rxvlan",
        shown: "rx-vlan-offload",
        otherwise: "",
    },
    same_name("rx-vlan-stag-hw-parse"),
    same_name(FILTERS[0]),
    same_name(FILTERS[1]),
];

const FILTERS: [&str; 2] = ["rx-vlan-filter", "rx-vlan-stag-filter"];

const PEER_SWITCHES: [Switch; 2] = [
    Switch {
        kernel: "tx-vlan-hw-insert",
        set: "txvlan",
        shown: "tx-vlan-offload",
        otherwise: "",
    },
    same_name("tx-vlan-stag-hw-insert"),
];

/// What makes a device leave long packets to the next one (`NETIF_F_GSO_SOFTWARE`).
const SEGMENTATION_SWITCHES: [Switch; 4] = [
    Switch {
        kernel: "tx-tcp-segmentation",
        set: "tso",
        shown: "tcp-segmentation-offload",
        otherwise: "",
    },
    same_name("tx-udp-segmentation"),
    same_name("tx-sctp-segmentation"),
    same_name("tx-gso-list"),
];

const MERGE_SWITCHES: [Switch; 1] = [Switch {
    kernel: "rx-gro",
    set: "gro",
    shown: "generic-receive-offload",
    otherwise: "",
}];

/// A feature that ethtool has no other name for.
const fn same_name(name: &'static str) -> Switch {
    Switch {
        kernel: name,
        set: name,
        shown: name,
        otherwise: "",
    }
}

fn lro(context: &Context, device: &Device) -> Result<Option<Verdict>> {
    if !context.is_for_xdp(device)? {
        return Ok(None);
    }
    let name = device.name();
    let message = |shown: &str| {
        format!(
            "With {shown} on, the driver of {name} refuses an XDP program, or hides packets from it."
        )
    };
    judge(context, name, &of(device, &LRO_SWITCHES), message).map(Some)
}

fn vlan(context: &Context, device: &Device) -> Result<Option<Verdict>> {
    if device.is_veth() {
        return vlan_of_veth(context, device);
    }
    if !context.is_for_xdp(device)? {
        return Ok(None);
    }
    let name = device.name();
    let message = |shown: &str| {
        format!("With {shown} on, an XDP program on {name} does not see the VLANs of the wire.")
    };
    judge(context, name, &of(device, &VLAN_SWITCHES), message).map(Some)
}

/// The packets of a veth, and their tags, come from its peer.
fn vlan_of_veth(context: &Context, device: &Device) -> Result<Option<Verdict>> {
    if device.programs()?.is_empty() {
        return Ok(None);
    }
    let name = device.name();
    let Some(peer) = context.veth_peer(device)? else {
        let reason = foreign_peer("which may send tags beside its packets");
        return Ok(Some(Verdict::unchecked(name, reason)));
    };
    let message = |_: &str| {
        format!(
            "{} sends VLAN tags beside its packets: the XDP program on {name} sees none.",
            peer.name()
        )
    };
    judge(context, name, &of(peer, &PEER_SWITCHES), message).map(Some)
}

fn long_packets(context: &Context, device: &Device) -> Result<Option<Verdict>> {
    let is_tap = device.kind() == Some("tun");
    let gets_long = |program: &Program| is_tap || program.mode == AttachMode::Skb;
    let is_redirected = |program: &Program| program.redirects && gets_long(program);
    if !device.programs()?.iter().any(is_redirected) {
        return Ok(None);
    }
    let name = device.name();
    if is_tap {
        return Ok(long_packets_of_machine(device));
    }
    let mut switches = Vec::new();
    if let Some(unseen) = senders(context, device, &mut switches)? {
        return Ok(Some(Verdict::unchecked(name, unseen)));
    }
    if switches.is_empty() {
        return Ok(None);
    }
    let message = |shown: &str| {
        format!(
            "With {shown} on, packets of up to 64 KiB reach the program on {name}, whatever the MTU: its redirect drops those that do not fit."
        )
    };
    judge(context, name, &switches, message).map(Some)
}

/// The segments of a virtual machine, whose own settings are not seen from here.
fn long_packets_of_machine(device: &Device) -> Option<Verdict> {
    let name = device.name();
    let has_header = device.link.tap_vnet_header?;
    let source = format!("rtnetlink, IFLA_TUN_VNET_HDR of {name}");
    let evidence = vec![Evidence::new(source, if has_header { "1" } else { "0" })];
    if !has_header {
        return Some(Verdict::fine(name, evidence));
    }
    let message = format!(
        "The virtual machine of {name} can send packets of up to 64 KiB, whatever the MTU, and the redirect of its program drops those that do not fit."
    );
    let fix = Fix::manual(format!(
        "start the machine with vnet_hdr=off for {name} (QEMU: `-netdev tap,ifname={name},vnet_hdr=off,...`), so that it has no segmentation to leave to others; until then, in the machine: `ethtool -K DEVICE tso off gso off tx-udp-segmentation off`"
    ));
    Some(Verdict::found(name, evidence, message, fix))
}

/// Adds the switches of what sends long packets to `device`, or merges packets below it. Returns the reason if one of them
/// is not seen from here.
fn senders<'a>(
    context: &'a Context,
    device: &'a Device,
    switches: &mut Vec<(&'a Device, &'static Switch)>,
) -> Result<Option<String>> {
    if device.link.loopback {
        switches.extend(of(device, &SEGMENTATION_SWITCHES));
        return Ok(None);
    }
    if device.is_veth() {
        let Some(peer) = context.veth_peer(device)? else {
            return Ok(Some(foreign_peer("which may leave segments to it")));
        };
        switches.extend(of(peer, &SEGMENTATION_SWITCHES));
        return Ok(None);
    }
    for below in below(context.devices()?, device) {
        switches.extend(of(below, &MERGE_SWITCHES));
        if let Some(unseen) = senders(context, below, switches)? {
            return Ok(Some(unseen));
        }
    }
    Ok(None)
}

fn of<'a>(device: &'a Device, switches: &'static [Switch]) -> Vec<(&'a Device, &'static Switch)> {
    switches.iter().map(|switch| (device, switch)).collect()
}

/// The verdict for `subject` by the switches of devices, which all have to be off.
fn judge(
    context: &Context,
    subject: &str,
    switches: &[(&Device, &Switch)],
    message: impl Fn(&str) -> String,
) -> Result<Verdict> {
    let mut evidence = Vec::new();
    let mut wrong = Vec::new();
    for &(device, switch) in switches {
        let on = device.has_feature(switch.kernel)?;
        let command = device.command(&format!("ethtool -k {}", device.name()));
        let source = format!("{command}, {}", switch.shown);
        evidence.push(Evidence::on_off(source, on));
        if on && matters(device, switch)? {
            wrong.push((device, switch, is_changeable(device, switch)?));
        }
    }
    let Some((device, first, _)) = wrong.first() else {
        return Ok(Verdict::fine(subject, evidence));
    };
    let mut shown: Vec<_> = wrong.iter().map(|(_, switch, _)| switch.shown).collect();
    shown.dedup();
    let message = message(&shown.join(" and "));
    let changeable: Vec<_> = wrong
        .iter()
        .filter(|(.., changeable)| *changeable)
        .collect();
    let fix = if changeable.is_empty() {
        Fix::manual(format!(
            "the driver of {} cannot turn {} off{}",
            device.name(),
            first.shown,
            first.otherwise
        ))
    } else {
        Fix::all(changeable.into_iter().map(|(device, switch, _)| {
            Fix::ethtool(context, device, switch.set, false, switch.shown)
        }))
    };
    Ok(Verdict::found(subject, evidence, message, fix))
}

/// A VLAN filter that cannot be turned off is bypassed by promiscuous mode.
fn matters(device: &Device, switch: &Switch) -> Result<bool> {
    Ok(!FILTERS.contains(&switch.kernel) || is_changeable(device, switch)?)
}

fn is_changeable(device: &Device, switch: &Switch) -> Result<bool> {
    let mut features = device.features()?.iter();
    Ok(features.any(|feature| feature.name == switch.kernel && feature.changeable))
}
