//! A second AF_XDP socket on the same device queue.

use super::Socket;
use super::bound::Bound;
use super::receiver::RxEnd;
use super::sender::{Sender, TxEnd};
use super::sending::{Sending, sending_methods};
use super::statistics::Statistics;
use super::waiting::Waiting;
use crate::batch::RxBatch;
use crate::error::Result;
use crate::umem::{Cache, Umem};
use crate::umem_rings::{CompletionRing, FillRing, RxRing};
use crate::wait::{Interest, Ready};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
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
pub struct Sibling<'s> {
    pub(super) rx: &'s mut RxEnd,
    pub(super) tx: &'s mut TxEnd,
    pub(super) fill: &'s mut FillRing,
    pub(super) completion: &'s mut CompletionRing,
    pub(super) cache: &'s mut Cache,
    pub(super) umem: &'s Umem,
    pub(super) bound: &'s Bound,
}

impl Socket {
    /// Closes the siblings: packets stop, those on their way out are waited for, and all chunks come
    /// back.
    pub(super) fn close_siblings(&mut self) {
        if self.receiver.siblings.is_empty() {
            return;
        }
        for rx in &mut self.receiver.siblings {
            rx.clear_maps();
        }
        // After this no packet is redirected by an entry that it saw. An error would leave some in RX,
        // whose chunks are free again when the socket is closed.
        let _ = self.bound().kernel().wait_for_readers();
        for id in (0..self.receiver.siblings.len()).map(SiblingId) {
            let Some(mut sibling) = self.sibling(id) else {
                continue;
            };
            // As many as RX has slots: where an entry could not be deleted, packets go on coming.
            let mut left = sibling.rx.ring.as_ref().map_or(0, RxRing::size) as usize;
            while left > 0 {
                match sibling.recv(left as u32).len() {
                    0 => break,
                    received => left = left.saturating_sub(received),
                }
            }
        }
        let Sender {
            siblings,
            completion,
            cache,
            ..
        } = &mut self.sender;
        for tx in siblings {
            // What stays in TX, as when the device is down, is retired when the socket is closed.
            let _ = tx.flush(completion, cache);
        }
        self.sender.drain();
        self.receiver.siblings.clear();
        self.sender.siblings.clear();
    }
}

impl Sibling<'_> {
    /// Same as [`Socket::recv`](crate::Socket::recv).
    pub fn recv(&mut self, max: u32) -> RxBatch<'_> {
        let tx = self.tx.ring.as_mut();
        super::recv(
            self.rx,
            self.fill,
            tx,
            self.completion,
            self.cache,
            self.umem,
            max,
        )
    }

    /// Same as [`Socket::wait`](crate::Socket::wait).
    ///
    /// # Errors
    ///
    /// Same as [`Socket::wait`](crate::Socket::wait).
    pub fn wait(&mut self, timeout: Duration) -> Result<bool> {
        self.waiting().wait(timeout)
    }

    /// Same as [`Socket::wait_for`](crate::Socket::wait_for).
    ///
    /// # Errors
    ///
    /// Same as [`Socket::wait_for`](crate::Socket::wait_for).
    pub fn wait_for(&mut self, interest: Interest, timeout: Duration) -> Result<Ready> {
        self.waiting().wait_for(interest, timeout)
    }

    /// Same as [`Socket::prepare_to_wait`](crate::Socket::prepare_to_wait).
    ///
    /// # Errors
    ///
    /// Same as [`Socket::prepare_to_wait`](crate::Socket::prepare_to_wait).
    pub fn prepare_to_wait(&mut self, interest: Interest) -> Result<Ready> {
        self.waiting().prepare(interest)
    }

    /// Same as [`Socket::insert_into`](crate::Socket::insert_into): the slot that the XDP program
    /// redirects this socket's packets to.
    ///
    /// # Errors
    ///
    /// Same as [`Socket::insert_into`](crate::Socket::insert_into).
    pub fn insert_into(&mut self, map: BorrowedFd<'_>, slot: u32) -> Result<()> {
        self.rx.insert_into(self.bound, map, slot)
    }

    fn waiting(&mut self) -> Waiting<'_> {
        Waiting {
            rx: Some((self.rx, self.fill)),
            tx: Some((self.tx, self.completion)),
            cache: self.cache,
        }
    }

    sending_methods!();

    #[inline(always)]
    pub(super) fn sending(&mut self) -> Sending<'_> {
        Sending {
            tx: self.tx,
            completion: self.completion,
            cache: self.cache,
        }
    }

    fn completion(&self) -> &CompletionRing {
        self.completion
    }

    /// Same as [`Socket::statistics`](crate::Socket::statistics).
    ///
    /// # Errors
    ///
    /// Same as [`Socket::statistics`](crate::Socket::statistics).
    pub fn statistics(&self) -> Result<Statistics> {
        let kernel = Statistics::read(&**self.rx.socket())?;
        Ok(kernel
            .with_rx(self.rx, self.fill)
            .with_tx(self.tx, self.completion))
    }
}

/// For an event loop; see [`Socket::prepare_to_wait`](crate::Socket::prepare_to_wait).
impl AsFd for Sibling<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.rx.pollable()
    }
}

/// Same as [`AsFd`].
impl AsRawFd for Sibling<'_> {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
