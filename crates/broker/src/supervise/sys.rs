//! Calls of threads that act for a caller.
#![allow(unsafe_code)] // unshare(2), sched_setscheduler(2), and an ioctl of namespaces.

use rustix::io::Errno;
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Gives this thread a root, a working directory and a umask of its own.
pub(super) fn unshare_filesystem() -> Result<(), Errno> {
    // SAFETY: needed because the general call can part threads that share descriptors. This flag
    // leaves those alone.
    unsafe { unshare_unsafe(UnshareFlags::FS) }
}

/// Sets a thread's scheduling policy; `thread` is its id in this process's pid namespace.
pub(super) fn set_scheduler(thread: u32, policy: i32, priority: i32) -> Result<(), Errno> {
    // The kernel's `sched_param` has this field alone, musl's has more.
    // SAFETY: needed because rustix has no such call, and musl's fails. The kernel reads one
    // integer, which outlives the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            thread,
            policy,
            &raw const priority,
        )
    };
    check(result).map(drop)
}

/// `NS_GET_PID_FROM_PIDNS` (6.11).
const GET_PID_FROM_PIDNS: u64 = (2 << 30) | (4 << 16) | (0xb7 << 8) | 0x6;

/// The id in this process's pid namespace of the thread that has `id` in another.
///
/// # Errors
///
/// `ESRCH` when there is none; `ENOTTY` before Linux 6.11.
pub(super) fn translate_pid(namespace: BorrowedFd<'_>, id: i32) -> Result<u32, Errno> {
    // SAFETY: needed because rustix has no such ioctl. Its argument is a plain value.
    let result = unsafe { libc::ioctl(namespace.as_raw_fd(), GET_PID_FROM_PIDNS as _, id) };
    check(result.into()).map(|id| id as u32)
}

/// `NS_GET_OWNER_UID` (4.11).
const GET_OWNER_UID: u64 = (0xb7 << 8) | 0x4;

/// The user who made a user namespace, as this process's sees it.
///
/// # Errors
///
/// `EINVAL` when it is no user namespace.
pub(super) fn owner_of_namespace(namespace: BorrowedFd<'_>) -> Result<u32, Errno> {
    let mut owner: libc::uid_t = 0;
    let pointer = &raw mut owner;
    // SAFETY: needed because rustix has no such ioctl. It writes one `uid_t`.
    let result = unsafe { libc::ioctl(namespace.as_raw_fd(), GET_OWNER_UID as _, pointer) };
    check(result.into())?;
    Ok(owner)
}

fn check(result: i64) -> Result<i64, Errno> {
    if result < 0 {
        let code = std::io::Error::last_os_error().raw_os_error();
        return Err(Errno::from_raw_os_error(code.unwrap_or(libc::EIO)));
    }
    Ok(result)
}
