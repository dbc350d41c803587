//! An option of sockets that rustix lacks.
#![allow(unsafe_code)] // getsockopt(2).

use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `SO_NETNS_COOKIE` (`include/uapi/asm-generic/socket.h`), since Linux 5.14.
const SO_NETNS_COOKIE: libc::c_int = 71;
/// That of the first namespace, and of all on an older kernel.
const FIRST: u64 = 1;

/// The cookie of a socket's network namespace, in which its devices' indices count.
pub(crate) fn namespace_cookie(socket: BorrowedFd<'_>) -> Result<u64, Errno> {
    let mut cookie = 0_u64;
    let mut len = size_of::<u64>() as libc::socklen_t;
    // SAFETY: needed because there is no wrapper. The kernel writes at most `len` bytes to the cookie, which
    // has as many.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut len,
        )
    };
    if result == 0 {
        return Ok(cookie);
    }
    match Errno::from_io_error(&std::io::Error::last_os_error()) {
        Some(Errno::NOPROTOOPT) | None => Ok(FIRST),
        Some(errno) => Err(errno),
    }
}
