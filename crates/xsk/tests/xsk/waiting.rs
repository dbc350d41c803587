//! Waiting for packets and for room to send: by the socket itself, and in event loops.

use crate::budget::STALL;
use crate::netns::Lab;
use crate::traffic::drain;
use crate::{Outcome, Result, packet};
use hostnet::sysfs::Sysfs;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use testkit::limit::longest;
use testkit::{Limit, Test};
use xsk::{Device, ErrorKind, Interest, Mode, Socket, Umem, Wait};

pub fn tests() -> Vec<Test> {
    let mut tests = vec![
        Test::new("poll(2) sees packets and room", poll_sees_both),
        Test::new("epoll(7) sees packets, by level", || epoll_sees(false)),
        Test::new("epoll(7) sees packets, by edge", || epoll_sees(true)),
        Test::new("a half waits for room", half_waits_for_room),
        Test::new("poll(2) sees packets of a half", poll_sees_a_half),
        Test::new(
            "interrupts are put off and restored",
            interrupts_are_put_off,
        ),
        Test::new("bad times and devices to put interrupts off", bad_deferrals),
    ];
    for (name, wait) in [
        ("Spin", Wait::Spin),
        ("Poll", Wait::Poll),
        ("Adaptive", Wait::adaptive()),
        ("BusyPoll", Wait::BusyPoll),
    ] {
        tests.push(Test::new(
            format!("{name} sends all that a flush left behind"),
            move || sends_all(wait),
        ));
        tests.push(Test::new(
            format!("{name} waits for room and for free chunks"),
            move || waits_for_room(wait),
        ));
    }
    tests
}

/// What a device has in its files, in the thread's network namespace.
fn deferral(device: &Device) -> Result<[String; 2]> {
    let sysfs = Sysfs::mount()?;
    let read = |name| fs::read_to_string(sysfs.class_net(&format!("/{}/{name}", device.name)));
    let both = [read("napi_defer_hard_irqs")?, read("gro_flush_timeout")?];
    Ok(both.map(|text| text.trim().to_owned()))
}

fn interrupts_are_put_off() -> Outcome {
    let lab = Lab::new()?;
    lab.rx.inside(|| {
        let device = Device::lookup(lab.rx.device)?;
        let before = deferral(&device)?;
        let outer = device.defer_interrupts(2, Duration::from_micros(200))?;
        assert_eq!(deferral(&device)?, ["2", "200000"]);
        drop(device.defer_interrupts(3, Duration::from_nanos(7))?);
        assert_eq!(deferral(&device)?, ["2", "200000"], "of the one before");
        outer.restore()?;
        assert_eq!(deferral(&device)?, before);
        // What somebody has set since stays.
        let deferred = device.defer_interrupts(4, Duration::from_micros(1))?;
        let sysfs = Sysfs::mount()?;
        let file = sysfs.class_net(&format!("/{}/napi_defer_hard_irqs", device.name));
        fs::write(&file, "9")?;
        drop(deferred);
        assert_eq!(deferral(&device)?, ["9", &before[1]]);
        fs::write(&file, &before[0])?;
        Ok(())
    })
}

fn bad_deferrals() -> Outcome {
    let lab = Lab::new()?;
    let second = Duration::from_secs(1);
    lab.rx.inside(|| -> Outcome {
        let device = Device::lookup(lab.rx.device)?;
        let before = deferral(&device)?;
        for (polls, timeout) in [
            (0, second),
            (u32::MAX, second),
            (2, Duration::ZERO),
            (2, Duration::MAX),
        ] {
            let error = device
                .defer_interrupts(polls, timeout)
                .expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        }
        assert_eq!(deferral(&device)?, before);
        let mut gone = device.clone();
        gone.index += 1000;
        let error = gone.defer_interrupts(2, second).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::DeviceMissing, "{error}");
        assert!(error.to_string().contains("ip link"), "{error}");
        Ok(())
    })?;
    let device = lab.rx.lookup()?;
    lab.rx.ip("link set dev rx0 down")?;
    lab.rx.ip("link set dev rx0 name rx1")?;
    // Its name goes to another device, too.
    for _ in 0..2 {
        lab.rx.inside(|| {
            let errors = [
                device.defer_interrupts(2, second).err(),
                device.rx_by_queue().err(),
            ];
            for error in errors.map(|error| error.expect("renamed")) {
                assert_eq!(error.kind(), ErrorKind::DeviceMissing, "{error}");
                let text = error.to_string();
                assert!(text.starts_with("rx0 was renamed"), "{text}");
                assert!(text.contains("is rx1 here"), "{text}");
            }
        });
        lab.rx.ip("link add rx0 type veth").unwrap_or_default();
    }
    Ok(())
}

fn umem() -> xsk::Result<Umem> {
    Umem::builder().chunks(1024).build()
}

fn pair(wait: Wait) -> Result<(Lab, Socket, Socket)> {
    let lab = Lab::new()?;
    let rx = lab
        .rx
        .open(&umem()?, Mode::Driver, |b| b.tx_ring(0).wait(wait))?;
    let tx = lab
        .tx
        .open(&umem()?, Mode::Driver, |b| b.rx_ring(64).wait(wait))?;
    Ok((lab, rx, tx))
}

/// Puts a packet into TX; false while no chunk is free or TX is full.
fn stage(tx: &mut Socket, sequence: u64) -> bool {
    if tx.tx_room() == 0 {
        return false;
    }
    let Some(mut frame) = tx.alloc() else {
        return false;
    };
    packet::fill(&mut frame, 0, sequence, packet::MIN);
    tx.send(frame).is_ok()
}

fn send_one(tx: &mut Socket, sequence: u64) -> Outcome {
    assert!(stage(tx, sequence), "room for one packet");
    tx.flush()?;
    drain(tx);
    Ok(())
}

/// Whether the descriptor is readable within `timeout`.
fn readable(fd: impl AsFd, timeout: Duration) -> Result<bool> {
    let fd = fd.as_fd();
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    Ok(poll(&mut fds, Some(&Timespec::try_from(timeout)?))? > 0)
}

const SOON: Duration = Duration::from_millis(20);

fn poll_sees_both() -> Outcome {
    let (_lab, mut rx, mut tx) = pair(Wait::Poll)?;
    assert!(!rx.prepare_to_wait(Interest::Receive)?.any());
    assert!(!readable(&rx, SOON)?, "no packet was sent");
    send_one(&mut tx, 0)?;
    assert!(readable(&rx, longest(STALL))?, "a packet was sent");
    assert!(rx.prepare_to_wait(Interest::Receive)?.receive);
    drop(rx.recv(64));
    assert!(!readable(&rx, SOON)?, "the packet was received");
    // An empty TX ring has room, which is there at once.
    let ready = tx.prepare_to_wait(Interest::Both)?;
    assert!(ready.send && !ready.receive, "{ready:?}");
    assert!(!tx.prepare_to_wait(Interest::Receive)?.send);
    Ok(())
}

fn poll_sees_a_half() -> Outcome {
    let (_lab, rx, mut tx) = pair(Wait::Poll)?;
    let (mut rx, _idle) = rx.split();
    assert!(!rx.prepare_to_wait()?.any());
    assert!(!readable(&rx, SOON)?, "no packet was sent");
    send_one(&mut tx, 0)?;
    assert!(readable(&rx, longest(STALL))?, "a packet was sent");
    assert!(rx.prepare_to_wait()?.receive);
    let mut frames = Vec::new();
    assert_eq!(rx.recv_frames(&mut frames, 64), 1);
    rx.free_frames(frames);
    assert!(!readable(&rx, SOON)?, "the packet was received");
    Ok(())
}

fn watch(fd: impl AsFd, edge: bool) -> Result<OwnedFd> {
    let outer = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut events = epoll::EventFlags::IN;
    events.set(epoll::EventFlags::ET, edge);
    epoll::add(&outer, fd, epoll::EventData::new_u64(7), events)?;
    Ok(outer)
}

fn events(outer: &OwnedFd, timeout: Duration) -> Result<usize> {
    let mut events = Vec::with_capacity(4);
    let timeout = Timespec::try_from(timeout)?;
    Ok(epoll::wait(
        outer,
        rustix::buffer::spare_capacity(&mut events),
        Some(&timeout),
    )?)
}

/// An event loop's epoll instance, with the socket's own in it, as the runtimes use it.
fn epoll_sees(edge: bool) -> Outcome {
    let (_lab, mut rx, mut tx) = pair(Wait::Poll)?;
    let outer = watch(&rx, edge)?;
    for sequence in 0..50 {
        assert!(!rx.prepare_to_wait(Interest::Receive)?.any());
        assert_eq!(events(&outer, Duration::from_millis(1))?, 0, "no packet");
        send_one(&mut tx, 2 * sequence)?;
        assert_eq!(events(&outer, longest(STALL))?, 1, "packet {sequence}");
        if edge {
            // Another packet is another edge, also while the first is unread.
            send_one(&mut tx, 2 * sequence + 1)?;
            assert_eq!(
                events(&outer, longest(STALL))?,
                1,
                "the edge of packet {sequence}"
            );
            assert_eq!(events(&outer, Duration::ZERO)?, 0, "an edge twice");
        } else {
            assert_eq!(events(&outer, Duration::ZERO)?, 1, "the level stays");
        }
        assert_eq!(rx.recv(64).len(), if edge { 2 } else { 1 });
    }
    Ok(())
}

/// Packets that the device was too busy for.
fn sends_all(wait: Wait) -> Outcome {
    let (lab, mut rx, mut tx) = pair(wait)?;
    // The veth's ring holds 256 packets: with a queueing discipline the rest waits in TX.
    lab.tx.run("tc", "qdisc add dev tx0 root pfifo limit 16")?;
    let mut sent = 0;
    while stage(&mut tx, sent) {
        sent += 1;
    }
    assert!(sent > 256, "only {sent} packets");
    tx.flush()?;
    let mut limit = Limit::new(STALL);
    while tx.outstanding() > 0 && !limit.is_over() {
        tx.wait(Duration::from_millis(100))?;
        drop(rx.recv(64));
    }
    assert_eq!(tx.outstanding(), 0);
    Ok(())
}

/// A sender with fewer chunks than slots in TX, and one with more.
fn waits_for_room(wait: Wait) -> Outcome {
    for (chunks, slots) in [(64, 256), (256, 64)] {
        let (lab, from) = (Lab::new()?, Umem::builder().chunks(chunks).build()?);
        let mut rx = lab
            .rx
            .open(&umem()?, Mode::Driver, |b| b.tx_ring(0).rx_ring(1024))?;
        let mut tx = lab.tx.open(&from, Mode::Driver, |b| {
            b.rx_ring(0).tx_ring(slots).wait(wait)
        })?;
        for sequence in 0..2048 {
            let ready = tx.wait_for(Interest::Send, longest(STALL))?;
            assert!(ready.send && !ready.receive, "{ready:?}");
            assert!(stage(&mut tx, sequence), "it can send");
            if sequence % 16 == 15 {
                tx.flush()?;
                drop(rx.recv(64));
            }
        }
        tx.flush()?;
        drain(&mut tx);
        assert_eq!(tx.statistics()?.completed, 2048);
    }
    Ok(())
}

fn half_waits_for_room() -> Outcome {
    let (_lab, mut rx, tx) = pair(Wait::Poll)?;
    let (_half, mut tx) = tx.split();
    for sequence in 0..2048 {
        assert!(tx.wait_for_room(longest(STALL))?);
        let mut frame = tx.alloc().ok_or("a frame")?;
        packet::fill(&mut frame, 0, sequence, packet::MIN);
        tx.send(frame).map_err(|unsent| unsent.kind.to_string())?;
        tx.flush()?;
        drop(rx.recv(64));
    }
    Ok(())
}
