//! The moves of `count.c` in Rust.

use std::hint::black_box;
use std::time::Duration;
use xsk::{Frame, Socket, Umem};

/// Rounds, and packets in each; as in `count.c`.
const ROUNDS: u32 = 128;
const BATCH: u32 = 64;

/// Name, the counted part, and whether it sends on the one socket, or receives on the other.
type Move = (&'static str, fn(&mut Socket, &mut Vec<Frame>) -> u32, bool);

/// Those that C has, too; it has none of packets one by one.
pub const IN_C: [&str; 6] = [
    "receive_each",
    "forward_each",
    "send_each",
    "receive_frames",
    "forward_frames",
    "send_frames",
];

pub const MOVES: [Move; 9] = [
    ("receive_each", receive_each, false),
    ("forward_each", forward_each, false),
    ("send_each", send_each, true),
    ("receive_frames", receive_frames, false),
    ("forward_frames", forward_frames, false),
    ("send_frames", send_frames, true),
    ("receive", receive, false),
    ("forward", forward, false),
    ("send", send, true),
];

fn receive_each(socket: &mut Socket, _: &mut Vec<Frame>) -> u32 {
    let mut sum = 0;
    let count = socket.receive_each(BATCH, |packet| {
        sum += packet.len() + usize::from(packet[0]);
        packet.recycle()
    });
    black_box(sum);
    count
}

fn swap_addresses(packet: &mut [u8]) {
    if let Some(addresses) = packet.get_mut(..12) {
        let (to, from) = addresses.split_at_mut(6);
        to.swap_with_slice(from);
    }
}

fn flush(socket: &mut Socket, count: u32) -> u32 {
    socket.flush().expect("the device is up");
    count
}

fn forward_each(socket: &mut Socket, _: &mut Vec<Frame>) -> u32 {
    let count = socket.forward_each(BATCH, |mut packet| {
        swap_addresses(&mut packet);
        packet.send()
    });
    flush(socket, count)
}

fn send_each(socket: &mut Socket, _: &mut Vec<Frame>) -> u32 {
    let count = socket.send_each(BATCH, |_| 64);
    flush(socket, count)
}

fn receive_frames(socket: &mut Socket, frames: &mut Vec<Frame>) -> u32 {
    let count = socket.recv_frames(frames, BATCH);
    let sum = frames.iter().map(|it| it.len() + usize::from(it[0]));
    black_box(sum.sum::<usize>());
    socket.free_frames(frames.drain(..));
    count as u32
}

fn forward_frames(socket: &mut Socket, frames: &mut Vec<Frame>) -> u32 {
    socket.recv_frames(frames, BATCH);
    for frame in frames.iter_mut() {
        swap_addresses(frame);
    }
    let count = socket.send_frames(frames);
    flush(socket, count as u32)
}

fn send_frames(socket: &mut Socket, frames: &mut Vec<Frame>) -> u32 {
    for mut frame in std::iter::from_fn(|| socket.alloc()).take(BATCH as usize) {
        frame.resize(64).expect("there is room");
        frames.push(frame);
    }
    let count = socket.send_frames(frames);
    flush(socket, count as u32)
}

fn receive(socket: &mut Socket, _: &mut Vec<Frame>) -> u32 {
    let mut batch = socket.recv(BATCH);
    let (mut sum, mut count) = (0, 0);
    while let Some(packet) = batch.next_packet() {
        sum += packet.len() + usize::from(packet[0]);
        count += 1;
    }
    black_box(sum);
    count
}

fn forward(socket: &mut Socket, _: &mut Vec<Frame>) -> u32 {
    let mut batch = socket.recv(BATCH);
    let mut count = 0;
    while let Some(mut packet) = batch.next_packet() {
        swap_addresses(&mut packet);
        packet.send().expect("TX has room");
        count += 1;
    }
    drop(batch);
    flush(socket, count)
}

fn send(socket: &mut Socket, _: &mut Vec<Frame>) -> u32 {
    for _ in 0..BATCH {
        let mut frame = socket.alloc().expect("a free chunk");
        frame.resize(64).expect("there is room");
        socket.send(frame).expect("TX has room");
    }
    flush(socket, BATCH)
}

/// The part that is counted, by its name in C.
#[allow(unsafe_code)] // The name is for Callgrind.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn counted(index: usize, socket: &mut Socket, frames: &mut Vec<Frame>) -> u32 {
    MOVES[index].1(socket, frames)
}

fn drain(socket: &mut Socket) {
    let mut empty = 0;
    while empty < 3 {
        // The method alone is of one lifetime, and each packet has its own.
        #[expect(clippy::redundant_closure_for_method_calls)]
        let count = socket.receive_each(BATCH, |packet| packet.recycle());
        empty = if count > 0 { 0 } else { empty + 1 };
    }
}

/// As `main` of `count.c`.
pub fn run(device: &str, peer: &str, name: &str) -> xsk::Result<()> {
    let index = MOVES.iter().position(|it| it.0 == name);
    let index = index.expect("a move of the table");
    let sends = MOVES[index].2;
    let umem = Umem::builder().chunks(16384).headroom(16).build()?;
    let mut here = Socket::builder(&umem, device, 0).open()?;
    let mut there = Socket::builder(&umem, peer, 0).open()?;
    let mut frames = Vec::with_capacity(BATCH as usize);
    let mut moved = 0;
    for _ in 0..ROUNDS {
        if !sends {
            send_each(&mut here, &mut frames);
            there.wait(Duration::from_secs(1))?;
        }
        let socket = if sends { &mut here } else { &mut there };
        moved += counted(black_box(index), socket, &mut frames);
        drain(if sends { &mut there } else { &mut here });
    }
    assert!(moved > ROUNDS * BATCH / 2, "most were there in time");
    println!("{moved} packets");
    Ok(())
}
