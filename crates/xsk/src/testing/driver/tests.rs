//! Real sockets over drivers with the freedoms and faults of real ones.

use super::*;
use crate::testing::kernel;
use crate::{ErrorKind, Interest, Refusal, Wait};
use std::sync::atomic::AtomicUsize;

const MILLISECOND: Duration = Duration::from_millis(1);

fn umem() -> Umem {
    kernel::umem(64, 2048)
}

fn small(builder: SocketBuilder) -> SocketBuilder {
    let rings = builder.rx_ring(8).tx_ring(16).fill_ring(8);
    rings.busy_timeout(MILLISECOND)
}

fn stage(socket: &mut Socket, packets: u32) {
    for _ in 0..packets {
        let mut frame = socket.alloc().expect("a frame");
        frame.fill_with(&[7; 60]).expect("room");
        socket.send(frame).expect("room in TX");
    }
}

/// Sends up to `budget` packets and completes them.
fn transmit(rings: &mut Rings, budget: u32) {
    let sent = rings.take_tx(budget);
    assert!(sent.into_iter().all(|addr| rings.complete(addr)));
}

/// A driver that records its calls, and answers each with `answer`.
fn recorded(
    mut answer: impl FnMut(Call, &mut Rings) -> std::result::Result<(), i32> + Send + 'static,
) -> (Driver, Arc<Mutex<Vec<Call>>>) {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&calls);
    let driver = Driver::new(move |call, rings| {
        seen.lock().expect("no panic").push(call);
        answer(call, rings)
    });
    (driver, calls)
}

fn count(calls: &Mutex<Vec<Call>>, of: impl Fn(&Call) -> bool) -> usize {
    calls
        .lock()
        .expect("no panic")
        .iter()
        .filter(|&call| of(call))
        .count()
}

/// A driver without zero-copy.
fn copies(call: Call) -> std::result::Result<(), i32> {
    match call {
        Call::Bind { zero_copy: true } => Err(libc::EOPNOTSUPP),
        _ => Ok(()),
    }
}

#[test]
fn a_socket_flushes_drains_and_closes() {
    let (driver, calls) = recorded(|call, rings| {
        if call == Call::Send {
            transmit(rings, 3);
        }
        copies(call)
    });
    let umem = umem();
    let mut socket = driver.open(&umem, Mode::Auto, small).expect("it opens");
    stage(&mut socket, 8);
    socket.flush().expect("the device is up");
    assert_eq!(socket.statistics().expect("counters").sent, 8);
    assert_eq!(socket.outstanding(), 0, "one flush sends them all");
    drop(socket);
    assert_eq!(umem.accounting().free, 64);
    assert_eq!(calls.lock().expect("no panic").last(), Some(&Call::Close));
}

/// A test can delay this thread at each of them.
#[cfg(debug_assertions)]
#[test]
fn opening_sending_and_closing_pass_each_point() {
    use crate::delay::{Point, set_hook};
    let seen = Arc::new(Mutex::new(Vec::new()));
    let points = Arc::clone(&seen);
    set_hook(move |point| points.lock().expect("no panic").push(point));
    let driver = Driver::new(|call, rings| {
        if call == Call::Send {
            transmit(rings, 16);
        }
        copies(call)
    });
    let mut socket = driver.open(&umem(), Mode::Auto, small).expect("it opens");
    stage(&mut socket, 8);
    socket.flush().expect("the device is up");
    drop(socket);
    for point in [
        Point::PoolTake,
        Point::Publish,
        Point::Bound,
        Point::Flag,
        Point::Send,
        Point::Reclaim,
        Point::Release,
        Point::Drain,
        Point::Closed,
        Point::PoolPut,
    ] {
        assert!(seen.lock().expect("no panic").contains(&point), "{point:?}");
    }
}

#[test]
fn packets_that_a_busy_device_left_behind_are_sent_while_the_socket_waits() {
    for wait in [Wait::Spin, Wait::Poll, Wait::adaptive()] {
        if cfg!(miri) && wait == Wait::Spin {
            continue; // It would take minutes.
        }
        for interest in [Interest::Receive, Interest::Both] {
            // Busy for 20 calls; then it sends. TX asks for no wake-up meanwhile: it may be missed.
            let mut asked = 0;
            let (driver, calls) = recorded(move |call, rings| {
                asked += u32::from(call == Call::Send);
                rings.ask_for_wakeup(false, asked == 0);
                if call == Call::Send && asked > 20 {
                    transmit(rings, 16);
                }
                if call == Call::Send {
                    Err(libc::EAGAIN)
                } else {
                    copies(call)
                }
            });
            let umem = umem();
            let mut socket = driver
                .open(&umem, Mode::Auto, |b| small(b).wait(wait))
                .expect("it opens");
            stage(&mut socket, 16);
            socket.flush().expect("the device is up");
            assert!(socket.tx_room() < 16, "the device is busy");
            driver.run_while_spinning(wait == Wait::Spin);
            for _ in 0..2 {
                socket
                    .wait_for(interest, 30 * MILLISECOND)
                    .expect("it is up");
            }
            let why = format!("{wait:?} {interest:?}: {:?}", calls.lock());
            assert_eq!(socket.outstanding(), 0, "{why}");
            let long =
                |call: &Call| matches!(call, Call::Poll { timeout, .. } if *timeout > MILLISECOND);
            drop(socket);
            assert!(
                interest == Interest::Receive || count(&calls, long) == 0,
                "{why}"
            );
        }
    }
}

#[test]
fn a_zero_copy_socket_where_copy_was_asked_for_keeps_its_chunks() {
    let driver = Driver::new(|_, _| Ok(()));
    driver.force_zero_copy();
    let umem = umem();
    let error = driver
        .open(&umem, Mode::Driver, small)
        .expect_err("the mode differs");
    assert_eq!(error.kind(), ErrorKind::ModeRefused);
    let count = umem.accounting();
    assert_eq!(
        (count.free, count.retired),
        (56, 8),
        "the driver may be writing"
    );
}

#[test]
fn a_zero_copy_socket_keeps_its_chunks_until_the_queue_is_bound_again() {
    let driver = Driver::new(|_, _| Ok(()));
    let umem = umem();
    drop(driver.open(&umem, Mode::ZeroCopy, small).expect("it opens"));
    assert_eq!(umem.accounting().retired, 8);
    let _socket = driver.open(&umem, Mode::ZeroCopy, small).expect("it opens");
    assert_eq!(umem.accounting().retired, 0);
}

#[test]
fn retired_chunks_come_back_when_the_kernel_shows_that_the_queue_is_free() {
    use crate::sys::QueueOwner::{NoDevice, Socket, Stack, Unknown};
    for (open, closed, retired) in [
        (Socket, Stack, 0),
        (Socket, Socket, 8),
        (Socket, Unknown, 8),
        (Socket, NoDevice, 0),
        // A kernel that shows no sockets.
        (Stack, Stack, 8),
        (Unknown, Stack, 8),
        (Unknown, NoDevice, 0),
    ] {
        let driver = Driver::new(|_, _| Ok(()));
        let umem = umem();
        driver.set_owner(open);
        drop(driver.open(&umem, Mode::ZeroCopy, small).expect("it opens"));
        driver.set_owner(closed);
        umem.recover_from(&driver);
        assert_eq!(umem.accounting().retired, retired, "{open:?} {closed:?}");
        if cfg!(not(miri)) {
            // Linux has another namespace, with its own devices.
            umem.recover();
            assert_eq!(umem.accounting().retired, retired, "{open:?} {closed:?}");
        }
    }
}

#[test]
fn a_missed_request_for_a_wakeup_is_made_good_while_flushing() {
    let (driver, calls) = recorded(|call, rings| {
        rings.ask_for_wakeup(false, false);
        copies(call)
    });
    let umem = umem();
    let mut socket = driver.open(&umem, Mode::Auto, small).expect("it opens");
    stage(&mut socket, 1);
    for _ in 0..128 {
        socket.flush().expect("it is up");
    }
    assert_eq!(count(&calls, |call| *call == Call::Send), 2);
}

#[test]
fn chunks_stay_away_when_the_kernel_cannot_say_that_readers_have_ended() {
    let driver = Driver::new(|call, _| copies(call));
    driver.set_full_dynticks();
    let umem = umem();
    drop(driver.open(&umem, Mode::Auto, small).expect("it opens"));
    let count = umem.accounting();
    assert_eq!((count.free, count.retired), (56, 8));
    // The next socket on the queue shows that the kernel has let go.
    let _socket = driver.open(&umem, Mode::Auto, small).expect("it opens");
    assert_eq!(umem.accounting().retired, 0);
}

#[test]
fn the_chunks_of_a_failed_zero_copy_attempt_come_back() {
    let driver = Driver::new(|call, rings| match call {
        Call::Bind { zero_copy: true } => {
            rings.take_fill_silently(5);
            Err(libc::ENOMEM)
        }
        _ => Ok(()),
    });
    let umem = umem();
    let socket = driver.open(&umem, Mode::Auto, small).expect("it opens");
    assert!(matches!(
        socket.refusals(),
        [Refusal::Mode(Mode::ZeroCopy, _)]
    ));
    let count = umem.accounting();
    assert_eq!((count.receiving, count.retired), (8, 0));
    let fill = driver.fill_of_the_last_socket();
    assert_eq!(fill, 8, "FILL of the copy attempt has all of its chunks");
}

#[test]
fn a_sender_without_a_program_falls_back_to_copy_where_the_driver_wants_one() {
    let mut zero_copy = false;
    let driver = Driver::new(move |call, _| match call {
        Call::Bind { zero_copy: is } => {
            zero_copy = is;
            Ok(())
        }
        Call::Send if zero_copy => Err(libc::EINVAL),
        _ => Ok(()),
    });
    let umem = umem();
    let only_sends = |b: SocketBuilder| small(b).rx_ring(0);
    let socket = driver
        .open(&umem, Mode::Auto, only_sends)
        .expect("it opens");
    let [Refusal::Mode(Mode::ZeroCopy, error)] = socket.refusals() else {
        panic!("{:?}", socket.refusals());
    };
    assert!(error.to_string().contains("XDP program"), "{error}");
    drop(socket);
    let refused = driver.open(&umem, Mode::ZeroCopy, only_sends);
    assert_eq!(
        refused.expect_err("no program").kind(),
        ErrorKind::ModeRefused
    );
}

#[test]
fn a_zero_copy_sender_lends_chunks_to_the_queue_that_receives_all_the_same() {
    let driver = Driver::new(|_, _| Ok(()));
    let umem = umem();
    let socket = driver.open(&umem, Mode::ZeroCopy, |b| small(b).rx_ring(0));
    let _socket = socket.expect("it opens");
    assert_eq!(umem.accounting().receiving, 8);
}

#[test]
fn a_reset_of_the_card_is_not_its_end() {
    let resets = Arc::new(AtomicUsize::new(3));
    let left = Arc::clone(&resets);
    let driver = Driver::new(move |call, rings| {
        if call == Call::Send {
            let resetting =
                left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
            if resetting.is_ok() {
                return Err(libc::ENETDOWN);
            }
            transmit(rings, 16);
        }
        Ok(())
    });
    let umem = umem();
    let mut socket = driver.open(&umem, Mode::ZeroCopy, small).expect("it opens");
    stage(&mut socket, 4);
    for _ in 0..4 {
        socket.flush().expect("a reset is no error");
    }
    assert_eq!(socket.outstanding(), 0);
    resets.store(1, Ordering::Relaxed);
    driver.set_device_up(false);
    stage(&mut socket, 1);
    let error = socket.flush().expect_err("the device was set down");
    assert_eq!(error.kind(), ErrorKind::DeviceDown);
}

#[test]
fn fill_is_woken_while_the_program_only_receives() {
    let (driver, calls) = recorded(|call, rings| {
        rings.ask_for_wakeup(true, false);
        copies(call)
    });
    let umem = umem();
    let mut socket = driver.open(&umem, Mode::Auto, small).expect("it opens");
    for _ in 0..3 {
        assert!(socket.recv(8).is_empty());
    }
    assert_eq!(count(&calls, |call| *call == Call::Recv), 3);
    assert_eq!(socket.statistics().expect("counters").wakeups, 3);
}

#[test]
fn fill_is_woken_before_a_socket_spins() {
    let (driver, calls) = recorded(|call, rings| {
        rings.ask_for_wakeup(true, false);
        copies(call)
    });
    let umem = umem();
    let spins = |b: SocketBuilder| small(b).wait(Wait::Spin);
    let mut socket = driver.open(&umem, Mode::Auto, spins).expect("it opens");
    driver.run_while_spinning(true);
    let id = socket.add_sibling(8, 8).expect("it opens too");
    let mut sibling = socket.sibling(id).expect("just added");
    assert!(!sibling.wait(MILLISECOND / 100).expect("it is up"));
    assert!(count(&calls, |call| *call == Call::Recv) > 0);
    let polls = |call: &Call| matches!(call, Call::Poll { .. });
    assert_eq!(count(&calls, polls), 0, "a sibling waits as its socket");
}

#[test]
fn busy_polling_wakes_a_driver_that_sends_in_another_instance() {
    // The kernel polls the instance of the RX queue in each call, and leaves the other one to poll(2).
    let driver = Driver::new(|call, rings| {
        if matches!(call, Call::Poll { .. }) {
            transmit(rings, 4);
        }
        Ok(())
    });
    let umem = umem();
    let polls = |builder: SocketBuilder| small(builder).wait(Wait::BusyPoll);
    let socket = driver.open(&umem, Mode::ZeroCopy, polls);
    let mut socket = socket.expect("it opens");
    stage(&mut socket, 4);
    socket.flush().expect("it is up");
    assert_eq!(socket.outstanding(), 0);
}

#[test]
fn sleeps_get_shorter_by_the_lateness_of_the_timer() {
    // Eight packets a sleep, from which it wakes up 10 µs late.
    let (driver, calls) = recorded(|call, rings| {
        if matches!(call, Call::Sleep(_) | Call::Poll { .. }) {
            for addr in rings.take_fill(8) {
                rings.receive(addr + 256, 60);
            }
        }
        copies(call)
    });
    let umem = umem();
    let adaptive = |builder: SocketBuilder| builder.wait(Wait::adaptive());
    let mut socket = driver.open(&umem, Mode::Auto, adaptive).expect("it opens");
    driver.run_while_spinning(true);
    for _ in 0..60 {
        let is_there = socket.wait(MILLISECOND).expect("it is up");
        assert!(is_there);
        drop(socket.recv(64));
    }
    let asked = |call: &Call| match call {
        Call::Sleep(time) => Some(*time),
        _ => None,
    };
    let sleeps: Vec<_> = calls
        .lock()
        .expect("no panic")
        .iter()
        .filter_map(asked)
        .collect();
    let (first, last) = (sleeps[0], sleeps[sleeps.len() - 1]);
    let shorter = first.saturating_sub(last);
    assert!(
        (9..=10).contains(&shorter.as_micros()),
        "{first:?}, {last:?}"
    );
}

#[test]
fn a_socket_that_only_sends_polls_by_sending_without_a_copy() {
    for mode in [Mode::ZeroCopy, Mode::Driver] {
        let (driver, calls) = recorded(|_, _| Ok(()));
        let umem = umem();
        let sends = |builder: SocketBuilder| small(builder).rx_ring(0).wait(Wait::BusyPoll);
        let mut socket = driver.open(&umem, mode, sends).expect("it opens");
        let received = count(&calls, |call| *call == Call::Recv);
        stage(&mut socket, 16);
        driver.run_while_spinning(true);
        let ready = socket.wait_for(Interest::Send, MILLISECOND / 2);
        assert!(!ready.expect("it is up").send);
        assert_eq!(count(&calls, |call| *call == Call::Recv), received);
        let polls = count(&calls, |call| *call == Call::Send) > 8;
        assert_eq!(
            polls,
            mode == Mode::ZeroCopy,
            "a copy that is dropped is counted"
        );
    }
}

#[test]
fn siblings_poll_as_their_socket_does() {
    for (wait, siblings) in [(Wait::BusyPoll, 1), (Wait::Spin, 0)] {
        let (driver, calls) = recorded(|_, _| Ok(()));
        let umem = umem();
        let mut socket = driver
            .open(&umem, Mode::Driver, |b| small(b).wait(wait))
            .expect("it opens");
        socket.add_sibling(8, 8).expect("it opens too");
        let set_up = count(&calls, |call| *call == Call::PreferBusyPoll);
        assert_eq!(set_up, siblings, "{wait:?}");
    }
}

#[test]
fn closing_sends_the_packets_that_a_busy_device_left_behind() {
    let mut busy = true;
    let driver = Driver::new(move |call, rings| {
        if call == Call::Send {
            if std::mem::replace(&mut busy, false) {
                return Err(libc::EAGAIN);
            }
            transmit(rings, 1);
        }
        copies(call)
    });
    let umem = umem();
    let mut socket = driver.open(&umem, Mode::Auto, small).expect("it opens");
    stage(&mut socket, 4);
    socket.flush().expect("it is up");
    assert_eq!(socket.outstanding(), 4);
    drop(socket);
    let count = umem.accounting();
    assert_eq!((count.free, count.retired), (64, 0));
}

#[test]
fn packets_that_never_left_tx_are_free_after_the_close_where_the_kernel_would_say() {
    let driver = Driver::new(|call, _| match call {
        Call::Send => Err(libc::EAGAIN),
        _ => copies(call),
    });
    for retired in [5, 0] {
        let umem = umem();
        let mut socket = driver.open(&umem, Mode::Auto, small).expect("it opens");
        stage(&mut socket, 4);
        socket.flush().expect("it is up");
        stage(&mut socket, 1);
        drop(socket);
        assert_eq!(umem.accounting().retired, retired);
        driver.publish_taken_packets();
    }
}

#[test]
fn closing_an_idle_socket_takes_no_time() {
    let driver = Driver::new(|call, _| copies(call));
    let umem = umem();
    let mut socket = driver.open(&umem, Mode::Auto, small).expect("it opens");
    stage(&mut socket, 1);
    let start = driver.time();
    drop(socket);
    assert_eq!(
        driver.time(),
        start,
        "a packet that was not flushed is not sent"
    );
}

#[test]
fn a_device_that_drops_packets_is_counted_and_one_that_is_gone_reported() {
    let mut answers = vec![libc::ENXIO, libc::EBUSY, libc::EBUSY]
        .into_iter()
        .rev();
    let driver = Driver::new(move |call, rings| {
        if call != Call::Send {
            return copies(call);
        }
        transmit(rings, 1);
        Err(answers.next().unwrap_or(libc::ENODEV))
    });
    let umem = umem();
    let mut socket = driver.open(&umem, Mode::Auto, small).expect("it opens");
    stage(&mut socket, 8);
    for _ in 0..2 {
        let error = socket.flush().expect_err("it is gone");
        assert_eq!(error.kind(), ErrorKind::DeviceMissing);
    }
    assert_eq!(socket.statistics().expect("counters").send_drops, 2);
}

#[test]
fn an_event_loop_learns_when_to_look_after_the_socket() {
    let (driver, calls) = recorded(|call, rings| {
        rings.ask_for_wakeup(false, true);
        copies(call)
    });
    let umem = umem();
    let mut socket = driver.open(&umem, Mode::Auto, small).expect("it opens");
    let ready = socket.prepare_to_wait(Interest::Receive).expect("it is up");
    assert_eq!((ready.any(), ready.sleep_at_most), (false, None));
    let ready = socket.prepare_to_wait(Interest::Both).expect("it is up");
    assert!(ready.send && !ready.receive);
    stage(&mut socket, 16);
    socket.flush().expect("it is up");
    let ready = socket.prepare_to_wait(Interest::Both).expect("it is up");
    assert_eq!(
        (ready.any(), ready.sleep_at_most),
        (false, Some(MILLISECOND))
    );
    let full = Call::Watch {
        receive: true,
        send: true,
    };
    assert_eq!(count(&calls, |call| *call == full), 1);
}

#[test]
fn the_kernels_counters_are_reported() {
    let driver = Driver::new(|call, _| copies(call));
    let umem = umem();
    let socket = driver.open(&umem, Mode::Auto, small).expect("it opens");
    let counts = socket.statistics().expect("the driver counts");
    assert_eq!((counts.rx_dropped, counts.rx_ring_full), (1, 2));
    assert_eq!(counts.fill_ring_empty, 3);
    assert_eq!((counts.tx_invalid_descs, counts.tx_ring_empty), (4, 5));
}

#[test]
fn a_handle_has_the_counters_of_a_socket_elsewhere_and_of_one_that_is_closed() {
    let driver = Driver::new(|call, _| copies(call));
    let umem = umem();
    let mut socket = driver.open(&umem, Mode::Auto, small).expect("it opens");
    let handle = socket.statistics_handle();
    let expected = |sent| {
        let mut counts = socket.statistics().expect("the driver counts");
        counts.sent = sent;
        counts
    };
    let (before, after) = (expected(0), expected(8));
    assert_eq!(
        (handle.queue(), handle.is_closed()),
        (socket.queue(), false)
    );
    assert_eq!(handle.statistics().expect("the driver counts"), before);
    let (flushed, is_flushed) = std::sync::mpsc::channel();
    let (close, is_to_close) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || {
        stage(&mut socket, 8);
        socket.flush().expect("it is up");
        flushed.send(()).expect("the test waits");
        is_to_close.recv().expect("the test says so");
    });
    is_flushed.recv().expect("it flushes");
    let now = handle.statistics().expect("the driver counts");
    assert_eq!((now.sent, now.rx_ring_full), (8, after.rx_ring_full));
    assert!(now.wakeups > 0 && !handle.is_closed());
    close.send(()).expect("it waits for that");
    other.join().expect("no panic");
    assert!(handle.is_closed());
    let last = handle.clone().statistics().expect("they were kept");
    assert_eq!((last.sent, last.rx_dropped, last.tx_ring_empty), (8, 1, 5));
}

/// A driver on whose queue a bind fails for this long.
fn held_for(time: Duration) -> Driver {
    let mut waited = Duration::ZERO;
    Driver::new(move |call, _| match call {
        Call::Bind { zero_copy: false } if waited < time => Err(libc::EBUSY),
        Call::Sleep(pause) => {
            waited += pause;
            Ok(())
        }
        call => copies(call),
    })
}

#[test]
#[cfg_attr(
    miri,
    ignore = "the error looks at the privilege of the process in /proc"
)]
fn a_queue_without_a_socket_is_waited_for_longer() {
    let rings = |builder: SocketBuilder| builder.rx_ring(8).tx_ring(16).fill_ring(8);
    let open = |seconds, owner| {
        let driver = held_for(Duration::from_secs(seconds));
        driver.set_owner(owner);
        let opened = driver.open(&umem(), Mode::Auto, rings);
        opened.err().map(|error| error.to_string())
    };
    assert_eq!(open(1, QueueOwner::Socket), None);
    let held = open(3, QueueOwner::Socket).expect("a socket has it");
    assert!(held.contains("held by another AF_XDP socket"), "{held}");
    assert_eq!(open(29, QueueOwner::Stack), None);
    let late = open(31, QueueOwner::Stack).expect("the kernel has it");
    assert!(late.contains("has not released it yet"), "{late}");
}

/// Packets on their way to a device in copy mode.
#[derive(Default)]
struct Line {
    arriving: u32,
    dropped: u32,
}

impl Line {
    /// The device receives as many as NAPI does at once, and drops those for which FILL has no chunk.
    fn receive(&mut self, rings: &mut Rings) {
        for _ in 0..self.arriving.min(64) {
            self.arriving -= 1;
            let chunk = rings.take_fill(1).pop();
            let received = chunk.is_some_and(|addr| rings.receive(addr + 256, 60));
            self.dropped += u32::from(!received);
        }
    }
}

/// Receives up to a number of packets; returns how many.
type Receive = Box<dyn FnMut(u32) -> u32>;

/// Makes a socket ready to receive in one way.
type Receiver = fn(Socket) -> Receive;

/// Each way to receive.
const WAYS: [(&str, Receiver); 6] = [
    ("next_packet", |mut socket| {
        Box::new(move |max| {
            let mut batch = socket.recv(max);
            let count = batch.len() as u32;
            while let Some(packet) = batch.next_packet() {
                packet.send().expect("room in TX");
            }
            drop(batch);
            socket.flush().expect("it is up");
            count
        })
    }),
    ("receive_each", |mut socket| {
        Box::new(move |max| {
            socket.receive_each(max, |packet| {
                assert_eq!(packet.len(), 60);
                packet.recycle()
            })
        })
    }),
    ("forward_each", |mut socket| {
        Box::new(move |max| {
            let count = socket.forward_each(max, |mut packet| {
                packet[0] = 2;
                packet.send()
            });
            socket.flush().expect("it is up");
            count
        })
    }),
    ("recv_frames", |mut socket| {
        Box::new(move |max| {
            let mut frames = Vec::new();
            let count = socket.recv_frames(&mut frames, max);
            socket.free_frames(frames);
            count as u32
        })
    }),
    ("next_packet of a half", |socket| {
        let (mut rx, mut tx) = socket.split();
        Box::new(move |max| {
            let mut batch = rx.recv(max);
            let count = batch.len() as u32;
            while let Some(packet) = batch.next_packet() {
                tx.send(packet.keep()).expect("room in TX");
            }
            drop(batch);
            tx.flush().expect("it is up");
            count
        })
    }),
    ("receive_each of a half", |socket| {
        let (mut rx, tx) = socket.split();
        Box::new(move |max| {
            assert_eq!(tx.outstanding(), 0);
            rx.receive_each(max, |packet| {
                assert_eq!(packet.len(), 60);
                packet.recycle()
            })
        })
    }),
];

#[test]
#[cfg_attr(miri, ignore = "thousands of packets take Miri minutes")]
fn bursts_after_an_overload_are_received_as_those_before() {
    const BURSTS: [u32; 20] = [1000; 20];
    const OVERLOAD: [u32; 1] = [100_000];
    for (way, receiver) in WAYS {
        let line = Arc::new(Mutex::new(Line::default()));
        let arriving = Arc::clone(&line);
        let driver = Driver::new(move |call, rings| {
            transmit(rings, u32::MAX);
            if call == Call::Recv {
                arriving.lock().expect("no panic").receive(rings);
            }
            // So that each call to receive is one of the kernel, too.
            rings.ask_for_wakeup(true, true);
            copies(call)
        });
        let umem = kernel::umem(8192, 2048);
        let socket = driver.open(&umem, Mode::Auto, |b| b).expect("it opens");
        let mut receive = receiver(socket);
        // Half as fast as packets arrive.
        let mut dropped_of = |phase: &[u32]| {
            let before = line.lock().expect("no panic").dropped;
            for packets in phase {
                line.lock().expect("no panic").arriving = *packets;
                while receive(32) > 0 || line.lock().expect("no panic").arriving > 0 {}
            }
            line.lock().expect("no panic").dropped - before
        };
        let dropped = [&BURSTS[..], &OVERLOAD, &BURSTS].map(&mut dropped_of);
        assert!(dropped[1] > 10_000, "{way}: no overload: {dropped:?}");
        assert_eq!((dropped[0], dropped[2]), (0, 0), "{way}: {dropped:?}");
        assert_eq!(umem.accounting().receiving, 2048, "{way}");
    }
}

#[test]
fn an_idle_socket_ceases_to_look_at_fill() {
    const HOUR: Duration = Duration::from_secs(3600);
    // Without a copy, and chunks of 8 that the driver has taken.
    for (mode, taken, looks) in [
        (Mode::ZeroCopy, 3, 20..25),
        (Mode::ZeroCopy, 8, 1..2),
        (Mode::Driver, 3, 1..2),
    ] {
        let (driver, calls) = recorded(move |call, rings| {
            if call == Call::Recv || matches!(call, Call::Bind { .. }) {
                rings.take_fill(taken);
            }
            Ok(())
        });
        let polls = |b: SocketBuilder| small(b).wait(Wait::Poll);
        let mut socket = driver.open(&umem(), mode, polls).expect("it opens");
        assert!(!socket.wait(HOUR).expect("it is up"));
        let polls = count(&calls, |call| matches!(call, Call::Poll { .. }));
        assert!(looks.contains(&polls), "{mode:?}, {taken}: {polls}");
        let ready = socket.prepare_to_wait(Interest::Receive);
        let most = ready.expect("it is up").sleep_at_most;
        assert_eq!(most, (looks.start > 1).then_some(HOUR), "{mode:?}, {taken}");
    }
}
