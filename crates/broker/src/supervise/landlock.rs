//! Callers that have restricted themselves by Landlock.
//!
//! The kernel shows nobody whether a process has a Landlock domain, and the broker's own calls in its place
//! would not be held to it. So `landlock_restrict_self(2)` is notified, and leaves a mark that all
//! descendants inherit and none can remove: the hard limit `RLIMIT_LOCKS`, which has meant nothing since
//! Linux 2.4.25, is no longer infinite. All calls of a marked process are left to the kernel.
//!
//! The mark is the whole process's, also where one thread alone is restricted. A process that was restricted
//! before its supervision began has no mark.

use super::caller::{limit, read_proc, set_limit};
use crate::seccomp::Target;
use rustix::io::Errno;

/// Its type in the crate libc is not everywhere the same.
const RLIMIT_LOCKS: i32 = 10;

/// The limit's line in /proc/TID/limits.
const LOCKS: &str = "Max file locks";

/// Whether a caller, or a process that it descends from, has restricted itself under supervision.
///
/// # Errors
///
/// `ESRCH` when it is gone.
pub fn is_restricted(target: &Target) -> Result<bool, Errno> {
    let limits = read_proc(target, "limits")?;
    let [_, hard] = limit(&limits, LOCKS).ok_or(Errno::IO)?;
    Ok(hard.is_some())
}

/// Marks a caller.
///
/// # Errors
///
/// `EPERM` if its user or group ids differ, as those of a set-user-id program.
pub fn mark(target: &Target) -> Result<(), Errno> {
    let most = libc::RLIM_INFINITY - 1;
    set_limit(target, RLIMIT_LOCKS, [most; 2])
}
