//! bpf(2), which rustix and libc do not wrap (`include/uapi/linux/bpf.h`).
#![allow(unsafe_code)] // bpf(2), and owning the descriptors that it returns.

use rustix::io::Errno;
use std::os::fd::{FromRawFd as _, OwnedFd};

/// Runs a command with the leading fields of `union bpf_attr`; the kernel assumes zeroes behind them.
///
/// # Safety
///
/// `attr` must be the `repr(C)` prefix of `union bpf_attr` for `command`, and each pointer in it
/// must be valid for the command's reads and writes.
pub(crate) unsafe fn run<T>(command: i32, attr: &mut T) -> Result<i32, Errno> {
    // SAFETY: needed because there is no wrapper. The size is that of the struct behind the
    // pointer; the rest is the caller's promise.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attr),
            size_of::<T>(),
        )
    };
    if result < 0 {
        let code = std::io::Error::last_os_error().raw_os_error();
        return Err(Errno::from_raw_os_error(code.unwrap_or(libc::EIO)));
    }
    Ok(result as i32)
}

/// Runs a command that returns a descriptor.
///
/// # Safety
///
/// As for [`run`], and `command` must be one that makes a descriptor.
pub(crate) unsafe fn open<T>(command: i32, attr: &mut T) -> Result<OwnedFd, Errno> {
    // SAFETY: the caller's promise.
    let fd = unsafe { run(command, attr) }?;
    // SAFETY: needed to own it: the kernel has just made it for this call.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
