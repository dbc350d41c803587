//! The system call: `SIOCETHTOOL`, and memory for its structures that the kernel cannot write past.
//!
//! Unsafe code is needed because the call takes a pointer inside a structure: the type system cannot
//! see which bytes the kernel reads and writes behind it. How many it writes is in the structure or,
//! for names and statistics, known to the driver alone, whose count may have grown since it was asked
//! for: before Linux 6.19 the kernel then wrote past the end (`ethtool_get_stats` in
//! net/ethtool/ioctl.c). So a [`Request`] ends before a page that cannot be written.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;
use std::{ptr, slice};

use rustix::ioctl::{Opcode, Setter, ioctl};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::error::{Context as _, Error, ErrorKind, Result};
use crate::ifreq::{self, IFNAMSIZ};

const SIOCETHTOOL: Opcode = 0x8946;
const WORD: usize = size_of::<u32>();
const REST: usize = size_of::<libc::ifreq>() - IFNAMSIZ - size_of::<usize>();

/// `struct ifreq` with the one member of its union that this call uses, at its full size,
/// all of which the kernel copies.
#[repr(C)]
struct Ifreq {
    name: [u8; IFNAMSIZ],
    data: *mut c_void,
    rest: [u8; REST],
}

const _: () = assert!(size_of::<Ifreq>() == size_of::<libc::ifreq>());

/// The driver of one device, which answers the commands of linux/ethtool.h.
pub(super) trait Driver: Send + Sync {
    /// The device's name.
    fn device(&self) -> &str;

    /// One command; the answer overwrites the request.
    fn call(&self, request: &mut Request) -> Result<()>;
}

/// The driver of a device in the network namespace that it was opened in.
pub(super) struct Kernel {
    device: String,
    name: [u8; IFNAMSIZ],
    socket: OwnedFd,
}

impl Kernel {
    pub(super) fn open(device: &str) -> Result<Self> {
        let kind = SocketType::DGRAM;
        let socket = socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, None);
        Ok(Self {
            device: device.into(),
            name: ifreq::name(device)?,
            socket: socket
                .context("cannot open a socket for SIOCETHTOOL")
                .needs_none()?,
        })
    }
}

impl Driver for Kernel {
    fn device(&self) -> &str {
        &self.device
    }

    fn call(&self, request: &mut Request) -> Result<()> {
        let ifreq = Ifreq {
            name: self.name,
            data: request.start,
            rest: [0; REST],
        };
        // SAFETY: needed to name the structure that SIOCETHTOOL takes. Sound because that structure is
        // an ifreq of the kernel's size (asserted above), which it only reads.
        let call = unsafe { Setter::<SIOCETHTOOL, Ifreq>::new(ifreq) };
        // SAFETY: needed because the request holds a pointer. Sound because the kernel reads and
        // writes from that pointer upwards without a gap, through a writable mapping that is lent to
        // this call alone, up to a page at which the copy fails; it keeps no pointer.
        unsafe { ioctl(&self.socket, call) }.map_err(|errno| Error::os(errno, ""))
    }
}

/// [`Driver::call`], with `false` for a command that the driver does not have.
pub(super) fn ask(driver: &dyn Driver, request: &mut Request) -> Result<bool> {
    match driver.call(request) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(false),
        Err(error) => Err(error),
    }
}

/// Bytes in a page. The C library knows it without /proc, which rustix reads before Linux 6.4.
pub(crate) fn page_size() -> usize {
    // SAFETY: needed because it is a function of C. It takes a number and returns one.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// A structure of linux/ethtool.h, as the words that it consists of, in this machine's order of bytes.
/// The first one is the command.
pub(super) struct Request {
    /// Its first word; the last one ends before the page that cannot be written.
    start: *mut c_void,
    words: usize,
    mapping: *mut c_void,
    mapped: usize,
}

impl Request {
    /// A structure of this many words, which are zero behind the command.
    pub(super) fn new(command: u32, words: usize) -> Result<Self> {
        let page = page_size();
        let writable = (words * WORD).next_multiple_of(page);
        let mapped = writable + page;
        // SAFETY: needed because a mapping is raw memory. Sound because the kernel chooses a place
        // that is free.
        let mapping = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                mapped,
                ProtFlags::empty(),
                MapFlags::PRIVATE,
            )
        };
        let mapping = mapping.context("cannot map memory for SIOCETHTOOL")?;
        let mut request = Self {
            start: mapping.wrapping_byte_add(writable - words * WORD),
            words,
            mapping,
            mapped,
        };
        let access = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: needed because rights of memory are changed. Sound because these pages are the
        // request's own, and nothing refers to them yet.
        unsafe { mprotect(mapping, writable, access) }
            .context("cannot make memory for SIOCETHTOOL writable")?;
        request[0] = command;
        Ok(request)
    }

    /// A structure that begins with these words.
    pub(super) fn of(words: &[u32]) -> Result<Self> {
        let mut request = Self::new(0, words.len())?;
        request.copy_from_slice(words);
        Ok(request)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: needed because the memory is a mapping. Sound because this part of it is readable,
        // zero from the start, owned and borrowed by `self`; any byte is a valid u8.
        unsafe { slice::from_raw_parts(self.start.cast(), self.words * WORD) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; it is writable too, and borrowed for this slice alone.
        unsafe { slice::from_raw_parts_mut(self.start.cast(), self.words * WORD) }
    }
}

impl Deref for Request {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        // SAFETY: as in `bytes`; the words end at a page, so each is aligned, and any four bytes are a
        // valid u32.
        unsafe { slice::from_raw_parts(self.start.cast(), self.words) }
    }
}

impl DerefMut for Request {
    fn deref_mut(&mut self) -> &mut [u32] {
        // SAFETY: as in `deref`; it is writable too, and borrowed for this slice alone.
        unsafe { slice::from_raw_parts_mut(self.start.cast(), self.words) }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        // SAFETY: needed to give the mapping back. Sound because it is the request's own, and no slice
        // of it outlives the request. It fails for wrong arguments alone.
        let _ = unsafe { munmap(self.mapping, self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_past_the_end_fails() -> Result<()> {
        let loopback = Kernel::open("lo")?;
        // `ETHTOOL_GSTRINGS` of the features: the kernel writes all names, whatever room is stated.
        let names = |room| Request::of(&[[0x1b, 4, 0].as_slice(), &vec![0; room]].concat());
        let mut counted = names(0x4000)?;
        loopback.call(&mut counted)?;
        let words = counted[2] as usize * 8;
        loopback.call(&mut names(words)?)?;
        let error = loopback.call(&mut names(words - 1)?).unwrap_err();
        assert_eq!(error.errno(), Some(libc::EFAULT));
        Ok(())
    }

    #[test]
    fn words_and_bytes_are_the_same_memory() -> Result<()> {
        let mut request = Request::of(&[1, 2])?;
        request.bytes_mut()[4..].copy_from_slice(&7_u32.to_ne_bytes());
        assert_eq!(request[..], [1, 7]);
        assert_eq!(request.bytes()[..4], 1_u32.to_ne_bytes());
        Ok(())
    }
}
