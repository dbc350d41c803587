//! Receives packets from one queue of a device and counts them: `rxdrop DEVICE [QUEUE]`.

use std::time::{Duration, Instant};
use xsk::{Socket, Umem};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let device = args.next().ok_or("usage: rxdrop DEVICE [QUEUE]")?;
    let queue = args.next().map_or(Ok(0), |queue| queue.parse())?;

    let umem = Umem::builder().build()?;
    let mut socket = Socket::builder(&umem, &device, queue).tx_ring(0).open()?;
    println!("{device} queue {queue}: mode {}", socket.mode());
    for refusal in socket.refusals() {
        println!("  {refusal}");
    }

    let (mut packets, mut bytes, mut shown) = (0_u64, 0_u64, Instant::now());
    loop {
        socket.wait(Duration::from_secs(1))?;
        let mut batch = socket.recv(64);
        while let Some(packet) = batch.next_packet() {
            packets += 1;
            bytes += packet.len() as u64;
        }
        drop(batch);
        if shown.elapsed() >= Duration::from_secs(1) {
            println!("{packets} packets/s, {bytes} bytes/s");
            (packets, bytes, shown) = (0, 0, Instant::now());
        }
    }
}
