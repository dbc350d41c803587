//! No chunk has two owners, whatever safe code does with descriptors, maps, threads and children.
//!
//! Each of these programs once let the kernel write to frames that a program owned. Those of children
//! and hidden map entries reach behind the library: it must not depend on nobody holding a descriptor.
#![allow(unsafe_code)] // `pre_exec`, to keep a child between fork and exec.

use crate::budget::{STALL, rounds};
use crate::netns::Lab;
use crate::traffic::{all_home, deliver};
use crate::{Outcome, Result, packet};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use std::io::{self, IoSlice, IoSliceMut, PipeWriter, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, ScopedJoinHandle};
use std::time::Duration;
use testkit::limit::longest;
use testkit::{Test, wait_until};
use xsk::testing::programs::{self, Kind};
use xsk::testing::raw;
use xsk::{AttachMode, Frame, Mode, Program, Socket, SocketBuilder, Umem};

/// A slot that no queue's number names.
const SLOT: u32 = 5;

pub fn tests() -> Vec<Test> {
    let mut tests = vec![
        Test::new(
            "the descriptor for event loops is not the socket",
            descriptor,
        ),
        Test::new(
            "a socket leaves the map of another loader when it closes",
            || leaves_map(|_, _| Ok(())),
        ),
        Test::new(
            "a child between fork and exec holds a closed socket",
            || leaves_map(|_, holder| holder.start()),
        ),
        Test::new("a closed socket is left in a frozen map", left_in_map),
        Test::new(
            "a socket closes while another thread opens on its UMEM",
            close_while_opening,
        ),
        Test::new("a panic in the middle of a batch", panic_in_batch),
        Test::new("a panic in the closure of receive_each", panic_in_closure),
    ];
    for (prefix, mode) in [("SKB", Mode::Skb), ("DRV", Mode::Driver)] {
        let name = format!("{prefix} four threads open and close queues of one UMEM in traffic");
        tests.push(Test::new(name, move || four_threads(mode)));
    }
    tests
}

fn umem() -> xsk::Result<Umem> {
    Umem::builder().chunks(1024).build()
}

fn by_destination(lab: &Lab) -> Result<Program> {
    let device = lab.rx.lookup()?;
    let attach = || programs::attach(&device, AttachMode::Driver, Kind::ByDestination, 8);
    Ok(lab.rx.inside(attach)?)
}

/// Sends packets to a slot of the map, more than a closed socket has chunks for.
fn send_to(tx: &mut Socket, slot: u32) -> Outcome {
    for sequence in 0..256 {
        let mut frame = tx.alloc().ok_or("a frame")?;
        packet::fill(&mut frame, slot as u8, sequence, packet::MIN);
        tx.send(frame).map_err(|unsent| unsent.kind.to_string())?;
        tx.flush()?;
    }
    let sent = wait_until(STALL, || {
        tx.reclaim();
        tx.outstanding() == 0
    });
    assert!(sent, "the packets do not complete");
    Ok(())
}

/// Takes every free frame, blanks it, lets `meanwhile` run, and counts the frames that have changed.
fn changed_frames(umem: &Umem, meanwhile: impl FnOnce() -> Outcome) -> Result<usize> {
    let mut frames: Vec<Frame> = std::iter::from_fn(|| umem.alloc()).collect();
    assert!(!frames.is_empty(), "no frame is free");
    for frame in &mut frames {
        blank(frame)?;
    }
    meanwhile()?;
    let changed = |frame: &&Frame| frame.iter().any(|&byte| byte != 0);
    Ok(frames.iter().filter(changed).count())
}

fn blank(frame: &mut Frame) -> Outcome {
    frame.resize(frame.capacity() as usize)?;
    frame.fill(0);
    Ok(())
}

/// What an event loop gets is a descriptor of its own: no copy of it, however far it travels, keeps
/// the socket open or gets into a map.
fn descriptor() -> Outcome {
    let (from, to, lab) = (umem()?, umem()?, Lab::new()?);
    let rx = lab.rx.open(&to, Mode::Driver, |b| b.tx_ring(0))?;
    let mut tx = lab.tx.open(&from, Mode::Driver, |b| b.rx_ring(0))?;
    let program = rx.program().ok_or("the program")?.clone();
    let copy = rx.as_fd().try_clone_to_owned()?;
    let passed = pass_on(&copy)?;
    drop(rx);
    for copy in [&copy, &passed] {
        let refused = raw::map_insert(program.map(), 0, copy);
        assert!(refused.is_err(), "a duplicate got into a map");
    }
    let changed = changed_frames(&to, || send_to(&mut tx, 0))?;
    assert_eq!(changed, 0, "owned frames were written by the kernel");
    all_home(&to);
    drop(program);
    // The queue is free while the copies are open.
    drop(lab.rx.open(&to, Mode::Driver, |b| b)?);
    Ok(())
}

/// The descriptor after a journey through a Unix socket.
fn pass_on(fd: &OwnedFd) -> Result<OwnedFd> {
    let (here, there) = socketpair(
        AddressFamily::UNIX,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut message = SendAncillaryBuffer::new(&mut space);
    let fds = [fd.as_fd()];
    assert!(message.push(SendAncillaryMessage::ScmRights(&fds)));
    sendmsg(
        &here,
        &[IoSlice::new(&[0])],
        &mut message,
        SendFlags::empty(),
    )?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut message = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(
        &there,
        &mut [IoSliceMut::new(&mut byte)],
        &mut message,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let fds = message.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok(fds.ok_or("the descriptor did not arrive")?)
}

/// A child that stays between fork and exec, with copies of all descriptors of this process.
#[derive(Default)]
struct Holder(Option<(JoinHandle<io::Result<Child>>, PipeWriter)>);

/// Longest time that it stays. Other tests' sockets are held as well, and their queues busy.
const HELD: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 250_000_000,
};

impl Holder {
    fn start(&mut self) -> Outcome {
        let mut command = Command::new("true");
        command.stdin(Stdio::null());
        let (mut arrived, told) = io::pipe()?;
        let (end, ends) = io::pipe()?;
        // SAFETY: needed to act in the child before exec. It only writes to a pipe and waits for
        // another, by calls that are safe after fork.
        unsafe {
            command.pre_exec(move || {
                (&told).write_all(&[1])?;
                poll(&mut [PollFd::new(&end, PollFlags::IN)], Some(&HELD))?;
                Ok(())
            })
        };
        // `spawn` returns after exec.
        let spawning = std::thread::spawn(move || command.spawn());
        self.0 = Some((spawning, ends));
        arrived.read_exact(&mut [0])?;
        Ok(())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        if let Some((spawning, mut ends)) = self.0.take() {
            let _ = ends.write_all(&[1]);
            if let Ok(Ok(mut child)) = spawning.join() {
                let _ = child.wait();
            }
        }
    }
}

/// A closed socket gets no packets through the map of another loader, whoever holds it.
fn leaves_map(before: fn(&Program, &mut Holder) -> Outcome) -> Outcome {
    all_home(&closed_after(before)?);
    Ok(())
}

/// The chunks of a socket whose entry cannot be deleted are not used again.
fn left_in_map() -> Outcome {
    let umem = closed_after(|program, holder| {
        raw::map_freeze(program.map())?;
        holder.start()
    })?;
    let count = umem.accounting();
    assert!(count.retired > 0 && count.receiving == 0, "{count:?}");
    Ok(())
}

/// Closes a socket that the map of another loader has, and sends packets there: none is written to a free chunk.
fn closed_after(before: fn(&Program, &mut Holder) -> Outcome) -> Result<Umem> {
    let (from, to, lab) = (umem()?, umem()?, Lab::new()?);
    let program = by_destination(&lab)?;
    let map = programs::xskmap(8)?;
    let some = |b: SocketBuilder| b.tx_ring(0).fill_chunks(512).map(map);
    let mut rx = lab.rx.open(&to, Mode::Driver, some)?;
    rx.insert_into(program.map(), SLOT)?;
    let mut tx = lab.tx.open(&from, Mode::Driver, |b| b.rx_ring(0))?;
    send_to(&mut tx, SLOT)?;
    assert!(rx.wait(Duration::from_secs(1))?, "the entry is in use");
    let mut holder = Holder::default();
    before(&program, &mut holder)?;
    drop(rx);
    let changed = changed_frames(&to, || send_to(&mut tx, SLOT))?;
    assert_eq!(changed, 0, "owned frames were written by the kernel");
    Ok(to)
}

/// A thread that waits for a busy queue would lend the registration of the closed socket, and so keep
/// it open. The map entry is one that the library does not know of.
fn close_while_opening() -> Outcome {
    let (from, to, other) = (umem()?, umem()?, umem()?);
    let lab = Lab::with_queues(2)?;
    let program = by_destination(&lab)?;
    let _busy = lab
        .rx
        .open_queue(&other, Mode::Driver, 1, |b| b.map(map_of(&program)))?;
    let rx = lab
        .rx
        .open_queue(&to, Mode::Driver, 0, |b| b.tx_ring(0).map(map_of(&program)))?;
    raw::map_insert(program.map(), SLOT, raw::descriptor(&rx))?;
    let mut tx = lab.tx.open(&from, Mode::Driver, |b| b.rx_ring(0))?;
    let (lab, to) = (&lab, &to);
    let changed = std::thread::scope(|scope| {
        let opening = scope.spawn(|| {
            let limit = Duration::from_secs(2);
            let map = programs::xskmap(8).expect("a map");
            let open = lab.rx.open_queue(to, Mode::Driver, 1, |b| {
                b.rx_ring(64).fill_chunks(16).busy_timeout(limit).map(map)
            });
            open.map_err(|error| error.kind()).err()
        });
        std::thread::sleep(Duration::from_millis(300));
        drop(rx);
        let changed = changed_frames(to, || send_to(&mut tx, SLOT));
        assert_eq!(
            opening.join().expect("no panic"),
            Some(xsk::ErrorKind::QueueBusy)
        );
        changed
    })?;
    assert_eq!(changed, 0, "owned frames were written by the kernel");
    Ok(())
}

fn map_of(program: &Program) -> OwnedFd {
    program.map().try_clone_to_owned().expect("a descriptor")
}

/// Every chunk has an owner after a panic, and packets arrive as before.
fn panics(panic: impl FnOnce(&mut Socket) + 'static) -> Outcome {
    let (from, to, lab) = (umem()?, umem()?, Lab::new()?);
    let mut rx = lab.rx.open(&to, Mode::Driver, |b| b)?;
    let mut tx = lab.tx.open(&from, Mode::Driver, |b| b.rx_ring(0))?;
    send_to(&mut tx, 0)?;
    let there = wait_until(STALL, || {
        rx.statistics().is_ok_and(|s| s.rx_dropped == 0) && rx.wait(Duration::ZERO).unwrap_or(false)
    });
    assert!(there, "no packet comes");
    let panicked = catch_unwind(AssertUnwindSafe(|| panic(&mut rx)));
    assert!(panicked.is_err(), "it did not panic");
    let count = to.accounting();
    let sum = count.free + count.held + count.receiving + count.sending + count.retired;
    assert_eq!(sum, to.chunks());
    assert_eq!(rx.statistics()?.invalid_descs, 0);
    while rx.wait(Duration::from_millis(20))? {
        drop(rx.recv(64));
    }
    deliver(&mut tx, &mut rx, 256, packet::MIN)?;
    drop(rx);
    all_home(&to);
    Ok(())
}

fn panic_in_batch() -> Outcome {
    panics(|rx| {
        let mut batch = rx.recv(64);
        let kept = batch.next_packet().expect("a packet").keep();
        let mut packet = batch.next_packet().expect("a packet");
        packet.fill(0xee);
        let _sent = packet.send();
        assert!(kept.is_empty(), "on purpose");
    })
}

fn panic_in_closure() -> Outcome {
    panics(|rx| {
        let mut kept = Vec::new();
        rx.receive_each(64, |packet| {
            assert!(kept.len() < 3, "on purpose");
            let (frame, done) = packet.keep();
            kept.push(frame);
            done
        });
    })
}

/// Four threads open and close their queue of one UMEM while packets come to all of them. Received,
/// kept and blank frames must hold what their owner put there.
fn four_threads(mode: Mode) -> Outcome {
    const QUEUES: u32 = 4;
    let (from, to) = (
        Umem::builder().chunks(2048).build()?,
        Umem::builder().chunks(8192).build()?,
    );
    // One more, whose socket keeps the program attached. Generic XDP on veth takes a packet for one of
    // the queue before.
    let lab = Lab::with_queues(QUEUES + 1)?;
    let keeper = Umem::builder().chunks(64).build()?;
    let keeper = lab.rx.open_queue(&keeper, mode, QUEUES, |b| b)?;
    let program = keeper.program().ok_or("the program")?.clone();
    let stop = AtomicBool::new(false);
    let (lab, to, program, stop) = (&lab, &to, &program, &stop);
    let mut senders = Vec::new();
    for queue in 0..=QUEUES {
        let open = |b: xsk::SocketBuilder| b.rx_ring(0).tx_ring(256).completion_ring(256);
        senders.push(lab.tx.open_queue(&from, mode, queue, open)?);
    }
    let received = std::thread::scope(|scope| {
        let sending = scope.spawn(move || send_until(&mut senders, stop));
        let receiving: Vec<_> = (0..QUEUES)
            .map(|queue| scope.spawn(move || open_and_close(lab, to, program, mode, queue)))
            .collect();
        let received: Vec<_> = receiving.into_iter().map(ScopedJoinHandle::join).collect();
        stop.store(true, Ordering::Relaxed);
        sending.join().expect("the sender");
        received
    });
    drop(keeper);
    for (queue, received) in received.into_iter().enumerate() {
        let received = received.map_err(|_| "a receiver panicked")??;
        assert!(received > 0, "queue {queue} received nothing");
    }
    all_home(to);
    Ok(())
}

fn send_until(senders: &mut [Socket], stop: &AtomicBool) {
    for sequence in 0.. {
        for (queue, tx) in senders.iter_mut().enumerate() {
            if let Some(mut frame) = tx.alloc() {
                packet::fill(&mut frame, queue as u8, sequence, 256);
                let _ = tx.send(frame);
            }
            tx.flush().expect("the device is up");
        }
        if stop.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// A number that looks random: xorshift.
struct Random(u32);

impl Random {
    fn below(&mut self, most: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0 % most
    }
}

fn open_and_close(
    lab: &Lab,
    umem: &Umem,
    program: &Program,
    mode: Mode,
    queue: u32,
) -> Result<u64> {
    let mut random = Random(0x9e37_79b9 + queue);
    let mut received = 0;
    let mut held: Vec<(Frame, Vec<u8>)> = Vec::new();
    for _ in rounds(40) {
        let mut socket = lab.rx.open_queue(umem, mode, queue, |b| {
            let b = b.rx_ring(256).fill_ring(256).tx_ring(64);
            b.program(program).busy_timeout(longest(STALL))
        })?;
        for _ in 0..random.below(20) {
            socket.wait(Duration::from_millis(5))?;
            let mut batch = socket.recv(random.below(64));
            while let Some(packet) = batch.next_packet() {
                let sequence = packet::sequence(&packet);
                packet::check(&packet, sequence);
                received += 1;
                if random.below(8) == 0 && held.len() < 64 {
                    let frame = packet.keep();
                    let bytes = frame.to_vec();
                    held.push((frame, bytes));
                }
            }
        }
        while held.len() < 128
            && let Some(mut frame) = umem.alloc()
        {
            blank(&mut frame)?;
            let bytes = frame.to_vec();
            held.push((frame, bytes));
        }
        drop(socket);
        // Those freed by the close, too.
        while held.len() < 256
            && let Some(mut frame) = umem.alloc()
        {
            blank(&mut frame)?;
            let bytes = frame.to_vec();
            held.push((frame, bytes));
        }
        std::thread::sleep(Duration::from_millis(2));
        for (frame, bytes) in &held {
            assert!(**frame == **bytes, "an owned frame has changed");
        }
        held.truncate(random.below(64) as usize);
    }
    Ok(received)
}
