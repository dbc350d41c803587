//! Packets of pcap and pcapng files.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use pcap_file::pcap::PcapParser;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{Block, PcapNgParser};
use pcap_file::{DataLink, PcapError};
use pf_filter::rule::Direction;

use super::link::{self, Found};

/// The largest file.
pub const MOST_BYTES: u64 = 1 << 30;
/// The type of a pcapng file's first block.
const SECTION_HEADER: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// Directions in the flags of an enhanced packet block.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;
/// Largest packet of IP: larger lengths in a file are not believed.
const MOST_PACKET: usize = 1 << 16;

/// A packet of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its number, from 1.
    pub number: u64,
    /// When it was seen.
    pub time: Duration,
    /// Which way it went, where the file tells.
    pub direction: Option<Direction>,
    /// Where, if the file tells.
    pub interface: Option<String>,
    /// The IP packet; none for frames without one. Bytes that the capture left out are zero.
    pub ip: Option<Vec<u8>>,
    /// The capture left out its end.
    pub is_cut: bool,
}

/// Calls `each` with every packet of a file, in its order.
///
/// # Errors
///
/// Those of `each`; and for a file that is no capture, is damaged or ends early, with the offset. The packets
/// before were given to `each` then.
pub fn read(path: &Path, each: &mut dyn FnMut(Frame) -> Result<()>) -> Result<()> {
    let name = path.display();
    let cannot = || format!("cannot read the capture {name}");
    let about = fs::metadata(path).with_context(cannot)?;
    ensure!(
        about.is_file(),
        "cannot read the capture {name}: it is no regular file"
    );
    ensure!(
        about.len() <= MOST_BYTES,
        "cannot read the capture {name}: it is larger than {} MiB; cut it with editcap(1)",
        MOST_BYTES >> 20
    );
    let bytes = fs::read(path).with_context(cannot)?;
    let mut file = File {
        bytes: &bytes,
        number: 0,
        each,
    };
    let done = if bytes.starts_with(&SECTION_HEADER) {
        file.pcapng()
    } else {
        file.pcap()
    };
    done.with_context(cannot)
}

struct File<'f> {
    bytes: &'f [u8],
    number: u64,
    each: &'f mut dyn FnMut(Frame) -> Result<()>,
}

/// A packet as it is in the file.
struct Raw<'r> {
    time: Duration,
    link: u32,
    data: &'r [u8],
    original: u32,
    direction: Option<Direction>,
    interface: Option<String>,
}

impl File<'_> {
    fn pcap(&mut self) -> Result<()> {
        let Ok((mut rest, parser)) = PcapParser::new(self.bytes) else {
            bail!("it is neither pcap nor pcapng");
        };
        // The upper bits have the length of a frame check sequence.
        let link = u32::from(parser.header().datalink) & 0xffff;
        while !rest.is_empty() {
            let (after, packet) = parser
                .next_packet(rest)
                .map_err(|error| self.damage(rest, &error))?;
            rest = after;
            self.packet(&Raw {
                time: packet.timestamp,
                link,
                data: &packet.data,
                original: packet.orig_len,
                direction: None,
                interface: None,
            })?;
        }
        Ok(())
    }

    fn pcapng(&mut self) -> Result<()> {
        let (mut rest, mut parser) =
            PcapNgParser::new(self.bytes).map_err(|error| self.damage(self.bytes, &error))?;
        while !rest.is_empty() {
            let (after, block) = parser
                .next_block(rest)
                .map_err(|error| self.damage(rest, &error))?;
            match block {
                Block::EnhancedPacket(packet) => {
                    let interface = parser.packet_interface(&packet);
                    let Some(interface) = interface else {
                        return Err(self.damage(rest, &"a packet of an unknown interface"));
                    };
                    self.packet(&enhanced(&packet, interface))?;
                }
                Block::SimplePacket(packet) => {
                    let interface = parser.interfaces().first();
                    let Some(interface) = interface else {
                        return Err(self.damage(rest, &"a packet without an interface"));
                    };
                    let length = packet.data.len().min(packet.original_len as usize);
                    self.packet(&Raw {
                        time: Duration::ZERO,
                        link: interface.linktype.into(),
                        data: &packet.data[..length],
                        original: packet.original_len,
                        direction: None,
                        interface: name(interface),
                    })?;
                }
                _ => {}
            }
            rest = after;
        }
        Ok(())
    }

    fn packet(&mut self, raw: &Raw<'_>) -> Result<()> {
        self.number += 1;
        let Found {
            ip,
            direction,
            interface,
        } = link::find(raw.link, raw.data).with_context(|| format!("packet {}", self.number))?;
        let missing = (raw.original as usize).saturating_sub(raw.data.len());
        let whole = |ip: &[u8]| {
            let mut whole = ip.to_vec();
            whole.resize((ip.len() + missing).min(MOST_PACKET.max(ip.len())), 0);
            whole
        };
        (self.each)(Frame {
            number: self.number,
            time: raw.time,
            direction: direction.or(raw.direction),
            interface: interface.or_else(|| raw.interface.clone()),
            ip: ip.map(whole),
            is_cut: missing > 0,
        })
    }

    /// The error of unreadable bytes at the start of `rest`.
    fn damage(&self, rest: &[u8], why: &dyn std::fmt::Display) -> anyhow::Error {
        let at = self.bytes.len() - rest.len();
        let after = self.number;
        let why = match why.to_string() {
            text if text == PcapError::IncompleteBuffer.to_string() => {
                "the file ends early".to_owned()
            }
            text => text,
        };
        anyhow::anyhow!("byte {at}, after packet {after}: {why}")
    }
}

fn enhanced<'r>(
    packet: &'r EnhancedPacketBlock<'r>,
    interface: &InterfaceDescriptionBlock<'_>,
) -> Raw<'r> {
    let flags = packet.options.iter().find_map(|option| match option {
        EnhancedPacketOption::Flags(flags) => Some(flags & 3),
        _ => None,
    });
    Raw {
        time: time(packet.timestamp, interface),
        link: link_type(interface.linktype),
        data: &packet.data,
        original: packet.original_len,
        direction: match flags {
            Some(INBOUND) => Some(Direction::In),
            Some(OUTBOUND) => Some(Direction::Out),
            _ => None,
        },
        interface: name(interface),
    }
}

fn link_type(link: DataLink) -> u32 {
    link.into()
}

fn name(interface: &InterfaceDescriptionBlock<'_>) -> Option<String> {
    interface.options.iter().find_map(|option| match option {
        InterfaceDescriptionOption::IfName(name) => Some(name.to_string()),
        _ => None,
    })
}

/// The time of a packet: `pcap_file` takes the file's unit, a microsecond unless the interface says otherwise,
/// for a nanosecond.
fn time(raw: Duration, interface: &InterfaceDescriptionBlock<'_>) -> Duration {
    let resolution = interface.options.iter().find_map(|option| match option {
        InterfaceDescriptionOption::IfTsResol(resolution) => Some(*resolution),
        _ => None,
    });
    let resolution = resolution.unwrap_or(6);
    let per_second = if resolution & 0x80 == 0 {
        10_u128.checked_pow(u32::from(resolution))
    } else {
        2_u128.checked_pow(u32::from(resolution & 0x7f))
    };
    let Some(per_second) = per_second else {
        return Duration::ZERO;
    };
    let units = raw.as_nanos();
    let nanoseconds = (units % per_second).saturating_mul(1_000_000_000) / per_second;
    Duration::new((units / per_second) as u64, nanoseconds as u32)
}

#[cfg(test)]
mod tests {
    use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
    use pcap_file::pcapng::{PcapNgBlock as _, PcapNgWriter};

    use super::*;

    const IP: [u8; 20] = [
        0x45, 0, 0, 20, 0, 0, 0, 0, 64, 89, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ];

    fn pcap() -> Vec<u8> {
        let header = PcapHeader {
            datalink: DataLink::RAW,
            ..PcapHeader::default()
        };
        let mut writer = PcapWriter::with_header(Vec::new(), header).expect("is written");
        for second in 1..=2 {
            let packet = PcapPacket::new(Duration::from_secs(second), 30, &IP);
            writer.write_packet(&packet).expect("is written");
        }
        writer.into_writer()
    }

    fn pcapng() -> Vec<u8> {
        let mut writer = PcapNgWriter::new(Vec::new()).expect("is written");
        let interface = InterfaceDescriptionBlock {
            linktype: DataLink::RAW,
            snaplen: 0,
            options: vec![InterfaceDescriptionOption::IfName("em0".into())],
        };
        writer
            .write_block(&interface.into_block())
            .expect("is written");
        let packet = EnhancedPacketBlock {
            interface_id: 0,
            // 1.5 million units, which are microseconds.
            timestamp: Duration::from_micros(1500),
            original_len: 20,
            data: IP.as_slice().into(),
            options: vec![EnhancedPacketOption::Flags(OUTBOUND)],
        };
        writer
            .write_block(&packet.into_block())
            .expect("is written");
        writer.into_inner()
    }

    fn frames(bytes: &[u8]) -> (Vec<Frame>, Result<()>) {
        let mut frames = Vec::new();
        let mut each = |frame| {
            frames.push(frame);
            Ok(())
        };
        let mut file = File {
            bytes,
            number: 0,
            each: &mut each,
        };
        let done = if bytes.starts_with(&SECTION_HEADER) {
            file.pcapng()
        } else {
            file.pcap()
        };
        (frames, done)
    }

    #[test]
    fn both_formats_are_read() {
        let (found, done) = frames(&pcap());
        done.expect("a capture");
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[1].number, found[1].time),
            (2, Duration::from_secs(2))
        );
        assert!(found[0].is_cut);
        assert_eq!(found[0].ip.as_ref().map(Vec::len), Some(30));
        let (found, done) = frames(&pcapng());
        done.expect("a capture");
        let frame = &found[0];
        assert_eq!(frame.interface.as_deref(), Some("em0"));
        assert_eq!(frame.direction, Some(Direction::Out));
        assert_eq!(frame.time, Duration::from_millis(1500));
        assert_eq!(frame.ip.as_deref(), Some(&IP[..]));
    }

    #[test]
    fn a_file_that_ends_early_says_where() {
        let bytes = pcap();
        let (found, done) = frames(&bytes[..bytes.len() - 1]);
        assert_eq!(found.len(), 1);
        let error = done.expect_err("the last packet is cut").to_string();
        assert_eq!(error, "byte 60, after packet 1: the file ends early");
        let (_, done) = frames(b"block all\n");
        assert_eq!(
            done.expect_err("is none").to_string(),
            "it is neither pcap nor pcapng"
        );
    }

    #[test]
    fn damage_is_an_error_and_no_panic() {
        for whole in [pcap(), pcapng()] {
            for at in 0..whole.len() {
                let _ = frames(&whole[..at]);
                for value in [0, 1, 0x7f, 0xff] {
                    let mut damaged = whole.clone();
                    damaged[at] = value;
                    let _ = frames(&damaged);
                }
            }
        }
    }
}
