//! Received packets that the program owns, with the driver's hints.

use crate::frame::Frame;
use crate::hints::RxHints;
use std::ops::{Deref, DerefMut};

/// A received packet that the program owns: its [`Frame`], and what the driver knew of it.
///
/// An [`RxBatch`](crate::RxBatch) is an iterator of them, and
/// [`Packet::keep_with_hints`](crate::Packet::keep_with_hints) makes one. It dereferences to the frame, and so to
/// the packet's bytes. It can move to other threads, and outlive its batch and socket; dropping it frees its chunk.
///
/// ```no_run
/// # fn main() -> xsk::Result<()> {
/// # let umem = xsk::Umem::builder().build()?;
/// let mut socket = xsk::Socket::builder(&umem, "eth0", 0).rx_hints(true).open()?;
/// let mut packets: Vec<xsk::OwnedPacket> = socket.recv(64).collect();
/// packets.sort_by_key(|packet| packet.hints().timestamp);
/// for mut packet in packets {
///     packet.adjust_head(14)?;
///     println!("{} bytes after the Ethernet header", packet.len());
///     // When the TX ring is full, the packet is dropped.
///     let _ = socket.send(packet.into());
/// }
/// socket.flush()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct OwnedPacket {
    frame: Frame,
    hints: RxHints,
}

impl OwnedPacket {
    #[inline(always)]
    pub(crate) fn new(frame: Frame, hints: RxHints) -> Self {
        Self { frame, hints }
    }

    /// The driver's hints of the packet, as those of [`Packet::hints`](crate::Packet::hints). They are a copy, which changes
    /// of the frame leave as it is.
    #[inline]
    pub fn hints(&self) -> RxHints {
        self.hints
    }

    /// The frame without the hints, to be sent.
    #[inline]
    pub fn into_frame(self) -> Frame {
        self.frame
    }
}

impl From<OwnedPacket> for Frame {
    #[inline]
    fn from(packet: OwnedPacket) -> Self {
        packet.frame
    }
}

impl Deref for OwnedPacket {
    type Target = Frame;

    #[inline]
    fn deref(&self) -> &Frame {
        &self.frame
    }
}

impl DerefMut for OwnedPacket {
    #[inline]
    fn deref_mut(&mut self) -> &mut Frame {
        &mut self.frame
    }
}
