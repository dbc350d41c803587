//! Sends every packet back where it came from, with its MAC addresses swapped:
//! `l2fwd DEVICE [QUEUE [broker]]`. With `broker` the socket is one of weir-broker, and this program
//! needs no privilege.

use std::time::Duration;
use xsk::{Socket, Umem};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let device = args.next().ok_or("usage: l2fwd DEVICE [QUEUE [broker]]")?;
    let queue = args.next().map_or(Ok(0), |queue| queue.parse())?;

    let mut socket = if args.next().as_deref() == Some("broker") {
        Socket::from_broker(&device, queue)?
    } else {
        let umem = Umem::builder().build()?;
        Socket::builder(&umem, &device, queue).open()?
    };
    println!("{device} queue {queue}: mode {}", socket.mode());

    loop {
        socket.wait(Duration::from_secs(1))?;
        let mut batch = socket.recv(64);
        while let Some(mut packet) = batch.next_packet() {
            let Some((to, from)) = packet.get_mut(..12).map(|macs| macs.split_at_mut(6)) else {
                continue; // shorter than an Ethernet header: recycled
            };
            to.swap_with_slice(from);
            // When the TX ring is full, the packet is dropped and its chunk recycled.
            let _ = packet.send();
        }
        drop(batch);
        socket.flush()?;
    }
}
