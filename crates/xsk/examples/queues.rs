//! Receives on every queue of a device, one thread each: `queues DEVICE QUEUES [SECONDS]`.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};
use xsk::{Socket, Umem};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let usage = "usage: queues DEVICE QUEUES [SECONDS]";
    let (device, queues) = (args.next().ok_or(usage)?, args.next().ok_or(usage)?);
    let queues: u32 = queues.parse()?;
    let seconds: u64 = args.next().map_or(Ok(10), |seconds| seconds.parse())?;

    let umem = Umem::builder().chunks(4096 * queues).build()?;
    // The first socket attaches the program; the others share it.
    let first = Socket::builder(&umem, &device, 0).tx_ring(0).open()?;
    let program = first.program().ok_or("no program")?.clone();
    let mut sockets = vec![first];
    for queue in 1..queues {
        let builder = Socket::builder(&umem, &device, queue).tx_ring(0);
        sockets.push(builder.program(&program).open()?);
    }

    let end = Instant::now() + Duration::from_secs(seconds);
    let output = Mutex::new(());
    thread::scope(|scope| {
        for socket in sockets {
            scope.spawn(|| {
                let (queue, packets) = (socket.queue(), count(socket, end));
                let _one_line_at_a_time = output.lock();
                match packets {
                    Ok(packets) => println!("queue {queue}: {packets} packets"),
                    Err(error) => eprintln!("queue {queue}: {error}"),
                }
            });
        }
    });
    Ok(())
}

/// Receives until `end`, in a thread that owns the socket.
fn count(mut socket: Socket<'_>, end: Instant) -> xsk::Result<usize> {
    let mut packets = 0;
    while Instant::now() < end {
        socket.wait(Duration::from_millis(100))?;
        packets += socket.recv(64).len();
    }
    Ok(packets)
}
