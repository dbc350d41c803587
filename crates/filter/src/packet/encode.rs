//! From packets to bytes.

use std::net::IpAddr;

use super::{
    About, AboutHeader, Content, DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, Icmp, Packet, Tcp, Udp,
    checksum,
};
use crate::names;

/// Length of the IPv6 header.
const V6_HEADER: usize = 40;

impl Packet {
    /// Builds the IP packet, with right lengths and checksums. Data that the packet does not hold
    /// is zero; options are those that [`IpOptions`](super::IpOptions) tells apart.
    ///
    /// [`decode`](Self::decode) gives the same packet again, without the host's facts about it. A
    /// packet whose lengths exceed 65,535 bytes is cut.
    pub fn to_bytes(&self) -> Vec<u8> {
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                self.to_v4(source.octets(), destination.octets())
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                self.to_v6(source.octets(), destination.octets())
            }
            _ => Vec::new(),
        }
    }

    fn to_v4(&self, source: [u8; 4], destination: [u8; 4]) -> Vec<u8> {
        let options = self.v4_options();
        let header = 20 + options.len();
        let content = self.content_bytes(65_535 - header);
        let mut field = u16::from(self.dont_fragment) << 14;
        if let Some(fragment) = self.fragment() {
            field |= u16::from(fragment.more) << 13 | fragment.offset >> 3;
        }
        let mut bytes = vec![0x40 | (header / 4) as u8, self.tos];
        bytes.extend(((header + content.len()) as u16).to_be_bytes());
        bytes.extend((self.id as u16).to_be_bytes());
        bytes.extend(field.to_be_bytes());
        bytes.extend([self.ttl, self.next_header(), 0, 0]);
        bytes.extend(source);
        bytes.extend(destination);
        bytes.extend(options);
        let sum = checksum::fold(checksum::sum(&bytes));
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes.extend(content);
        bytes
    }

    fn v4_options(&self) -> Vec<u8> {
        let mut options = Vec::new();
        if self.options.router_alert {
            options.extend([148, 4, 0, 0]);
        }
        if self.options.other {
            // Record route, without room for an address; end of options.
            options.extend([7, 3, 4, 0]);
        }
        options
    }

    fn to_v6(&self, source: [u8; 16], destination: [u8; 16]) -> Vec<u8> {
        let mut headers: Vec<(u8, Vec<u8>)> = Vec::new();
        if self.options.router_alert {
            headers.push((HOP_BY_HOP, vec![0, 0, 5, 2, 0, 0, 1, 0]));
        }
        if self.options.other {
            headers.push((DESTINATION_OPTIONS, vec![0, 0, 1, 4, 0, 0, 0, 0]));
        }
        if let Some(fragment) = self.fragment() {
            let mut header = vec![0, 0];
            header.extend((fragment.offset & 0xfff8 | u16::from(fragment.more)).to_be_bytes());
            header.extend(self.id.to_be_bytes());
            headers.push((FRAGMENT, header));
        }
        let mut next = self.next_header();
        for (kind, header) in headers.iter_mut().rev() {
            header[0] = next;
            next = *kind;
        }
        let mut payload: Vec<u8> = headers.into_iter().flat_map(|(_, header)| header).collect();
        let content = self.content_bytes(65_535 - payload.len());
        payload.extend(content);
        let mut bytes = (0x6000_0000 | u32::from(self.tos) << 20)
            .to_be_bytes()
            .to_vec();
        bytes.extend((payload.len() as u16).to_be_bytes());
        bytes.extend([next, self.ttl]);
        bytes.extend(source);
        bytes.extend(destination);
        debug_assert_eq!(bytes.len(), V6_HEADER);
        bytes.extend(payload);
        bytes
    }

    /// Protocol of the content.
    fn next_header(&self) -> u8 {
        match &self.content {
            Content::Tcp(_) => names::TCP,
            Content::Udp(_) => names::UDP,
            Content::Fragment(fragment) => fragment.next,
            Content::Icmp(_) | Content::Other(_) => self.protocol,
        }
    }

    fn content_bytes(&self, most: usize) -> Vec<u8> {
        let mut bytes = match &self.content {
            Content::Tcp(tcp) => tcp_bytes(tcp),
            Content::Udp(udp) => udp_bytes(*udp, most),
            Content::Icmp(icmp) => icmp_bytes(icmp),
            Content::Other(length) => vec![0; usize::from(*length)],
            Content::Fragment(fragment) => fragment.payload.to_vec(),
        };
        bytes.truncate(most);
        self.set_checksum(&mut bytes);
        bytes
    }

    fn set_checksum(&self, bytes: &mut [u8]) {
        let pseudo = checksum::pseudo(
            self.source,
            self.destination,
            self.next_header(),
            bytes.len(),
        );
        let (at, pseudo) = match &self.content {
            Content::Tcp(_) => (16, pseudo),
            Content::Udp(_) => (6, pseudo),
            Content::Icmp(_) if self.protocol == names::ICMP6 => (2, pseudo),
            Content::Icmp(_) => (2, 0),
            Content::Other(_) | Content::Fragment(_) => return,
        };
        let mut sum = checksum::fold(pseudo + checksum::sum(bytes));
        if !self.checksum_ok {
            sum ^= 0x5555;
        }
        if let Some(field) = bytes.get_mut(at..at + 2) {
            field.copy_from_slice(&sum.to_be_bytes());
        }
    }
}

fn tcp_bytes(tcp: &Tcp) -> Vec<u8> {
    let mut options = Vec::new();
    if let Some(mss) = tcp.mss {
        options.extend([2, 4]);
        options.extend(mss.to_be_bytes());
    }
    if let Some(scale) = tcp.window_scale {
        options.extend([1, 3, 3, scale]);
    }
    let mut bytes = Vec::with_capacity(20 + options.len() + usize::from(tcp.length));
    bytes.extend(tcp.source_port.to_be_bytes());
    bytes.extend(tcp.destination_port.to_be_bytes());
    bytes.extend(tcp.seq.to_be_bytes());
    bytes.extend(tcp.ack.to_be_bytes());
    bytes.extend([((20 + options.len()) as u8 / 4) << 4, tcp.flags]);
    bytes.extend(tcp.window.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(tcp.urgent.to_be_bytes());
    bytes.extend(options);
    bytes.resize(bytes.len() + usize::from(tcp.length), 0);
    bytes
}

fn udp_bytes(udp: Udp, most: usize) -> Vec<u8> {
    let length = (8 + usize::from(udp.length)).min(most);
    let mut bytes = Vec::with_capacity(length);
    bytes.extend(udp.source_port.to_be_bytes());
    bytes.extend(udp.destination_port.to_be_bytes());
    bytes.extend((length as u16).to_be_bytes());
    bytes.resize(length.max(8), 0);
    bytes
}

fn icmp_bytes(icmp: &Icmp) -> Vec<u8> {
    let mut bytes = vec![icmp.kind, icmp.code, 0, 0];
    bytes.extend(icmp.id.to_be_bytes());
    bytes.extend([0, 0]);
    if let Some(target) = icmp.target {
        bytes.extend(target.octets());
    }
    if let Some(about) = &icmp.about {
        bytes.extend(about_bytes(about));
    }
    bytes.resize(bytes.len() + usize::from(icmp.length), 0);
    bytes
}

/// The IP header and the 8 bytes behind it.
fn about_bytes(about: &About) -> Vec<u8> {
    let mut bytes = match (about.source, about.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut header = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, about.protocol, 0, 0];
            header.extend(source.octets());
            header.extend(destination.octets());
            let sum = checksum::fold(checksum::sum(&header));
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            header
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut header = vec![0x60, 0, 0, 0, 0, 8, about.protocol, 64];
            header.extend(source.octets());
            header.extend(destination.octets());
            header
        }
        _ => return Vec::new(),
    };
    let mut header = Vec::with_capacity(8);
    match about.header {
        AboutHeader::Tcp {
            source_port,
            destination_port,
            seq,
        } => {
            header.extend(source_port.to_be_bytes());
            header.extend(destination_port.to_be_bytes());
            header.extend(seq.to_be_bytes());
        }
        AboutHeader::Udp {
            source_port,
            destination_port,
        } => {
            header.extend(source_port.to_be_bytes());
            header.extend(destination_port.to_be_bytes());
            header.extend([0, 8]);
        }
        AboutHeader::Icmp { kind, code, id } => {
            header.extend([kind, code, 0, 0]);
            header.extend(id.to_be_bytes());
        }
        // A later fragment, whose protocol pf does not look up.
        AboutHeader::Other if about.protocol == FRAGMENT => {
            header.extend([names::TCP, 0, 0, 8]);
        }
        AboutHeader::Other => {}
    }
    header.resize(8, 0);
    bytes.extend(header);
    bytes
}
