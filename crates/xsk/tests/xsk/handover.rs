//! Sockets that move to another process, and the parts of one that are wrong.
#![allow(unsafe_code)] // Taking sockets over.

use crate::budget::STALL;
use crate::child::{Role, Started};
use crate::netns::{LINK, Lab, umem_builder};
use crate::traffic::deliver;
use crate::{Outcome, Result, attach_mode, modes, needs, packet};
use rustix::fs::MemfdFlags;
use std::collections::BTreeMap;
use std::io::{ErrorKind as IoErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::Duration;
use testkit::limit::longest;
use testkit::{Test, wait_until};
use xsk::{ErrorKind, Fault, Mode, ModeObtained, Parts, Program, Socket, SocketBuilder, Umem};

/// Packets that are on their way at once: fewer than the 256 slots of a veth's ring.
const WINDOW: u64 = 128;
/// Packets that are in TX when a handover is refused.
const STAGED: u64 = 5;
/// Packets of a round trip.
const PACKETS: u64 = 4096;

/// For network cards, too.
pub fn tests_of_cards() -> Vec<Test> {
    let mut tests = Vec::new();
    for (prefix, mode) in modes() {
        let mut add = |name, body: fn(Mode) -> Outcome| {
            tests.push(Test::new(format!("{prefix} {name}"), move || body(mode)));
        };
        add("handover: a socket that only sends", sender);
        add("handover: the device is set down", device_down);
    }
    tests
}

pub fn tests() -> Vec<Test> {
    let mut tests = vec![
        Test::new("handover: frames and other sockets forbid it", stays),
        Test::new("handover: a message makes one socket", taken_once),
        Test::new("handover: filters of a program with hints", hints_stay)
            .needing(&[needs::RX_HINTS]),
        Test::new("handover: wrong parts are refused", wrong_parts),
        Test::new("handover: a withheld XSKMAP stays with the giver", withheld),
    ];
    for (prefix, mode) in [("SKB", Mode::Skb), ("DRV", Mode::Driver)] {
        let mut add = |name, body: fn(Mode) -> Outcome| {
            tests.push(Test::new(format!("{prefix} {name}"), move || body(mode)));
        };
        add("handover: the giver is killed", giver_killed);
        add("handover: to an unprivileged process", unprivileged);
        add("handover: to and fro in traffic", to_and_fro);
    }
    tests
}

fn umem() -> xsk::Result<Umem> {
    umem_builder().chunks(1024).build()
}

fn from_parts(parts: Parts) -> xsk::Result<Socket> {
    // SAFETY: the giver is this program. It writes to no memory after it has given it away, and where a test forges places
    // or takes a message twice, no bytes are borrowed.
    unsafe { Socket::from_parts(parts) }
}

/// Sends all received packets back.
fn echo(socket: &mut Socket) -> xsk::Result<()> {
    let mut batch = socket.recv(64);
    while let Some(packet) = batch.next_packet() {
        // A window is smaller than the TX ring.
        packet.send().map_err(drop).expect("room");
    }
    drop(batch);
    socket.flush()
}

/// Child: echoes until a byte comes from standard input, hands the socket over to the peer there, and
/// waits for its end.
pub fn give(mut socket: Socket) -> Outcome {
    let mut peer = standard_input()?;
    peer.set_nonblocking(true)?;
    let asked = |mut peer: &UnixStream| match peer.read(&mut [0]) {
        Err(error) if error.kind() == IoErrorKind::WouldBlock => Ok(false),
        result => result.map(|_| true),
    };
    while !asked(&peer)? {
        socket.wait(Duration::from_millis(1))?;
        echo(&mut socket)?;
    }
    peer.set_nonblocking(false)?;
    socket.into_parts()?.send(&peer)?;
    // Not a word more: until it is killed, it has the memory mapped.
    peer.read_exact(&mut [0])?;
    Ok(())
}

/// Child: takes a socket over from the peer at standard input, and echoes.
pub fn take() -> Outcome {
    let peer = standard_input()?;
    let own = Umem::builder().chunks(16).build()?;
    let opened = Socket::builder(&own, "rx0", 0).open();
    let refused = opened.err().ok_or("this process is privileged")?;
    let mut socket = from_parts(Parts::receive(&peer)?)?;
    writeln!(std::io::stdout(), "{:?} {}", refused.kind(), socket.mode())?;
    loop {
        socket.wait(Duration::from_millis(100))?;
        echo(&mut socket)?;
    }
}

fn standard_input() -> Result<UnixStream> {
    Ok(std::io::stdin().as_fd().try_clone_to_owned()?.into())
}

/// Starts a child whose standard input is connected to the stream returned.
fn start(lab: &Lab, role: Role, mode: Mode) -> Result<(Started, UnixStream)> {
    let (here, there) = UnixStream::pair()?;
    let input = Stdio::from(OwnedFd::from(there));
    Ok((Started::with_input(&lab.rx, role, mode, input)?, here))
}

/// The sender of a numbered stream of packets that come back.
struct Origin {
    socket: Socket,
    sent: u64,
    returned: u64,
}

impl Origin {
    fn new(lab: &Lab, mode: Mode) -> Result<Self> {
        let socket = lab.tx.open(&umem()?, mode, |b| b)?;
        Ok(Self {
            socket,
            sent: 0,
            returned: 0,
        })
    }

    fn send(&mut self, count: u64) -> Outcome {
        for _ in 0..count {
            let mut frame = self.socket.alloc().ok_or("a frame")?;
            packet::fill(&mut frame, 0, self.sent, 64 + self.sent as usize % 1000);
            self.socket
                .send(frame)
                .map_err(|unsent| unsent.kind.to_string())?;
            self.sent += 1;
        }
        Ok(self.socket.flush()?)
    }

    /// Checks the packets that have come back.
    fn check(&mut self) {
        let mut batch = self.socket.recv(64);
        while let Some(packet) = batch.next_packet() {
            packet::check(&packet, self.returned);
            self.returned += 1;
        }
    }

    /// Waits until all have come back, in order and unchanged, while `far` works at the other end.
    fn expect_all(&mut self, mut far: impl FnMut()) {
        let mut last = self.returned;
        while self.returned < self.sent {
            let moved = wait_until(STALL, || {
                far();
                self.check();
                self.socket.flush().expect("the device is up");
                self.returned > last
            });
            assert!(moved, "{} of {} came back", self.returned, self.sent);
            last = self.returned;
        }
    }

    /// Sends packets, a window at a time, and expects all back.
    fn round_trip(&mut self, mut far: impl FnMut()) -> Outcome {
        for _ in 0..PACKETS / WINDOW {
            self.send(WINDOW)?;
            self.expect_all(&mut far);
        }
        Ok(())
    }
}

/// Packets that arrive while nobody has the socket wait in its RX ring.
fn giver_killed(mode: Mode) -> Outcome {
    let lab = Lab::new()?;
    let (mut giver, mut stream) = start(&lab, Role::Giver, mode)?;
    assert_eq!(giver.line()?, "ready");
    let mut origin = Origin::new(&lab, mode)?;
    origin.round_trip(|| {})?;

    stream.write_all(b"!")?;
    let parts = Parts::receive(&stream)?;
    origin.send(WINDOW)?;
    giver.kill()?;
    let mut socket = from_parts(parts)?;
    origin.expect_all(|| echo(&mut socket).expect("the device is up"));
    origin.round_trip(|| echo(&mut socket).expect("the device is up"))?;

    let count = socket.umem().accounting();
    assert_eq!((count.retired, count.sending), (0, 0), "{count:?}");
    assert_eq!(lab.rx.lookup()?.programs.len(), 1);
    let umem = socket.umem().clone();
    drop((socket, origin));
    // Others could have the socket too, so chunks lent to the kernel are not used again.
    let after = umem.accounting();
    assert_eq!((after.retired, after.held), (count.receiving, 0));
    nothing_is_left(&lab, mode)
}

fn unprivileged(mode: Mode) -> Outcome {
    let lab = Lab::new()?;
    let umem = umem()?;
    let mut socket = lab.rx.open(&umem, mode, |b| b)?;
    let mut origin = Origin::new(&lab, mode)?;
    origin.round_trip(|| echo(&mut socket).expect("the device is up"))?;

    // Some of them received and sent, but not flushed, and the others in the ring.
    origin.send(WINDOW)?;
    assert!(wait_until(STALL, || socket
        .wait(Duration::ZERO)
        .is_ok_and(|ready| ready)));
    let mut batch = socket.recv(16);
    while let Some(packet) = batch.next_packet() {
        packet.send().map_err(drop).expect("room");
    }
    drop(batch);
    let (mut taker, stream) = start(&lab, Role::Taker, mode)?;
    let obtained = socket.mode();
    socket.into_parts()?.send(&stream)?;
    assert_eq!(taker.line()?, format!("PermissionDenied {obtained}"));
    origin.expect_all(|| {});
    origin.round_trip(|| {})?;

    assert_eq!(umem.accounting().retired, umem.chunks());
    assert!(umem.alloc().is_none());
    taker.kill()?;
    drop(origin);
    nothing_is_left(&lab, mode)
}

fn to_and_fro(mode: Mode) -> Outcome {
    let lab = Lab::new()?;
    let mut socket = lab.rx.open(&umem()?, mode, |b| b)?;
    let mut origin = Origin::new(&lab, mode)?;
    for _ in 0..20 {
        origin.send(WINDOW)?;
        echo(&mut socket)?;
        let (here, there) = UnixStream::pair()?;
        socket.into_parts()?.send(&here)?;
        socket = from_parts(Parts::receive(&there)?)?;
        origin.expect_all(|| echo(&mut socket).expect("the device is up"));
    }
    let count = socket.umem().accounting();
    assert_eq!((count.sending, count.retired), (0, 0), "{count:?}");
    drop((socket, origin));
    nothing_is_left(&lab, mode)
}

/// The program is gone and the queue free.
fn nothing_is_left(lab: &Lab, mode: Mode) -> Outcome {
    assert!(lab.rx.has_no_program(STALL), "the program has stayed");
    let (from, to) = (umem()?, umem()?);
    let mut rx = lab.rx.open(&to, mode, |b| b)?;
    let mut tx = lab.tx.open(&from, mode, |b| b.rx_ring(0))?;
    deliver(&mut tx, &mut rx, 64, packet::MIN)
}

/// A zero-copy socket sends while its device has a program only, which goes along.
fn sender(mode: Mode) -> Outcome {
    let lab = Lab::new()?;
    let to = umem()?;
    let mut rx = lab.rx.open(&to, mode, |b| b)?;
    // By itself, since the lab keeps a program attached for senders.
    let (from, attached) = (umem()?, attach_mode(mode));
    let program = lab.tx.inside(|| Program::attach_to("tx0", attached))?;
    let sends = Socket::builder(&from, "tx0", 0).mode(mode).rx_ring(0);
    let sends = sends.program(&program).busy_timeout(longest(LINK));
    let mut tx = lab.tx.inside(|| sends.open())?;
    lab.tx.wait_for_link();
    deliver(&mut tx, &mut rx, 64, packet::MIN)?;
    let (message, descriptors) = tx.into_parts()?.into_message();
    drop(program);
    let mut tx = from_parts(Parts::from_message(&message, descriptors)?)?;
    deliver(&mut tx, &mut rx, 64, packet::MIN)?;
    drop((tx, rx));
    assert!(lab.tx.has_no_program(STALL), "the program has stayed");
    nothing_is_left(&lab, mode)
}

/// A zero-copy driver says of a reset what the kernel says of a device that is down. Which it is, a process can ask
/// in the namespace of the device only; elsewhere the device counts as up.
fn device_down(mode: Mode) -> Outcome {
    let lab = Lab::new()?;
    let parts = lab.tx.open(&umem()?, mode, |b| b)?.into_parts()?;
    let socket = lab.tx.inside(|| from_parts(parts))?;
    let fault = |socket: &Socket| -> Result<Option<Fault>> {
        lab.tx.ip("link set dev tx0 down")?;
        let fault = socket.fault();
        lab.tx.ip("link set dev tx0 up")?;
        lab.tx.wait_for_link();
        Ok(fault)
    };
    assert_eq!(fault(&socket)?, Some(Fault::DeviceDown));
    let socket = from_parts(socket.into_parts()?)?;
    let zero_copy = socket.mode() == ModeObtained::ZeroCopy;
    let told = (!zero_copy).then_some(Fault::DeviceDown);
    assert_eq!(fault(&socket)?, told);
    assert_eq!(socket.fault(), None);
    Ok(())
}

/// A filter is another program, which another process knows how to make where it writes hints.
fn hints_stay() -> Outcome {
    let lab = Lab::new()?;
    let open = |b: SocketBuilder| b.rx_hints(true);
    let socket = lab.rx.open(&umem()?, Mode::Driver, open)?;
    assert!(socket.has_rx_hints(), "{:?}", socket.refusals());
    let program = |socket: &Socket| socket.program().cloned().ok_or("a program");
    let set = |program: Program| lab.rx.inside(|| program.set_filters(&BTreeMap::new()));
    set(program(&socket)?)?;
    let socket = from_parts(socket.into_parts()?)?;
    assert!(socket.has_rx_hints());
    let refused = set(program(&socket)?);
    let error = refused.err().ok_or("a program without hints")?;
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let mut parts = socket.into_parts()?;
    let program = parts.withhold_program()?.ok_or("a program")?;
    assert!(set(program).is_err());
    Ok(())
}

fn stays() -> Outcome {
    let lab = Lab::with_queues(2)?;
    let umem = umem()?;
    let mut socket = lab.rx.open(&umem, Mode::Driver, |b| b)?;
    for sequence in 0..STAGED {
        let mut frame = umem.alloc().ok_or("a frame")?;
        packet::fill(&mut frame, 0, sequence, packet::MIN);
        socket.send(frame).map_err(|it| it.kind.to_string())?;
    }
    let frame = umem.alloc();
    let refused = socket.into_parts().err().ok_or("with a frame")?;
    assert_eq!(refused.error().kind(), ErrorKind::Foreign);
    assert!(refused.to_string().starts_with("1 frames"), "{refused}");
    drop(frame);

    let socket = refused.into_socket();
    let program = socket.program().cloned().ok_or("a program")?;
    let other = lab
        .rx
        .open_queue(&umem, Mode::Driver, 1, |b| b.program(&program))?;
    drop(program);
    let refused = socket.into_parts().err().ok_or("with another")?;
    assert!(refused.to_string().contains("other sockets"), "{refused}");
    drop(other);

    let mut socket = refused.into_socket();
    lab.rx.inside(|| socket.add_sibling(64, 0))?;
    let refused = socket.into_parts().err().ok_or("with a sibling")?;
    assert!(refused.to_string().contains("siblings"), "{refused}");

    // Unchanged by all that.
    let mut socket = refused.into_socket();
    socket.flush()?;
    assert_eq!(socket.statistics()?.sent, STAGED);
    let mut tx = lab
        .tx
        .open(&self::umem()?, Mode::Driver, |b| b.rx_ring(0))?;
    deliver(&mut tx, &mut socket, 64, packet::MIN)
}

fn taken_once() -> Outcome {
    let lab = Lab::new()?;
    let umem = umem()?;
    let socket = lab.rx.open(&umem, Mode::Driver, |b| b)?;
    let (message, descriptors) = socket.into_parts()?.into_message();
    let copies: Vec<OwnedFd> = descriptors
        .iter()
        .map(OwnedFd::try_clone)
        .collect::<std::io::Result<_>>()?;
    let again = lab.rx.open(&umem, Mode::Driver, |b| b);
    let error = again.err().ok_or("on the UMEM")?;
    assert!(error.to_string().contains("was handed over"), "{error}");

    let first = from_parts(Parts::from_message(&message, descriptors)?)?;
    let copy = || -> xsk::Result<Socket> {
        let copies = copies
            .iter()
            .map(|fd| fd.try_clone().expect("a descriptor"));
        from_parts(Parts::from_message(&message, copies.collect())?)
    };
    let error = copy().err().ok_or("twice")?;
    assert_eq!(error.kind(), ErrorKind::Foreign);
    assert!(error.to_string().contains("already"), "{error}");
    // A frame keeps the memory.
    let frame = first.umem().alloc();
    drop(first);
    assert!(copy().is_err());
    drop(frame);
    // The kernel may have chunks since that were free at the handover.
    let error = copy().err().ok_or("twice, one after the other")?;
    assert!(error.to_string().contains("already"), "{error}");
    drop(copies);
    nothing_is_left(&lab, Mode::Driver)
}

/// Each fault is named, and nothing is left of its parts.
fn wrong_parts() -> Outcome {
    let lab = Lab::new()?;
    let fresh = || -> Result<(Vec<u8>, Vec<OwnedFd>)> {
        let socket = lab.rx.open(&umem()?, Mode::Driver, |b| b)?;
        Ok(socket.into_parts()?.into_message())
    };
    let refusal = |(message, descriptors): (Vec<u8>, Vec<OwnedFd>)| {
        let parts = Parts::from_message(&message, descriptors);
        let error = parts.and_then(from_parts).err();
        error.map_or("accepted".to_owned(), |error| error.to_string())
    };
    let check = |(message, descriptors), fault: &str| -> Outcome {
        let refusal = refusal((message, descriptors));
        assert!(refusal.contains(fault), "{fault}: {refusal}");
        assert!(lab.rx.has_no_program(STALL));
        Ok(())
    };
    let word = |message: &mut Vec<u8>, at: usize, value: u32| {
        let at = 12 + 4 * at;
        message[at..at + 4].copy_from_slice(&value.to_le_bytes());
    };

    let (message, mut descriptors) = fresh()?;
    descriptors.swap(0, 1);
    check((message, descriptors), "not an AF_XDP socket")?;

    let (message, mut descriptors) = fresh()?;
    descriptors.pop();
    check((message, descriptors), "3 descriptors, and 4 belong")?;

    let (message, mut descriptors) = fresh()?;
    descriptors.swap(2, 3);
    check((message, descriptors), "not a")?;

    let (message, mut descriptors) = fresh()?;
    descriptors[1] = rustix::fs::memfd_create("xsk-umem", MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&descriptors[1], 1024 * 2048)?;
    check((message, descriptors), "can still be truncated")?;

    let (message, mut descriptors) = fresh()?;
    // A file on a tmpfs has seals, too.
    descriptors[1] = std::fs::File::open("/proc/self/status")?.into();
    check((message, descriptors), "not a memfd")?;

    // Twice the chunk size, so twice the memory.
    let (mut message, descriptors) = fresh()?;
    word(&mut message, 1, 4096);
    check((message, descriptors), "its description says 4194304")?;

    // An RX ring larger than its mapping, and a TX ring smaller than its content.
    let (mut message, descriptors) = fresh()?;
    word(&mut message, 3, 1 << 16);
    check((message, descriptors), "mapping the RX ring")?;
    let (mut message, descriptors) = fresh()?;
    word(&mut message, 5, 64);
    check((message, descriptors), "the indices of the FILL ring")?;

    // Zero-copy, of which a veth knows nothing.
    let (mut message, descriptors) = fresh()?;
    word(&mut message, 10, 2);
    check((message, descriptors), "mode zc, and the kernel another")?;

    // Another device's queue.
    let (mut message, descriptors) = fresh()?;
    word(&mut message, 8, 1);
    check((message, descriptors), "no XDP link of the device 1")?;

    // A description of free chunks only: those in FILL are lent nevertheless.
    let (mut message, descriptors) = fresh()?;
    let places = message.len() - 1024 / 4;
    message[places..].fill(0);
    let socket = from_parts(Parts::from_message(&message, descriptors)?)?;
    let count = socket.umem().accounting();
    assert_eq!((count.receiving, count.free), (512, 512), "{count:?}");
    drop(socket);

    // The device is gone.
    let (message, descriptors) = fresh()?;
    lab.rx.ip("link delete dev rx0")?;
    let refusal = refusal((message, descriptors));
    assert!(refusal.contains("its device is gone"), "{refusal}");
    Ok(())
}

fn withheld() -> Outcome {
    let lab = Lab::new()?;
    let socket = lab.rx.open(&umem()?, Mode::Driver, |b| b)?;
    let mut parts = socket.into_parts()?;
    let program = parts.withhold_program()?.ok_or("a program")?;
    let (message, descriptors) = parts.into_message();
    assert_eq!(descriptors.len(), 2);
    let mut socket = from_parts(Parts::from_message(&message, descriptors)?)?;
    assert!(socket.program().is_none());
    let mut origin = Origin::new(&lab, Mode::Driver)?;
    origin.round_trip(|| echo(&mut socket).expect("the device is up"))?;
    drop(socket);
    assert_eq!(lab.rx.lookup()?.programs.len(), 1);
    drop(program);
    drop(origin);
    nothing_is_left(&lab, Mode::Driver)
}
