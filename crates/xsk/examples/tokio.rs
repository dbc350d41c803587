//! Receives from a socket in a task of tokio, beside a timer: `tokio DEVICE [SECONDS]`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::runtime::Builder;
use xsk::{AsyncSocket, Interest, Socket, Umem};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let device = arguments.next().ok_or("usage: tokio DEVICE [SECONDS]")?;
    let seconds: u64 = arguments.next().map_or(Ok(10), |seconds| seconds.parse())?;
    let umem = Umem::builder().build()?;
    let socket = Socket::builder(&umem, &device, 0).tx_ring(0).open()?;

    let runtime = Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let packets = Arc::new(AtomicUsize::new(0));
        let receiving = tokio::spawn(receive(socket, Arc::clone(&packets)));
        for _ in 0..seconds {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if receiving.is_finished() {
                return Ok(receiving.await??);
            }
            println!("{} packets", packets.load(Ordering::Relaxed));
        }
        Ok(())
    })
}

/// Counts packets, for ever.
async fn receive(socket: Socket, packets: Arc<AtomicUsize>) -> xsk::Result<()> {
    let mut socket = AsyncSocket::new(socket)?;
    loop {
        socket.ready(Interest::Receive).await?;
        packets.fetch_add(socket.recv(64).len(), Ordering::Relaxed);
    }
}
