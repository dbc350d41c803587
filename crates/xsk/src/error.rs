//! The library's one error type.

use rustix::io::Errno;
use std::fmt;

/// What went wrong, for a program to decide on; the text for people is in [`Error`] itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A size, count or combination of settings that cannot work, found before the kernel was
    /// asked.
    InvalidConfig,
    /// A capability or permission is missing.
    PermissionDenied,
    /// The memory lock limit does not allow the UMEM.
    MemoryLock,
    /// The kernel gave no memory.
    OutOfMemory,
    /// The running kernel lacks a feature.
    Unsupported,
    /// No network device of that name in this network namespace.
    DeviceMissing,
    /// The network device is down.
    DeviceDown,
    /// The device has no such queue.
    QueueOutOfRange,
    /// The device's MTU does not fit the chunks or the driver's XDP limits.
    MtuTooLarge,
    /// Another socket holds the queue.
    QueueBusy,
    /// Another XDP program is attached to the device.
    ProgramAttached,
    /// The kernel or driver refused the mode that was asked for.
    ModeRefused,
    /// A frame, socket or map that does not belong to this UMEM, queue or device.
    Foreign,
    /// Any other refusal by the kernel; see [`Error::errno`].
    Os,
}

/// An error with its cause and its cure: what was tried, what the kernel said, and what to do.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    errno: Option<Errno>,
    message: String,
}

/// A result with this library's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            errno: None,
            message: message.into(),
        }))
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidConfig, message)
    }

    /// An error that the kernel gave; the errno's name is added to the message.
    pub(crate) fn os(kind: ErrorKind, errno: Errno, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            errno: Some(errno),
            message: message.into(),
        }))
    }

    /// The same error with a step or device named in front.
    pub(crate) fn context(mut self, context: impl fmt::Display) -> Self {
        self.0.message = format!("{context}: {}", self.0.message);
        self
    }

    /// What kind of error it is.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The kernel's error number, when the kernel was asked.
    pub fn errno(&self) -> Option<i32> {
        self.0.errno.map(Errno::raw_os_error)
    }
}

/// As [`Display`](fmt::Display), so that a `main` that returns it shows cause and cure.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        match self.0.errno {
            Some(errno) => write!(f, " ({})", errno_text(errno)),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

/// An errno as people search for it: `EBUSY (16): Device or resource busy`.
pub(crate) fn errno_text(errno: Errno) -> String {
    let code = errno.raw_os_error();
    let text = std::io::Error::from_raw_os_error(code).to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    match errno_name(code) {
        Some(name) => format!("{name} {code}: {text}"),
        None => format!("errno {code}: {text}"),
    }
}

/// The names of those errnos that AF_XDP, bpf(2) and XDP drivers give.
fn errno_name(code: i32) -> Option<&'static str> {
    /// The kernel's own code for "not supported", which some drivers let out; not in libc.
    const ENOTSUPP: i32 = 524;
    Some(match code {
        libc::EPERM => "EPERM",
        libc::ENOENT => "ENOENT",
        libc::EINTR => "EINTR",
        libc::EIO => "EIO",
        libc::ENXIO => "ENXIO",
        libc::E2BIG => "E2BIG",
        libc::EBADF => "EBADF",
        libc::EAGAIN => "EAGAIN",
        libc::ENOMEM => "ENOMEM",
        libc::EACCES => "EACCES",
        libc::EFAULT => "EFAULT",
        libc::EBUSY => "EBUSY",
        libc::EEXIST => "EEXIST",
        libc::ENODEV => "ENODEV",
        libc::EINVAL => "EINVAL",
        libc::ENOSPC => "ENOSPC",
        libc::ERANGE => "ERANGE",
        libc::ENOSYS => "ENOSYS",
        libc::ENOTSOCK => "ENOTSOCK",
        libc::ENOPROTOOPT => "ENOPROTOOPT",
        libc::EPROTONOSUPPORT => "EPROTONOSUPPORT",
        libc::ESOCKTNOSUPPORT => "ESOCKTNOSUPPORT",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        libc::EAFNOSUPPORT => "EAFNOSUPPORT",
        libc::ENETDOWN => "ENETDOWN",
        libc::ENOBUFS => "ENOBUFS",
        ENOTSUPP => "ENOTSUPP",
        _ => return None,
    })
}
