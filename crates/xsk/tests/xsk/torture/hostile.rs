//! A socket whose rings another process overwrites, which got a duplicate of the descriptor. The library must not
//! panic, hang, give a chunk to two, or lose one for good.
//!
//! Which packets arrive nobody can say: the kernel believes the rings too, and writes to any chunk in them. So the
//! socket has a device and a UMEM of its own, and only a socket opened after it must work.

use super::budget::SETTLE;
use super::failure::{Check, Result, ensure, fail};
use super::held::Hands;
use super::intruder::Process;
use super::lab;
use super::packet;
use super::plan::Plan;
use super::side::{Crew, Round};
use fastrand::Rng;
use hostnet::netns;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use testkit::Limit;
use xsk::{Accounting, Socket, Umem};

const CHUNKS: u32 = 256;

/// Longest time of the attack on one socket.
const ATTACK: Duration = Duration::from_millis(300);

/// Attacks one socket after another until the round is over.
pub fn run(plan: &Plan, round: &Round, crew: &Crew, [near, far]: [BorrowedFd<'_>; 2]) {
    let attacks = || {
        let mut random = Rng::with_seed(plan.seed ^ 2);
        let umem = |chunks| {
            Umem::builder()
                .chunks(chunks)
                .chunk_size(plan.chunk_size)
                .build()
        };
        let (umem, theirs) = (umem(CHUNKS)?, umem(CHUNKS)?);
        netns::enter(far)?;
        let mut peer = Peer(open(plan, &theirs, &mut random)?);
        netns::enter(near)?;
        while !round.is_over() {
            crew.turn();
            let mut socket = open(plan, &umem, &mut random)?;
            crew.is_ready.store(true, SeqCst);
            attack(&mut socket, &mut peer, crew, &mut random)?;
            drop(socket);
            all_found(&umem)?;
            works(&mut open(plan, &umem, &mut random)?, &mut peer)?;
            all_found(&umem)?;
        }
        Ok(())
    };
    crew.serve(round, "the attacked socket", attacks);
}

fn open(plan: &Plan, umem: &Umem, random: &mut Rng) -> xsk::Result<Socket> {
    let builder = Socket::builder(umem, &lab::name(0), 0);
    plan.socket(builder, random).open()
}

/// The socket at the far end, which nobody attacks.
struct Peer(Socket);

impl Peer {
    /// Sends packets as far as there is room, and drops those that came.
    fn send(&mut self, packets: u64) -> Result<()> {
        drop(self.0.recv(64));
        for sequence in 0..packets {
            let Some(mut frame) = self.0.alloc() else {
                break;
            };
            frame.resize(packet::MIN)?;
            packet::write(&mut frame, 0, sequence);
            // When TX is full, it is left out.
            let _ = self.0.send(frame);
        }
        Ok(self.0.flush()?)
    }
}

/// A socket gets a packet unchanged: the attack on the one before has no effect on it.
fn works(socket: &mut Socket, peer: &mut Peer) -> Result<()> {
    let mut limit = Limit::new(SETTLE);
    while !limit.is_over() {
        peer.send(1)?;
        socket.wait(Duration::from_millis(1))?;
        if let Some(packet) = socket.recv(1).next_packet() {
            return packet::check(&packet).map(drop);
        }
    }
    fail(
        Check::Balance,
        "nothing arrives at the socket opened after an attack",
    )
}

fn attack(socket: &mut Socket, peer: &mut Peer, crew: &Crew, random: &mut Rng) -> Result<()> {
    let umem = socket.umem().clone();
    let intruder = Process::start(socket, random)?;
    let used = use_socket(socket, peer, &Hands::of(&umem), crew, random);
    // It holds the socket open: it ends first.
    intruder.end()?;
    used
}

/// Uses the calls of the socket, and holds frames, of which no two may have the same chunk.
fn use_socket(
    socket: &mut Socket,
    peer: &mut Peer,
    hands: &Hands,
    crew: &Crew,
    random: &mut Rng,
) -> Result<()> {
    let (end, mut held) = (Instant::now() + ATTACK, Vec::new());
    while Instant::now() < end {
        crew.turn();
        peer.send(random.u64(..16))?;
        let mut batch = socket.recv(random.u32(1..=64));
        while let Some(packet) = batch.next_packet() {
            match random.u8(..4) {
                0 => held.push(hands.hold(packet.keep())?),
                1 => drop(packet.send()),
                _ => {}
            }
        }
        drop(batch);
        for _ in 0..random.u32(..16) {
            let Some(frame) = socket.alloc() else { break };
            let mut frame = hands.hold(frame)?;
            frame.frame().resize(packet::MIN)?;
            packet::write(frame.frame(), 0, 0);
            held.push(frame);
        }
        held.truncate(random.usize(..32));
        if let Some(frame) = held.pop() {
            drop(socket.send(frame.give_back()));
        }
        // The errors that the kernel returns for such rings are no matter here.
        let _ = socket.flush();
        let _ = socket.wait(Duration::from_micros(random.u64(..500)));
        let sum = sum(socket.umem().accounting());
        ensure(sum == CHUNKS, Check::Chunks, || {
            format!("{sum} of {CHUNKS} chunks under attack")
        })?;
    }
    Ok(())
}

fn sum(count: Accounting) -> u32 {
    count.free + count.held + count.receiving + count.sending + count.retired
}

/// Every chunk is free when the socket is closed, but for those that the kernel may still send.
fn all_found(umem: &Umem) -> Result<()> {
    let count = umem.accounting();
    ensure(count.free + count.retired == CHUNKS, Check::Chunks, || {
        format!("of {CHUNKS} chunks after an attack: {count:?}")
    })
}
