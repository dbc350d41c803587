//! Takes the packets to one UDP port and counts them, while all others reach the network stack:
//! `filter DEVICE PORT [QUEUE]`.

use std::time::Duration;
use xsk::{Filter, Rule, Socket, Umem};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let usage = "usage: filter DEVICE PORT [QUEUE]";
    let (device, port) = args.next().zip(args.next()).ok_or(usage)?;
    let queue = args.next().map_or(Ok(0), |queue| queue.parse())?;

    let rule = Rule::udp().destination_port(port.parse()?);
    let umem = Umem::builder().build()?;
    let mut socket = Socket::builder(&umem, &device, queue)
        .filter(Filter::any([rule]))
        .tx_ring(0)
        .open()?;

    let mut packets = 0_u64;
    loop {
        if socket.wait(Duration::from_secs(1))? {
            let mut batch = socket.recv(64);
            while batch.next_packet().is_some() {
                packets += 1;
            }
        } else {
            println!("{packets} packets to UDP port {port}");
        }
    }
}
