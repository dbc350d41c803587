//! Packets that arrive on another queue than the socket's: the library says so, and steering moves
//! them.

use crate::budget::STALL;
use crate::netns::Lab;
use crate::traffic::{Flight, drain, exchange, flush_checked, frame, put, send_all};
use crate::{Outcome, Result};
use hostnet::ethtool::{
    self, Addresses, FlowRule, InstalledRule, Masked, Rss, Steering, Transport,
};
use std::net::Ipv4Addr;
use testkit::{Skip, Test, skip, wait_until};
use xsk::{Device, Mode, QueueCounts, Silence, Socket, Umem};

/// Packets of one exchange: fewer than may be in flight.
const COUNT: u64 = 100;
const SIZE: usize = 128;
/// The first byte of the sequence number, behind the headers of Ethernet, IPv4 and UDP.
const SEQUENCE_AT: usize = 14 + 20 + 8;
/// Packets of UDP to port 4242 at 192.0.2.1.
const RULE: FlowRule = FlowRule {
    transport: Transport::Udp,
    addresses: Addresses::V4 {
        source: Masked::ANY_V4,
        destination: Masked {
            value: Ipv4Addr::new(192, 0, 2, 1),
            mask: Ipv4Addr::BROADCAST,
        },
    },
    source_port: Masked::ANY_PORT,
    destination_port: Masked {
        value: 4242,
        mask: u16::MAX,
    },
    ring: 1,
};
/// Set where the ends of the lab are network cards.
const CARDS: &str = "XSK_TEST_CARDS";

pub fn tests() -> Vec<Test> {
    vec![
        Test::new("SKB silence: packets on another queue", || {
            silence_of_veth(Mode::Skb)
        }),
        Test::new("DRV silence: packets on another queue", || {
            silence_of_veth(Mode::Driver)
        }),
        Test::new("RSS moves packets to a queue, and is put back", rss_of_card),
        Test::new("RSS key and flow rules of a card", key_and_rules_of_card),
    ]
}

fn are_cards() -> bool {
    std::env::var_os(CARDS).is_some()
}

fn umem() -> xsk::Result<Umem> {
    Umem::builder().chunks(1024).build()
}

/// The receiving device, seen from its namespace.
struct Receiver<'l> {
    lab: &'l Lab,
    device: Device,
}

impl<'l> Receiver<'l> {
    fn new(lab: &'l Lab) -> Result<Self> {
        let device = lab.rx.lookup()?;
        Ok(Self { lab, device })
    }

    fn counts(&self) -> xsk::Result<QueueCounts> {
        self.lab.rx.inside(|| self.device.rx_by_queue())
    }

    fn silence(&self, queue: u32, before: &QueueCounts) -> xsk::Result<Option<Silence>> {
        let explain = || self.device.explain_silence(queue, before);
        self.lab.rx.inside(explain)
    }

    /// Waits until the device has received all packets of an exchange.
    fn wait_for_all(&self, before: &QueueCounts) {
        let all = || {
            let now = self.counts().expect("counts");
            now.received >= before.received + COUNT
        };
        assert!(wait_until(STALL, all), "the device does not receive");
    }
}

/// A socket on queue 1 of a veth, and packets to queue 0: a veth delivers to the queue of the number
/// that they were sent from, and without native XDP to queue 0.
fn silence_of_veth(mode: Mode) -> Outcome {
    if are_cards() {
        return Err(skip("a card chooses the queue by its RSS table"));
    }
    let (left, right, lab) = (umem()?, umem()?, Lab::with_queues(2)?);
    let open = lab
        .rx
        .open_queue(&right, mode, 1, |builder| builder.tx_ring(0));
    let mut rx = open?;
    let mut tx = lab.tx.open(&left, mode, |builder| builder.rx_ring(0))?;
    let receiver = Receiver::new(&lab)?;
    let before = receiver.counts()?;
    assert_eq!(receiver.silence(1, &before)?, None, "nothing was received");
    exchange(
        |flight| send_all(&mut tx, COUNT, SIZE, flight),
        |_| receiver.wait_for_all(&before),
    );
    assert!(rx.recv(1).is_empty(), "a packet on queue 1");
    let silence = lab.rx.inside(|| rx.explain_silence())?;
    assert_eq!(silence.map(|silence| silence.queue), Some(1));
    let silence = receiver.silence(1, &before)?.ok_or("a silence")?;
    assert_eq!(silence.counts.received, COUNT);
    assert_eq!(silence.rss_targets, None);
    let text = silence.to_string();
    if mode == Mode::Driver {
        assert_eq!(silence.counts.by_queue, [(0, COUNT), (1, 0)].into());
        let words = "queue 1 of rx0 received nothing while queue 0 received 100 packets: ";
        assert!(text.starts_with(words), "{text}");
        assert_eq!(receiver.silence(0, &before)?, None, "queue 0 received");
    } else {
        assert_eq!(
            silence.counts.by_queue,
            [].into(),
            "a veth counts for native XDP"
        );
        let words = "the socket on queue 1 of rx0 got nothing while rx0 received 100 packets";
        assert!(text.starts_with(words), "{text}");
    }
    Ok(())
}

/// Sockets on both queues: the table sends all packets to one, then to the other; then it is as before.
fn rss_of_card() -> Outcome {
    if !are_cards() {
        let why = format!("needs two network cards ({CARDS}): a veth has no RSS table");
        return Err(skip(why));
    }
    let (left, right, lab) = (umem()?, umem()?, Lab::with_queues(2)?);
    let Some(rss_before) = rss(&lab)? else {
        return Err(skip("the card has no RSS table"));
    };
    let open = lab
        .rx
        .open(&right, Mode::Auto, |b| b.tx_ring(0).fill_chunks(256));
    let mut rx0 = open?;
    let program = rx0.program().ok_or("the program")?.clone();
    let open = lab.rx.open_queue(&right, Mode::Auto, 1, |b| {
        b.program(&program).tx_ring(0).fill_chunks(256)
    });
    let mut rx1 = open?;
    let mut tx = lab
        .tx
        .open(&left, Mode::Auto, |builder| builder.rx_ring(0))?;
    let mut arrive = || {
        let mut arrived = [0; 2];
        exchange(
            |flight| send_flows(&mut tx, flight),
            |flight| arrived = receive_flows([&mut rx0, &mut rx1], flight),
        );
        arrived
    };
    let mut steering = lab.rx.inside(|| Steering::open(lab.rx.device))?;
    let receiver = Receiver::new(&lab)?;

    steering.set_table(&rss_before.spread(&[0, 1]))?;
    if arrive()[1] == 0 {
        // QEMU's vmxnet3, of which all packets arrive on queue 0.
        return Err(skip("the card does not heed its RSS table"));
    }
    steering.set_table(&rss_before.spread(&[1]))?;
    let before = receiver.counts()?;
    assert_eq!(arrive(), [0, COUNT]);
    receiver.wait_for_all(&before);
    let silence = receiver.silence(0, &before)?.ok_or("a silence")?;
    assert_eq!(silence.rss_targets, Some(vec![1]));
    let counted = &silence.counts.by_queue;
    assert!(counted.is_empty() || counted[&1] == COUNT, "{silence:?}");
    let text = silence.to_string();
    assert!(text.contains("RSS sends to queue 1 alone"), "{text}");

    steering.set_table(&rss_before.spread(&[0]))?;
    assert_eq!(arrive(), [COUNT, 0]);
    steering.restore()?;
    assert_eq!(rss(&lab)?, Some(rss_before));
    Ok(())
}

/// Cards differ in these: each takes a change, and then it is undone, or refuses it with a cure.
fn key_and_rules_of_card() -> Outcome {
    if !are_cards() {
        return Err(Skip::new(format!("needs two network cards ({CARDS})")).into());
    }
    let lab = Lab::with_queues(2)?;
    let Some(before) = rss(&lab)? else {
        return Err(skip("the card has no RSS table"));
    };
    let rules = || lab.rx.inside(|| ethtool::flow_rules(lab.rx.device));
    let rules_before = rules()?;
    let mut steering = lab.rx.inside(|| Steering::open(lab.rx.device))?;

    let key: Vec<u8> = before.key.iter().map(|byte| !byte).collect();
    match steering.set_key(&key) {
        Ok(()) => assert_eq!(rss(&lab)?.map(|rss| rss.key), Some(key)),
        Err(error) => assert_refused(&error, "cannot set the RSS key of rx0: "),
    }
    match steering.insert_rule(&RULE) {
        Ok(location) => {
            let installed = InstalledRule {
                location,
                rule: Some(RULE),
            };
            assert!(rules()?.is_some_and(|rules| rules.contains(&installed)));
        }
        Err(error) => assert_refused(&error, "RSS can send all packets to one queue"),
    }
    steering.restore()?;
    assert_eq!(rss(&lab)?.as_ref(), Some(&before));
    assert_eq!(rules()?, rules_before);

    // The cure for a table that a killed program left.
    let device = lab.rx.device;
    lab.rx
        .inside(|| ethtool::set_rss_table(device, &before.spread(&[1])))?;
    lab.rx.inside(|| ethtool::reset_rss(device))?;
    let reset = rss(&lab)?.map(|rss| rss.table);
    assert_eq!(reset, Some(before.spread(&[0, 1])));
    lab.rx
        .inside(|| ethtool::set_rss_table(device, &before.table))?;
    Ok(())
}

fn assert_refused(error: &hostnet::Error, words: &str) {
    assert_eq!(error.kind(), hostnet::ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

fn rss(lab: &Lab) -> Result<Option<Rss>> {
    Ok(lab.rx.inside(|| ethtool::rss(lab.rx.device))?)
}

/// Packets of UDP, each from an address of its own, so that their hashes differ.
fn send_flows(socket: &mut Socket, flight: &Flight) {
    for sequence in 0..COUNT {
        let Some(mut frame) = frame(socket, flight, 0, sequence, SIZE) else {
            return;
        };
        write_udp(&mut frame, sequence);
        put(socket, frame, flight);
    }
    flush_checked(socket);
    drain(socket);
}

/// Receives all packets, in any order, as a card has none among flows; the number of each socket's.
fn receive_flows(mut sockets: [&mut Socket; 2], flight: &Flight) -> [u64; 2] {
    let mut missing: Vec<u64> = (0..COUNT).collect();
    let mut arrived = [0; 2];
    let all = wait_until(STALL, || {
        for (socket, arrived) in sockets.iter_mut().zip(&mut arrived) {
            let mut batch = socket.recv(64);
            while let Some(packet) = batch.next_packet() {
                let sequence = check_udp(&packet);
                missing.retain(|number| *number != sequence);
                *arrived += 1;
            }
        }
        missing.is_empty() || flight.stopped()
    });
    assert!(all, "{missing:?} do not come");
    arrived
}

/// The sequence number of a packet, whose every byte behind the addresses must be as it was sent.
fn check_udp(packet: &[u8]) -> u64 {
    let field = &packet[SEQUENCE_AT..SEQUENCE_AT + 8];
    let sequence = u64::from_be_bytes(field.try_into().expect("8 bytes"));
    let mut sent = [0; SIZE];
    write_udp(&mut sent, sequence);
    assert_eq!(packet[12..], sent[12..], "packet {sequence}");
    sequence
}

/// Writes the headers of IPv4 and UDP, and a payload that depends on the sequence number, behind the
/// addresses of Ethernet.
fn write_udp(bytes: &mut [u8], sequence: u64) {
    let length = |header: usize| ((bytes.len() - header) as u16).to_be_bytes();
    let ([ip_high, ip_low], [udp_high, udp_low]) = (length(14), length(34));
    // 198.51.100.N to 192.0.2.1, TTL 64; from RFC 791 and 768.
    let source = sequence as u8;
    let mut headers = [
        0x08, 0x00, 0x45, 0, ip_high, ip_low, 0, 0, 0, 0, 64, 17, 0, 0, 198, 51, 100, source, 192,
        0, 2, 1, 0x10, 0x92, 0x10, 0x92, udp_high, udp_low, 0, 0,
    ];
    let sum = checksum(&headers[2..22]).to_be_bytes();
    headers[12..14].copy_from_slice(&sum);
    bytes[12..SEQUENCE_AT].copy_from_slice(&headers);
    bytes[SEQUENCE_AT..SEQUENCE_AT + 8].copy_from_slice(&sequence.to_be_bytes());
    for (at, byte) in bytes.iter_mut().enumerate().skip(SEQUENCE_AT + 8) {
        *byte = (sequence as usize * 31 + at) as u8;
    }
}

/// The checksum of a header (RFC 1071).
fn checksum(header: &[u8]) -> u16 {
    let words = header.as_chunks().0.iter();
    let mut sum: u32 = words.map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
