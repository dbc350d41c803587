//! Each example as a user runs it, on a veth pair as the kernel makes it: it does what its first comment says.

use crate::budget::STALL;
use crate::netns::{Lab, RX, RX6, Side, TX, TX6};
use crate::{MODES, Outcome, Result};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use testkit::limit::longest;
use testkit::process::is_program;
use testkit::{Limit, PacketSocket, Process, Temporary, Test, example, skip, success, until};
use xsk::{AttachMode, Feature, Mode};

type Body = fn(Mode) -> Outcome;

/// The examples that receive, and so have an XDP program.
const IN_EACH_MODE: [(&str, Body); 13] = [
    ("event_loop", event_loop),
    ("filter", filter),
    ("hand_over", hand_over),
    ("l2fwd", l2fwd),
    ("metadata", metadata),
    ("mio", mio),
    ("pcap", pcap),
    ("queues", queues),
    ("rebind", rebind),
    ("rxdrop", rxdrop),
    ("shared_umem", shared_umem),
    ("tokio", tokio),
    ("udp_echo", udp_echo),
];
/// Those without a program, and the one whose program native XDP takes at any MTU.
const IN_ONE_MODE: [(&str, Body); 3] =
    [("features", features), ("jumbo", jumbo), ("txpush", txpush)];

pub fn tests() -> Vec<Test> {
    let mut tests = vec![Test::new("examples: each has a test", each_is_tested).for_everyone()];
    for (name, body) in IN_EACH_MODE {
        for (prefix, mode) in [MODES[0], MODES[1]] {
            let name = format!("{prefix} example {name}");
            tests.push(Test::new(name, move || body(mode)));
        }
    }
    for name in ["event_loop", "mio"] {
        let body = move || line_beside_packets(name);
        tests.push(Test::new(
            format!("example {name}: a line in a flood"),
            body,
        ));
    }
    for (name, body) in IN_ONE_MODE {
        let name = format!("example {name}");
        tests.push(Test::new(name, move || body(Mode::Driver)));
    }
    tests
}

fn each_is_tested() -> Outcome {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let files = std::fs::read_dir(folder)?;
    let names = files.map(|file| Ok(file?.file_name().to_string_lossy().into_owned()));
    let names = names.collect::<Result<Vec<_>>>()?;
    let examples = names.iter().filter_map(|name| name.strip_suffix(".rs"));
    let tested = IN_EACH_MODE.iter().chain(&IN_ONE_MODE).map(|it| it.0);
    assert_eq!(
        tested.collect::<BTreeSet<_>>(),
        examples.collect::<BTreeSet<_>>()
    );
    Ok(())
}

/// Starts an example in the receiver's namespace.
fn start(side: &Side, name: &str, arguments: &str) -> Result<Process> {
    let mut command = Command::new(example(name)?);
    command
        .args(arguments.split_whitespace())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Ok(Process::of(side.spawn(&mut command)?)?)
}

/// The mode as examples print it.
fn name(mode: Mode) -> &'static str {
    match mode {
        Mode::Skb => "skb",
        _ => "drv",
    }
}

/// The number of frames that only ask who takes them.
const PROBE: u64 = u64::MAX;
/// The Ethernet type for experiments.
const ETHER_TYPE: u16 = 0x88b5;
const NEAR: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
const FAR: [u8; 6] = [2, 0, 0, 0, 0, 0xb];

/// The other end's network card: whole frames, as a raw socket of the kernel sends and receives them.
struct Far(PacketSocket);

impl Far {
    fn open(side: &Side) -> Result<Self> {
        let options = PacketSocket::on(side.index()?).protocol(ETHER_TYPE);
        let socket = side.inside(|| options.ignoring_outgoing().open())?;
        Ok(Self(socket))
    }

    fn send(&self, sequence: u64, len: usize) -> Outcome {
        Ok(self.0.send(&frame(NEAR, FAR, sequence, len))?)
    }

    /// Expects this frame back, with its addresses exchanged, before any other but probes.
    fn expect_back(&self, sequence: u64, len: usize) -> Outcome {
        let mut buffer = [0; 10_000];
        loop {
            let back = self.0.receive(&mut buffer, longest(STALL))?;
            let back = back.ok_or(format!("frame {sequence} of {len} bytes is lost"))?;
            if back != frame(FAR, NEAR, PROBE, 60) {
                assert!(
                    back == frame(FAR, NEAR, sequence, len),
                    "frame {sequence}: {back:02x?}"
                );
                return Ok(());
            }
        }
    }
}

fn frame(to: [u8; 6], from: [u8; 6], sequence: u64, len: usize) -> Vec<u8> {
    let mut frame = [
        &to[..],
        &from,
        &ETHER_TYPE.to_be_bytes(),
        &sequence.to_be_bytes(),
    ]
    .concat();
    frame.extend(
        (frame.len()..len).map(|at| (at as u8).wrapping_mul(7).wrapping_add(sequence as u8)),
    );
    frame
}

/// Waits until the program takes what arrives, of which the host then gets none.
fn wait_until_taken(lab: &Lab) -> Outcome {
    let (far, host) = (Far::open(&lab.tx)?, Far::open(&lab.rx)?);
    // A busy kernel delivers late.
    let mut missing = 0;
    until(STALL, "the program takes no packet", || {
        far.send(PROBE, 60)?;
        let mut buffer = [0; 100];
        let reached = host.0.receive(&mut buffer, Duration::from_millis(20))?;
        missing = if reached.is_none() { missing + 1 } else { 0 };
        Result::Ok(missing == 5)
    })
}

/// The program is attached in the mode that the test asks for.
fn check_mode(lab: &Lab, mode: Mode) -> Outcome {
    let expected = match mode {
        Mode::Skb => AttachMode::Skb,
        _ => AttachMode::Driver,
    };
    let programs = lab.rx.lookup()?.programs;
    let modes: Vec<_> = programs.iter().map(|program| program.mode).collect();
    assert_eq!(modes, [expected]);
    Ok(())
}

fn expect_no_program(lab: &Lab, mut running: Process) -> Outcome {
    running.kill()?;
    assert!(lab.rx.has_no_program(STALL), "its XDP program is left");
    Ok(())
}

/// Sends frames of all lengths, and expects each back.
fn expect_echo(lab: &Lab) -> Outcome {
    let far = Far::open(&lab.tx)?;
    for (sequence, len) in (60..1514).step_by(41).enumerate() {
        let sequence = sequence as u64;
        far.send(sequence, len)?;
        far.expect_back(sequence, len)?;
    }
    Ok(())
}

/// Reads lines until the numbers that they begin with sum up to `least`, or, if each is a total, the last one has it.
fn wait_for_count(running: &mut Process, least: u64, is_total: bool) -> Outcome {
    let (mut limit, mut sum) = (Limit::new(STALL), 0);
    while sum < least {
        let line = running.line()?;
        let number = line
            .split(' ')
            .next()
            .and_then(|word| word.parse::<u64>().ok());
        sum = match number {
            Some(number) if is_total => number,
            Some(number) => sum + number,
            None => sum,
        };
        if limit.is_over() {
            return Err(format!("{sum} of {least} packets: {line:?}").into());
        }
    }
    Ok(())
}

const PACKETS: u64 = 200;

fn send_packets(lab: &Lab) -> Outcome {
    let far = Far::open(&lab.tx)?;
    for sequence in 0..PACKETS {
        far.send(sequence, 60 + sequence as usize)?;
        if sequence % 32 == 31 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}

fn l2fwd(mode: Mode) -> Outcome {
    let lab = Lab::as_made(1, mode)?;
    let running = start(&lab.rx, "l2fwd", "rx0")?;
    wait_until_taken(&lab)?;
    check_mode(&lab, mode)?;
    expect_echo(&lab)?;
    expect_no_program(&lab, running)
}

fn event_loop(mode: Mode) -> Outcome {
    let lab = Lab::as_made(1, mode)?;
    let mut running = start(&lab.rx, "event_loop", "rx0")?;
    wait_until_taken(&lab)?;
    check_mode(&lab, mode)?;
    send_packets(&lab)?;
    // It ends at the line, whatever waits in the ring then.
    std::thread::sleep(Duration::from_millis(500));
    running.say("")?;
    wait_for_count(&mut running, PACKETS, true)?;
    running.end()?;
    assert!(lab.rx.has_no_program(STALL), "its XDP program is left");
    Ok(())
}

/// More packets than a batch has wait beside the line, as in a flood: it ends the program before all are received.
fn line_beside_packets(name: &str) -> Outcome {
    const WAITING: u64 = 1000;
    let lab = Lab::as_made(1, Mode::Driver)?;
    let mut running = start(&lab.rx, name, "rx0")?;
    wait_until_taken(&lab)?;
    running.signal(Signal::STOP)?;
    let far = Far::open(&lab.tx)?;
    for sequence in 0..WAITING {
        far.send(sequence, 60)?;
        if sequence % 32 == 31 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    running.say("")?;
    running.signal(Signal::CONT)?;
    let line = running.line()?;
    let count = line.strip_suffix(" packets").ok_or(line.clone())?;
    assert!(count.parse::<u64>()? < WAITING, "{line}");
    Ok(running.end()?)
}

fn filter(mode: Mode) -> Outcome {
    const PORT: u16 = 4242;
    let lab = Lab::as_made(1, mode)?;
    let mut running = start(&lab.rx, "filter", &format!("rx0 {PORT}"))?;
    let stack = lab.rx.inside(|| UdpSocket::bind((RX, PORT)))?;
    let sender = lab.tx.inside(|| UdpSocket::bind((TX, 0)))?;
    stack.set_read_timeout(Some(Duration::from_millis(50)))?;
    until(STALL, "the program takes no packet", || {
        sender.send_to(b"to whom?", (RX, PORT))?;
        Result::Ok(stack.recv(&mut [0; 64]).is_err())
    })?;
    check_mode(&lab, mode)?;
    running.wait_for_line(&format!("1 packets to UDP port {PORT}"))?;
    for _ in 0..50 {
        sender.send_to(b"for the program", (RX, PORT))?;
    }
    running.wait_for_line(&format!("51 packets to UDP port {PORT}"))?;
    // Another port, and ARP before it, are the host's.
    let other = lab.rx.inside(|| UdpSocket::bind((RX, PORT + 1)))?;
    other.set_read_timeout(Some(longest(STALL)))?;
    sender.send_to(b"for the host", (RX, PORT + 1))?;
    assert_eq!(other.recv(&mut [0; 64])?, 12);
    expect_no_program(&lab, running)
}

/// The second process has no capability.
fn hand_over(mode: Mode) -> Outcome {
    if !is_program("setpriv") {
        return Err(skip("the program setpriv is missing"));
    }
    let lab = Lab::as_made(1, mode)?;
    let scratch = Temporary::new("hand-over")?;
    let path = scratch.join("socket").display().to_string();
    let mut giver = start(&lab.rx, "hand_over", &format!("give rx0 {path}"))?;
    until(STALL, "no socket to connect to", || {
        Result::Ok(Path::new(&path).exists())
    })?;
    let mut command = Command::new("setpriv");
    command
        .args(["--bounding-set=-all", "--inh-caps=-all"])
        .arg(example("hand_over")?)
        .args(["take", &path])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut taker = Process::of(lab.rx.spawn(&mut command)?)?;
    taker.expect(&format!("queue 0, mode {}", name(mode)))?;
    giver.end()?;
    let status = std::fs::read_to_string(format!("/proc/{}/status", taker.id()))?;
    assert!(status.contains("CapEff:\t0000000000000000"), "{status}");
    check_mode(&lab, mode)?;
    send_packets(&lab)?;
    wait_for_count(&mut taker, PACKETS, false)?;
    expect_no_program(&lab, taker)
}

fn metadata(mode: Mode) -> Outcome {
    if let Err(missing) = Feature::TxMetadata.probe() {
        return Err(skip(missing.to_string()));
    }
    let lab = Lab::as_made(1, mode)?;
    let mut running = start(&lab.rx, "metadata", "rx0 100")?;
    wait_until_taken(&lab)?;
    check_mode(&lab, mode)?;
    send_packets(&lab)?;
    running.end()?;
    let lines: Vec<_> = std::iter::from_fn(|| running.line().ok()).collect();
    for packet in 0..100 {
        let begins = [
            format!("packet {packet}: "),
            format!("answer {packet} left at "),
        ];
        for begin in begins {
            assert!(lines.iter().any(|it| it.starts_with(&begin)), "{lines:?}");
        }
    }
    let has_hints = lines.iter().any(|it| it.contains("hash: Some("));
    let is_refused = lines.iter().any(|it| it.contains("hints"));
    match mode {
        Mode::Skb => assert!(is_refused && !has_hints, "{lines:?}"),
        _ if Feature::RxHints.probe().is_ok() => assert!(has_hints, "{lines:?}"),
        _ => assert!(is_refused, "{lines:?}"),
    }
    Ok(())
}

fn mio(mode: Mode) -> Outcome {
    let lab = Lab::as_made(1, mode)?;
    let mut running = start(&lab.rx, "mio", "rx0")?;
    wait_until_taken(&lab)?;
    check_mode(&lab, mode)?;
    expect_echo(&lab)?;
    running.say("")?;
    wait_for_count(&mut running, 1, true)?;
    running.end()?;
    assert!(lab.rx.has_no_program(STALL), "its XDP program is left");
    Ok(())
}

/// The file has each packet with a time of now, in the order in which they came.
fn pcap(mode: Mode) -> Outcome {
    let lab = Lab::as_made(1, mode)?;
    let scratch = Temporary::new("pcap")?;
    let path = scratch.join("packets");
    let mut running = start(&lab.rx, "pcap", &format!("rx0 {} 3", path.display()))?;
    wait_until_taken(&lab)?;
    check_mode(&lab, mode)?;
    send_packets(&lab)?;
    let is_total = |line: &str| line.ends_with("packets written, 0 not");
    let mut lines = Vec::new();
    while !lines.iter().any(|line: &String| is_total(line)) {
        lines.push(running.line()?);
    }
    running.end()?;
    let counts = lines.iter().filter(|line| line.starts_with("queue 0: "));
    assert_eq!(counts.count(), 3, "{lines:?}");
    let file = std::fs::read(path)?;
    let word = |at: usize| {
        file.get(at..at + 4)
            .map(|it| u32::from_le_bytes(it.try_into().expect("4")))
    };
    assert_eq!(word(0), Some(0xa1b2_3c4d));
    let (mut at, mut sequence) = (24, 0);
    while let (Some(seconds), Some(len)) = (word(at), word(at + 8)) {
        let packet = &file[at + 16..][..len as usize];
        at += 16 + len as usize;
        if packet.get(12..14) != Some(&ETHER_TYPE.to_be_bytes())
            || packet[14..22] == PROBE.to_be_bytes()
        {
            continue; // Of the host, or a probe.
        }
        assert!(packet == frame(NEAR, FAR, sequence, 60 + sequence as usize));
        let now = std::time::UNIX_EPOCH.elapsed()?.as_secs();
        assert!(now.abs_diff(seconds.into()) < 600, "{seconds}, now {now}");
        sequence += 1;
    }
    assert_eq!((at, sequence), (file.len(), PACKETS));
    assert!(lab.rx.has_no_program(STALL), "its XDP program is left");
    Ok(())
}

/// The sender's kernel spreads flows over the queues. In generic XDP a veth's packets are all on queue 0.
fn queues(mode: Mode) -> Outcome {
    let lab = Lab::as_made(2, mode)?;
    let mut running = start(&lab.rx, "queues", "rx0 3")?;
    wait_until_taken(&lab)?;
    let flows = (0..64).map(|_| lab.tx.inside(|| UdpSocket::bind((TX, 0))));
    let flows = flows.collect::<std::io::Result<Vec<_>>>()?;
    // The program takes answers to ARP, too.
    lab.tx.ip(&format!(
        "neigh replace {RX} lladdr 02:00:00:00:00:0a dev tx0"
    ))?;
    while running.is_running()? {
        for flow in &flows {
            flow.send_to(b"to one of the queues", (RX, 4242))?;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    for queue in 0..2 {
        let line = running.line()?;
        let count = line.strip_prefix(&format!("queue {queue}: "));
        let count = count.and_then(|it| it.strip_suffix(" packets"));
        let count: u64 = count.ok_or(format!("{line:?}"))?.parse()?;
        let is_used = queue == 0 || mode == Mode::Driver;
        assert_eq!(count > 0, is_used, "{line}");
    }
    running.end()?;
    assert!(lab.rx.has_no_program(STALL), "its XDP program is left");
    Ok(())
}

/// The device is removed, and there again.
fn rebind(mode: Mode) -> Outcome {
    let lab = Lab::as_made(1, mode)?;
    let running = start(&lab.rx, "rebind", "rx0")?;
    for round in 0..2 {
        if round > 0 {
            lab.rx.ip("link del dev rx0")?;
            lab.add_veths(1)?;
        }
        wait_until_taken(&lab)?;
        expect_echo(&lab)?;
    }
    expect_no_program(&lab, running)
}

fn rxdrop(mode: Mode) -> Outcome {
    let lab = Lab::as_made(1, mode)?;
    let mut running = start(&lab.rx, "rxdrop", "rx0")?;
    running.expect(&format!("rx0 queue 0: mode {}", name(mode)))?;
    wait_until_taken(&lab)?;
    check_mode(&lab, mode)?;
    send_packets(&lab)?;
    wait_for_count(&mut running, PACKETS, false)?;
    expect_no_program(&lab, running)
}

/// Between two hosts whose kernels leave sums to the device: UDP and TCP of both IP versions pass.
fn shared_umem(mode: Mode) -> Outcome {
    let (left, right) = (Lab::as_made(1, mode)?, Lab::as_made(1, mode)?);
    // The program's devices have no addresses, and are in one namespace.
    left.rx.ip("addr flush dev rx0")?;
    right.rx.ip("addr flush dev rx0")?;
    right.rx.ip("link set dev rx0 down")?;
    right.rx.ip("link set dev rx0 name other0")?;
    right
        .rx
        .ip(&format!("link set dev other0 netns {}", left.rx.path()))?;
    left.rx.ip("link set dev other0 up")?;
    right.tx.ip("addr flush dev tx0")?;
    right.tx.add_addresses(RX, RX6)?;
    right.tx.wait_for_addresses();
    let running = start(&left.rx, "shared_umem", "rx0 other0")?;
    wait_until_taken(&left)?;
    check_mode(&left, mode)?;
    for (client, server) in [
        (IpAddr::from(TX), IpAddr::from(RX)),
        (TX6.into(), RX6.into()),
    ] {
        pass_udp(&left.tx, client, &right.tx, server)?;
        pass_tcp(&left.tx, &right.tx, server)?;
    }
    expect_no_program(&left, running)
}

fn pass_udp(near: &Side, client: IpAddr, far: &Side, server: IpAddr) -> Outcome {
    let server = far.inside(|| UdpSocket::bind((server, 0)))?;
    let client = near.inside(|| UdpSocket::bind((client, 0)))?;
    for socket in [&server, &client] {
        socket.set_read_timeout(Some(longest(STALL)))?;
    }
    client.connect(server.local_addr()?)?;
    for len in LENGTHS {
        let (text, mut buffer) = (text(len), [0; 2048]);
        client.send(&text)?;
        let (count, from) = server.recv_from(&mut buffer)?;
        assert!(buffer[..count] == text, "{len} bytes there");
        server.send_to(&text, from)?;
        let count = client.recv(&mut buffer)?;
        assert!(buffer[..count] == text, "{len} bytes back");
    }
    Ok(())
}

fn pass_tcp(near: &Side, far: &Side, server: IpAddr) -> Outcome {
    use std::io::{Read, Write};
    let listener = far.inside(|| TcpListener::bind((server, 0)))?;
    let to = listener.local_addr()?;
    let mut client = near.inside(|| TcpStream::connect_timeout(&to, longest(STALL)))?;
    let (mut server, _) = listener.accept()?;
    for socket in [&client, &server] {
        socket.set_read_timeout(Some(longest(STALL)))?;
    }
    for len in 1..50 {
        let (text, mut buffer) = (text(len), vec![0; len]);
        client.write_all(&text)?;
        server.read_exact(&mut buffer)?;
        assert_eq!(buffer, text);
        server.write_all(&buffer)?;
        client.read_exact(&mut buffer)?;
        assert_eq!(buffer, text);
    }
    Ok(())
}

/// Of UDP, to the longest at an MTU of 1500 over IPv6.
const LENGTHS: [usize; 9] = [0, 1, 2, 3, 17, 18, 512, 1451, 1452];

fn text(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + len) as u8).collect()
}

fn tokio(mode: Mode) -> Outcome {
    let lab = Lab::as_made(1, mode)?;
    let mut running = start(&lab.rx, "tokio", "rx0 5")?;
    wait_until_taken(&lab)?;
    check_mode(&lab, mode)?;
    send_packets(&lab)?;
    wait_for_count(&mut running, PACKETS, true)?;
    running.end()?;
    assert!(lab.rx.has_no_program(STALL), "its XDP program is left");
    Ok(())
}

/// Ordinary clients of both IP versions; other ports are the host's.
fn udp_echo(mode: Mode) -> Outcome {
    let lab = Lab::as_made(1, mode)?;
    let mut running = start(&lab.rx, "udp_echo", "rx0")?;
    running.expect(&format!("1 queues, mode {}", name(mode)))?;
    for (from, to) in [
        (IpAddr::from(TX), IpAddr::from(RX)),
        (TX6.into(), RX6.into()),
    ] {
        let client = lab.tx.inside(|| UdpSocket::bind((from, 0)))?;
        client.set_read_timeout(Some(longest(STALL)))?;
        client.connect((to, 53))?;
        for len in LENGTHS {
            let (text, mut answer) = (text(len), [0; 2048]);
            client.send(&text)?;
            let count = client.recv(&mut answer)?;
            assert!(answer[..count] == text, "the answer to {len} bytes");
        }
        client.connect((to, 54))?;
        client.send(b"anybody?")?;
        let refused = client.recv(&mut [0; 64]).map_err(|error| error.kind());
        assert_eq!(refused, Err(std::io::ErrorKind::ConnectionRefused));
    }
    expect_damage_to_be_dropped(&lab)?;
    expect_no_program(&lab, running)
}

/// Datagrams that were damaged on their way, which the host's own sockets would not see.
fn expect_damage_to_be_dropped(lab: &Lab) -> Outcome {
    let query = |change: Option<usize>, time_to_live| {
        let mut packet = [
            &NEAR[..],
            &FAR,
            b"\x08\0\x45\0\0\x21\0\0\0\0",
            &[time_to_live],
            b"\x11\0\0",
        ]
        .concat();
        packet.extend(TX.octets().into_iter().chain(RX.octets()));
        packet.extend(b"\x0f\xa0\0\x35\0\x0d\0\0hello");
        assert!(xsk::checksum::write(&mut packet));
        if let Some(at) = change {
            packet[at] ^= 4;
        }
        packet
    };
    let far = PacketSocket::on(lab.tx.index()?).protocol(0x0800);
    let far = lab.tx.inside(|| far.ignoring_outgoing().open())?;
    for damaged in [24, 30, 34, 36, 40, 44, 46] {
        far.send(&query(Some(damaged), 64))?;
    }
    // The last hop of its way; the answer has a way of its own.
    far.send(&query(None, 1))?;
    let mut buffer = [0; 2048];
    let answer = far
        .receive(&mut buffer, longest(STALL))?
        .ok_or("no answer")?;
    assert_eq!(answer[34..38], [0, 53, 0x0f, 0xa0], "{answer:02x?}");
    assert_eq!((answer[22], &answer[42..47]), (64, &b"hello"[..]));
    let more = far.receive(&mut buffer, Duration::from_millis(100))?;
    assert_eq!(more, None, "an answer to a damaged packet");
    Ok(())
}

fn features(_: Mode) -> Outcome {
    let printed = success(&mut Command::new(example("features")?), STALL)?;
    for feature in Feature::ALL {
        let expected = match feature.probe() {
            Ok(()) => format!("{feature}: yes"),
            Err(missing) => missing.to_string(),
        };
        assert!(printed.lines().any(|line| line == expected), "{printed}");
    }
    Ok(())
}

/// Devices with the MTU that it asks for.
fn jumbo(mode: Mode) -> Outcome {
    if let Err(missing) = Feature::Fragments.probe() {
        return Err(skip(missing.to_string()));
    }
    let lab = Lab::as_made(1, mode)?;
    for side in [&lab.rx, &lab.tx] {
        side.ip(&format!("link set dev {} mtu 9000", side.device))?;
    }
    let mut running = start(&lab.rx, "jumbo", "rx0")?;
    running.expect("rx0: mode drv")?;
    wait_until_taken(&lab)?;
    let far = Far::open(&lab.tx)?;
    for (sequence, len) in (60..9014).step_by(199).chain([9014]).enumerate() {
        let sequence = sequence as u64;
        far.send(sequence, len)?;
        far.expect_back(sequence, len)?;
    }
    expect_no_program(&lab, running)
}

/// Frames to everybody, which the other end's kernel receives.
fn txpush(mode: Mode) -> Outcome {
    const FRAMES: u64 = 2000;
    let lab = Lab::as_made(1, mode)?;
    let far = PacketSocket::on(lab.tx.index()?).protocol(ETHER_TYPE);
    let far = lab.tx.inside(|| far.ignoring_outgoing().open())?;
    let mut running = start(&lab.rx, "txpush", &format!("rx0 {FRAMES}"))?;
    running.expect("rx0: mode copy")?;
    let line = running.line()?;
    running.end()?;
    let rest = line.strip_prefix(&format!("{FRAMES} frames, "));
    let drops: u64 = rest
        .and_then(|it| it.rsplit(", ").next()?.strip_suffix(" sends with a drop"))
        .ok_or(format!("{line:?}"))?
        .parse()?;
    let mut buffer = [0; 2048];
    let mut numbers = Vec::new();
    while let Some(frame) = far.receive(&mut buffer, Duration::from_millis(100))? {
        assert_eq!((frame.len(), &frame[..6]), (64, &[0xff; 6][..]));
        numbers.push(u64::from_be_bytes(frame[14..22].try_into()?));
    }
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    let received = numbers.len() as u64;
    assert!(
        received == FRAMES || drops > 0 && received > 0,
        "{received} received: {line}"
    );
    Ok(())
}
