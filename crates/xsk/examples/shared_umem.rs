//! Connects two devices over one UMEM, so that no packet is copied between them:
//! `shared_umem DEVICE DEVICE`.

use std::time::Duration;
use xsk::{Socket, Umem, Wait};

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
            // A program for more than two devices would put the sockets, which are `AsFd`,
            // into its event loop.
            left.wait(Duration::from_micros(100))?;
        }
    }
}

/// Moves what has arrived on one socket to the other, and tells how many packets that were.
fn forward<'u>(from: &mut Socket<'u>, to: &mut Socket<'u>) -> xsk::Result<usize> {
    let mut batch = from.recv(64);
    let packets = batch.len();
    while let Some(packet) = batch.next_packet() {
        // A full ring hands the packet back, and dropping it recycles it.
        let _ = packet.send_on(to);
    }
    drop(batch);
    to.flush()?;
    Ok(packets)
}
