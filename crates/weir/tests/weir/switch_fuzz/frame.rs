//! Random Ethernet frames, and words for them.

use std::fmt::Write as _;

use crate::random::Random;

pub type Mac = [u8; 6];

pub const BROADCAST: Mac = [0xff; 6];
/// A group that a bridge hands to its host and never forwards (IEEE 802.1X).
pub const CONTROL: Mac = [0x01, 0x80, 0xc2, 0, 0, 3];
/// The ethertype of the marks that end a burst: IEEE's for local experiments.
pub const MARK_ETHERTYPE: u16 = 0x88b5;
/// The end of a frame that has room for it: this, and the frame's number.
const MAGIC: [u8; 4] = *b"weir";
const TRAILER: usize = MAGIC.len() + 8;
/// Ethernet's header.
pub const HEADER: usize = 14;

const VLAN: u16 = 0x8100;
const PROVIDER_VLAN: u16 = 0x88a8;
/// The VLANs that frames and ports are in.
pub const VLANS: [u16; 5] = [1, 2, 3, 100, 4094];

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;

/// Who sends frames to whom.
pub struct Cast {
    /// The port that each host is at; the plan moves them.
    pub homes: Vec<usize>,
    pub ports: usize,
}

/// The addresses of hosts: sources of frames.
pub fn host(at: usize) -> Mac {
    [2, 0, 0, 0, 1, at as u8]
}

/// Whether this is a host's.
pub fn is_host(mac: Mac) -> bool {
    mac[..5] == host(0)[..5]
}

/// Whether this is a mark's.
pub fn is_marker(mac: Mac) -> bool {
    mac[..5] == marker(0)[..5]
}

/// An address that nothing is sent from.
pub fn unknown(at: usize) -> Mac {
    [2, 0, 0, 0, 9, at as u8]
}

pub fn port(at: usize) -> Mac {
    [2, 0, 0, 0, 0xa, at as u8]
}

pub fn bridge(at: u8) -> Mac {
    [2, 0, 0, 0, 0xb, at]
}

/// The far end of a veth.
pub fn outside(at: usize) -> Mac {
    [2, 0, 0, 0, 0xc, at as u8]
}

/// The source of the mark that ends a burst of a port.
pub fn marker(at: usize) -> Mac {
    [2, 0, 0, 0, 0xe, at as u8]
}

/// A mark: the frame that comes after all others.
pub fn mark(source: Mac, number: u64) -> Vec<u8> {
    let mut bytes = [&CONTROL[..], &source, &MARK_ETHERTYPE.to_be_bytes()].concat();
    bytes.resize(60 - TRAILER, 0);
    bytes.extend(MAGIC);
    bytes.extend(number.to_be_bytes());
    bytes
}

/// The number of a mark.
pub fn mark_number(frame: &[u8]) -> Option<u64> {
    let is_mark = frame.get(12..HEADER) == Some(&MARK_ETHERTYPE.to_be_bytes());
    number(frame).filter(|_| is_mark)
}

/// The number of a frame that has one.
pub fn number(frame: &[u8]) -> Option<u64> {
    let (_, trailer) = frame.split_at_checked(frame.len().checked_sub(TRAILER)?)?;
    let number = trailer.strip_prefix(&MAGIC)?;
    number.try_into().ok().map(u64::from_be_bytes)
}

pub fn destination(frame: &[u8]) -> Mac {
    frame[..6].try_into().unwrap_or_default()
}

pub fn source(frame: &[u8]) -> Mac {
    frame[6..12].try_into().unwrap_or_default()
}

/// The ethertype and the VLAN tag, if there is one: all that learning depends on besides the
/// source.
pub fn tag(frame: &[u8]) -> (u16, u16) {
    let word = |at: usize| {
        frame
            .get(at..at + 2)
            .map_or(0, |it| u16::from_be_bytes([it[0], it[1]]))
    };
    match word(12) {
        ethertype @ (VLAN | PROVIDER_VLAN) => (ethertype, word(14)),
        _ => (0, 0),
    }
}

/// Addresses and all behind the first tag, if there is one.
pub fn untagged(frame: &[u8]) -> Vec<u8> {
    match tag(frame) {
        (0, _) => frame.to_vec(),
        _ => [&frame[..12], frame.get(16..).unwrap_or_default()].concat(),
    }
}

impl Cast {
    pub fn new(ports: usize, hosts_a_port: usize) -> Self {
        Self {
            homes: (0..ports * hosts_a_port).map(|at| at % ports).collect(),
            ports,
        }
    }

    /// A host at this port, if there is one.
    pub fn host_at(&self, port: usize, random: &mut Random) -> Option<Mac> {
        let hosts = self.homes.iter().enumerate();
        let here: Vec<usize> = hosts
            .filter(|(_, home)| **home == port)
            .map(|(at, _)| at)
            .collect();
        (!here.is_empty()).then(|| host(random.pick(&here)))
    }

    fn any_host(&self, random: &mut Random) -> Mac {
        host(random.below(self.homes.len()))
    }

    /// The source of a frame from a port.
    pub fn source(&self, port_: usize, random: &mut Random) -> Mac {
        let own = self.host_at(port_, random).unwrap_or(unknown(200 + port_));
        match random.below(100) {
            0 => [0; 6],
            1 => BROADCAST,
            2 => [0x01, 0, 0x5e, 0, 0, 9],
            3 => bridge(0),
            4 => port(random.below(self.ports)),
            5 => outside(port_),
            _ => own,
        }
    }

    /// The destination of a frame from a port.
    pub fn destination(&self, random: &mut Random) -> Mac {
        match random.below(100) {
            0..6 => unknown(random.below(4)),
            6..10 => BROADCAST,
            10..13 => [0x01, 0, 0x5e, random.byte() & 0x7f, 0, random.byte() & 3],
            13..16 => [0x33, 0x33, 0, 0, random.byte(), random.byte() & 3],
            16..18 => [0x01, 0x80, 0xc2, 0, 0, random.byte() & 0x2f],
            18 => [0x01, 0x00, 0x0c, 0xcc, 0xcc, 0xcc],
            19 => [0; 6],
            20..23 => bridge(random.byte() & 1),
            23..25 => port(random.below(self.ports)),
            25 => outside(random.below(self.ports)),
            _ => self.any_host(random),
        }
    }
}

/// A frame of UDP without a tag.
pub fn plain(destination: Mac, source: Mac, number: u64, random: &mut Random) -> Vec<u8> {
    let mut bytes = [destination, source].concat();
    push_ipv4(&mut bytes, 17, 0, random);
    bytes.resize(60 - TRAILER, 0);
    bytes.extend(MAGIC);
    bytes.extend(number.to_be_bytes());
    bytes
}

/// Puts a random frame together. Its number is in its end if there is room.
pub fn build(
    destination: Mac,
    source: Mac,
    mtu: usize,
    number: u64,
    random: &mut Random,
) -> Vec<u8> {
    let mut bytes = [destination, source].concat();
    push_tags(&mut bytes, random);
    push_packet(&mut bytes, random);
    let length = length(mtu, random);
    let filled = bytes.len();
    bytes.resize(length.max(HEADER), 0);
    if filled < bytes.len() {
        random.fill(&mut bytes[filled..]);
    }
    if let Some(at) = bytes.len().checked_sub(TRAILER).filter(|at| *at >= HEADER) {
        bytes[at..at + MAGIC.len()].copy_from_slice(&MAGIC);
        bytes[at + MAGIC.len()..].copy_from_slice(&number.to_be_bytes());
    }
    bytes
}

fn length(mtu: usize, random: &mut Random) -> usize {
    match random.below(100) {
        0..6 => random.within(HEADER, 27),
        6..12 => random.within(HEADER, 59),
        12..45 => 60,
        45..60 => random.within(60, 130),
        60..85 => random.within(60, mtu),
        // Around each limit: the MTU with the header, with one tag and with two.
        _ => (mtu + HEADER + random.below(14)).saturating_sub(3),
    }
}

fn push_tags(bytes: &mut Vec<u8>, random: &mut Random) {
    let tags = match random.below(100) {
        0..78 => 0,
        78..94 => 1,
        94..99 => 2,
        _ => 3,
    };
    for _ in 0..tags {
        let ethertype = random.weighted(&[(12, VLAN), (4, PROVIDER_VLAN), (1, 0x9100)]);
        let id = match random.below(20) {
            0..3 => 0, // a priority tag
            3 => 4095,
            4 => random.word() & 0xfff,
            _ => random.pick(&VLANS),
        };
        let priority = if random.percent(30) {
            random.word() & 0xf000
        } else {
            0
        };
        bytes.extend(ethertype.to_be_bytes());
        bytes.extend((id | priority).to_be_bytes());
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Udp,
    Tcp,
    Icmp,
    Fragment,
    OtherIpv4,
    Igmp,
    Arp,
    UdpV6,
    Neighbour,
    Listener,
    OtherIpv6,
    Control,
    Length,
    Any,
}

const KINDS: [(u64, Kind); 14] = [
    (26, Kind::Udp),
    (14, Kind::Tcp),
    (5, Kind::Icmp),
    (4, Kind::Fragment),
    (3, Kind::OtherIpv4),
    (3, Kind::Igmp),
    (6, Kind::Arp),
    (14, Kind::UdpV6),
    (4, Kind::Neighbour),
    (3, Kind::Listener),
    (4, Kind::OtherIpv6),
    (3, Kind::Control),
    (4, Kind::Length),
    (7, Kind::Any),
];

fn push_packet(bytes: &mut Vec<u8>, random: &mut Random) {
    match random.weighted(&KINDS) {
        Kind::Udp => push_ipv4(bytes, 17, random.word() & 0x4000, random),
        Kind::Tcp => push_ipv4(bytes, 6, 0x4000, random),
        Kind::Icmp => push_ipv4(bytes, 1, 0, random),
        Kind::Fragment => push_ipv4(bytes, 17, random.word() & 0x3fff, random),
        Kind::OtherIpv4 => {
            let protocol = random.byte();
            push_ipv4(bytes, protocol, random.word(), random);
        }
        Kind::Igmp => {
            push_ipv4(bytes, 2, 0, random);
            // A report or a leave; a query would make one bridge's timers run before the other's.
            bytes.extend([random.pick(&[0x12, 0x16, 0x17, 0x22]), 0]);
        }
        Kind::Arp => push_arp(bytes, random),
        Kind::UdpV6 => push_ipv6(bytes, 17, random),
        Kind::Neighbour => {
            push_ipv6(bytes, 58, random);
            bytes.extend([random.pick(&[133, 135, 136, 137]), 0]);
        }
        Kind::Listener => {
            push_ipv6(bytes, 58, random);
            bytes.extend([random.pick(&[131, 132, 143]), 0]);
        }
        Kind::OtherIpv6 => {
            let next = random.pick(&[0, 6, 43, 44, 58, 59, 60, 255]);
            push_ipv6(bytes, next, random);
        }
        Kind::Control => {
            let ethertypes = [
                0x888e_u16, 0x88cc, 0x88f7, 0x8809, 0x8863, 0x8864, 0x8847, 0x8906,
            ];
            bytes.extend(random.pick(&ethertypes).to_be_bytes());
        }
        Kind::Length => {
            bytes.extend((random.word() % 1501).to_be_bytes());
            bytes.extend(random.pick(&[[0x42, 0x42, 3], [0xaa, 0xaa, 3], [0xff, 0xff, 0]]));
        }
        Kind::Any => {
            let ethertype = match random.word() {
                MARK_ETHERTYPE => 0x88b6,
                other => other,
            };
            bytes.extend(ethertype.to_be_bytes());
        }
    }
}

fn push_ipv4(bytes: &mut Vec<u8>, protocol: u8, fragment: u16, random: &mut Random) {
    bytes.extend(IPV4.to_be_bytes());
    let mut header = [0; 20];
    random.fill(&mut header);
    header[0] = if random.percent(95) {
        0x45
    } else {
        random.byte()
    };
    header[1] = 0;
    let total = if random.percent(80) {
        46
    } else {
        random.word() % 1600
    };
    header[2..4].copy_from_slice(&total.to_be_bytes());
    header[6..8].copy_from_slice(&fragment.to_be_bytes());
    header[9] = protocol;
    header[10..12].fill(0);
    header[12] = 10;
    header[16] = if protocol == 2 { 224 } else { 10 };
    if random.percent(90) {
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    bytes.extend(header);
}

fn push_ipv6(bytes: &mut Vec<u8>, next: u8, random: &mut Random) {
    bytes.extend(IPV6.to_be_bytes());
    let mut header = [0; 40];
    random.fill(&mut header);
    header[0] = if random.percent(95) {
        0x60
    } else {
        random.byte()
    };
    let payload = if random.percent(80) {
        20
    } else {
        random.word() % 1600
    };
    header[4..6].copy_from_slice(&payload.to_be_bytes());
    header[6] = next;
    header[7] = random.pick(&[1, 64, 255]);
    header[8..10].copy_from_slice(&[0xfe, 0x80]);
    header[24] = random.pick(&[0xfe, 0xff]);
    bytes.extend(header);
}

fn push_arp(bytes: &mut Vec<u8>, random: &mut Random) {
    bytes.extend(ARP.to_be_bytes());
    let mut packet = [0; 28];
    random.fill(&mut packet);
    packet[..8].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, random.pick(&[1, 2, 1, 2, 9])]);
    bytes.extend(packet);
}

/// The Internet checksum (RFC 1071).
fn checksum(header: &[u8]) -> u16 {
    let words = header
        .chunks_exact(2)
        .map(|it| u16::from_be_bytes([it[0], it[1]]));
    let mut sum: u32 = words.map(u32::from).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A frame in words.
pub fn describe(frame: &[u8]) -> String {
    let mut text = format!(
        "{} -> {}, {} bytes",
        mac(source(frame)),
        mac(destination(frame)),
        frame.len()
    );
    let word = |at: usize| {
        frame
            .get(at..at + 2)
            .map(|it| u16::from_be_bytes([it[0], it[1]]))
    };
    let mut at = 12;
    while let Some(ethertype @ (VLAN | PROVIDER_VLAN | 0x9100)) = word(at) {
        let tci = word(at + 2).unwrap_or_default();
        let _ = write!(
            text,
            ", tag {ethertype:04x} VLAN {} priority {}",
            tci & 0xfff,
            tci >> 13
        );
        at += 4;
    }
    let _ = match word(at) {
        Some(IPV4) => {
            let protocol = frame.get(at + 11).copied().unwrap_or_default();
            write!(text, ", IPv4 protocol {protocol}")
        }
        Some(IPV6) => {
            let next = frame.get(at + 8).copied().unwrap_or_default();
            write!(text, ", IPv6 next header {next}")
        }
        Some(ARP) => write!(text, ", ARP"),
        Some(length @ 0..=1500) => write!(text, ", LLC, length {length}"),
        Some(ethertype) => write!(text, ", ethertype {ethertype:04x}"),
        None => write!(text, ", cut short"),
    };
    text
}

pub fn mac(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
