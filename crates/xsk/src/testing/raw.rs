//! Ways around the checks, to test the kernel's own.

use crate::frame::Frame;
use crate::ring::Producer;
use crate::socket::Socket;
use crate::sys::{self, Desc, Kernel, Linux, QueueOwner};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Puts a descriptor into the TX ring unchecked; returns whether there was room. The chunk is not
/// recorded as lent for sending, so its completion is for [`take_completion`].
pub fn push_tx(socket: &mut Socket, addr: u64, len: u32, options: u32) -> bool {
    let desc = Desc { addr, len, options };
    socket
        .sender
        .main
        .ring
        .as_mut()
        .is_some_and(|tx| tx.push(desc))
}

/// Publishes the TX ring without waking the kernel.
pub fn publish(socket: &mut Socket) {
    if let Some(tx) = socket.sender.main.ring.as_mut() {
        tx.publish();
    }
}

/// Published descriptors that the kernel has not consumed.
pub fn pending(socket: &mut Socket) -> u32 {
    socket
        .sender
        .main
        .ring
        .as_mut()
        .map_or(0, Producer::pending)
}

/// One send(2), which [`Socket::flush`] repeats.
///
/// # Errors
///
/// The kernel's.
pub fn send_once(socket: &Socket) -> io::Result<()> {
    socket.receiver.main.socket().send().map_err(Errno::into)
}

/// The next address in the COMPLETION ring.
pub fn take_completion(socket: &mut Socket) -> Option<u64> {
    let completion = &mut socket.sender.completion.ring;
    if completion.available(1) == 0 {
        return None;
    }
    let addr = completion.pop();
    completion.release();
    Some(addr)
}

/// Offset of a frame's chunk in the UMEM, in bytes.
pub fn chunk_address(frame: &Frame) -> u64 {
    frame.chunk().addr()
}

/// Inserts a descriptor, which should be an AF_XDP socket, into a slot of an XSKMAP, as any loader can.
///
/// # Errors
///
/// The kernel's.
pub fn map_insert(map: BorrowedFd<'_>, slot: u32, socket: impl AsFd) -> io::Result<()> {
    sys::xskmap_insert(map, slot, socket.as_fd()).map_err(Errno::into)
}

/// Whether the kernel shows an AF_XDP socket on the queue that a socket has or had.
pub fn is_shown(ifindex: u32, queue: u32) -> bool {
    Linux.queue_owner(ifindex, queue) == QueueOwner::Socket
}

/// The AF_XDP socket itself, which the library lends to nobody.
///
/// # Panics
///
/// For a socket of a model, which has none.
pub fn descriptor(socket: &Socket) -> BorrowedFd<'_> {
    let kernel = socket.receiver.main.socket();
    kernel.fd().expect("a socket of Linux has one")
}
