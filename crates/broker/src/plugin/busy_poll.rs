//! Busy polling of a client's socket.
#![allow(unsafe_code)] // socket options that rustix lacks.

use super::protocol::BusyPoll;
use crate::policy;
use rustix::io::Errno;
use rustix::net::AddressFamily;
use rustix::net::sockopt::socket_domain;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

/// Sets busy polling of an AF_XDP socket, within a grant's limits.
///
/// # Errors
///
/// `EAFNOSUPPORT` for another socket, `ENOTSOCK` for none; the kernel's.
pub fn configure(socket: impl AsFd, wanted: BusyPoll, most: policy::BusyPoll) -> Result<(), Errno> {
    let socket = socket.as_fd();
    if socket_domain(socket)? != AddressFamily::XDP {
        return Err(Errno::AFNOSUPPORT);
    }
    let (usecs, budget) = within(wanted, most);
    set(socket, libc::SO_PREFER_BUSY_POLL, 1)?;
    set(socket, libc::SO_BUSY_POLL, usecs)?;
    set(socket, libc::SO_BUSY_POLL_BUDGET, budget)
}

fn within(wanted: BusyPoll, most: policy::BusyPoll) -> (i32, i32) {
    let usecs = wanted.usecs.min(most.most_usecs);
    let budget = wanted.budget.min(most.most_budget);
    (i32::try_from(usecs).unwrap_or(i32::MAX), budget.into())
}

fn set(socket: BorrowedFd<'_>, option: i32, value: i32) -> Result<(), Errno> {
    // SAFETY: needed because there is no wrapper. The kernel reads the value, of the length given,
    // during the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 {
        return Ok(());
    }
    let code = std::io::Error::last_os_error().raw_os_error();
    Err(Errno::from_raw_os_error(code.unwrap_or(libc::EIO)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_clamped() {
        let most = policy::BusyPoll {
            most_usecs: 20,
            most_budget: 64,
        };
        let wanted = |usecs, budget| within(BusyPoll { usecs, budget }, most);
        assert_eq!(wanted(5, 8), (5, 8));
        assert_eq!(wanted(u32::MAX, u16::MAX), (20, 64));
    }

    #[test]
    fn only_af_xdp_sockets_are_taken() {
        let most = policy::BusyPoll {
            most_usecs: 20,
            most_budget: 64,
        };
        let wanted = BusyPoll {
            usecs: 20,
            budget: 64,
        };
        let other = std::os::unix::net::UnixDatagram::unbound().expect("a socket");
        assert_eq!(configure(&other, wanted, most), Err(Errno::AFNOSUPPORT));
        let none = std::fs::File::open("/proc/self/exe").expect("a file");
        assert_eq!(configure(&none, wanted, most), Err(Errno::NOTSOCK));
    }
}
