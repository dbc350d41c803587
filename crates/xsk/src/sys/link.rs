//! Whether a network device is up (`SIOCGIFFLAGS`, netdevice(7)).
#![allow(unsafe_code)] // ioctl(2).

use super::{SysResult, last_errno};
use rustix::net::netdevice::index_to_name;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A device, asked for in the network namespace in which this was made, from whichever thread.
#[derive(Debug)]
pub(super) struct Link {
    /// Any socket: the kernel takes its namespace.
    socket: OwnedFd,
    index: u32,
}

impl Link {
    pub(super) fn new(index: u32) -> SysResult<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        Ok(Self { socket, index })
    }

    /// A socket in its network namespace.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether the device is set up, with or without a carrier; `ENODEV` when it is gone.
    pub(super) fn is_up(&self) -> SysResult<bool> {
        let name = index_to_name(&self.socket, self.index)?;
        // SAFETY: needed for a plain C struct; all zeroes is a valid `ifreq`.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = libc::c_char::from_ne_bytes([from]);
        }
        // SAFETY: needed because rustix has no wrapper. `request` is a local of the layout that the
        // command reads and writes.
        let result = unsafe {
            libc::ioctl(
                self.socket.as_raw_fd(),
                libc::SIOCGIFFLAGS as libc::Ioctl,
                &raw mut request,
            )
        };
        if result != 0 {
            return Err(last_errno());
        }
        // SAFETY: needed because it is a union; the command has written its flags.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        Ok(i32::from(flags) & libc::IFF_UP != 0)
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn a_device_that_is_gone_is_told_from_one_that_is_there() {
        // The loopback has index 1 in every namespace; its state is the machine's.
        let lo = Link::new(1).expect("a socket");
        assert!(lo.is_up().is_ok());
        let none = Link::new(i32::MAX as u32).expect("a socket");
        assert_eq!(none.is_up(), Err(Errno::NODEV));
    }
}
