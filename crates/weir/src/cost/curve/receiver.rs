//! `weir cost-receiver`, in place of a virtual machine or a server: receives, checks and counts.
//!
//! It prints the events of a worker of the bench: `ready` (or `failed`), and `done` after SIGTERM.

use std::ffi::OsString;
use std::io;
use std::io::stdin;
use std::net::UdpSocket;
use std::num::NonZeroU64;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::thread::set_current_timer_slack;

use super::recvmmsg::Batch;
use crate::engine::Failure;
use crate::engine::protocol::{Event, Totals};
use crate::engine::worker::settle;
use crate::process::words::Words;
use crate::traffic::frame::{APP_ADDRESS, PORT, Tracker};

/// The most frames between two checks for a signal.
const BATCH: usize = 64;
/// Sleep between two batches while packets come: the sender then wakes nobody.
const GATHER: Duration = Duration::from_micros(50);
/// The longest sleep in poll(2).
const WAIT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};
/// The receiver ends when nothing has come for this long.
const QUIET: Duration = Duration::from_millis(20);
/// The longest time to end.
const DRAIN: Duration = Duration::from_secs(1);
/// Receive buffer of a UDP socket: enough for the 1000 frames of a tap's ring; the default holds a
/// quarter of them.
const UDP_BUFFER: usize = 4 << 20;

/// The source of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Origin {
    /// A tap, which is standard input
    Tap,
    /// A UDP socket
    Udp,
}

/// `weir cost-receiver`
#[derive(Debug, Args)]
pub struct ReceiverArgs {
    /// Source of packets
    #[arg(long, value_enum)]
    pub origin: Origin,
    /// The UDP port
    #[arg(long, value_name = "N", default_value_t = PORT)]
    pub port: u16,
    /// Frame length without the FCS
    #[arg(long, value_name = "BYTES")]
    pub size: usize,
    /// CPU to run on
    #[arg(long, value_name = "N")]
    pub cpu: u32,
}

impl ReceiverArgs {
    /// The command line that these arguments are parsed from.
    pub fn to_words(&self) -> Vec<OsString> {
        let origin = self.origin.to_possible_value();
        Words::default()
            .option(
                "origin",
                origin.as_ref().map(clap::builder::PossibleValue::get_name),
            )
            .value("port", &self.port)
            .value("size", &self.size)
            .value("cpu", &self.cpu)
            .into_vec()
    }
}

/// Receives until SIGTERM. An error is printed as an event.
pub fn run(args: &ReceiverArgs) -> ExitCode {
    match receive(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Nobody may be there to read it.
            let _ = Event::from(failure).print();
            ExitCode::FAILURE
        }
    }
}

fn receive(args: &ReceiverArgs) -> Result<(), Failure> {
    settle(args.cpu)?;
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::clone(&stop))
        .map_err(|error| Failure::new("signal", &error, "this is a defect"))?;
    let tracker = Tracker::new(args.size);
    match args.origin {
        Origin::Tap => Receiver::new(Frames::new(), tracker).run(&stop),
        Origin::Udp => Receiver::new(Datagrams::open(args.port)?, tracker).run(&stop),
    }
}

/// Packets in batches.
trait Source {
    /// The descriptor to poll.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Receives at most a batch, without waiting; returns the number of packets.
    fn receive(&mut self, tracker: &mut Tracker) -> io::Result<usize>;
}

/// A tap: one frame a system call.
struct Frames {
    tap: io::Stdin,
    buffer: [u8; 2048],
}

impl Frames {
    fn new() -> Self {
        Self {
            tap: stdin(),
            buffer: [0; 2048],
        }
    }
}

impl Source for Frames {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.tap.as_fd()
    }

    fn receive(&mut self, tracker: &mut Tracker) -> io::Result<usize> {
        for count in 0..BATCH {
            match rustix::io::read(self.tap.as_fd(), &mut self.buffer) {
                Ok(length) => {
                    tracker.frame(&self.buffer[..length]);
                }
                Err(rustix::io::Errno::AGAIN) => return Ok(count),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(BATCH)
    }
}

/// A UDP socket. The kernel has checked headers and checksum.
struct Datagrams {
    socket: UdpSocket,
    batch: Batch,
}

impl Datagrams {
    fn open(port: u16) -> Result<Self, Failure> {
        let socket = UdpSocket::bind((APP_ADDRESS, port))
            .map_err(|error| Failure::new("bind", &error, "this is a defect"))?;
        set_socket_recv_buffer_size_force(&socket, UDP_BUFFER).map_err(Failure::of_buffer)?;
        Ok(Self {
            socket,
            batch: Batch::new(BATCH),
        })
    }
}

impl Source for Datagrams {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn receive(&mut self, tracker: &mut Tracker) -> io::Result<usize> {
        let count = self.batch.receive(self.socket.as_fd())?;
        for datagram in self.batch.datagrams() {
            tracker.payload(datagram);
        }
        Ok(count)
    }
}

struct Receiver<S> {
    source: S,
    tracker: Tracker,
    received: u64,
}

impl<S: Source> Receiver<S> {
    fn new(source: S, tracker: Tracker) -> Self {
        Self {
            source,
            tracker,
            received: 0,
        }
    }

    fn run(mut self, stop: &AtomicBool) -> Result<(), Failure> {
        // The default timer slack adds 50 us to a sleep of 50 us; if that stays, batches are larger.
        let _ = set_current_timer_slack(NonZeroU64::new(1_000));
        let ready = Event::Ready {
            mode_obtained: None,
            refusals: Vec::new(),
        };
        ready.print()?;
        let mut gathered = 0;
        while !stop.load(Ordering::Relaxed) {
            let count = self.batch()?;
            gathered += count;
            if count == BATCH {
                continue; // more may be waiting
            }
            if gathered > 0 {
                sleep(GATHER);
            } else {
                self.wait()?;
            }
            gathered = 0;
        }
        self.drain()?;
        let done = Event::Done(Totals {
            received: self.received,
            corrupted: self.tracker.corrupted,
            duplicates: self.tracker.duplicates,
            reordered: self.tracker.reordered,
            ..Totals::default()
        });
        done.print()
    }

    fn batch(&mut self) -> Result<usize, Failure> {
        let count = self
            .source
            .receive(&mut self.tracker)
            .map_err(|error| Failure::new("receive", &error, "does the device still exist?"))?;
        self.received += count as u64;
        Ok(count)
    }

    fn wait(&self) -> Result<(), Failure> {
        let descriptor = self.source.descriptor();
        let mut wanted = [PollFd::new(&descriptor, PollFlags::IN)];
        match poll(&mut wanted, Some(&WAIT)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(Failure::new("poll", &errno.into(), "this is a defect")),
        }
    }

    /// Receives until no packet comes any more.
    fn drain(&mut self) -> Result<(), Failure> {
        let start = Instant::now();
        let mut heard = start;
        while heard.elapsed() < QUIET && start.elapsed() < DRAIN {
            if self.batch()? > 0 {
                heard = Instant::now();
            }
        }
        Ok(())
    }
}
