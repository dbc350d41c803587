//! Offloads that conflict with XDP.

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
pub const CHECKS: &[Check] = &[VLAN_OFFLOAD, LRO];

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
    judge(context, name, device, &LRO_SWITCHES, message).map(Some)
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
    judge(context, name, device, &VLAN_SWITCHES, message).map(Some)
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
    judge(context, name, peer, &PEER_SWITCHES, message).map(Some)
}

/// The verdict for `subject` by the switches of `device`, which all have to be off.
fn judge(
    context: &Context,
    subject: &str,
    device: &Device,
    switches: &[Switch],
    message: impl Fn(&str) -> String,
) -> Result<Verdict> {
    let name = device.name();
    let mut evidence = Vec::new();
    let mut wrong = Vec::new();
    for switch in switches {
        let on = device.has_feature(switch.kernel)?;
        let source = format!("ethtool -k {name}, {}", switch.shown);
        evidence.push(Evidence::on_off(source, on));
        if on && matters(device, switch)? {
            wrong.push((switch, is_changeable(device, switch)?));
        }
    }
    let Some((first, _)) = wrong.first() else {
        return Ok(Verdict::fine(subject, evidence));
    };
    let shown: Vec<_> = wrong.iter().map(|(switch, _)| switch.shown).collect();
    let message = message(&shown.join(" and "));
    let changeable: Vec<_> = wrong.iter().filter(|(_, changeable)| *changeable).collect();
    let fix = if changeable.is_empty() {
        Fix::manual(format!(
            "the driver of {name} cannot turn {} off{}",
            first.shown, first.otherwise
        ))
    } else {
        let off = |switch: &Switch| Fix::ethtool(context, name, switch.set, false, switch.shown);
        Fix::all(changeable.into_iter().map(|(switch, _)| off(switch)))
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
