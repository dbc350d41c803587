//! A second socket on the queue of an open one.

use super::bind::{bind_until, open_socket};
use super::rings::{map_own_rings, set_own_ring_sizes};
use super::{TX_BUDGET, check_rings};
use crate::error::{Error, ErrorKind, Result};
use crate::socket::{Binding, Endpoint, ModeObtained, SiblingId, Socket};
use crate::sys;
use rustix::net::xdp::{SocketAddrXdp, SocketAddrXdpFlags};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

impl Socket<'_> {
    /// Opens a second AF_XDP socket on the same queue, with its own RX and TX rings and shared FILL
    /// and COMPLETION rings. The XDP program selects the socket of a packet by the XSKMAP slot into
    /// which the caller inserts the [`Sibling`](crate::Sibling).
    ///
    /// # Errors
    ///
    /// Same as [`SocketBuilder::open`](crate::SocketBuilder::open).
    pub fn add_sibling(&mut self, rx_ring: u32, tx_ring: u32) -> Result<SiblingId> {
        let sibling = open(&self.main, self.binding(), rx_ring, tx_ring)?;
        Ok(self.push_sibling(sibling))
    }
}

/// Opens a second socket on the queue of `main`.
fn open(main: &Endpoint, binding: &Binding, rx: u32, tx: u32) -> Result<Endpoint> {
    check_rings(rx, tx)?;
    let fd = open_socket()?;
    let offsets = set_own_ring_sizes(fd.as_fd(), rx, tx)?;
    let (rx_ring, tx_ring) = map_own_rings(fd.as_fd(), &offsets, rx, tx)?;
    // A kernel without the option transmits 32 at a time, as for the main socket.
    let _ = sys::set_tx_budget(fd.as_fd(), TX_BUDGET.min(tx));
    let addr = SocketAddrXdp::new(
        SocketAddrXdpFlags::XDP_SHARED_UMEM,
        binding.ifindex,
        binding.queue,
    );
    bind_until(fd.as_fd(), &addr, main.fd().as_fd(), Instant::now()).map_err(|errno| {
        let message = "binding a second socket to the queue: do so in the network namespace of the first, while the device is up";
        Error::os(ErrorKind::Os, errno, message)
    })?;
    let mut sibling = Endpoint::new(Arc::new(fd), rx_ring, tx_ring, rx, main.wait_strategy());
    sibling.set_zero_copy(binding.mode == ModeObtained::ZeroCopy);
    Ok(sibling)
}
