//! The crate's one error type.

use std::path::Path;
use std::{fmt, io};

use rustix::io::Errno;

use crate::privilege::{self, Capability, Feature, FileStep};

/// The cause of an [`Error`], for a program to decide on; the text for people is in the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument or text that cannot be right, found before the kernel was asked.
    InvalidInput,
    /// A capability or permission is missing, or a sandbox refuses the step (`EPERM`, `EACCES`).
    PermissionDenied,
    /// No such device, namespace, process or file (`ENODEV`, `ENXIO`, `ENOENT`, `ESRCH`).
    NotFound,
    /// A device, address or name exists already (`EEXIST`).
    AlreadyExists,
    /// The running kernel or the driver lacks a feature (`EOPNOTSUPP`, `ENOSYS`, …).
    Unsupported,
    /// The kernel's answer has a format that this crate does not know.
    InvalidAnswer,
    /// A setting to be put back was changed by another program meanwhile.
    Changed,
    /// Any other refusal by the kernel; see [`Error::errno`].
    Os,
}

impl ErrorKind {
    fn of(errno: Errno) -> Self {
        match errno {
            Errno::PERM | Errno::ACCESS => Self::PermissionDenied,
            Errno::NODEV | Errno::NXIO | Errno::NOENT | Errno::SRCH => Self::NotFound,
            Errno::EXIST => Self::AlreadyExists,
            Errno::OPNOTSUPP
            | Errno::NOSYS
            | Errno::AFNOSUPPORT
            | Errno::PROTONOSUPPORT
            | Errno::NOTTY => Self::Unsupported,
            _ => Self::Os,
        }
    }
}

/// An error: the step that failed, its cause and, where there is one, the cure.
///
/// ```
/// use hostnet::ErrorKind;
/// use hostnet::cpulist::CpuList;
///
/// let error = "3-1".parse::<CpuList>().unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::InvalidInput);
/// assert_eq!(error.errno(), None);
/// assert_eq!(
///     error.to_string(),
///     "3-1 is no range of CPUs: write the lower one first"
/// );
/// ```
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    errno: Option<Errno>,
    message: String,
    /// The message has the privilege or the sandbox that the step failed for.
    is_explained: bool,
}

/// A result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            errno: None,
            message: message.into(),
            is_explained: false,
        }))
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidInput, message)
    }

    /// A refusal by the kernel, with the reason that it gave, if any.
    pub(crate) fn os(errno: Errno, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind: ErrorKind::of(errno),
            errno: Some(errno),
            message: message.into(),
            is_explained: false,
        }))
    }

    /// The same error with the failed step in front.
    pub(crate) fn context(mut self, step: impl fmt::Display) -> Self {
        self.0.message = match self.0.message.as_str() {
            "" => step.to_string(),
            cause => format!("{step}: {cause}"),
        };
        self
    }

    /// The same error with a cure behind its message.
    pub(crate) fn cure(mut self, cure: &str) -> Self {
        if !self.0.message.is_empty() {
            self.0.message.push_str(": ");
        }
        self.0.message.push_str(cure);
        self
    }

    /// The same error, with the privilege or the sandbox that a system call failed for.
    pub(crate) fn of_call(mut self, needed: &[Capability]) -> Self {
        let errno = self.errno().filter(|_| !self.0.is_explained);
        match errno.and_then(|errno| privilege::refusal(errno, Feature::Base, needed)) {
            Some(why) => {
                self.0.kind = ErrorKind::PermissionDenied;
                self.0.is_explained = true;
                self.cure(&why)
            }
            None => self,
        }
    }

    /// The same error, with the mode, the mount or the sandbox that refuses to make a file.
    pub(crate) fn of_file(self, path: &Path) -> Self {
        let errno = self.errno();
        let why = errno.and_then(|it| privilege::file_refusal(it, path, FileStep::Write));
        match why {
            Some(why) => self.cure(&why),
            None => self,
        }
    }

    /// The step, the cause and the cure, without the error number.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The cause, for a program to decide on.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The kernel's error number as in errno(3), if the kernel refused.
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
        match (self.0.message.as_str(), self.0.errno) {
            (message, None) => f.write_str(message),
            ("", Some(errno)) => f.write_str(&errno_text(errno.raw_os_error())),
            (message, Some(errno)) => {
                write!(f, "{message} ({})", errno_text(errno.raw_os_error()))
            }
        }
    }
}

impl std::error::Error for Error {}

/// The error code as the kernel gave it, or the message where the kernel was not asked.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match error.errno() {
            Some(errno) => Self::new(Self::from_raw_os_error(errno).kind(), error),
            None => Self::other(error),
        }
    }
}

/// An error of a call that this crate makes, before it has a step.
pub(crate) trait Cause {
    fn into_error(self) -> Error;
}

impl Cause for Error {
    fn into_error(self) -> Error {
        self
    }
}

impl Cause for Errno {
    fn into_error(self) -> Error {
        Error::os(self, "")
    }
}

impl Cause for io::Error {
    fn into_error(self) -> Error {
        match self.raw_os_error() {
            Some(errno) => Error::os(Errno::from_raw_os_error(errno), ""),
            None => Error::new(ErrorKind::Os, self.to_string()),
        }
    }
}

/// Names the step that failed, and its cure.
pub(crate) trait Context<T> {
    fn context(self, step: impl fmt::Display) -> Result<T>;

    fn with_context<D: fmt::Display>(self, step: impl FnOnce() -> D) -> Result<T>;

    /// A cure for errors of this kind.
    fn cure(self, kind: ErrorKind, cure: &str) -> Result<T>;

    /// The capability that a system call needs: it or the sandbox that refuses the call is the cause of `EPERM`.
    fn needs(self, capability: Capability) -> Result<T>;

    /// The same for a system call that needs no capability.
    fn needs_none(self) -> Result<T>;

    /// The capability that a request over netlink needs.
    fn request_needs(self, capability: Capability) -> Result<T>;
}

impl<T, E: Cause> Context<T> for Result<T, E> {
    fn context(self, step: impl fmt::Display) -> Result<T> {
        self.with_context(|| step)
    }

    fn with_context<D: fmt::Display>(self, step: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|cause| cause.into_error().context(step()))
    }

    fn cure(self, kind: ErrorKind, cure: &str) -> Result<T> {
        self.map_err(|cause| match cause.into_error() {
            error if error.kind() == kind => error.cure(cure),
            error => error,
        })
    }

    fn needs(self, capability: Capability) -> Result<T> {
        self.map_err(|cause| cause.into_error().of_call(&[capability]))
    }

    fn needs_none(self) -> Result<T> {
        self.map_err(|cause| cause.into_error().of_call(&[]))
    }

    fn request_needs(self, capability: Capability) -> Result<T> {
        self.map_err(|cause| {
            let error = cause.into_error();
            match privilege::refused_request(capability) {
                Some(why) if error.0.errno == Some(Errno::PERM) && !error.0.is_explained => {
                    error.cure(&why)
                }
                _ => error,
            }
        })
    }
}

/// An error number as people search for it, with the cure of one that has the same everywhere.
///
/// ```
/// assert_eq!(hostnet::errno_text(16), "EBUSY 16: Device or resource busy");
/// ```
pub fn errno_text(code: i32) -> String {
    let text = io::Error::from_raw_os_error(code).to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let cure = match code {
        libc::EMFILE => ": raise the limit with `ulimit -n` or LimitNOFILE=",
        _ => "",
    };
    match errno_name(code) {
        Some(name) => format!("{name} {code}: {text}{cure}"),
        None => format!("errno {code}: {text}"),
    }
}

/// The kernel's own "not supported", which some drivers return instead of `EOPNOTSUPP`; not in
/// errno(3) (`include/linux/errno.h`).
pub const ENOTSUPP: i32 = 524;

macro_rules! named {
    ($($errno:ident)*) => {
        &[$((libc::$errno, stringify!($errno))),*]
    };
}

/// Those of errno(3).
const ERRNOS: &[(i32, &str)] = named! {
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT
    ENOTBLK EBUSY EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG
    ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY
    ELOOP ENOMSG EIDRM ECHRNG EL2NSYNC EL3HLT EL3RST ELNRNG EUNATCH ENOCSI EL2HLT EBADE EBADR
    EXFULL ENOANO EBADRQC EBADSLT EBFONT ENOSTR ENODATA ETIME ENOSR ENONET ENOPKG EREMOTE
    ENOLINK EADV ESRMNT ECOMM EPROTO EMULTIHOP EDOTDOT EBADMSG EOVERFLOW ENOTUNIQ EBADFD EREMCHG
    ELIBACC ELIBBAD ELIBSCN ELIBMAX ELIBEXEC EILSEQ ERESTART ESTRPIPE EUSERS ENOTSOCK
    EDESTADDRREQ EMSGSIZE EPROTOTYPE ENOPROTOOPT EPROTONOSUPPORT ESOCKTNOSUPPORT EOPNOTSUPP
    EPFNOSUPPORT EAFNOSUPPORT EADDRINUSE EADDRNOTAVAIL ENETDOWN ENETUNREACH ENETRESET
    ECONNABORTED ECONNRESET ENOBUFS EISCONN ENOTCONN ESHUTDOWN ETOOMANYREFS ETIMEDOUT
    ECONNREFUSED EHOSTDOWN EHOSTUNREACH EALREADY EINPROGRESS ESTALE EUCLEAN ENOTNAM ENAVAIL
    EISNAM EREMOTEIO EDQUOT ENOMEDIUM EMEDIUMTYPE ECANCELED ENOKEY EKEYEXPIRED EKEYREVOKED
    EKEYREJECTED EOWNERDEAD ENOTRECOVERABLE ERFKILL EHWPOISON
};

/// The name of an error number: those of errno(3), and [`ENOTSUPP`].
///
/// ```
/// assert_eq!(hostnet::errno_name(16), Some("EBUSY"));
/// assert_eq!(hostnet::errno_name(0), None);
/// ```
pub fn errno_name(code: i32) -> Option<&'static str> {
    if code == ENOTSUPP {
        return Some("ENOTSUPP");
    }
    let (_, name) = ERRNOS.iter().find(|(errno, _)| *errno == code)?;
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_descriptors_has_its_cure() {
        assert!(errno_text(libc::EMFILE).contains("`ulimit -n`"));
        assert!(
            !errno_text(libc::ENFILE).contains("`ulimit -n`"),
            "the system's"
        );
    }

    #[test]
    fn a_refusal_names_step_cause_cure_and_errno() {
        let refused: Result<(), Errno> = Err(Errno::PERM);
        let refused = refused.context("cannot bring eth0 up");
        let refused = refused.cure(ErrorKind::NotFound, "not this one");
        let error = refused.needs(Capability::NetAdmin).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("cannot bring eth0 up: this "), "{text}");
        assert!(text.contains("CAP_NET_ADMIN"), "{text}");
        assert!(
            text.ends_with(" (EPERM 1: Operation not permitted)"),
            "{text}"
        );
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert_eq!(error.errno(), Some(libc::EPERM));
        let io = io::Error::from(error);
        assert_eq!(io.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_reason_stands_behind_the_step() {
        let error = Error::os(Errno::INVAL, "Invalid MTU").context("cannot make a veth pair");
        assert_eq!(
            error.to_string(),
            "cannot make a veth pair: Invalid MTU (EINVAL 22: Invalid argument)"
        );
        assert_eq!(error.kind(), ErrorKind::Os);
    }

    #[test]
    fn an_io_error_without_a_number_keeps_its_text() {
        let error: Result<()> = Err(io::Error::other("corrupt stream")).context("cannot unpack it");
        let error = error.unwrap_err();
        assert_eq!(error.to_string(), "cannot unpack it: corrupt stream");
        assert_eq!(error.errno(), None);
    }

    /// Whatever the C library has a text for.
    #[test]
    fn each_errno_has_its_name() {
        for code in 1..1024 {
            let text = io::Error::from_raw_os_error(code).to_string();
            let is_known = !text.starts_with("Unknown error") || code == ENOTSUPP;
            assert_eq!(errno_name(code).is_some(), is_known, "{text}");
        }
        assert!(errno_text(111).starts_with("ECONNREFUSED 111: "));
    }

    #[test]
    fn an_errno_without_a_name_keeps_its_number() {
        let text = Error::os(Errno::from_raw_os_error(999), "").to_string();
        assert!(text.starts_with("errno 999: "), "{text}");
    }

    #[test]
    fn errors_cross_threads() {
        fn check<T: std::error::Error + Send + Sync + 'static>() {}
        check::<Error>();
    }
}
