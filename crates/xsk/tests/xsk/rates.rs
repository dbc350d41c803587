//! Rates of the moves between two devices, printed for `./run guests`. They judge nothing.

use crate::budget::STALL;
use crate::netns::{Lab, umem_builder};
use crate::outside::Outside;
use crate::traffic::deliver;
use crate::{Outcome, Result, packet};
use std::time::{Duration, Instant};
use testkit::wait_until;
use xsk::Mode;

/// Packets of one measurement.
const PACKETS: u64 = 20_000;

/// Prints the packets a second of this mode.
pub fn measure(mode: Mode) -> Outcome {
    let (received, sent) = (receive(mode)?, send(mode)?);
    let rate = |time: Duration| PACKETS as f64 / time.as_secs_f64();
    let (received, sent) = (rate(received), rate(sent));
    println!("\nrates: {received:.0} received a second, {sent:.0} sent a second");
    Ok(())
}

/// From a socket to another one, each packet checked.
fn receive(mode: Mode) -> Result<Duration> {
    let lab = Lab::new()?;
    let (from, to) = (umem_builder().build()?, umem_builder().build()?);
    let mut rx = lab.rx.open(&to, mode, |builder| builder.tx_ring(0))?;
    let mut tx = lab.tx.open(&from, mode, |builder| builder.rx_ring(0))?;
    let begin = Instant::now();
    deliver(&mut tx, &mut rx, PACKETS, packet::MIN)?;
    Ok(begin.elapsed())
}

/// To a peer outside, which has no part in the time.
fn send(mode: Mode) -> Result<Duration> {
    let (umem, outside) = (umem_builder().build()?, Outside::new()?);
    let mut socket = outside.near.open(&umem, mode, |builder| builder)?;
    let begin = Instant::now();
    let mut sequence = 0;
    let all_sent = wait_until(STALL * 6, || {
        while sequence < PACKETS && socket.tx_room() > 0 {
            let Some(mut frame) = socket.alloc() else {
                break;
            };
            packet::fill(&mut frame, 0, sequence, packet::MIN);
            assert!(socket.send(frame).is_ok(), "there was room in the ring");
            sequence += 1;
        }
        socket.flush().expect("flush");
        socket.reclaim();
        sequence == PACKETS && socket.outstanding() == 0
    });
    assert!(all_sent, "{} packets never completed", socket.outstanding());
    let time = begin.elapsed();
    drop(socket);
    outside.end()?;
    Ok(time)
}
