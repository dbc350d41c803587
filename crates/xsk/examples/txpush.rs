//! Sends frames of 64 bytes from one queue of a device: `txpush DEVICE [FRAMES]`.

use std::time::{Duration, Instant};
use xsk::{Socket, Umem};

/// Broadcast, from a local address, with the Ethernet type for experiments.
const HEADER: [u8; 14] = *b"\xff\xff\xff\xff\xff\xff\x02\0\0\0\0\x01\x88\xb5";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let device = args.next().ok_or("usage: txpush DEVICE [FRAMES]")?;
    let frames: u64 = args.next().map_or(Ok(1_000_000), |frames| frames.parse())?;

    let umem = Umem::builder().build()?;
    // Without an RX ring no XDP program is attached, so the host keeps its packets.
    let mut socket = Socket::builder(&umem, &device, 0).rx_ring(0).open()?;
    println!("{device}: mode {}", socket.mode());

    let mut packet = [0; 64];
    packet[..14].copy_from_slice(&HEADER);
    let (mut sent, started) = (0, Instant::now());
    while sent < frames {
        while sent < frames && socket.tx_room() > 0 {
            // All chunks are on their way: flush, and take back those that the kernel has sent.
            let Some(mut frame) = socket.alloc() else {
                break;
            };
            packet[14..22].copy_from_slice(&sent.to_be_bytes());
            frame.fill_with(&packet)?;
            socket.send(frame).map_err(|refused| refused.to_string())?;
            sent += 1;
        }
        socket.flush()?;
    }
    while socket.outstanding() > 0 && started.elapsed() < Duration::from_secs(60) {
        socket.flush()?;
        socket.reclaim();
    }
    let rate = sent as f64 / started.elapsed().as_secs_f64();
    let dropped = socket.statistics()?.send_drops;
    println!("{sent} frames, {rate:.0} a second, {dropped} sends with a drop");
    Ok(())
}
