//! bind(2) of an AF_XDP socket.

use super::diag;
use super::place::Place;
use super::session::{Session, has_mode};
use super::socket::NOWHERE;
use super::sys::{self, Ring};
use crate::policy::{DeviceGrant, Mode};
use crate::seccomp::{Answer, Target};
use crate::supervise::Call;
use rustix::io::Errno;
use rustix::net::sockopt::{socket_domain, xdp_options};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags as Flags, SocketAddrXdpWithSharedUmem, XdpOptionsFlags,
};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, bind, recv, send};
use rustix::process::{Signal, pidfd_send_signal};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Size of `struct sockaddr_xdp`.
const ADDRESS: usize = 16;

/// `struct sockaddr_xdp`, copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Address {
    flags: Flags,
    ifindex: u32,
    queue: u32,
    shared_umem: i32,
}

pub(super) fn handle(session: &Session, call: &Call<'_>) -> Result<Answer, Errno> {
    let target = call.target()?;
    let socket = target.descriptor(call.int(0))?;
    // Should the caller put an AF_XDP socket in its place now, the kernel refuses to bind that one.
    if socket_domain(&socket) != Ok(AddressFamily::XDP) {
        return Ok(Answer::Continue);
    }
    if usize::try_from(call.int(2)).map_or(true, |len| len < ADDRESS) {
        return Err(Errno::INVAL);
    }
    let mut bytes = [0; ADDRESS];
    target.read(call.word(1), &mut bytes)?;
    let mut address = Address::parse(&bytes)?;
    let umem = umem(target, &address)?;
    let place = place_of(session, target, socket.as_fd())?;
    let device = place.device(address.ifindex)?;
    call.describe(format!("queue {} of {device}", address.queue));
    let grant = judge(session, &place, &mut address, umem.as_ref())?;
    call.check_alive()?;
    check_rings(grant, socket.as_fd())?;
    let memory = check_memory(grant, &place, socket.as_fd())?;
    session.lend(&place, &device, address.queue, socket.as_fd(), memory)?;
    let result = bind_to(socket.as_fd(), &address, umem.as_ref());
    if is_as_judged(grant, socket.as_fd(), result) {
        return result.map(|()| Answer::Value(0));
    }
    call.describe(format!("queue of {device} changed in between: killed"));
    let _ = pidfd_send_signal(target.pidfd(), Signal::KILL);
    Err(Errno::PERM)
}

impl Address {
    fn parse(bytes: &[u8; ADDRESS]) -> Result<Self, Errno> {
        let [
            f0,
            f1,
            g0,
            g1,
            i0,
            i1,
            i2,
            i3,
            q0,
            q1,
            q2,
            q3,
            u0,
            u1,
            u2,
            u3,
        ] = *bytes;
        if u16::from_ne_bytes([f0, f1]) != libc::AF_XDP as u16 {
            return Err(Errno::INVAL);
        }
        let flags = u16::from_ne_bytes([g0, g1]);
        Ok(Self {
            flags: Flags::from_bits(flags).ok_or(Errno::INVAL)?,
            ifindex: u32::from_ne_bytes([i0, i1, i2, i3]),
            queue: u32::from_ne_bytes([q0, q1, q2, q3]),
            shared_umem: i32::from_ne_bytes([u0, u1, u2, u3]),
        })
    }

    fn is_shared(&self) -> bool {
        self.flags.contains(Flags::XDP_SHARED_UMEM)
    }
}

/// The socket whose UMEM is shared: the kernel looks its descriptor up in the table of who binds.
fn umem(target: &Target, address: &Address) -> Result<Option<OwnedFd>, Errno> {
    if !address.is_shared() {
        return Ok(None);
    }
    let umem = target.descriptor(address.shared_umem)?;
    if socket_domain(&umem) != Ok(AddressFamily::XDP) {
        return Err(Errno::NOTSOCK);
    }
    Ok(Some(umem))
}

/// The namespace of a socket, the caller's or the broker's.
fn place_of(
    session: &Session,
    target: &Target,
    socket: BorrowedFd<'_>,
) -> Result<Arc<Place>, Errno> {
    let callers = session.callers_place(target)?;
    let mut places = callers.into_iter().chain([session.home()]);
    places
        .find(|place| place.has_socket(socket))
        .ok_or(Errno::PERM)
}

/// The grant that allows the queue, the flags being restricted to its modes.
fn judge<'s>(
    session: &'s Session,
    place: &Place,
    address: &mut Address,
    umem: Option<&OwnedFd>,
) -> Result<&'s DeviceGrant, Errno> {
    let grant = session
        .grants(place, address.ifindex)
        .into_iter()
        .find(|grant| {
            grant
                .queues
                .iter()
                .any(|queues| queues.contains(&address.queue))
        })
        .ok_or(Errno::PERM)?;
    let zero_copy = has_mode(grant, Mode::ZeroCopy);
    let copied = has_mode(grant, Mode::Driver) || has_mode(grant, Mode::Skb);
    if let Some(umem) = umem {
        // The mode is that of the other socket.
        let is_zero_copy = xdp_options(umem)?.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY);
        let granted = if is_zero_copy { zero_copy } else { copied };
        return granted.then_some(grant).ok_or(Errno::PERM);
    }
    let wants_zero_copy = address.flags.contains(Flags::XDP_ZEROCOPY);
    let wants_copy = address.flags.contains(Flags::XDP_COPY);
    if (wants_zero_copy && !zero_copy) || (wants_copy && !copied) {
        return Err(Errno::PERM);
    }
    if !wants_zero_copy && !wants_copy {
        // The kernel would try one and then the other.
        if !zero_copy {
            address.flags |= Flags::XDP_COPY;
        } else if !copied {
            address.flags |= Flags::XDP_ZEROCOPY;
        }
    }
    Ok(grant)
}

/// Binds a socket, which the caller itself cannot bind to any device before and after.
fn bind_to(socket: BorrowedFd<'_>, address: &Address, umem: Option<&OwnedFd>) -> Result<(), Errno> {
    let device = i32::try_from(address.ifindex).map_err(|_| Errno::NODEV)?;
    sys::set_option(socket, libc::SO_BINDTOIFINDEX, device)?;
    let plain = SocketAddrXdp::new(address.flags, address.ifindex, address.queue);
    let result = match umem {
        None => bind(socket, &plain),
        Some(umem) => {
            let shared_umem_fd = umem.as_fd();
            let address = SocketAddrXdpWithSharedUmem {
                addr: plain,
                shared_umem_fd,
            };
            bind(socket, &address)
        }
    };
    sys::set_option(socket, libc::SO_BINDTOIFINDEX, NOWHERE)?;
    result
}

/// Refuses a socket that is bound, or has a ring that is not granted.
fn check_rings(grant: &DeviceGrant, socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let receives = sys::has_ring(socket, Ring::Rx)?;
    let sends = sys::has_ring(socket, Ring::Tx)?;
    if (receives && !grant.rx) || (sends && !grant.tx) {
        return Err(Errno::PERM);
    }
    Ok(())
}

/// The size of the UMEM; too large a one is refused. 0 for a shared UMEM, and where the kernel cannot tell
/// the size: it still holds the caller to its `RLIMIT_MEMLOCK`.
fn check_memory(grant: &DeviceGrant, place: &Place, socket: BorrowedFd<'_>) -> Result<u64, Errno> {
    let inode = rustix::fs::fstat(socket)?.st_ino as u32;
    match place.act(|| diag::umem(inode)) {
        Ok(bytes) if bytes > grant.memory => Err(Errno::NOBUFS),
        Err(Errno::NOENT) => Ok(0),
        size => size,
    }
}

/// Whether a socket is still as judged. Another thread of the caller can have bound it while
/// the broker's bind was about to, or added a ring.
fn is_as_judged(grant: &DeviceGrant, socket: BorrowedFd<'_>, bound: Result<(), Errno>) -> bool {
    if bound.is_err() {
        return sys::has_ring(socket, Ring::Rx) != Err(Errno::BUSY);
    }
    // A kick fails for a socket without the ring.
    let no_ring = Err(Errno::NOBUFS);
    let receives = || recv(socket, &mut [0_u8; 0][..], RecvFlags::DONTWAIT).map(|_| ()) != no_ring;
    let sends = || send(socket, &[], SendFlags::DONTWAIT).map(|_| ()) != no_ring;
    (grant.rx || !receives()) && (grant.tx || !sends())
}
