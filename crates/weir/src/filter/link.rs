//! Link layers of captures: where the IP packet begins.

use anyhow::{Result, bail};
use pf_filter::rule::Direction;

/// Link types (<https://www.tcpdump.org/linktypes.html>).
const NULL: u32 = 0;
const ETHERNET: u32 = 1;
const RAW: [u32; 5] = [12, 14, 101, 228, 229];
const LOOP: u32 = 108;
const LINUX_SLL: u32 = 113;
const PFLOG: u32 = 117;
const LINUX_SLL2: u32 = 276;

/// Types of Ethernet frames.
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLAN: [u16; 2] = [0x8100, 0x88a8];
/// A packet that this host sends (`PACKET_OUTGOING`).
const OUTGOING: u16 = 4;
/// Name of the interface in pf's log, and the direction (`struct pfloghdr`).
const PFLOG_NAME: std::ops::Range<usize> = 4..20;
const PFLOG_DIRECTION: usize = 60;
const PF_IN: u8 = 1;
const PF_OUT: u8 = 2;

/// The content of a frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found<'f> {
    /// The IP packet; none in frames of other protocols.
    pub ip: Option<&'f [u8]>,
    /// Which way it went.
    pub direction: Option<Direction>,
    /// The interface.
    pub interface: Option<String>,
}

/// The IP packet of a frame.
///
/// # Errors
///
/// For a link type that is not known.
pub fn find(link: u32, frame: &[u8]) -> Result<Found<'_>> {
    let ip = |ip| Found {
        ip,
        ..Found::default()
    };
    Ok(match link {
        ETHERNET => ip(ethernet(frame)),
        NULL | LOOP => ip(frame.get(4..)),
        LINUX_SLL => sll(frame, 14, 0, 16),
        LINUX_SLL2 => sll2(frame),
        PFLOG => pflog(frame),
        link if RAW.contains(&link) => ip(Some(frame)),
        other => bail!(
            "frames of link type {other} are not known: Ethernet, raw IP, Linux cooked, BSD loopback and pflog are"
        ),
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*bytes))
}

fn is_ip(kind: u16) -> bool {
    kind == IPV4 || kind == IPV6
}

fn ethernet(frame: &[u8]) -> Option<&[u8]> {
    let mut at = 12;
    while VLAN.contains(&u16_at(frame, at)?) {
        at += 4;
    }
    is_ip(u16_at(frame, at)?).then(|| frame.get(at + 2..))?
}

/// Linux cooked capture: a header of `length` bytes with the protocol, and who sent the packet.
fn sll(frame: &[u8], protocol: usize, kind: usize, length: usize) -> Found<'_> {
    let direction = u16_at(frame, kind).map(direction);
    let ip = u16_at(frame, protocol).filter(|&kind| is_ip(kind));
    Found {
        ip: ip.and_then(|_| frame.get(length..)),
        direction,
        interface: None,
    }
}

fn sll2(frame: &[u8]) -> Found<'_> {
    let kind = frame.get(10).map(|&kind| direction(u16::from(kind)));
    Found {
        direction: kind,
        ..sll(frame, 0, 0, 20)
    }
}

fn direction(kind: u16) -> Direction {
    if kind == OUTGOING {
        Direction::Out
    } else {
        Direction::In
    }
}

/// A packet that pf logged.
fn pflog(frame: &[u8]) -> Found<'_> {
    // Headers are padded to four bytes.
    let length = frame
        .first()
        .map(|&length| usize::from(length).next_multiple_of(4));
    let name = frame
        .get(PFLOG_NAME)
        .and_then(|name| name.split(|&byte| byte == 0).next());
    let name = name.map(|name| String::from_utf8_lossy(name).into_owned());
    Found {
        ip: length.and_then(|length| frame.get(length..)),
        direction: match frame.get(PFLOG_DIRECTION) {
            Some(&PF_IN) => Some(Direction::In),
            Some(&PF_OUT) => Some(Direction::Out),
            _ => None,
        },
        interface: name.filter(|name| !name.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IP: &[u8] = &[0x45, 0];

    #[test]
    fn tags_of_vlans_are_skipped() {
        let frame = [&[0; 12][..], &[0x81, 0, 0, 5, 0x88, 0xa8, 0, 6, 8, 0], IP].concat();
        assert_eq!(find(ETHERNET, &frame).expect("Ethernet").ip, Some(IP));
        let arp = [&[0; 12][..], &[8, 6], IP].concat();
        assert_eq!(find(ETHERNET, &arp).expect("Ethernet").ip, None);
        assert_eq!(find(ETHERNET, &frame[..15]).expect("Ethernet").ip, None);
    }

    #[test]
    fn cooked_captures_tell_the_direction() {
        let frame = [&[0, 4][..], &[0; 12], &[0x86, 0xdd], IP].concat();
        let found = find(LINUX_SLL, &frame).expect("cooked");
        assert_eq!(
            (found.ip, found.direction),
            (Some(IP), Some(Direction::Out))
        );
        let mut frame = [&[8, 0][..], &[0; 18], IP].concat();
        assert_eq!(
            find(LINUX_SLL2, &frame).expect("cooked").direction,
            Some(Direction::In)
        );
        frame[10] = 4;
        let found = find(LINUX_SLL2, &frame).expect("cooked");
        assert_eq!(
            (found.ip, found.direction),
            (Some(IP), Some(Direction::Out))
        );
    }

    #[test]
    fn the_log_of_pf_tells_all() {
        let mut frame = vec![0; 100];
        frame[0] = 97;
        frame[4..7].copy_from_slice(b"em0");
        frame[PFLOG_DIRECTION] = PF_OUT;
        frame.extend(IP);
        let found = find(PFLOG, &frame).expect("pflog");
        assert_eq!(found.ip, Some(IP));
        assert_eq!(found.direction, Some(Direction::Out));
        assert_eq!(found.interface.as_deref(), Some("em0"));
        assert!(find(147, &frame).is_err());
    }
}
