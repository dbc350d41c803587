//! Connects two devices over one UMEM, so that no packet is copied between them:
//! `shared_umem DEVICE DEVICE`.

use std::time::Duration;
use xsk::{Socket, Umem, Wait, checksum};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let usage = "usage: shared_umem DEVICE DEVICE";
    let (left, right) = (args.next().ok_or(usage)?, args.next().ok_or(usage)?);

    let umem = Umem::builder().chunks(8192).build()?;
    let mut left = Socket::builder(&umem, &left, 0).wait(Wait::Poll).open()?;
    let mut right = Socket::builder(&umem, &right, 0).wait(Wait::Poll).open()?;
    println!(
        "left in mode {}, right in mode {}",
        left.mode(),
        right.mode()
    );

    loop {
        let there = forward(&mut left, &mut right)?;
        let back = forward(&mut right, &mut left)?;
        if there + back == 0 {
            // A program for more than two devices adds the sockets, which are `AsFd`, to its event
            // loop.
            left.wait(Duration::from_micros(100))?;
        }
    }
}

/// Forwards the received packets of one socket through the other; returns their number.
fn forward(from: &mut Socket, to: &mut Socket) -> xsk::Result<usize> {
    let mut batch = from.recv(64);
    let packets = batch.len();
    while let Some(mut packet) = batch.next_packet() {
        // Local senders and virtual machines leave sums unfinished, which only their own kernel knows.
        checksum::complete(&mut packet);
        // When the TX ring is full, the packet is dropped and its chunk recycled.
        let _ = packet.send_on(to);
    }
    drop(batch);
    to.flush()?;
    Ok(packets)
}
