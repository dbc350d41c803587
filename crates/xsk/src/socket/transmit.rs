//! Sending a received packet through another socket.

use super::Socket;
use super::half::TxHalf;
use super::sibling::Sibling;
use crate::batch::Packet;
use crate::send_error::SendError;
use crate::umem_rings::{cannot_send, send};
use outlet::{Inside, Outlet, SendRings};

/// A destination of [`Packet::send_on`]: a [`Socket`], its [`TxHalf`], a [`Sibling`], or a
/// [`Port`](crate::Port), which selects the socket by the packet's queue.
///
/// ```no_run
/// use xsk::{Socket, Transmit};
///
/// /// Forwards the packets that have arrived, and returns the number of packets for which TX was full.
/// fn forward(from: &mut Socket, to: &mut impl Transmit) -> usize {
///     let mut dropped = 0;
///     let mut batch = from.recv(64);
///     while let Some(packet) = batch.next_packet() {
///         dropped += usize::from(packet.send_on(to).is_err());
///     }
///     dropped
/// }
/// ```
pub trait Transmit: Outlet {}

/// Public, but in a module that no other crate can name: none can implement the trait, or call its method.
pub(crate) mod outlet {
    use crate::umem_rings::Outgoing;

    /// The sockets behind a [`Transmit`](super::Transmit).
    pub trait Outlet {
        /// The rings that send packets received on `queue`.
        #[doc(hidden)]
        fn outlet(&mut self, queue: u32, inside: Inside) -> SendRings<'_>;
    }

    /// Made in this crate alone.
    #[derive(Debug)]
    pub struct Inside(pub(super) ());

    /// The rings that send; none if the socket has no TX ring.
    #[derive(Debug)]
    pub struct SendRings<'s>(pub(crate) Option<Outgoing<'s>>);
}

impl Transmit for Socket {}

impl Outlet for Socket {
    #[inline(always)]
    fn outlet(&mut self, _: u32, _: Inside) -> SendRings<'_> {
        SendRings(self.sender.sending().outgoing())
    }
}

impl Transmit for TxHalf {}

impl Outlet for TxHalf {
    #[inline(always)]
    fn outlet(&mut self, _: u32, _: Inside) -> SendRings<'_> {
        SendRings(self.sender.sending().outgoing())
    }
}

impl Transmit for Sibling<'_> {}

impl Outlet for Sibling<'_> {
    #[inline(always)]
    fn outlet(&mut self, _: u32, _: Inside) -> SendRings<'_> {
        SendRings(self.sending().outgoing())
    }
}

impl Packet<'_, '_> {
    /// Forwards the packet through another socket on the same UMEM, without copying, or through the
    /// socket of a port that is for the packet's queue. The next `flush` of that socket or port
    /// transmits it.
    ///
    /// # Errors
    ///
    /// Same as [`send`](Self::send), and
    /// [`SendErrorKind::Foreign`](crate::SendErrorKind::Foreign) when the other socket is on another
    /// UMEM.
    #[inline]
    pub fn send_on(self, to: &mut impl Transmit) -> std::result::Result<(), SendError<Self>> {
        let SendRings(mut out) = to.outlet(self.queue(), Inside(()));
        if let Some(kind) = cannot_send(out.as_mut(), self.umem(), self.len() as u32) {
            return Err(SendError { packet: self, kind });
        }
        // There is room, so this succeeds; otherwise the frame would be freed.
        let _ = send(out, self.keep());
        Ok(())
    }
}
