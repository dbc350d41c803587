//! Packets of several frames, which a program asks for with `XDP_USE_SG`.

use crate::Result;
use crate::build::{Built, Way};
use crate::lab::Lab;
use testkit::{Test, skip, tests};
use xsk::{Feature, Mode, Socket, Umem};

pub(crate) fn tests() -> Vec<Test> {
    tests![
        packets_of_several_frames_arrive_as_with_libxdp,
        packets_of_several_frames_arrive_by_a_program_of_the_callers,
        libxdps_program_is_for_single_buffers_in_native_mode,
    ]
}

/// `ETH_DATA_LEN` of jumbo frames, and lengths of packets on such a device with the frames of 4096 bytes
/// that each takes: 256 of them are headroom.
const MTU: u32 = 9000;
const LENGTHS: [(usize, usize); 4] = [(60, 1), (3840, 1), (3841, 2), (9014, 3)];

fn lab() -> Result<Lab> {
    if let Err(missing) = Feature::Fragments.probe() {
        return Err(skip(missing.to_string()));
    }
    Lab::with_mtu(1, MTU)
}

/// A packet whose bytes behind the addresses depend on their places.
fn packet(len: usize) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 0xa, 2, 0, 0, 0, 0, 0xb, 0x88, 0xb5];
    packet.extend((packet.len()..len).map(|at| (at * 7 + at / 251) as u8));
    packet
}

fn send(lab: &Lab, packet: &[u8]) -> Result {
    lab.at_peer(|| {
        let umem = Umem::builder().fragments(true).build()?;
        let mut socket = Socket::builder(&umem, "peer0", 0)
            .mode(Mode::Skb)
            .rx_ring(0)
            .open()?;
        let mut frames = socket.alloc_fragments(packet.len()).ok_or("a free chunk")?;
        frames.fill_with(packet)?;
        let sent = socket.send_fragments(frames);
        sent.map_err(|unsent| unsent.kind.to_string())?;
        Ok(socket.flush()?)
    })
}

/// Generic XDP makes each packet one buffer for libxdp's program.
fn packets_of_several_frames_arrive_as_with_libxdp() -> Result {
    arrive("skb")
}

fn packets_of_several_frames_arrive_by_a_program_of_the_callers() -> Result {
    arrive("own")
}

fn arrive(mode: &str) -> Result {
    let built = Built::with("jumbo")?;
    for way in Way::ALL {
        let lab = lab()?;
        let count = LENGTHS.len().to_string();
        let arguments = ["wan0", mode, &count];
        let mut program = lab.start(built.command(way, "jumbo").args(arguments))?;
        program.expect("ready")?;
        for (len, frames) in LENGTHS {
            send(&lab, &packet(len))?;
            program.expect(&format!("{len} bytes in {frames} frames, 0 wrong"))?;
        }
        program.end()?;
        lab.expect_no_program()?;
    }
    Ok(())
}

/// A veth of a larger MTU refuses it. Weir's takes packets of several for a socket that does.
fn libxdps_program_is_for_single_buffers_in_native_mode() -> Result {
    let built = Built::with("jumbo")?;
    for way in Way::ALL {
        let lab = lab()?;
        let arguments = ["wan0", "drv", "0"];
        let mut program = lab.start(built.command(way, "jumbo").args(arguments))?;
        program.expect(match way {
            Way::Debian => "a socket: Numerical result out of range",
            Way::Linked | Way::Preloaded => "ready",
        })?;
        program.end()?;
        lab.expect_no_program()?;
    }
    Ok(())
}
