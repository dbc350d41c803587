//! Offloads that hide from an XDP program what was on the wire.

use anyhow::Result;

use super::{each, ethtool_fix, fine, is_on, is_wanted, programs, veth};
use crate::doctor::{Check, Context, Evidence, Finding, Fix, Severity, Verdict};
use hostnet::ethtool;
use hostnet::ethtool::Feature;
use hostnet::rtnetlink::Link;

pub const LRO: Check = Check {
    id: "lro",
    title: "the card puts packets together",
    severity: Severity::Warning,
    why: "LRO and hardware GRO hand up packets that were never on the wire, larger than a page: drivers refuse an XDP program for as long, and what LRO put together cannot be forwarded.",
    source: "virtnet_xdp_set in drivers/net/virtio_net.c, mlx5e_xdp_allowed in drivers/net/ethernet/mellanox/mlx5/core/en_main.c; Documentation/networking/segmentation-offloads.rst",
    more: "Looked at: the features rx-lro and rx-gro-hw (ethtool -k) of devices that have an XDP program or are named by --dev.\n\n\
        The cost: the stack has more packets to handle. GRO in software stays.",
    run: |context| each(context, |device| lro(context, device)),
};

pub const VLAN_OFFLOAD: Check = Check {
    id: "vlan-offload",
    title: "the VLAN tag is taken off before XDP sees the packet",
    severity: Severity::Warning,
    why: "With rx-vlan-offload the card moves the tag out of the packet, so that the program takes it for untagged, and what it redirects has lost its VLAN; rx-vlan-filter drops the packets of VLANs that the kernel has no device for.",
    source: "David Ahern, \"XDP vs OVS\" (people.kernel.org/dsahern): XDP \"requires VLAN acceleration in the NIC [...] to be disabled\"; for a veth, NETIF_F_HW_VLAN_CTAG_TX in VETH_FEATURES (drivers/net/veth.c)",
    more: "Looked at: the features rx-vlan-hw-parse and rx-vlan-filter (ethtool -k) of devices that have an XDP program or are named by --dev. A filter that the driver does not let be turned off is no finding: `ip link set dev DEV promisc on`, as a bridge does, goes past it. For a veth with a program it is tx-vlan-hw-insert of the peer, which sends packets with the tag beside them.\n\n\
        Its effect: tagged packets, seen by `xdpdump` or counted by the program.",
    run: |context| each(context, |device| vlan(context, device)),
};

/// A switch by the kernel's name, that of `ethtool -K`, and that of `ethtool -k`.
struct Switch {
    kernel: &'static str,
    set: &'static str,
    shown: &'static str,
    /// What to do where the driver does not let it be turned off.
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

const VLAN_SWITCHES: [Switch; 2] = [
    Switch {
        kernel: "rx-vlan-hw-parse",
        set: "rxvlan",
        shown: "rx-vlan-offload",
        otherwise: "",
    },
    Switch {
        kernel: "rx-vlan-filter",
        set: "rx-vlan-filter",
        shown: "rx-vlan-filter",
        otherwise: "",
    },
];

const PEER_SWITCHES: [Switch; 1] = [Switch {
    kernel: "tx-vlan-hw-insert",
    set: "txvlan",
    shown: "tx-vlan-offload",
    otherwise: "",
}];

fn lro(context: &Context, device: &Link) -> Result<Option<Verdict>> {
    if !is_wanted(context, device)? {
        return Ok(None);
    }
    let features = ethtool::features(&device.name)?;
    Ok(Some(lro_verdict(&device.name, &features)))
}

/// What the check `lro` says of a device with these features.
pub fn lro_verdict(device: &str, features: &[Feature]) -> Verdict {
    let message = |shown: &str| {
        format!("{shown} of {device} is on, and an XDP program is refused or misses packets.")
    };
    judge(device, device, features, &LRO_SWITCHES, message)
}

fn vlan(context: &Context, device: &Link) -> Result<Option<Verdict>> {
    if device.kind.as_deref() == Some("veth") {
        return vlan_of_veth(device);
    }
    if !is_wanted(context, device)? {
        return Ok(None);
    }
    let features = ethtool::features(&device.name)?;
    let message = |shown: &str| {
        format!(
            "{shown} of {} is on: an XDP program does not see the VLANs as they are on the wire.",
            device.name
        )
    };
    Ok(Some(judge(
        &device.name,
        &device.name,
        &features,
        &VLAN_SWITCHES,
        message,
    )))
}

/// A veth's packets come from its peer, and so do their tags.
fn vlan_of_veth(device: &Link) -> Result<Option<Verdict>> {
    if programs(device)?.is_empty() {
        return Ok(None);
    }
    let Some(peer) = veth::peer(device)? else {
        let reason = veth::unseen("which may send tags beside its packets");
        return Ok(Some(super::unchecked(&device.name, reason)));
    };
    let features = ethtool::features(&peer.name)?;
    let message = |_: &str| {
        format!(
            "{} sends VLAN tags beside its packets: the XDP program on {} sees none.",
            peer.name, device.name
        )
    };
    Ok(Some(judge(
        &device.name,
        &peer.name,
        &features,
        &PEER_SWITCHES,
        message,
    )))
}

/// Which of the switches of `of` is on that should not be. One that cannot be turned off is no less
/// in the way.
fn judge(
    device: &str,
    of: &str,
    features: &[Feature],
    switches: &[Switch],
    message: impl Fn(&str) -> String,
) -> Verdict {
    let evidence = switches.iter().map(|switch| {
        let on = is_on(features, switch.kernel);
        let source = format!("ethtool -k {of}, {}", switch.shown);
        Evidence::new(source, if on { "on" } else { "off" })
    });
    let evidence = evidence.collect();
    let Some(switch) = switches
        .iter()
        .find(|switch| is_in_the_way(features, switch))
    else {
        return fine(device, evidence);
    };
    let fix = if is_changeable(features, switch) {
        ethtool_fix(of, switch.set, false, switch.shown)
    } else {
        Fix::Text(format!(
            "the driver of {of} does not let {} be turned off{}",
            switch.shown, switch.otherwise
        ))
    };
    Verdict::Finding(Finding {
        subject: device.into(),
        evidence,
        message: message(switch.shown),
        fix,
    })
}

/// A filter of VLANs that cannot be turned off is no setting: promiscuous mode goes past it.
fn is_in_the_way(features: &[Feature], switch: &Switch) -> bool {
    let is_filter = switch.kernel == "rx-vlan-filter";
    is_on(features, switch.kernel) && (!is_filter || is_changeable(features, switch))
}

fn is_changeable(features: &[Feature], switch: &Switch) -> bool {
    features
        .iter()
        .any(|feature| feature.name == switch.kernel && feature.changeable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_that_is_on_is_the_one_to_turn_off() {
        let feature = |name: &str, on| Feature {
            name: name.into(),
            on,
            changeable: true,
        };
        let off = [feature("rx-lro", false), feature("rx-gro-hw", false)];
        assert!(matches!(lro_verdict("eth0", &off), Verdict::Fine { .. }));
        let on = [feature("rx-lro", false), feature("rx-gro-hw", true)];
        let Verdict::Finding(finding) = lro_verdict("eth0", &on) else {
            panic!("hardware GRO is on");
        };
        assert!(finding.message.starts_with("rx-gro-hw"));
        assert_eq!(finding.evidence[1].value, "on");
    }
}
