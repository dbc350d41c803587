//! A socket's entry in an XSKMAP.

use crate::error::{Error, ErrorKind, Result};
use crate::program::Program;
use crate::sys;
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A socket's entry in an XSKMAP, deleted on drop.
#[derive(Debug)]
pub(crate) struct XskmapEntry {
    map: OwnedFd,
    queue: u32,
    /// Keeps the built-in program attached while a socket uses it.
    pub(super) program: Option<Program>,
}

impl XskmapEntry {
    /// Puts `socket` into slot `queue` of `map`.
    pub(crate) fn new(
        map: BorrowedFd<'_>,
        queue: u32,
        socket: BorrowedFd<'_>,
        program: Option<Program>,
    ) -> std::result::Result<Self, Errno> {
        let map = rustix::io::fcntl_dupfd_cloexec(map, 0)?;
        sys::xskmap_insert(map.as_fd(), queue, socket)?;
        Ok(Self {
            map,
            queue,
            program,
        })
    }
}

impl Drop for XskmapEntry {
    fn drop(&mut self) {
        // An error does not matter: the kernel deletes a closed socket's entry itself.
        let _ = sys::xskmap_remove(self.map.as_fd(), self.queue);
    }
}

/// Checks that a map is an XSKMAP with a slot for `queue`.
pub(crate) fn check_map(map: BorrowedFd<'_>, queue: u32) -> Result<()> {
    let info = sys::map_info(map)
        .map_err(|errno| Error::os(ErrorKind::Foreign, errno, "the map given is not a BPF map"))?;
    if !info.is_xskmap {
        return Err(Error::new(
            ErrorKind::Foreign,
            "the map given is not an XSKMAP",
        ));
    }
    if queue >= info.max_entries {
        let entries = info.max_entries;
        let message = format!(
            "the XSKMAP given has {entries} slots, and none for queue {queue}: make it larger"
        );
        return Err(Error::new(ErrorKind::QueueOutOfRange, message));
    }
    Ok(())
}
