//! seccomp(2) and the ioctls of its listener (`include/uapi/linux/seccomp.h`).
#![allow(unsafe_code)] // seccomp(2), ioctl(2), pidfd_open(2) with PIDFD_THREAD, and owning their descriptors.

use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A result whose error is the kernel's errno.
pub(super) type SysResult<T> = Result<T, Errno>;

/// A system call that waits for its answer (`struct seccomp_notif`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Notification {
    /// Of this notification; unique for its listener only.
    pub id: u64,
    /// Thread id in the reader's pid namespace; 0 if it cannot be seen from there.
    pub pid: u32,
    flags: u32,
    /// The system call's number.
    pub call: i32,
    /// `AUDIT_ARCH_…` of the call.
    pub arch: u32,
    instruction_pointer: u64,
    /// The raw arguments: the kernel truncates those that are ints.
    pub args: [u64; 6],
}

/// `struct seccomp_notif_resp`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Response {
    pub(super) id: u64,
    pub(super) value: i64,
    pub(super) error: i32,
    pub(super) flags: u32,
}

/// `struct seccomp_notif_addfd`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct AddFd {
    pub(super) id: u64,
    pub(super) flags: u32,
    pub(super) source: u32,
    pub(super) target: u32,
    pub(super) target_flags: u32,
}

/// `struct seccomp_notif_sizes`.
#[repr(C)]
#[derive(Debug, Default, PartialEq, Eq)]
struct Sizes {
    notification: u16,
    response: u16,
    data: u16,
}

const _: () = assert!(size_of::<Notification>() == 80);
const _: () = assert!(size_of::<Response>() == 24);
const _: () = assert!(size_of::<AddFd>() == 24);

/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE`.
pub(super) const CONTINUE: u32 = 1;
/// `SECCOMP_ADDFD_FLAG_SETFD` and `SECCOMP_ADDFD_FLAG_SEND`.
pub(super) const ADDFD_SETFD: u32 = 1;
pub(super) const ADDFD_SEND: u32 = 2;
/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`.
const SYNC_WAKE_UP: libc::c_ulong = 1;
/// `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV` (5.19).
const WAIT_KILLABLE_RECV: libc::c_ulong = 1 << 5;

const fn ioctl_number(direction: u64, number: u64, size: usize) -> u64 {
    (direction << 30) | ((size as u64) << 16) | ((b'!' as u64) << 8) | number
}

const NOTIF_RECV: u64 = ioctl_number(3, 0, size_of::<Notification>());
const NOTIF_SEND: u64 = ioctl_number(3, 1, size_of::<Response>());
const NOTIF_ID_VALID: u64 = ioctl_number(1, 2, size_of::<u64>());
const NOTIF_ADDFD: u64 = ioctl_number(1, 3, size_of::<AddFd>());
const NOTIF_SET_FLAGS: u64 = ioctl_number(1, 4, size_of::<u64>());

fn check(result: libc::c_long) -> SysResult<libc::c_long> {
    if result < 0 {
        let code = std::io::Error::last_os_error().raw_os_error();
        return Err(Errno::from_raw_os_error(code.unwrap_or(libc::EIO)));
    }
    Ok(result)
}

fn ioctl<T>(fd: BorrowedFd<'_>, number: u64, argument: *mut T) -> SysResult<i32> {
    // SAFETY: needed because rustix has no seccomp ioctls. Private to this file, whose callers pair
    // each number with a pointer to the structure whose size is in it, or with a plain value for
    // SET_FLAGS, which the kernel takes by value.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), number as _, argument) };
    check(result.into()).map(|value| value as i32)
}

/// Waits for the next notification. `ENOENT` when the caller died meanwhile.
pub(super) fn receive(listener: BorrowedFd<'_>) -> SysResult<Notification> {
    // The kernel refuses a buffer that is not zeroed.
    let mut notification = Notification::default();
    ioctl(listener, NOTIF_RECV, &raw mut notification)?;
    Ok(notification)
}

pub(super) fn respond(listener: BorrowedFd<'_>, mut response: Response) -> SysResult<()> {
    ioctl(listener, NOTIF_SEND, &raw mut response).map(drop)
}

pub(super) fn is_valid(listener: BorrowedFd<'_>, mut id: u64) -> bool {
    ioctl(listener, NOTIF_ID_VALID, &raw mut id).is_ok()
}

/// Puts a descriptor into the caller's table; returns its number there.
pub(super) fn add_fd(listener: BorrowedFd<'_>, mut request: AddFd) -> SysResult<i32> {
    ioctl(listener, NOTIF_ADDFD, &raw mut request)
}

/// Wakes the caller on the CPU of the one that answers (6.6).
pub(super) fn set_sync_wake_up(listener: BorrowedFd<'_>) -> SysResult<()> {
    let by_value = std::ptr::without_provenance_mut::<u64>(SYNC_WAKE_UP as usize);
    ioctl(listener, NOTIF_SET_FLAGS, by_value).map(drop)
}

/// Whether the kernel's structures are those of this file.
pub(super) fn sizes_match() -> SysResult<bool> {
    let mut sizes = Sizes::default();
    let pointer = &raw mut sizes;
    // SAFETY: needed because there is no wrapper. SECCOMP_GET_NOTIF_SIZES writes one `Sizes`.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_GET_NOTIF_SIZES,
            0_u32,
            pointer,
        )
    };
    check(result)?;
    Ok(sizes
        == Sizes {
            notification: size_of::<Notification>() as u16,
            response: size_of::<Response>() as u16,
            data: 64,
        })
}

/// Installs a filter for this thread and returns its listener. A signal does not interrupt a
/// notified call once it was received, so that no effect happens twice.
///
/// The caller has set `no_new_privs`, or has `CAP_SYS_ADMIN`.
///
/// # Errors
///
/// `EBUSY` when a filter with a listener is installed; `EINVAL` before Linux 5.19.
pub fn install(filter: &[libc::sock_filter]) -> Result<OwnedFd, Errno> {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| Errno::INVAL)?,
        filter: filter.as_ptr().cast_mut(),
    };
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | WAIT_KILLABLE_RECV;
    // SAFETY: needed because there is no wrapper. The kernel copies `len` instructions from the
    // slice, which outlives the call, and does not write.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const program,
        )
    };
    let fd = check(result)?;
    // SAFETY: needed to own it: the kernel has just made it for this call.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// A descriptor of a thread, also one that does not lead its process (`PIDFD_THREAD`, 6.9).
pub(super) fn pidfd_of_thread(tid: u32) -> SysResult<OwnedFd> {
    // SAFETY: needed because rustix's flags lack PIDFD_THREAD. No pointers.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_open, tid, libc::PIDFD_THREAD) };
    let fd = check(result)?;
    // SAFETY: needed to own it: the kernel has just made it for this call.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}
