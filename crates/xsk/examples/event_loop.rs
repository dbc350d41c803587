//! Receives from a socket in an event loop, beside another descriptor, here standard input:
//! `event_loop DEVICE`. A line ends it.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::stdin;
use std::time::Duration;
use xsk::{Interest, Socket, Umem};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = std::env::args().nth(1).ok_or("usage: event_loop DEVICE")?;
    let umem = Umem::builder().build()?;
    let mut socket = Socket::builder(&umem, &device, 0).tx_ring(0).open()?;

    let input = stdin();
    let mut packets = 0;
    loop {
        // Before each sleep: it refills FILL, wakes the driver, and limits the sleep.
        let ready = socket.prepare_to_wait(Interest::Receive)?;
        let most = if ready.receive {
            Some(Duration::ZERO)
        } else {
            ready.sleep_at_most
        };
        let most = most.map(Timespec::try_from).transpose()?;
        let mut both = [
            PollFd::new(&socket, PollFlags::IN),
            PollFd::new(&input, PollFlags::IN),
        ];
        poll(&mut both, most.as_ref())?;
        if !both[1].revents().is_empty() {
            break;
        }
        packets += socket.recv(64).len();
    }
    println!("{packets} packets");
    Ok(())
}
