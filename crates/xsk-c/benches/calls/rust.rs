//! The moves of `count.c` in Rust.

use std::hint::black_box;
use xsk::{Frame, Socket, Umem};

/// Rounds, and packets in each; as in `count.c`.
pub const ROUNDS: u32 = 128;
pub const BATCH: u32 = 64;

/// Name, the counted part, and whether it sends on the one socket, or receives on the other.
type Move = (&'static str, fn(&mut Socket, &mut Vec<Frame>), bool);

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

fn receive_each(socket: &mut Socket, _: &mut Vec<Frame>) {
    let mut sum = 0;
    socket.receive_each(BATCH, |packet| {
        sum += packet.as_ptr() as usize + packet.len();
        packet.recycle()
    });
    black_box(sum);
}

fn forward_each(socket: &mut Socket, _: &mut Vec<Frame>) {
    // The method alone is of one lifetime, and each packet has its own.
    #[expect(clippy::redundant_closure_for_method_calls)]
    socket.forward_each(BATCH, |packet| packet.send());
}

fn send_each(socket: &mut Socket, _: &mut Vec<Frame>) {
    socket.send_each(BATCH, |_| 64);
}

fn receive_frames(socket: &mut Socket, frames: &mut Vec<Frame>) {
    socket.recv_frames(frames, BATCH);
    let places = frames.iter().map(|it| it.as_ptr() as usize + it.len());
    black_box(places.sum::<usize>());
    socket.free_frames(frames.drain(..));
}

fn forward_frames(socket: &mut Socket, frames: &mut Vec<Frame>) {
    socket.recv_frames(frames, BATCH);
    socket.send_frames(frames);
}

fn send_frames(socket: &mut Socket, frames: &mut Vec<Frame>) {
    for mut frame in std::iter::from_fn(|| socket.alloc()).take(BATCH as usize) {
        frame.resize(64).expect("there is room");
        frames.push(frame);
    }
    socket.send_frames(frames);
}

fn receive(socket: &mut Socket, _: &mut Vec<Frame>) {
    let mut batch = socket.recv(BATCH);
    let mut sum = 0;
    while let Some(packet) = batch.next_packet() {
        sum += packet.as_ptr() as usize + packet.len();
    }
    black_box(sum);
}

fn forward(socket: &mut Socket, _: &mut Vec<Frame>) {
    let mut batch = socket.recv(BATCH);
    while let Some(packet) = batch.next_packet() {
        packet.send().expect("TX has room");
    }
}

fn send(socket: &mut Socket, _: &mut Vec<Frame>) {
    for _ in 0..BATCH {
        let mut frame = socket.alloc().expect("a free chunk");
        frame.resize(64).expect("there is room");
        socket.send(frame).expect("TX has room");
    }
}

/// The part that is counted, by its name in C.
#[allow(unsafe_code)] // The name is for Callgrind.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn counted(index: usize, socket: &mut Socket, frames: &mut Vec<Frame>) {
    MOVES[index].1(socket, frames);
}

fn drain(socket: &mut Socket) -> xsk::Result<()> {
    socket.flush()?;
    // The method alone is of one lifetime, and each packet has its own.
    #[expect(clippy::redundant_closure_for_method_calls)]
    while socket.receive_each(BATCH, |packet| packet.recycle()) > 0 {}
    Ok(())
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
    for _ in 0..ROUNDS {
        if !sends {
            here.send_each(BATCH, |_| 64);
            here.flush()?;
            here.reclaim();
        }
        let socket = if sends { &mut here } else { &mut there };
        counted(black_box(index), socket, &mut frames);
        drain(&mut here)?;
        there.flush()?;
        drain(if sends { &mut there } else { &mut here })?;
        here.reclaim();
        there.reclaim();
    }
    assert_eq!(there.statistics()?.received, u64::from(ROUNDS * BATCH));
    Ok(())
}
