//! Attributes of messages, as they are in memory: a length, a kind, a value, padding.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Messages and attributes begin at multiples of four bytes (`NLMSG_ALIGN` and `NLA_ALIGN` in
/// linux/netlink.h).
pub(crate) const ALIGNMENT: usize = 4;
/// The length and the kind before each value (`struct nlattr`).
const HEADER: usize = 4;
/// The bits of a kind without `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`.
const KIND: u16 = 0x3fff;
/// `NLA_F_NESTED`.
const NESTED: u16 = 0x8000;

/// The attributes in these bytes, each by kind and value, up to the first one that is cut short.
pub(crate) struct Attributes<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = u16_of(self.0)? as usize;
        let kind = u16_of(self.0.get(2..)?)? & KIND;
        let value = self.0.get(HEADER..length)?;
        self.0 = self
            .0
            .get(length.next_multiple_of(ALIGNMENT)..)
            .unwrap_or_default();
        Some((kind, value))
    }
}

/// The value of the first attribute of this kind.
pub(crate) fn attribute(attributes: &[u8], kind: u16) -> Option<Vec<u8>> {
    Attributes(attributes)
        .find(|attribute| attribute.0 == kind)
        .map(|attribute| attribute.1.to_vec())
}

/// Appends an attribute.
pub(crate) fn push_attribute(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = (HEADER + value.len()) as u16;
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
}

/// Appends an attribute that consists of attributes.
pub(crate) fn push_nested(bytes: &mut Vec<u8>, kind: u16, attributes: &[u8]) {
    push_attribute(bytes, kind | NESTED, attributes);
}

/// The number in the first two bytes.
pub(crate) fn u16_of(bytes: &[u8]) -> Option<u16> {
    bytes.first_chunk().copied().map(u16::from_ne_bytes)
}

/// The address of a family (`AF_INET` or `AF_INET6`) in the first bytes.
pub(crate) fn ip_address(family: u8, bytes: &[u8]) -> Option<IpAddr> {
    match i32::from(family) {
        libc::AF_INET => Some(Ipv4Addr::from(*bytes.first_chunk::<4>()?).into()),
        libc::AF_INET6 => Some(Ipv6Addr::from(*bytes.first_chunk::<16>()?).into()),
        _ => None,
    }
}

/// The number in the first four bytes.
pub(crate) fn u32_of(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().copied().map(u32::from_ne_bytes)
}

/// The number in the eight bytes at this place of an array.
pub(crate) fn u64_at(bytes: &[u8], index: usize) -> Option<u64> {
    let bytes = bytes.get(index * size_of::<u64>()..)?;
    bytes.first_chunk().copied().map(u64::from_ne_bytes)
}

/// The text before the first zero.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_is_found_again() {
        let mut bytes = Vec::new();
        push_attribute(&mut bytes, 2, b"abc");
        push_nested(&mut bytes, 7, &[1]);
        assert_eq!(bytes.len(), 16, "each begins at a multiple of four");
        assert_eq!(attribute(&bytes, 2).as_deref(), Some(&b"abc"[..]));
        assert_eq!(attribute(&bytes, 7), Some(vec![1]));
        assert_eq!(attribute(&bytes, 1), None);
        assert_eq!(attribute(&bytes[..5], 2), None, "cut short");
    }

    #[test]
    fn a_length_that_cannot_be_ends_the_attributes() {
        for length in [0_u16, 3, 9, u16::MAX] {
            let mut bytes = length.to_ne_bytes().to_vec();
            bytes.extend([1, 0, 5, 6, 7, 8]);
            assert_eq!(Attributes(&bytes).count(), 0, "{length}");
        }
        let mut bytes = Vec::new();
        push_attribute(&mut bytes, 1, &[]);
        assert_eq!(Attributes(&bytes).collect::<Vec<_>>(), [(1, &[][..])]);
    }

    #[test]
    fn text_ends_at_a_zero() {
        assert_eq!(text(b"br0\0rest"), "br0");
        assert_eq!(text(b"br0"), "br0");
    }
}
