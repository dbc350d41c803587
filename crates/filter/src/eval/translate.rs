//! Translation of addresses and ports (`pf_get_transaddr` and `pf_get_sport` of `pf_lb.c`).

use std::net::{IpAddr, Ipv4Addr};

use super::decision::Translated;
use super::descriptor::Descriptor;
use super::engine::Engine;
use super::pool::{PoolError, PoolOf, in_network};
use super::program::{Program, RuleId};
use super::random::to_number;
use super::source_node::{NodeKey, Purpose};
use super::state::Key;
use super::walk::Walk;
use crate::names::{ICMP, ICMP6, TCP, UDP};
use crate::packet::Content;
use crate::rule::{Address, Direction, Family, Network, PoolKind};

/// Most addresses of a pool that are searched for a free port.
const ADDRESSES_TRIED: usize = 256;
const ECHO: u16 = 8;
const ECHO6: u16 = 128;

/// No address or port is left.
#[derive(Debug)]
pub(super) struct NoTranslation;

impl Engine<'_> {
    /// Translates the addresses that later rules see. Whether it did.
    pub(super) fn translate(
        &mut self,
        program: &Program<'_>,
        id: RuleId,
        walk: &mut Walk,
    ) -> Result<Option<Translated>, NoTranslation> {
        let rule = program.entry(id).rule;
        if let Some(family) = rule.af_to {
            walk.packet.new_family = family;
        }
        if rule.nat.is_none() && rule.rdr.is_none() {
            return Ok(None);
        }
        if walk.packet.new_family == walk.packet.family {
            self.translate_source(program, id, walk)?;
            self.translate_destination(program, id, walk)?;
        } else {
            self.translate_family(program, id, walk)?;
        }
        walk.nat_rule = Some(id);
        let packet = &walk.packet;
        Ok(Some(Translated {
            source: packet.new_source,
            source_port: packet.new_source_port,
            destination: packet.new_destination,
            destination_port: packet.new_destination_port,
        }))
    }

    fn translate_source(
        &mut self,
        program: &Program<'_>,
        id: RuleId,
        walk: &mut Walk,
    ) -> Result<(), NoTranslation> {
        let Some(of) = PoolOf::new(program, id, Purpose::Nat) else {
            return Ok(());
        };
        let mut nodes = std::mem::take(&mut walk.nodes);
        let found = self.source_and_port(of, &walk.packet, &mut nodes);
        walk.nodes = nodes;
        if let Some((address, port)) = known(found, walk)? {
            walk.packet.new_source = address;
            walk.packet.new_source_port = port;
        }
        Ok(())
    }

    /// A source address, and a port that no state has with it.
    fn source_and_port(
        &mut self,
        of: PoolOf<'_>,
        packet: &Descriptor,
        nodes: &mut Vec<NodeKey>,
    ) -> Result<(IpAddr, u16), PoolError> {
        let mut tried: Option<IpAddr> = None;
        for _ in 0..ADDRESSES_TRIED {
            let address = self.map_address(of, packet.new_family, packet.new_source, nodes)?;
            if tried == Some(address) {
                return Err(PoolError::Empty);
            }
            if let Some(port) = self.free_port(of.pool.ports, packet, address) {
                return Ok((address, port));
            }
            if !matches!(
                of.pool.kind,
                PoolKind::Random | PoolKind::RoundRobin | PoolKind::LeastStates
            ) {
                return Err(PoolError::Empty);
            }
            tried = tried.or(Some(address));
        }
        Err(PoolError::Empty)
    }

    fn free_port(
        &mut self,
        (low, high): (u16, u16),
        packet: &Descriptor,
        address: IpAddr,
    ) -> Option<u16> {
        let protocol = packet.packet.protocol;
        let (mut low, mut high) = (low.min(high), low.max(high));
        let echo = match protocol {
            ICMP => Some(ECHO),
            ICMP6 => Some(ECHO6),
            _ => None,
        };
        if let Some(echo) = echo {
            if packet.new_destination_port != echo {
                // Only echo has an identifier that can change; here pf gives none.
                return Some(0);
            }
            (low, high) = (1, 65_535);
        } else if !matches!(protocol, TCP | UDP) {
            (low, high) = (0, 0);
        }
        let direction = match packet.direction() {
            Direction::In => Direction::Out,
            Direction::Out => Direction::In,
        };
        let mut key = Key {
            family: packet.new_family,
            protocol,
            rdomain: packet.packet.rdomain,
            addresses: [address; 2],
            ports: [0; 2],
        };
        let (source, destination) = (packet.source_index(), packet.destination_index());
        key.addresses[destination] = packet.new_destination;
        key.ports[destination] = packet.new_destination_port;
        let mut is_free = |port: u16| {
            key.ports[source] = port;
            !self.states.is_taken(&key, direction)
        };
        if low == 0 && high == 0 {
            return is_free(packet.new_source_port).then_some(packet.new_source_port);
        }
        if low == high {
            return is_free(low).then_some(low);
        }
        let cut = low + self.random.below(u32::from(high - low) + 1) as u16;
        let states = &self.states;
        let mut is_free = |port: u16| {
            key.ports[source] = port;
            !states.is_taken(&key, direction)
        };
        (cut..=high)
            .chain((low..cut).rev())
            .find(|&port| is_free(port))
    }

    fn translate_destination(
        &mut self,
        program: &Program<'_>,
        id: RuleId,
        walk: &mut Walk,
    ) -> Result<(), NoTranslation> {
        let Some(of) = PoolOf::new(program, id, Purpose::Rdr) else {
            return Ok(());
        };
        let mut nodes = std::mem::take(&mut walk.nodes);
        let found = self.map_address(of, walk.packet.family, walk.packet.new_source, &mut nodes);
        walk.nodes = nodes;
        let Some(mut address) = known(found, walk)? else {
            return Ok(());
        };
        if let (PoolKind::Bitmask, Address::Network(network)) = (of.pool.kind, &of.pool.address) {
            address = in_network(
                Network {
                    address,
                    bits: network.bits,
                },
                to_number(walk.packet.new_destination),
            );
        }
        let (low, high) = of.pool.ports;
        let port = if high != 0 {
            let width = u32::from(high.wrapping_sub(low).wrapping_add(1)).max(1);
            let first = program
                .entry(id)
                .rule
                .destination
                .port
                .map_or(0, |port| port.low);
            let offset = i64::from(walk.packet.new_destination_port) - i64::from(first);
            // C's remainder keeps the sign of the dividend.
            let mut port = offset % i64::from(width) + i64::from(low);
            if port > 65_535 {
                port -= 65_535;
            }
            port as u16
        } else {
            low
        };
        walk.packet.new_destination = address;
        if port != 0 {
            walk.packet.new_destination_port = port;
        }
        Ok(())
    }

    /// `af-to` (`pf_get_transaddr_af`).
    fn translate_family(
        &mut self,
        program: &Program<'_>,
        id: RuleId,
        walk: &mut Walk,
    ) -> Result<(), NoTranslation> {
        let rule = program.entry(id).rule;
        let family = walk.packet.new_family;
        let Some(of) = PoolOf::new(program, id, Purpose::Nat) else {
            return Err(NoTranslation);
        };
        let mut nodes = std::mem::take(&mut walk.nodes);
        let found = self.source_and_port(of, &walk.packet, &mut nodes);
        let Some((source, port)) = known(found, walk)? else {
            walk.packet.new_family = walk.packet.family;
            return Ok(());
        };
        walk.packet.new_source_port = port;
        change_echo(&mut walk.packet, family);
        let old = walk.packet.new_destination;
        let destination = match PoolOf::new(program, id, Purpose::Rdr) {
            Some(rdr) => {
                let found = self.map_address(rdr, family, source, &mut nodes);
                let Some(prefix) = known(found, walk)? else {
                    return Ok(());
                };
                if rdr.pool.ports.0 != 0 {
                    walk.packet.new_destination_port = rdr.pool.ports.0;
                }
                let bits = prefix_of(&rdr.pool.address, family);
                match family {
                    Family::Inet => Some(in_network(
                        Network {
                            address: prefix,
                            bits,
                        },
                        to_number(old) & 0xffff_ffff,
                    )),
                    Family::Inet6 => embed(old, prefix, bits),
                }
            }
            None if family == Family::Inet => {
                let bits = prefix_of(&rule.destination.address, Family::Inet6);
                extract(old, if bits < 32 { 96 } else { bits })
            }
            None => embed(old, source, prefix_of(&of.pool.address, family).min(96)),
        };
        walk.nodes = nodes;
        walk.packet.new_destination = destination.ok_or(NoTranslation)?;
        walk.packet.new_source = source;
        Ok(())
    }
}

/// The choice of a pool; none, with a note, where nobody knows its addresses.
fn known<T>(found: Result<T, PoolError>, walk: &mut Walk) -> Result<Option<T>, NoTranslation> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(PoolError::Unknown(name)) => {
            walk.note(format!(
                "the addresses of {name} are not known: the translation to them is left out"
            ));
            Ok(None)
        }
        Err(PoolError::Empty) => Err(NoTranslation),
    }
}

/// The type of an echo, which stands for a port, in the other family.
fn change_echo(packet: &mut Descriptor, family: Family) {
    let port = match packet.direction() {
        Direction::In => &mut packet.new_destination_port,
        Direction::Out => &mut packet.new_source_port,
    };
    match (packet.packet.protocol, family) {
        (ICMP6, Family::Inet) if *port == ECHO6 => *port = ECHO,
        (ICMP6, Family::Inet) if *port == 129 => *port = 0,
        (ICMP, Family::Inet6) if *port == ECHO => *port = ECHO6,
        (ICMP, Family::Inet6) if *port == 0 => *port = 129,
        _ => {}
    }
}

fn prefix_of(address: &Address, family: Family) -> u8 {
    match address {
        Address::Network(network) => network.bits,
        Address::Interface(dynamic) => dynamic.bits.min(family.bits()),
        _ => 0,
    }
}

/// Where the IPv4 octets are behind a prefix of this length; octet 8 stays 0 (RFC 6052).
fn places(bits: u8) -> Option<[usize; 4]> {
    let start = match bits {
        32 | 40 | 48 | 56 | 64 | 96 => usize::from(bits / 8),
        _ => return None,
    };
    let mut places = [0; 4];
    let mut at = start;
    for place in &mut places {
        if at == 8 {
            at += 1;
        }
        *place = at;
        at += 1;
    }
    Some(places)
}

/// The IPv4 address in an IPv6 address.
fn extract(address: IpAddr, bits: u8) -> Option<IpAddr> {
    let IpAddr::V6(address) = address else {
        return None;
    };
    let octets = address.octets();
    let [a, b, c, d] = places(bits)?.map(|at| octets.get(at).copied().unwrap_or(0));
    Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d)))
}

/// An IPv6 address of a prefix and an IPv4 address.
fn embed(address: IpAddr, prefix: IpAddr, bits: u8) -> Option<IpAddr> {
    let (IpAddr::V4(address), IpAddr::V6(_)) = (address, prefix) else {
        return None;
    };
    let network = Network::new(prefix, bits);
    let IpAddr::V6(prefix) = network.address else {
        return None;
    };
    let mut octets = prefix.octets();
    for (place, octet) in places(bits)?.into_iter().zip(address.octets()) {
        *octets.get_mut(place)? = octet;
    }
    Some(IpAddr::from(octets))
}

/// Gives a packet other addresses and ports (`pf_translate`). For ICMP queries, `id` is the new
/// identifier.
pub(super) fn rewrite(
    packet: &mut crate::packet::Packet,
    source: (IpAddr, u16),
    destination: (IpAddr, u16),
    id: u16,
) {
    (packet.source, packet.destination) = (source.0, destination.0);
    match &mut packet.content {
        Content::Tcp(tcp) => (tcp.source_port, tcp.destination_port) = (source.1, destination.1),
        Content::Udp(udp) => (udp.source_port, udp.destination_port) = (source.1, destination.1),
        Content::Icmp(icmp) => {
            let to = Family::of(source.0);
            let echo = match (packet.protocol, to) {
                (ICMP, Family::Inet) => matches!(icmp.kind, 0 | 8),
                (ICMP6, Family::Inet6) => matches!(icmp.kind, 128 | 129),
                (ICMP, Family::Inet6) => {
                    packet.protocol = ICMP6;
                    icmp.kind = if icmp.kind == 0 { 129 } else { 128 };
                    true
                }
                (ICMP6, Family::Inet) => {
                    packet.protocol = ICMP;
                    icmp.kind = if icmp.kind == 129 { 0 } else { 8 };
                    true
                }
                _ => false,
            };
            if echo {
                icmp.id = id;
            }
        }
        Content::Other(_) | Content::Fragment(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_embedded_by_rfc_6052() {
        let v4: IpAddr = "192.0.2.33".parse().unwrap();
        for (prefix, bits, whole) in [
            ("2001:db8::", 32, "2001:db8:c000:221::"),
            ("2001:db8:100::", 40, "2001:db8:1c0:2:21::"),
            ("2001:db8:122::", 48, "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::", 56, "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::", 64, "2001:db8:122:344:c0:2:2100:0"),
            ("64:ff9b::", 96, "64:ff9b::192.0.2.33"),
        ] {
            let whole: IpAddr = whole.parse().unwrap();
            assert_eq!(
                embed(v4, prefix.parse().unwrap(), bits),
                Some(whole),
                "{bits}"
            );
            assert_eq!(extract(whole, bits), Some(v4), "{bits}");
        }
        assert_eq!(extract("::1".parse().unwrap(), 33), None);
    }
}
