//! The events of a device, the faults of a socket, and its successor.

use crate::budget::STALL;
use crate::netns::{Lab, Side, are_cards};
use crate::traffic::{all_home, deliver};
use crate::{Outcome, Result, attach_mode, modes};
use hostnet::genetlink::ethtool::ChannelMonitor;
use hostnet::rtnetlink::Rtnetlink;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::Duration;
use testkit::limit::longest;
use testkit::{Limit, Test, skip, until};
use xsk::testing::programs;
use xsk::{DeviceEvent, DeviceWatch, ErrorKind, Fault, Mode, Socket, SocketBuilder, Umem};

pub fn tests() -> Vec<Test> {
    let mut tests = vec![
        Test::new("watch: each change is an event", changes),
        Test::new("watch: numbers of queues", queues),
        Test::new("watch: a device moves, returns, and is made anew", returns),
        Test::new("watch: a device is renamed", renamed),
        Test::new("watch: programs", watched_programs),
        Test::new("watch: notifications are lost", overflow),
        Test::new("watch: the descriptor is readable", readable),
    ];
    for (prefix, mode) in modes() {
        let mut add = |name, body: fn(Mode) -> Outcome| {
            tests.push(Test::new(format!("{prefix} {name}"), move || body(mode)));
        };
        add("rebind: a socket that works stays", stays);
        add("rebind: the device is gone", device_gone);
        add("rebind: the program is gone", program_gone);
        add("rebind: the reason why not", reasons);
    }
    tests
}

fn watch(side: &Side) -> xsk::Result<DeviceWatch> {
    side.inside(|| DeviceWatch::new(side.device))
}

/// Events until the last of `expected`, which come in this order. The kernel follows the carrier in the
/// background, so it does not count.
fn expect(watch: &mut DeviceWatch, expected: &[DeviceEvent]) -> Outcome {
    let mut limit = Limit::new(STALL);
    let mut seen = Vec::new();
    while seen.len() < expected.len() && !limit.is_over() {
        let event = watch.wait(Duration::from_millis(50))?;
        let carrier =
            |event: &DeviceEvent| matches!(event, DeviceEvent::CarrierOn | DeviceEvent::CarrierOff);
        seen.extend(event.filter(|event| !carrier(event)));
    }
    assert_eq!(seen, expected);
    Ok(())
}

/// Waits for one event, whatever comes before it.
fn await_event(watch: &mut DeviceWatch, expected: &DeviceEvent) -> Outcome {
    let mut limit = Limit::new(STALL);
    let mut seen = Vec::new();
    while seen.last() != Some(expected) {
        if limit.is_over() {
            return Err(format!("no {expected:?}, but {seen:?}").into());
        }
        seen.extend(watch.wait(Duration::from_millis(50))?);
    }
    Ok(())
}

fn changes() -> Outcome {
    let lab = Lab::new()?;
    let mut watch = watch(&lab.rx)?;
    lab.rx.ip("link set dev rx0 mtu 1400")?;
    expect(&mut watch, &[DeviceEvent::Mtu(1400)])?;
    // Of another device.
    lab.rx.ip("link set dev lo mtu 1400")?;
    lab.rx.ip("link set dev rx0 down")?;
    expect(&mut watch, &[DeviceEvent::Down])?;
    lab.rx.ip("link set dev rx0 up")?;
    expect(&mut watch, &[DeviceEvent::Up])?;
    lab.tx.ip("link set dev tx0 down")?;
    await_event(&mut watch, &DeviceEvent::CarrierOff)?;
    lab.tx.ip("link set dev tx0 up")?;
    await_event(&mut watch, &DeviceEvent::CarrierOn)?;
    assert_eq!(watch.next()?, None);
    Ok(())
}

/// Skips a test of queues where the kernel does not report them.
fn need_channels() -> Outcome {
    if ChannelMonitor::open()?.is_some() {
        return Ok(());
    }
    let missing = "missing: notifications of channels (Linux 5.6, CONFIG_ETHTOOL_NETLINK)";
    Err(skip(missing))
}

fn queues() -> Outcome {
    need_channels()?;
    let lab = Lab::with_queues(4)?;
    let mut watch = watch(&lab.rx)?;
    for (rx, tx) in [(2, 2), (3, 1), (4, 4)] {
        lab.rx.run("ethtool", &format!("-L rx0 rx {rx} tx {tx}"))?;
        expect(&mut watch, &[DeviceEvent::Queues { rx, tx }])?;
    }
    // The same numbers again are no change.
    lab.tx.run("ethtool", "-L tx0 rx 1 tx 1")?;
    assert_eq!(watch.wait(Duration::from_millis(20))?, None);
    Ok(())
}

fn returns() -> Outcome {
    let (lab, elsewhere) = (Lab::new()?, Side::new("rx0")?);
    let mut watch = watch(&lab.rx)?;
    for _ in 0..2 {
        lab.rx
            .ip(&format!("link set dev rx0 netns {}", elsewhere.path()))?;
        expect(&mut watch, &[DeviceEvent::Down, DeviceEvent::Moved])?;
        elsewhere.ip(&format!("link set dev rx0 netns {}", lab.rx.path()))?;
        let index = lab.rx.lookup()?.index;
        expect(&mut watch, &[DeviceEvent::Returned(index)])?;
        lab.rx.ip("link set dev rx0 up")?;
        expect(&mut watch, &[DeviceEvent::Up])?;
    }
    lab.rx.ip("link delete dev rx0")?;
    expect(&mut watch, &[DeviceEvent::Down, DeviceEvent::Removed])?;
    lab.add_veths(1)?;
    let index = lab.rx.lookup()?.index;
    let events = [DeviceEvent::Returned(index), DeviceEvent::Up];
    expect(&mut watch, &events)
}

/// Its name is free for another, which is not watched while it is there.
fn renamed() -> Outcome {
    let lab = Lab::new()?;
    let mut watch = watch(&lab.rx)?;
    lab.rx.ip("link set dev rx0 down")?;
    lab.rx.ip("link set dev rx0 name rx1")?;
    lab.rx.ip("link add rx0 type veth")?;
    lab.rx.ip("link set dev rx1 up")?;
    expect(&mut watch, &[DeviceEvent::Down, DeviceEvent::Up])?;
    lab.rx.ip("link delete dev rx1")?;
    let index = lab.rx.lookup()?.index;
    // Nothing is said of the last by the kernel, so it is found by the next look.
    let returned = DeviceEvent::Returned(index);
    let events = [DeviceEvent::Down, DeviceEvent::Removed, returned];
    expect(&mut watch, &events)
}

fn watched_programs() -> Outcome {
    let (umem, lab) = (Umem::builder().chunks(256).build()?, Lab::new()?);
    let mut watch = watch(&lab.rx)?;
    let socket = lab.rx.open(&umem, Mode::Driver, |b| b)?;
    let attached = lab.rx.lookup()?.programs;
    await_event(&mut watch, &DeviceEvent::Programs(attached))?;
    let program = socket.program().ok_or("its program")?;
    programs::replace(program)?;
    let other = lab.rx.lookup()?.programs;
    assert_eq!(other[0].name.as_deref(), Some("not_of_xsk"));
    await_event(&mut watch, &DeviceEvent::Programs(other))?;
    programs::detach(program)?;
    await_event(&mut watch, &DeviceEvent::Programs(vec![]))
}

/// More notifications than there is room for, and changes among those that are lost.
fn overflow() -> Outcome {
    let lab = Lab::new()?;
    let mut watch = watch(&lab.rx)?;
    let index = lab.rx.lookup()?.index;
    lab.rx.inside(|| -> hostnet::Result<()> {
        let mut rtnetlink = Rtnetlink::open()?;
        (0..2000).try_for_each(|round| rtnetlink.set_mtu(index, 1000 + round % 2))?;
        rtnetlink.set_mtu(index, 1300)
    })?;
    let events = [DeviceEvent::Overflow, DeviceEvent::Mtu(1300)];
    expect(&mut watch, &events)?;
    lab.rx.ip("link set dev rx0 mtu 1301")?;
    expect(&mut watch, &[DeviceEvent::Mtu(1301)])?;
    // The device is another one when the watch reads again.
    lab.rx.inside(|| -> hostnet::Result<()> {
        let mut rtnetlink = Rtnetlink::open()?;
        (0..2000).try_for_each(|round| rtnetlink.set_mtu(index, 1000 + round % 2))?;
        rtnetlink.delete(index)
    })?;
    lab.add_veths(1)?;
    let returned = DeviceEvent::Returned(lab.rx.lookup()?.index);
    let events = [
        DeviceEvent::Overflow,
        DeviceEvent::Removed,
        returned,
        DeviceEvent::Up,
    ];
    expect(&mut watch, &events)
}

fn readable() -> Outcome {
    let lab = Lab::new()?;
    let mut watch = watch(&lab.rx)?;
    let sleep = |watch: &DeviceWatch, limit: Duration| -> Result<usize> {
        let limit = Timespec::try_from(limit)?;
        Ok(poll(
            &mut [PollFd::new(watch, PollFlags::IN)],
            Some(&limit),
        )?)
    };
    while watch.next()?.is_some() {}
    lab.rx.ip("link set dev rx0 mtu 1400")?;
    assert_eq!(sleep(&watch, Duration::ZERO)?, 1);
    await_event(&mut watch, &DeviceEvent::Mtu(1400))?;
    // Without a change it is readable for the next look, and quiet after it.
    assert_eq!(sleep(&watch, longest(STALL))?, 1);
    while watch.next()?.is_some() {}
    Ok(())
}

/// A socket, the settings that it was opened with, and the side that it is on.
struct Station<'l> {
    side: &'l Side,
    builder: SocketBuilder,
    socket: Option<Socket>,
}

impl<'l> Station<'l> {
    fn new(side: &'l Side, umem: &Umem, mode: Mode) -> xsk::Result<Self> {
        let builder = Socket::builder(umem, side.device, 0).mode(mode);
        let mut station = Self {
            side,
            builder,
            socket: None,
        };
        assert!(station.rebind()?, "a first socket is a new one");
        Ok(station)
    }

    fn rebind(&mut self) -> xsk::Result<bool> {
        self.side.inside(|| self.builder.rebind(&mut self.socket))
    }

    fn fault(&self) -> Option<Fault> {
        self.socket.as_ref().expect("a socket").fault()
    }
}

fn umem() -> xsk::Result<Umem> {
    Umem::builder().chunks(1024).build()
}

/// Packets flow from one to the other, and all chunks come back.
fn end(mut from: Station<'_>, mut to: Station<'_>) -> Outcome {
    let (tx, rx) = (from.socket.as_mut(), to.socket.as_mut());
    deliver(tx.ok_or("sender")?, rx.ok_or("receiver")?, 256, 64)?;
    for mut station in [from, to] {
        let umem = station.socket.take().ok_or("a socket")?.umem().clone();
        all_home(&umem);
    }
    Ok(())
}

fn need_veth() -> Outcome {
    if are_cards() {
        return Err(skip("a card cannot be deleted"));
    }
    Ok(())
}

fn stays(mode: Mode) -> Outcome {
    let lab = Lab::new()?;
    let mut rx = Station::new(&lab.rx, &umem()?, mode)?;
    let tx = Station::new(&lab.tx, &umem()?, mode)?;
    assert_eq!(rx.fault(), None);
    assert!(!rx.rebind()?);
    let number = |station: &Station<'_>| {
        use std::os::fd::AsRawFd;
        xsk::testing::raw::descriptor(station.socket.as_ref().expect("a socket")).as_raw_fd()
    };
    let before = number(&rx);
    lab.rx.ip("link set dev rx0 down")?;
    assert_eq!(rx.fault(), Some(Fault::DeviceDown));
    assert!(!rx.rebind()?, "it goes on when the device is up");
    lab.rx.ip("link set dev rx0 up")?;
    assert_eq!(rx.fault(), None);
    lab.rx.wait_for_link();
    assert_eq!(number(&rx), before);
    end(tx, rx)
}

fn device_gone(mode: Mode) -> Outcome {
    need_veth()?;
    let (lab, elsewhere) = (Lab::new()?, Side::new("rx0")?);
    let mut rx = Station::new(&lab.rx, &umem()?, mode)?;
    let mut tx = Station::new(&lab.tx, &umem()?, mode)?;
    lab.rx
        .ip(&format!("link set dev rx0 netns {}", elsewhere.path()))?;
    assert_eq!(rx.fault(), Some(Fault::DeviceGone));
    elsewhere.ip(&format!("link set dev rx0 netns {}", lab.rx.path()))?;
    lab.rx.ip("link set dev rx0 up")?;
    assert_eq!(rx.fault(), Some(Fault::DeviceGone), "it does not return");
    assert_eq!(tx.fault(), None);
    assert!(rx.rebind()? && !tx.rebind()?);
    assert_eq!(rx.fault(), None);

    lab.rx.ip("link delete dev rx0")?;
    for station in [&mut rx, &mut tx] {
        assert_eq!(station.fault(), Some(Fault::DeviceGone));
        let error = station.rebind().expect_err("there is no device");
        assert_eq!(error.kind(), ErrorKind::DeviceMissing, "{error}");
        assert!(station.socket.is_none());
    }
    lab.add_veths(1)?;
    assert!(rx.rebind()? && tx.rebind()?);
    end(tx, rx)
}

fn program_gone(mode: Mode) -> Outcome {
    let lab = Lab::new()?;
    let mut rx = Station::new(&lab.rx, &umem()?, mode)?;
    let tx = Station::new(&lab.tx, &umem()?, mode)?;
    let program = |station: &Station<'_>| {
        let socket = station.socket.as_ref().expect("a socket");
        socket.program().expect("its program").clone()
    };
    programs::replace(&program(&rx))?;
    assert_eq!(rx.fault(), Some(Fault::ProgramReplaced));
    // The other program goes with the old link, of which a command that another test has just forked holds a copy until it
    // executes.
    until(STALL, "a new socket", || match rx.rebind() {
        Err(error) if error.kind() == ErrorKind::ProgramAttached => Ok(false),
        rebound => Result::Ok(rebound?),
    })?;
    let detached = program(&rx);
    programs::detach(&detached)?;
    assert_eq!(rx.fault(), Some(Fault::ProgramDetached));
    // Another socket would get nothing by it.
    let umem = umem()?;
    let error = lab.rx.open(&umem, mode, |b| b.program(&detached));
    let error = error.err().ok_or("it shared a detached program")?;
    assert_eq!(error.kind(), ErrorKind::Foreign, "{error}");
    assert!(rx.rebind()?);
    assert_eq!(rx.fault(), None);
    end(tx, rx)
}

fn reasons(mode: Mode) -> Outcome {
    need_veth()?;
    let lab = Lab::with_queues(2)?;
    let mut rx = Station::new(&lab.rx, &umem()?, mode)?;
    let mut tx = Station::new(&lab.tx, &umem()?, mode)?;
    let fails = |station: &mut Station<'_>, kind| {
        let error = station.rebind().expect_err("it cannot");
        assert_eq!(error.kind(), kind, "{error}");
        assert!(station.socket.is_none());
    };
    rx.socket = None;
    assert!(lab.rx.has_no_program(STALL));
    lab.rx.ip("link set dev rx0 down")?;
    fails(&mut rx, ErrorKind::DeviceDown);
    lab.rx.ip("link set dev rx0 mtu 3000 up")?;
    fails(&mut rx, ErrorKind::MtuTooLarge);
    lab.rx.ip("link set dev rx0 mtu 1500")?;
    let device = lab.rx.lookup()?;
    let other = lab
        .rx
        .inside(|| programs::attach_other(&device, attach_mode(mode)))?;
    fails(&mut rx, ErrorKind::ProgramAttached);
    drop(other);
    // The kernel takes a link apart after its close.
    assert!(lab.rx.has_no_program(STALL));
    assert!(rx.rebind()?);
    // A second one, on a queue that goes away in the meantime.
    tx.builder = Socket::builder(&umem()?, "tx0", 1).mode(mode);
    tx.socket = None;
    assert!(lab.tx.has_no_program(STALL));
    lab.tx.run("ethtool", "-L tx0 rx 1 tx 1")?;
    fails(&mut tx, ErrorKind::QueueOutOfRange);
    lab.tx.run("ethtool", "-L tx0 rx 2 tx 2")?;
    assert!(tx.rebind()?);
    tx.builder = Socket::builder(&umem()?, "tx0", 0).mode(mode);
    tx.socket = None;
    assert!(tx.rebind()?);
    end(tx, rx)
}
