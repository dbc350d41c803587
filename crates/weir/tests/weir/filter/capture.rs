//! `weir filter explain --pcap`.

use std::time::Duration;

use anyhow::{Result, ensure};
use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pf_filter::host::Host;
use pf_filter::packet::Packet;
use serde_json::Value;

use super::{Rules, expect};
use crate::{Test, failure, tests};

pub fn tests() -> Vec<Test> {
    tests![
        a_capture_is_explained_packet_by_packet,
        a_capture_that_ends_early_is_an_error,
        hexadecimal_digits_are_a_packet,
    ]
}

const RULES: &str = "block\npass in on em0 proto tcp to port 22\n";

/// A handshake's first two packets, and one that is blocked.
const PACKETS: [&str; 3] = [
    "in on em0 proto tcp from 192.0.2.7 port 4000 to 192.0.2.1 port 22 flags S",
    "out on em0 proto tcp from 192.0.2.1 port 22 to 192.0.2.7 port 4000 flags SA ack 1001",
    "in on em0 proto tcp from 192.0.2.7 port 4000 to 192.0.2.1 port 23 flags S",
];

fn bytes(words: &str) -> Vec<u8> {
    let packet = Packet::parse(words, &Host::default());
    packet.expect("a packet").to_bytes()
}

/// A capture of pf's log interface.
fn pflog() -> Result<Vec<u8>> {
    let header = PcapHeader {
        datalink: DataLink::PFLOG,
        ..PcapHeader::default()
    };
    let mut writer = PcapWriter::with_header(Vec::new(), header)?;
    for (second, words) in (0..).zip(PACKETS) {
        let mut frame = vec![0; 100];
        frame[0] = 100;
        frame[4..7].copy_from_slice(b"em0");
        frame[60] = if words.starts_with("in") { 1 } else { 2 };
        frame.extend(bytes(words));
        let length = frame.len() as u32;
        let packet = PcapPacket::new(Duration::from_secs(second), length, &frame);
        writer.write_packet(&packet)?;
    }
    Ok(writer.into_writer())
}

fn a_capture_is_explained_packet_by_packet() -> Result<()> {
    let rules = Rules::new("capture", RULES)?;
    rules.write("pflog", pflog()?)?;
    let text = expect(1, rules.weir("explain pf.conf --pcap pflog"))?;
    ensure!(text.ends_with("3 packets: 2 pass, 1 blocked\n"), "{text}");
    ensure!(text.lines().count() == 4, "{text}");
    let json = expect(1, rules.weir("explain pf.conf --pcap pflog --format json"))?;
    let reports = json.lines().map(serde_json::from_str);
    let reports: Vec<Value> = reports.collect::<Result<_, _>>()?;
    let causes: Vec<_> = reports.iter().map(|report| &report["cause"]).collect();
    ensure!(causes == ["rule", "state", "rule"], "{json}");
    ensure!(
        reports[2]["seconds"] == 2.0 && reports[2]["rule"]["line"] == 1,
        "{json}"
    );
    Ok(())
}

fn a_capture_that_ends_early_is_an_error() -> Result<()> {
    let rules = Rules::new("cut", RULES)?;
    let whole = pflog()?;
    rules.write("pflog", &whole[..whole.len() - 5])?;
    let error = failure(&mut rules.weir("explain pf.conf --pcap pflog"), 2)?;
    ensure!(
        error.contains("after packet 2: the file ends early"),
        "{error}"
    );
    Ok(())
}

fn hexadecimal_digits_are_a_packet() -> Result<()> {
    let rules = Rules::new("hex", RULES)?;
    let digits: Vec<_> = bytes(PACKETS[0])
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let digits = digits.concat();
    let text = expect(
        0,
        rules.weir(&format!("explain pf.conf --interface em0 --hex {digits}")),
    )?;
    ensure!(text.starts_with(PACKETS[0]), "{text}");
    let short = &digits[..30];
    let text = expect(
        1,
        rules.weir(&format!("explain pf.conf --interface em0 --hex {short}")),
    )?;
    ensure!(text.contains("the IP header is cut off"), "{text}");
    Ok(())
}
