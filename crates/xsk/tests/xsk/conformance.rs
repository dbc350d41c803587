//! The kernel's conformance tests of AF_XDP (`tools/testing/selftests/bpf/xskxceiver.c`), with their
//! names and assertions, for packets in one buffer. Those of packets in several are in `fragments.rs`.

use crate::budget::STALL;
use crate::netns::{Lab, Side, umem_builder};
use crate::rings;
use crate::traffic::{
    WINDOW, all_home, deliver, deliver_within, drain, exchange, flush_checked, frame, put,
    receive_all, receive_checked, receive_unaligned, send_all, send_one,
};
use crate::{Outcome, Result, attach_mode, modes, needs, packet};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::{Duration, Instant};
use testkit::{Limit, Test, skip, wait_until};
use xsk::testing::programs::{self, Kind};
use xsk::testing::raw;
use xsk::{ErrorKind, Mode, ModeObtained, Pages, Program, SendErrorKind, Socket, Umem, Wait};

/// Packets in a test.
const PACKETS: u64 = 4096;
/// Chunks in a UMEM.
const CHUNKS: u32 = 1024;
/// A length that no chunk holds.
const INVALID_LEN: u32 = 9001;
/// Socket pairs that TEARDOWN opens and closes.
const TEARDOWNS: u32 = 10;

type Body = fn(Mode) -> Outcome;

const CASES: [(&str, Body); 30] = [
    ("SEND_RECEIVE", send_receive),
    ("SEND_RECEIVE_2K_FRAME", send_receive_2k_frame),
    ("SEND_RECEIVE_SINGLE_PKT", single_packet),
    ("POLL_RX", poll_rx),
    ("POLL_TX", poll_tx),
    ("POLL_RXQ_FULL", poll_rx_times_out),
    ("POLL_TXQ_FULL", poll_tx_times_out),
    ("SEND_RECEIVE_UNALIGNED", send_receive_unaligned),
    ("whole MTU", whole_mtu),
    ("ALIGNED_INV_DESC", |mode| {
        invalid_descriptors(mode, 4096, false)
    }),
    ("ALIGNED_INV_DESC_2K_FRAME_SIZE", |mode| {
        invalid_descriptors(mode, 2048, false)
    }),
    ("UNALIGNED_INV_DESC", |mode| {
        invalid_descriptors(mode, 4096, true)
    }),
    ("UNALIGNED_INV_DESC_4001_FRAME_SIZE", |mode| {
        invalid_descriptors(mode, 4001, true)
    }),
    ("UMEM_HEADROOM", umem_headroom),
    ("TEARDOWN", teardown),
    ("BIDIRECTIONAL", bidirectional),
    ("STAT_RX_DROPPED", stat_rx_dropped),
    ("STAT_TX_INVALID", stat_tx_invalid),
    ("STAT_RX_FULL", stat_rx_full),
    ("STAT_FILL_EMPTY", stat_fill_empty),
    ("XDP_PROG_CLEANUP", program_cleanup),
    ("XDP_DROP_HALF", drop_half),
    ("XDP_SHARED_UMEM", shared_umem),
    ("XDP_METADATA_COPY", metadata),
    ("XDP_ADJUST_TAIL_SHRINK", |mode| adjust_tail(mode, -4)),
    ("XDP_ADJUST_TAIL_GROW", |mode| adjust_tail(mode, 4)),
    ("TX_QUEUE_CONSUMER", tx_queue_consumer),
    ("BUSY-POLL", busy_poll),
    ("HW_SW_MIN_RING_SIZE", min_ring_size),
    ("HW_SW_MAX_RING_SIZE", max_ring_size),
];

const ONLY_COPIES: &str = "the kernel's test is for copy mode";

pub fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for (name, body) in CASES {
        for (prefix, mode) in modes() {
            let test = Test::new(format!("{prefix} {name}"), move || body(mode));
            tests.push(match name {
                "TX_QUEUE_CONSUMER" => test.needing(&[needs::TX_BUDGET]),
                "STAT_RX_FULL" | "STAT_FILL_EMPTY" => test.needing(&[needs::RING_STATISTICS]),
                _ => test,
            });
        }
    }
    tests
}

fn umem(chunk_size: u32) -> xsk::Result<Umem> {
    Umem::builder()
        .chunks(CHUNKS)
        .chunk_size(chunk_size)
        .build()
}

/// Of one huge page for a card, which takes no chunks across pages.
fn unaligned_umem(mode: Mode, chunk_size: u32) -> Result<Umem> {
    let is_huge = mode == Mode::ZeroCopy;
    let umem = Umem::builder()
        .chunks(if is_huge { CHUNKS / 2 } else { CHUNKS })
        .chunk_size(chunk_size)
        .unaligned(true)
        .huge_pages(is_huge)
        .build()?;
    match umem.pages() {
        Pages::FellBack(why) => Err(skip(why.clone())),
        _ => Ok(umem),
    }
}

/// Lowers the MTU of a card, so that a packet fits into a chunk of 2048 bytes on igb; [`Lab`] raises it again.
fn lower_mtu(mode: Mode, side: &Side) -> Outcome {
    if mode == Mode::ZeroCopy {
        side.ip(&format!("link set dev {} mtu 1000", side.device))?;
    }
    Ok(())
}

fn obtained(mode: Mode) -> ModeObtained {
    match mode {
        Mode::Skb => ModeObtained::Skb,
        Mode::ZeroCopy => ModeObtained::ZeroCopy,
        _ => ModeObtained::Driver,
    }
}

/// Attaches a test's own program on the receiving side.
fn program(lab: &Lab, mode: Mode, kind: Kind) -> xsk::Result<Program> {
    let device = lab.rx.lookup()?;
    let attach = || programs::attach(&device, attach_mode(mode), kind, 4);
    lab.rx.inside(attach)
}

/// Skips a test that says nothing in zero-copy mode.
fn only_copies(mode: Mode) -> Outcome {
    if mode == Mode::ZeroCopy {
        return Err(skip(ONLY_COPIES));
    }
    Ok(())
}

/// Sends and receives between two UMEMs, and checks that all their chunks are free again.
fn one_way(mode: Mode, from: &Umem, to: &Umem, count: u64, size: usize) -> Outcome {
    one_way_in(&Lab::new()?, mode, from, to, count, size)
}

fn one_way_in(lab: &Lab, mode: Mode, from: &Umem, to: &Umem, count: u64, size: usize) -> Outcome {
    let mut rx = lab.rx.open(to, mode, |builder| builder.tx_ring(0))?;
    let mut tx = lab.tx.open(from, mode, |builder| builder.rx_ring(0))?;
    assert_eq!(rx.mode(), obtained(mode));
    deliver(&mut tx, &mut rx, count, size)?;
    drop((tx, rx));
    all_home(from);
    all_home(to);
    Ok(())
}

fn send_receive(mode: Mode) -> Outcome {
    one_way(mode, &umem(4096)?, &umem(4096)?, PACKETS, packet::MIN)
}

/// Packets in unaligned chunks are counted and dropped by who reads them as packets of aligned ones.
fn read_as_aligned(tx: &mut Socket, rx: &mut Socket) -> Outcome {
    send_one(tx, 0)?;
    rx.wait(Duration::from_secs(1))?;
    assert!(rx.recv(1).next_packet().is_none());
    let statistics = rx.statistics()?;
    assert_eq!((statistics.fragmented, statistics.invalid_descs), (1, 0));
    Ok(())
}

/// Of the packets, more than a fifth lie across pages.
fn send_receive_unaligned(mode: Mode) -> Outcome {
    const SIZE: usize = 1514;
    // igb would take packets of that size apart for chunks of 2049 bytes.
    let chunk_sizes: &[u32] = match mode {
        Mode::ZeroCopy => &[3000],
        _ => &[3000, 2049],
    };
    for &chunk_size in chunk_sizes {
        let umem = || unaligned_umem(mode, chunk_size);
        let (from, to) = (umem()?, umem()?);
        // All at once, or it would be the same one each time.
        let frames: Vec<_> = std::iter::from_fn(|| from.alloc()).collect();
        let place = |frame: &xsk::Frame| raw::chunk_address(frame) + u64::from(frame.headroom());
        let places: Vec<u64> = frames.iter().map(place).collect();
        drop(frames);
        let straddle = |at: &&u64| **at % 4096 > 4096 - SIZE as u64;
        assert!(5 * places.iter().filter(straddle).count() > places.len());
        let lab = Lab::new()?;
        let mut rx = lab.rx.open(&to, mode, |builder| builder.tx_ring(0))?;
        let mut tx = lab.tx.open(&from, mode, |builder| builder.rx_ring(0))?;
        exchange(
            |flight| send_all(&mut tx, PACKETS, SIZE, flight),
            |flight| receive_unaligned(&mut rx, PACKETS, SIZE, flight),
        );
        read_as_aligned(&mut tx, &mut rx)?;
        drop((tx, rx));
        all_home(&from);
        all_home(&to);
    }
    Ok(())
}

fn send_receive_2k_frame(mode: Mode) -> Outcome {
    let (from, to, lab) = (umem(2048)?, umem(2048)?, Lab::new()?);
    lower_mtu(mode, &lab.rx)?;
    one_way_in(&lab, mode, &from, &to, PACKETS, packet::MIN)
}

/// Packets of a whole MTU in the chunks that a socket takes them in, or the socket says that it does not.
fn whole_mtu(mode: Mode) -> Outcome {
    for chunk_size in [2048, 4096] {
        let (from, to, lab) = (umem(chunk_size)?, umem(chunk_size)?, Lab::new()?);
        let outcome = one_way_in(&lab, mode, &from, &to, PACKETS, 1514);
        let error = outcome.as_ref().err();
        match error.and_then(|error| error.downcast_ref::<xsk::Error>()) {
            Some(error) if chunk_size == 2048 && mode == Mode::ZeroCopy => {
                assert_eq!(error.kind(), ErrorKind::MtuTooLarge, "{error}");
            }
            _ => outcome?,
        }
    }
    Ok(())
}

fn single_packet(mode: Mode) -> Outcome {
    one_way(mode, &umem(4096)?, &umem(4096)?, 1, packet::MIN)
}

fn umem_headroom(mode: Mode) -> Outcome {
    let to = Umem::builder()
        .chunks(CHUNKS)
        .chunk_size(4096)
        .headroom(128);
    one_way(mode, &umem(4096)?, &to.build()?, PACKETS, packet::MIN)
}

fn poll_rx(mode: Mode) -> Outcome {
    let (from, to) = (umem(4096)?, umem(4096)?);
    let lab = Lab::new()?;
    let mut rx = lab
        .rx
        .open(&to, mode, |builder| builder.tx_ring(0).wait(Wait::Poll))?;
    let mut tx = lab.tx.open(&from, mode, |builder| builder.rx_ring(0))?;
    deliver(&mut tx, &mut rx, PACKETS, packet::MIN)?;
    assert!(rx.statistics()?.sleeps > 0, "it never polled");
    Ok(())
}

/// The waiting thread itself runs the driver. Where there is nothing to run, packets arrive all the same.
fn busy_poll(mode: Mode) -> Outcome {
    let (from, to) = (umem(4096)?, umem(4096)?);
    let lab = Lab::new()?;
    lab.rx.defer_interrupts()?;
    let mut rx = lab
        .rx
        .open(&to, mode, |builder| builder.tx_ring(0).wait(Wait::BusyPoll))?;
    let mut tx = lab.tx.open(&from, mode, |builder| builder.rx_ring(0))?;
    deliver(&mut tx, &mut rx, PACKETS, packet::MIN)?;
    if rx.napi_id()?.is_none() {
        let reason =
            "the device gives the socket no NAPI instance to poll, as veth since Linux 6.13";
        return Err(skip(reason));
    }
    Ok(())
}

/// Events of a socket, after at most `timeout`.
fn poll_for(socket: &Socket, events: PollFlags, timeout: Duration) -> Result<PollFlags> {
    let socket = raw::descriptor(socket);
    let mut fds = [PollFd::new(&socket, events)];
    poll(&mut fds, Some(&Timespec::try_from(timeout)?))?;
    Ok(fds[0].revents())
}

/// poll(2) alone makes the kernel transmit.
fn poll_tx(mode: Mode) -> Outcome {
    let (from, to) = (umem(4096)?, umem(4096)?);
    let lab = Lab::new()?;
    let mut rx = lab.rx.open(&to, mode, |builder| builder.tx_ring(0))?;
    let mut tx = lab.tx.open(&from, mode, |builder| builder.rx_ring(0))?;
    exchange(
        |flight| {
            for sequence in 0..PACKETS {
                flight.wait_for_room(sequence, || ());
                let mut found = None;
                let there = wait_until(STALL, || {
                    found = tx.alloc();
                    found.is_some() || flight.stopped()
                });
                assert!(there, "no frame came back from sending");
                let Some(mut frame) = found else { return };
                packet::fill(&mut frame, 0, sequence, packet::MIN);
                tx.send(frame).expect("a ring larger than the window");
                raw::publish(&mut tx);
                let sent = wait_until(STALL, || {
                    let events = poll_for(&tx, PollFlags::OUT, Duration::ZERO).expect("poll");
                    events.contains(PollFlags::OUT) && raw::pending(&mut tx) == 0
                });
                assert!(sent, "poll did not send packet {sequence}");
            }
        },
        |flight| receive_all(&mut rx, 0..PACKETS, packet::MIN, flight),
    );
    drain(&mut tx);
    assert_eq!(
        tx.statistics()?.wakeups,
        0,
        "something other than poll sent"
    );
    Ok(())
}

/// Without a sender, poll ends at its timeout.
fn poll_rx_times_out(mode: Mode) -> Outcome {
    const TIMEOUT: Duration = Duration::from_millis(100);
    let to = umem(4096)?;
    let lab = Lab::new()?;
    let mut rx = lab
        .rx
        .open(&to, mode, |builder| builder.tx_ring(0).wait(Wait::Poll))?;
    let start = Instant::now();
    assert!(!rx.wait(TIMEOUT)?);
    assert!(start.elapsed() >= TIMEOUT);
    assert!(poll_for(&rx, PollFlags::IN, TIMEOUT)?.is_empty());
    assert!(rx.recv(1).is_empty());
    Ok(())
}

/// Packets larger than the MTU, a ring full of them: poll ends, and everything completes.
fn poll_tx_times_out(mode: Mode) -> Outcome {
    let from = umem(2048)?;
    let lab = Lab::new()?;
    let mut tx = lab.tx.open(&from, mode, |builder| {
        builder.rx_ring(0).tx_ring(256).completion_ring(256)
    })?;
    for sequence in 0..=256 {
        let mut frame = tx.alloc().ok_or("a frame")?;
        packet::fill(&mut frame, 0, sequence, 2048);
        let sent = tx.send(frame).map_err(|unsent| unsent.kind);
        let expected = if sequence < 256 {
            Ok(())
        } else {
            Err(SendErrorKind::Full)
        };
        assert_eq!(sent, expected);
    }
    raw::publish(&mut tx);
    let mut limit = Limit::new(STALL);
    poll_for(&tx, PollFlags::OUT, Duration::from_millis(100))?;
    assert!(!limit.is_over());
    drain(&mut tx);
    assert_eq!(
        tx.statistics()?.completed,
        256,
        "dropped packets complete too"
    );
    drop(tx);
    all_home(&from);
    Ok(())
}

/// Good and bad descriptors in one ring: the good ones arrive, in order, and the kernel counts
/// the bad ones.
fn invalid_descriptors(mode: Mode, chunk_size: u32, unaligned: bool) -> Outcome {
    const LEN: u32 = packet::MIN as u32;
    let umem = || -> Result<Umem> {
        if unaligned {
            unaligned_umem(mode, chunk_size)
        } else {
            Ok(umem(chunk_size)?)
        }
    };
    let (from, to) = (umem()?, umem()?);
    let chunk = u64::from(chunk_size);
    let end = chunk * u64::from(from.chunks());
    let half = u64::from(LEN / 2);
    // Of chunks with an odd size the first two bytes stay free.
    let first = chunk % 2 * 2;
    let cases = [
        // The first byte of the UMEM that a frame can have, and another chunk's.
        (first, LEN, true),
        (2 * 4096, LEN, true),
        // Before the start; too long; up to an end near the UMEM's; behind it; over it.
        (0_u64.wrapping_sub(2), LEN, false),
        (4 * 4096, INVALID_LEN, false),
        (end - u64::from(LEN) - 2 * chunk, LEN, true),
        (end, LEN, false),
        (end - half, LEN, false),
        // Over a page's end, and over a border that is a chunk's only for chunks of 2 KiB.
        (0x1000 - half, LEN, unaligned),
        (0x6800 - half, LEN, chunk_size != 2048),
        // A valid one, so that a packet arrives at the end.
        (8 * 4096, LEN, true),
    ];
    let lab = Lab::new()?;
    lower_mtu(mode, &lab.rx)?;
    let mut rx = lab.rx.open(&to, mode, |builder| builder.tx_ring(0))?;
    // First, as a zero-copy socket that only sends lends some chunks all the same.
    let mut frames: Vec<_> = std::iter::from_fn(|| from.alloc()).collect();
    let mut tx = lab.tx.open(&from, mode, |builder| builder.rx_ring(0))?;
    let valid = cases.iter().filter(|case| case.2).count() as u64;
    let mut sequence = 0;
    for (addr, len, is_valid) in cases {
        if is_valid {
            let mut bytes = vec![0; len as usize];
            packet::write(&mut bytes, 0, sequence);
            // It may lie across two chunks.
            for (at, byte) in (addr..).zip(bytes) {
                let frame = &mut frames[(at / chunk) as usize];
                assert_eq!(raw::chunk_address(frame), at / chunk * chunk);
                frame.resize(frame.capacity() as usize)?;
                frame[(at % chunk - first) as usize] = byte;
            }
            sequence += 1;
        }
        assert!(raw::push_tx(&mut tx, addr, len, 0));
    }
    exchange(
        |flight| {
            raw::publish(&mut tx);
            let sent = wait_until(STALL, || {
                raw::send_once(&tx).expect("send");
                raw::pending(&mut tx) == 0 || flight.stopped()
            });
            assert!(sent, "the TX ring is stuck behind a bad descriptor");
        },
        |flight| {
            if unaligned {
                receive_unaligned(&mut rx, valid, packet::MIN, flight);
            } else {
                receive_all(&mut rx, 0..valid, packet::MIN, flight);
            }
        },
    );
    let invalid = cases.len() as u64 - valid;
    assert_eq!(tx.statistics()?.tx_invalid_descs, invalid);
    // A kernel may complete bad descriptors or discard them, but none twice.
    let mut completed = Vec::new();
    let all_valid = wait_until(STALL, || {
        completed.extend(std::iter::from_fn(|| raw::take_completion(&mut tx)));
        completed.len() as u64 >= valid
    });
    assert!(all_valid, "completions missing: {completed:x?}");
    std::thread::sleep(Duration::from_millis(5));
    completed.extend(std::iter::from_fn(|| raw::take_completion(&mut tx)));
    for (addr, _, is_valid) in cases {
        let at = completed.iter().position(|&completed| completed == addr);
        assert!(at.is_some() || !is_valid, "{addr:#x} never completed");
        at.map(|at| completed.swap_remove(at));
    }
    assert!(
        completed.is_empty(),
        "completed without being sent: {completed:x?}"
    );
    Ok(())
}

fn teardown(mode: Mode) -> Outcome {
    let (mut from, mut to) = (umem(4096)?, umem(4096)?);
    let lab = Lab::new()?;
    for _ in 0..TEARDOWNS {
        if mode == Mode::ZeroCopy {
            // A closed socket's chunks are not used again.
            (from, to) = (umem(4096)?, umem(4096)?);
        }
        let mut rx = lab.rx.open(&to, mode, |builder| builder.tx_ring(0))?;
        let mut tx = lab.tx.open(&from, mode, |builder| builder.rx_ring(0))?;
        deliver(&mut tx, &mut rx, PACKETS / 4, packet::MIN)?;
        drop((rx, tx));
        all_home(&from);
        all_home(&to);
    }
    Ok(())
}

fn bidirectional(mode: Mode) -> Outcome {
    let (left, right) = (umem(4096)?, umem(4096)?);
    let lab = Lab::new()?;
    let mut rx = lab.rx.open(&left, mode, |builder| builder)?;
    let mut tx = lab.tx.open(&right, mode, |builder| builder)?;
    deliver(&mut tx, &mut rx, PACKETS, packet::MIN)?;
    deliver(&mut rx, &mut tx, PACKETS, packet::MIN)?;
    drop((rx, tx));
    all_home(&left);
    all_home(&right);
    Ok(())
}

/// Every other packet is larger than the room in a chunk.
fn stat_rx_dropped(mode: Mode) -> Outcome {
    only_copies(mode)?;
    let (from, to) = (
        umem(2048)?,
        Umem::builder().chunks(CHUNKS).headroom(1344).build()?,
    );
    let large = to.max_rx_packet() as usize + packet::MIN;
    let lab = Lab::new()?;
    // The MTU grows after the open, which would fail with it.
    lab.rx.ip("link set dev rx0 mtu 400")?;
    let mut rx = lab.rx.open(&to, mode, |builder| builder.tx_ring(0))?;
    lab.rx.ip("link set dev rx0 mtu 1500")?;
    let mut tx = lab.tx.open(&from, mode, |builder| builder.rx_ring(0))?;
    exchange(
        |flight| {
            for sequence in 0..PACKETS {
                flight.wait_for_room(sequence, || tx.flush().expect("flush"));
                let size = if sequence % 2 == 0 {
                    packet::MIN
                } else {
                    large
                };
                let Some(frame) = frame(&mut tx, flight, 0, sequence, size) else {
                    return;
                };
                put(&mut tx, frame, flight);
            }
            flush_checked(&mut tx);
            drain(&mut tx);
        },
        |flight| receive_all(&mut rx, (0..PACKETS).step_by(2), packet::MIN, flight),
    );
    assert_eq!(rx.statistics()?.rx_dropped, PACKETS / 2);
    Ok(())
}

/// Every other descriptor is invalid.
fn stat_tx_invalid(mode: Mode) -> Outcome {
    let (from, to) = (umem(4096)?, umem(4096)?);
    let lab = Lab::new()?;
    let mut rx = lab.rx.open(&to, mode, |builder| builder.tx_ring(0))?;
    let mut tx = lab.tx.open(&from, mode, |builder| builder.rx_ring(0))?;
    let spare = from.alloc().ok_or("a frame")?;
    let valid = PACKETS / 2;
    exchange(
        |flight| {
            for sequence in 0..valid {
                flight.wait_for_room(sequence, || tx.flush().expect("flush"));
                let Some(frame) = frame(&mut tx, flight, 0, sequence, packet::MIN) else {
                    return;
                };
                put(&mut tx, frame, flight);
                let pushed = wait_until(STALL, || {
                    raw::push_tx(&mut tx, raw::chunk_address(&spare), INVALID_LEN, 0) || {
                        tx.flush().expect("flush");
                        flight.stopped()
                    }
                });
                assert!(pushed);
            }
            drain(&mut tx);
            let sent = wait_until(STALL, || {
                tx.flush().expect("flush");
                raw::pending(&mut tx) == 0
            });
            assert!(sent, "the TX ring is stuck behind a bad descriptor");
        },
        |flight| receive_all(&mut rx, 0..valid, packet::MIN, flight),
    );
    tx.reclaim();
    let statistics = tx.statistics()?;
    assert_eq!(statistics.tx_invalid_descs, PACKETS / 2);
    assert_eq!(statistics.completed, valid);
    // Completions of bad descriptors, on kernels that post them, free nothing.
    assert!(
        [0, PACKETS / 2].contains(&statistics.invalid_descs),
        "{statistics:?}"
    );
    drop((tx, spare));
    all_home(&from);
    Ok(())
}

/// Packets are sent in steps that the receiver's kernel has processed while its program does not
/// read them.
fn send_unread(tx: &mut xsk::Socket, rx: &xsk::Socket, count: u64, room: u64) -> Outcome {
    for sequence in 0..count {
        let mut frame = tx.alloc().ok_or("a frame")?;
        packet::fill(&mut frame, 0, sequence, packet::MIN);
        tx.send(frame).map_err(|unsent| unsent.kind.to_string())?;
        if sequence % 32 == 31 {
            drain(tx);
        }
        // From here on the kernel drops packets, and counts them.
        let dropped = (sequence + 1).saturating_sub(room);
        if dropped > 0 && sequence % 32 == 31 {
            let counted = || {
                let now = rx.statistics().expect("statistics");
                (now.rx_ring_full + now.rx_dropped).max(now.fill_ring_empty) >= dropped
            };
            assert!(wait_until(STALL, counted), "{:?}", rx.statistics());
        }
    }
    Ok(())
}

fn stat_rx_full(mode: Mode) -> Outcome {
    const RING: u32 = 256;
    let (from, to) = (umem(4096)?, umem(4096)?);
    let lab = Lab::new()?;
    let mut rx = lab
        .rx
        .open(&to, mode, |builder| builder.tx_ring(0).rx_ring(RING))?;
    let mut tx = lab.tx.open(&from, mode, |builder| builder.rx_ring(0))?;
    send_unread(&mut tx, &rx, 512, u64::from(RING))?;
    assert_eq!(rx.statistics()?.rx_ring_full, 512 - u64::from(RING));
    // The packets that had room are unchanged and in order.
    exchange(
        |_| (),
        |flight| receive_all(&mut rx, 0..u64::from(RING), packet::MIN, flight),
    );
    drop((rx, tx));
    all_home(&to);
    Ok(())
}

fn stat_fill_empty(mode: Mode) -> Outcome {
    let (from, to) = (umem(4096)?, umem(4096)?);
    let lab = Lab::new()?;
    let mut rx = lab
        .rx
        .open(&to, mode, |builder| builder.tx_ring(0).fill_chunks(0))?;
    let mut tx = lab.tx.open(&from, mode, |builder| builder.rx_ring(0))?;
    if mode == Mode::ZeroCopy {
        // The driver itself finds FILL empty, and a card without buffers may keep its peer waiting.
        let counted = || rx.statistics().is_ok_and(|now| now.fill_ring_empty > 0);
        assert!(wait_until(STALL, counted), "{:?}", rx.statistics());
    } else {
        send_unread(&mut tx, &rx, 512, 0)?;
    }
    assert!(rx.statistics()?.fill_ring_empty > 0);
    assert!(rx.recv(64).is_empty());
    Ok(())
}

/// The XSKMAP's slot changes from one socket of the queue to another.
fn program_cleanup(mode: Mode) -> Outcome {
    let (from, to) = (umem(4096)?, umem(4096)?);
    let lab = Lab::new()?;
    let mut rx = lab.rx.open(&to, mode, |builder| builder)?;
    let mut tx = lab.tx.open(&from, mode, |builder| builder.rx_ring(0))?;
    let second = lab.rx.inside(|| rx.add_sibling(2048, 0))?;
    deliver(&mut tx, &mut rx, PACKETS, packet::MIN)?;
    let program = rx.program().ok_or("the built-in program")?.clone();
    let mut sibling = rx.sibling(second).ok_or("the sibling")?;
    sibling.insert_into(program.map(), 0)?;
    exchange(
        |flight| send_all(&mut tx, PACKETS, packet::MIN, flight),
        |flight| {
            let mut next = 0;
            let there = wait_until(STALL * 4, || {
                assert!(
                    rx.recv(64).is_empty(),
                    "the first socket still gets packets"
                );
                let mut sibling = rx.sibling(second).expect("the sibling");
                let mut batch = sibling.recv(64);
                while let Some(received) = batch.next_packet() {
                    packet::check(&received, next);
                    flight.saw(next);
                    next += 1;
                }
                next == PACKETS || flight.stopped()
            });
            assert!(there, "packet {next} does not come");
        },
    );
    drop((rx, tx, program));
    all_home(&to);
    Ok(())
}

fn drop_half(mode: Mode) -> Outcome {
    let (from, to) = (umem(4096)?, umem(4096)?);
    let lab = Lab::new()?;
    let program = program(&lab, mode, Kind::DropHalf)?;
    let mut rx = lab
        .rx
        .open(&to, mode, |builder| builder.tx_ring(0).program(&program))?;
    let mut tx = lab.tx.open(&from, mode, |builder| builder.rx_ring(0))?;
    exchange(
        |flight| send_all(&mut tx, PACKETS, packet::MIN, flight),
        |flight| receive_all(&mut rx, (0..PACKETS).step_by(2), packet::MIN, flight),
    );
    Ok(())
}

/// Two sockets on one queue on either side; the destination MAC selects the receiver.
fn shared_umem(mode: Mode) -> Outcome {
    let (from, to) = (umem(4096)?, umem(4096)?);
    let lab = Lab::new()?;
    let program = program(&lab, mode, Kind::ByDestination)?;
    let mut rx = lab
        .rx
        .open(&to, mode, |builder| builder.program(&program))?;
    let odd = lab.rx.inside(|| rx.add_sibling(2048, 0))?;
    let mut sibling = rx.sibling(odd).ok_or("the sibling")?;
    sibling.insert_into(program.map(), 1)?;
    let mut tx = lab.tx.open(&from, mode, |builder| builder.rx_ring(0))?;
    let other = lab.tx.inside(|| tx.add_sibling(0, 2048))?;
    exchange(
        |flight| {
            for sequence in 0..PACKETS {
                flight.wait_for_room(sequence, || ());
                let to = (sequence % 2) as u8;
                let Some(frame) = frame(&mut tx, flight, to, sequence, packet::MIN) else {
                    return;
                };
                if to == 0 {
                    tx.send(frame).expect("room in the ring");
                    tx.flush().expect("flush");
                } else {
                    let mut sibling = tx.sibling(other).expect("the sibling");
                    sibling.send(frame).expect("room in the ring");
                    sibling.flush().expect("flush");
                }
            }
            drain(&mut tx);
        },
        |flight| {
            let (mut next_even, mut next_odd) = (0, 1);
            let there = wait_until(STALL * 4, || {
                let mut batch = rx.recv(64);
                while let Some(received) = batch.next_packet() {
                    packet::check(&received, next_even);
                    next_even += 2;
                }
                drop(batch);
                let mut sibling = rx.sibling(odd).expect("the sibling");
                let mut batch = sibling.recv(64);
                while let Some(received) = batch.next_packet() {
                    packet::check(&received, next_odd);
                    next_odd += 2;
                }
                flight.saw(next_even.min(next_odd));
                flight.stopped() || (next_even >= PACKETS && next_odd >= PACKETS)
            });
            assert!(there, "packets {next_even} and {next_odd} do not come");
        },
    );
    drop((rx, tx));
    all_home(&from);
    all_home(&to);
    Ok(())
}

/// The program prepends a number to the packet, and the chunk has it.
fn metadata(mode: Mode) -> Outcome {
    let (from, to) = (umem(4096)?, umem(4096)?);
    let lab = Lab::new()?;
    let program = program(&lab, mode, Kind::Metadata)?;
    let mut rx = lab
        .rx
        .open(&to, mode, |builder| builder.tx_ring(0).program(&program))?;
    let mut tx = lab.tx.open(&from, mode, |builder| builder.rx_ring(0))?;
    exchange(
        |flight| send_all(&mut tx, PACKETS, packet::MIN, flight),
        |flight| {
            receive_checked(&mut rx, 0..PACKETS, flight, |packet, sequence| {
                assert_eq!(packet.len(), packet::MIN);
                packet::check(packet, sequence);
                packet.adjust_head(-8).expect("room for the metadata");
                assert_eq!(packet[..8], sequence.to_be_bytes());
            });
        },
    );
    Ok(())
}

fn adjust_tail(mode: Mode, delta: i16) -> Outcome {
    // The kernel's tests use 128. But a native veth copies packets into buffers of whole cache
    // lines, without tailroom for a packet that fills them.
    const SIZE: usize = 2 * packet::MIN - 16;
    let (from, to) = (umem(4096)?, umem(4096)?);
    let lab = Lab::new()?;
    let program = program(&lab, mode, Kind::AdjustTail(delta.into()))?;
    let mut rx = lab
        .rx
        .open(&to, mode, |builder| builder.tx_ring(0).program(&program))?;
    let mut tx = lab.tx.open(&from, mode, |builder| builder.rx_ring(0))?;
    exchange(
        |flight| send_all(&mut tx, 64, SIZE, flight),
        |flight| {
            receive_checked(&mut rx, 0..64, flight, |packet, sequence| {
                assert_eq!(Some(packet.len()), SIZE.checked_add_signed(delta.into()));
                let kept = packet.len().min(SIZE);
                packet::check(&packet[..kept], sequence);
                assert!(packet[kept..].iter().all(|&byte| byte == 0));
            });
        },
    );
    Ok(())
}

/// One send with 33 packets queued and a budget of 32 takes exactly 32.
fn tx_queue_consumer(mode: Mode) -> Outcome {
    only_copies(mode)?;
    let (from, to) = (umem(4096)?, umem(4096)?);
    let lab = Lab::new()?;
    let mut rx = lab.rx.open(&to, mode, |builder| builder.tx_ring(0))?;
    let mut tx = lab
        .tx
        .open(&from, mode, |builder| builder.rx_ring(0).tx_budget(32))?;
    for sequence in 0..33 {
        let mut frame = tx.alloc().ok_or("a frame")?;
        packet::fill(&mut frame, 0, sequence, packet::MIN);
        tx.send(frame).map_err(|unsent| unsent.kind.to_string())?;
    }
    raw::publish(&mut tx);
    assert_eq!(raw::pending(&mut tx), 33);
    // EAGAIN: the budget is used up.
    let _ = raw::send_once(&tx);
    assert_eq!(raw::pending(&mut tx), 1);
    drain(&mut tx);
    exchange(
        |_| (),
        |flight| receive_all(&mut rx, 0..33, packet::MIN, flight),
    );
    Ok(())
}

/// Packets arrive with sockets' rings of so many slots, and at most so many packets in flight.
fn with_rings(mode: Mode, lab: &Lab, slots: u32, window: u64) -> Outcome {
    let umem = || umem_builder().chunks(slots).build();
    let (from, to) = (umem()?, umem()?);
    let mut rx = lab.rx.open(&to, mode, |builder| {
        let builder = builder.tx_ring(0).rx_ring(slots);
        builder.fill_ring(slots).completion_ring(slots)
    })?;
    let mut tx = lab.tx.open(&from, mode, |builder| {
        let builder = builder.rx_ring(0).tx_ring(slots);
        builder.fill_ring(slots).completion_ring(slots)
    })?;
    deliver_within(window, &mut tx, &mut rx, PACKETS, packet::MIN)?;
    drop((tx, rx));
    all_home(&from);
    all_home(&to);
    Ok(())
}

/// The hardware's smallest rings; one packet at a time, and one fewer than such a ring holds.
fn min_ring_size(mode: Mode) -> Outcome {
    const LEAST: u32 = 64;
    let lab = Lab::new()?;
    let _rx = rings::resize(&lab.rx, |_| (2 * LEAST, LEAST))?;
    let _tx = rings::resize(&lab.tx, |_| (2 * LEAST, LEAST))?;
    with_rings(mode, &lab, 2048, 1)?;
    with_rings(mode, &lab, 2048, u64::from(LEAST) - 1)
}

fn max_ring_size(mode: Mode) -> Outcome {
    let lab = Lab::new()?;
    let _rx = rings::resize(&lab.rx, |rings| rings.most)?;
    let _tx = rings::resize(&lab.tx, |rings| rings.most)?;
    with_rings(mode, &lab, 4 * 2048, WINDOW)
}
