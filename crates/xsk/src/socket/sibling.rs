//! A second AF_XDP socket on the same device queue.

use super::endpoint::Endpoint;
use super::statistics::Statistics;
use crate::batch::RxBatch;
use crate::error::Result;
use crate::frame::Frame;
use crate::send_error::SendError;
use crate::umem_rings::UmemRings;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Names a sibling among those of one socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SiblingId(pub(super) usize);

/// A sibling socket, borrowed from the [`Socket`](crate::Socket) whose queue it shares.
#[derive(Debug)]
pub struct Sibling<'s, 'u> {
    pub(super) endpoint: &'s mut Endpoint,
    pub(super) umem_rings: &'s mut UmemRings<'u>,
}

impl<'u> Sibling<'_, 'u> {
    /// As [`Socket::recv`](crate::Socket::recv).
    pub fn recv(&mut self, max: u32) -> RxBatch<'_, 'u> {
        self.endpoint.recv(self.umem_rings, max)
    }

    /// As [`Socket::wait`](crate::Socket::wait).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool> {
        self.endpoint.wait(self.umem_rings, timeout)
    }

    /// As [`Socket::send`](crate::Socket::send).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn send(&mut self, frame: Frame<'u>) -> std::result::Result<(), SendError<Frame<'u>>> {
        self.endpoint.send(self.umem_rings, frame)
    }

    /// As [`Socket::flush`](crate::Socket::flush).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn flush(&mut self) -> Result<()> {
        self.endpoint.flush(self.umem_rings)
    }

    /// As [`Socket::statistics`](crate::Socket::statistics).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn statistics(&self) -> Result<Statistics> {
        self.endpoint.statistics(self.umem_rings)
    }
}

/// For the XSKMAP slot that the program redirects to. Take it out of there before the socket is
/// dropped; and as for [`Socket`](crate::Socket), no duplicate must outlive it.
impl AsFd for Sibling<'_, '_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.endpoint.fd().as_fd()
    }
}
