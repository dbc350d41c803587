//! Metadata of packets that are sent: requests for a checksum, a timestamp and a launch time; and of those that
//! are received: hints of the driver.

use crate::budget::STALL;
use crate::netns::{Lab, are_cards, umem_builder};
use crate::traffic::{all_home, drain, exchange, flush_checked, receive_all, receive_checked};
use crate::{Outcome, modes, needs, packet};
use hostnet::ethtool::{self, Offload};
use rustix::time::{DynamicClockId, clock_gettime_dynamic};
use std::collections::{HashMap, HashSet};
use std::net::UdpSocket;
use std::time::Duration;
use testkit::{Skip, Test, skip, wait_until};
use xsk::testing::programs;
use xsk::{
    ErrorKind, Filter, Fragments, Mode, Packet, Received, Rule, RxHints, SendErrorKind, Socket,
    TX_METADATA_LEN, TxRequest, TxTimestamp, Umem,
};

/// Packets in a test.
const PACKETS: u64 = 1024;
/// Packets for each flush, fewer than a veth has room for.
const BURST: u64 = 64;
/// Where a checksum starts, and its place from there.
const START: u16 = 14;
const PLACE: u16 = 12;

type Body = fn(Mode) -> Outcome;

const CASES: [(&str, Body); 10] = [
    ("TX metadata: checksum", checksums),
    ("TX metadata: timestamps", timestamps),
    ("TX metadata: packets of several chunks", several_chunks),
    ("TX metadata: every way to send", every_way),
    ("TX metadata: halves, siblings, fragments", others),
    ("TX metadata: launch time", launch_time),
    ("TX metadata: bad input", bad_input),
    ("RX hints: hash and VLAN tag", |mode| hints(mode, false)),
    ("RX hints: of packets of several chunks", |mode| {
        hints(mode, true)
    }),
    ("RX hints: refused", refused_hints),
];

pub fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for (name, body) in CASES {
        for (prefix, mode) in modes() {
            let need = if name.starts_with("TX") {
                needs::TX_METADATA
            } else {
                needs::RX_HINTS
            };
            let test = Test::new(format!("{prefix} {name}"), move || body(mode));
            tests.push(test.needing(&[need]));
        }
    }
    tests
}

fn umem() -> xsk::Result<Umem> {
    umem_builder()
        .chunks(1024)
        .headroom(16)
        .tx_metadata(true)
        .build()
}

/// Whether a packet has the checksum of its bytes: the ones' complement sum of all words, with it, is -0.
fn sums_up(bytes: &[u8]) -> bool {
    let words = bytes[usize::from(START)..].chunks(2);
    let word = |pair: &[u8]| u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0));
    let mut sum: u64 = words.map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum == 0xffff
}

/// A veth leaves sums that were asked for to the host that takes the packet, unless its own kernel sums, as with `ethtool -K DEVICE
/// tx off`. A card sums by itself.
fn lab_that_sums() -> crate::Result<Lab> {
    let lab = Lab::new()?;
    if !are_cards() {
        let off = || ethtool::set(lab.tx.device, Offload::TxChecksum, false);
        lab.tx.inside(off)?;
    }
    Ok(lab)
}

fn place(bytes: &mut [u8]) -> &mut [u8] {
    let at = usize::from(START + PLACE);
    &mut bytes[at..at + 2]
}

fn checksums(mode: Mode) -> Outcome {
    let (lab, umem) = (lab_that_sums()?, umem()?);
    let rx_umem = umem_builder().chunks(1024).build()?;
    let mut rx = lab.rx.open(&rx_umem, mode, |builder| builder)?;
    let mut tx = lab.tx.open(&umem, mode, |builder| builder.rx_ring(0))?;
    if !tx.tx_support().checksum {
        return without(&mut tx, &TxRequest::new().checksum(START, PLACE));
    }
    let asks = |sequence: u64| !sequence.is_multiple_of(3);
    // Odd lengths as well.
    let len = |sequence: u64| packet::MIN + (sequence % 900) as usize;
    exchange(
        |flight| {
            for sequence in 0..PACKETS {
                flight.wait_for_room(sequence, || tx.flush().expect("flush"));
                let mut frame = tx.alloc().expect("fewer in flight than free");
                packet::fill(&mut frame, 0, sequence, len(sequence));
                place(&mut frame).fill(0);
                let request = TxRequest::new().checksum(START, PLACE);
                let sent = if asks(sequence) {
                    tx.send_with(frame, &request)
                } else {
                    tx.send(frame)
                };
                sent.map_err(|unsent| unsent.kind).expect("room in TX");
                flush_checked(&mut tx);
            }
            drain(&mut tx);
        },
        |flight| {
            receive_checked(&mut rx, 0..PACKETS, flight, |packet, sequence| {
                assert_eq!(packet.len(), len(sequence));
                assert_eq!(packet::sequence(packet), sequence);
                let is_summed = sums_up(packet);
                assert_eq!(is_summed, asks(sequence), "packet {sequence}");
            });
        },
    );
    let statistics = tx.statistics()?;
    assert_eq!((statistics.sent, statistics.completed), (PACKETS, PACKETS));
    assert_eq!(statistics.tx_invalid_descs, 0);
    drop((rx, tx));
    all_home(&umem);
    Ok(())
}

/// Packets gathered from two frames, of which the first one has the metadata.
fn several_chunks(mode: Mode) -> Outcome {
    const SPLIT: usize = packet::MIN;
    if mode == Mode::ZeroCopy {
        let reason = "no card here takes packets of several buffers";
        return Err(skip(reason));
    }
    let (lab, rx_umem) = (lab_that_sums()?, umem_builder().chunks(1024).build()?);
    let umem = umem_builder().chunks(1024).tx_metadata(true);
    let umem = umem.fragments(true).build()?;
    let mut rx = lab.rx.open(&rx_umem, mode, |builder| builder)?;
    let mut tx = lab.tx.open(&umem, mode, |builder| builder.rx_ring(0))?;
    let gather = |tx: &mut Socket, sequence: u64, split: usize| {
        let mut first = tx.alloc().expect("fewer in flight than free");
        packet::fill(&mut first, 0, sequence, 1000 + sequence as usize);
        place(&mut first).fill(0);
        let mut rest = tx.alloc().expect("fewer in flight than free");
        rest.fill_with(&first[split..]).expect("room");
        first.resize(split).expect("shorter");
        let mut packet = Fragments::from(first);
        packet.push(rest).expect("two frames");
        packet.set_request(TxRequest::new().checksum(START, PLACE).timestamp(sequence));
        tx.send_fragments(packet)
    };
    let unsent = gather(&mut tx, 0, usize::from(START + PLACE + 1));
    let kind = unsent.expect_err("its place is in both frames").kind;
    assert_eq!(kind, SendErrorKind::Checksum);
    exchange(
        |flight| {
            for sequence in 0..64 {
                flight.wait_for_room(sequence, || tx.flush().expect("flush"));
                let sent = gather(&mut tx, sequence, SPLIT);
                sent.map_err(|unsent| unsent.kind).expect("room in TX");
                flush_checked(&mut tx);
            }
            drain(&mut tx);
        },
        |flight| {
            receive_checked(&mut rx, 0..64, flight, |packet, sequence| {
                assert_eq!(packet.len(), 1000 + sequence as usize);
                assert_eq!(packet::sequence(packet), sequence);
                assert!(sums_up(packet), "packet {sequence}");
            });
        },
    );
    let times = std::iter::from_fn(|| tx.take_tx_timestamp());
    assert!(
        times.map(|time| time.tag).eq(0..64),
        "one time for each packet"
    );
    assert_eq!(tx.statistics()?.tx_invalid_descs, 0);
    drop((rx, tx));
    all_home(&umem);
    Ok(())
}

/// A request that the socket has no support for is refused, and the packet comes back.
fn without(tx: &mut Socket, request: &TxRequest) -> Outcome {
    let mut frame = tx.alloc().ok_or("a frame")?;
    packet::fill(&mut frame, 0, 7, packet::MIN);
    let unsent = tx.send_with(frame, request).expect_err("refused");
    assert_eq!(unsent.kind, SendErrorKind::Unsupported);
    packet::check(&unsent.packet, 7);
    assert_eq!(tx.outstanding(), 0);
    Ok(())
}

/// Now by `CLOCK_TAI`, in nanoseconds.
fn now() -> u64 {
    let now = clock_gettime_dynamic(DynamicClockId::Tai).expect("the clock");
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn timestamps(mode: Mode) -> Outcome {
    let (lab, umem) = (Lab::new()?, umem()?);
    let rx_umem = umem_builder().chunks(1024).build()?;
    let mut rx = lab.rx.open(&rx_umem, mode, |builder| builder)?;
    let mut tx = lab.tx.open(&umem, mode, |builder| builder.rx_ring(0))?;
    if !tx.tx_support().timestamp {
        return without(&mut tx, &TxRequest::new().timestamp(1));
    }
    let begin = now();
    let mut taken: Vec<TxTimestamp> = Vec::new();
    exchange(
        |flight| {
            for sequence in 0..PACKETS {
                flight.wait_for_room(sequence, || tx.flush().expect("flush"));
                let mut frame = tx.alloc().expect("fewer in flight than free");
                // At an odd address too: the kernel completes it with another one.
                let shift = i32::from(sequence % 2 == 1);
                frame.resize(1).expect("room");
                frame.adjust_head(shift).expect("a byte");
                frame.adjust_tail(shift - 1).expect("a byte");
                packet::fill(&mut frame, 0, sequence, packet::MIN);
                let sent = if sequence % 4 == 3 {
                    tx.send(frame)
                } else {
                    tx.send_with(frame, &TxRequest::new().timestamp(sequence))
                };
                sent.map_err(|unsent| unsent.kind).expect("room in TX");
                if sequence % 8 == 7 {
                    flush_checked(&mut tx);
                }
                taken.extend(std::iter::from_fn(|| tx.take_tx_timestamp()));
            }
            drain(&mut tx);
        },
        |flight| receive_all(&mut rx, 0..PACKETS, packet::MIN, flight),
    );
    taken.extend(std::iter::from_fn(|| tx.take_tx_timestamp()));
    let end = now();
    let mut tags: Vec<u64> = taken.iter().map(|time| time.tag).collect();
    tags.sort_unstable();
    let expected: Vec<u64> = (0..PACKETS).filter(|it| it % 4 != 3).collect();
    assert_eq!(tags, expected, "one time for each packet that asked");
    if !are_cards() {
        for time in &taken {
            let range = begin..=end;
            assert!(
                range.contains(&time.nanoseconds),
                "{time:?} outside {range:?}"
            );
        }
    }
    assert_eq!(tx.statistics()?.lost_timestamps, 0);
    drop((rx, tx));
    all_home(&umem);
    Ok(())
}

/// Packets there and back on UMEMs with metadata, each time sent in another way.
fn every_way(mode: Mode) -> Outcome {
    let lab = Lab::new()?;
    let umems = [umem()?, umem()?];
    let mut near = lab.tx.open(&umems[0], mode, |builder| builder)?;
    let mut far = lab.rx.open(&umems[1], mode, |builder| builder)?;
    let mut sequence = 0;
    for round in 0..64 {
        let first = sequence;
        while sequence < first + BURST {
            let size = packet::MIN;
            match round % 4 {
                0 => {
                    let mut frame = near.alloc().ok_or("a frame")?;
                    assert_eq!(frame.headroom(), 16 + TX_METADATA_LEN);
                    packet::fill(&mut frame, 0, sequence, size);
                    near.send(frame).map_err(|unsent| unsent.kind.to_string())?;
                }
                1 => {
                    let sent = near.send_each(1, |room| {
                        packet::write(&mut room[..size], 0, sequence);
                        size
                    });
                    assert_eq!(sent, 1);
                }
                2 => {
                    let mut frames = vec![near.alloc().ok_or("a frame")?];
                    packet::fill(&mut frames[0], 0, sequence, size);
                    assert_eq!(near.send_frames(&mut frames), 1);
                }
                _ => {
                    let mut frame = near.alloc().ok_or("a frame")?;
                    packet::fill(&mut frame, 0, sequence, size);
                    let request = TxRequest::new().timestamp(sequence);
                    let can = near.tx_support().timestamp;
                    let request = if can { request } else { TxRequest::new() };
                    let sent = near.send_with(frame, &request);
                    sent.map_err(|unsent| unsent.kind.to_string())?;
                }
            }
            sequence += 1;
        }
        near.flush()?;
        let mut forwarded = 0;
        let there = wait_until(STALL, || {
            forwarded += forward(&mut far, round);
            near.flush().expect("flush");
            forwarded == BURST
        });
        assert!(there, "{forwarded} of {BURST} came, round {round}");
        let mut expected = first;
        let back = wait_until(STALL, || {
            far.flush().expect("flush");
            near.wait(Duration::from_millis(1)).expect("wait");
            let mut batch = near.recv(64);
            while let Some(packet) = batch.next_packet() {
                packet::check(&packet, expected);
                expected += 1;
            }
            expected == sequence
        });
        assert!(back, "back to {expected} of {sequence}, round {round}");
    }
    drain(&mut near);
    drain(&mut far);
    for socket in [&near, &far] {
        let statistics = socket.statistics()?;
        assert_eq!(statistics.sent, statistics.completed);
        let faults = (statistics.tx_invalid_descs, statistics.invalid_descs);
        assert_eq!(faults, (0, 0));
    }
    drop((near, far));
    umems.iter().for_each(all_home);
    Ok(())
}

/// Sends back what has come; returns the number of packets.
fn forward(far: &mut Socket, round: u32) -> u64 {
    let (mut count, room) = (0, far.tx_room());
    match round / 4 % 5 {
        0 => {
            let mut batch = far.recv(64);
            while let Some(packet) = batch.next_packet() {
                packet.send().map_err(|unsent| unsent.kind).expect("room");
                count += 1;
            }
        }
        1 => count = u64::from(far.forward_each(64, |packet: Received<'_, true>| packet.send())),
        2 => {
            let mut batch = far.recv(64);
            while let Some(frame) = batch.next_packet().map(Packet::keep) {
                batch
                    .send(frame)
                    .map_err(|unsent| unsent.kind)
                    .expect("room");
                count += 1;
            }
        }
        3 => {
            let mut batch = far.recv(64);
            while let Some(mut packet) = batch.next_packet() {
                // Through memory that was the packet's, and has what looks like a request.
                packet.adjust_head(-8).expect("headroom");
                packet[..8].fill(0xff);
                packet.adjust_head(8).expect("bytes");
                let sent = packet.send_with(&TxRequest::new());
                sent.map_err(|unsent| unsent.kind).expect("room");
                count += 1;
            }
        }
        _ => {
            let mut batch = far.recv(64);
            while let Some(mut packet) = batch.next_packet() {
                // Down to the metadata, and no further.
                let least = packet.headroom() - TX_METADATA_LEN;
                let delta = least.cast_signed();
                packet.adjust_head(-delta - 1).expect_err("the metadata's");
                packet.adjust_head(-delta).expect("headroom");
                packet.adjust_head(delta).expect("bytes");
                packet.send().map_err(|unsent| unsent.kind).expect("room");
                count += 1;
            }
        }
    }
    assert!(u64::from(room) >= count);
    far.flush().expect("flush");
    count
}

fn others(mode: Mode) -> Outcome {
    let lab = Lab::new()?;
    let umem = umem_builder()
        .chunks(512)
        .tx_metadata(true)
        .fragments(mode != Mode::ZeroCopy)
        .build()?;
    let rx_umem = umem_builder().chunks(512).build()?;
    let mut rx = lab.rx.open(&rx_umem, mode, |builder| builder)?;
    let mut tx = lab.tx.open(&umem, mode, |builder| builder.rx_ring(64))?;
    let id = lab.tx.inside(|| tx.add_sibling(0, 64))?;
    let request = if tx.tx_support().timestamp {
        TxRequest::new().timestamp(70)
    } else {
        TxRequest::new()
    };
    let mut frame = tx.alloc().ok_or("a frame")?;
    packet::fill(&mut frame, 0, 0, packet::MIN);
    let mut sibling = tx.sibling(id).ok_or("the sibling")?;
    sibling
        .send_with(frame, &request)
        .map_err(|unsent| unsent.kind.to_string())?;
    sibling.flush()?;
    if umem.fragments() {
        // Of two frames, in a packet that one chunk could have had.
        let mut frame = tx.alloc().ok_or("a frame")?;
        packet::fill(&mut frame, 0, 1, packet::MIN);
        let mut rest = tx.alloc().ok_or("a frame")?;
        rest.fill_with(&frame[40..])?;
        frame.resize(40)?;
        let mut packet = xsk::Fragments::new();
        packet.push(frame).map_err(|_| "room")?;
        packet.push(rest).map_err(|_| "room")?;
        tx.send_fragments(packet)
            .map_err(|unsent| unsent.kind.to_string())?;
    } else {
        let mut frame = tx.alloc().ok_or("a frame")?;
        packet::fill(&mut frame, 0, 1, packet::MIN);
        tx.send(frame).map_err(|unsent| unsent.kind.to_string())?;
    }
    drain(&mut tx);
    let (half, mut tx) = tx.split();
    let mut frame = tx.alloc().ok_or("a frame")?;
    packet::fill(&mut frame, 0, 2, packet::MIN);
    tx.send_with(frame, &request)
        .map_err(|unsent| unsent.kind.to_string())?;
    tx.flush()?;
    let done = wait_until(STALL, || {
        tx.flush().expect("flush");
        tx.outstanding() == 0
    });
    assert!(done, "never completed");
    if tx.tx_support().timestamp {
        let tags: Vec<_> = std::iter::from_fn(|| tx.take_tx_timestamp())
            .map(|time| time.tag)
            .collect();
        assert_eq!(tags, [70, 70], "that of the sibling's packet too");
    }
    exchange(
        |_| {},
        |flight| receive_all(&mut rx, 0..3, packet::MIN, flight),
    );
    assert_eq!(tx.statistics()?.tx_invalid_descs, 0);
    drop((half, tx));
    all_home(&umem);
    Ok(())
}

/// No device here has it: the request is refused before the kernel sees it.
fn launch_time(mode: Mode) -> Outcome {
    let (lab, umem) = (Lab::new()?, umem()?);
    let mut tx = lab.tx.open(&umem, mode, |builder| builder.rx_ring(0))?;
    assert!(!tx.tx_support().launch_time);
    without(&mut tx, &TxRequest::new().launch_time(now()))
}

fn bad_input(mode: Mode) -> Outcome {
    let (lab, umem) = (Lab::new()?, umem()?);
    let mut tx = lab.tx.open(&umem, mode, |builder| builder.tx_ring(64))?;
    let kind = |result: Result<(), xsk::SendError<xsk::Frame>>| {
        result.map_err(|unsent| unsent.kind).expect_err("refused")
    };
    let frame = |tx: &mut Socket| {
        let mut frame = tx.alloc().expect("a frame");
        packet::fill(&mut frame, 0, 0, packet::MIN);
        frame
    };
    if tx.tx_support().checksum {
        let end = packet::MIN as u16;
        for (start, offset) in [(end, 0), (end - 1, 0), (0, end - 1), (u16::MAX, u16::MAX)] {
            let (request, frame) = (TxRequest::new().checksum(start, offset), frame(&mut tx));
            assert_eq!(kind(tx.send_with(frame, &request)), SendErrorKind::Checksum);
        }
    }
    let empty = tx.alloc().ok_or("a frame")?;
    let refused = kind(tx.send_with(empty, &TxRequest::new()));
    assert_eq!(refused, SendErrorKind::Empty);

    let mut low = frame(&mut tx);
    low.adjust_head(-16)?;
    let error = low.adjust_head(-1).expect_err("the metadata's");
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    tx.send(low).map_err(|unsent| unsent.kind.to_string())?;

    let other = self::umem()?;
    let foreign = other.alloc().ok_or("a frame")?;
    let refused = kind(tx.send_with(foreign, &TxRequest::new()));
    assert_eq!(refused, SendErrorKind::Foreign);
    let foreign = other.alloc().ok_or("a frame")?;
    assert_eq!(kind(tx.send(foreign)), SendErrorKind::Foreign);

    let plain = umem_builder().chunks(256).build()?;
    let mut without = lab.rx.open(&plain, mode, |builder| builder)?;
    let one = frame(&mut without);
    let refused = kind(without.send_with(one, &TxRequest::new().timestamp(1)));
    assert_eq!(refused, SendErrorKind::NoMetadata);
    assert_eq!(without.tx_support(), xsk::TxSupport::default());

    // A full ring, and then a drained one.
    let full = loop {
        let frame = frame(&mut tx);
        if let Err(unsent) = tx.send(frame) {
            break unsent.kind;
        }
    };
    assert_eq!(full, SendErrorKind::Full);
    drain(&mut tx);
    assert_eq!(tx.statistics()?.tx_invalid_descs, 0);
    Ok(())
}

/// Datagrams with a VLAN tag beside their bytes arrive without their tag, which a hint has; and with the hash of their flow.
fn hints(mode: Mode, fragments: bool) -> Outcome {
    if are_cards() {
        return Err(skip("the datagrams are for a veth"));
    }
    let lab = Lab::new()?;
    let dev = lab.tx.device;
    lab.tx.ip(&format!("address add 10.7.0.1/24 dev {dev}"))?;
    lab.tx.ip(&format!(
        "neighbour add 10.7.0.2 lladdr 02:00:00:00:00:0a dev {dev}"
    ))?;
    let device = lab.tx.lookup()?;
    let tagging = lab.tx.inside(|| programs::tag_sent(&device, 7));
    let _tagging = tagging.map_err(|error| Skip::new(format!("no tcx: {error}")))?;
    let umem = umem_builder()
        .chunks(512)
        .headroom(64)
        .fragments(fragments)
        .build()?;
    let filter = Filter::any([Rule::udp().destination_port(9000)]);
    let mut rx = lab
        .rx
        .open(&umem, mode, |builder| builder.rx_hints(true).filter(filter))?;
    let has_hints = rx.has_rx_hints();
    assert_eq!(has_hints, mode == Mode::Driver, "{:?}", rx.refusals());
    assert_eq!(rx.refusals().is_empty(), has_hints);
    let senders = lab.tx.inside(|| -> std::io::Result<Vec<UdpSocket>> {
        (0..16).map(|_| UdpSocket::bind("10.7.0.1:0")).collect()
    })?;
    let mut hashes: HashMap<u16, u32> = HashMap::new();
    for round in 0..6_u8 {
        for sender in &senders {
            sender.send_to(&[round; 32], "10.7.0.2:9000")?;
        }
        if round == 1 && has_hints {
            // The program that replaces it writes hints as well.
            let filters = [(0, Filter::any([Rule::udp()]))].into();
            let program = rx.program().ok_or("the built-in program")?;
            lab.rx.inside(|| program.set_filters(&filters))?;
        }
        let mut seen = 0;
        let there = wait_until(STALL, || {
            rx.wait(Duration::from_millis(1)).expect("wait");
            for (packet, hints) in read_hints(&mut rx, round) {
                assert_eq!(packet.len(), 14 + 20 + 8 + 32);
                assert_eq!(packet[12..14], [8, 0], "the tag is not in the packet");
                assert_eq!(packet[42..], [round; 32]);
                let port = u16::from_be_bytes([packet[34], packet[35]]);
                seen += 1;
                if !has_hints {
                    assert_eq!(hints, RxHints::default());
                    continue;
                }
                let tag = hints.vlan_tag.expect("the driver has it");
                assert_eq!((tag.protocol, tag.tci & 0xfff), (0x8100, 7));
                let hash = hints.hash.expect("the driver has it").value;
                assert_eq!(hints.timestamp, None, "no card has received the packet");
                let before = hashes.entry(port).or_insert(hash);
                assert_eq!(*before, hash, "of one flow");
            }
            seen == senders.len()
        });
        assert!(there, "{seen} of {} datagrams came", senders.len());
    }
    if has_hints {
        let different: HashSet<_> = hashes.values().collect();
        assert_eq!(hashes.len(), senders.len());
        assert!(different.len() > 12, "{hashes:?}");
    }
    drop(rx);
    all_home(&umem);
    Ok(())
}

/// Receives packets with their hints, in another way each round. The hints are where they were after the head
/// has moved.
fn read_hints(rx: &mut Socket, round: u8) -> Vec<(Vec<u8>, RxHints)> {
    let mut packets = Vec::new();
    if round == 3 {
        rx.receive_each(64, |mut packet| {
            let (bytes, hints) = (packet.to_vec(), packet.hints());
            packet.adjust_head(14).expect("bytes");
            assert_eq!(packet.hints(), hints);
            packets.push((bytes, hints));
            packet.recycle()
        });
        return packets;
    }
    let mut owned = Vec::new();
    match round {
        4 => owned.extend(rx.recv(64)),
        5 => {
            rx.receive_each(64, |packet| {
                let (packet, done) = packet.keep_with_hints();
                owned.push(packet);
                done
            });
        }
        _ => {}
    }
    for mut packet in owned {
        // Over the place that they were in.
        packet.adjust_head(-300).expect("headroom");
        packet[..300].fill(0xff);
        packets.push((packet[300..].to_vec(), packet.hints()));
    }
    if round >= 4 {
        return packets;
    }
    let mut batch = rx.recv(64);
    if round == 2 {
        let whole = std::iter::from_fn(|| batch.next_fragments());
        packets.extend(whole.map(|packet| (packet.to_vec(), packet.hints())));
        return packets;
    }
    while let Some(mut packet) = batch.next_packet() {
        let (bytes, hints) = (packet.to_vec(), packet.hints());
        packet.adjust_head(14).expect("bytes");
        assert_eq!(packet.hints(), hints);
        packets.push((bytes, hints));
    }
    packets
}

fn refused_hints(mode: Mode) -> Outcome {
    let lab = Lab::new()?;
    let umem = umem_builder().chunks(64).build()?;
    let without = lab.rx.open(&umem, mode, |builder| builder)?;
    assert!(!without.has_rx_hints() && without.refusals().is_empty());
    drop(without);
    let map = programs::xskmap(4)?;
    let refused = lab
        .rx
        .open(&umem, mode, |builder| builder.rx_hints(true).map(map));
    let error = refused.expect_err("no program of its own");
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    Ok(())
}
