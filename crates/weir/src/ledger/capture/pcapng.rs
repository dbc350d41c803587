//! Blocks of a pcapng file (draft-ietf-opsawg-pcapng), little-endian.

/// Bytes before the tag of a frame: both addresses.
const ADDRESSES: usize = 12;

/// Bytes of a tag, which a packet can have beyond those that were captured.
pub const TAG: u32 = 4;

/// `LINKTYPE_ETHERNET`: a frame from its MAC header on.
pub const ETHERNET: u16 = 1;
/// `LINKTYPE_RAW`: an IPv4 or IPv6 packet.
pub const RAW: u16 = 101;

/// Bits of `epb_flags`.
pub const INBOUND: u32 = 1;
pub const OUTBOUND: u32 = 2;
pub const CHECKSUM_NOT_READY: u32 = 1 << 9;
pub const SEGMENTATION_OFFLOAD: u32 = 1 << 11;

/// The private enterprise number of the custom option: the one for examples (RFC 5612), as weir has none.
const ENTERPRISE: u32 = 32473;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

const COMMENT: u16 = 1;
/// A custom option with text, which programs that do not know it may copy.
const CUSTOM_TEXT: u16 = 2988;

/// The program and machine that wrote the file.
#[derive(Debug)]
pub struct Section<'s> {
    pub hardware: &'s str,
    pub system: &'s str,
    pub application: &'s str,
    pub comment: &'s str,
}

/// Where packets were dropped. Times are in nanoseconds.
#[derive(Debug)]
pub struct Interface<'s> {
    pub link_type: u16,
    pub snaplen: u32,
    pub name: &'s str,
    pub description: &'s str,
}

/// A packet.
#[derive(Debug)]
pub struct Packet<'s> {
    /// The interface, by the order of their blocks.
    pub interface: u32,
    /// Since 1970, in nanoseconds.
    pub time: u64,
    pub bytes: &'s [u8],
    /// The VLAN tag to put into `bytes`: its protocol and the tag, as in the frame.
    pub tag: Option<[u8; 4]>,
    /// Bytes on the wire, without `tag`.
    pub length: u32,
    pub flags: u32,
    /// Packets of the interface that were lost since the previous one.
    pub lost: u64,
    pub comment: &'s str,
    pub custom: &'s str,
}

/// The fates of an interface's packets.
#[derive(Debug)]
pub struct Statistics {
    pub interface: u32,
    /// When counting began and ended: since 1970, in nanoseconds.
    pub times: [u64; 2],
    pub received: u64,
    /// As the filter wants them.
    pub accepted: u64,
    /// Accepted, and lost before they were written.
    pub lost: u64,
    pub written: u64,
}

impl Section<'_> {
    pub fn append_to(&self, file: &mut Vec<u8>) {
        block(file, SECTION_HEADER, |file| {
            file.extend(0x1a2b_3c4d_u32.to_le_bytes());
            file.extend([1_u16, 0].map(u16::to_le_bytes).as_flattened());
            // The length of the section is not known.
            file.extend(u64::MAX.to_le_bytes());
            text(file, COMMENT, self.comment);
            text(file, 2, self.hardware);
            text(file, 3, self.system);
            text(file, 4, self.application);
            end(file);
        });
    }
}

impl Interface<'_> {
    pub fn append_to(&self, file: &mut Vec<u8>) {
        const NANOSECONDS: u8 = 9;
        block(file, INTERFACE_DESCRIPTION, |file| {
            file.extend([self.link_type, 0].map(u16::to_le_bytes).as_flattened());
            file.extend(self.snaplen.to_le_bytes());
            text(file, 2, self.name);
            text(file, 3, self.description);
            option(file, 9, &[&[NANOSECONDS]]);
            end(file);
        });
    }
}

impl Packet<'_> {
    pub fn append_to(&self, file: &mut Vec<u8>) {
        let (addresses, rest) = match self.tag {
            Some(_) if self.bytes.len() >= ADDRESSES => self.bytes.split_at(ADDRESSES),
            _ => (self.bytes, &[][..]),
        };
        let tag = self.tag.as_ref().map_or(&[][..], |tag| &tag[..]);
        // Without both addresses there is no place for it.
        let inserted = if rest.is_empty() { &[][..] } else { tag };
        let captured = self.bytes.len() + inserted.len();
        block(file, ENHANCED_PACKET, |file| {
            file.extend(self.interface.to_le_bytes());
            file.extend(time(self.time));
            file.extend((captured as u32).to_le_bytes());
            let length = self.length.saturating_add(tag.len() as u32);
            file.extend(length.max(captured as u32).to_le_bytes());
            for part in [addresses, inserted, rest] {
                file.extend(part);
            }
            pad(file, captured);
            text(file, COMMENT, self.comment);
            if self.flags != 0 {
                option(file, 2, &[&self.flags.to_le_bytes()]);
            }
            if self.lost != 0 {
                option(file, 4, &[&self.lost.to_le_bytes()]);
            }
            let enterprise = ENTERPRISE.to_le_bytes();
            option(file, CUSTOM_TEXT, &[&enterprise, self.custom.as_bytes()]);
            end(file);
        });
    }
}

impl Statistics {
    pub fn append_to(&self, file: &mut Vec<u8>) {
        let [began, ended] = self.times.map(time);
        block(file, INTERFACE_STATISTICS, |file| {
            file.extend(self.interface.to_le_bytes());
            file.extend(ended);
            option(file, 2, &[&began]);
            option(file, 3, &[&ended]);
            for (code, count) in [
                (4, self.received),
                (6, self.accepted),
                (7, self.lost),
                (8, self.written),
            ] {
                option(file, code, &[&count.to_le_bytes()]);
            }
            end(file);
        });
    }
}

/// A block of a type, its length on both ends.
fn block(file: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let begin = file.len();
    file.extend(kind.to_le_bytes());
    file.extend([0; 4]);
    body(file);
    let length = (file.len() - begin + 4) as u32;
    file[begin + 4..begin + 8].copy_from_slice(&length.to_le_bytes());
    file.extend(length.to_le_bytes());
}

/// Its upper half comes first.
fn time(time: u64) -> [u8; 8] {
    time.rotate_left(32).to_le_bytes()
}

fn text(file: &mut Vec<u8>, code: u16, text: &str) {
    option(file, code, &[text.as_bytes()]);
}

/// An option, its value in parts.
fn option(file: &mut Vec<u8>, code: u16, value: &[&[u8]]) {
    let length: usize = value.iter().map(|part| part.len()).sum();
    file.extend(code.to_le_bytes());
    file.extend((length as u16).to_le_bytes());
    for part in value {
        file.extend(*part);
    }
    pad(file, length);
}

fn end(file: &mut Vec<u8>) {
    file.extend([0; 4]);
}

/// To a multiple of four.
fn pad(file: &mut Vec<u8>, length: usize) {
    file.resize(file.len() + length.next_multiple_of(4) - length, 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
    use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
    use pcap_file::pcapng::blocks::interface_statistics::InterfaceStatisticsOption;
    use pcap_file::pcapng::{Block, PcapNgReader};

    const TIME: u64 = 1_800_000_000_123_456_789;

    fn packet(bytes: &[u8]) -> Packet<'_> {
        Packet {
            interface: 0,
            time: TIME,
            bytes,
            tag: None,
            length: 1500,
            flags: OUTBOUND | CHECKSUM_NOT_READY,
            lost: 3,
            comment: "NO_SOCKET at udp_unicast_rcv_skb",
            custom: "weir.drop reason=NO_SOCKET",
        }
    }

    fn file(packets: &[Packet<'_>]) -> Vec<u8> {
        let mut file = Vec::new();
        Section {
            hardware: "one",
            system: "Linux",
            application: "weir",
            comment: "drops",
        }
        .append_to(&mut file);
        Interface {
            link_type: ETHERNET,
            snaplen: 64,
            name: "eth0",
            description: "namespace host",
        }
        .append_to(&mut file);
        for packet in packets {
            packet.append_to(&mut file);
        }
        Statistics {
            interface: 0,
            times: [TIME, TIME],
            received: 9,
            accepted: 8,
            lost: 3,
            written: 5,
        }
        .append_to(&mut file);
        file
    }

    #[test]
    fn another_reader_understands_every_block() {
        let bytes = [7; 61];
        let file = file(&[packet(&bytes)]);
        let mut reader = PcapNgReader::new(&file[..]).expect("a file");
        let Some(Ok(Block::InterfaceDescription(interface))) = reader.next_block() else {
            panic!("no interface");
        };
        let name = InterfaceDescriptionOption::IfName("eth0".into());
        assert!(interface.options.contains(&name), "{interface:?}");
        let interface = interface.into_owned();
        let Some(Ok(Block::EnhancedPacket(packet))) = reader.next_block() else {
            panic!("no packet");
        };
        assert_eq!((&packet.data[..], packet.original_len), (&bytes[..], 1500));
        assert_eq!(u64::try_from(packet.timestamp.as_nanos()), Ok(TIME));
        for option in [
            EnhancedPacketOption::Comment("NO_SOCKET at udp_unicast_rcv_skb".into()),
            EnhancedPacketOption::Flags(OUTBOUND | CHECKSUM_NOT_READY),
            EnhancedPacketOption::DropCount(3),
        ] {
            assert!(packet.options.contains(&option), "{packet:?}");
        }
        assert!(
            interface
                .options
                .contains(&InterfaceDescriptionOption::IfTsResol(9))
        );
        let Some(Ok(Block::InterfaceStatistics(statistics))) = reader.next_block() else {
            panic!("no statistics");
        };
        for option in [
            InterfaceStatisticsOption::IsbIfRecv(9),
            InterfaceStatisticsOption::IsbFilterAccept(8),
            InterfaceStatisticsOption::IsbOsDrop(3),
            InterfaceStatisticsOption::IsbUsrDeliv(5),
        ] {
            assert!(statistics.options.contains(&option), "{statistics:?}");
        }
        assert!(reader.next_block().is_none());
    }

    #[test]
    fn a_tag_beside_the_data_is_put_back() {
        let bytes: Vec<u8> = (0..20).collect();
        let tagged = Packet {
            tag: Some([0x88, 0xa8, 0, 7]),
            length: 20,
            ..packet(&bytes)
        };
        let file = file(&[
            tagged,
            Packet {
                tag: Some([0x81, 0, 0, 7]),
                ..packet(&bytes[..8])
            },
        ]);
        let mut reader = PcapNgReader::new(&file[..]).expect("a file");
        let mut packets = Vec::new();
        while let Some(block) = reader.next_block() {
            if let Block::EnhancedPacket(packet) = block.expect("a block") {
                packets.push((packet.data.to_vec(), packet.original_len));
            }
        }
        let [(whole, length), (cut, cut_length)] = &packets[..] else {
            panic!("{packets:?}");
        };
        assert_eq!(whole[8..18], [8, 9, 10, 11, 0x88, 0xa8, 0, 7, 12, 13]);
        assert_eq!((whole.len(), *length), (24, 24));
        assert_eq!((&cut[..], *cut_length), (&bytes[..8], 1504));
    }
}
