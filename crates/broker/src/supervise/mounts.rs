//! The mount namespace that a caller owns: the one place where handlers mount.
//!
//! | Handler | Asks of the caller's namespaces |
//! |---|---|
//! | mknod | [`Mounts::of`], if its user namespace is another and its filesystem opens no device |
//! | mount | [`Mounts::of`], and its user namespace: the filesystem is made in it |
//! | `af_xdp` | the network namespace, whose devices are asked for the granted ones |
//! | `sched_setscheduler`, sysinfo | the pid namespace, for the numbers in it |
//! | setxattr, connect, `bpf_cgroup_device` | none |
//!
//! That a namespace is another than the broker's says nothing: a confined broker has a mount namespace
//! of its own.

use super::caller::{id_of_namespace, is_in_another_namespace, on_a_thread};
use super::sys;
use crate::seccomp::Target;
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, statx};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, move_mount};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Mutex, PoisonError};

/// Most mounts of a session that are there at a time: their memory is the broker's.
const MAX_MOUNTS: usize = 1024;

/// A mount namespace that belongs to the user namespace of a caller in it, and is not the host's.
#[derive(Debug)]
pub struct Mounts(OwnedFd);

impl Mounts {
    /// That of a caller.
    ///
    /// # Errors
    ///
    /// `EPERM` if it is the host's or the broker's, belongs to another user namespace than the caller's,
    /// or cannot be compared with that of the host's first process.
    pub fn of(target: &Target) -> Result<Self, Errno> {
        let namespace = target.open_proc("ns/mnt", OFlags::RDONLY)?;
        let owner = id_of_namespace(&sys::owner(namespace.as_fd())?)?;
        let own = id_of_namespace(&target.open_proc("ns/user", OFlags::PATH)?)?;
        let is_foreign = is_in_another_namespace(target, "mnt")?;
        if owner == own && is_foreign && !is_hosts(&namespace, FIRST)? {
            Ok(Self(namespace))
        } else {
            Err(Errno::PERM)
        }
    }

    /// Moves a detached mount to a file or directory in it.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if the session has as many as it may have; else those of `move_mount(2)`.
    pub fn put(&self, made: &Made, mount: &OwnedFd, at: &OwnedFd) -> Result<(), Errno> {
        let mut made = made.0.lock().unwrap_or_else(PoisonError::into_inner);
        if made.len() >= MAX_MOUNTS {
            made.retain(Placed::is_there);
        }
        if made.len() >= MAX_MOUNTS {
            return Err(Errno::NOSPC);
        }
        let placed = Placed {
            mount: unique_id(mount),
            namespace: sys::id_of_mounts(self.0.as_fd()).ok(),
        };
        on_a_thread(|| {
            sys::unshare_filesystem()?;
            move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Mount))?;
            let both =
                MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
            move_mount(mount, c"", at, c"", both)
        })?;
        made.push(placed);
        Ok(())
    }
}

/// The mounts of a session.
#[derive(Debug, Default)]
pub struct Made(Mutex<Vec<Placed>>);

/// A mount by the numbers that no other will have; before Linux 6.11 there are none, nor are there of a FUSE mount,
/// and it counts as long as the session lasts.
#[derive(Debug)]
struct Placed {
    mount: Option<u64>,
    namespace: Option<u64>,
}

impl Placed {
    fn is_there(&self) -> bool {
        let (Some(mount), Some(namespace)) = (self.mount, self.namespace) else {
            return true;
        };
        sys::is_mounted(mount, namespace)
    }
}

/// `STATX_MNT_ID_UNIQUE` (6.8).
const UNIQUE: u32 = 0x4000;

/// None of a FUSE mount, which answers only its user.
fn unique_id(mount: &OwnedFd) -> Option<u64> {
    let flags = StatxFlags::from_bits_retain(UNIQUE);
    let stat = statx(mount, c"", AtFlags::EMPTY_PATH, flags).ok()?;
    (stat.stx_mask & UNIQUE != 0).then_some(stat.stx_mnt_id)
}

/// The host's first process, and the first thread of the kernel, which is in the same mount namespace,
/// if the first one is not to be seen.
const FIRST: [u32; 2] = [1, 2];

/// Whether a mount namespace is the host's: unless it is seen to be another, it is.
fn is_hosts(namespace: &OwnedFd, first: [u32; 2]) -> Result<bool, Errno> {
    let [init, thread] = first;
    let open = |process: u32| {
        let path = format!("/proc/{process}/ns/mnt");
        rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
    };
    let opened = open(init).or_else(|errno| {
        // In a pid namespace the second process is any.
        if is_of_kernel(thread) {
            open(thread)
        } else {
            Err(errno)
        }
    });
    match opened {
        Ok(hosts) => Ok(id_of_namespace(&hosts)? == id_of_namespace(namespace)?),
        Err(_) => Ok(true),
    }
}

/// `PF_KTHREAD` (`include/linux/sched.h`).
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Whether a process is a thread of the kernel.
fn is_of_kernel(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name before, in parentheses, may contain anything.
    let flags = stat
        .rsplit_once(')')
        .and_then(|(_, fields)| fields.split_whitespace().nth(6)?.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & KERNEL_THREAD != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_compared_is_the_hosts() {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let own = rustix::fs::open("/proc/self/ns/mnt", flags, Mode::empty()).unwrap();
        let myself = std::process::id();
        // No process has these.
        let (none, other) = (u32::MAX, u32::MAX - 1);
        assert_eq!(is_hosts(&own, [none, other]), Ok(true));
        // A process that is not the kernel's is no witness.
        assert_eq!(is_hosts(&own, [none, myself]), Ok(true));
        let another = rustix::fs::open("/proc/self/ns/net", flags, Mode::empty()).unwrap();
        assert_eq!(is_hosts(&another, [none, myself]), Ok(true));
        assert_eq!(is_hosts(&another, [myself, none]), Ok(false));
        assert_eq!(is_hosts(&own, [myself, none]), Ok(true));
        assert!(!is_of_kernel(myself));
    }
}
