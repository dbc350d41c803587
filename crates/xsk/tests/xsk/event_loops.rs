//! Sockets in tokio's reactor, which is told of edges only: a wake-up that is lost is a stall.

#[path = "../../examples/udp_echo.rs"]
#[allow(dead_code)] // Its main function.
mod udp_echo;

use crate::budget::{STALL, rounds};
use crate::filter::{connect, ping};
use crate::netns::{Lab, RX, RX6, TX, TX6, are_cards, umem_builder};
use crate::traffic::drain;
use crate::{Outcome, Result, packet};
use mio::unix::SourceFd;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;
use testkit::limit::longest;
use testkit::{Limit, Test, wait_until};
use tokio::runtime::{Builder, Runtime};
use xsk::{AsyncSocket, Interest, Mode, ModeObtained, Socket, Umem, Wait};

/// Packets of a queue's longest burst, less than a veth's ring holds.
const BURST: u64 = 128;
/// Bursts to each queue.
const BURSTS: u32 = 300;

/// For network cards, too.
pub fn tests_of_cards() -> Vec<Test> {
    let name = "tokio: UDP is answered beside the stack";
    if are_cards() {
        return vec![Test::new(name, answer_udp_on_cards)];
    }
    let on_veth = [("SKB", Mode::Skb), ("DRV", Mode::Driver)]
        .map(|(prefix, mode)| Test::new(format!("{prefix} {name}"), move || answer_udp(mode)));
    on_veth.into()
}

pub fn tests() -> Vec<Test> {
    let mut tests = vec![Test::new("mio sees every packet", in_mio)];
    for (prefix, mode) in [("SKB", Mode::Skb), ("DRV", Mode::Driver)] {
        let mut add = |name, body: fn(Mode) -> Outcome| {
            tests.push(Test::new(format!("{prefix} {name}"), move || body(mode)));
        };
        add("tokio: a task echoes each queue", echo_by_tasks);
        add("tokio: a task waits for room to send", send_by_task);
        add(
            "tokio: chunks freed elsewhere are lent again",
            freed_elsewhere,
        );
    }
    tests
}

/// Queues of a device, each with a task of its own. In generic XDP a veth's packets arrive on another
/// queue than the one that they were sent on, so there only one is used.
fn queues(mode: Mode) -> u32 {
    if mode == Mode::Skb { 1 } else { 3 }
}

fn runtime() -> std::io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
}

/// Sockets on all queues, which share a UMEM and a program.
fn sockets(side: &crate::netns::Side, mode: Mode) -> Result<Vec<Socket>> {
    let umem = umem_builder().chunks(queues(mode) * 1024).build()?;
    let first = side.open(&umem, mode, |b| b.wait(Wait::Poll).fill_chunks(512))?;
    let program = first.program().cloned().ok_or("a program")?;
    let mut sockets = vec![first];
    for queue in 1..queues(mode) {
        let next = |b: xsk::SocketBuilder| b.wait(Wait::Poll).fill_chunks(512).program(&program);
        sockets.push(side.open_queue(&umem, mode, queue, next)?);
    }
    Ok(sockets)
}

/// Sends every packet back, until the runtime is dropped.
async fn echo(socket: Socket) -> Result<()> {
    let mut socket = AsyncSocket::new(socket)?;
    loop {
        socket.ready(Interest::Receive).await?;
        let mut batch = socket.recv(32);
        while let Some(packet) = batch.next_packet() {
            // A burst is smaller than the TX ring.
            packet.send().map_err(|unsent| unsent.kind.to_string())?;
        }
        drop(batch);
        socket.flush()?;
    }
}

fn put(socket: &mut Socket, sequence: u64) -> Outcome {
    let mut frame = socket.alloc().ok_or("a frame")?;
    packet::fill(&mut frame, 0, sequence, 64 + sequence as usize % 1000);
    let sent = socket.send(frame);
    Ok(sent.map_err(|unsent| unsent.kind.to_string())?)
}

/// Waits for the packets `expected`, in order and unchanged.
fn expect(socket: &mut Socket, expected: std::ops::Range<u64>) -> Outcome {
    let mut next = expected.start;
    let mut limit = Limit::new(STALL);
    while next < expected.end {
        socket.wait(Duration::from_millis(100))?;
        let mut batch = socket.recv(64);
        while let Some(received) = batch.next_packet() {
            packet::check(&received, next);
            next += 1;
            limit.restart();
        }
        if limit.is_over() {
            return Err(format!("packet {next} of {expected:?} has not come back").into());
        }
    }
    Ok(())
}

/// Bursts of all lengths, and silence of all lengths between them, some so short that the echo is on
/// its way to sleep when the next packet comes.
fn bursts(socket: &mut Socket) -> Outcome {
    let mut sequence = 0;
    let mut random = u64::from(socket.queue()) + 1;
    for _ in rounds(BURSTS) {
        // Xorshift (Marsaglia, 2003).
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let burst = match random % 3 {
            0 => 1,
            1 => 1 + random / 3 % 8,
            _ => 1 + random / 3 % BURST,
        };
        for packet in sequence..sequence + burst {
            put(socket, packet)?;
            if random.is_multiple_of(5) {
                socket.flush()?;
            }
        }
        socket.flush()?;
        expect(socket, sequence..sequence + burst)?;
        sequence += burst;
        match random % 4 {
            0 => std::thread::sleep(Duration::from_micros(random % 20_000)),
            1 => std::thread::sleep(Duration::from_micros(random % 200)),
            _ => {}
        }
    }
    Ok(())
}

fn echo_by_tasks(mode: Mode) -> Outcome {
    let lab = Lab::with_queues(queues(mode))?;
    let runtime = runtime()?;
    let echoes = sockets(&lab.rx, mode)?;
    let umem = echoes[0].umem().clone();
    let tasks: Vec<_> = echoes
        .into_iter()
        .map(|socket| runtime.spawn(echo(socket)))
        .collect();
    let outcome = std::thread::scope(|scope| {
        let origins = sockets(&lab.tx, mode)?.into_iter();
        let origins: Vec<_> = origins
            .map(|mut socket| scope.spawn(move || bursts(&mut socket)))
            .collect();
        let mut outcome = Ok(());
        for origin in origins {
            outcome = outcome.and(origin.join().map_err(|_| "a wrong packet")?);
        }
        outcome
    });
    for task in &tasks {
        assert!(!task.is_finished(), "an echo has failed");
    }
    outcome?;
    // It drops the tasks, and they their sockets.
    drop(runtime);
    let count = umem.accounting();
    assert_eq!(count.free, umem.chunks(), "{count:?}");
    assert!(lab.rx.has_no_program(STALL));
    Ok(())
}

/// Fewer chunks than slots, and fewer slots than chunks.
fn send_by_task(mode: Mode) -> Outcome {
    const PACKETS: u64 = 4096;
    let runtime = runtime()?;
    for (chunks, slots) in [(64, 256), (256, 64)] {
        let lab = Lab::new()?;
        let (from, to) = (
            Umem::builder().chunks(chunks).build()?,
            Umem::builder().build()?,
        );
        let mut rx = lab.rx.open(&to, mode, |b| b.tx_ring(0))?;
        let socket = lab.tx.open(&from, mode, |b| b.rx_ring(0).tx_ring(slots))?;
        let task = runtime.spawn(async move {
            let mut socket = AsyncSocket::new(socket)?;
            for sequence in 0..PACKETS {
                assert!(socket.ready(Interest::Send).await?.send);
                put(&mut socket, sequence)?;
                // Few flushes, so that the ring is full now and then.
                if socket.tx_room() == 0 || sequence % 37 == 0 || chunks < slots {
                    socket.flush()?;
                }
            }
            socket.flush()?;
            Result::Ok(socket.statistics()?.sent)
        });
        // Packets that the veth has no room for may be missing, but none comes twice or late.
        let (mut next, mut received) = (0, 0);
        let mut take = |rx: &mut Socket| {
            let mut batch = rx.recv(64);
            while let Some(packet) = batch.next_packet() {
                let sequence = packet::sequence(&packet);
                assert!(sequence >= next, "{sequence} after {next}");
                packet::check(&packet, sequence);
                next = sequence + 1;
                received += 1;
            }
        };
        let done = wait_until(STALL, || {
            take(&mut rx);
            task.is_finished()
        });
        assert!(done, "the task waits for room that is there");
        assert_eq!(runtime.block_on(task)??, PACKETS);
        take(&mut rx);
        assert!(received > 0, "no packet has arrived");
    }
    Ok(())
}

/// No event tells of a chunk that another thread frees while FILL is empty.
fn freed_elsewhere(mode: Mode) -> Outcome {
    let (lab, runtime) = (Lab::new()?, runtime()?);
    let umem = Umem::builder().chunks(64).build()?;
    let socket = lab.rx.open(&umem, mode, |b| b.tx_ring(0).rx_ring(64))?;
    let from = Umem::builder().chunks(1024).build()?;
    let mut tx = lab.tx.open(&from, mode, |b| b.rx_ring(0))?;
    let (keep, kept) = std::sync::mpsc::channel();
    let task = runtime.spawn(async move {
        let mut socket = AsyncSocket::new(socket)?;
        loop {
            socket.ready(Interest::Receive).await?;
            let mut batch = socket.recv(16);
            while let Some(packet) = batch.next_packet() {
                keep.send(packet.keep()).map_err(|_| "the test has ended")?;
            }
        }
        #[allow(unreachable_code)]
        Result::Ok(())
    });
    let mut sequence = 0;
    let mut send = |count| -> Outcome {
        for _ in 0..count {
            put(&mut tx, sequence)?;
            sequence += 1;
        }
        tx.flush()?;
        drain(&mut tx);
        Ok(())
    };
    let mut frames = Vec::new();
    let all_held = wait_until(STALL, || {
        send(16).expect("the device is up");
        frames.extend(kept.try_iter());
        umem.accounting().receiving == 0
    });
    assert!(all_held, "{:?}", umem.accounting());
    frames.extend(kept.try_iter());
    drop(frames);
    let lent = wait_until(STALL, || umem.accounting().receiving > 0);
    assert!(lent, "{:?}", umem.accounting());
    send(1)?;
    let frame = Limit::new(STALL).receive(&kept)?;
    packet::check(&frame, packet::sequence(&frame));
    assert!(!task.is_finished());
    Ok(())
}

fn in_mio() -> Outcome {
    let lab = Lab::new()?;
    let umem = || Umem::builder().chunks(1024).build();
    let mut rx = lab.rx.open(&umem()?, Mode::Driver, |b| b)?;
    let mut origin = lab.tx.open(&umem()?, Mode::Driver, |b| b)?;
    let mut poll = mio::Poll::new()?;
    let (token, readable) = (mio::Token(0), mio::Interest::READABLE);
    let fd = rx.as_raw_fd();
    poll.registry()
        .register(&mut SourceFd(&fd), token, readable)?;
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| bursts(&mut origin));
        let mut events = mio::Events::with_capacity(1);
        while !sending.is_finished() {
            let ready = rx.prepare_to_wait(Interest::Receive)?;
            if ready.receive {
                let mut batch = rx.recv(32);
                while let Some(packet) = batch.next_packet() {
                    packet.send().map_err(|unsent| unsent.kind.to_string())?;
                }
                drop(batch);
                rx.flush()?;
                continue;
            }
            // The last packet is followed by none, so no event tells of the end.
            let second = Duration::from_secs(1);
            let most = ready.sleep_at_most.map_or(second, |most| most.min(second));
            match poll.poll(&mut events, Some(most)) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                polled => polled?,
            }
        }
        sending.join().map_err(|_| "a wrong packet")?
    })
}

/// The example, with clients that are ordinary UDP sockets: their kernel checks the checksums, and leaves partial ones.
fn answer_udp(mode: Mode) -> Outcome {
    let lab = Lab::as_made(2, mode)?;
    add_clients(&lab)?;
    answer_clients(&lab, Some(mode))
}

fn add_clients(lab: &Lab) -> Outcome {
    for (v4, v6) in (1..CLIENTS).map(client_addresses) {
        lab.tx.add_addresses(v4, v6)?;
    }
    lab.tx.wait_for_addresses();
    Ok(())
}

/// The script of the guest has turned IPv6 off.
fn answer_udp_on_cards() -> Outcome {
    let lab = Lab::with_queues(2)?;
    let turn_ipv6 = |off: &str| -> Outcome {
        for side in [&lab.rx, &lab.tx] {
            side.sysctl(&format!("ipv6/conf/{}/disable_ipv6", side.device), off)?;
        }
        Ok(())
    };
    turn_ipv6("0")?;
    lab.rx.add_addresses(RX, RX6)?;
    lab.tx.add_addresses(TX, TX6)?;
    add_clients(&lab)?;
    lab.rx.wait_for_addresses();
    let answered = answer_clients(&lab, None);
    // Cards serve other tests after this one.
    for side in [&lab.rx, &lab.tx] {
        side.ip(&format!("addr flush dev {}", side.device))?;
    }
    turn_ipv6("1")?;
    answered
}

fn answer_clients(lab: &Lab, expected: Option<Mode>) -> Outcome {
    let runtime = runtime()?;
    let sockets = lab
        .rx
        .inside(|| udp_echo::open("rx0").map_err(|error| error.to_string()))?;
    assert_eq!(sockets.len(), 2);
    let mode = sockets[0].mode();
    match expected {
        Some(Mode::Skb) => assert_eq!(mode, ModeObtained::Skb),
        Some(_) => assert_eq!(mode, ModeObtained::Driver),
        None => {}
    }
    lab.rx.wait_for_link();
    lab.tx.wait_for_link();
    let before = lab.rx.inside(|| lab.rx.lookup()?.rx_by_queue())?;
    let serving = |socket| runtime.spawn(udp_echo::serve(socket));
    let tasks: Vec<_> = sockets.into_iter().map(serving).collect();

    ping(&lab.tx)?;
    std::thread::scope(|scope| -> Outcome {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| scope.spawn(move || ask(lab, number)))
            .collect();
        // TCP in the meantime.
        connect(lab)?;
        for client in clients {
            client.join().map_err(|_| "a client panicked")??;
        }
        Ok(())
    })?;
    ping(&lab.tx)?;
    assert!(tasks.iter().all(|task| !task.is_finished()));
    if are_cards() {
        let now = lab.rx.inside(|| lab.rx.lookup()?.rx_by_queue())?;
        let grown = now.by_queue.iter().map(|(queue, packets)| {
            packets - before.by_queue.get(queue).copied().unwrap_or_default()
        });
        let by_queue: Vec<u64> = grown.collect();
        println!("mode {mode}, packets by queue {by_queue:?}");
        assert!(by_queue.iter().all(|&packets| packets > 0), "{by_queue:?}");
    }
    Ok(())
}

const CLIENTS: u8 = 8;

/// Each client has its own: some cards spread flows over queues by their addresses alone.
fn client_addresses(number: u8) -> (Ipv4Addr, Ipv6Addr) {
    let host = u32::from(number);
    (
        Ipv4Addr::from_bits(TX.to_bits() + host),
        Ipv6Addr::from_bits(TX6.to_bits() + u128::from(host)),
    )
}

/// A client with queries of all lengths.
fn ask(lab: &Lab, number: u8) -> Outcome {
    let (v4, v6) = client_addresses(number);
    let (from, to): (IpAddr, IpAddr) = if number.is_multiple_of(2) {
        (v4.into(), RX.into())
    } else {
        (v6.into(), RX6.into())
    };
    let number = usize::from(number);
    let client = lab.tx.inside(|| UdpSocket::bind((from, 0)))?;
    client.connect((to, 53))?;
    client.set_read_timeout(Some(longest(STALL)))?;
    for query in 0..300_usize {
        let twice = query.is_multiple_of(3);
        let mut text = if twice { b"twice".to_vec() } else { Vec::new() };
        let length = query * 7 % 700;
        text.extend((0..length).map(|at| (at * 31 + query + number) as u8));
        client.send(&text)?;
        let mut answer = [0; 2048];
        let count = client
            .recv(&mut answer)
            .map_err(|error| format!("client {number}, query {query}: {error}"))?;
        let expected = text.repeat(if twice { 2 } else { 1 });
        assert!(answer[..count] == *expected, "query {query}");
        if query % 50 == 49 {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(())
}
