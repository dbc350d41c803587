//! Opening again, closing in the middle of traffic, and devices that go away.

use crate::budget::{STALL, rounds};
use crate::child::{Role, Started};
use crate::netns::{Lab, are_cards, umem_builder};
use crate::traffic::{all_home, deliver};
use crate::{Outcome, Result, modes, packet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use testkit::limit::longest;
use testkit::{Limit, Test, skip, wait_until};
use xsk::testing::raw;
use xsk::{ErrorKind, Mode, Socket, SocketBuilder, Umem};

/// Times that sockets are closed in the middle of traffic.
const CLOSES: u32 = 20;

pub fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for (prefix, mode) in modes() {
        let mut add = |name, body: fn(Mode) -> Outcome| {
            tests.push(Test::new(format!("{prefix} {name}"), move || body(mode)));
        };
        add("open again after a close", rebind_after_close);
        add("open again after kill -9", rebind_after_kill);
        add("close in the middle of traffic", close_in_traffic);
        add("device set down in the middle of traffic", device_down);
        add("device deleted in the middle of traffic", device_deleted);
        add("peer down", peer_down);
        add(
            "the kernel shows the socket on its queue",
            queue_shows_socket,
        );
    }
    tests
}

/// The sign by which retired chunks come back: Linux shows a queue's socket since 6.15, copy mode or not.
fn queue_shows_socket(mode: Mode) -> Outcome {
    let (umem, lab) = (umem()?, Lab::new()?);
    let socket = lab.rx.open(&umem, mode, |b| b)?;
    let (ifindex, queue) = (socket.ifindex(), socket.queue());
    let shown = || lab.rx.inside(|| raw::is_shown(ifindex, queue));
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse().ok());
    let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    assert_eq!(shown(), version >= (6, 15), "Linux {release}");
    drop(socket);
    assert!(wait_until(STALL, || !shown()), "the queue stays taken");
    Ok(())
}

fn umem() -> xsk::Result<Umem> {
    umem_builder().chunks(1024).build()
}

/// A UMEM for the next socket: the same one, or a new one in zero-copy mode, where the chunks of a
/// closed socket are not used again.
fn again(mode: Mode, used: Umem) -> xsk::Result<Umem> {
    if mode == Mode::ZeroCopy {
        return umem();
    }
    Ok(used)
}

/// Opens the receiving side, with the default timeout for a busy queue, and checks that packets
/// arrive.
fn open_again(lab: &Lab, mode: Mode, from: &Umem, to: &Umem) -> Outcome {
    let mut rx = lab.rx.open(to, mode, |b| b)?;
    let mut tx = lab.tx.open(from, mode, |b| b.rx_ring(0))?;
    deliver(&mut tx, &mut rx, 64, packet::MIN)
}

fn rebind_after_close(mode: Mode) -> Outcome {
    let (mut from, mut to, lab) = (umem()?, umem()?, Lab::new()?);
    for _ in rounds(10) {
        open_again(&lab, mode, &from, &to)?;
        assert!(lab.rx.has_no_program(STALL), "the program has stayed");
        all_home(&to);
        (from, to) = (again(mode, from)?, again(mode, to)?);
    }
    Ok(())
}

fn rebind_after_kill(mode: Mode) -> Outcome {
    let (mut from, mut to, lab) = (umem()?, umem()?, Lab::new()?);
    for round in rounds(4) {
        let mut child = Started::new(&lab.rx, Role::Hold, mode)?;
        assert_eq!(child.line()?, "ready");
        assert_eq!(lab.rx.lookup()?.programs.len(), 1);
        child.kill()?;
        // Otherwise it is opened at once, as a supervisor would.
        if round % 2 == 0 {
            assert!(
                lab.rx.has_no_program(STALL),
                "the program outlives its process"
            );
        }
        open_again(&lab, mode, &from, &to)?;
        (from, to) = (again(mode, from)?, again(mode, to)?);
    }
    Ok(())
}

/// Sends back and forth until stopped, or until a flush fails.
fn churn(socket: &mut Socket, stop: &AtomicBool) -> xsk::Result<()> {
    let mut sequence = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut batch = socket.recv(64);
        while let Some(received) = batch.next_packet() {
            if packet::sequence(&received).is_multiple_of(2) {
                // When the ring is full, the packet is recycled.
                let _ = received.send();
            }
        }
        drop(batch);
        for _ in 0..16 {
            let Some(mut frame) = socket.alloc() else {
                break;
            };
            packet::fill(&mut frame, 0, sequence, packet::MIN);
            sequence += 1;
            if socket.send(frame).is_err() {
                break;
            }
        }
        socket.flush()?;
    }
    Ok(())
}

/// Fills the TX ring, publishes the first half, and does not wake the kernel.
fn leave_unsent(socket: &mut Socket) {
    for sequence in 0..32 {
        let Some(mut frame) = socket.alloc() else {
            return;
        };
        packet::fill(&mut frame, 0, sequence, packet::MIN);
        // A full ring will do as well.
        let _ = socket.send(frame);
        if sequence == 15 {
            raw::publish(socket);
        }
    }
}

fn close_in_traffic(mode: Mode) -> Outcome {
    let (mut left, mut right, lab) = (umem()?, umem()?, Lab::new()?);
    for round in rounds(CLOSES) {
        // The kernel lets go of a queue when its last packet is freed, late on a busy machine.
        let patient = |b: SocketBuilder| b.busy_timeout(longest(STALL));
        let mut rx = lab.rx.open(&left, mode, patient)?;
        let mut tx = lab.tx.open(&right, mode, patient)?;
        let stops = [AtomicBool::new(false), AtomicBool::new(false)];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                churn(&mut rx, &stops[0]).expect("traffic");
                leave_unsent(&mut rx);
                drop(rx);
            });
            scope.spawn(|| {
                churn(&mut tx, &stops[1]).expect("traffic");
                leave_unsent(&mut tx);
                drop(tx);
            });
            std::thread::sleep(Duration::from_millis(10));
            // One closes while the other goes on sending to it.
            let first = (round % 2) as usize;
            stops[first].store(true, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(10));
            stops[1 - first].store(true, Ordering::Relaxed);
        });
        all_home(&left);
        all_home(&right);
        (left, right) = (again(mode, left)?, again(mode, right)?);
    }
    Ok(())
}

/// Runs `disturb` while packets go both ways; returns the error of the sender's flush.
fn disturbed(
    lab: &Lab,
    mode: Mode,
    umems: (&Umem, &Umem),
    disturb: impl FnOnce() -> Outcome,
) -> Result<Option<ErrorKind>> {
    let mut rx = lab.rx.open(umems.0, mode, |b| b)?;
    let mut tx = lab.tx.open(umems.1, mode, |b| b)?;
    let stop = AtomicBool::new(false);
    let mut limit = Limit::new(STALL * 2);
    let kind = std::thread::scope(|scope| -> Result<_> {
        // Its device may be gone as well.
        let receiving = scope.spawn(|| churn(&mut rx, &stop).err());
        let sending = scope.spawn(|| churn(&mut tx, &stop).err().map(|error| error.kind()));
        std::thread::sleep(Duration::from_millis(20));
        let outcome = disturb();
        wait_until(STALL, || outcome.is_err() || sending.is_finished());
        stop.store(true, Ordering::Relaxed);
        let _ = receiving.join().map_err(|_| "the receiver panicked")?;
        let kind = sending.join().map_err(|_| "the sender panicked")?;
        outcome.map(|()| kind)
    })?;
    // Waiting with the device gone ends too.
    let _ = rx.wait(Duration::from_millis(10));
    let _ = tx.wait(Duration::from_millis(10));
    drop((rx, tx));
    assert!(!limit.is_over(), "closing took too long");
    all_home(umems.0);
    all_home(umems.1);
    Ok(kind)
}

fn device_down(mode: Mode) -> Outcome {
    let (left, right, lab) = (umem()?, umem()?, Lab::new()?);
    let down = || Ok(lab.tx.ip("link set dev tx0 down")?);
    let kind = disturbed(&lab, mode, (&left, &right), down)?;
    // In zero-copy mode the kernel is not called while the driver needs no wakeup.
    let unseen = mode == Mode::ZeroCopy && kind.is_none();
    assert!(unseen || kind == Some(ErrorKind::DeviceDown), "{kind:?}");
    // Up again, packets flow again.
    lab.tx.ip("link set dev tx0 up")?;
    open_again(&lab, mode, &again(mode, right)?, &again(mode, left)?)
}

fn device_deleted(mode: Mode) -> Outcome {
    if are_cards() {
        return Err(skip("a card cannot be deleted"));
    }
    let (left, right, lab) = (umem()?, umem()?, Lab::new()?);
    let delete = || Ok(lab.tx.ip("link delete dev tx0")?);
    let kind = disturbed(&lab, mode, (&left, &right), delete)?;
    // It is down for a moment before it is deleted.
    let known = [Some(ErrorKind::DeviceMissing), Some(ErrorKind::DeviceDown)];
    assert!(known.contains(&kind), "{kind:?}");
    let error = lab.tx.open(&right, mode, |b| b).err().ok_or("it opened")?;
    assert_eq!(error.kind(), ErrorKind::DeviceMissing);
    Ok(())
}

/// The kernel drops packets to a peer that is down, and completes them.
fn peer_down(mode: Mode) -> Outcome {
    if are_cards() {
        return Err(skip("a card does not know its peer"));
    }
    let (left, right, lab) = (umem()?, umem()?, Lab::new()?);
    let mut tx = lab.tx.open(&right, mode, |b| b.rx_ring(0))?;
    lab.rx.ip("link set dev rx0 down")?;
    for sequence in 0..64 {
        let mut frame = tx.alloc().ok_or("a frame")?;
        packet::fill(&mut frame, 0, sequence, packet::MIN);
        tx.send(frame).map_err(|unsent| unsent.kind.to_string())?;
    }
    let done = wait_until(STALL, || {
        tx.flush().expect("a dropped packet is no error");
        tx.reclaim();
        tx.outstanding() == 0
    });
    assert!(done, "{} packets never completed", tx.outstanding());
    let statistics = tx.statistics()?;
    assert_eq!((statistics.sent, statistics.completed), (64, 64));
    assert!(statistics.send_drops > 0, "{statistics:?}");
    drop(tx);
    all_home(&right);
    lab.rx.ip("link set dev rx0 up")?;
    open_again(&lab, mode, &right, &left)
}
