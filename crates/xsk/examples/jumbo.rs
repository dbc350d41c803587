//! Returns each packet to its sender, jumbo frames as well.
//!
//! `cargo run --example jumbo -- DEVICE`; `ip link set dev DEVICE mtu 9000` first.

use std::time::Duration;
use xsk::{Socket, Umem};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = std::env::args().nth(1).ok_or("usage: jumbo DEVICE")?;
    let umem = Umem::builder().fragments(true).build()?;
    let mut socket = Socket::builder(&umem, &device, 0).open()?;
    println!("{device}: mode {}", socket.mode());
    loop {
        socket.wait(Duration::from_secs(1))?;
        let mut batch = socket.recv(64);
        while let Some(mut packet) = batch.next_fragments() {
            // The first of its frames has the headers.
            if let Some(addresses) = packet.frames_mut()[0].get_mut(..12) {
                addresses.rotate_left(6);
                // When the TX ring is full, the packet is dropped.
                let _ = batch.send_fragments(packet);
            }
        }
        drop(batch);
        socket.flush()?;
    }
}
