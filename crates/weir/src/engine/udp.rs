//! The engine on a UDP socket: the network stack between device and application.
//!
//! It answers datagrams one by one, as a server does, to the sender of the load's frames. The side of
//! the lab needs its address, and the sender as a neighbour.

use std::io;
use std::net::UdpSocket;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{RecvFlags, SendFlags};

use super::busy_poll::BusyPoll;
use super::moves::{Inspect, Moves, Round, Source, WAIT};
use super::{Failure, Mode, Wait};
use crate::traffic::frame::{APP_ADDRESS, LOAD_ADDRESS, MAX_SIZE, PORT};
use hostnet::mib;

/// Receive buffer: as much as the rings of the other engines hold; the default holds a few hundred of
/// the shortest datagrams.
const BUFFER: usize = 4 << 20;

/// A UDP socket that answers one sender.
#[derive(Debug)]
pub struct Udp {
    socket: UdpSocket,
    wait: Wait,
    busy_poll: Option<BusyPoll>,
    batch: usize,
    buffer: [u8; MAX_SIZE],
    /// Drops of the namespace before it was opened.
    drops_before: u64,
}

impl Udp {
    /// Opens a socket on the application's address in this network namespace. It sends and receives
    /// `batch` datagrams between two waits at most.
    pub fn open(wait: Wait, batch: u32) -> Result<Self, Failure> {
        let socket = UdpSocket::bind((APP_ADDRESS, PORT))
            .and_then(|socket| socket.connect((LOAD_ADDRESS, PORT)).map(|()| socket))
            .map_err(|error| {
                let hint = format!("this network namespace needs the address {APP_ADDRESS}");
                Failure::new("bind", &error, hint)
            })?;
        set_socket_recv_buffer_size_force(&socket, BUFFER).map_err(Failure::of_buffer)?;
        let busy_poll = match wait {
            Wait::BusyPoll => Some(BusyPoll::enable(&socket)?),
            _ => None,
        };
        Ok(Self {
            socket,
            wait,
            busy_poll,
            batch: batch as usize,
            buffer: [0; MAX_SIZE],
            drops_before: drops()?,
        })
    }

    /// Waits for a datagram; `false` if the wait timed out.
    fn wait(&self) -> Result<bool, Failure> {
        // With busy polling the system call that receives polls.
        if matches!(self.wait, Wait::Spin | Wait::BusyPoll) {
            return Ok(true);
        }
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&WAIT)) {
            Ok(0) | Err(Errno::INTR) => Ok(false),
            Ok(_) => Ok(true),
            Err(errno) => Err(Failure::new("poll", &errno.into(), "this is a defect")),
        }
    }

    /// Receives a datagram, and sends it back; `false` if there is none.
    fn answer(&mut self, inspect: &mut impl Inspect) -> Result<bool, Failure> {
        let received = rustix::net::recv(&self.socket, &mut self.buffer[..], RecvFlags::DONTWAIT);
        let datagram = match received {
            // A longer one is cut, and then corrupt to whoever reads it.
            Ok((length, _)) => &self.buffer[..length.min(MAX_SIZE)],
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(errno) => return Err(failure("receive", &errno.into())),
        };
        inspect.payload(datagram);
        match rustix::net::send(&self.socket, datagram, SendFlags::empty()) {
            Ok(_) => Ok(true),
            Err(errno) => Err(failure("send", &errno.into())),
        }
    }
}

impl Moves for Udp {
    fn mode_obtained(&self) -> Option<Mode> {
        None
    }

    fn refusals(&self) -> &[String] {
        &[]
    }

    fn receive(&mut self, _: &mut impl Inspect) -> Result<Round, Failure> {
        Err(only_answers())
    }

    fn send(&mut self, _: &mut Source) -> Result<Round, Failure> {
        Err(only_answers())
    }

    #[inline]
    fn forward(&mut self, inspect: &mut impl Inspect) -> Result<Round, Failure> {
        if !self.wait()? {
            return Ok(Round {
                timed_out: true,
                ..Round::default()
            });
        }
        let mut answered = 0;
        while answered < self.batch && self.answer(inspect)? {
            answered += 1;
        }
        if let Some(busy_poll) = &mut self.busy_poll {
            busy_poll.received(&self.socket, answered as u64)?;
        }
        // The kernel has copied what was sent.
        Ok(Round {
            received: answered as u64,
            completed: answered as u64,
            timed_out: false,
        })
    }

    fn complete(&mut self) -> Result<Round, Failure> {
        Ok(Round::default())
    }

    fn in_flight(&self) -> u64 {
        0
    }

    fn kernel_drops(&mut self) -> Result<u64, Failure> {
        Ok(drops()?.saturating_sub(self.drops_before))
    }
}

/// Datagrams that found no room in a buffer of this network namespace.
fn drops() -> Result<u64, Failure> {
    let counters = mib::read().map_err(|error| Failure {
        step: "counters",
        errno: error.errno().unwrap_or(0),
        message: error.to_string(),
    })?;
    Ok(counters.get("Udp.RcvbufErrors").unwrap_or(0))
}

fn failure(step: &'static str, error: &io::Error) -> Failure {
    Failure::new(step, error, "does the device still exist, and is it up?")
}

fn only_answers() -> Failure {
    Failure {
        step: "bench",
        errno: 0,
        message: "a UDP socket only answers: choose l2fwd".into(),
    }
}
