//! Reading the facts that decide about a port's hook.

use hostnet::ethtool;
use hostnet::genetlink::netdev::{self, XdpFeatures};
use hostnet::rtnetlink::{Link, Qdisc, Rtnetlink, TcHandle};

use super::choice::Facts;
use crate::bpf::{self, hook};

/// The features of a card that take VLAN tags out of received frames: those of 802.1Q (`ethtool -K DEVICE rxvlan`)
/// and of 802.1ad.
pub const VLAN_OFFLOADS: [&str; 2] = ["rx-vlan-hw-parse", "rx-vlan-stag-hw-parse"];

/// The programs and filters on a port that are this switch's own.
#[derive(Debug, Clone, Copy, Default)]
pub struct Own {
    /// The id of its XDP program.
    pub xdp_program: Option<u32>,
    /// It has a program of tcx.
    pub tcx_program: bool,
}

/// The facts about a port of the calling thread's network namespace; `cards` are those of a bond.
///
/// # Errors
///
/// Where the kernel does not tell whether there are filters.
pub fn of_port(
    link: &Link,
    cards: &[String],
    qdiscs: &[Qdisc],
    own: Own,
    rtnetlink: &mut Rtnetlink,
) -> hostnet::Result<Facts> {
    let features = netdev::xdp_features(link.index).ok().flatten();
    let has_clsact = qdiscs
        .iter()
        .any(|it| it.device == link.index && it.parent == TcHandle::INGRESS);
    let mut has_filters = |parent| {
        if !has_clsact {
            return Ok(false);
        }
        let priorities = rtnetlink.filter_priorities(link.index, parent)?;
        Ok::<_, hostnet::Error>(priorities.iter().any(|it| *it != hook::PRIORITY))
    };
    let [at_ingress, at_egress] = hook::tcx_programs(link.index);
    Ok(Facts {
        kind: link.kind.clone(),
        native: features.map(XdpFeatures::native),
        redirect_target: features.map(XdpFeatures::redirect_target),
        mtu: link.mtu,
        vnet_header: link.tap_vnet_header.unwrap_or(false),
        qdisc: link.qdisc.clone(),
        ingress_filters: has_filters(TcHandle::INGRESS_FILTERS)?
            || at_ingress > own.tcx_program.into(),
        egress_filters: has_filters(TcHandle::EGRESS_FILTERS)? || at_egress > 0,
        other_xdp: other_xdp(link, own),
        takes_tags: cards
            .iter()
            // One that cannot tell is gone.
            .find(|card| takes_tags(card).is_ok_and(|on| !on.is_empty()))
            .cloned(),
        unsupported: unsupported(link),
    })
}

/// The features of [`VLAN_OFFLOADS`] that are on.
pub fn takes_tags(card: &str) -> hostnet::Result<Vec<String>> {
    let features = ethtool::features(card)?.into_iter();
    let takes = features.filter(|it| it.on && VLAN_OFFLOADS.contains(&it.name.as_str()));
    Ok(takes.map(|it| it.name).collect())
}

fn other_xdp(link: &Link, own: Own) -> Option<(u32, String)> {
    let programs = link.xdp_programs;
    let all = [
        programs.driver,
        programs.generic,
        programs.hardware,
        link.xdp_program,
    ];
    let id = all
        .into_iter()
        .flatten()
        .find(|id| Some(*id) != own.xdp_program)?;
    let name = bpf::program_name(id).unwrap_or_else(|| "of an unknown name".into());
    Some((id, name))
}

fn unsupported(link: &Link) -> Option<&'static str> {
    let port = link.bridge_port.as_ref()?;
    [
        (link.switchdev, "switchdev"),
        (port.vlan_tunnel, "vlan_tunnel"),
        (port.backup_port.is_some(), "backup_port"),
        (port.backup_nexthop.is_some(), "backup_nhid"),
    ]
    .into_iter()
    .find_map(|(used, name)| used.then_some(name))
}
