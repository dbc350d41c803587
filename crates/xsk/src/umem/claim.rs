//! The memory that this process uses as a UMEM.

use crate::error::{Error, ErrorKind, Result};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Device and inode of each claimed file.
static CLAIMED: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());

/// The tickets of the messages of which this process has made sockets.
static USED: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

/// The right of one UMEM of this process to the memory of a file, until it is dropped. Two UMEMs on the
/// same memory would give each of its bytes two owners.
#[derive(Debug)]
pub(super) struct Claim((u64, u64));

impl Claim {
    pub(super) fn new(file: &OwnedFd) -> Result<Self> {
        let failed = |errno: Errno| Error::os(ErrorKind::Os, errno, "reading a memfd's inode");
        let stat = rustix::fs::fstat(file).map_err(failed)?;
        let inode = (stat.st_dev, stat.st_ino);
        if !lock(&CLAIMED).insert(inode) {
            let message = "the memory handed over is a UMEM of this process already: each message makes one socket";
            return Err(Error::new(ErrorKind::Foreign, message));
        }
        Ok(Self(inode))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        lock(&CLAIMED).remove(&self.0);
    }
}

/// Uses up the ticket of a message. Its places of chunks are those of the handover: the kernel may have chunks
/// since that were free then, also when the socket made of it has been closed.
pub(super) fn use_up(ticket: u64) -> Result<()> {
    if lock(&USED).insert(ticket) {
        return Ok(());
    }
    let message =
        "this process has made a socket of this message already: each message makes one socket";
    Err(Error::new(ErrorKind::Foreign, message))
}

fn lock<T>(set: &Mutex<BTreeSet<T>>) -> MutexGuard<'_, BTreeSet<T>> {
    // Each change is one step.
    set.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_used_up_once() {
        assert!(use_up(7).is_ok());
        assert_eq!(use_up(7).expect_err("again").kind(), ErrorKind::Foreign);
        assert!(use_up(8).is_ok());
    }
}
