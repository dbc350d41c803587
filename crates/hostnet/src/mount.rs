//! Mounts: those of this process, and mounts of one's own at no path.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::error::{Context as _, Result};
use crate::privilege::Capability;

/// The mounts of this process's mount namespace, one a line, the topmost last (proc(5)).
pub const MOUNTS: &str = "/proc/self/mounts";

/// A line of [`MOUNTS`]: `source target type options 0 0`.
///
/// The words are as the kernel writes them: a space in a path is `\040` (`mangle` in
/// `fs/proc_namespace.c`).
///
/// ```
/// use hostnet::mount::Mount;
///
/// let mounts = "none /mnt bpf rw 0 0\ntmpfs /mnt tmpfs rw 0 0\n";
/// let top = Mount::topmost(mounts, "/mnt").unwrap();
/// assert_eq!((top.source, top.filesystem), ("tmpfs", "tmpfs"));
/// assert_eq!(Mount::topmost(mounts, "/run"), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mount<'a> {
    /// The whole line.
    pub line: &'a str,
    /// The device, or a name that the one who mounted it chose.
    pub source: &'a str,
    /// The directory.
    pub target: &'a str,
    /// The type of the file system, such as `tmpfs`.
    pub filesystem: &'a str,
}

impl<'a> Mount<'a> {
    /// The mount at `target` that hides the others there, from the text of [`MOUNTS`].
    pub fn topmost(mounts: &'a str, target: &str) -> Option<Self> {
        let mut lines = mounts.lines().rev().filter_map(Self::read);
        lines.find(|mount| mount.target == target)
    }

    fn read(line: &'a str) -> Option<Self> {
        // The source can be empty, so words are separated by single spaces.
        let mut words = line.split(' ');
        Some(Self {
            line,
            source: words.next()?,
            target: words.next()?,
            filesystem: words.next()?,
        })
    }
}

/// A file system of the kernel's own, mounted at no path: it is unmounted when this is dropped
/// (fsmount(2), Linux 5.2).
///
/// ```no_run
/// use hostnet::mount::DetachedMount;
///
/// let securityfs = DetachedMount::new("securityfs")?;
/// let modules = std::fs::read_to_string(securityfs.path("/lsm"))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "it is unmounted when it is dropped"]
pub struct DetachedMount(OwnedFd);

impl DetachedMount {
    /// Mounts a file system of this type, such as `sysfs`, without set-user-ID programs, devices
    /// and programs. Needs `CAP_SYS_ADMIN`.
    pub fn new(filesystem: &str) -> Result<Self> {
        let mount = || {
            let context = fsopen(filesystem, FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_create(&context)?;
            let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
                | MountAttrFlags::MOUNT_ATTR_NODEV
                | MountAttrFlags::MOUNT_ATTR_NOEXEC;
            fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
        };
        let mounted: rustix::io::Result<_> = mount();
        let mounted = mounted.with_context(|| format!("cannot mount {filesystem}"));
        let mounted = mounted.needs(Capability::SysAdmin);
        Ok(Self(mounted?))
    }

    /// The path of a file of the mount for this process; `path` begins with a slash.
    pub fn path(&self, path: &str) -> PathBuf {
        format!("/proc/self/fd/{}{path}", self.0.as_raw_fd()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topmost_mount_is_the_last_one() {
        let mounts =
            "none /a bpf rw,mode=700 0 0\ntmpfs /a tmpfs rw 0 0\nbpf /run/bpf bpf rw 0 0\n";
        let filesystem = |path| Mount::topmost(mounts, path).map(|mount| mount.filesystem);
        assert_eq!(filesystem("/a"), Some("tmpfs"));
        assert_eq!(filesystem("/run/bpf"), Some("bpf"));
        assert_eq!(filesystem("/run"), None);
        assert_eq!(Mount::topmost("x", "/a"), None);
        let unnamed = Mount::topmost(" /b tmpfs rw 0 0", "/b");
        assert_eq!(unnamed.map(|mount| mount.source), Some(""));
    }

    #[test]
    fn this_process_has_a_root() {
        let mounts = std::fs::read_to_string(MOUNTS).expect("a list of mounts");
        assert!(Mount::topmost(&mounts, "/").is_some(), "{mounts}");
    }
}
