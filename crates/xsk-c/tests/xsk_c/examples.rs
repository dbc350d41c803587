//! The examples, with packets of the test's.

use crate::compile::{
    CRATE, LINKINGS, installed_program, program, scratch, shared, shared_program, succeed,
};
use crate::lab::{Lab, STALL, has_no_program, open, start};
use crate::{Outcome, moving, packet};
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use testkit::limit::longest;
use testkit::{Side, Test, skip};
use xsk::{AttachMode, Device, Feature, Mode, Socket, Umem};

pub fn tests() -> Vec<Test> {
    vec![
        moving("rxdrop counts every packet", rxdrop),
        moving("l2fwd returns every packet as it was", l2fwd),
        moving("jumbo returns packets of any length as they were", jumbo),
        moving(
            "SKB udp_echo answers its port, and leaves the others",
            || udp_echo(Mode::Skb),
        ),
        moving(
            "DRV udp_echo answers its port, and leaves the others",
            || udp_echo(Mode::Driver),
        ),
        Test::new("each example has a test", each_is_tested).for_everyone(),
        moving(
            "a program with the shared library runs",
            with_shared_library,
        ),
        moving("a program with the installed library runs", installed),
        moving("a killed program leaves nothing on the device", killed),
        Test::new("an error has cause and cure", error),
    ]
}

fn each_is_tested() -> Outcome {
    let here = include_str!("examples.rs");
    for file in std::fs::read_dir(Path::new(CRATE).join("examples"))? {
        let name = file?.file_name().to_string_lossy().into_owned();
        assert!(here.contains(&format!("\"examples/{name}\"")), "{name}");
    }
    Ok(())
}

/// Packets, and as many at once as a veth's ring holds.
const PACKETS: u64 = 2000;
const WINDOW: u64 = 64;

fn sender(side: &Side) -> xsk::Result<Socket> {
    let umem = Umem::builder().build()?;
    open(side, &umem)
}

/// Sends packets from `first` on, at most a window.
fn send(socket: &mut Socket, first: u64, count: u64) -> Outcome {
    for sequence in first..first + count {
        let mut frame = socket.alloc().ok_or("a free frame")?;
        packet::fill(&mut frame, 1, sequence, packet::MIN);
        socket.send(frame).map_err(|refused| refused.to_string())?;
    }
    Ok(socket.flush()?)
}

fn rxdrop() -> Outcome {
    let scratch = scratch("rxdrop")?;
    let program = program(&scratch, "examples/rxdrop.c")?;
    count(&program)
}

/// Runs rxdrop, which counts all packets.
fn count(program: &Path) -> Outcome {
    let lab = Lab::new()?;
    let mut running = start(&lab.rx, program, &["rx0"])?;
    running.wait_for_line("mode drv")?;
    let mut socket = sender(&lab.tx)?;
    for first in (0..PACKETS).step_by(50) {
        send(&mut socket, first, 50)?;
        // So slowly that no ring is full, on any machine that runs the program at all.
        std::thread::sleep(Duration::from_millis(1));
    }
    let sum = format!("{PACKETS} packets, {} bytes", PACKETS * packet::MIN as u64);
    running.wait_for_line(&sum)?;
    running.stop()?;
    Ok(running.wait_for_line(&sum)?)
}

fn l2fwd() -> Outcome {
    let scratch = scratch("l2fwd")?;
    let program = program(&scratch, "examples/l2fwd.c")?;
    let lab = Lab::new()?;
    let name = "x".repeat(100);
    lab.rx
        .ip(&format!("link property add dev rx0 altname {name}"))?;
    let mut running = start(&lab.rx, &program, &[&name])?;
    running.wait_for_line("ready")?;
    let mut socket = sender(&lab.tx)?;
    let (mut sent, mut seen) = (0, 0);
    while seen < PACKETS {
        let more = WINDOW.min(PACKETS - sent).min(seen + WINDOW - sent);
        send(&mut socket, sent, more)?;
        sent += more;
        assert!(
            socket.wait(longest(STALL))?,
            "packet {seen} of {sent} is lost"
        );
        let mut batch = socket.recv(64);
        while let Some(packet) = batch.next_packet() {
            packet::check(&packet, seen);
            assert_eq!(packet[..6], [2, 0, 0, 0, 0, 0xff], "the sender's address");
            assert_eq!(packet[6..12], [2, 0, 0, 0, 0, 1], "the receiver's address");
            seen += 1;
        }
    }
    running.stop()?;
    Ok(running.wait_for_line(&format!("{PACKETS} received, {PACKETS} sent"))?)
}

fn jumbo() -> Outcome {
    if let Err(missing) = Feature::Fragments.probe() {
        return Err(skip(missing.to_string()));
    }
    let scratch = scratch("jumbo")?;
    let program = program(&scratch, "examples/jumbo.c")?;
    let lab = Lab::new()?;
    for side in [&lab.rx, &lab.tx] {
        side.ip(&format!("link set dev {} mtu 9000", side.device))?;
    }
    let mut running = start(&lab.rx, &program, &["rx0"])?;
    running.wait_for_line("ready")?;
    let umem = Umem::builder().fragments(true).build()?;
    let mut socket = open(&lab.tx, &umem)?;
    for sequence in 0..256 {
        let mut bytes = vec![0; 60 + sequence as usize * 35];
        packet::write(&mut bytes, 1, sequence);
        let mut frames = socket.alloc_fragments(bytes.len()).ok_or("free frames")?;
        frames.fill_with(&bytes)?;
        let sent = socket.send_fragments(frames);
        sent.map_err(|refused| refused.to_string())?;
        socket.flush()?;
        assert!(socket.wait(longest(STALL))?, "packet {sequence} is lost");
        let back = socket.recv(1).next_fragments().ok_or("a packet")?.to_vec();
        packet::check(&back, sequence);
        assert_eq!(back.len(), bytes.len());
        assert_eq!(back[..6], [2, 0, 0, 0, 0, 0xff], "the sender's address");
    }
    Ok(running.stop()?)
}

/// Ordinary clients of both IP versions, whose kernel leaves sums to the device and checks those of the answers.
fn udp_echo(mode: Mode) -> Outcome {
    let scratch = scratch(&format!("udp_echo-{mode:?}"))?;
    let program = program(&scratch, "examples/udp_echo.c")?;
    let lab = Lab::as_made(mode)?;
    let mut running = start(&lab.rx, &program, &["rx0", "7"])?;
    running.wait_for_line("ready")?;
    check_mode(&lab, mode)?;
    for (from, to) in [("192.0.2.2", "192.0.2.1"), ("2001:db8::2", "2001:db8::1")] {
        let client = lab.tx.inside(|| UdpSocket::bind((from, 0)))?;
        client.set_read_timeout(Some(longest(STALL)))?;
        client.connect((to, 7))?;
        for size in [0, 1, 2, 3, 17, 100, 1400, 1451, 1452] {
            let text: Vec<u8> = (0..size).map(|at| (at * 7 + size) as u8).collect();
            let mut answer = [0; 2048];
            client.send(&text)?;
            let len = client.recv(&mut answer)?;
            assert_eq!(answer[..len], text, "the answer to {size} bytes");
        }
        // Another port is the network stack's, which has nobody there.
        client.connect((to, 8))?;
        client.send(b"anybody?")?;
        let refused = client.recv(&mut [0; 64]).map_err(|error| error.kind());
        assert_eq!(refused, Err(std::io::ErrorKind::ConnectionRefused));
    }
    running.stop()?;
    assert!(has_no_program(&lab.rx), "its XDP program is left");
    Ok(())
}

fn check_mode(lab: &Lab, mode: Mode) -> Outcome {
    let programs = lab.rx.inside(|| Device::lookup("rx0"))?.programs;
    let modes: Vec<_> = programs.iter().map(|program| program.mode).collect();
    let expected = match mode {
        Mode::Skb => AttachMode::Skb,
        _ => AttachMode::Driver,
    };
    assert_eq!(modes, [expected]);
    Ok(())
}

fn with_shared_library() -> Outcome {
    let scratch = scratch("shared")?;
    let shared = shared(&scratch)?;
    let program = shared_program(&scratch, "examples/rxdrop.c", &shared)?;
    let symbols = succeed(Command::new("nm").arg("--dynamic").arg(&program))?;
    assert!(symbols.contains("weir_xsk_open@WEIR_XSK_0.1"), "{symbols}");
    count(&program)
}

fn installed() -> Outcome {
    let scratch = scratch("installed")?;
    for linking in &LINKINGS {
        let program = installed_program(&scratch, "examples/rxdrop.c", linking)?;
        let bytes = std::fs::read(&program)?;
        let shared = b"libweir-xsk.so.0";
        let names_shared = bytes.windows(shared.len()).any(|at| at == shared);
        assert_eq!(names_shared, linking.shared, "the shared library");
        count(&program)?;
    }
    Ok(())
}

fn killed() -> Outcome {
    let scratch = scratch("killed")?;
    let program = program(&scratch, "examples/rxdrop.c")?;
    let lab = Lab::new()?;
    let mut running = start(&lab.rx, &program, &["rx0"])?;
    running.wait_for_line("mode drv")?;
    let attached = lab.rx.inside(|| Device::lookup("rx0"))?.programs;
    assert_eq!(attached.len(), 1, "{attached:?}");
    running.kill()?;
    assert!(has_no_program(&lab.rx), "its XDP program is left");
    Ok(())
}

fn error() -> Outcome {
    let scratch = scratch("error")?;
    let program = program(&scratch, "examples/rxdrop.c")?;
    let output = Command::new(program).arg("none0").output()?;
    let text = String::from_utf8(output.stderr)?;
    assert!(!output.status.success());
    assert!(
        text.starts_with("rxdrop: no network device \"none0\""),
        "{text}"
    );
    assert!(text.contains("`ip link` lists the devices"), "{text}");
    Ok(())
}
