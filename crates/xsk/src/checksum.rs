//! Checksums of packets: that of an IPv4 header, and those of UDP, TCP and ICMP.
//!
//! XDP comes before the network stack, so no one has looked at the sums of a packet that a socket receives:
//!
//! - A packet that was damaged on its way is received like any other. [`check`] finds it.
//! - A packet of a program on the same host (through a veth, a tap or a bridge) or of a virtual machine (by
//!   virtio) usually has a *partial* sum: the sender's kernel has left the rest to a card that the packet never
//!   meets (`CHECKSUM_PARTIAL` of `skbuff.h`, `VIRTIO_NET_HDR_F_NEEDS_CSUM`). The field of UDP or TCP then has the
//!   sum of the pseudo-header alone, which is no error.
//!
//! The network stack knows that a sum is partial by a mark beside the packet, and XDP does not show that mark. A packet that
//! a socket sends has no mark, so its receiver drops it unless its sums are whole. So a program calls, before it sends
//!
//! - a packet that it received, and whose contents it leaves: [`complete`], which reads the headers, and the rest of
//!   a packet with a partial sum;
//! - a packet that it made or changed: [`write()`].
//!
//! An exchange of addresses or ports changes no sum, as the order of the words is of no account.
//!
//! ```
//! use xsk::checksum::{self, Checksum};
//!
//! /// Exchanges the addresses and ports of UDP over IPv4, without IP options.
//! fn answer(packet: &mut [u8]) -> bool {
//!     if !matches!(checksum::check(packet), Some(sum) if sum != Checksum::Wrong) {
//!         return false; // The network stack would have dropped it.
//!     }
//!     packet[..12].rotate_left(6);
//!     packet[26..34].rotate_left(4);
//!     packet[34..38].rotate_left(2);
//!     packet[22] = 64; // The answer's own time to live.
//!     checksum::write(packet)
//! }
//! # // A datagram of 5 bytes from 192.0.2.2:4000 to 192.0.2.1:53, with the sum of its pseudo-header.
//! # let mut packet = *b"\x02\0\0\0\0\x01\x02\0\0\0\0\x02\x08\0\x45\0\0\x21\0\0\0\0\x40\x11\xf6\xc8\
//! #     \xc0\0\x02\x02\xc0\0\x02\x01\x0f\xa0\0\x35\0\x0d\x84\x22hello";
//! # assert_eq!(checksum::check(&packet), Some(Checksum::Partial));
//! # assert!(answer(&mut packet));
//! # assert_eq!(checksum::check(&packet), Some(Checksum::Correct));
//! ```
//!
//! # Packets that are known
//!
//! Ethernet with up to two VLAN tags; IPv4, with or without options, and IPv6; then UDP (RFC 768), TCP (RFC 9293), ICMP (RFC 792) or
//! ICMPv6 (RFC 4443), by the sum of RFC 1071 and the pseudo-header of RFC 8200. Not known are fragments,
//! IPv6 packets with extension headers, headers inside of a tunnel, the CRC of SCTP, and packets with impossible lengths; the functions
//! leave them as they are. Of a packet of several chunks all bytes are needed.
//!
//! With [`UmemBuilder::tx_metadata`](crate::UmemBuilder::tx_metadata) the kernel or the card can sum a packet that is
//! sent: see [`TxRequest::checksum`](crate::TxRequest::checksum), which takes a partial sum as it is.

use std::ops::Range;

/// What the checksums of a received packet say; see [`check`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Checksum {
    /// The packet arrived as it was sent.
    Correct,
    /// The packet has the sum of its pseudo-header alone: it is of a local sender, was on no wire, and [`complete`] sums the
    /// rest.
    Partial,
    /// UDP over IPv4 without a sum: the sender made none, which RFC 768 allows.
    Absent,
    /// The packet, or its IPv4 header, is not as it was sent; or it is UDP over IPv6 without a sum, which RFC 8200
    /// forbids. The network stack drops it.
    Wrong,
}

/// Checks the sums of an Ethernet packet: of its IPv4 header, and of UDP, TCP or ICMP. `None` for a packet that is
/// [not known](self#packets-that-are-known).
///
/// It reads the whole packet.
pub fn check(packet: &[u8]) -> Option<Checksum> {
    let found = Summed::find(packet)?;
    let is_whole =
        |bytes: &Range<usize>, before| fold(before + sum(&packet[bytes.clone()])) == WHOLE;
    let is_absent = found.protocol == UDP && word(packet, found.field) == 0;
    Some(match &found.ipv4_header {
        Some(header) if !is_whole(header, 0) => Checksum::Wrong,
        Some(_) if is_absent => Checksum::Absent,
        None if is_absent => Checksum::Wrong,
        _ if is_whole(&found.bytes, found.pseudo) => Checksum::Correct,
        _ if found.is_partial(packet) => Checksum::Partial,
        _ => Checksum::Wrong,
    })
}

/// Completes a [partial](Checksum::Partial) sum, as the kernel does before a packet leaves the host
/// (`skb_checksum_help`). Returns whether the sum was partial; any other packet is left as it is, one
/// with a wrong sum as well, so that its receiver sees the damage. The sum of the IPv4 header is left to the receiver.
///
/// It reads the headers, and of a packet with a partial sum the rest.
pub fn complete(packet: &mut [u8]) -> bool {
    // A sum that is whole can look partial by chance: then it is the result, too.
    let found = Summed::find(packet).filter(|found| found.is_partial(packet));
    let Some(found) = found else {
        return false;
    };
    // The sum of the pseudo-header is in the field.
    let whole = sum(&packet[found.bytes.clone()]);
    found.set(packet, whole);
    true
}

/// Writes the sums of an Ethernet packet: of its IPv4 header, and of UDP, TCP or ICMP. All other fields must be there,
/// the lengths included. Returns false, and writes nothing, for a packet that is [not
/// known](self#packets-that-are-known).
///
/// It reads the whole packet. Check a received one before: afterwards its receiver cannot see that it was damaged.
#[must_use = "false if nothing was written"]
pub fn write(packet: &mut [u8]) -> bool {
    let Some(found) = Summed::find(packet) else {
        return false;
    };
    if let Some(header) = &found.ipv4_header {
        let field = header.start + 10;
        set_word(packet, field, 0);
        let header = !fold(sum(&packet[header.clone()]));
        set_word(packet, field, header);
    }
    set_word(packet, found.field, 0);
    let whole = found.pseudo + sum(&packet[found.bytes.clone()]);
    found.set(packet, whole);
    true
}

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

/// The folded sum of bytes with their own checksum: -0.
const WHOLE: u16 = 0xffff;

/// Where the sums of a packet are, and what they are over.
struct Summed {
    ipv4_header: Option<Range<usize>>,
    protocol: u8,
    /// The header of the protocol, and its data.
    bytes: Range<usize>,
    /// The checksum of these.
    field: usize,
    /// The sum of the pseudo-header, not folded; 0 if the protocol has none.
    pseudo: u64,
}

impl Summed {
    fn find(packet: &[u8]) -> Option<Self> {
        match ether_type(packet)? {
            (at, 0x0800) => Self::find_in_ipv4(packet, at),
            (at, 0x86dd) => Self::find_in_ipv6(packet, at),
            _ => None,
        }
    }

    fn find_in_ipv4(packet: &[u8], at: usize) -> Option<Self> {
        let fixed = packet.get(at..at + 20)?;
        let header = 4 * usize::from(fixed[0] & 15);
        let end = at + usize::from(number(fixed, 2));
        let is_fragment = number(fixed, 6) & 0x3fff != 0;
        if fixed[0] >> 4 != 4 || header < 20 || is_fragment {
            return None;
        }
        let (addresses, protocol) = (at + 12..at + 20, fixed[9]);
        Some(Self {
            ipv4_header: Some(at..at + header),
            ..Self::of(packet, addresses, protocol, at + header..end)?
        })
    }

    fn find_in_ipv6(packet: &[u8], at: usize) -> Option<Self> {
        let fixed = packet.get(at..at + 40)?;
        let end = at + 40 + usize::from(number(fixed, 4));
        if fixed[0] >> 4 != 6 {
            return None;
        }
        Self::of(packet, at + 8..at + 40, fixed[6], at + 40..end)
    }

    /// The sum of what IP carries, without padding behind it.
    fn of(
        packet: &[u8],
        addresses: Range<usize>,
        protocol: u8,
        mut bytes: Range<usize>,
    ) -> Option<Self> {
        let carried = packet.get(bytes.clone())?;
        let (least, field) = match (protocol, addresses.len()) {
            (UDP, _) => (8, 6),
            (TCP, _) => (20, 16),
            (ICMP, 8) => (8, 2),
            (ICMPV6, 32) => (4, 2),
            _ => return None,
        };
        if carried.len() < least {
            return None;
        }
        if protocol == UDP {
            let length = usize::from(number(carried, 4));
            if !(least..=carried.len()).contains(&length) {
                return None;
            }
            bytes.end = bytes.start + length;
        }
        let length = bytes.len() as u16; // It was in a field of 16 bits.
        let pseudo = match protocol {
            ICMP => 0,
            _ => sum(&packet[addresses]) + sum(&[0, protocol]) + sum(&length.to_be_bytes()),
        };
        Some(Self {
            ipv4_header: None,
            protocol,
            field: bytes.start + field,
            bytes,
            pseudo,
        })
    }

    /// Whether the field has the sum of the pseudo-header alone. A correct sum can be the same by chance.
    fn is_partial(&self, packet: &[u8]) -> bool {
        self.pseudo != 0 && word(packet, self.field) == fold(self.pseudo)
    }

    /// Writes the checksum of which this is the sum.
    fn set(&self, packet: &mut [u8], sum: u64) {
        let checksum = match (self.protocol, !fold(sum)) {
            (UDP, 0) => 0xffff, // 0 is none.
            (_, checksum) => checksum,
        };
        set_word(packet, self.field, checksum);
    }
}

/// The Ethernet type behind the VLAN tags, and the first byte behind that.
fn ether_type(packet: &[u8]) -> Option<(usize, u16)> {
    let types = [12, 16, 20].into_iter();
    let mut types = types.map(|at| Some((at + 2, number(packet.get(..at + 2)?, at))));
    types
        .find(|it| !matches!(it, Some((_, 0x8100 | 0x88a8))))
        .flatten()
}

/// The sum of the 16-bit words of bytes, filled up with a 0, and not folded. Words are in the machine's order: the sum of
/// words whose bytes are exchanged is that of the words with its bytes exchanged (RFC 1071, section 2), and a word of 32
/// bits is as much as its halves.
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    let words = words.iter().chain([&last]);
    words.map(|&word| u64::from(u32::from_ne_bytes(word))).sum()
}

/// A sum with its carries added to it.
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// A word as it is summed.
fn word(packet: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([packet[at], packet[at + 1]])
}

fn set_word(packet: &mut [u8], at: usize, word: u16) {
    packet[at..at + 2].copy_from_slice(&word.to_ne_bytes());
}

/// A word as a number.
fn number(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PROTOCOLS: [(u8, u8); 6] = [
        (4, UDP),
        (4, TCP),
        (4, ICMP),
        (6, UDP),
        (6, TCP),
        (6, ICMPV6),
    ];

    /// Bytes of data in the longest packet: Miri would take its time for those of an MTU.
    const LONGEST: usize = if cfg!(miri) { 41 } else { 1471 };
    /// Bytes of a packet that are changed bit by bit.
    const CHANGED: usize = if cfg!(miri) { 4 } else { 100 };

    /// A packet of a version and protocol with so many bytes of data, `tags` VLAN tags, and words of IPv4 options, without sums.
    fn packet((version, protocol): (u8, u8), data: usize, tags: usize, options: u8) -> Vec<u8> {
        let header = match protocol {
            TCP => 20,
            ICMPV6 => 4,
            _ => 8,
        };
        let length = ((header + data) as u16).to_be_bytes();
        let mut bytes = vec![2; 12];
        bytes.extend([0x88, 0xa8, 0, 5].repeat(tags));
        if version == 4 {
            let total = (20 + 4 * u16::from(options) + (header + data) as u16).to_be_bytes();
            bytes.extend([
                8,
                0,
                0x45 + options,
                0,
                total[0],
                total[1],
                0,
                0,
                0x40,
                0,
                64,
                protocol,
                0,
                0,
            ]);
            bytes.extend([192, 0, 2, 2, 198, 51, 100, 1]);
            bytes.extend([1].repeat(4 * usize::from(options)));
        } else {
            bytes.extend([
                0x86, 0xdd, 0x60, 0, 0, 0, length[0], length[1], protocol, 64,
            ]);
            bytes.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1].repeat(2));
        }
        let start = bytes.len();
        bytes.extend((0..header + data).map(|at| at as u8));
        if protocol == UDP {
            bytes[start + 4..start + 6].copy_from_slice(&length);
        }
        bytes
    }

    /// All of them, with even and odd lengths.
    fn packets() -> impl Iterator<Item = Vec<u8>> {
        let each = PROTOCOLS
            .into_iter()
            .flat_map(|kind| (0..3).map(move |tags| (kind, tags)));
        each.flat_map(|(kind, tags)| {
            [(0, 0), (1, 0), (2, 3), (3, 10), (36, 0), (LONGEST, 1)]
                .map(|(data, options)| packet(kind, data, tags, options))
        })
    }

    #[test]
    fn the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(u16::from_be(fold(sum(&bytes))), 0xddf2);
        // An odd byte is the upper one of a word.
        assert_eq!(u16::from_be(fold(sum(&bytes[..7]))), 0xdcfb);
    }

    #[test]
    fn a_sum_that_was_written_is_correct_and_each_changed_bit_is_found() {
        for mut packet in packets() {
            assert!(write(&mut packet));
            assert_eq!(check(&packet), Some(Checksum::Correct));
            let found = Summed::find(&packet).expect("a known packet");
            let bytes = found.ipv4_header.into_iter().flatten().chain(found.bytes);
            for (at, bit) in bytes
                .take(CHANGED)
                .flat_map(|at| (0..8).map(move |bit| (at, bit)))
            {
                packet[at] ^= 1 << bit;
                // Another length, version or protocol is that of a packet that is not known.
                let now = check(&packet);
                assert!(
                    matches!(now, None | Some(Checksum::Wrong)),
                    "{at}, {bit}: {now:?}"
                );
                packet[at] ^= 1 << bit;
            }
        }
    }

    #[test]
    fn a_partial_sum_is_completed_and_no_other() {
        for mut packet in packets() {
            assert!(write(&mut packet));
            let (whole, found) = (
                packet.clone(),
                Summed::find(&packet).expect("a known packet"),
            );
            assert!(!complete(&mut packet));
            assert_eq!(packet, whole);
            // The sum of the pseudo-header, as the kernel leaves it.
            let (field, pseudo) = (found.field, fold(found.pseudo));
            set_word(&mut packet, field, pseudo);
            if found.protocol == ICMP {
                // No card sums it.
                assert_eq!(check(&packet), Some(Checksum::Wrong));
                assert!(!complete(&mut packet));
                continue;
            }
            assert_eq!(check(&packet), Some(Checksum::Partial));
            // Of an answer, too.
            assert!(complete(&mut packet));
            assert_eq!(packet, whole);
            // A damaged one stays so.
            set_word(&mut packet, field, !pseudo);
            let damaged = packet.clone();
            assert_eq!(check(&packet), Some(Checksum::Wrong));
            assert!(!complete(&mut packet));
            assert_eq!(packet, damaged);
        }
    }

    #[test]
    fn udp_has_a_sum_or_none() {
        for version in [4, 6] {
            let mut packet = packet((version, UDP), 2, 0, 0);
            let end = packet.len();
            // A datagram whose sum is 0 has the other zero.
            assert!(write(&mut packet));
            let field = Summed::find(&packet).expect("UDP").field;
            let rest = word(&packet, field);
            let last = fold(u64::from(word(&packet, end - 2)) + u64::from(rest));
            set_word(&mut packet, end - 2, last);
            assert!(write(&mut packet));
            assert_eq!(word(&packet, field), 0xffff);
            assert_eq!(check(&packet), Some(Checksum::Correct));
            set_word(&mut packet, field, 0);
            let none = [Checksum::Absent, Checksum::Wrong][usize::from(version == 6)];
            assert_eq!(check(&packet), Some(none));
            assert!(!complete(&mut packet));
        }
    }

    #[test]
    fn padding_and_what_is_before_ip_is_not_summed() {
        for mut packet in packets() {
            assert!(write(&mut packet));
            packet.extend([0xa5; 7]);
            packet[..12].fill(0x5a);
            assert_eq!(check(&packet), Some(Checksum::Correct));
        }
    }

    #[test]
    fn what_is_not_known_is_left_as_it_is() {
        let mut strange = Vec::new();
        for packet in packets() {
            // Each length below its own.
            strange.extend((0..packet.len().min(120)).map(|end| packet[..end].to_vec()));
            let mut change = |at: usize, byte: u8| {
                let mut packet = packet.clone();
                packet[at] = byte;
                strange.push(packet);
            };
            let ip = ether_type(&packet).expect("a type").0;
            change(ip - 1, 0x06); // ARP, and no protocol
            change(ip, 0x50); // another version
            if packet[ip] >> 4 == 4 {
                change(ip, 0x44);
                change(ip + 6, 0x20); // the first fragment
                change(ip + 7, 1); // a later one
                change(ip + 9, 132); // SCTP
                change(ip + 9, ICMPV6);
            } else {
                change(ip + 6, 44); // a fragment header
                change(ip + 6, 60); // options
                change(ip + 6, ICMP);
            }
        }
        for mut packet in strange {
            let before = packet.clone();
            assert_eq!(check(&packet), None, "{packet:02x?}");
            assert!(!complete(&mut packet) && !write(&mut packet));
            assert_eq!(packet, before);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 4 } else { 256 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        /// Lengths are the sender's.
        #[test]
        fn no_bytes_lead_out_of_the_packet(
            kind in 0..PROTOCOLS.len(),
            changes in prop::collection::vec((12..70_usize, any::<u8>()), 0..8),
            end in 0..80_usize,
        ) {
            let mut packet = packet(PROTOCOLS[kind], 20, 1, 2);
            packet.truncate(end);
            for (at, byte) in changes {
                if let Some(place) = packet.get_mut(at) {
                    *place = byte;
                }
            }
            let known = check(&packet).is_some();
            let length = packet.len();
            complete(&mut packet);
            prop_assert_eq!(write(&mut packet), known);
            prop_assert_eq!(packet.len(), length);
        }
    }
}
