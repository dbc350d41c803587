//! Packets of several chunks: the kernel's conformance tests, with its names, and our own.

use crate::budget::STALL;
use crate::netns::{Lab, Side, are_cards};
use crate::traffic::{Flight, all_home, drain, exchange};
use crate::{Outcome, Result, attach_mode, modes, needs, packet};
use std::time::Duration;
use testkit::{Limit, Test, skip, wait_until};
use xsk::testing::programs::{self, Kind};
use xsk::testing::raw;
use xsk::{
    ErrorKind, Fragments, MAX_FRAGMENTS, Mode, RxBatch, SendErrorKind, Socket, SocketBuilder, Umem,
};

/// Length of a jumbo frame, without a tag.
const JUMBO: usize = 9014;
/// Packets in a test.
const PACKETS: u64 = 1024;
/// Chunks in a UMEM.
const CHUNKS: u32 = 1024;
/// Packets on their way at once: a few frames each, and a veth has room for 256.
const IN_FLIGHT: u64 = 32;
/// `XDP_PKT_CONTD`, and an option that there is not.
const CONTD: u32 = 1;
const UNKNOWN: u32 = 1 << 31;

type Body = fn(Mode) -> Outcome;

const CASES: [(&str, Body); 18] = [
    ("SEND_RECEIVE_9K_PACKETS", |mode| one_way(mode, 4096, 0)),
    ("9K_PACKETS_2K_FRAME", |mode| one_way(mode, 2048, 0)),
    ("9K_PACKETS_HEADROOM", |mode| one_way(mode, 4096, 128)),
    ("SEND_RECEIVE_UNALIGNED_9K_PACKETS", |mode| {
        one_way(mode, 3000, 0)
    }),
    ("UNALIGNED_9K_PACKETS_HEADROOM", |mode| {
        one_way(mode, 2049, 128)
    }),
    ("ALIGNED_INV_DESC_MULTI_BUFF", |mode| {
        invalid_descriptors(mode, false)
    }),
    ("UNALIGNED_INV_DESC_MULTI_BUFF", |mode| {
        invalid_descriptors(mode, true)
    }),
    ("TOO_MANY_FRAGS", too_many),
    ("XDP_METADATA_COPY_MULTI_BUFF", metadata),
    ("XDP_ADJUST_TAIL_SHRINK_MULTI_BUFF", |mode| {
        adjust_tail(mode, -4)
    }),
    ("XDP_ADJUST_TAIL_GROW_MULTI_BUFF", |mode| {
        adjust_tail(mode, 4)
    }),
    ("fragments: all lengths", all_lengths),
    ("fragments: forwarded", |mode| forwarded(mode, 2048)),
    ("fragments: forwarded, unaligned", |mode| {
        forwarded(mode, 2777)
    }),
    ("fragments: gathered", gathered),
    ("fragments: read as packets of one chunk", read_singly),
    ("fragments: siblings and halves", siblings_and_halves),
    ("fragments: bad input", bad_input),
];

pub fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for (name, body) in CASES {
        for (prefix, mode) in modes() {
            let test = Test::new(format!("{prefix} {name}"), move || body(mode));
            tests.push(test.needing(&[needs::FRAGMENTS]));
        }
    }
    tests
}

fn umem(chunk_size: u32, headroom: u32) -> xsk::Result<Umem> {
    Umem::builder()
        .chunks(CHUNKS)
        .chunk_size(chunk_size)
        .headroom(headroom)
        .fragments(true)
        .unaligned(!chunk_size.is_power_of_two())
        .build()
}

/// A lab whose devices take jumbo frames.
fn lab() -> Result<Lab> {
    let lab = Lab::new()?;
    for side in [&lab.rx, &lab.tx] {
        side.ip(&format!("link set dev {} mtu 9000", side.device))?;
    }
    Ok(lab)
}

fn open(
    side: &Side,
    umem: &Umem,
    mode: Mode,
    configure: impl FnOnce(SocketBuilder) -> SocketBuilder,
) -> Result<Socket> {
    or_skipped(side.open(umem, mode, configure))
}

/// Skips a test on a card that refuses its socket or program.
fn or_skipped<T>(result: xsk::Result<T>) -> Result<T> {
    match result {
        Err(error) if are_cards() && is_refusal(&error) => {
            let reason = format!("the card takes no packets of several buffers: {error}");
            Err(skip(reason))
        }
        result => Ok(result?),
    }
}

fn is_refusal(error: &xsk::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ModeRefused | ErrorKind::MtuTooLarge
    )
}

/// A packet as the tests check it.
fn bytes(sequence: u64, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    packet::write(&mut bytes, 0, sequence);
    bytes
}

/// Waits until the receiver has caught up so far that there are at most [`IN_FLIGHT`] packets.
fn wait_for_room(flight: &Flight, sequence: u64, tx: &mut Socket) {
    tx.flush().expect("flush");
    if let Some(earlier) = sequence.checked_sub(IN_FLIGHT) {
        let there = wait_until(STALL, || {
            tx.flush().expect("flush");
            flight.has_seen(earlier) || flight.stopped()
        });
        assert!(there, "the receiver has stopped before packet {earlier}");
    }
}

/// Sends packets of the given sizes.
fn send_all(tx: &mut Socket, sizes: &[usize], flight: &Flight) {
    for (sequence, &size) in (0..).zip(sizes) {
        wait_for_room(flight, sequence, tx);
        if flight.stopped() {
            return;
        }
        let mut packet = tx.alloc_fragments(size).expect("fewer in flight than free");
        packet
            .fill_with(&bytes(sequence, size))
            .expect("its length");
        tx.send_fragments(packet).expect("room in the ring");
    }
    drain(tx);
}

/// Calls `each` with every packet, until there were `count`.
fn receive(
    flight: &Flight,
    count: u64,
    mut recv: impl FnMut(&mut dyn FnMut(Fragments)),
    mut each: impl FnMut(&Fragments, u64),
) {
    let (mut next, mut limit) = (0, Limit::new(STALL));
    while next < count && !flight.stopped() {
        recv(&mut |packet| {
            each(&packet, next);
            flight.saw(next);
            next += 1;
            limit.restart();
        });
        assert!(!limit.is_over(), "packet {next} does not come");
    }
}

fn recv_whole(rx: &mut Socket, with: &mut dyn FnMut(Fragments)) {
    rx.wait(Duration::from_millis(20)).expect("wait");
    take(rx.recv(8), with);
}

fn take(mut batch: RxBatch<'_>, with: &mut dyn FnMut(Fragments)) {
    while let Some(packet) = batch.next_fragments() {
        with(packet);
    }
}

/// Sends and receives packets of the given sizes, and checks that all arrive unchanged.
fn deliver(tx: &mut Socket, rx: &mut Socket, sizes: &[usize]) -> Outcome {
    exchange(
        |flight| send_all(tx, sizes, flight),
        |flight| {
            receive(
                flight,
                sizes.len() as u64,
                |with| recv_whole(rx, with),
                |packet, sequence| {
                    let size = sizes[sequence as usize];
                    assert_eq!(packet.len(), size, "length of packet {sequence}");
                    packet::check(&packet.to_vec(), sequence);
                },
            );
        },
    );
    let statistics = rx.statistics()?;
    let lost = statistics.rx_dropped + statistics.rx_ring_full + statistics.fragmented;
    assert_eq!((lost, statistics.invalid_descs), (0, 0), "{statistics:?}");
    Ok(())
}

fn one_way(mode: Mode, chunk_size: u32, headroom: u32) -> Outcome {
    let (from, to) = (umem(chunk_size, headroom)?, umem(chunk_size, headroom)?);
    let lab = lab()?;
    let mut rx = open(&lab.rx, &to, mode, |builder| builder.tx_ring(0))?;
    let mut tx = open(&lab.tx, &from, mode, |builder| builder.rx_ring(0))?;
    deliver(&mut tx, &mut rx, &[JUMBO; PACKETS as usize])?;
    drop((tx, rx));
    all_home(&from);
    all_home(&to);
    Ok(())
}

/// From one byte more and less than each number of chunks.
fn all_lengths(mode: Mode) -> Outcome {
    let (from, to) = (umem(2048, 0)?, umem(2048, 0)?);
    let lab = lab()?;
    let mut rx = open(&lab.rx, &to, mode, |builder| builder.tx_ring(0))?;
    let mut tx = open(&lab.tx, &from, mode, |builder| builder.rx_ring(0))?;
    let borders = [1792, 2048].map(|room| (1..5).map(move |chunks| chunks * room));
    let around = borders.into_iter().flatten();
    let sizes: Vec<usize> = around
        .flat_map(|at| [at - 1, at, at + 1])
        .chain([60, 1514, JUMBO])
        .cycle()
        .take(512)
        .collect();
    deliver(&mut tx, &mut rx, &sizes)
}

/// There, and back from the receiver by the chunks that they came in.
fn forwarded(mode: Mode, chunk_size: u32) -> Outcome {
    let (here, there) = (umem(4096, 0)?, umem(chunk_size, 0)?);
    let lab = lab()?;
    let mut echo = open(&lab.rx, &there, mode, |builder| builder)?;
    let mut end = open(&lab.tx, &here, mode, |builder| builder)?;
    for sequence in 0..256 {
        let size = 60 + sequence as usize * 35;
        let mut packet = end.alloc_fragments(size).ok_or("free chunks")?;
        packet.fill_with(&bytes(sequence, size))?;
        end.send_fragments(packet)
            .map_err(|unsent| unsent.kind.to_string())?;
        end.flush()?;
        let mut back = None;
        let returned = wait_until(STALL, || {
            let mut batch = echo.recv(1);
            while let Some(packet) = batch.next_fragments() {
                batch.send_fragments(packet).expect("room in the ring");
            }
            drop(batch);
            echo.flush().expect("flush");
            back = end.recv(1).next_fragments();
            back.is_some()
        });
        assert!(returned, "packet {sequence} does not come back");
        let back = back.ok_or("a packet")?;
        assert_eq!(back.len(), size);
        packet::check(&back.to_vec(), sequence);
    }
    drain(&mut echo);
    drop((echo, end));
    all_home(&here);
    all_home(&there);
    Ok(())
}

/// Headers in a frame of their own, and a payload behind them that is not copied.
fn gathered(mode: Mode) -> Outcome {
    let (from, to) = (umem(2048, 0)?, umem(4096, 0)?);
    let lab = lab()?;
    let mut rx = open(&lab.rx, &to, mode, |builder| builder.tx_ring(0))?;
    let mut tx = open(&lab.tx, &from, mode, |builder| builder.rx_ring(0))?;
    exchange(
        |flight| {
            for sequence in 0..64 {
                wait_for_room(flight, sequence, &mut tx);
                let whole = bytes(sequence, 4014);
                let mut packet = Fragments::new();
                for part in [
                    &whole[..14],
                    &whole[14..15],
                    &whole[15..2015],
                    &whole[2015..],
                ] {
                    let mut frame = tx.alloc().expect("a free chunk");
                    frame.fill_with(part).expect("room");
                    packet.push(frame).expect("four of 18");
                }
                tx.send_fragments(packet).expect("room in the ring");
            }
            drain(&mut tx);
        },
        |flight| {
            receive(
                flight,
                64,
                |with| recv_whole(&mut rx, with),
                |packet, sequence| packet::check(&packet.to_vec(), sequence),
            );
        },
    );
    Ok(())
}

/// Packets of one chunk arrive, and the others are dropped, counted, and give their chunks back.
fn read_singly(mode: Mode) -> Outcome {
    let (from, to) = (umem(4096, 0)?, umem(2048, 0)?);
    let lab = lab()?;
    let mut rx = open(&lab.rx, &to, mode, |builder| builder.tx_ring(0))?;
    let mut tx = open(&lab.tx, &from, mode, |builder| builder.rx_ring(0))?;
    for in_bulk in [false, true] {
        let before = rx.statistics()?.fragmented;
        let mut next = 0;
        for sequence in 0..200_u64 {
            let is_small = sequence % 4 == 1;
            let size = if is_small {
                100
            } else {
                2000 + 30 * sequence as usize
            };
            let mut packet = tx.alloc_fragments(size).ok_or("free chunks")?;
            packet.fill_with(&bytes(sequence, size))?;
            tx.send_fragments(packet)
                .map_err(|unsent| unsent.kind.to_string())?;
            drain(&mut tx);
            // Batches of any size, also smaller than a packet.
            let max = (sequence % 7 + 1) as u32;
            if in_bulk {
                rx.receive_each(max, |received| {
                    packet::check(&received, next * 4 + 1);
                    next += 1;
                    received.recycle()
                });
            } else {
                let mut batch = rx.recv(max);
                while let Some(received) = batch.next_packet() {
                    packet::check(&received, next * 4 + 1);
                    next += 1;
                }
            }
        }
        let all = wait_until(STALL, || {
            rx.receive_each(64, |received| {
                next += 1;
                received.recycle()
            });
            let dropped = rx.statistics().expect("statistics").fragmented - before;
            (next, dropped) == (50, 150)
        });
        assert!(all, "{next} packets, {:?}", rx.statistics()?);
    }
    let statistics = rx.statistics()?;
    assert_eq!((statistics.rx_dropped, statistics.invalid_descs), (0, 0));
    drop((rx, tx));
    all_home(&from);
    all_home(&to);
    Ok(())
}

fn siblings_and_halves(mode: Mode) -> Outcome {
    let (from, to) = (umem(4096, 0)?, umem(4096, 0)?);
    let lab = lab()?;
    let rx = open(&lab.rx, &to, mode, |builder| builder.tx_ring(0))?;
    let mut tx = open(&lab.tx, &from, mode, |builder| builder.rx_ring(0))?;
    let id = lab.tx.inside(|| tx.add_sibling(0, 64))?;
    let (mut rx, _) = rx.split();
    exchange(
        |flight| {
            for sequence in 0..64 {
                wait_for_room(flight, sequence, &mut tx);
                let mut packet = tx.alloc_fragments(JUMBO).expect("free chunks");
                packet
                    .fill_with(&bytes(sequence, JUMBO))
                    .expect("its length");
                let mut sibling = tx.sibling(id).expect("the sibling");
                sibling.send_fragments(packet).expect("room in the ring");
                sibling.flush().expect("flush");
            }
        },
        |flight| {
            receive(
                flight,
                64,
                |with| {
                    rx.wait(Duration::from_millis(20)).expect("wait");
                    take(rx.recv(8), with);
                },
                |packet, sequence| packet::check(&packet.to_vec(), sequence),
            );
        },
    );
    Ok(())
}

/// A packet with one bad descriptor is dropped whole, and the next one arrives.
fn invalid_descriptors(mode: Mode, unaligned: bool) -> Outcome {
    let of_pages = || {
        let builder = Umem::builder().chunks(CHUNKS).chunk_size(4096);
        builder.fragments(true).unaligned(unaligned).build()
    };
    let (from, to) = (of_pages()?, of_pages()?);
    let lab = lab()?;
    let mut rx = open(&lab.rx, &to, mode, |builder| builder.tx_ring(0))?;
    let mut frames: Vec<_> = std::iter::from_fn(|| from.alloc()).take(64).collect();
    let mut tx = open(&lab.tx, &from, mode, |builder| builder.rx_ring(0))?;
    let mut at = 0;
    let mut chunk = |content: &[u8]| {
        let frame: &mut xsk::Frame = &mut frames[at];
        at += 1;
        frame.fill_with(content).expect("room");
        raw::chunk_address(frame)
    };
    let end = u64::from(CHUNKS) * 4096;
    let good = |sequence| bytes(sequence, 7000);
    let mut valid = 0;
    let mut push = |addr, len, options| assert!(raw::push_tx(&mut tx, addr, len, options));
    // Without bytes; behind the UMEM; too long; an unknown option; over the end of its chunk, or of the UMEM,
    // where chunks have no ends.
    let over = if unaligned { end } else { 4096 } - 100;
    for (addr, len, options) in [
        (Some(0), 0, 0),
        (Some(end), 3000, 0),
        (Some(0), 9001, 0),
        (None, 3000, UNKNOWN),
        (Some(over), 3000, 0),
    ] {
        // In the second descriptor of two.
        let first = chunk(&good(0)[..4000]);
        let second = chunk(&good(0)[4000..]);
        push(first, 4000, CONTD);
        push(addr.unwrap_or(second), len, options);
        // And a packet that arrives.
        let whole = good(valid);
        let (first, second) = (chunk(&whole[..4000]), chunk(&whole[4000..]));
        push(first, 4000, CONTD);
        push(second, 3000, 0);
        valid += 1;
    }
    raw::publish(&mut tx);
    exchange(
        |flight| {
            let sent = wait_until(STALL, || {
                raw::send_once(&tx).expect("send");
                raw::pending(&mut tx) == 0 || flight.stopped()
            });
            assert!(sent, "the TX ring is stuck behind a bad descriptor");
        },
        |flight| {
            receive(
                flight,
                valid,
                |with| recv_whole(&mut rx, with),
                |packet, sequence| {
                    assert_eq!(packet.len(), 7000);
                    packet::check(&packet.to_vec(), sequence);
                },
            );
        },
    );
    assert!(rx.recv(64).is_empty(), "a packet too many");
    assert!(tx.statistics()?.tx_invalid_descs >= 5);
    Ok(())
}

/// As many chunks as a packet can have arrive; one more does not, and the next packet does.
fn too_many(mode: Mode) -> Outcome {
    const PART: usize = 100;
    if mode == Mode::ZeroCopy {
        return Err(skip("the kernel's limit for a card is the card's"));
    }
    let (from, to) = (umem(4096, 0)?, umem(4096, 0)?);
    let lab = lab()?;
    let mut rx = open(&lab.rx, &to, mode, |builder| builder.tx_ring(0))?;
    let mut frames: Vec<_> = std::iter::from_fn(|| from.alloc()).take(64).collect();
    let mut tx = open(&lab.tx, &from, mode, |builder| builder.rx_ring(0))?;
    let size = MAX_FRAGMENTS * PART;
    let packets = [
        (0, MAX_FRAGMENTS),
        (9, MAX_FRAGMENTS + 1),
        (1, MAX_FRAGMENTS),
    ];
    let mut free = frames.iter_mut();
    for (sequence, count) in packets {
        let whole = bytes(sequence, count * PART);
        for (at, part) in whole.chunks(PART).enumerate() {
            let frame = free.next().ok_or("a frame")?;
            frame.fill_with(part)?;
            let options = if at + 1 < count { CONTD } else { 0 };
            let addr = raw::chunk_address(frame);
            assert!(raw::push_tx(&mut tx, addr, PART as u32, options));
        }
    }
    raw::publish(&mut tx);
    exchange(
        |flight| {
            let sent = wait_until(STALL, || {
                // A packet that is dropped is an error, and completed.
                let _ = raw::send_once(&tx);
                raw::pending(&mut tx) == 0 || flight.stopped()
            });
            assert!(sent, "the TX ring is stuck behind a packet too long");
        },
        |flight| {
            receive(
                flight,
                2,
                |with| recv_whole(&mut rx, with),
                |packet, sequence| {
                    assert_eq!(packet.len(), size);
                    packet::check(&packet.to_vec(), sequence);
                },
            );
        },
    );
    Ok(())
}

/// A test's own program on the receiving side, which takes packets of several buffers.
fn open_with(lab: &Lab, umem: &Umem, mode: Mode, kind: Kind) -> Result<Socket> {
    let device = lab.rx.lookup()?;
    let attached = lab
        .rx
        .inside(|| programs::attach(&device, attach_mode(mode), kind, 4));
    let attached = or_skipped(attached)?;
    open(&lab.rx, umem, mode, |builder| {
        builder.tx_ring(0).program(&attached)
    })
}

/// The program prepends a number to the packet, and the first chunk has it.
fn metadata(mode: Mode) -> Outcome {
    let (from, to) = (umem(4096, 0)?, umem(4096, 0)?);
    let lab = lab()?;
    let mut rx = open_with(&lab, &to, mode, Kind::Metadata)?;
    let mut tx = open(&lab.tx, &from, mode, |builder| builder.rx_ring(0))?;
    exchange(
        |flight| send_all(&mut tx, &[JUMBO; 256], flight),
        |flight| {
            let mut next = 0_u64;
            receive(
                flight,
                256,
                |with| {
                    rx.wait(Duration::from_millis(20)).expect("wait");
                    let mut batch = rx.recv(8);
                    while let Some(mut packet) = batch.next_fragments() {
                        let first = &mut packet.frames_mut()[0];
                        first.adjust_head(-8).expect("room for the metadata");
                        assert_eq!(first[..8], next.to_be_bytes());
                        first.adjust_head(8).expect("back");
                        next += 1;
                        with(packet);
                    }
                },
                |packet, sequence| packet::check(&packet.to_vec(), sequence),
            );
        },
    );
    Ok(())
}

/// The program moves the end of the packet, which is in its last chunk.
fn adjust_tail(mode: Mode, delta: i16) -> Outcome {
    const SIZE: usize = 8000;
    let (from, to) = (umem(4096, 0)?, umem(4096, 0)?);
    let lab = lab()?;
    let mut rx = open_with(&lab, &to, mode, Kind::AdjustTail(delta.into()))?;
    let mut tx = open(&lab.tx, &from, mode, |builder| builder.rx_ring(0))?;
    let mut refused = false;
    exchange(
        |flight| send_all(&mut tx, &[SIZE; 64], flight),
        |flight| {
            receive(
                flight,
                64,
                |with| recv_whole(&mut rx, with),
                |packet, sequence| {
                    let bytes = packet.to_vec();
                    if bytes.len() == SIZE && delta > 0 {
                        refused = true;
                        return;
                    }
                    assert_eq!(Some(bytes.len()), SIZE.checked_add_signed(delta.into()));
                    let kept = bytes.len().min(SIZE);
                    packet::check(&bytes[..kept], sequence);
                    assert!(bytes[kept..].iter().all(|&byte| byte == 0));
                },
            );
        },
    );
    if refused {
        let reason = "bpf_xdp_adjust_tail makes no packet of several buffers longer on this device";
        return Err(skip(reason));
    }
    Ok(())
}

fn bad_input(mode: Mode) -> Outcome {
    let lab = lab()?;
    // A UMEM without: the device's packets would not fit.
    let single = Umem::builder().chunks(64).build()?;
    let error = lab.rx.open(&single, mode, |builder| builder);
    let error = error.expect_err("an MTU of 9000");
    assert_eq!(error.kind(), ErrorKind::MtuTooLarge);
    assert!(error.to_string().contains("`fragments`"), "{error}");
    let mut tx = open(&lab.tx, &single, mode, |builder| builder.rx_ring(0))?;
    let packet = tx.alloc_fragments(3000).ok_or("free chunks")?;
    let unsent = tx.send_fragments(packet).expect_err("several chunks");
    assert_eq!(unsent.kind, SendErrorKind::Fragmented);
    drop(unsent);
    let one = tx.alloc_fragments(1000).ok_or("a free chunk")?;
    tx.send_fragments(one)
        .map_err(|unsent| unsent.kind.to_string())?;
    drop(tx);

    let umem = umem(2048, 0)?;
    let mut tx = open(&lab.tx, &umem, mode, |builder| {
        builder.rx_ring(0).tx_ring(4).completion_ring(4)
    })?;
    let mut kind = |packet| match tx.send_fragments(packet) {
        Ok(()) => None,
        Err(unsent) => Some(unsent.kind),
    };
    assert_eq!(kind(Fragments::new()), Some(SendErrorKind::Empty));
    let empty = umem.alloc_fragments(0).ok_or("a chunk")?;
    assert_eq!(kind(empty), Some(SendErrorKind::Empty));
    let mut mixed = umem.alloc_fragments(100).ok_or("a chunk")?;
    let mut foreign = single.alloc().ok_or("a chunk")?;
    foreign.fill_with(&[1])?;
    mixed.push(foreign).map_err(|_| "room")?;
    assert_eq!(kind(mixed), Some(SendErrorKind::Foreign));
    let five = umem.alloc_fragments(5 * 2048).ok_or("free chunks")?;
    assert_eq!(kind(five), Some(SendErrorKind::TooLong), "TX has 4 slots");
    assert_eq!(kind(umem.alloc_fragments(3 * 2048).ok_or("3")?), None);
    let two = umem.alloc_fragments(2 * 2048).ok_or("free chunks")?;
    assert_eq!(kind(two), Some(SendErrorKind::Full), "one slot is left");
    // The program of a UMEM without does not take them.
    drop(tx);
    for side in [&lab.rx, &lab.tx] {
        side.ip(&format!("link set dev {} mtu 1500", side.device))?;
    }
    let plain = open(&lab.rx, &single, mode, |builder| builder.tx_ring(0))?;
    let program = plain.program().ok_or("the built-in program")?.clone();
    drop(plain);
    let error = lab
        .rx
        .open(&umem, mode, |builder| builder.program(&program));
    let error = error.expect_err("a program for one buffer");
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    Ok(())
}
