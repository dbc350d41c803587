//! socket(2) of `AF_XDP` and of `NETLINK_ROUTE`.

use super::session::Session;
use super::sys;
use crate::seccomp::Answer;
use crate::supervise::Call;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::os::fd::{AsFd as _, OwnedFd};

/// `SOCK_TYPE_MASK`.
const TYPE: i32 = 0xf;
const FLAGS: i32 = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;

/// A device that is nowhere. A socket that may be bound to no other cannot be bound by its caller: the
/// kernel asks for no privilege there, but for `CAP_NET_RAW` to change this (Linux 6.6).
pub(super) const NOWHERE: i32 = i32::MAX;

pub(super) fn handle(session: &Session, call: &Call<'_>) -> Result<Answer, Errno> {
    let (domain, kind, protocol) = (call.int(0), call.int(1), call.int(2));
    if kind & !(TYPE | FLAGS) != 0 {
        return Ok(Answer::Continue);
    }
    let family = match (domain, kind & TYPE, protocol) {
        (libc::AF_XDP, libc::SOCK_RAW, 0) => AddressFamily::XDP,
        (libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_DGRAM, libc::NETLINK_ROUTE) => {
            AddressFamily::NETLINK
        }
        _ => return Ok(Answer::Continue),
    };
    let target = call.target()?;
    let place = session.place(target)?;
    // Its own socket has its own rights.
    if family == AddressFamily::NETLINK && !session.is_elsewhere(target, &place)? {
        return Ok(Answer::Continue);
    }
    call.check_alive()?;
    let is_nonblocking = kind & libc::SOCK_NONBLOCK != 0;
    let fd = place.act(|| open(family, is_nonblocking))?;
    Ok(Answer::Descriptor {
        fd,
        close_on_exec: kind & libc::SOCK_CLOEXEC != 0,
    })
}

fn open(family: AddressFamily, is_nonblocking: bool) -> Result<OwnedFd, Errno> {
    let mut flags = SocketFlags::CLOEXEC;
    flags.set(SocketFlags::NONBLOCK, is_nonblocking);
    // The protocol of both is 0: NETLINK_ROUTE is.
    let socket = socket_with(family, SocketType::RAW, flags, None)?;
    if family == AddressFamily::XDP {
        sys::set_option(socket.as_fd(), libc::SO_BINDTOIFINDEX, NOWHERE)?;
    }
    Ok(socket)
}
