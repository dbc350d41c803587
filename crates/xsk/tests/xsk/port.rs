//! The queues of a device as one port.

use crate::budget::STALL;
use crate::netns::{Lab, Side};
use crate::sharing::arrives_on;
use crate::traffic::{
    Flight, all_home, deliver, drain, exchange, receive_all, receive_checked, send_all, send_one,
};
use crate::{Outcome, Result, packet};
use hostnet::cpulist::{CpuList, pin};
use std::panic::resume_unwind;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;
use testkit::{Test, wait_until};
use xsk::steering::{Addresses, FlowRule, Masked, Transport};
use xsk::{
    ErrorKind, Filter, Mode, Port, PortBuilder, Rule, SendErrorKind, Socket, StatisticsHandle,
    Umem, UmemBuilder, Wait,
};

const QUEUES: u32 = 4;
const PACKETS: u64 = 1024;

pub fn tests() -> Vec<Test> {
    let mut tests = vec![
        Test::new("port: a panic and an error, by queue", failures),
        Test::new("port: workers on their CPUs", pinned),
        Test::new("port: forwarding, to fewer queues too", forwarding),
        Test::new("port: queues cannot be removed while it is open", removal),
        Test::new("port: error on one queue closes the others", busy_queue),
        Test::new("port: error: queues", bad_queues),
        Test::new("port: error: settings of another socket", other_place),
        Test::new("port: error: CPUs", bad_cpus),
        Test::new("port: error: no steering on veth", no_steering),
    ];
    for (prefix, mode) in [("SKB", Mode::Skb), ("DRV", Mode::Driver)] {
        let mut add = |name, body: fn(Mode) -> Outcome| {
            tests.push(Test::new(format!("{prefix} port: {name}"), move || {
                body(mode)
            }));
        };
        add("each queue receives its packets", each_queue);
        add("one UMEM is divided between the queues", one_umem);
        add("workers on all queues, until stopped", workers);
        add("counters of workers that wait", counters);
        add("rebind when the device returns", device_returns);
        add("rebind with more queues", more_queues);
        add("queues that are added while it is opened", added_queues);
    }
    tests
}

fn umem() -> UmemBuilder {
    Umem::builder().chunks(1024)
}

/// Opens a port on a side's device, with small UMEMs.
fn open<'a>(
    side: &Side,
    mode: Mode,
    configure: impl FnOnce(PortBuilder<'a>) -> PortBuilder<'a>,
) -> xsk::Result<Port> {
    let builder = Port::builder(side.device)
        .umem(umem())
        .sockets(move |socket| socket.mode(mode));
    side.inside(|| configure(builder).open())
}

/// The UMEMs of a port, to see that their chunks come back.
fn umems(port: &mut Port) -> Vec<Umem> {
    let sockets = port.sockets_mut();
    sockets.map(|socket| socket.umem().clone()).collect()
}

/// Nothing of a port is left: its chunks are free, and its program is gone.
fn all_closed(side: &Side, umems: &[Umem]) {
    for umem in umems {
        all_home(umem);
    }
    assert!(side.has_no_program(STALL), "the program has stayed");
}

/// Sends through each queue in turn, and checks the queue of arrival.
fn deliver_to_each(from: &mut Port, to: &mut Port, mode: Mode) -> Outcome {
    let queues: Vec<u32> = from.queues().collect();
    for queue in queues {
        let tx = from.socket(queue).ok_or("the sending socket")?;
        let rx = to.socket(arrives_on(mode, queue));
        deliver(tx, rx.ok_or("the receiving socket")?, PACKETS, packet::MIN)?;
    }
    Ok(())
}

fn each_queue(mode: Mode) -> Outcome {
    let lab = Lab::with_queues(QUEUES)?;
    // The filter is of the first socket's program, which serves all.
    let ours = Filter::any([Rule::ether_type(0x88b5)]);
    let mut rx = open(&lab.rx, mode, |port| {
        port.sockets(|socket| socket.mode(mode).filter(ours.clone()))
    })?;
    let mut tx = open(&lab.tx, mode, |port| {
        port.sockets(|socket| socket.mode(mode).rx_ring(0))
    })?;
    assert_eq!(rx.device(), "rx0");
    assert!(rx.queues().eq(0..QUEUES) && tx.queues().eq(0..QUEUES));
    assert!(rx.socket(QUEUES).is_none());
    assert_eq!(lab.rx.lookup()?.programs.len(), 1);
    assert!(lab.tx.lookup()?.programs.is_empty());
    deliver_to_each(&mut tx, &mut rx, mode)?;
    for queue in 0..QUEUES {
        let sources = (0..QUEUES).filter(|&from| arrives_on(mode, from) == queue);
        let socket = rx.socket(queue).ok_or("the socket")?;
        let received = socket.statistics()?.received;
        assert_eq!(received, PACKETS * sources.count() as u64, "queue {queue}");
    }
    let memory = umems(&mut rx);
    // The sockets outlive the port, and share the program.
    let mut sockets = rx.into_sockets();
    assert!(sockets.iter().map(Socket::queue).eq(0..QUEUES));
    sockets.remove(0);
    let rx = &mut sockets[0];
    let tx = tx.socket(if mode == Mode::Skb { 2 } else { 1 });
    deliver(tx.ok_or("a socket")?, rx, PACKETS, packet::MIN)?;
    drop(sockets);
    all_closed(&lab.rx, &memory);
    Ok(())
}

/// So few chunks that the first sockets would take all of them.
fn one_umem(mode: Mode) -> Outcome {
    let lab = Lab::with_queues(QUEUES)?;
    // The packets in flight, and a batch, are for each socket less than its part.
    let (from, to) = (umem().build()?, umem().chunks(2048).build()?);
    let mut rx = open(&lab.rx, mode, |port| port.shared_umem(&to))?;
    let mut tx = open(&lab.tx, mode, |port| {
        let port = port.shared_umem(&from);
        port.sockets(|socket| socket.mode(mode).rx_ring(0))
    })?;
    let lent = to.accounting().receiving;
    assert_eq!(lent, 2048 / 2, "half of the chunks are for receiving");
    deliver_to_each(&mut tx, &mut rx, mode)?;
    drop((rx, tx));
    all_closed(&lab.rx, &[from, to]);
    Ok(())
}

/// Ports that are rebound on both sides.
struct Rebound<'l> {
    lab: &'l Lab,
    builders: [PortBuilder<'static>; 2],
    ports: [Option<Port>; 2],
}

impl<'l> Rebound<'l> {
    fn new(lab: &'l Lab, mode: Mode) -> Self {
        let builder = |device| {
            let builder = Port::builder(device).umem(umem());
            builder.sockets(move |socket| socket.mode(mode))
        };
        Self {
            lab,
            builders: [builder("rx0"), builder("tx0")],
            ports: [None, None],
        }
    }

    /// Rebinds both; returns which of them is a new one.
    fn rebind(&mut self) -> [xsk::Result<bool>; 2] {
        let [of_rx, of_tx] = &mut self.builders;
        let [rx, tx] = &mut self.ports;
        [
            self.lab.rx.inside(|| of_rx.rebind(rx)),
            self.lab.tx.inside(|| of_tx.rebind(tx)),
        ]
    }

    fn ports(&mut self) -> [&mut Port; 2] {
        self.ports
            .each_mut()
            .map(|port| port.as_mut().expect("a port"))
    }
}

fn device_returns(mode: Mode) -> Outcome {
    let lab = Lab::with_queues(QUEUES)?;
    let mut rebound = Rebound::new(&lab, mode);
    for expected in [true, false] {
        assert_eq!(
            rebound.rebind().map(|it| it.expect("it opens")),
            [expected; 2]
        );
    }
    let [rx, tx] = rebound.ports();
    let memory = umems(rx);
    deliver_to_each(tx, rx, mode)?;
    let held = memory[0].alloc().ok_or("a frame")?;
    lab.rx.ip("link delete dev rx0")?;
    for outcome in rebound.rebind() {
        let error = outcome.expect_err("there is no device");
        assert_eq!(error.kind(), ErrorKind::DeviceMissing, "{error}");
    }
    assert!(rebound.ports.iter().all(Option::is_none));
    lab.add_veths(QUEUES)?;
    assert_eq!(rebound.rebind().map(|it| it.expect("it opens")), [true; 2]);
    let [rx, tx] = rebound.ports();
    deliver_to_each(tx, rx, mode)?;
    let lent = memory.iter().map(|umem| umem.accounting().receiving);
    assert!(
        lent.clone().all(|chunks| chunks > 0),
        "other UMEMs are in use"
    );
    drop(held);
    rebound.ports = [None, None];
    all_closed(&lab.rx, &memory);
    Ok(())
}

fn more_queues(mode: Mode) -> Outcome {
    let lab = Lab::with_queues(QUEUES)?;
    for side in [&lab.rx, &lab.tx] {
        side.run("ethtool", &format!("-L {} rx 2 tx 2", side.device))?;
    }
    let mut rebound = Rebound::new(&lab, mode);
    assert_eq!(rebound.rebind().map(|it| it.expect("it opens")), [true; 2]);
    assert!(rebound.ports().iter().all(|port| port.queues().eq(0..2)));
    // A veth with native XDP may not send on more queues than its peer receives on.
    for ring in ["rx", "tx"] {
        for side in [&lab.rx, &lab.tx] {
            let channels = format!("-L {} {ring} {QUEUES}", side.device);
            side.run("ethtool", &channels)?;
        }
    }
    assert_eq!(rebound.rebind().map(|it| it.expect("it opens")), [true; 2]);
    let [rx, tx] = rebound.ports();
    assert!(rx.queues().eq(0..QUEUES));
    deliver_to_each(tx, rx, mode)?;
    Ok(())
}

/// As virtio-net adds queues when a program is attached, so does this driver's operator while the first socket is opened.
fn added_queues(mode: Mode) -> Outcome {
    let shared = umem().build()?;
    for umem in [None, Some(&shared)] {
        // A new one each time: the kernel keeps closed queues in use for a moment.
        let lab = Lab::with_queues(QUEUES)?;
        lab.rx.run("ethtool", "-L rx0 rx 2 tx 2")?;
        let mut added = Ok(());
        let mut is_first = true;
        let mut builder = Port::builder("rx0").umem(self::umem()).sockets(|socket| {
            if std::mem::take(&mut is_first) {
                let channels = format!("-L rx0 rx {QUEUES} tx {QUEUES}");
                added = lab.rx.run("ethtool", &channels);
            }
            socket.mode(mode)
        });
        if let Some(umem) = umem {
            builder = builder.shared_umem(umem);
        }
        let mut port = None;
        let mut rebind = || lab.rx.inside(|| builder.rebind(&mut port));
        assert!(rebind()? && !rebind()?, "one opening is enough");
        drop(builder);
        added?;
        let port = port.ok_or("a port")?;
        assert!(
            port.queues().eq(0..QUEUES),
            "{} queues",
            port.queues().len()
        );
    }
    Ok(())
}

/// Senders and receivers on all queues at once, all of them workers.
/// A thread reads the counters of sockets that workers have, of which each is in a long wait; and those of closed sockets.
fn counters(mode: Mode) -> Outcome {
    const MINUTE: Duration = Duration::from_secs(60);
    let lab = Lab::with_queues(QUEUES)?;
    let first = arrives_on(mode, 1);
    let rx = open(&lab.rx, mode, |port| {
        let port = port.queues(first..first + 2);
        port.sockets(|socket| socket.mode(mode).wait(Wait::Poll))
    })?;
    let mut tx = open(&lab.tx, mode, |port| {
        let port = port.queues(1..3);
        port.sockets(|socket| socket.mode(mode).rx_ring(0))
    })?;
    let (handles, stop) = (rx.statistics_handles(), rx.stop_flag());
    let queues: Vec<u32> = handles.iter().map(StatisticsHandle::queue).collect();
    assert_eq!(queues, [first, first + 1]);
    // Those that the worker of each queue has received, and one more sleep.
    let wait_for = |received: [u64; 2]| {
        wait_until(STALL, || {
            let mut each = handles.iter().zip(received);
            each.all(|(handle, received)| {
                let now = handle.statistics().expect("counters");
                now.received == received && now.sleeps > received && !handle.is_closed()
            })
        })
    };
    let mut send = |place: u32| -> Outcome {
        let socket = tx.socket(1 + place).ok_or("a socket")?;
        send_one(socket, 0)
    };
    thread::scope(|scope| -> Outcome {
        let running = scope.spawn(|| {
            rx.run(|socket, stop| -> xsk::Result<()> {
                while !stop.is_raised() {
                    socket.wait(MINUTE)?;
                    // The method alone is of one lifetime, and each packet has its own.
                    #[expect(clippy::redundant_closure_for_method_calls)]
                    socket.receive_each(64, |packet| packet.recycle());
                }
                Ok(())
            })
        });
        assert!(wait_for([0, 0]), "{handles:?}");
        send(1)?;
        assert!(wait_for([0, 1]), "{handles:?}");
        send(0)?;
        send(1)?;
        assert!(wait_for([1, 2]), "{handles:?}");
        stop.raise();
        send(0)?;
        send(1)?;
        running.join().map_err(|_| "a worker panicked")??;
        Ok(())
    })?;
    for (handle, received) in handles.iter().zip([2, 3]) {
        let last = handle.statistics()?;
        assert_eq!(
            (handle.is_closed(), last.received, last.rx_dropped),
            (true, received, 0)
        );
    }
    Ok(())
}

fn workers(mode: Mode) -> Outcome {
    let lab = Lab::with_queues(QUEUES)?;
    // In generic mode no packets of the first queue but those of the second arrive on it.
    let sources = if mode == Mode::Skb {
        1..QUEUES
    } else {
        0..QUEUES
    };
    let targets = arrives_on(mode, sources.start)..arrives_on(mode, QUEUES - 1) + 1;
    let tx = open(&lab.tx, mode, |port| {
        let port = port.queues(sources.clone());
        port.sockets(|socket| socket.mode(mode).rx_ring(0))
    })?;
    let mut rx = open(&lab.rx, mode, |port| port.queues(targets.clone()))?;
    let memory = umems(&mut rx);
    let flights: Vec<Flight> = targets.clone().map(|_| Flight::default()).collect();
    let (stop, done) = (rx.stop_flag(), Barrier::new(flights.len() + 1));
    let received = thread::scope(|scope| -> Result<_> {
        let receiving = scope.spawn(|| {
            rx.run(|socket, stop| -> xsk::Result<u64> {
                let flight = &flights[socket.queue() as usize];
                receive_all(socket, 0..PACKETS, packet::MIN, flight);
                done.wait();
                while !stop.is_raised() {
                    socket.wait(Duration::from_millis(10))?;
                    assert!(socket.recv(64).is_empty(), "a packet too many");
                }
                Ok(socket.statistics()?.received)
            })
        });
        tx.run(|socket, _| -> xsk::Result<()> {
            let flight = &flights[arrives_on(mode, socket.queue()) as usize];
            send_all(socket, PACKETS, packet::MIN, flight);
            Ok(())
        })?;
        done.wait();
        assert!(!receiving.is_finished(), "they end when they are told to");
        stop.raise();
        let ended = receiving.join().map_err(|_| "the receivers panicked")?;
        Ok(ended?)
    })?;
    let expected: Vec<(u32, u64)> = targets.map(|queue| (queue, PACKETS)).collect();
    assert_eq!(received, expected);
    all_closed(&lab.rx, &memory);
    Ok(())
}

/// One worker fails, and one of the others does so when it is told to stop.
fn failing(fail: fn() -> std::result::Result<(), String>, words: &str) -> Outcome {
    let lab = Lab::with_queues(QUEUES)?;
    let mut port = open(&lab.rx, Mode::Driver, |port| port)?;
    let memory = umems(&mut port);
    let all_run = Barrier::new(QUEUES as usize);
    let ended = port.run(|socket, stop| {
        all_run.wait();
        if socket.queue() == 2 {
            return fail();
        }
        let stopped = wait_until(STALL, || stop.is_raised());
        match socket.queue() {
            1 => Err(format!("stopped: {stopped}")),
            _ => Ok(()),
        }
    });
    let errors = ended.err().ok_or("they all ended well")?;
    let expected = format!("rx0: queue 1: stopped: true; queue 2: {words}");
    assert_eq!(errors.to_string(), expected);
    let queues = errors.failures().iter().map(|(queue, _)| *queue);
    assert!(queues.eq([1, 2]), "{errors}");
    all_closed(&lab.rx, &memory);
    // All is free for the next.
    drop(open(&lab.rx, Mode::Driver, |port| port)?);
    Ok(())
}

fn failures() -> Outcome {
    failing(|| Err("no luck".into()), "no luck")?;
    // As a panic, but without the lines on standard error.
    let panic = || resume_unwind(Box::new("a bad packet"));
    failing(panic, "the worker panicked: a bad packet")
}

fn pinned() -> Outcome {
    let lab = Lab::with_queues(QUEUES)?;
    let allowed = CpuList::allowed()?;
    let cpu = |queue| allowed.as_slice()[queue as usize % allowed.as_slice().len()];
    let port = open(&lab.rx, Mode::Driver, |port| port.pin(cpu))?;
    assert_eq!(CpuList::allowed()?, allowed, "this thread has moved");
    let places = port.run(|socket, _| -> hostnet::Result<_> {
        let name = thread::current().name().map(str::to_owned);
        assert_eq!(name, Some(format!("rx0/{}", socket.queue())));
        CpuList::allowed()
    })?;
    let expected = (0..QUEUES).map(|queue| (queue, CpuList::new([cpu(queue)])));
    assert_eq!(places, expected.collect::<Vec<_>>());
    Ok(())
}

/// Forwards packets from port to port until there were `count` packets.
fn forward(from: &mut Port, to: &mut Port, count: u64) {
    let mut forwarded = 0;
    let done = wait_until(STALL * 4, || {
        for socket in from.sockets_mut() {
            socket.wait(Duration::ZERO).expect("wait");
            let mut batch = socket.recv(64);
            while let Some(packet) = batch.next_packet() {
                packet.send_on(to).expect("a ring larger than the window");
                forwarded += 1;
            }
        }
        to.flush().expect("flush");
        forwarded >= count
    });
    assert!(done, "{forwarded} of {count} packets were forwarded");
    to.sockets_mut().for_each(drain);
}

fn forwarding() -> Outcome {
    let (left, right) = (Lab::with_queues(QUEUES)?, Lab::with_queues(QUEUES)?);
    let mode = Mode::Driver;
    let middle = Umem::builder().chunks(4096).build()?;
    let mut source = open(&left.tx, mode, |port| {
        port.sockets(|socket| socket.mode(mode).rx_ring(0))
    })?;
    let mut inward = open(&left.rx, mode, |port| {
        let port = port.shared_umem(&middle);
        port.sockets(|socket| socket.mode(mode).fill_chunks(256))
    })?;
    let mut sink = open(&right.rx, mode, |port| port)?;
    // All queues; some without the first; some from the first on.
    for queues in [0..QUEUES, 1..QUEUES, 0..2] {
        let mut outward = open(&right.tx, mode, |port| {
            let port = port.shared_umem(&middle).queues(queues.clone());
            port.sockets(|socket| socket.mode(mode).rx_ring(0))
        })?;
        for queue in 0..QUEUES {
            let others = queues.start + queue % queues.len() as u32;
            let expected = if queues.contains(&queue) {
                queue
            } else {
                others
            };
            let tx = source.socket(queue).ok_or("the source")?;
            let rx = sink.socket(expected).ok_or("the sink")?;
            through(tx, &mut inward, &mut outward, rx);
        }
        let sent: u64 = outward
            .sockets_mut()
            .map(|socket| socket.statistics().map(|counts| counts.completed))
            .sum::<xsk::Result<u64>>()?;
        assert_eq!(sent, PACKETS * u64::from(QUEUES), "in and out");
    }
    foreign(&mut source, &mut inward)?;
    let memory = [umems(&mut sink), umems(&mut source), vec![middle]].concat();
    drop((source, inward, sink));
    all_closed(&left.rx, &memory);
    Ok(())
}

fn through(tx: &mut Socket, inward: &mut Port, outward: &mut Port, rx: &mut Socket) {
    exchange(
        |flight| send_all(tx, PACKETS, packet::MIN, flight),
        |flight| {
            thread::scope(|scope| {
                scope.spawn(|| forward(inward, outward, PACKETS));
                receive_all(rx, 0..PACKETS, packet::MIN, flight);
            });
        },
    );
}

/// A port on other memory takes no packet.
fn foreign(source: &mut Port, inward: &mut Port) -> Outcome {
    let flight = Flight::default();
    let tx = source.socket(1).ok_or("the source")?;
    send_one(tx, 7)?;
    let rx = inward.socket(1).ok_or("the receiver")?;
    receive_checked(rx, [7], &flight, |_, _| {});
    send_one(tx, 8)?;
    assert!(wait_until(STALL, || rx
        .wait(Duration::from_millis(10))
        .expect("wait")));
    let mut batch = rx.recv(1);
    let packet = batch.next_packet().ok_or("a packet")?;
    assert_eq!(packet.queue(), 1);
    let unsent = packet.send_on(source).err().ok_or("it was taken")?;
    assert_eq!(unsent.kind, SendErrorKind::Foreign);
    packet::check(&unsent.packet, 8);
    Ok(())
}

/// The kernel refuses to take queues away from open sockets (`ethtool_set_channels`).
fn removal() -> Outcome {
    let lab = Lab::with_queues(QUEUES)?;
    let mode = Mode::Driver;
    lab.tx.run("ethtool", "-L tx0 rx 4 tx 2")?;
    let mut rx = open(&lab.rx, mode, |port| port)?;
    let fewer = || lab.rx.run("ethtool", "-L rx0 rx 2 tx 2");
    assert!(fewer().is_err(), "the queues of open sockets were removed");
    assert_eq!(lab.rx.lookup()?.rx_queues, QUEUES);
    let mut tx = open(&lab.tx, mode, |port| {
        let port = port.queues(0..2);
        port.sockets(|socket| socket.mode(mode).rx_ring(0))
    })?;
    deliver_to_each(&mut tx, &mut rx, mode)?;
    drop((rx, tx));
    assert!(lab.rx.has_no_program(STALL), "the program has stayed");
    assert!(wait_until(STALL, || fewer().is_ok()), "they are still held");
    let rx = open(&lab.rx, mode, |port| port)?;
    assert!(rx.queues().eq(0..2));
    Ok(())
}

/// The error of a port that is not opened, and leaves nothing behind.
fn refused<'a>(
    side: &Side,
    kind: ErrorKind,
    words: &[&str],
    configure: impl FnOnce(PortBuilder<'a>) -> PortBuilder<'a>,
) {
    let opened = open(side, Mode::Driver, configure);
    let error = opened.err().unwrap_or_else(|| panic!("{kind:?} expected"));
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    for word in words {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
    assert!(side.has_no_program(STALL), "a program was left");
}

fn busy_queue() -> Outcome {
    let (umem, lab) = (umem().build()?, Lab::with_queues(QUEUES)?);
    let holder = lab
        .rx
        .open_queue(&umem, Mode::Driver, 2, |b| b.rx_ring(0))?;
    let words = ["queue 2: ", "end its process, which `"];
    refused(&lab.rx, ErrorKind::QueueBusy, &words, |port| port);
    drop(holder);
    // With the first two closed, all can be opened.
    let port = open(&lab.rx, Mode::Driver, |port| port)?;
    assert_eq!(port.queues().len(), QUEUES as usize);
    Ok(())
}

fn bad_queues() -> Outcome {
    let lab = Lab::with_queues(QUEUES)?;
    let words = ["queue 4: ", "it has 4", "`ethtool -l rx0`"];
    refused(&lab.rx, ErrorKind::QueueOutOfRange, &words, |port| {
        port.queues(2..6)
    });
    let words = ["rx0", "`queues`"];
    refused(&lab.rx, ErrorKind::InvalidConfig, &words, |port| {
        port.queues([])
    });
    let absent = Side::new("absent0")?;
    let opened = open(&absent, Mode::Driver, |port| port);
    let error = opened.err().ok_or("it opened")?;
    assert_eq!(error.kind(), ErrorKind::DeviceMissing);
    // Given twice and in any order.
    let port = open(&lab.rx, Mode::Driver, |port| port.queues([3, 1, 3]))?;
    assert!(port.queues().eq([1, 3]));
    Ok(())
}

/// Settings for a socket that is not the port's.
fn other_place() -> Outcome {
    let ([shared, other], lab) = (
        [umem().build()?, umem().build()?],
        Lab::with_queues(QUEUES)?,
    );
    for (umem, device, queue, other) in [
        (&shared, "lo", 1, "queue 1 of \"lo\""),
        (&shared, "rx0", 2, "queue 2 of \"rx0\""),
        (&other, "rx0", 1, "another UMEM"),
    ] {
        let words = ["queue 1: ", other, "`sockets`"];
        refused(&lab.rx, ErrorKind::InvalidConfig, &words, |port| {
            let others = move |_| Socket::builder(umem, device, queue);
            port.queues([1]).shared_umem(&shared).sockets(others)
        });
    }
    Ok(())
}

fn bad_cpus() -> Outcome {
    let lab = Lab::with_queues(QUEUES)?;
    let first = CpuList::allowed()?.as_slice()[0];
    let words = ["queue 0: ", "CPU 5000 does not exist", "choose among"];
    refused(&lab.rx, ErrorKind::InvalidConfig, &words, |port| {
        port.pin(|_| 5000)
    });
    // This thread is the test's own.
    pin(first)?;
    let words = [
        "queue 1: there are more queues (4) than CPUs (1)",
        "the same one",
        "choose among",
    ];
    refused(&lab.rx, ErrorKind::InvalidConfig, &words, |port| {
        port.pin(|queue| first + queue as usize)
    });
    // All on one CPU is possible.
    drop(open(&lab.rx, Mode::Driver, |port| port.pin(|_| first))?);
    Ok(())
}

/// The device's settings are all that a veth lacks.
fn no_steering() -> Outcome {
    let lab = Lab::with_queues(QUEUES)?;
    let rule = FlowRule {
        transport: Transport::Udp,
        addresses: Addresses::ANY_V4,
        source_port: Masked::ANY_PORT,
        destination_port: 53.into(),
        ring: 1,
    };
    refused(
        &lab.rx,
        ErrorKind::Unsupported,
        &["rx0", "`spread`"],
        PortBuilder::spread,
    );
    refused(&lab.rx, ErrorKind::Unsupported, &["rx0"], |port| {
        port.steer(rule)
    });
    let words = ["queue 1", "`queues`"];
    refused(&lab.rx, ErrorKind::InvalidConfig, &words, |port| {
        port.queues([0, 2]).steer(rule)
    });
    Ok(())
}
