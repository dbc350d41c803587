//! Frames, waiting and settings across real sends.

use crate::budget::STALL;
use crate::netns::Lab;
use crate::traffic::{
    Flight, all_home, deliver, drain, exchange, receive_all, receive_checked, send_all, send_one,
};
use crate::{Outcome, needs, packet};
use std::time::{Duration, Instant};
use testkit::limit::longest;
use testkit::{Limit, Test, skip, wait_until};
use xsk::testing::raw;
use xsk::{ErrorKind, Mode, Pages, TxPacket, Umem, Wait};

const PACKETS: u64 = 1024;

pub fn tests() -> Vec<Test> {
    let mut tests = vec![
        Test::new("huge pages, or the reason for none", huge_pages),
        Test::new("a UMEM on a NUMA node", numa_node),
        Test::new(
            "more frames kept than are lent for receiving",
            keep_everything,
        ),
        Test::new(
            "a wait sees frames that another thread frees",
            freed_elsewhere,
        ),
        Test::new("unread packets are recycled", unread_is_recycled),
        Test::new("Poll wakes for a packet", || wakes(Wait::Poll)),
        Test::new("Adaptive wakes for a packet", || wakes(Wait::adaptive())),
        Test::new("Spin sees a packet", || wakes(Wait::Spin)),
        Test::new("every way of waiting ends in time", waiting_ends),
        Test::new("Adaptive gathers packets", adaptive_gathers),
    ];
    for (prefix, mode) in [("SKB", Mode::Skb), ("DRV", Mode::Driver)] {
        let mut add = |name: &str, body: fn(Mode) -> Outcome| {
            let test = Test::new(format!("{prefix} {name}"), move || body(mode));
            tests.push(if name.contains("budget") {
                test.needing(&[needs::TX_BUDGET])
            } else {
                test
            });
        };
        add(
            "head and tail move across a forwarded packet",
            reshape_and_forward,
        );
        add("packets of the whole MTU", whole_mtu);
        add("without need_wakeup", without_need_wakeup);
        add("statistics", statistics);
        add("small rings", small_rings);
        add("packets written in place", written_in_place);
        add("the TX budget is the requested one", tx_budget);
    }
    tests
}

fn umem() -> xsk::Result<Umem> {
    Umem::builder().chunks(1024).build()
}

/// A tag is prepended, the tail cut, and the packet sent back through the socket that received it.
fn reshape_and_forward(mode: Mode) -> Outcome {
    const TAG: [u8; 12] = *b"in the front";
    let (far, near, lab) = (umem()?, umem()?, Lab::new()?);
    let mut source = lab.tx.open(&far, mode, |b| b)?;
    let mut forwarder = lab.rx.open(&near, mode, |b| b)?;
    for sequence in 0..PACKETS {
        send_one(&mut source, sequence)?;
        let there = || forwarder.wait(Duration::from_millis(10)).expect("wait");
        assert!(wait_until(STALL, there));
        let mut batch = forwarder.recv(64);
        let mut received = batch.next_packet().ok_or("a packet")?;
        received.adjust_head(-12)?;
        received.adjust_tail(-4)?;
        received[..12].copy_from_slice(&TAG);
        received.send().map_err(|unsent| unsent.kind.to_string())?;
        drop(batch);
        drain(&mut forwarder);
        let there = || source.wait(Duration::from_millis(10)).expect("wait");
        assert!(wait_until(STALL, there));
        let mut batch = source.recv(64);
        let mut back = batch.next_packet().ok_or("a packet")?;
        assert_eq!((back.len(), &back[..12]), (packet::MIN + 12 - 4, &TAG[..]));
        back.adjust_head(12)?;
        packet::check(&back, sequence);
        let kept = back.keep();
        drop(batch);
        packet::check(&kept, sequence);
    }
    drop((source, forwarder));
    all_home(&far);
    all_home(&near);
    Ok(())
}

fn whole_mtu(mode: Mode) -> Outcome {
    let (from, to, lab) = (umem()?, umem()?, Lab::new()?);
    let mut rx = lab.rx.open(&to, mode, |b| b.tx_ring(0))?;
    let mut tx = lab.tx.open(&from, mode, |b| b.rx_ring(0))?;
    deliver(&mut tx, &mut rx, PACKETS, 14 + 1500)
}

fn without_need_wakeup(mode: Mode) -> Outcome {
    let (from, to, lab) = (umem()?, umem()?, Lab::new()?);
    let mut rx = lab.rx.open(&to, mode, |b| b.need_wakeup(false))?;
    let mut tx = lab.tx.open(&from, mode, |b| b.need_wakeup(false))?;
    deliver(&mut tx, &mut rx, PACKETS, packet::MIN)?;
    deliver(&mut rx, &mut tx, PACKETS, packet::MIN)
}

/// Rings so small that each fills and wraps around many times.
fn small_rings(mode: Mode) -> Outcome {
    let (from, to, lab) = (umem()?, umem()?, Lab::new()?);
    let mut rx = lab
        .rx
        .open(&to, mode, |b| b.tx_ring(0).rx_ring(128).fill_ring(256))?;
    let mut tx = lab
        .tx
        .open(&from, mode, |b| b.rx_ring(0).tx_ring(4).completion_ring(2))?;
    deliver(&mut tx, &mut rx, 4 * PACKETS, packet::MIN)?;
    drop((rx, tx));
    all_home(&from);
    all_home(&to);
    Ok(())
}

/// Writes packets into batches of many sizes, and sends all but each third. The burst sends a batch of so many packets,
/// each after the closure has written it, and flushes.
fn write_in_place(flight: &Flight, mut burst: impl FnMut(u32, &mut dyn FnMut(TxPacket<'_>))) {
    let mut next = 0;
    while next < 4 * PACKETS && !flight.stopped() {
        flight.wait_for_room(next, || burst(0, &mut |_| {}));
        let max = (next % 23 + 1).min(4 * PACKETS - next);
        burst(max as u32, &mut |mut packet| {
            packet.resize(packet::MIN).expect("room");
            packet::write(&mut packet, 0, next);
            if next % 3 != 2 {
                packet.send();
            }
            next += 1;
        });
    }
}

/// By a socket whose rings are soon full, and by the half of one.
fn written_in_place(mode: Mode) -> Outcome {
    let (from, to, lab) = (umem()?, umem()?, Lab::new()?);
    let mut rx = lab.rx.open(&to, mode, |b| b.tx_ring(0))?;
    let open = || lab.tx.open(&from, mode, |b| b.rx_ring(0).tx_ring(16));
    let mut receive = |flight: &Flight| {
        let sent = (0..4 * PACKETS).filter(|sequence| sequence % 3 != 2);
        receive_all(&mut rx, sent, packet::MIN, flight);
    };

    let mut tx = open()?;
    let socket = |max, write: &mut dyn FnMut(TxPacket<'_>)| {
        tx.send_batch(max).iter_mut().for_each(write);
        tx.flush().expect("flush");
    };
    exchange(|flight| write_in_place(flight, socket), &mut receive);
    drain(&mut tx);
    let count = tx.statistics()?;
    let faults = (count.invalid_descs, count.tx_invalid_descs);
    assert_eq!((count.sent, faults), (count.completed, (0, 0)));
    drop(tx);

    let (_, mut tx) = open()?.split();
    let half = |max, write: &mut dyn FnMut(TxPacket<'_>)| {
        tx.send_batch(max).iter_mut().for_each(write);
        tx.flush().expect("flush");
    };
    exchange(|flight| write_in_place(flight, half), &mut receive);
    assert!(wait_until(STALL, || {
        tx.flush().expect("flush");
        tx.outstanding() == 0
    }));
    drop((rx, tx));
    all_home(&from);
    all_home(&to);
    Ok(())
}

/// More than the kernel's default of 32.
fn tx_budget(mode: Mode) -> Outcome {
    let (from, lab) = (umem()?, Lab::new()?);
    let mut tx = lab.tx.open(&from, mode, |b| b.rx_ring(0).tx_budget(64))?;
    assert!(tx.refusals().is_empty());
    for sequence in 0..65 {
        let mut frame = tx.alloc().ok_or("a frame")?;
        packet::fill(&mut frame, 0, sequence, packet::MIN);
        tx.send(frame).map_err(|unsent| unsent.kind.to_string())?;
    }
    raw::publish(&mut tx);
    // EAGAIN: the budget is used up.
    let _ = raw::send_once(&tx);
    assert_eq!(raw::pending(&mut tx), 1);
    Ok(())
}

fn statistics(mode: Mode) -> Outcome {
    let (from, to, lab) = (umem()?, umem()?, Lab::new()?);
    let mut rx = lab.rx.open(&to, mode, |b| b.tx_ring(0))?;
    let mut tx = lab.tx.open(&from, mode, |b| b.rx_ring(0))?;
    assert_eq!(rx.statistics()?, xsk::Statistics::default());
    deliver(&mut tx, &mut rx, PACKETS, packet::MIN)?;
    let (sent, received) = (tx.statistics()?, rx.statistics()?);
    assert_eq!(
        (sent.sent, sent.completed, sent.received),
        (PACKETS, PACKETS, 0)
    );
    assert_eq!(
        (received.sent, received.completed, received.received),
        (0, 0, PACKETS)
    );
    assert!(sent.wakeups > 0 && sent.send_drops == 0);
    let nothing_dropped = (
        received.rx_dropped,
        received.rx_ring_full,
        received.fill_ring_empty,
    );
    assert_eq!(nothing_dropped, (0, 0, 0));
    let count = to.accounting();
    assert_eq!(count.receiving, 1024, "{count:?}");
    Ok(())
}

fn huge_pages() -> Outcome {
    let (from, lab) = (umem()?, Lab::new()?);
    let to = Umem::builder().chunks(1024).huge_pages(true).build()?;
    match to.pages() {
        Pages::Huge => {}
        Pages::FellBack(why) => assert!(why.contains("`echo 1 > /sys"), "{why}"),
        other => panic!("asked for huge pages, got {other:?}"),
    }
    let mut rx = lab.rx.open(&to, Mode::Driver, |b| b.tx_ring(0))?;
    let mut tx = lab.tx.open(&from, Mode::Driver, |b| b.rx_ring(0))?;
    deliver(&mut tx, &mut rx, PACKETS, packet::MIN)
}

fn numa_node() -> Outcome {
    let on = |node| Umem::builder().chunks(64).numa_node(node).build();
    let umem = match on(0) {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            return Err(skip(error.to_string()));
        }
        Err(error) if error.kind() == ErrorKind::InvalidConfig => {
            return Err(skip(format!("no node 0: {error}")));
        }
        umem => umem?,
    };
    let all = umem.alloc().ok_or("a frame")?;
    let maps = std::fs::read_to_string("/proc/self/numa_maps")?;
    let ours = |line: &&str| line.contains("xsk-umem") && line.contains("bind:0");
    let line = maps
        .lines()
        .find(ours)
        .ok_or("no mapping with the policy")?;
    let figure = |name| {
        let mut fields = line.split(' ');
        fields.find_map(|field| field.strip_prefix(name)?.parse::<usize>().ok())
    };
    let [pages, kilobytes] = ["N0=", "kernelpagesize_kB="].map(figure);
    let kilobytes = pages.ok_or("pages")? * kilobytes.ok_or("their size")?;
    assert_eq!(kilobytes, 128, "64 chunks: {line}");
    drop((all, umem));
    for node in [1000, 1023, 1024, u32::MAX] {
        let error = on(node).expect_err("no such node");
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        assert!(error.to_string().contains("choose one of"), "{error}");
    }
    // A veth is connected to no node.
    assert_eq!(Lab::new()?.rx.lookup()?.numa_node(), None);
    Ok(())
}

/// A program that keeps every packet uses up the UMEM; once it drops them, packets arrive again.
fn keep_everything() -> Outcome {
    let (from, lab) = (umem()?, Lab::new()?);
    let to = Umem::builder().chunks(256).build()?;
    let mut rx = lab
        .rx
        .open(&to, Mode::Driver, |b| b.tx_ring(0).fill_chunks(64))?;
    let mut tx = lab.tx.open(&from, Mode::Driver, |b| b.rx_ring(0))?;
    let mut kept = Vec::new();
    for sequence in 0..256 {
        send_one(&mut tx, sequence)?;
        assert!(wait_until(STALL, || rx
            .wait(Duration::from_millis(10))
            .expect("wait")));
        let mut batch = rx.recv(256);
        kept.push(batch.next_packet().ok_or("a packet")?.keep());
    }
    // None is left for this one.
    send_one(&mut tx, 256)?;
    let dropped = || rx.statistics().is_ok_and(|now| now.fill_ring_empty > 0);
    assert!(wait_until(STALL, dropped));
    assert!(rx.recv(1).is_empty());
    for (sequence, frame) in (0..).zip(&kept) {
        packet::check(frame, sequence);
    }
    drop(kept);
    assert!(rx.recv(1).is_empty());
    send_one(&mut tx, 257)?;
    assert!(wait_until(STALL, || rx
        .wait(Duration::from_millis(10))
        .expect("wait")));
    packet::check(&rx.recv(1).next_packet().ok_or("a packet")?, 257);
    drop(rx);
    all_home(&to);
    Ok(())
}

/// While the program holds all chunks no packet can arrive, so a waiting socket has to look for
/// chunks that others free.
fn freed_elsewhere() -> Outcome {
    let pause = Duration::from_millis(50);
    for wait in [Wait::Poll, Wait::adaptive(), Wait::Spin] {
        let (from, lab) = (umem()?, Lab::new()?);
        let to = Umem::builder().chunks(64).build()?;
        let mut rx = lab.rx.open(&to, Mode::Driver, |b| {
            b.tx_ring(0).fill_chunks(32).wait(wait)
        })?;
        let mut tx = lab.tx.open(&from, Mode::Driver, |b| b.rx_ring(0))?;
        let mut kept = Vec::new();
        for sequence in 0..64 {
            send_one(&mut tx, sequence)?;
            assert!(rx.wait(longest(STALL))?);
            kept.push(rx.recv(1).next_packet().ok_or("a packet")?.keep());
        }
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(pause);
                drop(kept);
                std::thread::sleep(pause);
                send_one(&mut tx, 64).expect("send");
            });
            assert!(rx.wait(longest(STALL)).expect("wait"), "{wait:?}");
        });
        packet::check(&rx.recv(1).next_packet().ok_or("a packet")?, 64);
    }
    Ok(())
}

/// Many more packets than chunks arrive, and the first of each batch is read.
fn unread_is_recycled() -> Outcome {
    let (from, lab) = (umem()?, Lab::new()?);
    let to = Umem::builder().chunks(64).build()?;
    let mut rx = lab.rx.open(&to, Mode::Driver, |b| b.tx_ring(0))?;
    let mut tx = lab.tx.open(&from, Mode::Driver, |b| b.rx_ring(0))?;
    for first in (0..PACKETS).step_by(32) {
        for sequence in first..first + 32 {
            send_one(&mut tx, sequence)?;
        }
        let mut next = first;
        let all = wait_until(STALL, || {
            let mut batch = rx.recv(8);
            let count = batch.len() as u64;
            if let Some(received) = batch.next_packet() {
                packet::check(&received, next);
            }
            next += count;
            next == first + 32
        });
        assert!(all, "packet {next} does not come: {:?}", rx.statistics());
    }
    assert_eq!(rx.statistics()?.fill_ring_empty, 0);
    drop(rx);
    all_home(&to);
    Ok(())
}

/// The wait ends with the packet, long before its timeout.
fn wakes(wait: Wait) -> Outcome {
    const LONG: Duration = Duration::from_secs(20);
    let (from, to, lab) = (umem()?, umem()?, Lab::new()?);
    let mut rx = lab
        .rx
        .open(&to, Mode::Driver, |b| b.tx_ring(0).wait(wait))?;
    let mut tx = lab.tx.open(&from, Mode::Driver, |b| b.rx_ring(0))?;
    for sequence in 0..20 {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(2));
                send_one(&mut tx, sequence).expect("sent");
            });
            let start = Instant::now();
            assert!(
                rx.wait(LONG).expect("wait"),
                "packet {sequence} was not seen"
            );
            assert!(start.elapsed() < LONG / 2);
            let mut batch = rx.recv(64);
            assert_eq!(batch.len(), 1);
            packet::check(&batch.next_packet().expect("a packet"), sequence);
        });
    }
    Ok(())
}

fn waiting_ends() -> Outcome {
    const SHORT: Duration = Duration::from_millis(20);
    let (to, lab) = (umem()?, Lab::new()?);
    for wait in [Wait::Spin, Wait::Poll, Wait::adaptive()] {
        let mut rx = lab
            .rx
            .open(&to, Mode::Driver, |b| b.tx_ring(0).wait(wait))?;
        for timeout in [SHORT, Duration::ZERO, SHORT] {
            let (start, mut limit) = (Instant::now(), Limit::new(STALL));
            assert!(!rx.wait(timeout)?);
            assert!(start.elapsed() >= timeout, "{wait:?} ended early");
            assert!(!limit.is_over(), "{wait:?} ended late");
        }
    }
    Ok(())
}

/// With a steady stream there are fewer sleeps than packets.
fn adaptive_gathers() -> Outcome {
    let (from, to, lab) = (umem()?, umem()?, Lab::new()?);
    let max_delay = Duration::from_millis(5);
    let wait = Wait::Adaptive { max_delay };
    let mut rx = lab
        .rx
        .open(&to, Mode::Driver, |b| b.tx_ring(0).wait(wait))?;
    let mut tx = lab.tx.open(&from, Mode::Driver, |b| b.rx_ring(0))?;
    exchange(
        |flight| send_all(&mut tx, 8 * PACKETS, packet::MIN, flight),
        |flight| receive_all(&mut rx, 0..8 * PACKETS, packet::MIN, flight),
    );
    let statistics = rx.statistics()?;
    assert!(
        statistics.sleeps * 4 < statistics.received,
        "{statistics:?}"
    );
    // And packets that are read late are unchanged.
    exchange(
        |flight| send_all(&mut tx, 64, packet::MIN, flight),
        |flight| {
            receive_checked(&mut rx, 0..64, flight, |received, sequence| {
                packet::check(received, sequence);
            });
        },
    );
    Ok(())
}
