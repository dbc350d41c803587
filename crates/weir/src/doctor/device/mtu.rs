//! MTUs of devices that pass frames to each other.

use anyhow::Result;

use super::each::{each, foreign_peer};
use crate::doctor::check::Check;
use crate::doctor::context::Context;
use crate::doctor::context::device::Device;
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::severity::Severity;
use crate::doctor::verdict::Verdict;
use crate::report::shell::quote;

/// The kernel lets a frame be so much longer than the MTU, for a VLAN tag (`VLAN_HLEN`).
const SLACK: u32 = 4;

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[VETH_MTU, BRIDGE_MTU];

const VETH_MTU: Check = Check {
    id: "veth-mtu",
    title: "the two ends of a veth have different MTUs",
    severity: Severity::Warning,
    why: "The end with the smaller MTU drops larger frames of the other without an ICMP answer: short packets pass, connections hang once they carry data.",
    source: "__dev_forward_skb2 and __is_skb_forwardable in net/core/dev.c and linux/netdevice.h",
    more: "Reads the MTU of each veth and of its peer (rtnetlink), also of one in another network \
           namespace (IFLA_TARGET_NETNSID, with CAP_NET_ADMIN there). A difference of 4 bytes is none: \
           the kernel leaves room for a VLAN tag.\n\n\
           The fix lowers the larger MTU, which loses nothing: larger frames do not arrive now. To \
           raise the smaller one instead, every device behind it has to follow. `ping -M do -s SIZE` \
           shows the effect.",
    counters: &[],
    run: |context| each(context, |device| Ok(veth(context, device))),
};

const BRIDGE_MTU: Check = Check {
    id: "bridge-mtu",
    title: "the ports of a bridge have different MTUs",
    severity: Severity::Warning,
    why: "A bridge drops a frame that is longer than the MTU of the port that it leaves by, without an ICMP answer.",
    source: "br_dev_queue_push_xmit in net/bridge/br_forward.c; br_mtu_auto_adjust in net/bridge/br_if.c",
    more: "Reads the MTU of each bridge and of its ports (rtnetlink). A difference of 4 bytes is none: \
           the kernel leaves room for a VLAN tag. The bridge's own MTU is the smallest of its ports, \
           unless somebody has set it.\n\n\
           There is no automatic fix, since the hosts behind the ports must have the same MTU: lower \
           that of the larger ports and of their hosts, or raise that of the others.",
    counters: &[],
    run: |context| each(context, |device| bridge(context, device)),
};

fn veth(context: &Context, device: &Device) -> Option<Verdict> {
    if !device.is_veth() {
        return None;
    }
    let (name, mtu) = (device.name(), device.link.mtu);
    let foreign = device.link.lower_netns.is_some();
    // Its namespace may have no number here, or may not be asked.
    let Ok(Some(peer)) = context.peer_link(device) else {
        let reason = foreign_peer("which may have another MTU");
        return Some(Verdict::unchecked(name, reason));
    };
    let of_peer = if foreign {
        format!("{}, its peer in another network namespace", peer.name)
    } else {
        format!("{}, its peer", peer.name)
    };
    let evidence = vec![
        Evidence::new(format!("rtnetlink, MTU of {name}"), mtu.to_string()),
        Evidence::new(format!("rtnetlink, MTU of {of_peer}"), peer.mtu.to_string()),
    ];
    let differ = mtu.abs_diff(peer.mtu) > SLACK;
    // Of a pair in one namespace, the end with the larger MTU has the finding.
    if !differ || (mtu < peer.mtu && !foreign) {
        return Some(Verdict::fine(name, evidence));
    }
    let smaller = mtu.min(peer.mtu);
    let (sender, receiver) = if mtu > peer.mtu {
        (name, peer.name.as_str())
    } else {
        (peer.name.as_str(), name)
    };
    let message =
        format!("{receiver} drops packets of more than {smaller} bytes that {sender} sends to it.");
    let fix = if mtu > peer.mtu {
        let path = format!("/sys/class/net/{name}/mtu");
        Fix::write(path, mtu.to_string(), smaller.to_string())
    } else {
        Fix::manual(format!(
            "in the network namespace of the peer: `ip link set {} mtu {smaller}`; undo with `mtu {}`",
            // Anybody's: the peer may be in a container.
            quote(&peer.name),
            peer.mtu
        ))
    };
    Some(Verdict::found(name, evidence, message, fix))
}

fn bridge(context: &Context, device: &Device) -> Result<Option<Verdict>> {
    if device.kind() != Some("bridge") {
        return Ok(None);
    }
    let name = device.name();
    let devices = context.devices()?.iter();
    let ports: Vec<_> = devices
        .filter(|port| port.link.controller == Some(device.link.index))
        .collect();
    let mut evidence = vec![Evidence::new(
        format!("rtnetlink, MTU of {name}"),
        device.link.mtu.to_string(),
    )];
    evidence.extend(ports.iter().map(|port| {
        let source = format!("rtnetlink, MTU of {}, a port of {name}", port.name());
        Evidence::new(source, port.link.mtu.to_string())
    }));
    let least = ports
        .iter()
        .map(|port| port.link.mtu)
        .min()
        .unwrap_or_default();
    let larger: Vec<_> = ports
        .iter()
        .filter(|port| port.link.mtu > least + SLACK)
        .map(|port| format!("{} ({})", port.name(), port.link.mtu))
        .collect();
    if larger.is_empty() {
        return Ok(Some(Verdict::fine(name, evidence)));
    }
    let smaller: Vec<_> = ports
        .iter()
        .filter(|port| port.link.mtu == least)
        .map(|port| port.name())
        .collect();
    let message = format!(
        "Frames from {} with more than {least} bytes are dropped at {}.",
        larger.join(", "),
        smaller.join(", ")
    );
    let fix = format!(
        "give all ports, and the hosts behind them, one MTU: `ip link set PORT mtu {least}`, undo with the MTU above"
    );
    Ok(Some(Verdict::found(
        name,
        evidence,
        message,
        Fix::manual(fix),
    )))
}
