//! Frames, byte by byte.

use std::net::Ipv4Addr;

/// The EtherType of local experiments (IEEE 802), which the programs of bpf/faults.bpf.c act on.
pub const EXPERIMENT: u16 = 0x88b5;
/// A second one, which nobody takes.
pub const UNKNOWN: u16 = 0x88b6;
const IPV4: u16 = 0x0800;
const IP_HEADER: usize = 20;
const UDP: u8 = 17;
const TCP: u8 = 6;

/// The oddity of a frame.
#[derive(Debug, Clone, Copy)]
pub struct Odd {
    pub source: Ipv4Addr,
    pub destination: Ipv4Addr,
    pub ttl: u8,
    pub id: u16,
    /// Flags and offset of the header, in host byte order.
    pub fragment: u16,
    /// Added to the checksum of the IP header.
    pub ip_error: u16,
    /// Added to the checksum of UDP.
    pub udp_error: u16,
    /// Bytes behind the header of the transport.
    pub payload: usize,
}

/// An Ethernet frame of 60 bytes at least.
pub fn ethernet(to: [u8; 6], from: [u8; 6], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [&to[..], &from, &ethertype.to_be_bytes(), payload].concat();
    frame.resize(frame.len().max(60), 0);
    frame
}

/// A UDP datagram.
pub fn udp(macs: [[u8; 6]; 2], ports: [u16; 2], odd: &Odd) -> Vec<u8> {
    let length = (8 + odd.payload) as u16;
    let mut segment = Vec::new();
    for word in [ports[0], ports[1], length, 0] {
        segment.extend(word.to_be_bytes());
    }
    segment.resize(8 + odd.payload, 0x5a);
    let sum = checksum(&[&pseudo_header(odd, UDP, length)[..], &segment].concat());
    segment[6..8].copy_from_slice(&sum.wrapping_add(odd.udp_error).to_be_bytes());
    ip(macs, UDP, &segment, odd)
}

/// A SYN of TCP.
pub fn syn(macs: [[u8; 6]; 2], ports: [u16; 2], odd: &Odd) -> Vec<u8> {
    let mut segment = Vec::new();
    segment.extend(ports[0].to_be_bytes());
    segment.extend(ports[1].to_be_bytes());
    segment.extend([0, 0, 0, 1, 0, 0, 0, 0, 5 << 4, 2, 0xff, 0xff, 0, 0, 0, 0]);
    let sum = checksum(&[&pseudo_header(odd, TCP, 20)[..], &segment].concat());
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    ip(macs, TCP, &segment, odd)
}

/// An IPv4 packet of any protocol, from the second to the first address.
pub fn ip(macs: [[u8; 6]; 2], protocol: u8, payload: &[u8], odd: &Odd) -> Vec<u8> {
    let mut header = vec![0x45, 0];
    header.extend(((IP_HEADER + payload.len()) as u16).to_be_bytes());
    header.extend(odd.id.to_be_bytes());
    header.extend(odd.fragment.to_be_bytes());
    header.extend([odd.ttl, protocol, 0, 0]);
    header.extend(odd.source.octets());
    header.extend(odd.destination.octets());
    let sum = checksum(&header).wrapping_add(odd.ip_error);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header.extend(payload);
    ethernet(macs[0], macs[1], IPV4, &header)
}

fn pseudo_header(odd: &Odd, protocol: u8, length: u16) -> Vec<u8> {
    let mut header = Vec::new();
    header.extend(odd.source.octets());
    header.extend(odd.destination.octets());
    header.extend([0, protocol]);
    header.extend(length.to_be_bytes());
    header
}

/// The checksum of RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2);
    let mut sum: u32 = words
        .map(|word| {
            u32::from(u16::from_be_bytes([
                word[0],
                word.get(1).copied().unwrap_or(0),
            ]))
        })
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
