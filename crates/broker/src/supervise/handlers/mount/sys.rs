//! `mount_setattr(2)`, and an ioctl of namespaces.
#![allow(unsafe_code)] // Calls that rustix does not have, and owning a descriptor of one.

use rustix::io::Errno;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

fn check(result: i64) -> Result<i32, Errno> {
    if result < 0 {
        let code = std::io::Error::last_os_error().raw_os_error();
        return Err(Errno::from_raw_os_error(code.unwrap_or(libc::EIO)));
    }
    Ok(result as i32)
}

/// Shows the users of a detached mount as those of a user namespace (5.12).
pub(super) fn map_users(mount: BorrowedFd<'_>, users: BorrowedFd<'_>) -> Result<(), Errno> {
    let attr = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: users.as_raw_fd() as u64,
    };
    let size = size_of::<libc::mount_attr>();
    // SAFETY: needed because there is no wrapper. The kernel reads an empty string and one
    // `mount_attr`, which outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attr,
            size,
        )
    };
    check(result).map(drop)
}

/// `NS_GET_USERNS`.
const GET_USERNS: u64 = 0xb701;

/// The user namespace that owns a namespace.
pub(super) fn owner(namespace: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    // SAFETY: needed because rustix has no such ioctl. It has no argument.
    let result = unsafe { libc::ioctl(namespace.as_raw_fd(), GET_USERNS as _) };
    let fd = check(result.into())?;
    // SAFETY: needed to own it: the kernel has just made it for this call.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
