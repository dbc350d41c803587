//! What an AF_XDP socket is bound to.
//!
//! No call says it on every kernel. `sock_diag` needs `CONFIG_XDP_SOCKETS_DIAG`, netlink names the queues that
//! have a socket (6.10) and not the socket, getsockname(2) and /proc know nothing of the family. But
//! a second socket without a UMEM, fill and completion ring can share those of a bound one on the same device and
//! queue only (`xsk_bind` in `net/xdp/xsk.c`, since 4.18). So it asks by its own bind(2): success is the
//! same queue, `EINVAL` another one, `EBADF` none.

use super::place::Place;
use crate::policy::{DeviceGrant, Mode};
use rustix::io::Errno;
use rustix::net::sockopt::{set_xdp_rx_ring_size, xdp_options};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XdpOptionsFlags,
};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};
use std::os::fd::{BorrowedFd, OwnedFd};

/// What a socket is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bound {
    Nothing,
    /// The device and queue asked for.
    There,
    /// Other ones.
    Elsewhere,
}

/// A socket that asks what another is bound to, in whose network namespace it must be. After the answer
/// [`There`](Bound::There) it shares the queue until it is dropped.
#[derive(Debug)]
pub(super) struct Probe(OwnedFd);

impl Probe {
    pub(super) fn new(place: &Place) -> Result<Self, Errno> {
        let open = || {
            let flags = SocketFlags::CLOEXEC;
            let socket = socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)?;
            set_xdp_rx_ring_size(&socket, 1)?;
            Ok(socket)
        };
        place.act(open).map(Self)
    }

    pub(super) fn look(
        &self,
        socket: BorrowedFd<'_>,
        ifindex: u32,
        queue: u32,
    ) -> Result<Bound, Errno> {
        let address = SocketAddrXdpWithSharedUmem {
            addr: SocketAddrXdp::new(SocketAddrXdpFlags::XDP_SHARED_UMEM, ifindex, queue),
            shared_umem_fd: socket,
        };
        match bind(&self.0, &address) {
            Ok(()) => Ok(Bound::There),
            // A device that goes away lets its sockets go first (`xsk_notifier`), and the socket can have had
            // no other one.
            Err(Errno::BADF | Errno::NODEV) => Ok(Bound::Nothing),
            Err(Errno::INVAL) => Ok(Bound::Elsewhere),
            Err(errno) => Err(errno),
        }
    }
}

/// Whether a bound socket has the modes and rings of a grant only.
pub(super) fn is_granted(grant: &DeviceGrant, socket: BorrowedFd<'_>) -> bool {
    let Ok(options) = xdp_options(socket) else {
        return false;
    };
    let is_mode = if options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY) {
        grant.modes.contains(&Mode::ZeroCopy)
    } else {
        grant.modes.iter().any(|mode| *mode != Mode::ZeroCopy)
    };
    // A kick fails for a socket without the ring, and no ring is added to a bound one.
    let no_ring = Err(Errno::NOBUFS);
    let receives = || recv(socket, &mut [0_u8; 0][..], RecvFlags::DONTWAIT).map(|_| ()) != no_ring;
    let sends = || send(socket, &[], SendFlags::DONTWAIT).map(|_| ()) != no_ring;
    is_mode && (grant.rx || !receives()) && (grant.tx || !sends())
}
