//! The thread whose call waits for an answer.

use super::listener::Listener;
use super::sys::{self, Notification};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{PidfdGetfdFlags, pidfd_getfd};
use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

/// Most bytes that are ever copied of a caller's memory for one argument.
pub const MOST_BYTES: usize = 1 << 20;

/// The thread whose call waits for an answer. Each part was opened before the call was seen to wait
/// still, so it belongs to that thread and to no later one with its id.
#[derive(Debug)]
pub struct Target {
    tid: u32,
    pidfd: OwnedFd,
    /// `/proc/TID`.
    proc: OwnedFd,
    memory: File,
}

impl Target {
    /// Opens the thread of a notification.
    ///
    /// # Errors
    ///
    /// `ESRCH` when it is gone, or in a pid namespace that this process does not see.
    pub fn open(listener: &Listener, notification: &Notification) -> Result<Self, Errno> {
        let tid = notification.pid;
        if tid == 0 {
            return Err(Errno::SRCH);
        }
        let pidfd = sys::pidfd_of_thread(tid)?;
        let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc = rustix::fs::open(format!("/proc/{tid}"), directory, Mode::empty())?;
        let memory = openat(&proc, "mem", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        if !listener.is_valid(notification.id) {
            return Err(Errno::SRCH);
        }
        Ok(Self {
            tid,
            pidfd,
            proc,
            memory: memory.into(),
        })
    }

    /// Its thread id in this process's pid namespace, for logs: it may be another thread's later.
    pub fn tid(&self) -> u32 {
        self.tid
    }

    /// Its pidfd.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Opens a file of its directory below /proc, such as `ns/net` or `root`.
    ///
    /// # Errors
    ///
    /// As those of openat(2).
    pub fn open_proc(&self, file: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        openat(&self.proc, file, flags | OFlags::CLOEXEC, Mode::empty())
    }

    /// Copies memory at `address`.
    ///
    /// # Errors
    ///
    /// `EFAULT` when not all of it can be read; `E2BIG` for more than a MiB.
    pub fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Errno> {
        if buffer.len() > MOST_BYTES {
            return Err(Errno::TOOBIG);
        }
        let result = self.memory.read_exact_at(buffer, address);
        result.map_err(|_| Errno::FAULT)
    }

    /// Copies `len` bytes at `address`.
    ///
    /// # Errors
    ///
    /// As those of [`read`](Self::read).
    pub fn read_bytes(&self, address: u64, len: usize) -> Result<Vec<u8>, Errno> {
        if len > MOST_BYTES {
            return Err(Errno::TOOBIG);
        }
        let mut bytes = vec![0; len];
        self.read(address, &mut bytes)?;
        Ok(bytes)
    }

    /// Copies a string of at most `most` bytes with its final zero.
    ///
    /// # Errors
    ///
    /// `EFAULT` when it cannot be read; `ENAMETOOLONG` when it has no end.
    pub fn read_string(&self, address: u64, most: usize) -> Result<CString, Errno> {
        // The smallest that a machine has: larger ones end at such a border as well.
        const PAGE: u64 = 4096;
        let mut string = Vec::new();
        while string.len() < most {
            let at = address
                .checked_add(string.len() as u64)
                .ok_or(Errno::FAULT)?;
            // A page at a time: the next one may not be mapped.
            let rest = (PAGE - at % PAGE).min((most - string.len()) as u64) as usize;
            let part = self.read_bytes(at, rest)?;
            if let Some(end) = part.iter().position(|&byte| byte == 0) {
                string.extend_from_slice(part.get(..end).unwrap_or_default());
                return CString::new(string).map_err(|_| Errno::INVAL);
            }
            string.extend(part);
        }
        Err(Errno::NAMETOOLONG)
    }

    /// Writes to its memory at `address`.
    ///
    /// # Errors
    ///
    /// `EFAULT` when not all of it can be written.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        let result = self.memory.write_all_at(bytes, address);
        result.map_err(|_| Errno::FAULT)
    }

    /// A duplicate of its descriptor `fd`, closed on exec.
    ///
    /// # Errors
    ///
    /// `EBADF` when it has none.
    pub fn descriptor(&self, fd: i32) -> Result<OwnedFd, Errno> {
        if fd < 0 {
            // rustix panics on it.
            return Err(Errno::BADF);
        }
        pidfd_getfd(&self.pidfd, fd, PidfdGetfdFlags::empty())
    }
}
