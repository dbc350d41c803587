//! Pieces of this library for weir's libraries for C: for that with libxdp's interface, whose programs own their rings
//! and chunks themselves, and for its own. It is there with the cfg `xsk_internals`, without any stability.

pub use crate::ring::RawRing;
pub use crate::socket::RawSocket;

use crate::device::{AttachMode, Device};
use crate::error::{ErrorKind, Result};
use crate::program::Program;
use crate::sys::{self, Mapping};
use rustix::io::Errno;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

/// A socket's ring, mapped into this process and its children, and unmapped on drop.
#[derive(Debug)]
pub struct RingMemory(Mapping);

impl RingMemory {
    /// Maps `len` bytes of a socket at one of the offsets `XDP_*PGOFF_*`.
    ///
    /// # Errors
    ///
    /// Those of mmap(2).
    pub fn map(socket: BorrowedFd<'_>, page_offset: u64, len: usize) -> io::Result<Self> {
        let mapping = Mapping::inherited_ring(socket, page_offset, len)?;
        Ok(Self(mapping))
    }

    /// The first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.0.start()
    }
}

/// A program for sockets of [`attach_or_share`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// It goes with its last holder.
    Held {
        /// It takes packets of several buffers, unless it was there already.
        fragments: bool,
    },
    /// One that was not there stays behind.
    Lasting,
}

/// Attaches the built-in program, or holds that of another process: see [`Program`].
///
/// # Errors
///
/// As those of [`Program::attach_to`].
pub fn attach_or_share(device: &str, mode: AttachMode, sharing: Sharing) -> Result<Program> {
    let device = Device::lookup(device)?;
    let attached = match sharing {
        Sharing::Held { fragments } => Program::attach_or_share(&device, mode, fragments),
        Sharing::Lasting => Program::attach_lasting_or_share(&device, mode),
    };
    attached.map_err(|error| error.context(&device.name))
}

/// Inserts a socket into a slot of a map, which must be an XSKMAP (`EINVAL`), in place of another.
///
/// # Errors
///
/// Those of bpf(2).
pub fn insert(map: BorrowedFd<'_>, slot: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    let info = sys::map_info(map).map_err(|errno| match errno {
        // As the insertion would have it.
        Errno::BADFD => Errno::BADF,
        other => other,
    })?;
    if !info.is_xskmap() {
        return Err(Errno::INVAL.into());
    }
    Ok(sys::xskmap_insert(map, slot, socket)?)
}

/// Deletes a slot's entry of an XSKMAP.
///
/// # Errors
///
/// Those of bpf(2).
pub fn remove(map: BorrowedFd<'_>, slot: u32) -> io::Result<()> {
    Ok(sys::xskmap_remove(map, slot)?)
}

/// The errno for a program that knows no other errors.
pub fn errno(error: &crate::Error) -> i32 {
    error.errno().unwrap_or(match error.kind() {
        ErrorKind::DeviceMissing => libc::ENODEV,
        ErrorKind::PermissionDenied => libc::EPERM,
        _ => libc::EINVAL,
    })
}
