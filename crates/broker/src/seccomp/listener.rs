//! The listener of a seccomp filter.

use super::sys::{self, ADDFD_SEND, ADDFD_SETFD, AddFd, CONTINUE, Notification, Response};
use anyhow::{Context as _, Result, bail};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The descriptor on which a filter's notified calls arrive.
#[derive(Debug)]
pub struct Listener(OwnedFd);

/// The outcome of a notified call.
#[derive(Debug)]
pub enum Answer {
    /// The kernel runs the call. Only where the kernel itself checks all that matters: the caller can
    /// change the memory behind its arguments at any time.
    Continue,
    /// The call returns this value.
    Value(i64),
    /// The call fails.
    Error(Errno),
    /// The call returns a new descriptor.
    Descriptor {
        /// The descriptor, of which the caller gets a duplicate.
        fd: OwnedFd,
        /// Whether an exec closes it.
        close_on_exec: bool,
    },
}

impl Listener {
    /// Takes a descriptor that another process sent.
    ///
    /// # Errors
    ///
    /// When it is no listener, or the kernel's structures have other sizes.
    pub fn new(fd: OwnedFd) -> Result<Self> {
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let kind = std::fs::read_link(path).context("cannot look at the descriptor")?;
        if kind.as_os_str() != "anon_inode:seccomp notify" {
            bail!(
                "the descriptor is {}, no seccomp listener: send the descriptor of SECCOMP_FILTER_FLAG_NEW_LISTENER",
                kind.display()
            );
        }
        if !sys::sizes_match().context("this kernel has no seccomp user notification (5.0)")? {
            bail!(
                "this kernel's seccomp structures are larger than this program's: use a newer weir-broker"
            );
        }
        // Faster where the kernel has it (6.6), and not needed.
        let _ = sys::set_sync_wake_up(fd.as_fd());
        Ok(Self(fd))
    }

    /// Waits for the next call.
    ///
    /// # Errors
    ///
    /// `ENOENT` when its caller died before it was received: not an error of the listener.
    pub fn receive(&self) -> Result<Notification, Errno> {
        sys::receive(self.0.as_fd())
    }

    /// Whether a call still waits. Earlier reads of its caller are valid then.
    pub fn is_valid(&self, id: u64) -> bool {
        sys::is_valid(self.0.as_fd(), id)
    }

    /// Answers a call.
    ///
    /// # Errors
    ///
    /// `ENOENT` when the caller is gone; `EMFILE` when it can have no more descriptors: the call
    /// still waits then.
    pub fn answer(&self, id: u64, answer: &Answer) -> Result<(), Errno> {
        let (value, error, flags) = match answer {
            Answer::Continue => (0, 0, CONTINUE),
            Answer::Value(value) => (*value, 0, 0),
            Answer::Error(errno) => (0, -errno.raw_os_error(), 0),
            Answer::Descriptor { fd, close_on_exec } => {
                return self
                    .add(id, fd.as_fd(), None, *close_on_exec, ADDFD_SEND)
                    .map(drop);
            }
        };
        let response = Response {
            id,
            value,
            error,
            flags,
        };
        sys::respond(self.0.as_fd(), response)
    }

    /// Gives the caller a duplicate of `fd`, in its slot `at` or a free one, while its call goes on
    /// waiting; returns the slot.
    ///
    /// # Errors
    ///
    /// As those of [`answer`](Self::answer).
    pub fn add_descriptor(
        &self,
        id: u64,
        fd: BorrowedFd<'_>,
        at: Option<u32>,
        close_on_exec: bool,
    ) -> Result<i32, Errno> {
        self.add(id, fd, at, close_on_exec, 0)
    }

    fn add(
        &self,
        id: u64,
        fd: BorrowedFd<'_>,
        at: Option<u32>,
        close_on_exec: bool,
        flags: u32,
    ) -> Result<i32, Errno> {
        let request = AddFd {
            id,
            flags: flags | at.map_or(0, |_| ADDFD_SETFD),
            source: fd.as_raw_fd() as u32,
            target: at.unwrap_or(0),
            target_flags: if close_on_exec {
                libc::O_CLOEXEC as u32
            } else {
                0
            },
        };
        sys::add_fd(self.0.as_fd(), request)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
