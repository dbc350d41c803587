//! Writes the packets of all queues of a device to a file, with the card's times if it has them: `pcap DEVICE FILE [SECONDS]`.
//! Prints the counters of the sockets each second.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::sync::mpsc::{Receiver, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, SystemTime};
use xsk::{OwnedPacket, Port};

/// The packets of a batch, and the time at which it was read.
type Burst = (Duration, Vec<OwnedPacket>);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (device, file) = args
        .next()
        .zip(args.next())
        .ok_or("usage: pcap DEVICE FILE [SECONDS]")?;
    let seconds: u64 = args.next().map_or(Ok(10), |seconds| seconds.parse())?;
    let port = Port::builder(&device)
        .sockets(|socket| socket.tx_ring(0).rx_hints(true))
        .open()?;

    let (give, take) = sync_channel(64);
    let file = File::create(file)?;
    let writer = thread::spawn(move || write(file, &take));
    let (counters, stop) = (port.statistics_handles(), port.stop_flag());
    let printer = thread::spawn(move || -> xsk::Result<()> {
        for _ in 0..seconds {
            thread::sleep(Duration::from_secs(1));
            for socket in &counters {
                let now = socket.statistics()?;
                let lost = now.rx_dropped + now.rx_ring_full;
                println!(
                    "queue {}: {} received, {lost} lost",
                    socket.queue(),
                    now.received
                );
            }
        }
        stop.raise();
        Ok(())
    });

    let unwritten = port.run(|socket, stop| -> xsk::Result<usize> {
        let mut unwritten = 0;
        while !stop.is_raised() {
            socket.wait(Duration::from_millis(100))?;
            let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
            let packets: Vec<_> = socket.recv(64).collect();
            // When the writer is late, the file lacks packets.
            if let Err(
                TrySendError::Full((_, packets)) | TrySendError::Disconnected((_, packets)),
            ) = give.try_send((now, packets))
            {
                unwritten += packets.len();
                socket.free_frames(packets.into_iter().map(OwnedPacket::into_frame));
            }
        }
        Ok(unwritten)
    })?;
    drop(give);
    let written = writer.join().expect("it does not panic")?;
    printer.join().expect("it does not panic")?;
    let unwritten: usize = unwritten.iter().map(|(_, packets)| packets).sum();
    println!("{written} packets written, {unwritten} not");
    Ok(())
}

/// Writes a file of the form of libpcap, with nanoseconds; returns the number of packets.
fn write(file: File, bursts: &Receiver<Burst>) -> io::Result<u64> {
    const ETHERNET: u32 = 1;
    let mut file = BufWriter::new(file);
    for word in [0xa1b2_3c4d, 4 << 16 | 2, 0, 0, 0x4_0000, ETHERNET] {
        file.write_all(&word.to_le_bytes())?;
    }
    let mut written = 0;
    for (read_at, packets) in bursts {
        for packet in packets {
            let time = packet
                .hints()
                .timestamp
                .map_or(read_at, Duration::from_nanos);
            let len = packet.len() as u32;
            for word in [time.as_secs() as u32, time.subsec_nanos(), len, len] {
                file.write_all(&word.to_le_bytes())?;
            }
            file.write_all(&packet)?;
            written += 1;
        }
    }
    file.flush()?;
    Ok(written)
}
