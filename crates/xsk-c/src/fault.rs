//! Errors: the code that a call returns, and the text.
#![allow(unsafe_code)] // A function of the header has the name that it has there.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use xsk::{ErrorKind, SendErrorKind};

/// An error of a call.
#[derive(Debug)]
pub(crate) struct Fault {
    /// Of <errno.h>, positive.
    pub(crate) code: c_int,
    text: String,
}

/// The result of a call's parts.
pub(crate) type Result<T> = std::result::Result<T, Fault>;

impl Fault {
    pub(crate) fn new(code: c_int, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { code, text }
    }

    /// A size, count, verdict or combination of settings that is not possible.
    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::new(libc::EINVAL, text)
    }

    pub(crate) fn not_recoverable(text: impl Into<String>) -> Self {
        Self::new(libc::ENOTRECOVERABLE, text)
    }
}

impl From<xsk::Error> for Fault {
    fn from(error: xsk::Error) -> Self {
        let code = match error.kind() {
            ErrorKind::InvalidConfig => libc::EINVAL,
            ErrorKind::PermissionDenied => libc::EPERM,
            ErrorKind::MemoryLock => libc::ENOBUFS,
            ErrorKind::OutOfMemory => libc::ENOMEM,
            ErrorKind::Unsupported => libc::ENOSYS,
            ErrorKind::DeviceMissing => libc::ENODEV,
            ErrorKind::DeviceDown => libc::ENETDOWN,
            ErrorKind::QueueOutOfRange => libc::ERANGE,
            ErrorKind::MtuTooLarge => libc::EMSGSIZE,
            ErrorKind::QueueBusy => libc::EADDRINUSE,
            ErrorKind::ProgramAttached => libc::EEXIST,
            ErrorKind::ModeRefused => libc::EOPNOTSUPP,
            ErrorKind::Foreign => libc::EXDEV,
            _ => error.errno().unwrap_or(libc::EIO),
        };
        Self::new(code, error.to_string())
    }
}

impl From<SendErrorKind> for Fault {
    fn from(kind: SendErrorKind) -> Self {
        let code = match kind {
            SendErrorKind::Full => libc::EAGAIN,
            SendErrorKind::Foreign => libc::EXDEV,
            SendErrorKind::NoRing
            | SendErrorKind::Fragmented
            | SendErrorKind::NoMetadata
            | SendErrorKind::Unsupported => libc::EOPNOTSUPP,
            SendErrorKind::TooLong => libc::EMSGSIZE,
            _ => libc::EINVAL,
        };
        if kind == SendErrorKind::Checksum {
            // C has other names than Rust for its place.
            return Self::new(
                code,
                "the checksum is outside the packet: its two bytes are at `checksum_start` + `checksum_offset`, in the first frame",
            );
        }
        Self::new(code, kind.to_string())
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Makes an error this thread's last; returns the value for C.
fn report(fault: &Fault) -> c_int {
    let text = CString::new(fault.text.replace('\0', "?")).unwrap_or_default();
    // A thread that is ending has no last error any more.
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
    -fault.code
}

/// Runs the body of a call: its number, or minus the code of its error, whose text is kept. A panic is
/// one of those errors.
pub(crate) fn call(body: impl FnOnce() -> Result<u32>) -> c_int {
    // Unwind safe: what a panic came through is locked, and its lock poisoned.
    let outcome = catch_unwind(AssertUnwindSafe(body));
    let outcome = outcome.unwrap_or_else(|panic| Err(panicked(&*panic)));
    match outcome {
        // No count is so large: each is bounded by the slots of a ring.
        Ok(count) => c_int::try_from(count).unwrap_or(c_int::MAX),
        Err(fault) => report(&fault),
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Fault {
    let words = panic.downcast_ref::<String>().map(String::as_str);
    let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
    let words = words.unwrap_or("of an unknown kind");
    Fault::not_recoverable(format!(
        "an error in the library, please report it: {words}; close the socket"
    ))
}

/// The text of the last error of this thread, empty if there was none.
#[unsafe(no_mangle)]
pub extern "C" fn weir_xsk_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn last() -> String {
        // SAFETY: the text lives until this thread's next error.
        let text = unsafe { CStr::from_ptr(weir_xsk_error()) };
        text.to_str().expect("text").to_owned()
    }

    #[test]
    fn an_error_is_a_code_and_a_text() {
        let code = call(|| Err(Fault::new(libc::ESTALE, "of the frame")));
        assert_eq!((code, last()), (-libc::ESTALE, "of the frame".to_owned()));
        assert_eq!(call(|| Ok(7)), 7);
        assert_eq!(last(), "of the frame", "a success keeps it");
    }

    #[test]
    fn a_panic_is_an_error() {
        assert_eq!(
            call(|| panic!("at the {}", "disco")),
            -libc::ENOTRECOVERABLE
        );
        assert!(last().contains("at the disco"), "{}", last());
    }

    #[test]
    fn errors_of_the_library_keep_their_text() {
        let error = xsk::Umem::builder().chunk_size(3000).build();
        let fault = Fault::from(error.expect_err("no power of two"));
        assert_eq!(fault.code, libc::EINVAL);
        assert!(fault.text.contains("choose 2048 or 4096"), "{}", fault.text);
    }
}
