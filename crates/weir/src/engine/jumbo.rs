//! The engine on weir's own library for frames that take several chunks.

use std::collections::VecDeque;

use ::xsk::{Frame, MAX_FRAGMENTS, Socket};

use super::moves::{Inspect, Moves, Round, Source};
use super::xsk::{Xsk, failure, flush, wait};
use super::{Failure, Mode};
use crate::traffic::frame::{PATTERN, swap_macs};

/// An open AF_XDP socket that moves packets of several chunks. As in xdpsock a batch is one of
/// descriptors: it has fewer packets, but one at least.
#[derive(Debug)]
pub struct Jumbo {
    xsk: Xsk,
    prepared: bool,
    /// The chunks of each packet handed over for sending whose completion was not returned by a round yet: on
    /// a device of this host packets differ.
    in_flight: VecDeque<u32>,
    /// Their sum.
    chunks: u32,
}

impl Jumbo {
    /// Uses a socket whose memory is of several chunks.
    pub fn new(xsk: Xsk) -> Self {
        Self {
            xsk,
            prepared: false,
            in_flight: VecDeque::new(),
            chunks: 0,
        }
    }

    /// Packets completed since the last call. The kernel completes them in order.
    fn completed(&mut self) -> u64 {
        let before = self.in_flight.len();
        let outstanding = self.xsk.socket.outstanding();
        while let Some(&chunks) = self.in_flight.front()
            && self.chunks - chunks >= outstanding
        {
            self.chunks -= chunks;
            self.in_flight.pop_front();
        }
        (before - self.in_flight.len()) as u64
    }

    /// Writes the bytes of every frame behind its first ones into every chunk, which keeps them: they
    /// repeat after 256.
    fn prepare(&mut self) -> Result<(), Failure> {
        let socket = &mut self.xsk.socket;
        let frames: Vec<_> = std::iter::from_fn(|| socket.alloc()).collect();
        for mut frame in frames {
            let bytes: Vec<u8> = (0..frame.capacity()).map(|at| at as u8).collect();
            frame
                .fill_with(&bytes)
                .map_err(|error| failure("frame", &error))?;
        }
        self.prepared = true;
        Ok(())
    }
}

/// Writes what differs between chunks: the first ones hold a frame's head, or held one before.
fn write_heads(frames: &mut [Frame], source: &mut Source) {
    let mut rest = source.template.bytes();
    for frame in &mut *frames {
        let (here, later) = rest.split_at(frame.len());
        let head = here.len().min(PATTERN);
        frame[..head].copy_from_slice(&here[..head]);
        rest = later;
    }
    source.stamp(&mut frames[0]);
}

/// Whether any packet can be sent behind so many descriptors.
fn has_room(socket: &mut Socket, descriptors: u32) -> bool {
    socket.tx_room() >= descriptors + MAX_FRAGMENTS as u32
}

impl Moves for Jumbo {
    fn mode_obtained(&self) -> Option<Mode> {
        self.xsk.mode_obtained()
    }

    fn refusals(&self) -> &[String] {
        self.xsk.refusals()
    }

    fn receive(&mut self, inspect: &mut impl Inspect) -> Result<Round, Failure> {
        let timed_out = !wait(&mut self.xsk.socket, self.xsk.patience)?;
        let mut received = 0;
        let mut batch = self.xsk.socket.recv(self.xsk.batch);
        while let Some(packet) = batch.next_fragments() {
            received += 1;
            inspect.pieces(packet.frames().iter().map(|frame| &**frame));
        }
        Ok(Round {
            received,
            completed: 0,
            timed_out,
        })
    }

    fn send(&mut self, source: &mut Source) -> Result<Round, Failure> {
        if !self.prepared {
            self.prepare()?;
        }
        let size = source.template.bytes().len();
        let socket = &mut self.xsk.socket;
        let mut sent = 0;
        while sent < self.xsk.batch
            && has_room(socket, 0)
            && let Some(mut packet) = socket.alloc_fragments(size)
        {
            let chunks = packet.frames().len() as u32;
            sent += chunks;
            write_heads(packet.frames_mut(), source);
            self.in_flight.push_back(chunks);
            self.chunks += chunks;
            socket.send_fragments(packet).map_err(|error| Failure {
                step: "send",
                errno: 0,
                message: error.to_string(),
            })?;
        }
        self.complete()
    }

    fn forward(&mut self, inspect: &mut impl Inspect) -> Result<Round, Failure> {
        let socket = &mut self.xsk.socket;
        let timed_out = !wait(socket, self.xsk.patience)?;
        let mut received = 0;
        if has_room(socket, self.xsk.batch) {
            let mut batch = socket.recv(self.xsk.batch);
            while let Some(mut packet) = batch.next_fragments() {
                received += 1;
                inspect.pieces(packet.frames().iter().map(|frame| &**frame));
                swap_macs(&mut packet.frames_mut()[0]);
                let chunks = packet.frames().len() as u32;
                self.in_flight.push_back(chunks);
                self.chunks += chunks;
                batch.send_fragments(packet).map_err(|error| Failure {
                    step: "send",
                    errno: 0,
                    message: error.to_string(),
                })?;
            }
        }
        Ok(Round {
            received,
            timed_out,
            ..self.complete()?
        })
    }

    fn complete(&mut self) -> Result<Round, Failure> {
        flush(&mut self.xsk.socket)?;
        self.xsk.socket.reclaim();
        Ok(Round {
            completed: self.completed(),
            ..Round::default()
        })
    }

    fn in_flight(&self) -> u64 {
        self.in_flight.len() as u64
    }

    fn kernel_drops(&mut self) -> Result<u64, Failure> {
        self.xsk.kernel_drops()
    }
}
