//! Samples of forwarded frames, as a pcapng file.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use rustix::time::{ClockId, clock_gettime};
use zerocopy::FromBytes as _;

use super::abi::{SAMPLE_BYTES, Sample};
use super::accelerator::Accelerator;

/// Times are in nanoseconds (`if_tsresol`).
const NANOSECONDS: u8 = 9;
/// Bytes of a VLAN tag.
const TAG: usize = 4;

/// A pcapng file with an interface for each port, in the order in which they have frames.
pub struct SampleFile<W: Write> {
    writer: PcapNgWriter<W>,
    /// The number of each, by its name.
    interfaces: BTreeMap<String, u32>,
    names: BTreeMap<u32, String>,
    /// The wall clock when `CLOCK_MONOTONIC` was 0.
    boot: Duration,
    /// Frames in the file.
    pub frames: u64,
}

impl<W: Write> SampleFile<W> {
    /// Begins the file.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn new(output: W) -> Result<Self> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let clock = clock_gettime(ClockId::Monotonic);
        let clock = Duration::new(clock.tv_sec.unsigned_abs(), clock.tv_nsec as u32);
        Ok(Self {
            writer: PcapNgWriter::new(output).context("cannot write the samples")?,
            interfaces: BTreeMap::new(),
            names: BTreeMap::new(),
            boot: now.saturating_sub(clock),
            frames: 0,
        })
    }

    /// Names the ports of the samples to come, by the index of the device.
    pub fn name_ports(&mut self, names: BTreeMap<u32, String>) {
        self.names = names;
    }

    /// Adds a record of the map of samples; one of another size is left out.
    ///
    /// # Errors
    ///
    /// Where the file cannot be written.
    pub fn add(&mut self, record: &[u8]) -> Result<()> {
        let Ok(sample) = Sample::read_from_bytes(record) else {
            return Ok(());
        };
        let interface = self.interface(sample.ingress)?;
        let kept = (sample.bytes_used as usize).min(SAMPLE_BYTES);
        let (data, more) = tagged(&sample.bytes[..kept], sample.vlan);
        let to = self.name(sample.egress);
        let comment = format!("sampled by weir switch, forwarded to {to}");
        let time = self.boot + Duration::from_nanos(sample.time);
        let block = EnhancedPacketBlock {
            interface_id: interface,
            timestamp: time,
            original_len: sample.length + more,
            data: Cow::Owned(data),
            options: vec![EnhancedPacketOption::Comment(Cow::Owned(comment))],
        };
        self.writer
            .write_pcapng_block(block)
            .context("cannot write the samples")?;
        self.frames += 1;
        Ok(())
    }

    fn name(&self, index: u32) -> String {
        let name = self.names.get(&index).cloned();
        name.unwrap_or_else(|| format!("device {index}"))
    }

    fn interface(&mut self, index: u32) -> Result<u32> {
        let name = self.name(index);
        if let Some(number) = self.interfaces.get(&name) {
            return Ok(*number);
        }
        let block = InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: SAMPLE_BYTES as u32,
            options: vec![
                InterfaceDescriptionOption::IfName(Cow::Borrowed(name.as_str())),
                InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
            ],
        };
        self.writer
            .write_pcapng_block(block)
            .context("cannot write the samples")?;
        let number = self.interfaces.len() as u32;
        self.interfaces.insert(name, number);
        Ok(number)
    }
}

impl Accelerator {
    /// The names of its ports, by the index of each device that samples can have: the port's own, and those of
    /// a bond's legs, where its XDP program runs.
    pub fn port_names(&self) -> BTreeMap<u32, String> {
        let names = self.ports.values().flat_map(|port| {
            let devices = port.legs.iter().copied().chain([port.link.index]);
            devices.map(|index| (index, port.link.name.clone()))
        });
        names.collect()
    }
}

/// The frame with the tag that was beside it, and how many bytes that adds.
fn tagged(frame: &[u8], vlan: u32) -> (Vec<u8>, u32) {
    /// Both addresses.
    const ADDRESSES: usize = 12;
    if vlan == 0 || frame.len() < ADDRESSES {
        return (frame.to_vec(), 0);
    }
    let [.., high, low] = vlan.to_be_bytes();
    let tag = [0x81, 0x00, high, low];
    let (addresses, rest) = frame.split_at(ADDRESSES);
    ([addresses, &tag, rest].concat(), TAG as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcap_file::pcapng::{Block, PcapNgReader};
    use zerocopy::IntoBytes as _;

    #[test]
    fn a_sample_is_read_again() {
        let mut sample = Sample {
            time: 5,
            ingress: 3,
            egress: 4,
            vlan: 7,
            length: 60,
            bytes_used: 60,
            padding: 0,
            bytes: [0; SAMPLE_BYTES],
        };
        sample.bytes[..60].fill(9);
        let mut bytes = Vec::new();
        let mut file = SampleFile::new(&mut bytes).expect("a file");
        file.name_ports(BTreeMap::from([(3, "in0".to_owned())]));
        file.add(sample.as_bytes()).expect("written");
        file.add(b"too short").expect("left out");
        assert_eq!(file.frames, 1);
        drop(file);
        let mut reader = PcapNgReader::new(&bytes[..]).expect("a file");
        let Some(Ok(Block::InterfaceDescription(interface))) = reader.next_block() else {
            panic!("no interface");
        };
        let name = InterfaceDescriptionOption::IfName("in0".into());
        assert!(interface.options.contains(&name), "{interface:?}");
        let Some(Ok(Block::EnhancedPacket(packet))) = reader.next_block() else {
            panic!("no packet");
        };
        assert_eq!((packet.data.len(), packet.original_len), (64, 64));
        assert_eq!(packet.data[12..16], [0x81, 0, 0, 7]);
        let to = "sampled by weir switch, forwarded to device 4".into();
        assert!(
            packet.options.contains(&EnhancedPacketOption::Comment(to)),
            "{packet:?}"
        );
    }

    #[test]
    fn devices_of_one_port_are_one_interface() {
        let mut file = SampleFile::new(Vec::new()).expect("a file");
        let bond = || "bond0".to_owned();
        file.name_ports(BTreeMap::from([
            (3, bond()),
            (4, bond()),
            (5, "tap0".into()),
        ]));
        let numbers = [3, 4, 5].map(|index| file.interface(index).expect("written"));
        assert_eq!(numbers, [0, 0, 1]);
    }
}
