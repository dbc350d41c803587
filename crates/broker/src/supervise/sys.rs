//! Calls of threads that act for a caller.
#![allow(unsafe_code)] // fork(2), unshare(2), sched_setscheduler(2), statmount(2), prlimit(2), ioctls of namespaces.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{
    Gid, Pid, PidfdFlags, Signal, Uid, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use rustix::thread::{UnshareFlags, set_thread_res_gid, set_thread_res_uid, unshare_unsafe};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

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

/// `NS_GET_USERNS` (4.9).
const GET_USERNS: u64 = (0xb7 << 8) | 0x1;

/// The user namespace that owns a namespace.
pub(super) fn owner(namespace: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    // SAFETY: needed because rustix has no such ioctl. It has no argument.
    let result = unsafe { libc::ioctl(namespace.as_raw_fd(), GET_USERNS as _) };
    let fd = check(result.into())?;
    // SAFETY: needed to own it: the kernel has just made it for this call.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// `NS_GET_MNTNS_ID` (6.11).
const GET_MNTNS_ID: u64 = (2 << 30) | (8 << 16) | (0xb7 << 8) | 0x5;

/// The number of a mount namespace, which no other will have.
///
/// # Errors
///
/// `ENOTTY` before Linux 6.11.
pub(super) fn id_of_mounts(namespace: BorrowedFd<'_>) -> Result<u64, Errno> {
    let mut id = 0_u64;
    let pointer = &raw mut id;
    // SAFETY: needed because rustix has no such ioctl. It writes one `u64`.
    let result = unsafe { libc::ioctl(namespace.as_raw_fd(), GET_MNTNS_ID as _, pointer) };
    check(result.into())?;
    Ok(id)
}

/// statmount(2) (6.8), whose number the crate libc does not have.
const STATMOUNT: libc::c_long = 457;

/// Whether a mount is in a mount namespace, both by their unique numbers.
pub(super) fn is_mounted(mount: u64, namespace: u64) -> bool {
    // `struct mnt_id_req`: its size, the mount, no parameter, the namespace.
    let request: [u64; 4] = [32, mount, 0, namespace];
    // `struct statmount`, without the strings that nothing asks for.
    let mut answer = [0_u64; 64];
    // SAFETY: needed because there is no wrapper. The kernel reads one request of the size that it states,
    // and writes at most as many bytes as it is told.
    let result = unsafe {
        libc::syscall(
            STATMOUNT,
            &raw const request,
            answer.as_mut_ptr(),
            size_of_val(&answer),
            0,
        )
    };
    check(result) != Err(Errno::NOENT)
}

/// Sets soft and hard limit of a thread's process.
///
/// # Errors
///
/// `EPERM` unless this process has `CAP_SYS_RESOURCE`, or all ids of the other process and the limit is no higher.
pub(super) fn set_limit(thread: u32, resource: i32, limits: [u64; 2]) -> Result<(), Errno> {
    let none = std::ptr::null_mut::<[u64; 2]>();
    // SAFETY: needed because rustix knows no thread by a number that may be anyone's. The kernel reads the two
    // numbers of `struct rlimit64`, which outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_prlimit64,
            thread,
            resource,
            &raw const limits,
            none,
        )
    };
    check(result).map(drop)
}

/// Makes a call in a process of its own, all of whose ids are these. That process may be signalled by others of
/// the user: a thread of the broker's that they could kill would take the broker with it.
///
/// # Errors
///
/// Those of `act`; `ETIMEDOUT` if the child is stopped or killed.
pub(super) fn in_child(
    uid: u32,
    gid: u32,
    act: impl FnOnce() -> Result<(), Errno>,
) -> Result<(), Errno> {
    // SAFETY: needed because a thread's credentials would not do. The child makes system calls only, without the C
    // library's memory or locks, and ends by _exit.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(Errno::AGAIN);
    }
    if child == 0 {
        let (user, group) = (Uid::from_raw(uid), Gid::from_raw(gid));
        let done = set_thread_res_gid(group, group, group)
            .and_then(|()| set_thread_res_uid(user, user, user))
            .and_then(|()| act());
        // SAFETY: needed to end without the parent's exit handlers.
        unsafe { libc::_exit(done.err().map_or(0, Errno::raw_os_error)) }
    }
    wait_for(child)
}

/// How long a child may take for its call.
const CHILD_TIMEOUT: Timespec = Timespec {
    tv_sec: 2,
    tv_nsec: 0,
};

/// The errno that a child exits with.
fn wait_for(child: libc::pid_t) -> Result<(), Errno> {
    let child = Pid::from_raw(child).ok_or(Errno::CHILD)?;
    let pidfd = pidfd_open(child, PidfdFlags::empty())?;
    let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
    let ended = retry_on_intr(|| poll(&mut fds, Some(&CHILD_TIMEOUT)));
    if ended != Ok(1) {
        let _ = pidfd_send_signal(&pidfd, Signal::KILL);
    }
    let status = retry_on_intr(|| waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED))?;
    match status.and_then(|status| status.exit_status()) {
        Some(0) => Ok(()),
        Some(code) => Err(Errno::from_raw_os_error(code)),
        None => Err(Errno::TIMEDOUT),
    }
}

fn check(result: i64) -> Result<i64, Errno> {
    if result < 0 {
        let code = std::io::Error::last_os_error().raw_os_error();
        return Err(Errno::from_raw_os_error(code.unwrap_or(libc::EIO)));
    }
    Ok(result)
}
