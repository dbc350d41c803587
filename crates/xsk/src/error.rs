//! The error type.

use hostnet::privilege::{self, Capability, Feature};
use rustix::io::Errno;
use std::fmt;
use std::path::Path;

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
    /// A capability or permission is missing, or a sandbox refuses the step; the message says which.
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

impl ErrorKind {
    /// Whether it is the state of the device that is in the way, which may change: the same call may
    /// succeed after a [`DeviceEvent`](crate::DeviceEvent), or when another socket is closed.
    ///
    /// ```
    /// use xsk::ErrorKind;
    ///
    /// assert!(ErrorKind::DeviceMissing.may_pass());
    /// assert!(!ErrorKind::InvalidConfig.may_pass());
    /// ```
    pub fn may_pass(self) -> bool {
        matches!(
            self,
            Self::DeviceMissing
                | Self::DeviceDown
                | Self::QueueOutOfRange
                | Self::MtuTooLarge
                | Self::QueueBusy
                | Self::ProgramAttached
        )
    }
}

/// An error, whose message names the failed step, the cause and the cure.
///
/// ```
/// let error = xsk::Umem::builder().chunks(0).build().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "a UMEM of 0 chunks is not possible: choose 1 to 16777216"
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

    /// An error of the host's network, which has its step, cause and cure.
    pub(crate) fn host(error: &hostnet::Error) -> Self {
        let kind = match error.kind() {
            hostnet::ErrorKind::NotFound => ErrorKind::DeviceMissing,
            hostnet::ErrorKind::InvalidInput => ErrorKind::InvalidConfig,
            hostnet::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
            hostnet::ErrorKind::Unsupported => ErrorKind::Unsupported,
            _ => ErrorKind::Os,
        };
        Self(Box::new(Inner {
            kind,
            errno: error.errno().map(Errno::from_raw_os_error),
            message: error.message().to_owned(),
        }))
    }

    /// The error of a step that failed for a missing capability or a sandbox; none if `errno` is about neither.
    pub(crate) fn refused(
        step: impl fmt::Display,
        errno: Errno,
        feature: Feature,
        needed: &[Capability],
    ) -> Option<Self> {
        let why = privilege::refusal(errno.raw_os_error(), feature, needed)?;
        let message = format!("{step}: {why}");
        Some(Self::os(ErrorKind::PermissionDenied, errno, message))
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
    hostnet::errno_text(errno.raw_os_error())
}

/// A path in a message: on its line, whatever bytes it has.
pub(crate) fn shown(path: &Path) -> String {
    path.to_string_lossy().escape_debug().to_string()
}
