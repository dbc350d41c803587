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

/// Identifies a [`Sibling`] of one socket; see [`Socket::add_sibling`](crate::Socket::add_sibling).
///
/// ```no_run
/// # fn main() -> xsk::Result<()> {
/// # let umem = xsk::Umem::builder().build()?;
/// # let mut socket = xsk::Socket::builder(&umem, "eth0", 0).open()?;
/// let id: xsk::SiblingId = socket.add_sibling(2048, 0)?;
/// assert!(socket.sibling(id).is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SiblingId(pub(super) usize);

/// A second AF_XDP socket on the queue of a [`Socket`](crate::Socket), borrowed from it.
///
/// ```no_run
/// # fn main() -> xsk::Result<()> {
/// # let umem = xsk::Umem::builder().build()?;
/// # let mut socket = xsk::Socket::builder(&umem, "eth0", 0).open()?;
/// let id = socket.add_sibling(2048, 2048)?;
/// let mut sibling = socket.sibling(id).expect("just added");
/// println!("{} packets", sibling.recv(64).len());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Sibling<'s, 'u> {
    pub(super) endpoint: &'s mut Endpoint,
    pub(super) umem_rings: &'s mut UmemRings<'u>,
}

impl<'u> Sibling<'_, 'u> {
    /// Same as [`Socket::recv`](crate::Socket::recv).
    pub fn recv(&mut self, max: u32) -> RxBatch<'_, 'u> {
        self.endpoint.recv(self.umem_rings, max)
    }

    /// Same as [`Socket::wait`](crate::Socket::wait).
    ///
    /// # Errors
    ///
    /// Same as [`Socket::wait`](crate::Socket::wait).
    pub fn wait(&mut self, timeout: Duration) -> Result<bool> {
        self.endpoint.wait(self.umem_rings, timeout)
    }

    /// Same as [`Socket::send`](crate::Socket::send).
    ///
    /// # Errors
    ///
    /// Same as [`Socket::send`](crate::Socket::send).
    pub fn send(&mut self, frame: Frame<'u>) -> std::result::Result<(), SendError<Frame<'u>>> {
        self.endpoint.send(self.umem_rings, frame)
    }

    /// Same as [`Socket::flush`](crate::Socket::flush).
    ///
    /// # Errors
    ///
    /// Same as [`Socket::flush`](crate::Socket::flush).
    pub fn flush(&mut self) -> Result<()> {
        self.endpoint.flush(self.umem_rings)
    }

    /// Same as [`Socket::statistics`](crate::Socket::statistics).
    ///
    /// # Errors
    ///
    /// Same as [`Socket::statistics`](crate::Socket::statistics).
    pub fn statistics(&self) -> Result<Statistics> {
        self.endpoint.statistics(self.umem_rings)
    }
}

/// For the XSKMAP slot that the XDP program redirects to. Remove it from the map before the socket is
/// dropped; as for [`Socket`](crate::Socket), do not let a duplicate outlive it.
impl AsFd for Sibling<'_, '_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.endpoint.fd().as_fd()
    }
}
