//! From bytes to packets: `pf_setup_pdesc` and `pf_walk_header` of `sys/net/pf.c`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::{
    AH, About, AboutHeader, Content, Fragment, Icmp, IpOptions, Packet, Refusal, Tcp, Udp,
    checksum, decode6, has_target, is_icmp_error,
};
use crate::names;
use crate::rule::{Direction, Family};

/// Most headers that are walked (`pf_hdr_limit`).
pub(super) const HEADER_LIMIT: usize = 20;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// MAC addresses of an Ethernet header, before its type.
const MAC_ADDRESSES: usize = 12;

/// Where a walk over headers ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    /// Protocol of the header at `offset`.
    pub protocol: u8,
    /// Offset of the transport header.
    pub offset: usize,
    /// Options that were met.
    pub options: IpOptions,
    /// Offset of the fragment header of IPv6, for all but atomic fragments.
    pub fragment_at: Option<usize>,
}

/// Bytes of a packet, of which none past the IP header's length are read.
#[derive(Clone, Copy)]
pub(super) struct Bytes<'a> {
    all: &'a [u8],
    /// End of the packet, as the outer IP header says.
    limit: usize,
}

impl<'a> Bytes<'a> {
    /// `len` bytes at `at` (`pf_pull_hdr`).
    pub fn pull(self, at: usize, len: usize) -> Option<&'a [u8]> {
        let end = at.checked_add(len)?;
        if end > self.limit {
            return None;
        }
        self.all.get(at..end)
    }

    pub fn byte(self, at: usize) -> Option<u8> {
        self.pull(at, 1).map(|bytes| bytes[0])
    }

    pub fn u16(self, at: usize) -> Option<u16> {
        self.pull(at, 2)
            .map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    pub fn u32(self, at: usize) -> Option<u32> {
        let high = self.u16(at)?;
        let low = self.u16(at.checked_add(2)?)?;
        Some(u32::from(high) << 16 | u32::from(low))
    }

    fn v4(self, at: usize) -> Option<IpAddr> {
        self.u32(at)
            .map(|address| IpAddr::V4(Ipv4Addr::from(address)))
    }

    pub fn v6(self, at: usize) -> Option<Ipv6Addr> {
        let bytes = self.pull(at, 16)?;
        <[u8; 16]>::try_from(bytes).ok().map(Ipv6Addr::from)
    }
}

impl Packet {
    /// Decodes an IP packet. Bytes after the length that its header gives are ignored.
    ///
    /// # Errors
    /// The cause of its drop before any rule.
    pub fn decode(bytes: &[u8], direction: Direction, interface: &str) -> Result<Self, Refusal> {
        let packet = match bytes.first().map(|first| first >> 4) {
            Some(4) => decode_v4(bytes)?,
            Some(6) => decode6::decode(bytes)?,
            Some(_) => return Err(Refusal::NotIp),
            None => return Err(Refusal::ShortIpHeader),
        };
        if let Some(refusal) = packet.refusal() {
            return Err(refusal);
        }
        Ok(Self {
            direction,
            interface: Arc::from(interface),
            ..packet
        })
    }

    /// Decodes an Ethernet frame, whose VLAN tags are skipped. `None` if it holds no IP: pf never
    /// sees ARP, for one.
    ///
    /// # Errors
    /// The cause of its drop before any rule.
    pub fn decode_frame(
        frame: &[u8],
        direction: Direction,
        interface: &str,
    ) -> Option<Result<Self, Refusal>> {
        let mut at = MAC_ADDRESSES;
        loop {
            let kind = frame.get(at..at + 2)?;
            let kind = u16::from_be_bytes([kind[0], kind[1]]);
            at += 2;
            if ETHERTYPE_VLAN.contains(&kind) {
                at += 2;
                continue;
            }
            if kind != ETHERTYPE_IPV4 && kind != ETHERTYPE_IPV6 {
                return None;
            }
            return Some(Self::decode(frame.get(at..)?, direction, interface));
        }
    }
}

/// An IP header's own fields.
pub(super) struct Header {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub tos: u8,
    pub ttl: u8,
    pub total: usize,
}

fn decode_v4(bytes: &[u8]) -> Result<Packet, Refusal> {
    let all = Bytes {
        all: bytes,
        limit: bytes.len(),
    };
    let short = Refusal::ShortIpHeader;
    all.pull(0, 20).ok_or(short)?;
    let total = usize::from(all.u16(2).ok_or(short)?);
    if bytes.len() < total {
        return Err(Refusal::IpLength);
    }
    let walk = walk_v4(
        bytes,
        0,
        Bytes {
            all: bytes,
            limit: total,
        },
    )?;
    let header = Header {
        source: all.v4(12).ok_or(short)?,
        destination: all.v4(16).ok_or(short)?,
        tos: all.byte(1).ok_or(short)?,
        ttl: all.byte(8).ok_or(short)?,
        total,
    };
    let offset_field = all.u16(6).ok_or(short)?;
    let data = Bytes {
        all: bytes,
        limit: total,
    };
    let (more, offset) = (offset_field & 0x2000 != 0, (offset_field & 0x1fff) << 3);
    let content = if more || offset != 0 {
        let start = usize::from(bytes[0] & 15) * 4;
        let payload = bytes.get(start..total).ok_or(short)?;
        Content::Fragment(Fragment {
            offset,
            more,
            next: bytes[9],
            payload: Arc::from(payload),
        })
    } else {
        transport(data, walk, &header)?
    };
    let mut packet = assemble(&header, walk, content, data);
    packet.id = u32::from(all.u16(4).ok_or(short)?);
    packet.dont_fragment = offset_field & 0x4000 != 0;
    Ok(packet)
}

/// Puts a packet together, with a direction and interface to be replaced.
pub(super) fn assemble(header: &Header, walk: Walk, content: Content, data: Bytes<'_>) -> Packet {
    let checksum_ok = match content {
        Content::Tcp(_) => {
            let len = header.total.saturating_sub(walk.offset);
            let sum = checksum::pseudo(header.source, header.destination, names::TCP, len);
            let segment = data.pull(walk.offset, len).unwrap_or(&[]);
            checksum::fold(sum + checksum::sum(segment)) == 0
        }
        _ => true,
    };
    let mut packet = Packet::new(
        Direction::In,
        "",
        header.source,
        header.destination,
        content,
    );
    packet.protocol = walk.protocol;
    packet.tos = header.tos;
    packet.ttl = header.ttl;
    packet.options = walk.options;
    packet.checksum_ok = checksum_ok;
    packet
}

/// Walks an IPv4 header at `at`, and authentication headers behind it.
fn walk_v4(bytes: &[u8], at: usize, data: Bytes<'_>) -> Result<Walk, Refusal> {
    let header = bytes
        .get(at..at.saturating_add(20))
        .ok_or(Refusal::ShortIpHeader)?;
    let length = usize::from(header[0] & 15) * 4;
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if length < 20 || length > total {
        return Err(Refusal::HeaderLength);
    }
    let options = match length {
        20 => IpOptions::default(),
        _ => walk_options(
            bytes
                .get(at + 20..at + length)
                .ok_or(Refusal::ShortIpHeader)?,
        )?,
    };
    let mut walk = Walk {
        protocol: header[9],
        offset: at + length,
        options,
        fragment_at: None,
    };
    let field = u16::from_be_bytes([header[6], header[7]]);
    if field & 0x1fff != 0 {
        return Ok(walk);
    }
    for _ in 0..HEADER_LIMIT {
        if walk.protocol != AH {
            return Ok(walk);
        }
        if field & 0x2000 != 0 && at + total < walk.offset + 2 {
            return Ok(walk);
        }
        let extension = data
            .pull(walk.offset, 2)
            .ok_or(Refusal::ShortExtensionHeader)?;
        walk.protocol = extension[0];
        walk.offset += (usize::from(extension[1]) + 2) * 4;
    }
    Err(Refusal::HeaderLimit)
}

fn walk_options(bytes: &[u8]) -> Result<IpOptions, Refusal> {
    let mut options = IpOptions::default();
    let mut at = 0;
    while let Some(&kind) = bytes.get(at) {
        match kind {
            0 => break,
            1 => {
                at += 1;
                continue;
            }
            _ => {}
        }
        let length = usize::from(*bytes.get(at + 1).ok_or(Refusal::BadIpOption)?);
        if length < 2 || at + length > bytes.len() {
            return Err(Refusal::BadIpOption);
        }
        match kind {
            148 => options.router_alert = true,
            _ => options.other = true,
        }
        at += length;
    }
    // Options that are only padding count as options, too.
    options.other |= options == IpOptions::default();
    Ok(options)
}

/// Decodes the transport header.
pub(super) fn transport(data: Bytes<'_>, walk: Walk, header: &Header) -> Result<Content, Refusal> {
    let rest = header.total.saturating_sub(walk.offset);
    match walk.protocol {
        names::TCP => tcp(data, walk.offset, rest),
        names::UDP => udp(data, walk.offset, rest),
        names::ICMP => {
            let family = Family::of(header.source);
            icmp(data, walk.offset, rest, false, family)
        }
        names::ICMP6 => icmp(data, walk.offset, rest, true, Family::of(header.source)),
        _ => Ok(Content::Other(rest as u16)),
    }
}

fn tcp(data: Bytes<'_>, at: usize, rest: usize) -> Result<Content, Refusal> {
    let short = Refusal::ShortTransportHeader;
    let header = data.pull(at, 20).ok_or(short)?;
    let length = usize::from(header[12] >> 4) * 4;
    let destination_port = u16::from_be_bytes([header[2], header[3]]);
    if destination_port == 0 {
        return Err(Refusal::PortZero);
    }
    if length > rest || length < 20 {
        return Err(Refusal::TransportLength);
    }
    let options = data.pull(at + 20, length - 20).unwrap_or(&[]);
    let number = |offset: usize| data.u32(at + offset).ok_or(short);
    Ok(Content::Tcp(Tcp {
        source_port: u16::from_be_bytes([header[0], header[1]]),
        destination_port,
        flags: header[13],
        seq: number(4)?,
        ack: number(8)?,
        window: u16::from_be_bytes([header[14], header[15]]),
        urgent: u16::from_be_bytes([header[18], header[19]]),
        length: (rest - length) as u16,
        mss: tcp_option(options, 2, 4).map(|option| u16::from_be_bytes([option[2], option[3]])),
        window_scale: tcp_option(options, 3, 3).map(|option| option[2].min(14)),
    }))
}

/// The last TCP option of this kind with at least this length: the one that pf uses.
fn tcp_option(bytes: &[u8], kind: u8, least: usize) -> Option<&[u8]> {
    let (mut at, mut found) = (0, None);
    while let Some(&own) = bytes.get(at) {
        let length = match own {
            0 => break,
            1 => 1,
            _ => usize::from(*bytes.get(at + 1)?),
        };
        if own != 1 && length < 2 {
            break;
        }
        let Some(option) = bytes.get(at..at + length) else {
            break;
        };
        if own == kind && length >= least {
            found = Some(option);
        }
        at += length;
    }
    found
}

fn udp(data: Bytes<'_>, at: usize, rest: usize) -> Result<Content, Refusal> {
    let short = Refusal::ShortTransportHeader;
    data.pull(at, 8).ok_or(short)?;
    let length = usize::from(data.u16(at + 4).ok_or(short)?);
    let destination_port = data.u16(at + 2).ok_or(short)?;
    if destination_port == 0 {
        return Err(Refusal::PortZero);
    }
    if length > rest || length < 8 {
        return Err(Refusal::TransportLength);
    }
    let source_port = data.u16(at).ok_or(short)?;
    Ok(Content::Udp(Udp {
        source_port,
        destination_port,
        length: (length - 8) as u16,
    }))
}

fn icmp(
    data: Bytes<'_>,
    at: usize,
    rest: usize,
    v6: bool,
    family: Family,
) -> Result<Content, Refusal> {
    let short = Refusal::ShortTransportHeader;
    let header = data.pull(at, 8).ok_or(short)?;
    let mut icmp = Icmp::new(header[0], header[1]);
    icmp.id = u16::from_be_bytes([header[4], header[5]]);
    icmp.length = (rest.saturating_sub(8)) as u16;
    if v6 && has_target(icmp.kind) {
        icmp.target = Some(data.v6(at + 8).ok_or(short)?);
        icmp.length = (rest.saturating_sub(24)) as u16;
    }
    if v6 == (family == Family::Inet6) && is_icmp_error(icmp.kind, family) {
        icmp.about = about(data, at + 8, family);
        if icmp.about.is_some() {
            icmp.length = 0;
        }
    }
    Ok(Content::Icmp(icmp))
}

/// The packet that an ICMP error is about (`pf_test_state_icmp`).
fn about(data: Bytes<'_>, at: usize, family: Family) -> Option<About> {
    let (source, destination, walk) = match family {
        Family::Inet => {
            data.pull(at, 20)?;
            if data.u16(at + 6)? & 0x1fff != 0 {
                return None;
            }
            (
                data.v4(at + 12)?,
                data.v4(at + 16)?,
                walk_v4(data.all, at, data).ok()?,
            )
        }
        Family::Inet6 => {
            data.pull(at, 40)?;
            let walk = decode6::walk(at, data).ok()?;
            (data.v6(at + 8)?.into(), data.v6(at + 24)?.into(), walk)
        }
    };
    Some(About {
        source,
        destination,
        protocol: walk.protocol,
        header: about_header(data, walk, family)?,
    })
}

fn about_header(data: Bytes<'_>, walk: Walk, family: Family) -> Option<AboutHeader> {
    let at = walk.offset;
    let (first, second) = (data.u16(at), data.u16(at.saturating_add(2)));
    let header = match (walk.protocol, family) {
        (names::TCP, _) => AboutHeader::Tcp {
            source_port: first?,
            destination_port: second?,
            seq: data.u32(at + 4)?,
        },
        (names::UDP, _) => {
            data.pull(at, 8)?;
            AboutHeader::Udp {
                source_port: first?,
                destination_port: second?,
            }
        }
        (names::ICMP, Family::Inet) | (names::ICMP6, Family::Inet6) => {
            let header = data.pull(at, 8)?;
            AboutHeader::Icmp {
                kind: header[0],
                code: header[1],
                id: u16::from_be_bytes([header[4], header[5]]),
            }
        }
        _ => AboutHeader::Other,
    };
    Some(header)
}

impl<'a> Bytes<'a> {
    /// A whole packet.
    pub fn new(all: &'a [u8], limit: usize) -> Self {
        Self { all, limit }
    }
}
