//! Ways around the checks, to test the kernel's own.

use crate::frame::Frame;
use crate::ring::Producer;
use crate::socket::Socket;
use crate::sys::{self, Desc};
use rustix::io::Errno;
use rustix::net::SendFlags;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Puts a descriptor into the TX ring unchecked; returns whether there was room. The chunk is not
/// recorded as lent for sending, so its completion is for [`take_completion`].
pub fn push_tx(socket: &mut Socket<'_>, addr: u64, len: u32, options: u32) -> bool {
    let desc = Desc { addr, len, options };
    socket.main.tx.as_mut().is_some_and(|tx| tx.push(desc))
}

/// Publishes the TX ring without waking the kernel.
pub fn publish(socket: &mut Socket<'_>) {
    if let Some(tx) = socket.main.tx.as_mut() {
        tx.publish();
    }
}

/// Published descriptors that the kernel has not consumed.
pub fn pending(socket: &mut Socket<'_>) -> u32 {
    socket.main.tx.as_mut().map_or(0, Producer::pending)
}

/// One send(2), which [`Socket::flush`] repeats.
///
/// # Errors
///
/// The kernel's.
pub fn send_once(socket: &Socket<'_>) -> io::Result<()> {
    rustix::net::send(socket, &[], SendFlags::DONTWAIT)
        .map(drop)
        .map_err(Errno::into)
}

/// The next address in the COMPLETION ring.
pub fn take_completion(socket: &mut Socket<'_>) -> Option<u64> {
    let completion = &mut socket.umem_rings.completion;
    if completion.available(1) == 0 {
        return None;
    }
    let addr = completion.pop();
    completion.release();
    Some(addr)
}

/// Offset of a frame's chunk in the UMEM, in bytes.
pub fn chunk_address(frame: &Frame<'_>) -> u64 {
    frame.chunk().addr()
}

/// Inserts a socket into a slot of an XSKMAP.
///
/// # Errors
///
/// The kernel's.
pub fn map_insert(map: BorrowedFd<'_>, slot: u32, socket: impl AsFd) -> io::Result<()> {
    sys::xskmap_insert(map, slot, socket.as_fd()).map_err(Errno::into)
}
