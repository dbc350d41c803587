//! A sysfs of the network namespace that a thread is in: /sys shows that of whoever mounted it.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// A mount without a place: it goes with the descriptor. Needs `CAP_SYS_ADMIN`.
#[derive(Debug)]
pub struct Sysfs(OwnedFd);

impl Sysfs {
    /// Mounts one for the calling thread's network namespace.
    pub fn mount() -> rustix::io::Result<Self> {
        let sysfs = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&sysfs)?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        Ok(Self(fsmount(
            &sysfs,
            FsMountFlags::FSMOUNT_CLOEXEC,
            attributes,
        )?))
    }

    /// Where the file that people know as `/sys/class/net` and `rest` is.
    pub fn class_net(&self, rest: &str) -> PathBuf {
        format!("/proc/self/fd/{}/class/net{rest}", self.0.as_raw_fd()).into()
    }
}
