//! The successor of a socket whose device or program is gone.

use super::SocketBuilder;
use crate::error::Result;
use crate::socket::Socket;

impl SocketBuilder {
    /// Replaces a socket by a new one with these settings, if it has a [fault](Socket::fault) that takes
    /// a new one, or if there is none. Returns whether there is a new socket. Call it after each
    /// [`DeviceEvent`](crate::DeviceEvent), and when nothing was received for a while, in the network
    /// namespace of the device; [the guide](crate::guide::life_cycle) has the loop.
    ///
    /// A socket that works, or whose device is down, stays. Any other is closed first, which frees its
    /// queue and its program: its chunks return to the UMEM as with each close, those of frames that were
    /// sent and not transmitted, too. Packets in its RX ring are lost, unless they are
    /// [received](Socket::recv) before. Frames that the program holds stay valid. Siblings and slots of
    /// [`Socket::insert_into`] are for the caller to make anew; so is the program of
    /// [`SocketBuilder::program`], with its device.
    ///
    /// # Errors
    ///
    /// As those of [`open`](Self::open). There is no socket then; these kinds [may pass](crate::ErrorKind::may_pass):
    ///
    /// | Kind | Until |
    /// |---|---|
    /// | [`DeviceMissing`](crate::ErrorKind::DeviceMissing) | the device is there |
    /// | [`DeviceDown`](crate::ErrorKind::DeviceDown) | it is up |
    /// | [`QueueOutOfRange`](crate::ErrorKind::QueueOutOfRange) | it has the queue |
    /// | [`MtuTooLarge`](crate::ErrorKind::MtuTooLarge) | the MTU is lower |
    /// | [`ProgramAttached`](crate::ErrorKind::ProgramAttached) | the other program is gone |
    /// | [`QueueBusy`](crate::ErrorKind::QueueBusy) | the other socket is closed, of which there is no event |
    pub fn rebind(&self, socket: &mut Option<Socket>) -> Result<bool> {
        let stays = |socket: &Socket| socket.fault().is_none_or(|fault| !fault.needs_rebind());
        if socket.as_ref().is_some_and(stays) {
            return Ok(false);
        }
        *socket = None;
        *socket = Some(self.clone().open()?);
        Ok(true)
    }
}
