//! Control groups that a caller may attach programs to.

use super::sys;
use crate::seccomp::Target;
use crate::supervise::caller::{read_all, read_proc};
use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, fstat, fstatfs, openat, openat2};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// `CGROUP2_SUPER_MAGIC`.
const CGROUP2: i64 = 0x6367_7270;
/// Most control groups below the caller's that are searched.
const MOST: usize = 4096;

/// A control group, opened below the broker's own mount of cgroup2: no mount of the caller's can
/// make another one look like it.
#[derive(Debug)]
pub(super) struct Cgroup {
    fd: OwnedFd,
    id: u64,
    root: u64,
}

impl Cgroup {
    /// The control group of a directory, if it is delegated to the caller: it is the caller's own or
    /// one below it, belongs to the same user, and does not contain the broker.
    pub(super) fn find(target: &Target, directory: &OwnedFd, user: u32) -> Result<Self, Errno> {
        let id = id_of(directory)?;
        let root = mount_point()?;
        let own = path_of(&read_proc(target, "cgroup")?)?;
        let opened = open(&root, relative(&own))?;
        let (fd, path) = search(opened, own, id)?;
        if fstat(&fd)?.st_uid != user || contains_broker(&path)? {
            return Err(Errno::PERM);
        }
        let root = fstat(&root)?.st_ino;
        Ok(Self { fd, id, root })
    }

    /// Of all control groups.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Refuses a control group where a program would run instead of one above, and not beside it:
    /// it would permit devices that the one above forbids.
    pub(super) fn check_attachable(&self) -> Result<(), Errno> {
        let mut at = openat(&self.fd, ".", directory(), Mode::empty())?;
        loop {
            if sys::query(at.as_fd())?.gives_way() {
                return Err(Errno::PERM);
            }
            if fstat(&at)?.st_ino == self.root {
                return Ok(());
            }
            at = openat(&at, "..", directory(), Mode::empty())?;
        }
    }
}

fn directory() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC
}

/// The id of the control group of a directory.
fn id_of(descriptor: &OwnedFd) -> Result<u64, Errno> {
    let status = fstat(descriptor)?;
    let is_directory = FileType::from_raw_mode(status.st_mode) == FileType::Directory;
    if !is_directory || fstatfs(descriptor)?.f_type != CGROUP2 {
        return Err(Errno::BADF);
    }
    Ok(status.st_ino)
}

/// The control group with an id, at or below one.
fn search(own: OwnedFd, path: PathBuf, id: u64) -> Result<(OwnedFd, PathBuf), Errno> {
    let mut left = vec![(own, path)];
    for _ in 0..MOST {
        let (fd, path) = left.pop().ok_or(Errno::PERM)?;
        if fstat(&fd)?.st_ino == id {
            return Ok((fd, path));
        }
        for entry in Dir::read_from(&fd)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy();
            if entry.file_type() != FileType::Directory || name == "." || name == ".." {
                continue;
            }
            // It may have been removed meanwhile.
            if let Ok(below) = openat(&fd, entry.file_name(), directory(), Mode::empty()) {
                left.push((below, path.join(&*name)));
            }
        }
        if left.len() > MOST {
            return Err(Errno::PERM);
        }
    }
    Err(Errno::PERM)
}

/// Whether the broker runs at or below a control group.
fn contains_broker(path: &Path) -> Result<bool, Errno> {
    Ok(path_of(&read_own("cgroup")?)?.starts_with(path))
}

/// The path in the unified hierarchy, of `/proc/TID/cgroup`.
fn path_of(text: &str) -> Result<PathBuf, Errno> {
    let path = text.lines().find_map(|line| line.strip_prefix("0::"));
    path.map(PathBuf::from).ok_or(Errno::NOENT)
}

fn relative(path: &Path) -> &Path {
    let relative = path.strip_prefix("/").unwrap_or(path);
    if relative.as_os_str().is_empty() {
        Path::new(".")
    } else {
        relative
    }
}

fn open(root: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    openat2(root, path, directory(), Mode::empty(), resolve)
}

/// The root of the broker's mount of cgroup2.
fn mount_point() -> Result<OwnedFd, Errno> {
    let text = read_own("mountinfo")?;
    let path = text.lines().find_map(cgroup2_mount).ok_or(Errno::NOENT)?;
    rustix::fs::open(path, directory(), Mode::empty())
}

/// The mount point of a line of mountinfo, where it is the whole hierarchy.
fn cgroup2_mount(line: &str) -> Option<&str> {
    let (mount, filesystem) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(3);
    let (root, point) = (mount.next()?, mount.next()?);
    (filesystem.starts_with("cgroup2 ") && root == "/").then_some(point)
}

/// Reads a file of this process's directory below /proc.
fn read_own(file: &str) -> Result<String, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    read_all(rustix::fs::open(
        format!("/proc/self/{file}"),
        flags,
        Mode::empty(),
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_mount_of_the_whole_hierarchy_counts() {
        let whole = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw";
        assert_eq!(cgroup2_mount(whole), Some("/sys/fs/cgroup"));
        let part = "30 23 0:26 /a /mnt rw - cgroup2 cgroup2 rw";
        assert_eq!(cgroup2_mount(part), None);
        let v1 = "30 23 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu";
        assert_eq!(cgroup2_mount(v1), None);
        assert_eq!(cgroup2_mount("30"), None);
    }

    #[test]
    fn paths_are_below_the_root() {
        assert_eq!(relative(Path::new("/")), Path::new("."));
        assert_eq!(relative(Path::new("/a/b")), Path::new("a/b"));
    }

    #[test]
    fn a_group_above_the_broker_contains_it() {
        assert_eq!(contains_broker(Path::new("/")), Ok(true));
        assert_eq!(contains_broker(Path::new("/no/such/group")), Ok(false));
    }
}
