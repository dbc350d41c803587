//! Receives from a socket in an event loop, beside another descriptor, here standard input:
//! `event_loop DEVICE`. A line ends it.

use rustix::event::{PollFd, PollFlags, poll};
use std::io::stdin;
use xsk::{Socket, Umem};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = std::env::args().nth(1).ok_or("usage: event_loop DEVICE")?;
    let umem = Umem::builder().build()?;
    let mut socket = Socket::builder(&umem, &device, 0).tx_ring(0).open()?;

    let input = stdin();
    let mut packets = 0;
    loop {
        let [socket_ready, input_ready] = {
            let mut both = [
                PollFd::new(&socket, PollFlags::IN),
                PollFd::new(&input, PollFlags::IN),
            ];
            poll(&mut both, None)?;
            both.map(|it| !it.revents().is_empty())
        };
        if input_ready {
            break;
        }
        if socket_ready {
            // Until the ring is empty: then every chunk is back in FILL before the next poll.
            loop {
                let batch = socket.recv(64);
                if batch.is_empty() {
                    break;
                }
                packets += batch.len();
            }
        }
    }
    println!("{packets} packets");
    Ok(())
}
