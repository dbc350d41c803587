//! Sends each packet back, and prints what the driver knew of it and when the answer left:
//! `cargo run --example metadata -- DEVICE [PACKETS]`.

use std::time::{Duration, Instant};
use xsk::{Result, Socket, TxRequest, Umem};

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let device = args.next().unwrap_or_else(|| "eth0".into());
    let packets = args.next().and_then(|it| it.parse().ok()).unwrap_or(10);

    let umem = Umem::builder().tx_metadata(true).build()?;
    let mut socket = Socket::builder(&umem, &device, 0).rx_hints(true).open()?;
    for refusal in socket.refusals() {
        println!("{refusal}");
    }
    let can_tell = socket.tx_support().timestamp;

    let mut seen = 0;
    while seen < packets {
        socket.wait(Duration::from_millis(100))?;
        let mut batch = socket.recv(64);
        while let Some(mut packet) = batch.next_packet() {
            println!("packet {seen}: {:?}", packet.hints());
            if let Some(macs) = packet.get_mut(..12) {
                macs.rotate_left(6);
                let request = TxRequest::new();
                let request = if can_tell {
                    request.timestamp(seen)
                } else {
                    request
                };
                if let Err(error) = packet.send_with(&request) {
                    println!("packet {seen}: {error}");
                }
            }
            seen += 1;
        }
        drop(batch);
        socket.flush()?;
        print_times(&mut socket);
    }
    // The times of the last answers are there when they have left.
    let ended = Instant::now();
    while socket.outstanding() > 0 && ended.elapsed() < Duration::from_secs(1) {
        socket.flush()?;
        print_times(&mut socket);
    }
    Ok(())
}

fn print_times(socket: &mut Socket) {
    socket.reclaim();
    while let Some(time) = socket.take_tx_timestamp() {
        println!("answer {} left at {} ns", time.tag, time.nanoseconds);
    }
}
