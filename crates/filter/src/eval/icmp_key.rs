//! Keys of states for ICMP messages.

use std::net::IpAddr;

use super::descriptor::Descriptor;
use super::icmp::{Mapping, mapping};
use super::state::Key;
use crate::packet::{About, AboutHeader, Icmp};
use crate::rule::Family;

/// Addresses of a message in keys (`pf_state_key_addr_setup`), source first. `None` where a
/// multicast key makes no sense.
pub(super) fn addresses(
    descriptor: &Descriptor,
    source: IpAddr,
    destination: IpAddr,
    multicast: bool,
) -> Option<[IpAddr; 2]> {
    let plain = Some([source, destination]);
    let Some(message) = descriptor.packet.icmp() else {
        return plain;
    };
    if source.is_ipv4() || descriptor.family == Family::Inet {
        return plain;
    }
    let target = message.target.map_or(destination, IpAddr::V6);
    match message.kind {
        135 | 136 if multicast => None,
        135 => Some([source, target]),
        136 if descriptor.packet.destination.is_multicast() => {
            Some([target, IpAddr::from([0; 16])])
        }
        136 => Some([target, destination]),
        _ if multicast => Some([IpAddr::from([0xff02, 0, 0, 0, 0, 0, 0, 1]), destination]),
        _ => plain,
    }
}

/// Key of the state that an ICMP error is about: the packet inside went the other way.
pub(super) fn about_key(descriptor: &Descriptor, about: &About) -> (Key, Option<Mapping>) {
    // Source and destination of the inner packet have the places of the reverse direction.
    let (source, destination) = (descriptor.destination_index(), descriptor.source_index());
    let mut key = Key {
        family: descriptor.family,
        protocol: about.protocol,
        rdomain: descriptor.packet.rdomain,
        addresses: [about.source; 2],
        ports: [0; 2],
    };
    key.addresses[source] = about.source;
    key.addresses[destination] = about.destination;
    match about.header {
        AboutHeader::Tcp {
            source_port,
            destination_port,
            ..
        }
        | AboutHeader::Udp {
            source_port,
            destination_port,
        } => {
            key.ports[source] = source_port;
            key.ports[destination] = destination_port;
            (key, None)
        }
        AboutHeader::Icmp { kind, code, id } => {
            let mut message = Icmp::new(kind, code);
            message.id = id;
            let mapping = mapping(&message, descriptor.family);
            let asks = if mapping.is_query {
                source
            } else {
                destination
            };
            key.ports[asks] = mapping.id;
            key.ports[1 - asks] = mapping.kind;
            (key, Some(mapping))
        }
        AboutHeader::Other => (key, None),
    }
}
