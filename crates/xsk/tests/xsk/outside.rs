//! A peer outside of the machine under test, that sends numbered packets, counts those that come, and is
//! asked for both in packets: the process that runs an emulated guest, or the other end of a veth pair.

use crate::budget::STALL;
use crate::netns::{Lab, Side, third_card};
use crate::{Outcome, Result, packet};
use rustix::io::{FdFlags, fcntl_setfd};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixDatagram;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use testkit::Limit;
use xsk::{Mode, Packet, Socket, Umem};

/// The environment variable that makes this program the peer of the guest that its arguments run.
const VARIABLE: &str = "XSK_TEST_OUTSIDE_OF";
/// In those arguments, the file descriptor of a datagram socket, each datagram a packet.
const DESCRIPTOR: &str = "@SOCKET@";

/// The second Ethernet type for experiments: a question or an answer.
const ETHER_TYPE: [u8; 2] = [0x88, 0xb6];
/// Length of a question or an answer: type, number and two values behind the Ethernet header.
const CONTROL: usize = 14 + 1 + 8 + 16;

/// A question, with two values, or its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Control {
    kind: u8,
    id: u64,
    values: (u64, u64),
}

/// Send packets: the first one's sequence number, and how many. The answer comes behind them.
const SEND: u8 = 1;
/// Count packets anew, in order from this sequence number.
const EXPECT: u8 = 2;
/// How many packets came: intact and in order, and others.
const COUNT: u8 = 3;
const ANSWER: u8 = 0x80;

impl Control {
    fn write(self) -> [u8; packet::MIN] {
        let mut bytes = [0; packet::MIN];
        bytes[..12].copy_from_slice(&[0xff; 12]);
        bytes[6] = 2;
        bytes[12..14].copy_from_slice(&ETHER_TYPE);
        bytes[14] = self.kind;
        bytes[15..23].copy_from_slice(&self.id.to_be_bytes());
        bytes[23..31].copy_from_slice(&self.values.0.to_be_bytes());
        bytes[31..39].copy_from_slice(&self.values.1.to_be_bytes());
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < CONTROL || bytes[12..14] != ETHER_TYPE {
            return None;
        }
        let number = |at: usize| {
            bytes[at..at + 8]
                .iter()
                .fold(0, |n, &b| n << 8 | u64::from(b))
        };
        Some(Self {
            kind: bytes[14],
            id: number(15),
            values: (number(23), number(31)),
        })
    }
}

/// The peer's end of the connection.
trait Wire {
    /// The length of the next packet; `None` if none comes for a while.
    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<Option<usize>>;
    fn send(&mut self, bytes: &[u8]) -> io::Result<()>;
}

impl Wire for UnixDatagram {
    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<Option<usize>> {
        self.recv(bytes).map(Some)
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        UnixDatagram::send(self, bytes).map(drop)
    }
}

impl Wire for Socket {
    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<Option<usize>> {
        self.wait(Duration::from_millis(20))
            .map_err(io::Error::other)?;
        let mut batch = self.recv(1);
        let Some(packet) = batch.next_packet() else {
            return Ok(None);
        };
        bytes[..packet.len()].copy_from_slice(&packet);
        Ok(Some(packet.len()))
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        loop {
            self.reclaim();
            if let Some(mut frame) = self.alloc() {
                frame.fill_with(bytes).map_err(io::Error::other)?;
                Socket::send(self, frame).map_err(|unsent| io::Error::other(unsent.to_string()))?;
                return self.flush().map_err(io::Error::other);
            }
        }
    }
}

/// Answers until told to stop.
fn serve(wire: &mut dyn Wire, stop: &AtomicBool) -> io::Result<()> {
    let mut bytes = [0; 2048];
    let (mut last, mut next, mut good, mut bad) = (0, 0, 0, 0);
    while !stop.load(Ordering::Relaxed) {
        let Some(length) = wire.receive(&mut bytes)? else {
            continue;
        };
        let Some(question) = Control::read(&bytes[..length]) else {
            match packet::intact(&bytes[..length]) {
                Some(sequence) if sequence == next => (next, good) = (next + 1, good + 1),
                Some(sequence) => (next, bad) = (sequence + 1, bad + 1),
                None => bad += 1,
            }
            continue;
        };
        // One that was asked again is answered again.
        if question.id != last {
            last = question.id;
            match question.kind {
                SEND => send_packets(wire, question.values)?,
                EXPECT => (next, good, bad) = (question.values.0, 0, 0),
                _ => {}
            }
        }
        let answer = Control {
            kind: question.kind | ANSWER,
            values: (good, bad),
            ..question
        };
        wire.send(&answer.write())?;
    }
    Ok(())
}

fn send_packets(wire: &mut dyn Wire, (first, count): (u64, u64)) -> io::Result<()> {
    let mut bytes = [0; packet::MIN];
    for sequence in first..first + count {
        packet::write(&mut bytes, 0, sequence);
        wire.send(&bytes)?;
    }
    Ok(())
}

/// Runs the command of the arguments and is its peer, if this process was started for that.
pub fn run() -> Option<ExitCode> {
    std::env::var_os(VARIABLE)?;
    Some(run_guest().unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::FAILURE
    }))
}

fn run_guest() -> Result<ExitCode> {
    let (mut ours, theirs) = UnixDatagram::pair()?;
    fcntl_setfd(&theirs, FdFlags::empty())?;
    let number = theirs.as_fd().as_raw_fd().to_string();
    let mut words = std::env::args().skip(1);
    let program = words.next().ok_or("no command")?;
    let mut guest = Command::new(program)
        .args(words.map(|word| word.replace(DESCRIPTOR, &number)))
        .env_remove(VARIABLE)
        .spawn()?;
    drop(theirs);
    // Ends with this process, at the latest.
    std::thread::spawn(move || serve(&mut ours, &AtomicBool::new(false)));
    let code = guest.wait()?.code();
    Ok(code.map_or(ExitCode::FAILURE, |code| ExitCode::from(code as u8)))
}

/// A device whose peer is outside.
pub struct Outside {
    /// The device's side.
    pub near: Side,
    /// The thread of a peer inside this process.
    peer: Option<(JoinHandle<Outcome>, Arc<AtomicBool>)>,
}

impl Outside {
    /// The third card, or one end of a veth pair.
    pub fn new() -> Result<Self> {
        if let Some(near) = third_card()? {
            return Ok(Self { near, peer: None });
        }
        let Lab { rx: near, tx: far } = Lab::new()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let peer = std::thread::spawn(move || {
            let umem = Umem::builder().build()?;
            let mut socket = far.open(&umem, Mode::Skb, |builder| builder)?;
            Ok(serve(&mut socket, &stopped)?)
        });
        let peer = Some((peer, stop));
        Ok(Self { near, peer })
    }

    /// Ends the peer, whose errors are the test's.
    pub fn end(mut self) -> Outcome {
        let Some((peer, stop)) = self.peer.take() else {
            return Ok(());
        };
        stop.store(true, Ordering::Relaxed);
        peer.join().map_err(|_| "the peer panicked")?
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        if let Some((_, stop)) = &self.peer {
            stop.store(true, Ordering::Relaxed);
        }
    }
}

/// The questions to the peer of a socket's device.
#[derive(Default)]
pub struct Questions {
    asked: u64,
}

impl Questions {
    /// Lets the peer send packets, all of which go to `take`.
    pub fn send(
        &mut self,
        socket: &mut Socket,
        first: u64,
        count: u64,
        take: impl FnMut(Packet<'_, '_>),
    ) {
        self.ask(socket, SEND, (first, count), take);
    }

    /// Lets the peer count from 0 on.
    pub fn expect(&mut self, socket: &mut Socket) {
        self.ask(socket, EXPECT, (0, 0), |_| {
            panic!("a packet that nobody has asked for")
        });
    }

    /// The number of packets that the peer got intact and in order, and of others. Those sent before
    /// are counted: they come before the question.
    pub fn count(&mut self, socket: &mut Socket) -> (u64, u64) {
        self.ask(socket, COUNT, (0, 0), |_| {
            panic!("a packet that nobody has asked for")
        })
    }

    fn ask(
        &mut self,
        socket: &mut Socket,
        kind: u8,
        values: (u64, u64),
        mut take: impl FnMut(Packet<'_, '_>),
    ) -> (u64, u64) {
        // A device may drop packets until its link is up: the question is repeated.
        const AGAIN: Duration = Duration::from_millis(500);
        self.asked += 1;
        let id = self.asked;
        let mut limit = Limit::new(STALL);
        let mut asked = None::<Instant>;
        loop {
            assert!(!limit.is_over(), "the peer does not answer");
            if asked.is_none_or(|at| at.elapsed() > AGAIN) {
                put(socket, &Control { kind, id, values }.write());
                asked = Some(Instant::now());
            }
            socket.wait(Duration::from_millis(20)).expect("wait");
            let mut answer = None;
            let mut batch = socket.recv(64);
            while let Some(received) = batch.next_packet() {
                match Control::read(&received) {
                    // The answer to a question that was repeated comes twice.
                    Some(control) if control.id == id => answer = Some(control.values),
                    Some(_) => {}
                    None => take(received),
                }
            }
            drop(batch);
            socket.flush().expect("flush");
            if let Some(answer) = answer {
                return answer;
            }
        }
    }
}

fn put(socket: &mut Socket, bytes: &[u8]) {
    socket.reclaim();
    let mut frame = socket.alloc().expect("a frame for a question");
    frame.fill_with(bytes).expect("room for a question");
    assert!(
        socket.send(frame).is_ok(),
        "room in the ring for a question"
    );
    socket.flush().expect("flush");
}
