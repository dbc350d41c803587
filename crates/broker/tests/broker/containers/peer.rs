//! The other end of the lab's cable.

use super::steps::{RECEIVED, SENT};
use crate::lab::Lab;
use crate::supervised::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use xsk::{Mode, Socket, Umem, Wait};

/// Sends a packet all the time, and counts those that come.
pub struct Peer {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Peer {
    pub fn start(lab: &Lab) -> Result<Self> {
        let socket = lab.at_peer(|| {
            let umem = Umem::builder().chunks(1024).build()?;
            let builder = Socket::builder(&umem, "peer0", 0).mode(Mode::Driver);
            builder.wait(Wait::Poll).open()
        })?;
        let ends = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ends);
        let thread = std::thread::spawn(move || {
            work(socket, &told).unwrap_or_else(|error| {
                eprintln!("the peer: {error}");
                0
            })
        });
        Ok(Self {
            ends,
            thread: Some(thread),
        })
    }

    /// Ends it; how many packets came.
    pub fn end(mut self) -> u64 {
        self.join()
    }

    fn join(&mut self) -> u64 {
        self.ends.store(true, Ordering::Relaxed);
        let thread = self.thread.take();
        thread.and_then(|it| it.join().ok()).unwrap_or(0)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.join();
    }
}

fn work(mut socket: Socket, ends: &AtomicBool) -> Result<u64> {
    let mut bytes = [0; 64];
    bytes[..6].fill(0xff);
    bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 0xb]);
    bytes[12..14].copy_from_slice(&RECEIVED.to_be_bytes());
    let mut count = 0;
    while !ends.load(Ordering::Relaxed) {
        if let Some(mut frame) = socket.alloc() {
            frame.fill_with(&bytes)?;
            let _ = socket.send(frame);
        }
        socket.flush()?;
        socket.wait(Duration::from_millis(5))?;
        let mut batch = socket.recv(64);
        while let Some(packet) = batch.next_packet() {
            count += u64::from(packet.get(12..14) == Some(&SENT.to_be_bytes()));
        }
    }
    Ok(count)
}
