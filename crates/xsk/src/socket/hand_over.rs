//! A socket leaves this process without being closed.

use super::sender::TxEnd;
use super::xskmap::XskmapEntry;
use super::{ModeObtained, Socket};
use crate::error::{Error, ErrorKind, Result};
use crate::program::Program;
use crate::tx_metadata::TxSupport;
use crate::umem::{DeviceQueue, Place};
use crate::umem_rings::{RxRing, TxRing};
use crate::wait::Wait;
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use std::os::fd::{BorrowedFd, OwnedFd};

/// Slots of the rings; RX or TX can have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingSizes {
    pub(crate) rx: u32,
    pub(crate) tx: u32,
    pub(crate) fill: u32,
    pub(crate) completion: u32,
}

/// The settings of a socket, and the places of its UMEM's chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) rings: RingSizes,
    /// Chunks to keep lent for receiving.
    pub(crate) fill_chunks: u32,
    pub(crate) queue: DeviceQueue,
    pub(crate) mode: ModeObtained,
    pub(crate) wait: Wait,
    pub(crate) tx_support: TxSupport,
    /// Whether the XDP program writes hints.
    pub(crate) rx_hints: bool,
    pub(crate) places: Vec<Place>,
}

/// Duplicates of a socket's descriptors.
#[derive(Debug)]
pub(crate) struct Descriptors {
    pub(crate) socket: OwnedFd,
    pub(crate) memory: OwnedFd,
    pub(crate) map: Option<OwnedFd>,
    pub(crate) link: Option<OwnedFd>,
}

impl Socket {
    /// Duplicates the descriptors that another process needs.
    pub(crate) fn descriptors(&self) -> Result<Descriptors> {
        let entry = self.receiver.entry.as_ref();
        let program = self.needed_program();
        let map = entry.and_then(XskmapEntry::map);
        let map = map.or_else(|| program.map(Program::map));
        let link = program.and_then(Program::link);
        if program.is_some() && link.is_none() {
            let message = "libxdp's dispatcher detaches its programs with this process: attach the built-in program alone";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let main = self.receiver.main.socket();
        let (Some(socket), Some(memory)) = (main.fd(), self.umem.file()) else {
            let message = "a model of the kernel has no other processes";
            return Err(Error::new(ErrorKind::Unsupported, message));
        };
        Ok(Descriptors {
            socket: duplicate(socket)?,
            memory: duplicate(memory)?,
            map: map.map(duplicate).transpose()?,
            link: link.map(duplicate).transpose()?,
        })
    }

    /// The program without which the socket would stop: a zero-copy one that only sends has one, and no entry in
    /// its XSKMAP.
    pub(crate) fn needed_program(&self) -> Option<&Program> {
        let kept = self.bound().binding.program.as_ref();
        self.program()
            .or_else(|| kept.filter(|_| self.mode() == ModeObtained::ZeroCopy))
    }

    /// Gives the UMEM's chunks away. The socket's drop then closes it here, but not in the kernel, where
    /// a duplicate keeps it open.
    pub(crate) fn hand_over(&mut self) -> Result<State> {
        if !self.receiver.siblings.is_empty() {
            let message =
                "the socket has siblings, which would be lost: hand a socket over without them";
            return Err(Error::new(ErrorKind::Foreign, message));
        }
        self.settle_rings();
        let places = self.umem.hand_over(self.bound().lease().id())?;
        if let Some(entry) = self.receiver.entry.take() {
            entry.leave();
        }
        self.receiver.main.leave_maps();
        Ok(self.state(places))
    }

    /// Brings the indices in the rings, and the pool, up to date.
    fn settle_rings(&mut self) {
        self.sender.cache.clear();
        if let Some(rx) = &mut self.receiver.main.ring {
            rx.release();
        }
        let TxEnd { ring, sent, .. } = &mut self.sender.main;
        *sent += u64::from(ring.as_ref().map_or(0, TxRing::staged));
        if let Some(mut out) = self.sender.sending().outgoing() {
            out.publish();
        }
    }

    fn state(&self, places: Vec<Place>) -> State {
        let Self {
            receiver, sender, ..
        } = self;
        State {
            rings: RingSizes {
                rx: receiver.main.ring.as_ref().map_or(0, RxRing::size),
                tx: sender.main.ring.as_ref().map_or(0, TxRing::size),
                fill: receiver.fill.ring().size(),
                completion: sender.completion.ring.size(),
            },
            fill_chunks: receiver.fill.target(),
            queue: self.bound().lease().queue(),
            mode: self.mode(),
            wait: receiver.main.wait_strategy(),
            tx_support: self.tx_support(),
            rx_hints: self.has_rx_hints(),
            places,
        }
    }
}

fn duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    fcntl_dupfd_cloexec(fd, 0).map_err(|errno: Errno| {
        let message = "duplicating a descriptor for another process";
        Error::os(ErrorKind::Os, errno, message)
    })
}
