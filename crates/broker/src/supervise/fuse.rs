//! FUSE filesystems of callers that answer nothing: a thread that waits for one ends by no signal, SIGKILL
//! included, once the request has been read (`request_wait_answer`, `fs/fuse/dev.c`).

use super::caller::Status;
use rustix::fs::{Dir, Mode, OFlags, Stat, fstat, openat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;

/// Most bytes of a list of mounts.
const MOST_BYTES: u64 = 4 << 20;

/// All FUSE filesystems, as fusectl has them: a directory each, named by the minor number of its device.
#[derive(Debug)]
pub struct Connections(OwnedFd);

impl Connections {
    /// Mounts them for this process alone, which needs `CAP_SYS_ADMIN`.
    ///
    /// # Errors
    ///
    /// `ENODEV` on a kernel without FUSE.
    pub fn open() -> Result<Self, Errno> {
        let filesystem = fsopen(c"fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&filesystem)?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        fsmount(&filesystem, FsMountFlags::FSMOUNT_CLOEXEC, attributes).map(Self)
    }

    /// The filesystems, mounted by ordinary users, with requests that wait, and which a caller has mounted or
    /// sees. Those of root answer, or the host has other troubles.
    pub fn silent(&self, caller: u32) -> BTreeSet<u32> {
        let user = Status::of_thread(caller).and_then(|status| status.number("Uid", 1));
        let seen = mounts(caller);
        let all = self.all().unwrap_or_default();
        let wanted = all.into_iter().filter(|number| {
            let owner = self.open_file(*number, ".", OFlags::PATH).and_then(fstat);
            let owner = owner.map_or(0, |directory: Stat| directory.st_uid);
            let is_callers = seen.contains(number) || user == Ok(owner);
            owner != 0 && is_callers && self.waiting(*number) > 0
        });
        wanted.collect()
    }

    /// Ends a filesystem: all requests fail, and all later ones.
    ///
    /// # Errors
    ///
    /// `ENOENT` when it is gone.
    pub fn end(&self, number: u32) -> Result<(), Errno> {
        let file = self.open_file(number, "abort", OFlags::WRONLY)?;
        let written = File::from(file).write_all(b"1");
        written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    fn all(&self) -> Result<Vec<u32>, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = Dir::new(openat(&self.0, ".", flags, Mode::empty())?)?;
        let names = directory.filter_map(|entry| {
            let entry = entry.ok()?;
            entry.file_name().to_str().ok()?.parse().ok()
        });
        Ok(names.collect())
    }

    fn waiting(&self, number: u32) -> u32 {
        let file = self.open_file(number, "waiting", OFlags::RDONLY);
        let text = file.map_err(std::io::Error::from).and_then(|file| {
            let mut text = String::new();
            File::from(file).read_to_string(&mut text)?;
            Ok(text)
        });
        text.map_or(0, |text| text.trim().parse().unwrap_or(0))
    }

    fn open_file(&self, number: u32, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = format!("{number}/{name}");
        openat(&self.0, path, flags | OFlags::CLOEXEC, Mode::empty())
    }
}

/// The FUSE filesystems that a process sees, by the minor numbers of their devices.
fn mounts(caller: u32) -> BTreeSet<u32> {
    let mut bytes = Vec::new();
    let read = File::open(format!("/proc/{caller}/mountinfo"))
        .and_then(|file| file.take(MOST_BYTES).read_to_end(&mut bytes));
    if read.is_err() {
        return BTreeSet::new();
    }
    let text = String::from_utf8_lossy(&bytes);
    text.lines().filter_map(fuse_of).collect()
}

/// The device of a line of mountinfo, if it is a FUSE filesystem's.
fn fuse_of(line: &str) -> Option<u32> {
    let (mount, filesystem) = line.split_once(" - ")?;
    let kind = filesystem.split(' ').next()?;
    let minor = mount.split(' ').nth(2)?.strip_prefix("0:")?;
    (kind.split('.').next() == Some("fuse")).then(|| minor.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fuse_is_found() {
        for (line, expected) in [
            ("36 35 0:31 / /a rw shared:1 - fuse f rw", Some(31)),
            ("36 35 0:31 / /a rw - fuse.sshfs f rw", Some(31)),
            ("36 35 0:31 / /a rw - fusectl f rw", None),
            ("36 35 8:1 / /a rw - fuseblk /dev/sda1 rw", None),
            ("36 35 0:31 / /a rw", None),
            ("", None),
        ] {
            assert_eq!(fuse_of(line), expected, "{line}");
        }
    }
}
