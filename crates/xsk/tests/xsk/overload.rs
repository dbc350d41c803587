//! Packets that come faster than a program takes them, and packets afterwards.

use crate::netns::{Lab, umem_builder};
use crate::traffic::{WINDOW, drain};
use crate::{Outcome, modes, packet};
use hostnet::cpulist;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Test, skip};
use xsk::{Mode, Socket, SocketBuilder, Umem};

/// Packets of a burst: fewer than the chunks that a socket lends by default.
const BURST: u64 = 1000;
const BURSTS: u64 = 20;
/// Packets that a program takes in an overload.
const OVERLOAD: u64 = 40_000;

pub fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for (prefix, mode) in modes() {
        tests.push(Test::new(
            format!("{prefix} bursts after an overload are received as those before"),
            move || three_phases(mode),
        ));
        let name = format!("{prefix} chunks lent under overload");
        tests.push(Test::new(name, move || compare(mode)).alone().deep());
    }
    tests
}

fn umem() -> xsk::Result<Umem> {
    umem_builder().chunks(4096).build()
}

/// Sends packets, and waits until the device has received them: no more at once than a veth's ring has slots.
fn send(tx: &mut Socket, packets: u64) {
    let mut left = packets;
    while left > 0 {
        left -= write(tx, left.min(WINDOW));
        drain(tx);
    }
}

fn write(tx: &mut Socket, packets: u64) -> u64 {
    let sent = tx.send_each(packets as u32, |room| {
        packet::write(&mut room[..packet::MIN], 0, 0);
        packet::MIN
    });
    u64::from(sent)
}

/// Forwards a batch; returns the number of packets.
fn forward(rx: &mut Socket, max: u32) -> xsk::Result<u64> {
    let count = rx.forward_each(max, |mut packet| {
        packet[0] = 2;
        packet.send()
    });
    rx.flush()?;
    Ok(u64::from(count))
}

/// Forwards until all `sent` packets are accounted for.
fn forward_rest(rx: &mut Socket, sent: u64) -> Outcome {
    let is_all = testkit::wait_until(crate::budget::STALL, || {
        while forward(rx, 64).expect("the device is up") > 0 {}
        let now = rx.statistics().expect("statistics");
        now.received + now.rx_dropped + now.rx_ring_full == sent
    });
    assert!(is_all, "of {sent}: {:?}", rx.statistics()?);
    Ok(())
}

/// Bursts, an overload, and the same bursts. Nothing depends on the time: the program takes packets when the
/// device has received those of a burst, and half of the packets of an overload.
fn three_phases(mode: Mode) -> Outcome {
    let (lab, from, to) = (Lab::new()?, umem()?, umem()?);
    let mut rx = lab.rx.open(&to, mode, |b| b)?;
    let mut tx = lab.tx.open(&from, mode, |b| b.rx_ring(0))?;
    let (mut sent, mut dropped) = (0, 0);
    let mut dropped_of = |rx: &mut Socket, phase, packets| -> crate::Result<u64> {
        sent += packets;
        forward_rest(rx, sent)?;
        let before = std::mem::replace(&mut dropped, rx.statistics()?.rx_dropped);
        println!(
            "{} {phase}: {} of {packets} packets dropped",
            rx.mode(),
            dropped - before
        );
        Ok(dropped - before)
    };
    let bursts = |rx: &mut Socket, tx: &mut Socket| -> Outcome {
        for _ in 0..BURSTS {
            send(tx, BURST);
            while forward(rx, 64)? > 0 {}
        }
        Ok(())
    };

    bursts(&mut rx, &mut tx)?;
    assert_eq!(dropped_of(&mut rx, "before", BURSTS * BURST)?, 0);
    let mut taken = 0;
    while taken < OVERLOAD {
        send(&mut tx, WINDOW);
        taken += forward(&mut rx, WINDOW as u32 / 2)?;
    }
    let lost = dropped_of(&mut rx, "overload", taken * 2)?;
    assert!(lost > taken / 2, "no overload");
    bursts(&mut rx, &mut tx)?;
    assert_eq!(dropped_of(&mut rx, "afterwards", BURSTS * BURST)?, 0);
    assert_eq!(to.accounting().receiving, 2048);
    Ok(())
}

/// Prints the packets a second that a program forwards under overload with few chunks lent for receiving, and
/// with the default, in turns. It judges nothing.
fn compare(mode: Mode) -> Outcome {
    const ROUNDS: usize = 15;
    if thread::available_parallelism()?.get() < 2 {
        return Err(skip("needs 2 CPUs, for the sender and the receiver"));
    }
    let (lab, from) = (Lab::new()?, umem()?);
    let mut tx = lab.tx.open(&from, mode, |b| b.rx_ring(0))?;
    let stop = AtomicBool::new(false);
    let ratios = thread::scope(|scope| {
        scope.spawn(|| {
            cpulist::pin(0).expect("CPU 0");
            while !stop.load(Ordering::Relaxed) {
                write(&mut tx, WINDOW);
                let _ = tx.flush();
            }
        });
        let rounds = || -> crate::Result<Vec<[f64; 2]>> {
            cpulist::pin(1)?;
            let round = |_| {
                let few = rate(&lab, mode, |b| b.fill_chunks(256))?;
                Ok([few, rate(&lab, mode, |b| b)?])
            };
            (0..ROUNDS).map(round).collect()
        };
        let rounds = scope.spawn(rounds).join().expect("no panic");
        stop.store(true, Ordering::Relaxed);
        rounds
    })?;
    let of = |figure: fn(&[f64; 2]) -> f64| median(ratios.iter().map(figure).collect());
    println!(
        "\n256 chunks: {:.0} packets a second; default: {:.0}; ratio {:.2}",
        of(|[few, _]| *few),
        of(|[_, all]| *all),
        of(|[few, all]| few / all)
    );
    Ok(())
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Packets a second that a socket forwards, each with a microsecond of work.
fn rate(
    lab: &Lab,
    mode: Mode,
    configure: impl FnOnce(SocketBuilder) -> SocketBuilder,
) -> crate::Result<f64> {
    const TIME: Duration = Duration::from_millis(500);
    const WORK: Duration = Duration::from_micros(1);
    let umem = umem()?;
    let mut rx = lab.rx.open(&umem, mode, configure)?;
    let start = Instant::now();
    let mut forwarded = 0;
    while start.elapsed() < TIME {
        rx.wait(Duration::from_millis(10))?;
        forwarded += rx.forward_each(64, |packet| {
            let start = Instant::now();
            while start.elapsed() < WORK {}
            packet.send()
        });
        rx.flush()?;
    }
    Ok(f64::from(forwarded) / start.elapsed().as_secs_f64())
}
