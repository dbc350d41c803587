//! Answers UDP packets to port 53, over IPv4 and IPv6, on all queues of a device, with a task of tokio for
//! each: `udp_echo DEVICE`. All other packets reach the network stack. Packets to port 53 are taken whatever their
//! destination; `Rule::destination` takes those of one address.

mod answer;

use tokio::runtime::Builder;
use xsk::{AsyncSocket, Device, Filter, Interest, Rule, Socket, Umem};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = std::env::args().nth(1).ok_or("usage: udp_echo DEVICE")?;
    let sockets = open(&device)?;
    println!("{} queues, mode {}", sockets.len(), sockets[0].mode());
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let tasks: Vec<_> = sockets
        .into_iter()
        .map(|socket| runtime.spawn(serve(socket)))
        .collect();
    for task in tasks {
        runtime.block_on(task)??;
    }
    Ok(())
}

/// Opens a socket on each queue. They share a UMEM and the program of the first.
pub fn open(device: &str) -> Result<Vec<Socket>, Box<dyn std::error::Error>> {
    let queues = Device::lookup(device)?.rx_queues;
    let umem = Umem::builder().chunks(4096 * queues).build()?;
    let dns = Filter::any([Rule::udp().destination_port(53)]);
    let first = Socket::builder(&umem, device, 0).filter(dns).open()?;
    let program = first.program().cloned().ok_or("no program")?;
    let others = (1..queues).map(|queue| {
        let builder = Socket::builder(&umem, device, queue);
        builder.program(&program).open()
    });
    let sockets: xsk::Result<_> = std::iter::once(Ok(first)).chain(others).collect();
    Ok(sockets?)
}

/// Answers the packets of one queue, for ever.
pub async fn serve(socket: Socket) -> xsk::Result<()> {
    let mut socket = AsyncSocket::new(socket)?;
    loop {
        // A packet is received only when its answer has room.
        let room = socket
            .ready(Interest::Send)
            .await
            .map(|_| socket.tx_room())?;
        socket.ready(Interest::Receive).await?;
        let mut batch = socket.recv(room.min(64));
        while let Some(packet) = batch.next_packet() {
            // Without a TX ring or room, an answer is lost.
            let _ = answer::answer(packet);
        }
        drop(batch);
        socket.flush()?;
    }
}
