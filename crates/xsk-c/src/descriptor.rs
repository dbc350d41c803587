//! Descriptors of the calling program, which keeps its own.
#![allow(unsafe_code)] // A descriptor is a number that C passes.

use crate::fault::{Fault, Result};
use std::ffi::c_int;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// The first descriptor behind those of standard input, output and error.
const LEAST: c_int = 3;

/// A copy of a descriptor, closed on exec.
pub(crate) fn duplicate(descriptor: c_int, name: &str) -> Result<OwnedFd> {
    // SAFETY: needed because the number is C's. Sound with any number: the kernel looks it up.
    let copy = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, LEAST) };
    if copy >= 0 {
        // SAFETY: needed to own it. The kernel has just made it, and nobody else has its number.
        return Ok(unsafe { OwnedFd::from_raw_fd(copy) });
    }
    let error = io::Error::last_os_error();
    let code = error.raw_os_error().unwrap_or(libc::EIO);
    let text = if code == libc::EBADF {
        format!(
            "{name} is {descriptor}, which is not an open descriptor: keep it open until weir_xsk_open() returns"
        )
    } else {
        format!("copying {name}, {descriptor}: {error}")
    };
    Err(Fault::new(code, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_copy_leaves_the_original_open() {
        let file = File::open("/proc/self/status").expect("a file");
        let copy = duplicate(file.as_raw_fd(), "`map_fd`").expect("a copy");
        assert!(copy.as_raw_fd() >= LEAST && copy.as_raw_fd() != file.as_raw_fd());
        // SAFETY: it only asks for flags.
        let flags = unsafe { libc::fcntl(copy.as_raw_fd(), libc::F_GETFD) };
        assert_eq!(flags, libc::FD_CLOEXEC);
        drop(copy);
        file.metadata().expect("still open");
    }

    #[test]
    fn a_number_of_no_descriptor_is_refused_by_its_name() {
        for descriptor in [-1, c_int::MIN, c_int::MAX] {
            let fault = duplicate(descriptor, "`map_fd`").expect_err("refused");
            assert_eq!(fault.code, libc::EBADF);
        }
    }
}
