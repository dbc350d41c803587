//! The neighbours of a device.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use anyhow::Result;

use super::each::each;
use crate::doctor::check::Check;
use crate::doctor::context::device::Device;
use crate::doctor::context::watch::Lists;
use crate::doctor::context::{Context, Neighbour, NeighbourState};
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::severity::Severity;
use crate::doctor::step::Read;
use crate::doctor::verdict::Verdict;
use crate::report::shell::quote;

/// The most neighbours that a finding names.
const MOST_NAMED: usize = 4;

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[NEIGHBOUR_STALE, NEIGHBOUR_FAILED];

const NEIGHBOUR_STALE: Check = Check {
    id: "neighbour-stale",
    title: "a permanent neighbour has the MAC address of nobody (stale ARP entry)",
    severity: Severity::Critical,
    why: "A permanent entry is never asked again: after its host got another MAC address, every packet to it is dropped as another host's.",
    source: "neigh_update in net/core/neighbour.c; ip-neighbour(8); eth_type_trans, PACKET_OTHERHOST",
    more: "Reads the permanent neighbours of each veth (RTM_GETNEIGH), and the MAC address of its peer, \
           also in another network namespace (IFLA_TARGET_NETNSID). It is a finding only where that is \
           proof: the peer is in no bridge, has no XDP program, and nobody there wants the frames of \
           other addresses (IFLA_PROMISCUITY 0, so no macvlan either); then only its own address is \
           received. A tc program of the peer that rewrites addresses is not seen.\n\n\
           The fix removes the entry, so that ARP or neighbour discovery asks again; who made it, such \
           as a container's network plugin, should know. `ip neigh show nud permanent` lists such \
           entries.",
    counters: &[],
    run: stale,
};

const NEIGHBOUR_FAILED: Check = Check {
    id: "neighbour-failed",
    title: "a next hop does not answer ARP or neighbour discovery (FAILED, INCOMPLETE)",
    severity: Severity::Advice,
    why: "Packets to it wait for an answer, three at most by default, and are dropped; senders get \"No route to host\".",
    source: "neigh_timer_handler and __neigh_event_send in net/core/neighbour.c; ip-neighbour(8)",
    more: "Reads the neighbours of each device (RTM_GETNEIGH) twice, some seconds apart: it is a \
           finding if one has been asked at both moments, or has failed meanwhile. Entries that failed \
           earlier, and that nobody sends to now, are none.\n\n\
           The host may be off, have another address or VLAN, or its answers be filtered: `tcpdump -ni \
           DEV arp or icmp6` shows whether it answers. A host that scans a subnet makes many.",
    counters: &[],
    run: failed,
};

fn stale(context: &Context) -> Result<Vec<Verdict>> {
    let lists = context.lists()?;
    each(context, |device| Ok(stale_of(context, device, &lists)))
}

fn stale_of(context: &Context, device: &Device, lists: &Lists<'_>) -> Option<Verdict> {
    let is_permanent =
        |it: &&Neighbour| it.device == device.link.index && it.state == NeighbourState::PERMANENT;
    let entries = lists.after.neighbours.iter().filter(is_permanent);
    // A group address is received by many.
    let entries = entries.filter_map(|it| Some((it, it.mac.filter(|mac| mac[0] & 1 == 0)?)));
    let entries: Vec<_> = entries.collect();
    if !device.is_veth() {
        return None;
    }
    let name = device.name();
    if entries.is_empty() {
        let source = format!("rtnetlink, permanent neighbours of {name}");
        return Some(Verdict::fine(name, vec![Evidence::new(source, "none")]));
    }
    // Without a peer that can be read nothing is proven.
    let Ok(Some(peer)) = context.peer_link(device) else {
        return None;
    };
    let passes_on = peer.controller.is_some() || peer.promiscuity > 0 || peer.xdp_program.is_some();
    let source = format!(
        "rtnetlink, MAC address of {}, the peer of {name}",
        peer.name
    );
    let of_peer = Evidence::new(source, mac(peer.mac));
    let wrong = entries.iter().find(|(_, mac)| *mac != peer.mac);
    let Some((entry, wrong)) = wrong.filter(|_| !passes_on) else {
        return Some(Verdict::fine(name, vec![of_peer]));
    };
    let (address, wrong) = (entry.address, mac(*wrong));
    let source = format!("rtnetlink, permanent neighbour {address} of {name}");
    let evidence = vec![Evidence::new(source, &wrong), of_peer];
    let message = format!(
        "Packets to {address} go to {wrong}, but behind {name} is only {} with {}: they are dropped.",
        peer.name,
        mac(peer.mac)
    );
    let read = Read::of_namespace(&format!("ip neigh show to {address} dev {name}"), "");
    let fix = Fix::command(
        context,
        &format!("ip neigh del {address} dev {name}"),
        &format!("ip neigh replace {address} lladdr {wrong} dev {name} nud permanent"),
        read,
    );
    Some(Verdict::found(name, evidence, message, fix))
}

fn failed(context: &Context) -> Result<Vec<Verdict>> {
    let lists = context.lists()?;
    let before = lists.before.neighbours.iter();
    let before: States = before
        .map(|it| ((it.device, it.address), it.state))
        .collect();
    each(context, |device| Ok(failed_of(device, &lists, &before)))
}

/// The states of neighbours by device and address. There can be many thousands.
type States = BTreeMap<(u32, IpAddr), NeighbourState>;

fn failed_of(device: &Device, lists: &Lists<'_>, before: &States) -> Option<Verdict> {
    let name = device.name();
    let neighbours = lists.after.neighbours.iter();
    let mut neighbours = neighbours
        .filter(|it| it.device == device.link.index)
        .peekable();
    neighbours.peek()?;
    let is_silent = |it: &&Neighbour| {
        let asked = [NeighbourState::INCOMPLETE, NeighbourState::FAILED];
        match before.get(&(it.device, it.address)) {
            Some(&NeighbourState::INCOMPLETE) => asked.contains(&it.state),
            Some(&NeighbourState::FAILED) => it.state == NeighbourState::INCOMPLETE,
            _ => it.state == NeighbourState::FAILED,
        }
    };
    let silent: Vec<_> = neighbours.filter(is_silent).map(|it| it.address).collect();
    let source = format!("rtnetlink, neighbours of {name} that do not answer");
    if silent.is_empty() {
        return Some(Verdict::fine(name, vec![Evidence::new(source, "none")]));
    }
    let shown = silent.iter().take(MOST_NAMED).map(ToString::to_string);
    let mut shown = shown.collect::<Vec<_>>().join(", ");
    if let Some(more) = silent
        .len()
        .checked_sub(MOST_NAMED)
        .filter(|more| *more > 0)
    {
        let _ = write!(shown, " and {more} more");
    }
    let message = format!(
        "No answer within {:.1} s from {shown}: packets there are dropped.",
        lists.seconds
    );
    let fix = format!(
        "see with `tcpdump -ni {} arp or icmp6` whether there are answers; then correct the address, the VLAN or the filter, or stop the sender",
        quote(name)
    );
    let evidence = vec![Evidence::new(source, shown)];
    Some(Verdict::found(name, evidence, message, Fix::manual(fix)))
}

/// A MAC address as text.
fn mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
