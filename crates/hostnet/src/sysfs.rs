//! File systems of the kernel's own, mounted without a place: such a mount goes with its descriptor.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// A mount without a place.
#[derive(Debug)]
pub struct Detached(OwnedFd);

impl Detached {
    /// Mounts the file system of this name. Needs `CAP_SYS_ADMIN`.
    pub fn mount(filesystem: &str) -> rustix::io::Result<Self> {
        let filesystem = fsopen(filesystem, FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&filesystem)?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        Ok(Self(fsmount(
            &filesystem,
            FsMountFlags::FSMOUNT_CLOEXEC,
            attributes,
        )?))
    }

    /// Where the file `path` of it is; it begins with a slash.
    pub fn path(&self, path: &str) -> PathBuf {
        format!("/proc/self/fd/{}{path}", self.0.as_raw_fd()).into()
    }
}

/// A sysfs of the network namespace that a thread is in: /sys shows that of whoever mounted it.
#[derive(Debug)]
pub struct Sysfs(Detached);

impl Sysfs {
    /// Mounts one for the calling thread's network namespace. Needs `CAP_SYS_ADMIN`.
    pub fn mount() -> rustix::io::Result<Self> {
        Detached::mount("sysfs").map(Self)
    }

    /// Where the file that people know as `/sys/class/net` and `rest` is.
    pub fn class_net(&self, rest: &str) -> PathBuf {
        self.0.path(&format!("/class/net{rest}"))
    }
}
