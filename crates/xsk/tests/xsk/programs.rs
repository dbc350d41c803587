//! A caller's own XDP program, attached by the library.

use crate::Outcome;
use crate::budget::STALL;
use crate::netns::Lab;
use crate::traffic::{deliver, send_one};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use testkit::Test;
use xsk::testing::programs::{self, Kind};
use xsk::{AttachMode, ErrorKind, Filter, Mode, Program, Rule, Socket, SocketBuilder, Umem};

pub fn tests() -> Vec<Test> {
    vec![
        Test::new("own program: attached and detached, SKB", || {
            attach(Mode::Skb)
        }),
        Test::new("own program: attached and detached, DRV", || {
            attach(Mode::Driver)
        }),
        Test::new("own program: shared by queues", share),
        Test::new("error: own program that cannot work", refusals),
        Test::new("error: own program on another device", on_another_device),
        Test::new("error: filter with another program", filter_of_another),
        Test::new("program: before its sockets, SKB", || {
            before_its_sockets(AttachMode::Skb, Mode::Skb)
        }),
        Test::new("program: before its sockets, DRV", || {
            before_its_sockets(AttachMode::Driver, Mode::Driver)
        }),
        Test::new("program: a filter for each queue", filters_by_queue),
    ]
}

/// A program that redirects by the last byte of the destination address, and its XSKMAP.
fn load(slots: u32) -> crate::Result<(OwnedFd, OwnedFd)> {
    let map = programs::xskmap(slots)?;
    let program = programs::load_kind(Kind::ByDestination, map.as_fd())?;
    Ok((program, map))
}

fn attach(mode: Mode) -> Outcome {
    let (umem, lab) = (Umem::builder().build()?, Lab::new()?);
    let sender_umem = Umem::builder().build()?;
    let (program, map) = load(1)?;
    let mut rx = lab.rx.open(&umem, mode, |b| b.attach(program, map))?;
    let attached = lab.rx.lookup()?.programs;
    assert_eq!(attached[0].name.as_deref(), Some("xsk_test"));
    let mut tx = lab.tx.open(&sender_umem, mode, |b| b.rx_ring(0))?;
    deliver(&mut tx, &mut rx, 1000, 64)?;
    drop(rx);
    assert!(lab.rx.has_no_program(STALL), "its link outlives the socket");
    Ok(())
}

fn share() -> Outcome {
    let (umem, lab) = (Umem::builder().build()?, Lab::with_queues(2)?);
    let (program, map) = load(2)?;
    let first = lab.rx.open(&umem, Mode::Skb, |b| b.attach(program, map))?;
    let shared = first.program().ok_or("it has a program")?;
    let second = lab
        .rx
        .open_queue(&umem, Mode::Skb, 1, |b| b.program(shared))?;
    drop(first);
    assert_eq!(lab.rx.lookup()?.programs.len(), 1);
    drop(second);
    assert!(lab.rx.has_no_program(STALL), "its link outlives both");
    Ok(())
}

/// The error of a failed `open`, which has left no program on the device.
fn refused(
    lab: &Lab,
    queue: u32,
    kind: ErrorKind,
    words: &str,
    configure: impl FnOnce(SocketBuilder) -> SocketBuilder,
) -> Outcome {
    let umem = Umem::builder().chunks(256).build()?;
    let builder = Socket::builder(&umem, "rx0", queue);
    let opened = lab.rx.inside(|| configure(builder).open());
    let error = opened
        .err()
        .ok_or(format!("it opened, but for {words:?}"))?;
    assert_eq!(error.kind(), kind, "{error}");
    assert!(
        error.to_string().contains(words),
        "{words:?} is not in: {error}"
    );
    assert!(lab.rx.has_no_program(STALL), "a program was left");
    Ok(())
}

fn refusals() -> Outcome {
    let lab = Lab::with_queues(2)?;
    let map = || programs::xskmap(2);
    let foreign = ErrorKind::Foreign;

    let (program, _) = load(2)?;
    let other = map()?;
    let words = "give the one that it redirects to";
    refused(&lab, 0, foreign, words, |b| b.attach(program, other))?;

    let (program, small) = load(1)?;
    let (kind, words) = (
        ErrorKind::QueueOutOfRange,
        "has 1 slots, and none for queue 1",
    );
    refused(&lab, 1, kind, words, |b| b.attach(program, small))?;

    let (socket_filter, own) = (programs::load_socket_filter()?, map()?);
    let words = "is not an XDP program";
    refused(&lab, 0, foreign, words, |b| b.attach(socket_filter, own))?;

    let (file, own) = (File::open("/proc/version")?, map()?);
    let words = "is not a BPF program";
    refused(&lab, 0, foreign, words, |b| b.attach(file.into(), own))?;

    let (program, map) = load(2)?;
    let words = "is not an XSKMAP";
    refused(&lab, 0, foreign, words, |b| b.attach(map, program))
}

fn on_another_device() -> Outcome {
    let lab = Lab::new()?;
    // Its device must have another index than that of the receiver in its own namespace.
    lab.rx.ip("link add other type veth peer name more")?;
    lab.rx.ip("link set dev other up")?;
    let (program, map) = load(1)?;
    let (again, same_map) = (program.try_clone()?, map.try_clone()?);
    let umem = Umem::builder().chunks(256).build()?;
    let builder = Socket::builder(&umem, "other", 0).mode(Mode::Skb);
    let socket = lab.rx.inside(|| builder.attach(program, map).open())?;
    let words = "load it once for each device";
    refused(&lab, 0, ErrorKind::Foreign, words, |b| {
        b.attach(again, same_map)
    })?;
    drop(socket);
    Ok(())
}

fn filter_of_another() -> Outcome {
    let lab = Lab::new()?;
    let filter = || Filter::any([Rule::udp()]);
    let kind = ErrorKind::InvalidConfig;
    let words = "leave `filter` out";
    let map = programs::xskmap(1)?;
    refused(&lab, 0, kind, words, |b| b.map(map).filter(filter()))?;
    let (program, map) = load(1)?;
    refused(&lab, 0, kind, words, |b| {
        b.filter(filter()).attach(program, map)
    })?;
    let words = "a filter without rules";
    refused(&lab, 0, kind, words, |b| b.filter(Filter::any([])))
}

fn before_its_sockets(attach: AttachMode, mode: Mode) -> Outcome {
    let (umem, lab) = (Umem::builder().build()?, Lab::new()?);
    let sender_umem = Umem::builder().build()?;
    let program = lab.rx.inside(|| Program::attach_to("rx0", attach))?;
    assert_eq!(
        (program.mode(), lab.rx.lookup()?.programs.len()),
        (attach, 1)
    );
    let mut tx = lab.tx.open(&sender_umem, mode, |b| b.rx_ring(0))?;
    for _ in 0..2 {
        let mut rx = lab.rx.open(&umem, mode, |b| b.program(&program))?;
        deliver(&mut tx, &mut rx, 100, 64)?;
        drop(rx);
        assert_eq!(
            lab.rx.lookup()?.programs.len(),
            1,
            "it outlives its sockets"
        );
    }
    drop(program);
    assert!(lab.rx.has_no_program(STALL), "its link outlives it");
    Ok(())
}

/// The packets of the tests have an EtherType of their own: one queue takes it, and the other not.
fn filters_by_queue() -> Outcome {
    let lab = Lab::with_queues(2)?;
    let program = lab
        .rx
        .inside(|| Program::attach_to("rx0", AttachMode::Driver))?;
    let umems = [0, 1].map(|_| Umem::builder().build());
    let [first, second] = umems;
    let (first, second, sender_umem) = (first?, second?, Umem::builder().build()?);
    let open = |umem: &Umem, queue| {
        let with = |b: SocketBuilder| b.program(&program);
        lab.rx.open_queue(umem, Mode::Driver, queue, with)
    };
    let mut receivers = [open(&first, 0)?, open(&second, 1)?];
    let taken = Filter::any([Rule::ether_type(0x88b5)]);
    let other = Filter::any([Rule::ether_type(0x88b6), Rule::udp()]);
    let cases = [
        (vec![], [true, true]),
        (vec![(0, taken.clone()), (1, other.clone())], [true, false]),
        (vec![(0, other.clone()), (1, taken)], [false, true]),
        (vec![(0, other)], [false, true]),
    ];
    for (filters, expected) in cases {
        let shown = format!("{filters:?}");
        program.set_filters(&filters.into_iter().collect())?;
        for queue in [0, 1] {
            let sends = |b: SocketBuilder| b.rx_ring(0);
            let mut tx = lab
                .tx
                .open_queue(&sender_umem, Mode::Driver, queue, sends)?;
            send_one(&mut tx, 7)?;
        }
        let limit = Duration::from_millis(200);
        for (receiver, expected) in receivers.iter_mut().zip(expected) {
            receiver.wait(limit)?;
            assert_eq!(!receiver.recv(8).is_empty(), expected, "{shown}");
        }
    }
    let wrong = BTreeMap::from([(0, Filter::any([]))]);
    let error = program
        .set_filters(&wrong)
        .expect_err("a filter without rules");
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    // More instructions than the kernel takes, by little: it refuses without reading them.
    let rules = (1..=128).map(|port| Rule::udp().destination_port(port));
    let large = Filter::any(rules);
    let huge = (0..1280).map(|queue| (queue, large.clone())).collect();
    program.set_filters(&huge).expect_err("a program too long");
    // The last ones that were set.
    for queue in [0, 1] {
        let sends = |b: SocketBuilder| b.rx_ring(0);
        let mut tx = lab
            .tx
            .open_queue(&sender_umem, Mode::Driver, queue, sends)?;
        send_one(&mut tx, 7)?;
    }
    for (receiver, expected) in receivers.iter_mut().zip([false, true]) {
        receiver.wait(Duration::from_millis(200))?;
        assert_eq!(!receiver.recv(8).is_empty(), expected, "after a refusal");
    }
    Ok(())
}
