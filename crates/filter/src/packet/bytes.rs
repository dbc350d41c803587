//! Bytes of a packet, and places in them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::IpOptions;

/// Most headers that are walked (`pf_hdr_limit`).
pub(super) const HEADER_LIMIT: usize = 20;

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

/// An IP header's own fields.
pub(super) struct Header {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub tos: u8,
    pub ttl: u8,
    pub total: usize,
}

/// Bytes of a packet, of which none past the IP header's length are read.
#[derive(Clone, Copy)]
pub(super) struct Bytes<'a> {
    pub all: &'a [u8],
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

    pub fn v4(self, at: usize) -> Option<IpAddr> {
        self.u32(at)
            .map(|address| IpAddr::V4(Ipv4Addr::from(address)))
    }

    pub fn v6(self, at: usize) -> Option<Ipv6Addr> {
        let bytes = self.pull(at, 16)?;
        <[u8; 16]>::try_from(bytes).ok().map(Ipv6Addr::from)
    }

    /// A whole packet.
    pub fn new(all: &'a [u8], limit: usize) -> Self {
        Self { all, limit }
    }
}
