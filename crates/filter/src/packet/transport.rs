//! Transport headers, and the packets that ICMP errors are about.

use super::bytes::{Bytes, Header, Walk};
use super::{
    About, AboutHeader, Content, Icmp, Refusal, Tcp, Udp, has_target, headers4, headers6,
    is_icmp_error,
};
use crate::names;
use crate::rule::Family;

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
                headers4::walk(data.all, at, data).ok()?,
            )
        }
        Family::Inet6 => {
            data.pull(at, 40)?;
            let walk = headers6::walk(at, data).ok()?;
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
