//! The load of long frames: the kernel makes no XDP frame of several buffers by itself, so they are sent
//! from a ring of AF_PACKET.

use std::io;

use anyhow::{Context as _, Result, anyhow};
use hostnet::privilege::{self, Capability, Feature};

use super::frame::Template;
use super::schedule::Schedule;
use super::tpacket::{Rings, SEND_BUFFER, Shape, Socket, Version, refusal};
use crate::process::clock::now_ns;

/// Frames that are sent at once, as many as the kernel makes live frames of at a time.
const BATCH: u32 = 64;

/// Batches between two looks at a signal.
const BATCHES: u32 = 16;

/// Blocks of the ring: 128 frames of 9000 bytes.
const BLOCKS: usize = 16;

/// A frame that was not sent for so long is late by more than a burst: the schedule begins again.
const LATE_NS: u64 = 1_000_000;

/// Sends numbered copies of a frame.
pub struct RingLoad {
    rings: Rings,
    template: Template,
    pace: Option<Schedule>,
    /// Frames of the schedule that were sent.
    paced: u64,
    number: u64,
    sent: u64,
}

impl RingLoad {
    /// A load that sends `template` from a device, at a rate or as fast as it can.
    pub fn new(ifindex: u32, template: Template, pps: Option<u64>) -> Result<Self> {
        let socket = Socket::new(Version::V2).map_err(|error| {
            let cure = refusal(&error);
            anyhow!(error).context(format!("cannot open a packet socket: {cure}"))
        })?;
        socket
            .bypass_qdisc()
            .and_then(|()| socket.send_buffer(SEND_BUFFER))
            .map_err(|error| {
                let cure = error.raw_os_error().and_then(|errno| {
                    privilege::refusal(errno, Feature::Base, &[Capability::NetAdmin])
                });
                let cure = cure.unwrap_or_default();
                anyhow!(error).context(format!("cannot set up a packet socket: {cure}"))
            })?;
        let mut rings = socket
            .rings(None, Some(Shape::new(template.bytes().len(), BLOCKS)))
            .context("cannot make a ring of AF_PACKET (2 MiB)")?;
        rings
            .bind(ifindex, 0)
            .context("cannot bind a packet socket to the load's device")?;
        rings.prepare(template.bytes());
        Ok(Self {
            rings,
            template,
            pace: pps.map(|pps| Schedule { start_ns: 0, pps }),
            paced: 0,
            number: 0,
            sent: 0,
        })
    }

    /// Sends some batches.
    pub fn run(&mut self) -> Result<()> {
        for _ in 0..BATCHES {
            let due = self.due();
            self.batch(due)?;
        }
        Ok(())
    }

    /// Sends so many frames, and returns when the device has them.
    pub fn send(&mut self, frames: u32) -> Result<()> {
        let mut left = frames;
        while left > 0 {
            left -= self.batch(left.min(BATCH))?;
        }
        self.finish()
    }

    /// Returns when the device has every frame.
    pub fn finish(&mut self) -> Result<()> {
        while self.rings.in_flight() > 0 {
            self.batch(0)?;
        }
        Ok(())
    }

    /// Frames that the device took. It takes one again that it dropped.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// The frames whose time has come, of a batch at most.
    fn due(&mut self) -> u32 {
        let Some(pace) = &mut self.pace else {
            return BATCH;
        };
        let now = now_ns();
        if pace.time(self.paced) + LATE_NS < now {
            pace.start_ns = now;
            self.paced = 0;
        }
        let due = pace.due(self.paced, now, BATCH);
        self.paced += u64::from(due);
        due
    }

    /// Hands over so many frames, fewer when the ring is full; returns their number.
    fn batch(&mut self, frames: u32) -> Result<u32> {
        let Self {
            rings,
            template,
            number,
            ..
        } = self;
        let len = template.bytes().len();
        let pushed = rings.push(frames as usize, len, |frame| {
            template.stamp(frame, *number);
            *number += 1;
        });
        rings.flush().map_err(|error| refused(error, len))?;
        self.sent += rings.reap().map_err(|error| refused(error, len))? as u64;
        Ok(pushed as u32)
    }
}

/// Why the device does not send a frame of `len` bytes.
fn refused(error: io::Error, len: usize) -> anyhow::Error {
    let why = match error.raw_os_error() {
        Some(libc::EMSGSIZE) => {
            format!("the MTU of the load's device is too small for {len} bytes: raise it")
        }
        _ => "the load's device does not send: is it up?".into(),
    };
    anyhow::Error::new(error).context(why)
}
