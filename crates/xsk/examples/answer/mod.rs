//! Answers to UDP packets.

use std::ops::Range;
use xsk::{Packet, SendErrorKind};

const ETHERNET: usize = 14;
const UDP: usize = 8;
const PROTOCOL: u8 = 17;
/// Longest answer: an MTU of 1500.
const LONGEST: usize = ETHERNET + 1500;

/// The header that addresses are in, and the first byte of the UDP header.
struct Layout {
    is_ipv6: bool,
    udp: usize,
}

impl Layout {
    fn find(packet: &[u8]) -> Option<Self> {
        let is_ipv6 = match packet.get(12..ETHERNET)? {
            [0x08, 0x00] => false,
            [0x86, 0xdd] => true,
            _ => return None,
        };
        let (protocol, ip) = if is_ipv6 {
            (*packet.get(20)?, 40)
        } else {
            (*packet.get(23)?, 4 * usize::from(packet[ETHERNET] & 15))
        };
        if ip < 20 {
            return None; // No IPv4 header is shorter.
        }
        let udp = ETHERNET + ip;
        (protocol == PROTOCOL && packet.len() >= udp + UDP).then_some(Self { is_ipv6, udp })
    }

    /// Both addresses, of the same length.
    fn addresses(&self) -> Range<usize> {
        if self.is_ipv6 { 22..54 } else { 26..34 }
    }

    /// First byte behind the text; the rest of a short packet is padding.
    fn end(&self, packet: &[u8]) -> Option<usize> {
        let end = self.udp + usize::from(word(packet, self.udp + 4));
        (self.udp + UDP..=packet.len())
            .contains(&end)
            .then_some(end)
    }
}

/// Sends a packet's text back; twice, in a longer packet, if it begins with `twice`.
pub fn answer(mut packet: Packet<'_, '_>) -> Result<(), SendErrorKind> {
    let Some(layout) = Layout::find(&packet) else {
        return Ok(());
    };
    let Some(end) = layout.end(&packet) else {
        return Ok(());
    };
    // The checksums are sums, so an exchange leaves them right.
    for pair in [0..12, layout.addresses(), layout.udp..layout.udp + 4] {
        let (from, to) = packet[pair.clone()].split_at_mut(pair.len() / 2);
        from.swap_with_slice(to);
    }
    let text = layout.udp + UDP..end;
    if !packet[text.clone()].starts_with(b"twice") || end + text.len() > LONGEST {
        return packet.send().map_err(|unsent| unsent.kind);
    }
    let Some(mut longer) = packet.alloc() else {
        return Ok(()); // No chunk is free: the query is lost.
    };
    if longer.resize(end + text.len()).is_ok() {
        longer[..end].copy_from_slice(&packet[..end]);
        longer[end..].copy_from_slice(&packet[text]);
        set_lengths(&mut longer, &layout);
        packet.send_frame(longer).map_err(|unsent| unsent.kind)?;
    }
    Ok(())
}

/// Writes the lengths and checksums of a packet whose text has grown.
fn set_lengths(packet: &mut [u8], layout: &Layout) {
    let Layout { is_ipv6, udp } = *layout;
    let udp_length = (packet.len() - udp) as u16;
    set_word(packet, udp + 4, udp_length);
    if is_ipv6 {
        set_word(packet, 18, (packet.len() - ETHERNET - 40) as u16);
    } else {
        set_word(packet, 16, (packet.len() - ETHERNET) as u16);
        set_word(packet, 24, 0);
        let header = checksum(sum(&packet[ETHERNET..udp]));
        set_word(packet, 24, header);
    }
    set_word(packet, udp + 6, 0);
    let pseudo = sum(&packet[layout.addresses()]) + u32::from(PROTOCOL) + u32::from(udp_length);
    let checksum = checksum(pseudo + sum(&packet[udp..]));
    // 0 would mean none.
    set_word(
        packet,
        udp + 6,
        if checksum == 0 { 0xffff } else { checksum },
    );
}

/// The sum of the 16-bit words (RFC 1071).
fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2).map(|pair| match *pair {
        [high, low] => u16::from_be_bytes([high, low]),
        [high] => u16::from_be_bytes([high, 0]),
        _ => 0,
    });
    words.map(u32::from).sum()
}

fn checksum(sum: u32) -> u16 {
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

fn word(packet: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([packet[at], packet[at + 1]])
}

fn set_word(packet: &mut [u8], at: usize, value: u16) {
    packet[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
