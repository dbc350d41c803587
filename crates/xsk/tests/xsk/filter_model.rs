//! A filter's rules in plain Rust, and packets that come close to them.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::sample::select;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use xsk::Rule;

/// A rule, and whatever it is made from.
#[derive(Debug, Clone, Copy)]
pub enum Spec {
    EtherType(u16),
    Ip(IpSpec),
}

#[derive(Debug, Clone, Copy)]
pub struct IpSpec {
    /// None for any.
    protocol: Option<u8>,
    /// Address and length.
    source: Option<(IpAddr, u8)>,
    destination: Option<(IpAddr, u8)>,
    source_port: Option<u16>,
    destination_port: Option<u16>,
}

impl Spec {
    pub fn rule(&self) -> Rule {
        match self {
            Self::EtherType(ether_type) => Rule::ether_type(*ether_type),
            Self::Ip(spec) => spec.rule(),
        }
    }
}

impl IpSpec {
    fn rule(&self) -> Rule {
        let mut rule = match self.protocol {
            Some(6) => Rule::tcp(),
            Some(17) => Rule::udp(),
            _ => Rule::ip(),
        };
        if let Some((address, len)) = self.source {
            rule = rule.source(address, len);
        }
        if let Some((address, len)) = self.destination {
            rule = rule.destination(address, len);
        }
        if let Some(port) = self.source_port {
            rule = rule.source_port(port);
        }
        if let Some(port) = self.destination_port {
            rule = rule.destination_port(port);
        }
        rule
    }
}

/// Whether a rule takes a packet, by the documentation of `xsk::guide::packets`.
pub fn matches(spec: &Spec, packet: &[u8]) -> bool {
    let Some((ether_type, network)) = ethernet(packet) else {
        return false;
    };
    match spec {
        Spec::EtherType(wanted) => *wanted == ether_type,
        Spec::Ip(spec) => {
            let header = match ether_type {
                0x0800 => ipv4(network),
                0x86dd => ipv6(network),
                _ => None,
            };
            header.is_some_and(|header| header.matches(spec))
        }
    }
}

struct Header {
    protocol: u8,
    source: IpAddr,
    destination: IpAddr,
    /// None if they are cut off, or this is a fragment.
    ports: Option<(u16, u16)>,
}

impl Header {
    fn matches(&self, spec: &IpSpec) -> bool {
        let has_ports = spec.source_port.is_some() || spec.destination_port.is_some();
        let protocol = match spec.protocol {
            Some(protocol) => self.protocol == protocol,
            None => !has_ports || [6, 17].contains(&self.protocol),
        };
        let ports = match self.ports {
            Some((source, destination)) => {
                spec.source_port.is_none_or(|port| port == source)
                    && spec.destination_port.is_none_or(|port| port == destination)
            }
            None => !has_ports,
        };
        let inside = |prefix: Option<(IpAddr, u8)>, address| {
            prefix.is_none_or(|prefix| is_inside(prefix, address))
        };
        protocol
            && ports
            && inside(spec.source, self.source)
            && inside(spec.destination, self.destination)
    }
}

fn is_inside((network, len): (IpAddr, u8), address: IpAddr) -> bool {
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            (0..len).all(|bit| (network.to_bits() ^ address.to_bits()) >> (31 - bit) & 1 == 0)
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => {
            (0..len).all(|bit| (network.to_bits() ^ address.to_bits()) >> (127 - bit) & 1 == 0)
        }
        _ => false,
    }
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    let field = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes(field.try_into().ok()?))
}

/// The EtherType and everything behind it, past one tag.
fn ethernet(packet: &[u8]) -> Option<(u16, &[u8])> {
    match be16(packet, 12)? {
        0x8100 | 0x88a8 => Some((be16(packet, 16)?, &packet[18..])),
        ether_type => Some((ether_type, &packet[14..])),
    }
}

fn ipv4(header: &[u8]) -> Option<Header> {
    let fixed = header.get(..20)?;
    let len = usize::from(fixed[0] & 0xf) * 4;
    if fixed[0] >> 4 != 4 || len < 20 {
        return None;
    }
    let address = |at| Ipv4Addr::from(<[u8; 4]>::try_from(&fixed[at..at + 4]).expect("4 bytes"));
    let (more, offset) = (fixed[6] & 0x20 != 0, be16(fixed, 6)? & 0x1fff);
    let whole = !more && offset == 0;
    Some(Header {
        protocol: fixed[9],
        source: address(12).into(),
        destination: address(16).into(),
        ports: if whole { ports(header, len) } else { None },
    })
}

fn ipv6(header: &[u8]) -> Option<Header> {
    let fixed = header.get(..40)?;
    if fixed[0] >> 4 != 6 {
        return None;
    }
    let address = |at| Ipv6Addr::from(<[u8; 16]>::try_from(&fixed[at..at + 16]).expect("16 bytes"));
    Some(Header {
        protocol: fixed[6],
        source: address(8).into(),
        destination: address(24).into(),
        ports: ports(header, 40),
    })
}

fn ports(header: &[u8], at: usize) -> Option<(u16, u16)> {
    Some((be16(header, at)?, be16(header, at + 2)?))
}

/// Few values of each field, so that rules and packets meet.
const ETHER_TYPES: [u16; 6] = [0x0800, 0x0800, 0x86dd, 0x86dd, 0x0806, 0x8100];
const PORTS: [u16; 3] = [53, 80, 0x3500];
const PROTOCOLS: [u8; 2] = [6, 17];

fn ipv4_address() -> impl Strategy<Value = Ipv4Addr> {
    select(vec![
        Ipv4Addr::new(192, 0, 2, 0),
        Ipv4Addr::new(192, 0, 2, 1),
        Ipv4Addr::new(192, 0, 130, 0),
        Ipv4Addr::BROADCAST,
    ])
}

fn ipv6_address() -> impl Strategy<Value = Ipv6Addr> {
    let of = |third, last| Ipv6Addr::new(0x2001, 0xdb8, third, 0xffff, 0, 0, 0, last);
    select(vec![of(0, 0), of(0, 1), of(0x8000, 0), Ipv6Addr::LOCALHOST])
}

/// A prefix of one IP version, without bits behind it.
fn prefix(ipv4: bool) -> impl Strategy<Value = (IpAddr, u8)> {
    let v4 = (ipv4_address(), select(vec![0_u8, 8, 16, 17, 31, 32])).prop_map(|(address, len)| {
        let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
        (Ipv4Addr::from_bits(address.to_bits() & mask).into(), len)
    });
    let lens = select(vec![0_u8, 16, 32, 33, 64, 127, 128]);
    let v6 = (ipv6_address(), lens).prop_map(|(address, len)| {
        let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
        (Ipv6Addr::from_bits(address.to_bits() & mask).into(), len)
    });
    (v4, v6).prop_map(move |(v4, v6)| if ipv4 { v4 } else { v6 })
}

pub fn spec() -> impl Strategy<Value = Spec> {
    let ip = any::<bool>().prop_flat_map(|ipv4| {
        (
            option::of(select(PROTOCOLS.to_vec())),
            option::weighted(0.3, prefix(ipv4)),
            option::weighted(0.5, prefix(ipv4)),
            option::weighted(0.2, select(PORTS.to_vec())),
            option::of(select(PORTS.to_vec())),
        )
    });
    let ip = ip.prop_map(
        |(protocol, source, destination, source_port, destination_port)| {
            Spec::Ip(IpSpec {
                protocol,
                source,
                destination,
                source_port,
                destination_port,
            })
        },
    );
    prop_oneof![
        1 => select(vec![0x0806, 0x88b5, 0x8100, 0x86dd]).prop_map(Spec::EtherType),
        12 => ip,
    ]
}

/// A frame with up to two tags, an IP packet or none, often cut.
pub fn packet() -> impl Strategy<Value = Vec<u8>> {
    let tags = prop_oneof![
        3 => Just(vec![]),
        2 => vec(select(vec![0x8100_u16, 0x88a8]), 1..3),
    ];
    let parts = (
        tags,
        select(ETHER_TYPES.to_vec()),
        ipv4_packet(),
        ipv6_packet(),
    );
    let frame = parts.prop_map(|(tags, ether_type, ipv4, ipv6)| {
        let mut frame = vec![2; 12];
        for tag in tags {
            frame.extend(tag.to_be_bytes());
            frame.extend([0, 7]);
        }
        frame.extend(ether_type.to_be_bytes());
        frame.extend(match ether_type {
            0x86dd => ipv6,
            _ => ipv4,
        });
        frame
    });
    // The kernel runs a program on no less than an Ethernet header.
    let cut = prop_oneof![3 => Just(usize::MAX), 1 => 14..100_usize];
    (frame, cut).prop_map(|(mut frame, cut)| {
        frame.truncate(cut);
        frame
    })
}

/// The next protocol and everything behind the IP header.
fn transport() -> impl Strategy<Value = (u8, Vec<u8>)> {
    // 44 is a fragment and 0 hop-by-hop options, whose next header is at their start.
    let protocol = prop_oneof![8 => select(PROTOCOLS.to_vec()), 1 => select(vec![1_u8, 44, 0, 58])];
    let port = || select(PORTS.to_vec());
    (protocol, select(PROTOCOLS.to_vec()), port(), port()).prop_map(
        |(protocol, inner, source, destination)| {
            let mut bytes = match protocol {
                0 | 44 => vec![inner, 0, 0, 0, 0, 0, 0, 0],
                _ => vec![],
            };
            bytes.extend(source.to_be_bytes());
            bytes.extend(destination.to_be_bytes());
            bytes.extend([0; 8]);
            (protocol, bytes)
        },
    )
}

fn ipv4_packet() -> impl Strategy<Value = Vec<u8>> {
    // All values of both nibbles sometimes: version, and words of the header.
    let first = prop_oneof![5 => Just(0x45_u8), 2 => 0x44_u8..0x51, 1 => any::<u8>()];
    // Whole, not to be fragmented, reserved bit, first of several, and the last ones.
    let fragment = prop_oneof![
        4 => select(vec![0_u16, 0x4000, 0x8000]),
        1 => select(vec![0x2000_u16, 0x2001, 1, 0x1fff]),
    ];
    let addresses = (ipv4_address(), ipv4_address());
    let parts = (first, fragment, transport(), addresses);
    parts.prop_map(|(first, fragment, (protocol, behind), (from, to))| {
        let mut bytes = vec![first, 0, 0, 0, 0, 0];
        bytes.extend(fragment.to_be_bytes());
        bytes.extend([64, protocol, 0, 0]);
        bytes.extend(from.octets());
        bytes.extend(to.octets());
        // Options that look like ports, for a program that does not skip them.
        let options = usize::from(first & 0xf).saturating_sub(5);
        bytes.extend([0, 53, 0, 80].repeat(options));
        bytes.extend(behind);
        bytes
    })
}

fn ipv6_packet() -> impl Strategy<Value = Vec<u8>> {
    let first = prop_oneof![8 => Just(0x60_u8), 1 => any::<u8>()];
    let addresses = (ipv6_address(), ipv6_address());
    let parts = (first, transport(), addresses);
    parts.prop_map(|(first, (protocol, behind), (from, to))| {
        let mut bytes = vec![first, 0, 0, 0, 0, 0, protocol, 64];
        bytes.extend(from.octets());
        bytes.extend(to.octets());
        bytes.extend(behind);
        bytes
    })
}
