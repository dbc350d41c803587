//! Where a caller may mount.

use super::super::super::caller::{Place, Status, is_in_another_namespace, read_proc};
use super::super::super::mounts::Mounts;
use crate::seccomp::Target;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags, fstat, openat2, statx};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use std::ffi::CStr;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// The caller's user and group, as its own user namespace numbers them.
#[derive(Debug)]
pub(super) struct Users {
    uid: u32,
    gid: u32,
    /// If it is another than the broker's.
    namespace: Option<OwnedFd>,
}

/// Place of the id that owns files, in the fields `Uid` and `Gid` of the status.
const FILESYSTEM_ID: usize = 3;

impl Users {
    pub(super) fn of(target: &Target) -> Result<Self, Errno> {
        let status = Status::of(target)?;
        let id = |field: &str, map: &str| {
            let outside = status.number(field, FILESYSTEM_ID)?;
            inside(&read_proc(target, map)?, outside).ok_or(Errno::OVERFLOW)
        };
        let namespace = if is_in_another_namespace(target, "user")? {
            Some(target.open_proc("ns/user", OFlags::RDONLY)?)
        } else {
            None
        };
        Ok(Self {
            uid: id("Uid", "uid_map")?,
            gid: id("Gid", "gid_map")?,
            namespace,
        })
    }

    pub(super) fn uid(&self) -> u32 {
        self.uid
    }

    pub(super) fn gid(&self) -> u32 {
        self.gid
    }

    pub(super) fn namespace(&self) -> Option<BorrowedFd<'_>> {
        self.namespace.as_ref().map(OwnedFd::as_fd)
    }
}

/// The number inside a user namespace of an id outside, by its map.
fn inside(map: &str, outside: u32) -> Option<u32> {
    map.lines().find_map(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        let (first, below, count) = (
            numbers.next()?.ok()?,
            numbers.next()?.ok()?,
            numbers.next()?.ok()?,
        );
        let offset = outside.checked_sub(below)?;
        (offset < count).then(|| first.checked_add(offset))?
    })
}

/// The places of a caller's mount namespace where it may mount.
#[derive(Debug)]
pub(super) struct Point<'a> {
    target: &'a Target,
    mounts: Mounts,
    /// The caller is root of the user namespace that the mount namespace belongs to.
    is_root: bool,
    /// The mount namespace belongs to the broker's user namespace: mounts may propagate to others of
    /// the host.
    is_hosts: bool,
}

impl<'a> Point<'a> {
    /// `EPERM` unless the caller owns its mount namespace.
    pub(super) fn of(target: &'a Target, users: &Users) -> Result<Self, Errno> {
        Ok(Self {
            target,
            mounts: Mounts::of(target)?,
            is_root: users.uid() == 0,
            is_hosts: users.namespace().is_none(),
        })
    }

    /// The mount namespace.
    pub(super) fn mounts(&self) -> &Mounts {
        &self.mounts
    }

    /// Follows a path as the kernel would for the caller, to where it may mount.
    pub(super) fn open(&self, place: &Place, path: &CStr) -> Result<OwnedFd, Errno> {
        let point = place.act(CapabilitySet::empty(), || {
            // Links below /proc would lead to the broker's own files.
            let resolve = ResolveFlags::NO_MAGICLINKS;
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            openat2(CWD, path, flags, Mode::empty(), resolve)
        })?;
        let is_own = fstat(&point)?.st_uid == place.uid;
        if !(self.is_root || is_own) || (self.is_hosts && self.is_shared(&point)?) {
            return Err(Errno::PERM);
        }
        Ok(point)
    }

    /// Whether the mount there appears in other mount namespaces too.
    fn is_shared(&self, point: &OwnedFd) -> Result<bool, Errno> {
        let flags = StatxFlags::MNT_ID;
        let mount = statx(point, c"", AtFlags::EMPTY_PATH, flags)?
            .stx_mnt_id
            .to_string();
        let mounts = File::from(self.target.open_proc("mountinfo", OFlags::RDONLY)?);
        for line in BufReader::new(mounts).lines() {
            let line = line.map_err(|_| Errno::IO)?;
            if line.split(' ').next() == Some(&mount) {
                let fields = line.split(" - ").next().unwrap_or_default();
                return Ok(fields.contains(" shared:"));
            }
        }
        // Not below the caller's root.
        Err(Errno::PERM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_mapped_into_a_namespace() {
        let map = "         0       1000          1\n         1     100000      65536\n";
        assert_eq!(inside(map, 1000), Some(0));
        assert_eq!(inside(map, 100_000), Some(1));
        assert_eq!(inside(map, 165_535), Some(65536));
        assert_eq!(inside(map, 165_536), None);
        assert_eq!(inside(map, 0), None);
        assert_eq!(inside("0 0 4294967295", 5), Some(5));
        assert_eq!(inside("", 5), None);
    }
}
