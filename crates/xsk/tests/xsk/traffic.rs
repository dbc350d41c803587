//! A sender and a receiver, each on its thread, with the checks of both.

use crate::budget::STALL;
use crate::{Outcome, modes, packet};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use testkit::{Limit, wait_until};
use xsk::{Frame, Mode, Packet, SendErrorKind, Socket, Umem};

/// Most packets in flight: below the 256 slots of a veth's ring, so that none is lost.
pub const WINDOW: u64 = 128;
/// Packets for each flush.
const BATCH: u64 = 32;

/// The flow control between sender and receiver.
pub struct Flight {
    /// Most packets in flight.
    window: u64,
    /// The next sequence number that the receiver expects.
    seen: AtomicU64,
    /// One side has failed, and the other need not wait.
    stop: AtomicBool,
}

impl Default for Flight {
    fn default() -> Self {
        Self {
            window: WINDOW,
            seen: AtomicU64::default(),
            stop: AtomicBool::default(),
        }
    }
}

impl Flight {
    /// Lets the sender continue.
    pub fn saw(&self, sequence: u64) {
        self.seen.store(sequence + 1, Ordering::Relaxed);
    }

    fn may_send(&self, sequence: u64) -> bool {
        sequence < self.seen.load(Ordering::Relaxed) + self.window
    }

    /// Whether the receiver has this packet.
    pub fn has_seen(&self, sequence: u64) -> bool {
        sequence < self.seen.load(Ordering::Relaxed)
    }

    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Waits until the receiver has caught up enough for this packet.
    pub fn wait_for_room(&self, sequence: u64, mut meanwhile: impl FnMut()) {
        let there = wait_until(STALL, || {
            self.may_send(sequence) || self.stopped() || {
                meanwhile();
                false
            }
        });
        assert!(there, "the receiver has stopped before packet {sequence}");
    }
}

/// Stops the other side when this one fails.
struct StopOnPanic<'f>(&'f Flight);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop.store(true, Ordering::Relaxed);
        }
    }
}

/// Runs both sides on threads of their own.
pub fn exchange(sender: impl FnOnce(&Flight) + Send, receiver: impl FnOnce(&Flight) + Send) {
    exchange_within(WINDOW, sender, receiver);
}

/// The same with another window.
fn exchange_within(
    window: u64,
    sender: impl FnOnce(&Flight) + Send,
    receiver: impl FnOnce(&Flight) + Send,
) {
    let flight = Flight {
        window,
        ..Flight::default()
    };
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let _stop = StopOnPanic(&flight);
            receiver(&flight);
        });
        let sending = scope.spawn(|| {
            let _stop = StopOnPanic(&flight);
            sender(&flight);
        });
        let outcomes = (receiving.join(), sending.join());
        // The receiver's error first: it names the faulty packet.
        if let Err(panic) = outcomes.0.and(outcomes.1) {
            resume_unwind(panic);
        }
    });
}

/// Sends the packets `0..count` of `size` bytes and checks the completions.
pub fn send_all(socket: &mut Socket, count: u64, size: usize, f: &Flight) {
    let before = socket.statistics().expect("statistics");
    for sequence in 0..count {
        f.wait_for_room(sequence, || socket.flush().expect("flush"));
        let Some(frame) = frame(socket, f, 0, sequence, size) else {
            return;
        };
        put(socket, frame, f);
        if sequence % BATCH == BATCH - 1 {
            flush_checked(socket);
        }
    }
    flush_checked(socket);
    drain(socket);
    let after = socket.statistics().expect("statistics");
    assert_eq!(after.sent - before.sent, count);
    assert_eq!(after.completed - before.completed, count);
    assert_eq!((after.invalid_descs, after.invalid_indices), (0, 0));
    assert_eq!(
        after.send_drops, 0,
        "a window below the veth's ring loses nothing"
    );
    assert_eq!(after.tx_invalid_descs, 0);
}

/// A written frame; waits for one while all are in use.
pub fn frame(
    socket: &mut Socket,
    flight: &Flight,
    to: u8,
    sequence: u64,
    size: usize,
) -> Option<Frame> {
    let mut found = None;
    let there = wait_until(STALL, || {
        found = socket.alloc();
        found.is_some() || flight.stopped() || {
            socket.flush().expect("flush");
            false
        }
    });
    assert!(there, "no frame came back from sending");
    let mut frame = found?;
    packet::fill(&mut frame, to, sequence, size);
    Some(frame)
}

/// Puts a frame into the TX ring, waiting while it is full.
pub fn put(socket: &mut Socket, frame: Frame, flight: &Flight) {
    let mut next = Some(frame);
    let there = wait_until(STALL, || {
        let Some(frame) = next.take() else {
            return true;
        };
        match socket.send(frame) {
            Ok(()) => true,
            Err(unsent) => {
                assert_eq!(unsent.kind, SendErrorKind::Full);
                next = Some(unsent.packet);
                socket.flush().expect("flush");
                flight.stopped()
            }
        }
    });
    assert!(there, "the TX ring stays full");
}

/// Flushes; the kernel may not have completed more packets than were sent.
pub fn flush_checked(socket: &mut Socket) {
    socket.flush().expect("flush");
    socket.reclaim();
    let statistics = socket.statistics().expect("statistics");
    assert!(
        statistics.completed <= statistics.sent,
        "more completions than packets outstanding: {statistics:?}"
    );
}

/// Waits until all sent packets are completed.
pub fn drain(socket: &mut Socket) {
    let done = wait_until(STALL, || {
        socket.flush().expect("flush");
        socket.reclaim();
        socket.outstanding() == 0
    });
    assert!(done, "{} packets never completed", socket.outstanding());
}

/// Receives packets from unaligned chunks, in turns by the closure of `receive_each` and as owned ones.
pub fn receive_unaligned(socket: &mut Socket, count: u64, size: usize, flight: &Flight) {
    let (mut next, mut limit, mut turn) = (0, Limit::new(STALL), 0);
    while next < count && !flight.stopped() {
        socket.wait(Duration::from_millis(20)).expect("wait");
        let mut check = |bytes: &[u8]| {
            assert_eq!(bytes.len(), size, "length of packet {next}");
            packet::check(bytes, next);
            flight.saw(next);
            next += 1;
            limit.restart();
        };
        turn += 1;
        if turn % 2 == 0 {
            socket.receive_each(16, |packet| {
                check(&packet);
                packet.recycle()
            });
        } else {
            let mut batch = socket.recv(16);
            while let Some(packet) = batch.next_fragments() {
                check(&packet.to_vec());
            }
        }
        assert!(!limit.is_over(), "packet {next} does not come");
    }
    let statistics = socket.statistics().expect("statistics");
    let faults = (statistics.invalid_descs, statistics.fragmented);
    assert_eq!(faults, (0, 0), "{statistics:?}");
}

/// Receives `expected`, in order, each of `size` bytes, and nothing behind them.
pub fn receive_all(
    socket: &mut Socket,
    expected: impl IntoIterator<Item = u64>,
    size: usize,
    flight: &Flight,
) {
    receive_checked(socket, expected, flight, |packet, sequence| {
        assert_eq!(packet.len(), size, "length of packet {sequence}");
        packet::check(packet, sequence);
    });
}

/// The same, with `check` for each packet.
pub fn receive_checked(
    socket: &mut Socket,
    expected: impl IntoIterator<Item = u64>,
    flight: &Flight,
    mut check: impl FnMut(&mut Packet<'_, '_>, u64),
) {
    let offset = socket.umem().headroom() + xsk::XDP_PACKET_HEADROOM;
    let mut expected = expected.into_iter().peekable();
    let (mut count, mut limit) = (0, Limit::new(STALL));
    let before = socket.statistics().expect("statistics");
    while expected.peek().is_some() && !flight.stopped() {
        socket.wait(Duration::from_millis(20)).expect("wait");
        let mut batch = socket.recv(64);
        while let Some(mut packet) = batch.next_packet() {
            let sequence = expected.next().expect("no more packets than were sent");
            assert_eq!(packet.headroom(), offset, "offset in the chunk");
            check(&mut packet, sequence);
            flight.saw(sequence);
            count += 1;
            limit.restart();
        }
        let next = expected.peek();
        assert!(
            !limit.is_over(),
            "packet {next:?} does not come, after {count}"
        );
    }
    if flight.stopped() {
        return;
    }
    assert!(
        !socket.wait(Duration::from_millis(5)).expect("wait") && socket.recv(1).is_empty(),
        "a packet too many"
    );
    let after = socket.statistics().expect("statistics");
    assert_eq!(after.received - before.received, count);
    assert_eq!((after.invalid_descs, after.invalid_indices), (0, 0));
}

/// Sends and receives `count` packets and checks that the kernel dropped none.
pub fn deliver(tx: &mut Socket, rx: &mut Socket, count: u64, size: usize) -> Outcome {
    deliver_within(WINDOW, tx, rx, count, size)
}

/// The same with another window.
pub fn deliver_within(
    window: u64,
    tx: &mut Socket,
    rx: &mut Socket,
    count: u64,
    size: usize,
) -> Outcome {
    exchange_within(
        window,
        |flight| send_all(tx, count, size, flight),
        |flight| receive_all(rx, 0..count, size, flight),
    );
    let statistics = rx.statistics()?;
    assert_eq!((statistics.rx_dropped, statistics.rx_ring_full), (0, 0));
    Ok(())
}

/// Sends one packet, and waits until it is completed.
pub fn send_one(tx: &mut Socket, sequence: u64) -> Outcome {
    let mut frame = tx.alloc().ok_or("a frame")?;
    packet::fill(&mut frame, 0, sequence, packet::MIN);
    tx.send(frame).map_err(|unsent| unsent.kind.to_string())?;
    drain(tx);
    Ok(())
}

/// Every chunk must be free. Those that a zero-copy socket was closed with are retired instead, as a
/// device may still write to them.
pub fn all_home(umem: &Umem) {
    let count = umem.accounting();
    let zero_copy = modes().iter().any(|(_, mode)| *mode == Mode::ZeroCopy);
    let retired = if zero_copy { count.retired } else { 0 };
    assert_eq!(
        (count.free, count.retired),
        (umem.chunks() - retired, retired),
        "chunks are missing: {count:?}"
    );
}
