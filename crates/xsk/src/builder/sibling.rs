//! A second socket on the queue of an open one.

use super::bind::{open_socket, prefer_busy_poll};
use super::rings::{make_own_rings, map_own_rings};
use super::{TX_BUDGET, check_rings};
use crate::error::{Error, ErrorKind, Result};
use crate::socket::{Bound, ModeObtained, RxEnd, SiblingId, Socket, TxEnd};
use crate::sys::Address;
use crate::umem::DeviceQueue;
use crate::wait::Wait;
use rustix::net::xdp::SocketAddrXdpFlags;

impl Socket {
    /// Opens a second AF_XDP socket on the same queue, with its own RX and TX rings and shared FILL
    /// and COMPLETION rings. The XDP program selects the socket of a packet by the XSKMAP slot into
    /// which the caller inserts the [`Sibling`](crate::Sibling).
    ///
    /// # Errors
    ///
    /// Same as [`SocketBuilder::open`](crate::SocketBuilder::open).
    pub fn add_sibling(&mut self, rx_ring: u32, tx_ring: u32) -> Result<SiblingId> {
        let (rx, tx) = open(self.bound(), &self.receiver.main, rx_ring, tx_ring)?;
        Ok(self.push_sibling(rx, tx))
    }
}

/// Opens a second socket on the queue of `main`.
fn open(bound: &Bound, main: &RxEnd, rx: u32, tx: u32) -> Result<(RxEnd, TxEnd)> {
    check_rings(rx, tx)?;
    let socket = open_socket(&**bound.kernel())?;
    make_own_rings(&*socket, rx, tx)?;
    let (rx_ring, tx_ring) = map_own_rings(&*socket, rx, tx)?;
    // A kernel without the option transmits 32 at a time, as for the main socket.
    let _ = socket.set_tx_budget(TX_BUDGET.min(tx));
    let DeviceQueue { ifindex, queue, .. } = bound.lease().queue();
    let to = Address {
        flags: SocketAddrXdpFlags::XDP_SHARED_UMEM,
        ifindex,
        queue,
    };
    let lender = Some(&**main.socket());
    socket.bind(to, lender).map_err(|errno| {
        let message = "binding a second socket to the queue: do so in the network namespace of the first, while the device is up";
        Error::os(ErrorKind::Os, errno, message)
    })?;
    if main.wait_strategy() == Wait::BusyPoll {
        prefer_busy_poll(&*socket)?;
    }
    let zero_copy = bound.binding.mode == ModeObtained::ZeroCopy;
    let rx_end = RxEnd::new(&socket, rx_ring, rx, main.wait_strategy());
    Ok((
        rx_end,
        TxEnd::new(&socket, tx_ring, main.wait_strategy(), zero_copy),
    ))
}
