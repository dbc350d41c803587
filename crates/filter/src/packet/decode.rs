//! From bytes to packets: `pf_setup_pdesc` of `sys/net/pf.c`.

use std::net::IpAddr;
use std::sync::Arc;

use super::bytes::{Bytes, Header, Walk};
use super::transport::transport;
use super::{Content, Fragment, Packet, Refusal, checksum, headers4, headers6};
use crate::names;
use crate::rule::Direction;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// MAC addresses of an Ethernet header, before its type.
const MAC_ADDRESSES: usize = 12;

impl Packet {
    /// Decodes an IP packet. Bytes after the length that its header gives are ignored.
    ///
    /// # Errors
    /// The cause of its drop before any rule.
    pub fn decode(bytes: &[u8], direction: Direction, interface: &str) -> Result<Self, Refusal> {
        let packet = match bytes.first().map(|first| first >> 4) {
            Some(4) => decode_v4(bytes)?,
            Some(6) => decode_v6(bytes)?,
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

fn decode_v4(bytes: &[u8]) -> Result<Packet, Refusal> {
    let all = Bytes::new(bytes, bytes.len());
    let short = Refusal::ShortIpHeader;
    all.pull(0, 20).ok_or(short)?;
    let total = usize::from(all.u16(2).ok_or(short)?);
    if bytes.len() < total {
        return Err(Refusal::IpLength);
    }
    let walk = headers4::walk(bytes, 0, Bytes::new(bytes, total))?;
    let header = Header {
        source: all.v4(12).ok_or(short)?,
        destination: all.v4(16).ok_or(short)?,
        tos: all.byte(1).ok_or(short)?,
        ttl: all.byte(8).ok_or(short)?,
        total,
    };
    let offset_field = all.u16(6).ok_or(short)?;
    let data = Bytes::new(bytes, total);
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

fn decode_v6(bytes: &[u8]) -> Result<Packet, Refusal> {
    let short = Refusal::ShortIpHeader;
    let all = Bytes::new(bytes, bytes.len());
    all.pull(0, headers6::HEADER).ok_or(short)?;
    let total = headers6::HEADER + usize::from(all.u16(4).ok_or(short)?);
    if bytes.len() < total {
        return Err(Refusal::IpLength);
    }
    let data = Bytes::new(bytes, total);
    let walk = headers6::walk_packet(data)?;
    let header = Header {
        source: IpAddr::V6(all.v6(8).ok_or(short)?),
        destination: IpAddr::V6(all.v6(24).ok_or(short)?),
        tos: (all.u16(0).ok_or(short)? >> 4) as u8,
        ttl: all.byte(7).ok_or(short)?,
        total,
    };
    let content = match walk.fragment_at {
        Some(at) => Content::Fragment(fragment_v6(bytes, at, total)?),
        None => transport(data, walk, &header)?,
    };
    let mut packet = assemble(&header, walk, content, data);
    if let Some(at) = walk.fragment_at {
        packet.id = data.u32(at + 4).ok_or(Refusal::ShortExtensionHeader)?;
    }
    Ok(packet)
}

fn fragment_v6(bytes: &[u8], at: usize, total: usize) -> Result<Fragment, Refusal> {
    let short = Refusal::ShortExtensionHeader;
    let header = bytes.get(at..at + 8).ok_or(short)?;
    let field = u16::from_be_bytes([header[2], header[3]]);
    let payload = bytes.get(at + 8..total).ok_or(short)?;
    Ok(Fragment {
        offset: field & 0xfff8,
        more: field & 1 != 0,
        next: header[0],
        payload: Arc::from(payload),
    })
}

/// Puts a packet together, with a direction and interface to be replaced.
fn assemble(header: &Header, walk: Walk, content: Content, data: Bytes<'_>) -> Packet {
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
