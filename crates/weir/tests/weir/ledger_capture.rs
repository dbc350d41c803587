//! Dropped packets in a file, each once, with its reason.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use hostnet::netns;
use hostnet::rtnetlink::Rtnetlink;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};
use weir::lab::{Lab, LabConfig, Side};
use weir::ledger::capture::{Capture, CaptureReport, Options};
use weir::ledger::events::Events;
use weir::process::clock::realtime_ns;
use weir::traffic::programs::{SinkHook, StationSink};

use crate::{Test, a_cpu, packets, skip, tests, until, weir};

pub fn trials() -> Vec<Test> {
    tests![
        every_lost_packet_is_in_the_file,
        a_file_is_whole_while_it_grows,
        a_file_survives_its_writer,
        a_frame_is_as_it_was_sent,
        a_packet_without_mac_header_is_an_ip_packet,
        a_packet_is_cut,
        a_full_ring_is_counted,
        normal_frees_are_left_out,
        a_limit_ends_the_file,
        other_devices_are_left_out,
        files_are_not_replaced_unasked,
    ]
}

const PACKETS: u32 = 1000;
const APP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const LOAD: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// A port that nobody listens at.
const CLOSED: u16 = 4001;
const LINK_ETHERNET: u16 = 1;
const LINK_RAW: u16 = 101;

/// Two namespaces with addresses, and a directory for files.
struct Rig {
    lab: Lab,
    directory: PathBuf,
}

impl Rig {
    fn new(name: &str, mtu: u32) -> Result<Self> {
        let lab = Lab::anonymous(&LabConfig {
            mtu,
            ..LabConfig::default()
        })?;
        for (side, address) in [(lab.app(), APP), (lab.load(), LOAD)] {
            let index = side.index()?;
            netns::run_in(side.netns(), || {
                Rtnetlink::open()?.add_address(index, address, 24)
            })?;
        }
        let directory = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
        fs::create_dir(&directory)?;
        Ok(Self { lab, directory })
    }

    fn file(&self) -> PathBuf {
        self.directory.join("drops.pcapng")
    }

    /// A capture of the application's side.
    fn capture(&self, options: Options) -> Result<Capture> {
        netns::run_in(self.lab.app().netns(), || {
            Capture::start(&self.file(), options)
        })
    }

    fn app_netns(&self) -> Result<u64> {
        Ok(netns::identity(self.lab.app().netns())?)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // A test that failed has said why.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn socket(side: &Side, port: u16) -> Result<UdpSocket> {
    socket_in(side.netns(), port)
}

fn socket_in(namespace: BorrowedFd<'_>, port: u16) -> Result<UdpSocket> {
    Ok(netns::run_in(namespace, || {
        UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))
    })?)
}

/// A packet's payload: its number, and bytes that follow from it.
fn payload(number: u32, length: usize) -> Vec<u8> {
    let fill = (4..length).map(|place| (number as usize * 7 + place) as u8);
    number.to_be_bytes().into_iter().chain(fill).collect()
}

/// Sends packets, few at a time: the queue of a veth takes 256.
fn send(
    from: &UdpSocket,
    port: u16,
    numbers: impl IntoIterator<Item = u32>,
    length: usize,
    mut has_come: impl FnMut(u64) -> Result<bool>,
) -> Result<()> {
    let mut sent = 0;
    for number in numbers {
        from.send_to(&payload(number, length), (APP, port))?;
        sent += 1;
        if sent % 100 == 0 {
            until("packets come", || has_come(sent))?;
        }
    }
    until("packets come", || has_come(sent))
}

/// The ledger's counts of a namespace, by reason.
fn counted(events: &mut Events, netns: u64) -> Result<BTreeMap<String, u64>> {
    let mut reasons = BTreeMap::new();
    for drop in events.count()?.drops {
        if drop.netns == netns {
            *reasons.entry(drop.reason).or_default() += drop.skbs;
        }
    }
    Ok(reasons)
}

fn count_of(reasons: &BTreeMap<String, u64>, reason: &str) -> u64 {
    reasons.get(reason).copied().unwrap_or_default()
}

/// The packets of a file as a reader of its own sees them.
#[derive(Debug, Default)]
struct Read {
    interfaces: Vec<ReadInterface>,
    packets: Vec<ReadPacket>,
    /// For each interface: received, accepted, lost, written.
    statistics: BTreeMap<u32, [u64; 4]>,
}

#[derive(Debug)]
struct ReadInterface {
    link: u16,
    name: String,
    description: String,
}

#[derive(Debug, Default)]
struct ReadPacket {
    interface: u32,
    time: u64,
    bytes: Vec<u8>,
    length: u32,
    comment: String,
    custom: String,
    flags: u32,
    lost: u64,
}

/// Little-endian numbers, as the writer has them on any machine.
fn word(bytes: &[u8], place: usize) -> Result<u32> {
    let bytes = bytes.get(place..place + 4).context("the file is cut")?;
    Ok(u32::from_le_bytes(bytes.try_into()?))
}

fn long(bytes: &[u8]) -> Result<u64> {
    Ok(u64::from_le_bytes(bytes.try_into()?))
}

fn options(mut bytes: &[u8]) -> Result<BTreeMap<u16, Vec<u8>>> {
    let mut options = BTreeMap::new();
    loop {
        let head = word(bytes, 0)?;
        let (code, length) = (head as u16, (head >> 16) as usize);
        if code == 0 {
            return Ok(options);
        }
        let value = bytes.get(4..4 + length).context("an option is cut")?;
        options.insert(code, value.to_vec());
        bytes = bytes
            .get(4 + length.next_multiple_of(4)..)
            .context("an option is cut")?;
    }
}

fn text(options: &BTreeMap<u16, Vec<u8>>, code: u16) -> Result<String> {
    let bytes = options
        .get(&code)
        .with_context(|| format!("no option {code}"))?;
    Ok(String::from_utf8(bytes.clone())?)
}

impl Read {
    fn file(path: &Path) -> Result<Self> {
        let file = fs::read(path)?;
        let mut read = Self::default();
        let mut rest = &file[..];
        while !rest.is_empty() {
            let length = word(rest, 4)? as usize;
            let block = rest.get(..length).context("a block is cut")?;
            ensure!(
                word(block, length - 4)? as usize == length,
                "the ends of a block differ"
            );
            read.block(word(block, 0)?, &block[8..length - 4])?;
            rest = &rest[length..];
        }
        Ok(read)
    }

    fn block(&mut self, kind: u32, body: &[u8]) -> Result<()> {
        match kind {
            0x0a0d_0d0a => ensure!(word(body, 0)? == 0x1a2b_3c4d, "another byte order"),
            1 => {
                let options = options(&body[8..])?;
                ensure!(
                    options.get(&9) == Some(&vec![9]),
                    "times are not in nanoseconds"
                );
                self.interfaces.push(ReadInterface {
                    link: word(body, 0)? as u16,
                    name: text(&options, 2)?,
                    description: text(&options, 3)?,
                });
            }
            5 => {
                let options = options(&body[12..])?;
                let counts = [4, 6, 7, 8].map(|code| long(&options[&code]));
                let [received, accepted, lost, written] = counts;
                let counts = [received?, accepted?, lost?, written?];
                self.statistics.insert(word(body, 0)?, counts);
            }
            6 => self.packet(body)?,
            other => anyhow::bail!("a block of type {other}"),
        }
        Ok(())
    }

    fn packet(&mut self, body: &[u8]) -> Result<()> {
        let captured = word(body, 12)? as usize;
        let options = options(&body[20 + captured.next_multiple_of(4)..])?;
        let custom = &options[&2988];
        ensure!(word(custom, 0)? == 32473, "another enterprise");
        self.packets.push(ReadPacket {
            interface: word(body, 0)?,
            time: u64::from(word(body, 4)?) << 32 | u64::from(word(body, 8)?),
            bytes: body[20..20 + captured].to_vec(),
            length: word(body, 16)?,
            comment: text(&options, 1)?,
            custom: String::from_utf8(custom[4..].to_vec())?,
            flags: options.get(&2).map_or(Ok(0), |bytes| word(bytes, 0))?,
            lost: options.get(&4).map_or(Ok(0), |bytes| long(bytes))?,
        });
        Ok(())
    }
}

impl ReadPacket {
    /// The destination port and the payload of a UDP packet, after `link` bytes.
    fn udp(&self, link: usize) -> Result<(u16, &[u8])> {
        let ip = self.bytes.get(link..).context("no IP header")?;
        ensure!(
            ip.len() >= 28 && ip[0] == 0x45 && ip[9] == 17,
            "no UDP: {ip:x?}"
        );
        Ok((u16::from_be_bytes([ip[22], ip[23]]), &ip[28..]))
    }
}

/// The numbers in the payloads, in the file's order. Each payload is checked.
fn numbers(packets: &[&ReadPacket], link: usize, length: usize) -> Result<Vec<u32>> {
    let numbers = packets.iter().map(|packet| {
        let (_, bytes) = packet.udp(link)?;
        let number = u32::from_be_bytes(bytes[..4].try_into()?);
        ensure!(
            bytes == payload(number, length),
            "the payload of {number} is {bytes:x?}"
        );
        Ok(number)
    });
    numbers.collect()
}

/// Every freed packet has one end.
fn ensure_it_adds_up(report: &CaptureReport) -> Result<()> {
    let it = &report.counts;
    let ends = [
        it.written,
        it.lost,
        it.normal,
        it.other_devices,
        it.late,
        it.no_packets,
    ];
    ensure!(it.seen == ends.iter().sum::<u64>(), "{report:?}");
    ensure!(report.missed == 0, "{report:?}");
    Ok(())
}

fn every_lost_packet_is_in_the_file() -> Result<()> {
    const OPEN: u16 = 4000;
    const LENGTH: usize = 40;
    let rig = Rig::new("drops", 1500)?;
    let (app, load) = (rig.lab.app(), rig.lab.load());
    let netns = rig.app_netns()?;
    let receiver = socket(app, OPEN)?;
    set_socket_recv_buffer_size(&receiver, 4096)?;
    receiver.set_nonblocking(true)?;
    let sender = socket(load, 0)?;
    let began = realtime_ns();
    let mut events = Events::attach(false)?;
    let capture = rig.capture(Options::default())?;
    let before = app.counters()?.rx_packets;
    // With those that fill the buffer.
    send(&sender, OPEN, 0..PACKETS + 64, LENGTH, |sent| {
        Ok(app.counters()?.rx_packets - before >= sent)
    })?;
    send(&sender, CLOSED, 0..PACKETS, LENGTH, |sent| {
        Ok(count_of(&counted(&mut events, netns)?, "NO_SOCKET") >= sent)
    })?;
    // Another namespace's losses are not ours.
    let other = socket(app, 0)?;
    for number in 0..10 {
        other.send_to(&payload(number, LENGTH), (LOAD, CLOSED))?;
    }
    let load_netns = netns::identity(load.netns())?;
    until("packets come", || {
        Ok(count_of(&counted(&mut events, load_netns)?, "NO_SOCKET") == 10)
    })?;
    let mut got = Vec::new();
    let mut buffer = [0; 2048];
    while let Ok(length) = receiver.recv(&mut buffer) {
        let number = u32::from_be_bytes(buffer[..4].try_into()?);
        ensure!(
            buffer[..length] == payload(number, LENGTH),
            "the receiver got {number}"
        );
        got.push(number);
    }
    let report = capture.finish()?;
    let ended = realtime_ns();
    let reasons = counted(&mut events, netns)?;
    let read = Read::file(&rig.file())?;

    let lost: Vec<u32> = (0..PACKETS + 64)
        .filter(|number| !got.contains(number))
        .collect();
    ensure!(
        lost.len() >= PACKETS as usize,
        "only {} were lost",
        lost.len()
    );
    let ends = [
        (
            "SOCKET_RCVBUFF",
            OPEN,
            lost,
            "the receive buffer of a socket was full",
        ),
        (
            "NO_SOCKET",
            CLOSED,
            (0..PACKETS).collect(),
            "no UDP socket has its port",
        ),
    ];
    for (reason, port, expected, meaning) in &ends {
        let of_reason = |packet: &&ReadPacket| packet.comment.starts_with(reason);
        let packets: Vec<&ReadPacket> = read.packets.iter().filter(of_reason).collect();
        ensure!(
            numbers(&packets, 14, LENGTH)? == *expected,
            "{reason}: others than were lost"
        );
        ensure!(
            count_of(&reasons, reason) == expected.len() as u64,
            "{reasons:?}"
        );
        for packet in packets {
            ensure!(
                packet.udp(14)?.0 == *port && packet.interface == 0,
                "{packet:?}"
            );
            ensure!(packet.length == 14 + 28 + LENGTH as u32, "{packet:?}");
            ensure!(
                packet.bytes[..6] == app.mac && packet.bytes[6..12] == load.mac,
                "{packet:?}"
            );
            let (comment, custom) = (&packet.comment, &packet.custom);
            ensure!(comment.starts_with(&format!("{reason} at ")), "{comment}");
            ensure!(comment.ends_with(&format!(": {meaning}")), "{comment}");
            let head = format!("weir.drop reason={reason} place=");
            let end = format!(
                " class=lost netns={netns} ifindex={} segments=1",
                app.index()?
            );
            ensure!(
                custom.starts_with(&head) && custom.ends_with(&end),
                "{custom}"
            );
            // In, with a checksum.
            ensure!(packet.flags == 1 && packet.lost == 0, "{packet:?}");
        }
    }
    let total = read.packets.len() as u64;
    ensure!(
        total == reasons.values().sum::<u64>(),
        "{total} in the file, counted {reasons:?}"
    );
    ensure!(
        report.counts.written == total && report.counts.seen == total,
        "{report:?}"
    );
    ensure_it_adds_up(&report)?;
    ensure!(
        report.bytes == fs::metadata(rig.file())?.len(),
        "{report:?}"
    );
    let [interface] = &read.interfaces[..] else {
        anyhow::bail!("{:?}", read.interfaces);
    };
    ensure!(
        (interface.link, &*interface.name) == (LINK_ETHERNET, "weir0"),
        "{interface:?}"
    );
    ensure!(
        interface.description.contains(&format!("net:[{netns}]")),
        "{interface:?}"
    );
    ensure!(
        read.statistics[&0] == [total, total, 0, total],
        "{:?}",
        read.statistics
    );
    let times: Vec<u64> = read.packets.iter().map(|packet| packet.time).collect();
    ensure!(times.is_sorted(), "times go back");
    ensure!(
        times[0] >= began && times[times.len() - 1] <= ended,
        "times are of another run"
    );
    read_by_tshark(&rig.file(), &read)
}

/// tshark and the reader of these tests agree.
fn read_by_tshark(file: &Path, read: &Read) -> Result<()> {
    let fields = [
        "frame.comment",
        "udp.dstport",
        "udp.payload",
        "frame.interface_name",
        "frame.time_epoch",
    ];
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(file).args(["-T", "fields"]);
    for field in fields {
        tshark.args(["-e", field]);
    }
    let output = match tshark.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(skip(
                "tshark is not installed; our own reader found no fault",
            ));
        }
        output => output.context("cannot run tshark")?,
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "tshark: {stderr}");
    let lines = String::from_utf8(output.stdout)?;
    let mut seen = lines.lines();
    for packet in &read.packets {
        let (port, payload) = packet.udp(14)?;
        let payload = payload
            .iter()
            .fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        let (seconds, rest) = (packet.time / 1_000_000_000, packet.time % 1_000_000_000);
        let comment = &packet.comment;
        let expected = format!("{comment}\t{port}\t{payload}\tweir0\t{seconds}.{rest:09}");
        ensure!(
            seen.next() == Some(&*expected),
            "tshark does not show {expected}"
        );
    }
    ensure!(seen.next().is_none(), "tshark shows more");
    Ok(())
}

/// So that a `kill -9` leaves earlier packets.
fn a_file_is_whole_while_it_grows() -> Result<()> {
    let rig = Rig::new("grows", 1500)?;
    let sender = socket(rig.lab.load(), 0)?;
    let capture = rig.capture(Options::default())?;
    ensure!(
        Read::file(&rig.file())?.packets.is_empty(),
        "it begins with packets"
    );
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(rig.file())?.permissions());
    let others = mode & 0o077;
    ensure!(others == 0, "others may read packets: {mode:o}");
    for round in 1..=5 {
        for number in 0..100 {
            sender.send_to(&payload(number, 40), (APP, CLOSED))?;
        }
        until("packets are in the file", || {
            // A reader can be in the middle of a write.
            let read = Read::file(&rig.file());
            Ok(read.is_ok_and(|read| read.packets.len() == round * 100))
        })?;
    }
    drop(capture);
    let read = Read::file(&rig.file())?;
    ensure!(
        read.statistics.len() == 1,
        "a capture that is dropped does not end its file"
    );
    Ok(())
}

/// `weir ledger` is killed, and it is asked to end.
fn a_file_survives_its_writer() -> Result<()> {
    for (signal, code) in [(Signal::KILL, None), (Signal::TERM, Some(130))] {
        let rig = Rig::new("survives", 1500)?;
        let sender = socket(rig.lab.load(), 0)?;
        let mut command = weir();
        command
            .args(["ledger", "--seconds", "600", "--write"])
            .arg(rig.file());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = rig.lab.app().spawn(&mut command)?;
        let packets = || Read::file(&rig.file()).map_or(0, |read| read.packets.len());
        // Until it is there nothing is captured.
        let mut number = 0;
        until("packets are in the file", || {
            sender.send_to(&payload(number, 40), (APP, CLOSED))?;
            number += 1;
            Ok(packets() >= 20)
        })?;
        let before = packets();
        kill_process(Pid::from_child(&child), signal)?;
        ensure!(child.wait()?.code() == code, "another exit status");
        let read = Read::file(&rig.file())?;
        let all: Vec<&ReadPacket> = read.packets.iter().collect();
        let numbers = numbers(&all, 14, 40)?;
        ensure!(numbers.len() >= before, "packets are gone");
        ensure!(
            numbers.windows(2).all(|pair| pair[1] == pair[0] + 1),
            "{numbers:?}"
        );
        ensure!(
            read.statistics.len() == usize::from(code.is_some()),
            "{:?}",
            read.statistics
        );
    }
    Ok(())
}

/// A program of tc drops frames whose tag the kernel keeps beside them.
fn a_frame_is_as_it_was_sent() -> Result<()> {
    let rig = Rig::new("frames", 1500)?;
    let (app, load) = (rig.lab.app(), rig.lab.load());
    let addresses = [app.mac, load.mac].concat();
    // Without a tag, with one, with two, with one of a provider.
    let tags: [&[u8]; 4] = [
        &[],
        &[0x81, 0, 0x60, 7],
        &[0x81, 0, 0, 7, 0x81, 0, 0, 8],
        &[0x88, 0xa8, 0, 9],
    ];
    let frames = tags.map(|tags| [&addresses, tags, &[0x88, 0xb5], &payload(5, 90)].concat());
    let index = app.index()?;
    let _sink = netns::run_in(app.netns(), || {
        StationSink::attach(index, 64, 1, SinkHook::Tcx)
    })?;
    let netns = rig.app_netns()?;
    let mut events = Events::attach(false)?;
    let capture = rig.capture(Options::default())?;
    let sender = packets(load)?;
    for frame in &frames {
        sender.send(frame)?;
    }
    until("frames come", || {
        Ok(counted(&mut events, netns)?.values().sum::<u64>() >= frames.len() as u64)
    })?;
    ensure_it_adds_up(&capture.finish()?)?;
    let read = Read::file(&rig.file())?;
    ensure!(read.packets.len() == frames.len(), "{:?}", read.packets);
    for (frame, packet) in frames.iter().zip(&read.packets) {
        ensure!(packet.bytes == *frame, "sent {frame:x?}: {packet:x?}");
        ensure!(
            packet.length as usize == frame.len() && packet.flags == 1,
            "{packet:?}"
        );
    }
    Ok(())
}

/// Packets for a neighbour that does not answer: they have no MAC header yet.
fn a_packet_without_mac_header_is_an_ip_packet() -> Result<()> {
    const NOBODY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
    let rig = Rig::new("output", 1500)?;
    let netns = rig.app_netns()?;
    let sender = socket(rig.lab.app(), 0)?;
    // More than a neighbour's queue takes (net.ipv4.neigh.*.unres_qlen_bytes).
    set_socket_send_buffer_size(&sender, 4 << 20)?;
    let mut events = Events::attach(false)?;
    let capture = rig.capture(Options::default())?;
    for number in 0..PACKETS {
        sender.send_to(&payload(number, 40), (NOBODY, CLOSED))?;
    }
    until("packets are dropped", || {
        Ok(!counted(&mut events, netns)?.is_empty())
    })?;
    let report = capture.finish()?;
    ensure_it_adds_up(&report)?;
    let read = Read::file(&rig.file())?;
    let [interface] = &read.interfaces[..] else {
        anyhow::bail!("{:?}", read.interfaces);
    };
    ensure!(
        (interface.link, &*interface.name) == (LINK_RAW, "weir0"),
        "{interface:?}"
    );
    let packets: Vec<&ReadPacket> = read.packets.iter().collect();
    let numbers = numbers(&packets, 0, 40)?;
    ensure!(!numbers.is_empty() && numbers.is_sorted(), "{numbers:?}");
    for packet in packets {
        ensure!(packet.length as usize == packet.bytes.len(), "{packet:?}");
        ensure!(packet.flags & 3 == 2, "not outbound: {packet:?}");
        ensure!(packet.comment.starts_with("NEIGH_"), "{packet:?}");
    }
    Ok(())
}

fn a_packet_is_cut() -> Result<()> {
    let rig = Rig::new("cut", 3000)?;
    let sender = socket(rig.lab.load(), 0)?;
    for snaplen in [1, 60, 128, 129, 512, 1000, 2048, 16384] {
        let netns = rig.app_netns()?;
        let mut events = Events::attach(false)?;
        let capture = rig.capture(Options {
            snaplen,
            replace: true,
            ..Options::default()
        })?;
        for (number, length) in (0..).zip([4, 60, 200, 1400, 2900]) {
            sender.send_to(&payload(number, length), (APP, CLOSED))?;
        }
        until("packets come", || {
            Ok(count_of(&counted(&mut events, netns)?, "NO_SOCKET") == 5)
        })?;
        ensure!(
            capture.finish()?.counts.written == 5,
            "not all at {snaplen}"
        );
        let read = Read::file(&rig.file())?;
        for ((number, length), packet) in (0..).zip([4, 60, 200, 1400, 2900]).zip(&read.packets) {
            let whole = 14 + 28 + length;
            ensure!(packet.length as usize == whole, "{packet:?}");
            ensure!(
                packet.bytes.len() == whole.min(snaplen as usize),
                "{packet:?}"
            );
            let seen = packet.bytes.get(14 + 28..).unwrap_or_default();
            ensure!(payload(number, length).starts_with(seen), "{packet:?}");
        }
    }
    Ok(())
}

/// A packet that is larger than the ring never fits, whatever the reader does.
fn a_full_ring_is_counted() -> Result<()> {
    let rig = Rig::new("full", 3000)?;
    let netns = rig.app_netns()?;
    let sender = socket(rig.lab.load(), 0)?;
    let mut events = Events::attach(false)?;
    let options = Options {
        snaplen: 16384,
        ring_bytes: 4096,
        ..Options::default()
    };
    let capture = rig.capture(options)?;
    // The kernel receives where this sends: losses are told by the next record of the same CPU.
    let mut cpus = CpuSet::new();
    cpus.set(a_cpu()?);
    thread::scope(|scope| -> Result<()> {
        let sending = scope.spawn(|| -> Result<()> {
            sched_setaffinity(None, &cpus)?;
            for number in 0..40 {
                let length = if number % 4 == 3 { 40 } else { 2900 };
                sender.send_to(&payload(number, length), (APP, CLOSED))?;
            }
            Ok(())
        });
        sending.join().expect("no panic")
    })?;
    until("packets come", || {
        Ok(count_of(&counted(&mut events, netns)?, "NO_SOCKET") == 40)
    })?;
    let report = capture.finish()?;
    ensure_it_adds_up(&report)?;
    ensure!(
        (report.counts.written, report.counts.lost) == (10, 30),
        "{report:?}"
    );
    let read = Read::file(&rig.file())?;
    for packet in &read.packets {
        ensure!(packet.lost == 3, "{packet:?}");
    }
    ensure!(
        read.statistics[&0] == [40, 40, 30, 10],
        "{:?}",
        read.statistics
    );
    Ok(())
}

/// A frame for another host's MAC address ends in normal operation.
fn normal_frees_are_left_out() -> Result<()> {
    let rig = Rig::new("normal", 1500)?;
    let netns = rig.app_netns()?;
    let load = rig.lab.load();
    let addresses = [[2, 0, 0, 0, 0, 0x99], load.mac].concat();
    let sender = packets(load)?;
    for normal in [false, true] {
        let mut events = Events::attach(false)?;
        let capture = rig.capture(Options {
            normal,
            replace: true,
            ..Options::default()
        })?;
        for number in 0..PACKETS {
            // An IPv4 header, as far as anybody looks.
            let head = [&addresses, &[8, 0, 0x45][..]].concat();
            sender.send(&[head, payload(number, 60)].concat())?;
            if (number + 1) % 100 == 0 {
                until("frames come", || {
                    Ok(count_of(&counted(&mut events, netns)?, "OTHERHOST") > u64::from(number))
                })?;
            }
        }
        let report = capture.finish()?;
        ensure_it_adds_up(&report)?;
        let counts = report.counts;
        let ends = if normal { (PACKETS, 0) } else { (0, PACKETS) };
        let ends = (u64::from(ends.0), u64::from(ends.1));
        ensure!((counts.written, counts.normal) == ends, "{report:?}");
        let read = Read::file(&rig.file())?;
        ensure!(read.packets.len() as u64 == counts.written, "{report:?}");
        for packet in read.packets {
            ensure!(packet.custom.contains(" class=not_lost "), "{packet:?}");
        }
    }
    Ok(())
}

fn a_limit_ends_the_file() -> Result<()> {
    let rig = Rig::new("limit", 1500)?;
    let sender = socket(rig.lab.load(), 0)?;
    let limits = [
        Options {
            max_packets: 10,
            ..Options::default()
        },
        Options {
            max_bytes: 4000,
            ..Options::default()
        },
    ];
    for limits in limits {
        let (max_packets, max_bytes) = (limits.max_packets, limits.max_bytes);
        let capture = rig.capture(Options {
            replace: true,
            ..limits
        })?;
        for number in 0..100 {
            sender.send_to(&payload(number, 40), (APP, CLOSED))?;
        }
        until("the file ends", || Ok(capture.is_over()))?;
        let report = capture.finish()?;
        ensure_it_adds_up(&report)?;
        let why = report
            .stopped
            .as_deref()
            .context("it does not say that it stopped")?;
        let read = Read::file(&rig.file())?;
        let packets = read.packets.len() as u64;
        ensure!(
            packets == report.counts.written && report.counts.late > 0,
            "{report:?}"
        );
        if max_packets == 10 {
            ensure!(packets == 10 && why.contains("10 packets"), "{report:?}");
        } else {
            let size = 1 + packets;
            ensure!(
                size * 200 < max_bytes && why.contains("4000 bytes"),
                "{report:?}"
            );
            // The statistics come on top.
            ensure!(report.bytes <= max_bytes + 200 && packets > 5, "{report:?}");
        }
        ensure!(read.statistics[&0][3] == packets, "{:?}", read.statistics);
    }
    Ok(())
}

fn other_devices_are_left_out() -> Result<()> {
    let rig = Rig::new("devices", 1500)?;
    let netns = rig.app_netns()?;
    let sender = socket(rig.lab.load(), 0)?;
    for (device, written) in [("weir0", 10), ("weir9", 0)] {
        let mut options = Options {
            replace: true,
            ..Options::default()
        };
        options.scope.devices = vec![device.into()];
        let mut events = Events::attach(false)?;
        let capture = rig.capture(options)?;
        for number in 0..10 {
            sender.send_to(&payload(number, 40), (APP, CLOSED))?;
        }
        until("packets come", || {
            Ok(count_of(&counted(&mut events, netns)?, "NO_SOCKET") == 10)
        })?;
        let report = capture.finish()?;
        ensure_it_adds_up(&report)?;
        let counts = report.counts;
        ensure!(
            (counts.written, counts.other_devices) == (written, 10 - written),
            "{report:?}"
        );
    }
    Ok(())
}

fn files_are_not_replaced_unasked() -> Result<()> {
    let rig = Rig::new("replace", 1500)?;
    fs::write(rig.file(), "mine")?;
    let refused = |path: &Path, options: Options| -> Result<String> {
        let refused = Capture::start(path, options)
            .err()
            .context("it was not refused")?;
        Ok(format!("{refused:#}"))
    };
    let said = refused(&rig.file(), Options::default())?;
    ensure!(
        said.contains("exists") && said.contains("--force"),
        "{said}"
    );
    ensure!(fs::read(rig.file())? == b"mine", "it was replaced");
    let replace = || Options {
        replace: true,
        ..Options::default()
    };
    let said = refused(&rig.directory, replace())?;
    ensure!(said.contains("is not a regular file"), "{said}");
    let said = refused(Path::new("/nonexistent/drops.pcapng"), replace())?;
    ensure!(said.contains("does its directory exist"), "{said}");
    // A link of somebody else's leads nowhere.
    let link = rig.directory.join("link");
    std::os::unix::fs::symlink(rig.file(), &link)?;
    let said = refused(&link, replace())?;
    ensure!(said.contains("is not a regular file"), "{said}");
    for snaplen in [0, 16385] {
        let said = refused(
            &rig.file(),
            Options {
                snaplen,
                ..replace()
            },
        )?;
        ensure!(said.contains("from 1 to 16384"), "{said}");
    }
    ensure!(fs::read(rig.file())? == b"mine", "it was replaced");
    rig.capture(replace())?.finish()?;
    Read::file(&rig.file())?;
    Ok(())
}
