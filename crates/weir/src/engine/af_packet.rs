//! The AF_PACKET engines, at AF_PACKET's best: mapped rings in both directions, no queueing
//! discipline, no outgoing frames received.

use std::io;

use hostnet::privilege::{self, Feature};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::bench::Bench;
use super::moves::{Inspect, Moves, Round, Source, WAIT};
use super::{Failure, Mode, Wait};
use crate::traffic::frame::swap_macs;
use crate::traffic::tpacket::{Rings, SEND_BUFFER, Shape, Socket, Version, refusal};

const ETH_P_ALL: u16 = 3;

/// An open AF_PACKET socket.
#[derive(Debug)]
pub struct AfPacket {
    rings: Rings,
    wait: Wait,
    batch: usize,
    sent_template: bool,
}

/// Options of an [`AfPacket`].
#[derive(Debug, Clone, Copy)]
pub struct Options<'a> {
    /// The ring layout.
    pub version: Version,
    /// The device's name, in this network namespace.
    pub device: &'a str,
    /// The bench: it needs a receive ring, a send ring or both.
    pub bench: Bench,
    /// Length of the longest frame.
    pub size: usize,
    /// `Adaptive` waits as `Poll` does.
    pub wait: Wait,
    /// Batch size.
    pub batch: usize,
}

impl AfPacket {
    /// Opens a socket on the device, with the rings that the bench needs.
    pub fn open(options: &Options<'_>) -> Result<Self, Failure> {
        let receives = options.bench.receives();
        let sends = options.bench.sends();
        let socket = Socket::new(options.version).map_err(|error| socket_failure(&error))?;
        tune(&socket, receives, sends)?;
        let rings = socket
            .rings(
                receives.then(|| Shape::new(options.size, RECEIVE_BLOCKS)),
                sends.then(|| Shape::new(options.size, SEND_BLOCKS)),
            )
            .map_err(|error| rings_failure(&error))?;
        let ifindex = rustix::net::netdevice::name_to_index(&rings, options.device)
            .map_err(|errno| bind_failure(options.device, &errno.into()))?;
        rings
            .bind(ifindex, if receives { ETH_P_ALL } else { 0 })
            .map_err(|error| bind_failure(options.device, &error))?;
        Ok(Self {
            rings,
            wait: options.wait,
            batch: options.batch,
            sent_template: false,
        })
    }

    /// Waits for an event; `false` if the wait timed out.
    fn wait_for(&self, events: PollFlags) -> Result<bool, Failure> {
        if self.wait == Wait::Spin {
            return Ok(true);
        }
        match poll(&mut [PollFd::new(&self.rings, events)], Some(&WAIT)) {
            Ok(0) | Err(Errno::INTR) => Ok(false),
            Ok(_) => Ok(true),
            Err(errno) => Err(Failure::new("poll", &errno.into(), "this is a defect")),
        }
    }

    fn wait_for_frames(&self) -> Result<bool, Failure> {
        // poll does not report the unread part of a V3 block.
        if self.rings.has_frames() {
            return Ok(true);
        }
        self.wait_for(PollFlags::IN)
    }

    fn reap(&mut self) -> Result<u64, Failure> {
        match self.rings.reap() {
            Ok(count) => Ok(count as u64),
            Err(error) => Err(send_failure(&error)),
        }
    }
}

const TIMED_OUT: Round = Round {
    received: 0,
    completed: 0,
    timed_out: true,
};

impl Moves for AfPacket {
    fn mode_obtained(&self) -> Option<Mode> {
        None
    }

    fn refusals(&self) -> &[String] {
        &[]
    }

    #[inline]
    fn receive(&mut self, inspect: &mut impl Inspect) -> Result<Round, Failure> {
        if !self.wait_for_frames()? {
            return Ok(TIMED_OUT);
        }
        let received = self.rings.take(self.batch, |frame| inspect.frame(frame));
        Ok(Round {
            received: received as u64,
            ..Round::default()
        })
    }

    #[inline]
    fn send(&mut self, source: &mut Source) -> Result<Round, Failure> {
        if !self.sent_template {
            self.rings.prepare(source.template.bytes());
            self.sent_template = true;
        }
        if !self.wait_for(PollFlags::OUT)? {
            return Ok(TIMED_OUT);
        }
        let completed = self.reap()?;
        let size = source.template.bytes().len();
        self.rings
            .push(self.batch, size, |frame| source.stamp(frame));
        self.rings.flush().map_err(|error| send_failure(&error))?;
        Ok(Round {
            completed,
            ..Round::default()
        })
    }

    #[inline]
    fn forward(&mut self, inspect: &mut impl Inspect) -> Result<Round, Failure> {
        if !self.wait_for_frames()? {
            return Ok(Round {
                timed_out: true,
                ..self.complete()?
            });
        }
        let completed = self.reap()?;
        let received = self.rings.forward(self.batch, |frame, copy| {
            inspect.frame(frame);
            swap_macs(copy);
        });
        self.rings.flush().map_err(|error| send_failure(&error))?;
        Ok(Round {
            received: received as u64,
            completed,
            ..Round::default()
        })
    }

    fn complete(&mut self) -> Result<Round, Failure> {
        self.rings.flush().map_err(|error| send_failure(&error))?;
        Ok(Round {
            completed: self.reap()?,
            ..Round::default()
        })
    }

    fn in_flight(&self) -> u64 {
        self.rings.in_flight() as u64
    }

    fn kernel_drops(&mut self) -> Result<u64, Failure> {
        self.rings
            .drops()
            .map_err(|error| Failure::new("PACKET_STATISTICS", &error, "this is a defect"))
    }
}

/// 2 MiB to send.
const SEND_BLOCKS: usize = 16;

/// 8 MiB. On a veth the kernel's side is the limit: sizes from 256 KiB to 32 MiB, and frames of 256
/// bytes, have the same rate.
const RECEIVE_BLOCKS: usize = 64;

fn tune(socket: &Socket, receives: bool, sends: bool) -> Result<(), Failure> {
    let failure = |error| Failure::new("setsockopt", &error, "needs Linux 4.20 or later");
    if receives {
        socket.ignore_outgoing().map_err(failure)?;
    }
    if sends {
        socket.bypass_qdisc().map_err(failure)?;
        // Without CAP_NET_ADMIN the system's limit stays: slower, still correct.
        let _ = socket.send_buffer(SEND_BUFFER);
    }
    Ok(())
}

fn socket_failure(error: &io::Error) -> Failure {
    Failure::new("socket", error, refusal(error))
}

fn rings_failure(error: &io::Error) -> Failure {
    let hint = match error.raw_os_error() {
        Some(libc::ENOMEM | libc::EAGAIN) => {
            "not enough memory for the rings (about 10 MiB): free some".to_owned()
        }
        errno => errno
            .and_then(|errno| privilege::refusal(errno, Feature::Packet, &[]))
            .unwrap_or_else(|| "this kernel refuses the rings".to_owned()),
    };
    Failure::new("rings", error, hint)
}

fn bind_failure(device: &str, error: &io::Error) -> Failure {
    let hint = match error.raw_os_error() {
        Some(libc::ENODEV | libc::ENXIO) => {
            format!("no device {device} in this network namespace: see `ip link`")
        }
        Some(libc::ENETDOWN) => {
            format!("{device} is down: `ip link set dev {device} up`")
        }
        _ => format!("{device} cannot be bound"),
    };
    Failure::new("bind", error, hint)
}

fn send_failure(error: &io::Error) -> Failure {
    let hint = match error.raw_os_error() {
        Some(libc::EMSGSIZE) => {
            "the frame is longer than the device's MTU: lower --size, or raise the MTU"
        }
        Some(libc::ENETDOWN | libc::ENXIO) => "the device went down or away during the run",
        _ => "the kernel refuses to send",
    };
    Failure::new("send", error, hint)
}
