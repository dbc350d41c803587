//! The file that a process runs.

use super::hash;
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, ResolveFlags, Stat, StatxFlags, fstat, makedev, open, openat2,
    statat, statx,
};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// Suffix that the kernel adds to the path of an unlinked file.
const DELETED: &[u8] = b" (deleted)";

/// The file that a process runs, held open.
#[derive(Debug)]
pub struct Executable {
    /// `O_PATH`.
    file: OwnedFd,
    number: (u64, u64),
    is_deleted: bool,
    path: PathBuf,
}

impl fmt::Display for Executable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The process chose the name: it must not write lines into a log.
        let path = self.path.to_string_lossy();
        write!(f, "{}", path.escape_debug())?;
        if self.is_deleted() {
            f.write_str(" (deleted)")?;
        }
        Ok(())
    }
}

impl Executable {
    pub(super) fn new(file: OwnedFd) -> io::Result<Self> {
        // As far as the kernel knows it: a filesystem that a user serves may never answer.
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let stat = statx(&file, "", flags, StatxFlags::BASIC_STATS)?;
        let number = (
            makedev(stat.stx_dev_major, stat.stx_dev_minor),
            stat.stx_ino,
        );
        let is_deleted = stat.stx_nlink == 0;
        // The path of this very file, whatever the process has executed since.
        let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        let mut bytes = path.into_os_string().into_vec();
        if is_deleted && bytes.ends_with(DELETED) {
            bytes.truncate(bytes.len() - DELETED.len());
        }
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(&bytes));
        Ok(Self {
            file,
            number,
            is_deleted,
            path,
        })
    }

    /// Its path when it was opened, as the process's mount namespace has it: only a name, for logs.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it had no path any more.
    pub fn is_deleted(&self) -> bool {
        self.is_deleted
    }

    /// Whether it is the file at a path of the broker's mount namespace, or of that of process 1: a
    /// confined broker does not have the host's files in its own.
    ///
    /// # Errors
    ///
    /// When there is no such file.
    pub fn is_file_at(&self, path: &Path) -> io::Result<bool> {
        is_at(path, self.number)
    }

    /// The SHA-256 of its bytes, read from the open file. The hashes of files that have not changed
    /// for a while are kept; others are read for one process at a time, and for each user in turn.
    ///
    /// # Errors
    ///
    /// When it cannot be read, is too large, or changes meanwhile.
    pub(super) fn sha256(&self, pid: u32, uid: u32) -> io::Result<[u8; 32]> {
        hash::sha256(self.file.as_fd(), pid, uid)
    }

    /// Whether it is the same file.
    pub fn is_same(&self, other: &Self) -> bool {
        self.number == other.number
    }

    /// What stays of it in a file, with its SHA-256 where that is known.
    pub fn to_kept(&self, sha256: Option<[u8; 32]>) -> KeptExecutable {
        KeptExecutable {
            path: self.path.clone(),
            number: self.number,
            sha256,
        }
    }
}

/// The root directory of process 1, for those who may look into it.
fn root_of_init() -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open("/proc/1/root", flags, Mode::empty())
}

/// The file at a path whose root, also for symbolic links, is `root`.
fn stat_below(root: &OwnedFd, path: &Path) -> rustix::io::Result<Stat> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    fstat(openat2(root, path, flags, Mode::empty(), resolve)?)
}

/// Device and inode: the number of a file.
fn number(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

fn is_at(path: &Path, file: (u64, u64)) -> io::Result<bool> {
    let own = statat(CWD, path, AtFlags::empty()).map(|it| number(&it) == file);
    if own == Ok(true) {
        return Ok(true);
    }
    match root_of_init() {
        Ok(root) => Ok(number(&stat_below(&root, path)?) == file),
        Err(_) => Ok(own?),
    }
}

/// The file that a process ran when an earlier broker looked at it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptExecutable {
    path: PathBuf,
    number: (u64, u64),
    sha256: Option<[u8; 32]>,
}

impl fmt::Display for KeptExecutable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.to_string_lossy().escape_debug())
    }
}

/// A file that a process runs, or ran.
pub trait Program: fmt::Display {
    /// Its path: only a name.
    fn path(&self) -> &Path;

    /// Whether it is the file at a path.
    ///
    /// # Errors
    ///
    /// When there is no such file.
    fn is_file_at(&self, path: &Path) -> io::Result<bool>;

    /// Its SHA-256, for a process that runs it.
    ///
    /// # Errors
    ///
    /// When it is not known.
    fn sha256(&self, pid: u32, uid: u32) -> io::Result<[u8; 32]>;
}

impl Program for Executable {
    fn path(&self) -> &Path {
        self.path()
    }

    fn is_file_at(&self, path: &Path) -> io::Result<bool> {
        self.is_file_at(path)
    }

    fn sha256(&self, pid: u32, uid: u32) -> io::Result<[u8; 32]> {
        self.sha256(pid, uid)
    }
}

impl Program for KeptExecutable {
    fn path(&self) -> &Path {
        &self.path
    }

    fn is_file_at(&self, path: &Path) -> io::Result<bool> {
        is_at(path, self.number)
    }

    fn sha256(&self, _: u32, _: u32) -> io::Result<[u8; 32]> {
        let unknown = "no broker has looked at its bytes when it began: start it again";
        self.sha256.ok_or_else(|| io::Error::other(unknown))
    }
}
