//! Receives on every queue of a device, one thread each: `queues DEVICE [SECONDS]`.

use std::time::{Duration, Instant};
use xsk::Port;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let device = args.next().ok_or("usage: queues DEVICE [SECONDS]")?;
    let seconds: u64 = args.next().map_or(Ok(10), |seconds| seconds.parse())?;

    // A socket on each queue, with a UMEM of its own.
    let port = Port::builder(&device)
        .sockets(|socket| socket.tx_ring(0))
        .open()?;

    let end = Instant::now() + Duration::from_secs(seconds);
    // When a worker fails, the others stop, and the error names its queue.
    let counts = port.run(|socket, stop| -> xsk::Result<u64> {
        let mut packets = 0;
        while !stop.is_raised() && Instant::now() < end {
            socket.wait(Duration::from_millis(100))?;
            packets += socket.recv(64).len() as u64;
        }
        Ok(packets)
    })?;
    for (queue, packets) in counts {
        println!("queue {queue}: {packets} packets");
    }
    Ok(())
}
