//! The error type.

use rustix::io::Errno;
use std::fmt;

/// The kind of an [`Error`], for a program to decide on; the message is for people.
///
/// ```
/// use xsk::{Device, ErrorKind};
///
/// let error = Device::lookup("no such device").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::DeviceMissing);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An invalid size, count or combination of settings.
    InvalidConfig,
    /// A capability or permission is missing.
    PermissionDenied,
    /// The memory lock limit does not allow the UMEM.
    MemoryLock,
    /// The memory could not be allocated.
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
    /// The kernel or driver refused the requested mode.
    ModeRefused,
    /// A frame, socket or map that does not belong to this UMEM, queue or device.
    Foreign,
    /// Any other error of the kernel; see [`Error::errno`].
    Os,
}

/// An error, whose message names the failed step, the cause and the cure.
///
/// ```
/// let error = xsk::Umem::builder().chunk_size(3000).build().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "chunk size 3000 is not possible: choose 2048 or 4096 bytes"
/// );
/// ```
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    errno: Option<Errno>,
    message: String,
}

/// A result with this library's [`Error`].
///
/// ```
/// fn memory() -> xsk::Result<xsk::Umem> {
///     xsk::Umem::builder().chunks(1024).build()
/// }
/// # memory().unwrap();
/// ```
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

    /// An error of the kernel; its errno is appended to the message.
    pub(crate) fn os(kind: ErrorKind, errno: Errno, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            errno: Some(errno),
            message: message.into(),
        }))
    }

    /// Prepends a step or device to the message.
    pub(crate) fn context(mut self, context: impl fmt::Display) -> Self {
        self.0.message = format!("{context}: {}", self.0.message);
        self
    }

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The kernel's errno, if the error came from the kernel.
    pub fn errno(&self) -> Option<i32> {
        self.0.errno.map(Errno::raw_os_error)
    }
}

/// Same as [`Display`](fmt::Display), so that a `main` that returns it prints cause and cure.
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

/// An errno as people search for it: `EBUSY 16: Device or resource busy`.
pub(crate) fn errno_text(errno: Errno) -> String {
    let code = errno.raw_os_error();
    let text = std::io::Error::from_raw_os_error(code).to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    match errno_name(code) {
        Some(name) => format!("{name} {code}: {text}"),
        None => format!("errno {code}: {text}"),
    }
}

/// The names of the errnos of AF_XDP, bpf(2) and XDP drivers.
fn errno_name(code: i32) -> Option<&'static str> {
    /// The kernel's internal code for "not supported", which some drivers return; not in libc.
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
