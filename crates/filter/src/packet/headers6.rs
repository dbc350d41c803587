//! Headers of IPv6 (`pf_walk_header6` of `sys/net/pf.c`).

use super::bytes::{Bytes, HEADER_LIMIT, Walk};
use super::{AH, DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, IpOptions, ROUTING, Refusal, is_mld};
use crate::names;

/// Length of the header.
pub(super) const HEADER: usize = 40;
/// Least length of a jumbo payload.
const JUMBO_MIN: u32 = 65_535;

/// Walks the headers of a whole IPv6 packet. Jumbograms are refused.
pub(super) fn walk_packet(data: Bytes<'_>) -> Result<Walk, Refusal> {
    let mut walker = Walker::new(0, data)?;
    let walk = walker.run()?;
    if walker.jumbo.is_some() {
        return Err(Refusal::Jumbo);
    }
    Ok(walk)
}

/// Walks the headers of an IPv6 packet at `at`.
pub(super) fn walk(at: usize, data: Bytes<'_>) -> Result<Walk, Refusal> {
    Walker::new(at, data)?.run()
}

struct Walker<'a> {
    data: Bytes<'a>,
    /// Length of the payload, as the header says.
    length: u16,
    hop_limit: u8,
    link_local: bool,
    /// End of the packet.
    end: usize,
    walk: Walk,
    routing_headers: usize,
    fragment_headers: usize,
    jumbo: Option<u32>,
}

/// Whether the walk goes on.
enum Next {
    Header,
    End,
}

impl<'a> Walker<'a> {
    fn new(at: usize, data: Bytes<'a>) -> Result<Self, Refusal> {
        let short = Refusal::ShortIpHeader;
        let length = data.u16(at + 4).ok_or(short)?;
        let offset = at + HEADER;
        let protocol = data.byte(at + 6).ok_or(short)?;
        Ok(Self {
            data,
            length,
            hop_limit: data.byte(at + 7).ok_or(short)?,
            link_local: data.v6(at + 8).ok_or(short)?.is_unicast_link_local(),
            end: offset + usize::from(length),
            walk: Walk {
                protocol,
                offset,
                options: IpOptions::default(),
                fragment_at: None,
            },
            routing_headers: 0,
            fragment_headers: 0,
            jumbo: None,
        })
    }

    fn run(&mut self) -> Result<Walk, Refusal> {
        for count in 0..HEADER_LIMIT {
            let next = match self.walk.protocol {
                FRAGMENT => self.fragment()?,
                ROUTING => self.routing()?,
                HOP_BY_HOP => self.hop_by_hop(count)?,
                DESTINATION_OPTIONS => {
                    self.walk.options.other = true;
                    self.extension()?
                }
                AH => self.extension()?,
                names::ICMP6 => self.icmp()?,
                names::TCP => self.end_at(20),
                names::UDP => self.end_at(8),
                _ => Next::End,
            };
            if matches!(next, Next::End) {
                return Ok(self.walk);
            }
        }
        Err(Refusal::HeaderLimit)
    }

    /// Whether a first fragment is too short for `len` bytes of the next header. Then pf does not
    /// look into it.
    fn is_cut(&mut self, len: usize) -> bool {
        match self.walk.fragment_at {
            Some(at) if self.end < self.walk.offset + len => {
                self.walk.offset = at;
                self.walk.protocol = FRAGMENT;
                true
            }
            _ => false,
        }
    }

    fn end_at(&mut self, len: usize) -> Next {
        self.is_cut(len);
        Next::End
    }

    fn fragment(&mut self) -> Result<Next, Refusal> {
        self.fragment_headers += 1;
        if self.fragment_headers > 1 {
            return Err(Refusal::SeveralFragmentHeaders);
        }
        if self.jumbo.is_some() {
            return Err(Refusal::FragmentedJumbo);
        }
        let at = self.walk.offset;
        let header = self.data.pull(at, 8).ok_or(Refusal::ShortExtensionHeader)?;
        let field = u16::from_be_bytes([header[2], header[3]]);
        if field & 0xfff8 != 0 {
            self.walk.fragment_at = Some(at);
            return Ok(Next::End);
        }
        // A fragment that is the whole datagram counts as none (RFC 6946).
        if field & 1 != 0 {
            self.walk.fragment_at = Some(at);
        }
        self.walk.offset += 8;
        self.walk.protocol = header[0];
        Ok(Next::Header)
    }

    fn routing(&mut self) -> Result<Next, Refusal> {
        self.walk.options.other = true;
        self.routing_headers += 1;
        if self.routing_headers > 1 {
            return Err(Refusal::SeveralRoutingHeaders);
        }
        if self.is_cut(4) {
            return Ok(Next::End);
        }
        let header = self
            .data
            .pull(self.walk.offset, 4)
            .ok_or(Refusal::ShortExtensionHeader)?;
        if header[2] == 0 {
            return Err(Refusal::RoutingHeaderZero);
        }
        self.extension()
    }

    fn hop_by_hop(&mut self, count: usize) -> Result<Next, Refusal> {
        let header = self
            .data
            .pull(self.walk.offset, 2)
            .ok_or(Refusal::ShortExtensionHeader)?;
        let end = self.walk.offset + (usize::from(header[1]) + 1) * 8;
        self.options(self.walk.offset + 2, end)?;
        let none = self.walk.options == IpOptions::default() && self.jumbo.is_none();
        self.walk.options.other |= none;
        if count > 0 {
            return Err(Refusal::HopByHopNotFirst);
        }
        if self.walk.fragment_at.is_none() && self.length == 0 && self.jumbo.is_some() {
            return Err(Refusal::BadJumbo);
        }
        self.extension()
    }

    /// An extension header, whose first two bytes are the next protocol and its own length.
    fn extension(&mut self) -> Result<Next, Refusal> {
        if self.is_cut(2) {
            return Ok(Next::End);
        }
        let header = self
            .data
            .pull(self.walk.offset, 2)
            .ok_or(Refusal::ShortExtensionHeader)?;
        let length = usize::from(header[1]);
        self.walk.offset += if self.walk.protocol == AH {
            (length + 2) * 4
        } else {
            (length + 1) * 8
        };
        self.walk.protocol = header[0];
        Ok(Next::Header)
    }

    fn icmp(&mut self) -> Result<Next, Refusal> {
        if self.is_cut(8) {
            return Ok(Next::End);
        }
        let kind = self
            .data
            .pull(self.walk.offset, 8)
            .ok_or(Refusal::ShortTransportHeader)?[0];
        if is_mld(kind) {
            if self.hop_limit != 1 || !self.link_local {
                return Err(Refusal::Mld);
            }
            // In other packets, the message itself tells that the alert is excused.
            self.walk.options.router_alert &= self.walk.fragment_at.is_none();
        }
        Ok(Next::End)
    }

    /// The options of a hop-by-hop header (`pf_walk_option6`).
    fn options(&mut self, mut at: usize, end: usize) -> Result<(), Refusal> {
        while at < end {
            let kind = self.data.byte(at).ok_or(Refusal::ShortExtensionHeader)?;
            if kind == 0 {
                at += 1;
                continue;
            }
            let header = self.data.pull(at, 2).ok_or(Refusal::ShortExtensionHeader)?;
            let length = usize::from(header[1]);
            if at + 2 + length > end {
                return Err(Refusal::BadIpOption);
            }
            match kind {
                1 => {}
                0xc2 => self.jumbo(at)?,
                5 => self.walk.options.router_alert = true,
                _ => self.walk.options.other = true,
            }
            at += 2 + length;
        }
        Ok(())
    }

    fn jumbo(&mut self, at: usize) -> Result<(), Refusal> {
        if self.jumbo.is_some() || self.length != 0 {
            return Err(Refusal::BadJumbo);
        }
        let length = self.data.u32(at + 2).ok_or(Refusal::BadJumbo)?;
        if length < JUMBO_MIN {
            return Err(Refusal::BadJumbo);
        }
        self.jumbo = Some(length);
        Ok(())
    }
}
