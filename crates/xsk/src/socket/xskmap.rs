//! A socket's entry in an XSKMAP.

use crate::error::{Error, ErrorKind, Result};
use crate::program::Program;
use crate::sys::{self, Kernel, KernelSocket, MapInfo};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A socket's entry in an XSKMAP, deleted on drop.
#[derive(Debug)]
pub(crate) struct XskmapEntry {
    /// None once another process has the entry.
    map: Option<OwnedFd>,
    kernel: Arc<dyn Kernel>,
    queue: u32,
    /// Set when the entry could not be deleted.
    left_in_map: Arc<AtomicBool>,
    /// Keeps the built-in program attached while a socket uses it.
    pub(crate) program: Option<Program>,
}

impl XskmapEntry {
    /// Puts `socket` into slot `queue` of `map`.
    pub(crate) fn new(
        kernel: &Arc<dyn Kernel>,
        map: BorrowedFd<'_>,
        queue: u32,
        socket: &dyn KernelSocket,
        program: Option<Program>,
        left_in_map: &Arc<AtomicBool>,
    ) -> std::result::Result<Self, Errno> {
        let map = rustix::io::fcntl_dupfd_cloexec(map, 0)?;
        socket.insert_into_map(map.as_fd(), queue)?;
        Ok(Self::existing(kernel, map, queue, program, left_in_map))
    }

    /// An entry that another process has made.
    pub(crate) fn existing(
        kernel: &Arc<dyn Kernel>,
        map: OwnedFd,
        queue: u32,
        program: Option<Program>,
        left_in_map: &Arc<AtomicBool>,
    ) -> Self {
        let map = Some(map);
        Self {
            map,
            kernel: Arc::clone(kernel),
            queue,
            left_in_map: Arc::clone(left_in_map),
            program,
        }
    }

    /// The map.
    pub(super) fn map(&self) -> Option<BorrowedFd<'_>> {
        self.map.as_ref().map(AsFd::as_fd)
    }

    /// Leaves the entry to another process.
    pub(super) fn leave(mut self) {
        self.map = None;
    }
}

impl Drop for XskmapEntry {
    fn drop(&mut self) {
        let Some(map) = &self.map else { return };
        match self.kernel.remove_from_map(map.as_fd(), self.queue) {
            Ok(()) | Err(Errno::NOENT) => {}
            // The kernel deletes a closed socket's entry itself; but a child between fork and exec may keep the
            // socket open. The map may be frozen, or bpf(2) forbidden since.
            Err(_) => self.left_in_map.store(true, Ordering::Relaxed),
        }
    }
}

/// Entries in XSKMAPs of the caller's, deleted on drop.
#[derive(Debug, Default)]
pub(super) struct CallersEntries(Vec<(MapId, XskmapEntry)>);

type MapId = u32;

impl CallersEntries {
    /// Leaves the entries to another process.
    pub(super) fn leave(&mut self) {
        self.0.drain(..).for_each(|(_, entry)| entry.leave());
    }

    /// Puts `socket` into a slot of `map`, replacing the former entry.
    pub(super) fn insert(
        &mut self,
        kernel: &Arc<dyn Kernel>,
        map: BorrowedFd<'_>,
        slot: u32,
        socket: &dyn KernelSocket,
        left_in_map: &Arc<AtomicBool>,
    ) -> Result<()> {
        let id = find_map(map, slot)?.id;
        let known = |(known, entry): &(MapId, XskmapEntry)| (*known, entry.queue) == (id, slot);
        let inserted = if self.0.iter().any(known) {
            socket.insert_into_map(map, slot)
        } else {
            XskmapEntry::new(kernel, map, slot, socket, None, left_in_map)
                .map(|entry| self.0.push((id, entry)))
        };
        inserted.map_err(|errno| insert_error(errno, slot))
    }
}

/// The error of a failed insertion.
pub(crate) fn insert_error(errno: Errno, slot: u32) -> Error {
    if errno == Errno::OPNOTSUPP {
        let message = "a socket without an RX ring cannot be in an XSKMAP: open it with one";
        return Error::os(ErrorKind::InvalidConfig, errno, message);
    }
    let message = format!("inserting the socket into slot {slot} of the XSKMAP");
    Error::os(ErrorKind::Os, errno, message)
}

/// Checks that a map is an XSKMAP with a slot for `queue`.
pub(crate) fn check_map(map: BorrowedFd<'_>, queue: u32) -> Result<()> {
    find_map(map, queue).map(drop)
}

fn find_map(map: BorrowedFd<'_>, queue: u32) -> Result<MapInfo> {
    let info = sys::map_info(map)
        .map_err(|errno| Error::os(ErrorKind::Foreign, errno, "the map given is not a BPF map"))?;
    if !info.is_xskmap() {
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
    Ok(info)
}
