//! `SO_PEERPIDFD`.
#![allow(unsafe_code)] // getsockopt(2) with SO_PEERPIDFD, which rustix lacks, and owning its descriptor.

use rustix::io::Errno;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// `SO_PEERPIDFD` (`include/uapi/asm-generic/socket.h`, 6.5).
const SO_PEERPIDFD: libc::c_int = 77;

/// The pidfd of the process at the other end of a unix socket. `ENOPROTOOPT` before Linux 6.5.
pub(super) fn peer_pidfd(socket: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let mut fd: libc::c_int = -1;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: needed because there is no wrapper. The kernel writes one int to `fd`, whose size is
    // in `length`; both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut fd).cast(),
            &raw mut length,
        )
    };
    if result < 0 {
        let code = std::io::Error::last_os_error().raw_os_error();
        return Err(Errno::from_raw_os_error(code.unwrap_or(libc::EIO)));
    }
    // SAFETY: needed to own it: the kernel has just made it for this call.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
