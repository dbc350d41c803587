//! Programs that forward: every packet comes back once, with its payload.

use crate::Result;
use crate::build::{Built, Way};
use crate::lab::{Lab, STEP, run};
use std::process::Command;
use std::time::Duration;
use testkit::{Limit, Process, Skip, Test, tests};
use xsk::{Feature, Mode, Socket, Umem};

pub(crate) fn tests() -> Vec<Test> {
    tests![
        a_program_forwards,
        a_device_has_alternative_names,
        a_umem_with_two_queues_forwards,
        a_umem_with_two_sockets_on_a_queue_forwards,
        a_program_without_libxdps_program_forwards,
        a_program_with_options_forwards,
        a_program_forwards_packets_of_several_chunks,
        processes_share_the_program,
        processes_come_and_go_at_once,
        a_killed_process_leaves_nothing,
    ]
}

const PACKETS: u32 = 1000;
/// `ETH_P_802_EX1`, a protocol for experiments.
const ETHER_TYPE: [u8; 2] = [0x88, 0xb5];
const WAN: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
const PEER: [u8; 6] = [2, 0, 0, 0, 0, 0xb];
/// Sent, and not yet back: fewer than a veth holds.
const MOST_UNDER_WAY: u32 = 64;

/// The length of the longest frame of a lab, and of one for jumbo frames.
const USUAL: usize = 1400;
const JUMBO: usize = 9000;

/// A frame by its number: of 60 bytes to less than `end`, all of which depend on it.
fn frame(number: u32, end: usize, destination: [u8; 6], source: [u8; 6]) -> Vec<u8> {
    let mut frame = [&destination[..], &source, &ETHER_TYPE].concat();
    frame.extend(number.to_be_bytes());
    let len = 60 + (number as usize * 37) % (end - 60);
    let payload = (frame.len()..len).map(|at| (at as u32).wrapping_mul(number + 7) as u8);
    frame.extend(payload);
    frame
}

/// Sends frames by a queue of the peer's, and checks that each comes back once, its addresses swapped.
fn bounce(lab: &Lab, queue: u32, packets: u32, end: usize) -> Result {
    lab.at_peer(|| {
        let umem = Umem::builder()
            .chunks(2048)
            .fragments(end > USUAL)
            .build()?;
        // In generic mode a veth would not tell the queue.
        let mut socket = Socket::builder(&umem, "peer0", queue)
            .mode(Mode::Driver)
            .open()?;
        let mut back = vec![false; packets as usize];
        let (mut sent, mut received) = (0, 0);
        let mut limit = Limit::new(STEP);
        while received < packets {
            if limit.is_over() {
                return Err(format!(
                    "queue {queue}: {received} of {packets} frames came back, {sent} sent"
                )
                .into());
            }
            while sent < packets && sent - received < MOST_UNDER_WAY {
                let bytes = frame(sent, end, WAN, PEER);
                let Some(mut packet) = socket.alloc_fragments(bytes.len()) else {
                    break;
                };
                packet.fill_with(&bytes)?;
                if socket.send_fragments(packet).is_err() {
                    break;
                }
                sent += 1;
            }
            socket.flush()?;
            socket.wait(Duration::from_millis(10))?;
            let mut batch = socket.recv(64);
            while let Some(packet) = batch.next_fragments() {
                let packet = packet.to_vec();
                let number = packet.get(14..18).and_then(|it| it.try_into().ok());
                let number = number.map_or(u32::MAX, u32::from_be_bytes);
                let seen = back.get_mut(number as usize).ok_or("not one of ours")?;
                if *seen || packet != frame(number, end, PEER, WAN) {
                    return Err(format!("frame {number} came back twice, or changed").into());
                }
                *seen = true;
                received += 1;
            }
        }
        Ok(())
    })
}

/// Forwards by a queue, with libxdp's own program.
pub(crate) fn l2fwd(built: &Built, way: Way, packets: u32) -> Result {
    let lab = Lab::new(1)?;
    let mut program = start_l2fwd(&lab, built, way, 0, packets)?;
    assert_eq!(lab.programs()?, [way.program()]);
    bounce(&lab, 0, packets, USUAL)?;
    program.expect(&format!("forwarded {packets}"))?;
    program.end()?;
    lab.expect_no_program()
}

fn start_l2fwd(lab: &Lab, built: &Built, way: Way, queue: u32, packets: u32) -> Result<Process> {
    let arguments = ["wan0", &queue.to_string(), &packets.to_string(), "copy"];
    start(lab, built.command(way, "l2fwd").args(arguments))
}

fn start(lab: &Lab, command: &mut Command) -> Result<Process> {
    let mut program = lab.start(command)?;
    let mut line = program.line()?;
    // l2fwd on a kernel that has it not for this device.
    if line.starts_with("no busy polling") {
        line = program.line()?;
    }
    if line != "ready" {
        return Err(line.into());
    }
    Ok(program)
}

/// Runs `sockets` on two queues of which it uses `queues`; returns the programs that it leaves.
fn sockets(built: &Built, way: Way, kind: &str, queues: u32) -> Result<(Lab, Vec<String>)> {
    let lab = Lab::new(2)?;
    let arguments = [kind, "wan0", &PACKETS.to_string()];
    let mut program = start(&lab, built.command(way, "sockets").args(arguments))?;
    for queue in 0..queues {
        bounce(&lab, queue, PACKETS, USUAL)?;
    }
    program.expect(&format!("forwarded {}", queues * PACKETS))?;
    program.end()?;
    let left = lab.programs()?;
    Ok((lab, left))
}

fn a_program_forwards() -> Result {
    let built = Built::with("l2fwd")?;
    Way::ALL
        .into_iter()
        .try_for_each(|way| l2fwd(&built, way, PACKETS))
}

/// libxdp itself takes names of 15 bytes.
fn a_device_has_alternative_names() -> Result {
    let built = Built::with("l2fwd")?;
    for way in Way::WEIRS {
        for name in ["enp0s31f6np0", &"x".repeat(100)] {
            let lab = Lab::new(1)?;
            lab.wan
                .ip(&format!("link property add dev wan0 altname {name}"))?;
            let arguments = [name, "0", "100", "copy"];
            let mut program = start(&lab, built.command(way, "l2fwd").args(arguments))?;
            bounce(&lab, 0, 100, USUAL)?;
            program.expect("forwarded 100")?;
            program.end()?;
            lab.expect_no_program()?;
        }
    }
    Ok(())
}

/// In a child, which a daemon is.
fn a_umem_with_two_queues_forwards() -> Result {
    let built = Built::with("sockets")?;
    for way in Way::ALL {
        let (_, left) = sockets(&built, way, "shared", 2)?;
        assert!(left.is_empty(), "{way:?} leaves {left:?}");
    }
    Ok(())
}

/// libxdp 1.3 deletes the entry of the second with the first.
fn a_umem_with_two_sockets_on_a_queue_forwards() -> Result {
    let built = Built::with("sockets")?;
    for way in Way::WEIRS {
        let (_, left) = sockets(&built, way, "twice", 1)?;
        assert!(left.is_empty(), "{way:?} leaves {left:?}");
    }
    Ok(())
}

/// The program that it sets up stays for others, until somebody takes it away.
fn a_program_without_libxdps_program_forwards() -> Result {
    let built = Built::with("sockets")?;
    built.add("l2fwd")?;
    for way in Way::ALL {
        let (lab, left) = sockets(&built, way, "map", 1)?;
        assert_eq!(left.len(), 1, "{way:?} leaves {left:?}");
        let mut program = start_l2fwd(&lab, &built, way, 1, PACKETS)?;
        assert_eq!(lab.programs()?, left, "{way:?} shares it");
        bounce(&lab, 1, PACKETS, USUAL)?;
        program.expect(&format!("forwarded {PACKETS}"))?;
        program.end()?;
        assert_eq!(lab.programs()?, left, "{way:?} keeps it");
        let mut off = Command::new("ip");
        lab.inside(|| run(off.args(["link", "set", "dev", "wan0", "xdp", "off"])))?;
        lab.expect_no_program()?;
    }
    Ok(())
}

fn a_program_with_options_forwards() -> Result {
    let built = Built::with("sockets")?;
    for way in Way::WEIRS {
        let (_, left) = sockets(&built, way, "opts", 1)?;
        assert!(left.is_empty(), "{way:?} leaves {left:?}");
    }
    Ok(())
}

/// In native mode, by weir's own program.
fn a_program_forwards_packets_of_several_chunks() -> Result {
    let missing = Feature::Fragments.probe().err();
    missing.map_or(Ok(()), |missing| Err(Skip::new(missing.to_string())))?;
    let built = Built::with("sockets")?;
    for way in Way::WEIRS {
        let lab = Lab::with_mtu(1, 9000)?;
        let arguments = ["frags", "wan0", &PACKETS.to_string()];
        let mut program = start(&lab, built.command(way, "sockets").args(arguments))?;
        bounce(&lab, 0, PACKETS, JUMBO)?;
        program.expect(&format!("forwarded {PACKETS}"))?;
        program.end()?;
        lab.expect_no_program()?;
    }
    Ok(())
}

/// The one that attached it ends first.
fn processes_share_the_program() -> Result {
    let built = Built::with("l2fwd")?;
    let lab = Lab::new(2)?;
    let mut first = start_l2fwd(&lab, &built, Way::Linked, 0, PACKETS)?;
    let mut second = start_l2fwd(&lab, &built, Way::Preloaded, 1, 2 * PACKETS)?;
    bounce(&lab, 1, PACKETS, USUAL)?;
    bounce(&lab, 0, PACKETS, USUAL)?;
    first.end()?;
    assert_eq!(lab.programs()?, ["xsk_redirect"]);
    bounce(&lab, 1, PACKETS, USUAL)?;
    second.end()?;
    lab.expect_no_program()
}

/// One attaches, or finds the program of another that may just let go of it. The kernel frees queues late, so
/// each process has one of its own.
fn processes_come_and_go_at_once() -> Result {
    const AT_ONCE: u32 = 4;
    const ROUNDS: u32 = 8;
    let built = Built::with("l2fwd")?;
    let lab = Lab::new(AT_ONCE * ROUNDS)?;
    std::thread::scope(|scope| -> Result {
        let come_and_go = |first: u32| -> Result {
            for queue in (first..AT_ONCE * ROUNDS).step_by(AT_ONCE as usize) {
                let mut program = start_l2fwd(&lab, &built, Way::Linked, queue, 0)?;
                program.expect("forwarded 0")?;
                program.end()?;
            }
            Ok(())
        };
        let threads: Vec<_> = (0..AT_ONCE)
            .map(|first| scope.spawn(move || come_and_go(first)))
            .collect();
        for thread in threads {
            thread.join().map_err(|_| "a panic")??;
        }
        Ok(())
    })?;
    lab.expect_no_program()
}

fn a_killed_process_leaves_nothing() -> Result {
    let built = Built::with("l2fwd")?;
    let lab = Lab::new(1)?;
    let mut killed = start_l2fwd(&lab, &built, Way::Linked, 0, PACKETS)?;
    assert_eq!(lab.programs()?, ["xsk_redirect"]);
    killed.kill()?;
    lab.expect_no_program()
}
