//! Returns packets to their senders in an event loop by mio, beside standard input: `mio DEVICE`. A line
//! ends it.

use mio::unix::SourceFd;
use mio::{Events, Poll, Token};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::time::Duration;
use xsk::{Interest, Socket, Umem};

const SOCKET: Token = Token(0);
const INPUT: Token = Token(1);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = std::env::args().nth(1).ok_or("usage: mio DEVICE")?;
    let umem = Umem::builder().build()?;
    let mut socket = Socket::builder(&umem, &device, 0).open()?;
    let mut poll = Poll::new()?;
    // The socket's descriptor is readable for whatever `prepare_to_wait` was last asked for.
    for (fd, token) in [
        (socket.as_raw_fd(), SOCKET),
        (std::io::stdin().as_raw_fd(), INPUT),
    ] {
        let readable = mio::Interest::READABLE;
        poll.registry()
            .register(&mut SourceFd(&fd), token, readable)?;
    }

    let (mut packets, mut events) = (0, Events::with_capacity(2));
    loop {
        // mio reports edges, so the rings are looked at before each sleep. The other input has its turn after each
        // batch, and not only when no packet is left.
        let ready = socket.prepare_to_wait(Interest::Receive)?;
        let most = if ready.receive {
            Some(Duration::ZERO)
        } else {
            ready.sleep_at_most
        };
        match poll.poll(&mut events, most) {
            // A stopped program goes on.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            polled => polled?,
        }
        if events.iter().any(|event| event.token() == INPUT) {
            break;
        }
        packets += reflect(&mut socket)?;
    }
    println!("{packets} packets");
    Ok(())
}

/// Returns a batch of packets to their senders; returns their number.
fn reflect(socket: &mut Socket) -> xsk::Result<usize> {
    let mut batch = socket.recv(64);
    let packets = batch.len();
    while let Some(mut packet) = batch.next_packet() {
        if let Some((to, from)) = packet.get_mut(..12).map(|macs| macs.split_at_mut(6)) {
            to.swap_with_slice(from);
            // When the TX ring is full, the packet is dropped and its chunk recycled.
            let _ = packet.send();
        }
    }
    drop(batch);
    socket.flush()?;
    Ok(packets)
}
