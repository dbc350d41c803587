//! Modes obtained, and one UMEM under several sockets.

use crate::budget::STALL;
use crate::netns::{Lab, Side};
use crate::traffic::{Flight, all_home, deliver, drain, exchange, receive_all, send_all, send_one};
use crate::{Outcome, packet};
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use testkit::limit::longest;
use testkit::{Test, wait_until};
use xsk::{ErrorKind, Frame, Mode, ModeObtained, Refusal, SendErrorKind, Socket, Transmit, Umem};

const PACKETS: u64 = 2048;

pub fn tests() -> Vec<Test> {
    let mut tests = vec![
        Test::new("auto on veth: native, zero-copy refused", auto_on_veth),
        Test::new("auto on tun: generic, native refused", || {
            auto_falls_back("tuntap add mode tun name fall0", "fall0")
        }),
        Test::new("auto on lo: generic, native refused", || {
            auto_falls_back("link set dev lo mtu 1500", "lo")
        }),
        Test::new("a frame of another UMEM is refused", foreign_frame),
        Test::new("a packet through a sibling and a half", other_outlets),
        Test::new(
            "splitting closes a sibling with packets",
            split_with_sibling,
        ),
        Test::new("the program of another device is refused", foreign_program),
        Test::new("a shared program in another mode is refused", other_mode),
        Test::new("a program serves a queue that is added later", later_queue),
    ];
    for (prefix, mode) in [("SKB", Mode::Skb), ("DRV", Mode::Driver)] {
        let mut add = |name, body: fn(Mode) -> Outcome| {
            tests.push(Test::new(format!("{prefix} {name}"), move || body(mode)));
        };
        add("two queues share UMEM and program", two_queues);
        add("two devices share a UMEM", two_devices);
        add(
            "kept frames move to another thread and are sent",
            kept_frames_move,
        );
    }
    tests
}

fn umem() -> xsk::Result<Umem> {
    Umem::builder().chunks(2048).build()
}

fn auto_on_veth() -> Outcome {
    let (umem, lab) = (umem()?, Lab::new()?);
    let socket = lab.rx.open(&umem, Mode::Auto, |b| b)?;
    assert_eq!(socket.mode(), ModeObtained::Driver);
    let [Refusal::Mode(Mode::ZeroCopy, error)] = socket.refusals() else {
        panic!("refusals: {:?}", socket.refusals());
    };
    assert_eq!(
        (error.kind(), error.errno()),
        (ErrorKind::ModeRefused, Some(95))
    );
    assert!(error.to_string().contains("EOPNOTSUPP"));
    let programs = lab.rx.lookup()?.programs;
    assert_eq!(programs.len(), 1);
    assert_eq!(programs[0].mode, xsk::AttachMode::Driver);
    Ok(())
}

/// On a device without native XDP.
fn auto_falls_back(make: &str, device: &'static str) -> Outcome {
    let umem = umem()?;
    let side = Side::new(device)?;
    side.ip(make)?;
    side.ip(&format!("link set dev {device} up"))?;
    let socket = side.open(&umem, Mode::Auto, |b| b)?;
    assert_eq!(socket.mode(), ModeObtained::Skb);
    let refused: Vec<_> = socket.refusals().iter().map(ToString::to_string).collect();
    let [Refusal::Mode(Mode::Driver, error), others @ ..] = socket.refusals() else {
        panic!("refusals: {refused:?}");
    };
    let long = others
        .iter()
        .filter(|other| matches!(other, Refusal::Umem(_)));
    assert_eq!(
        (long.count(), others.len()),
        if device == "lo" { (1, 1) } else { (0, 0) }
    );
    assert_eq!(error.kind(), ErrorKind::ModeRefused);
    assert!(error.errno().is_some());
    drop(socket);
    let error = side
        .open(&umem, Mode::Driver, |b| b)
        .err()
        .ok_or("native?")?;
    assert_eq!(error.kind(), ErrorKind::ModeRefused);
    assert!(error.to_string().contains("try another mode"), "{error}");
    Ok(())
}

fn later_queue() -> Outcome {
    let (umem, lab) = (umem()?, Lab::with_queues(2)?);
    lab.tx.run("ethtool", "-L tx0 rx 1 tx 1")?;
    lab.rx.run("ethtool", "-L rx0 rx 1 tx 1")?;
    let first = lab.rx.open(&umem, Mode::Driver, |b| b.fill_chunks(64))?;
    let program = first.program().ok_or("the built-in program")?;
    lab.rx.run("ethtool", "-L rx0 rx 2")?;
    let second = Socket::builder(&umem, "rx0", 1)
        .mode(Mode::Driver)
        .tx_ring(0)
        .program(program);
    lab.rx.inside(|| second.open())?;
    Ok(())
}

/// Also in builds without debug assertions.
fn foreign_frame() -> Outcome {
    let (ours, theirs, lab) = (umem()?, umem()?, Lab::new()?);
    let mut socket = lab.tx.open(&ours, Mode::Skb, |b| b.rx_ring(0))?;
    let mut frame = theirs.alloc().ok_or("a frame")?;
    packet::fill(&mut frame, 0, 7, packet::MIN);
    let unsent = socket.send(frame).err().ok_or("it was taken")?;
    assert_eq!(unsent.kind, SendErrorKind::Foreign);
    packet::check(&unsent.packet, 7);
    assert_eq!(unsent.packet.len(), packet::MIN);
    assert!(
        unsent
            .to_string()
            .contains("copy it into a frame of this one")
    );
    drop(unsent);

    // A received packet is refused by a socket of another UMEM, and stays whole.
    let mut rx = lab.rx.open(&theirs, Mode::Skb, |b| b)?;
    let mut frame = socket.alloc().ok_or("a frame")?;
    packet::fill(&mut frame, 0, 8, packet::MIN);
    socket
        .send(frame)
        .map_err(|unsent| unsent.kind.to_string())?;
    drain(&mut socket);
    assert!(wait_until(STALL, || rx
        .wait(Duration::from_millis(10))
        .expect("wait")));
    let mut batch = rx.recv(1);
    let packet = batch.next_packet().ok_or("a packet")?;
    let unsent = packet.send_on(&mut socket).err().ok_or("it was taken")?;
    assert_eq!(unsent.kind, SendErrorKind::Foreign);
    packet::check(&unsent.packet, 8);
    drop(unsent);
    drop(batch);
    drop((rx, socket));
    all_home(&ours);
    all_home(&theirs);
    Ok(())
}

/// A packet of one socket leaves through another, then through its sibling and its sending half.
fn other_outlets() -> Outcome {
    let (left, right) = (Lab::new()?, Lab::new()?);
    let (far, middle) = (umem()?, umem()?);
    let mut source = left.tx.open(&far, Mode::Driver, |b| b.rx_ring(0))?;
    let mut inward = left
        .rx
        .open(&middle, Mode::Driver, |b| b.fill_chunks(256))?;
    let mut outward = right.tx.open(&middle, Mode::Driver, |b| b.rx_ring(0))?;
    let mut sink = right
        .rx
        .open(&far, Mode::Driver, |b| b.tx_ring(0).fill_chunks(256))?;
    let id = right.tx.inside(|| outward.add_sibling(0, 64))?;
    send_one(&mut source, 0)?;
    pass_on(&mut inward, &mut outward)?;
    outward.flush()?;
    send_one(&mut source, 1)?;
    let mut sibling = outward.sibling(id).ok_or("the sibling")?;
    pass_on(&mut inward, &mut sibling)?;
    sibling.flush()?;
    drain(&mut outward);
    let (rx, mut tx) = outward.split();
    drop(rx);
    send_one(&mut source, 2)?;
    pass_on(&mut inward, &mut tx)?;
    tx.flush()?;
    receive_all(&mut sink, 0..3, packet::MIN, &Flight::default());
    drop((source, inward, tx, sink));
    all_home(&far);
    all_home(&middle);
    Ok(())
}

/// A sibling has packets in RX and TX when its socket is split: none of their chunks is lost.
fn split_with_sibling() -> Outcome {
    let (lab, far, near) = (Lab::new()?, umem()?, umem()?);
    let mut peer = lab.tx.open(&far, Mode::Driver, |b| b)?;
    let mut socket = lab.rx.open(&near, Mode::Driver, |b| b.fill_chunks(256))?;
    let program = socket.program().ok_or("the program")?.clone();
    let id = lab.rx.inside(|| socket.add_sibling(64, 64))?;
    let mut sibling = socket.sibling(id).ok_or("the sibling")?;
    sibling.insert_into(program.map(), 0)?;
    for sequence in 0..8 {
        send_one(&mut peer, sequence)?;
    }
    assert!(sibling.wait(longest(STALL))?);
    let mut frame = socket.alloc().ok_or("a frame")?;
    packet::fill(&mut frame, 0, 0, packet::MIN);
    let mut sibling = socket.sibling(id).ok_or("the sibling")?;
    sibling
        .send(frame)
        .map_err(|unsent| unsent.kind.to_string())?;
    let (rx, tx) = socket.split();
    assert_eq!(tx.outstanding(), 0, "the sibling's packet was sent");
    receive_all(&mut peer, 0..1, packet::MIN, &Flight::default());
    drop((rx, tx, peer));
    all_home(&near);
    all_home(&far);
    Ok(())
}

/// Forwards one packet.
fn pass_on(from: &mut Socket, to: &mut impl Transmit) -> Outcome {
    assert!(wait_until(STALL, || from
        .wait(Duration::from_millis(10))
        .expect("wait")));
    let mut batch = from.recv(1);
    let packet = batch.next_packet().ok_or("a packet")?;
    packet
        .send_on(to)
        .map_err(|unsent| unsent.kind.to_string())?;
    Ok(())
}

fn foreign_program() -> Outcome {
    let (umem, lab, other) = (umem()?, Lab::new()?, Side::new("other0")?);
    // Devices are numbered from 1 in each namespace, so the second is not the lab's first.
    other.ip("tuntap add mode tun name skipped0")?;
    other.ip("tuntap add mode tun name other0")?;
    other.ip("link set dev other0 up")?;
    let socket = lab.rx.open(&umem, Mode::Skb, |b| b)?;
    let program = socket.program().ok_or("the program")?.clone();
    let opened = other.open(&umem, Mode::Skb, |b| b.program(&program));
    let error = opened.err().ok_or("it opened")?;
    assert_eq!(error.kind(), ErrorKind::Foreign);
    assert!(error.to_string().contains("leave `program` out"), "{error}");
    Ok(())
}

/// A requested mode is obtained or is an error, also with a program that is attached already.
fn other_mode() -> Outcome {
    let (umem, lab) = (umem()?, Lab::new()?);
    let socket = lab.rx.open(&umem, Mode::Driver, |b| b)?;
    let program = socket.program().ok_or("the program")?.clone();
    drop(socket);
    let opened = lab.rx.open(&umem, Mode::Skb, |b| b.program(&program));
    let error = opened.err().ok_or("it opened")?;
    assert_eq!(error.kind(), ErrorKind::ModeRefused);
    assert!(error.to_string().contains("native (driver)"), "{error}");
    all_home(&umem);
    Ok(())
}

/// The queue on which a packet arrives that a veth peer sent from queue `from`. A native program
/// sees the same number. A generic one sees the sender's queue mapping, which the kernel then
/// interprets as a receive queue counted from one, or as none when it is zero.
pub fn arrives_on(mode: Mode, from: u32) -> u32 {
    if mode == Mode::Skb {
        from.saturating_sub(1)
    } else {
        from
    }
}

/// Two sockets on one UMEM and one device, each with its own FILL and COMPLETION.
fn two_queues(mode: Mode) -> Outcome {
    let (from, to, lab) = (umem()?, umem()?, Lab::with_queues(4)?);
    let mut rx0 = lab.rx.open_queue(&to, mode, 0, |b| b.fill_chunks(512))?;
    let program = rx0.program().ok_or("the program")?.clone();
    let other = arrives_on(mode, 3);
    let mut rx_other = lab
        .rx
        .open_queue(&to, mode, other, |b| b.program(&program).fill_chunks(512))?;
    drop(program);
    let mut tx0 = lab.tx.open_queue(&from, mode, 0, |b| b.rx_ring(0))?;
    let mut tx_other = lab.tx.open_queue(&from, mode, 3, |b| b.rx_ring(0))?;
    assert_eq!((rx0.queue(), rx_other.queue()), (0, other));
    assert_eq!(lab.rx.lookup()?.programs.len(), 1);
    deliver(&mut tx_other, &mut rx_other, PACKETS, packet::MIN)?;
    deliver(&mut tx0, &mut rx0, PACKETS, packet::MIN)?;
    assert_eq!(rx0.statistics()?.received, PACKETS);
    // The first socket may close; the program and the other continue.
    drop((rx0, tx0));
    deliver(&mut tx_other, &mut rx_other, PACKETS, packet::MIN)?;
    drop((rx_other, tx_other));
    all_home(&to);
    all_home(&from);
    assert!(lab.rx.has_no_program(STALL), "the program has stayed");
    Ok(())
}

/// Packets arrive on one device and leave on another, without a copy.
fn two_devices(mode: Mode) -> Outcome {
    let (from, middle, to) = (umem()?, umem()?, umem()?);
    let (left, right) = (Lab::new()?, Lab::new()?);
    let mut source = left.tx.open(&from, mode, |b| b.rx_ring(0))?;
    let mut inward = left.rx.open(&middle, mode, |b| b.fill_chunks(512))?;
    let mut outward = right.tx.open(&middle, mode, |b| b.fill_chunks(512))?;
    let mut sink = right.rx.open(&to, mode, |b| b.tx_ring(0))?;
    exchange(
        |flight| send_all(&mut source, PACKETS, packet::MIN, flight),
        |flight| {
            std::thread::scope(|scope| {
                scope.spawn(|| forward(&mut inward, &mut outward, PACKETS));
                receive_all(&mut sink, 0..PACKETS, packet::MIN, flight);
            });
        },
    );
    drop((source, inward, outward, sink));
    for umem in [&from, &middle, &to] {
        all_home(umem);
    }
    Ok(())
}

fn forward(inward: &mut Socket, outward: &mut Socket, count: u64) {
    let mut forwarded = 0;
    let done = wait_until(STALL * 4, || {
        inward.wait(Duration::from_millis(10)).expect("wait");
        let mut batch = inward.recv(64);
        while let Some(packet) = batch.next_packet() {
            packet
                .send_on(outward)
                .expect("a ring larger than the window");
            forwarded += 1;
        }
        drop(batch);
        outward.flush().expect("flush");
        forwarded == count
    });
    assert!(done, "{forwarded} of {count} packets were forwarded");
    drain(outward);
}

/// Each packet is kept, handed to another thread, and sent back by another socket.
fn kept_frames_move(mode: Mode) -> Outcome {
    let (far, near, lab) = (umem()?, umem()?, Lab::with_queues(4)?);
    let mut source = lab
        .tx
        .open_queue(&far, mode, 0, |b| b.rx_ring(0).fill_chunks(0))?;
    let mut sink = lab.tx.open_queue(&far, mode, arrives_on(mode, 2), |b| {
        b.tx_ring(0).fill_chunks(512)
    })?;
    let mut inward = lab
        .rx
        .open_queue(&near, mode, 0, |b| b.tx_ring(0).fill_chunks(512))?;
    let mut outward = lab.rx.open_queue(&near, mode, 2, |b| b.rx_ring(0))?;
    let (give, take) = sync_channel::<Frame>(256);
    exchange(
        |flight| send_all(&mut source, PACKETS, packet::MIN, flight),
        |flight| {
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    let mut kept = 0;
                    let done = wait_until(STALL * 4, || {
                        inward.wait(Duration::from_millis(10)).expect("wait");
                        let mut batch = inward.recv(64);
                        while let Some(packet) = batch.next_packet() {
                            give.send(packet.keep()).expect("the other thread listens");
                            kept += 1;
                        }
                        kept == PACKETS
                    });
                    assert!(done, "{kept} packets were kept");
                });
                scope.spawn(move || {
                    for frame in take {
                        outward.send(frame).expect("a ring larger than the window");
                        outward.flush().expect("flush");
                    }
                    drain(&mut outward);
                });
                receive_all(&mut sink, 0..PACKETS, packet::MIN, flight);
            });
        },
    );
    drop((source, sink));
    all_home(&near);
    all_home(&far);
    Ok(())
}
