//! Hands a socket to another process, which needs no privilege: `hand_over give DEVICE PATH` waits for
//! one client at a Unix socket, and `hand_over take PATH` is that client. It counts packets for a
//! second at a time.
#![allow(unsafe_code)] // Taking the socket over.

use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;
use xsk::{Parts, Socket, Umem};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["give", device, path] => give(device, path),
        ["take", path] => take(path),
        _ => Err("usage: hand_over give DEVICE PATH | hand_over take PATH".into()),
    }
}

fn give(device: &str, path: &str) -> Result<(), Box<dyn std::error::Error>> {
    let umem = Umem::builder().build()?;
    let socket = Socket::builder(&umem, device, 0).tx_ring(0).open()?;
    let (client, _) = UnixListener::bind(path)?.accept()?;
    std::fs::remove_file(path)?;
    socket.into_parts()?.send(&client)?;
    // From here on this process is not needed.
    Ok(())
}

fn take(path: &str) -> Result<(), Box<dyn std::error::Error>> {
    let parts = Parts::receive(&UnixStream::connect(path)?)?;
    // SAFETY: `give` of this program listens at the path: it sends the parts once, and ends.
    let mut socket = unsafe { Socket::from_parts(parts) }?;
    println!("queue {}, mode {}", socket.queue(), socket.mode());
    loop {
        let before = socket.statistics()?.received;
        let second = std::time::Instant::now();
        while let Some(left) = Duration::from_secs(1).checked_sub(second.elapsed()) {
            socket.wait(left)?;
            drop(socket.recv(64));
        }
        println!("{} packets", socket.statistics()?.received - before);
    }
}
