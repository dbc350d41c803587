//! bind(2) of an AF_XDP socket.

use super::bound::{self, Bound, Probe};
use super::diag;
use super::place::Place;
use super::session::{Session, has_mode};
use super::socket::NOWHERE;
use super::sys::{self, Ring};
use super::turn::{Turn, Watch};
use crate::lease::holders_of;
use crate::policy::{DeviceGrant, Mode};
use crate::seccomp::{Answer, Target};
use crate::supervise::Call;
use crate::supervise::caller::Status;
use rustix::io::Errno;
use rustix::net::sockopt::{socket_domain, xdp_options};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags as Flags, SocketAddrXdpWithSharedUmem, XdpOptionsFlags,
};
use rustix::net::{AddressFamily, bind};
use rustix::process::{Signal, pidfd_send_signal};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

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
    let status = Status::of(target)?;
    let process = status.number("Tgid", 0)?;
    let watch = Watch {
        probe: Probe::new(&place)?,
        objects: session.weak_objects(),
        budget: session.budget(),
        queues: session.queues(),
        socket: rustix::io::fcntl_dupfd_cloexec(&socket, 0)?,
        device: device.clone(),
        ifindex: address.ifindex,
        queue: address.queue,
        uid: status.number("Uid", EFFECTIVE)?,
    };
    let socket = socket.as_fd();
    let turn = Turn::take(rustix::fs::fstat(socket)?.st_ino, watch.session())?;
    let probe = &watch.probe;
    if session.objects().is_closed() {
        return Err(Errno::PERM);
    }
    if probe.look(socket, address.ifindex, address.queue)? != Bound::Nothing {
        return Err(Errno::BUSY);
    }
    check_rings(grant, socket)?;
    let memory = check_memory(grant, &place, socket)?;
    check_holders(call, process, socket)?;
    call.check_alive()?;
    let loan = session.lend(&place, &device, address.queue, socket, memory)?;
    let result = bind_to(socket, &address, umem.as_ref());
    let is_as_judged = match result {
        Ok(()) => {
            probe.look(socket, address.ifindex, address.queue) == Ok(Bound::There)
                && bound::is_granted(grant, socket)
                && check_memory(grant, &place, socket).is_ok()
        }
        Err(Failure::Bind(_)) => {
            probe.look(socket, address.ifindex, address.queue) == Ok(Bound::Nothing)
        }
        Err(Failure::Open(_)) => false,
    };
    if !is_as_judged {
        call.describe(format!("queue of {device} changed in between: killed"));
        let _ = pidfd_send_signal(target.pidfd(), Signal::KILL);
        watch.seize();
        return Err(Errno::PERM);
    }
    match result {
        Ok(()) => {
            turn.succeeded();
            loan.begin(socket);
            Ok(Answer::Value(0))
        }
        Err(Failure::Bind(errno) | Failure::Open(errno)) => {
            turn.failed(watch);
            Err(errno)
        }
    }
}

/// Place of the effective user id in the field `Uid` of /proc/PID/status.
const EFFECTIVE: usize = 1;

/// Looks for another holder, and the time between two: a child between fork and exec has all sockets for a while.
const MAX_LOOKS: u32 = 10;
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// Refuses a socket that another process than the caller's holds as well: it could bind the socket while that is
/// open. One that is in a message on its way is not seen here, but by what it does.
fn check_holders(call: &Call<'_>, process: u32, socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let inode = rustix::fs::fstat(socket)?.st_ino;
    let other = || {
        let mut holders = holders_of(inode).into_iter();
        holders.find(|holder| holder.pid != process)
    };
    let mut found = other();
    for _ in 1..MAX_LOOKS {
        if found.is_none() {
            break;
        }
        thread::sleep(LOOK_INTERVAL);
        found = other();
    }
    let Some(other) = found else {
        return Ok(());
    };
    call.describe(format!(
        "a socket that process {} ({}) holds as well: close it there before bind",
        other.pid,
        other.name.escape_debug()
    ));
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

/// Why a socket is not bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    Bind(Errno),
    /// And every holder may bind it.
    Open(Errno),
}

/// Binds a socket, which the caller itself cannot bind to any device before and after.
fn bind_to(
    socket: BorrowedFd<'_>,
    address: &Address,
    umem: Option<&OwnedFd>,
) -> Result<(), Failure> {
    let device = i32::try_from(address.ifindex).map_err(|_| Failure::Bind(Errno::NODEV))?;
    sys::set_option(socket, libc::SO_BINDTOIFINDEX, device).map_err(Failure::Bind)?;
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
    sys::set_option(socket, libc::SO_BINDTOIFINDEX, NOWHERE).map_err(Failure::Open)?;
    result.map_err(Failure::Bind)
}

/// Refuses a socket with a ring that is not granted.
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
