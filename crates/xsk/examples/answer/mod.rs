//! Answers to UDP packets.

use std::ops::Range;
use xsk::checksum::{self, Checksum};
use xsk::{Packet, SendErrorKind};

const ETHERNET: usize = 14;
const UDP: usize = 8;
const PROTOCOL: u8 = 17;
/// Longest answer: an MTU of 1500.
const LONGEST: usize = ETHERNET + 1500;
/// The time to live, or hop limit, of an answer: that of the query is used up in part.
const TTL: u8 = 64;

/// The header that addresses are in, and the first byte of the UDP header.
struct Layout {
    is_ipv6: bool,
    udp: usize,
}

impl Layout {
    /// Neither a packet with IP options, which an answer would have to obey, nor one to a group of hosts.
    fn find(packet: &[u8]) -> Option<Self> {
        let is_ipv6 = match packet.get(12..=ETHERNET)? {
            [0x08, 0x00, 0x45] => false,
            [0x86, 0xdd, _] => true,
            _ => return None,
        };
        let (protocol, ip) = if is_ipv6 { (20, 40) } else { (23, 20) };
        let udp = ETHERNET + ip;
        let is_udp = *packet.get(protocol)? == PROTOCOL && packet.len() >= udp + UDP;
        let is_to_group = packet[0] & 1 == 1;
        (is_udp && !is_to_group).then_some(Self { is_ipv6, udp })
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
    // XDP comes before the network stack, which drops packets that were damaged.
    if matches!(checksum::check(&packet), None | Some(Checksum::Wrong)) {
        return Ok(());
    }
    let Some(layout) = Layout::find(&packet) else {
        return Ok(());
    };
    let Some(end) = layout.end(&packet) else {
        return Ok(());
    };
    for pair in [0..12, layout.addresses(), layout.udp..layout.udp + 4] {
        let half = pair.len() / 2;
        packet[pair].rotate_left(half);
    }
    packet[if layout.is_ipv6 { 21 } else { 22 }] = TTL;
    let text = layout.udp + UDP..end;
    if !packet[text.clone()].starts_with(b"twice") || end + text.len() > LONGEST {
        // The sum of a local sender's query is partial, so the exchange alone is not enough.
        if checksum::write(&mut packet) {
            packet.send().map_err(|unsent| unsent.kind)?;
        }
        return Ok(());
    }
    let Some(mut longer) = packet.alloc() else {
        return Ok(()); // No chunk is free: the query is lost.
    };
    if longer.resize(end + text.len()).is_ok() {
        longer[..end].copy_from_slice(&packet[..end]);
        longer[end..].copy_from_slice(&packet[text]);
        set_lengths(&mut longer, &layout);
        if checksum::write(&mut longer) {
            packet.send_frame(longer).map_err(|unsent| unsent.kind)?;
        }
    }
    Ok(())
}

/// Writes the lengths of a packet whose text has grown.
fn set_lengths(packet: &mut [u8], layout: &Layout) {
    let Layout { is_ipv6, udp } = *layout;
    let (place, header) = if is_ipv6 { (18, 40) } else { (16, 0) };
    let ip_length = (packet.len() - ETHERNET - header) as u16;
    set_word(packet, place, ip_length);
    let udp_length = (packet.len() - udp) as u16;
    set_word(packet, udp + 4, udp_length);
}

fn word(packet: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([packet[at], packet[at + 1]])
}

fn set_word(packet: &mut [u8], at: usize, value: u16) {
    packet[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
