//! The internet checksum (RFC 1071).

use std::net::IpAddr;

/// Sum of 16-bit words, an odd last byte padded with 0; not folded.
pub(super) fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks(2).fold(0, |sum, pair| {
        let low = pair.get(1).copied().unwrap_or(0);
        sum + u32::from(u16::from_be_bytes([pair[0], low]))
    })
}

/// Folds a sum into a checksum.
pub(super) fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Sum over the pseudo header of TCP, UDP and `ICMPv6`.
pub(super) fn pseudo(source: IpAddr, destination: IpAddr, protocol: u8, length: usize) -> u32 {
    let of = |address| match address {
        IpAddr::V4(address) => sum(&address.octets()),
        IpAddr::V6(address) => sum(&address.octets()),
    };
    of(source)
        + of(destination)
        + u32::from(protocol)
        + (length as u32 >> 16)
        + (length as u32 & 0xffff)
}
