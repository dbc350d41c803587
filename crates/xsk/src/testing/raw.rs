//! Ways around the checks, to test the kernel's own.

use super::kernel::{Ring, Word};
use crate::frame::Frame;
use crate::ring::{Consumer, Mapped, Producer, Shared, Slot};
use crate::socket::Socket;
use crate::sys::{self, Desc, Kernel, KernelSocket, Linux, QueueOwner, RingKind};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

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

/// One wake-up, which [`Socket::flush`] repeats: a send(2), and in busy polling a poll(2).
///
/// # Errors
///
/// The kernel's.
pub fn send_once(socket: &Socket) -> io::Result<()> {
    let sent = socket.receiver.main.socket().send();
    socket.sender.main.wake_polled_driver();
    sent.map_err(Errno::into)
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

/// Forbids changes of a map, so that a socket's entry cannot be deleted.
///
/// # Errors
///
/// The kernel's.
pub fn map_freeze(map: BorrowedFd<'_>) -> io::Result<()> {
    sys::map_freeze(map).map_err(Errno::into)
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

/// A second mapping of one of a socket's rings, as any process can make that has a duplicate of the
/// descriptor. It writes whatever it likes. It holds the socket open: drop it first.
#[derive(Debug)]
pub struct Intruder(Slots);

#[derive(Debug)]
enum Slots {
    Addresses(Mapped<u64>),
    Descriptors(Mapped<Desc>),
}

impl Intruder {
    /// Maps a ring of a whole socket again.
    ///
    /// # Errors
    ///
    /// The kernel's; an error of the kind `NotFound` when the socket has no such ring.
    pub fn map(socket: &Socket, ring: Ring) -> io::Result<Self> {
        let slots = ring_size(socket, ring).ok_or(io::ErrorKind::NotFound)?;
        Self::of(&**socket.receiver.main.socket(), ring, slots)
    }

    /// Maps a ring, of so many slots, of a descriptor that another process has given.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn map_descriptor(socket: OwnedFd, ring: Ring, slots: u32) -> io::Result<Self> {
        Self::of(&*Linux::existing(socket, 0)?, ring, slots)
    }

    fn of(kernel: &dyn KernelSocket, ring: Ring, slots: u32) -> io::Result<Self> {
        let kind = match ring {
            Ring::Fill => RingKind::Fill,
            Ring::Completion => RingKind::Completion,
            Ring::Rx => RingKind::Rx,
            Ring::Tx => RingKind::Tx,
        };
        Ok(Self(match ring {
            Ring::Fill | Ring::Completion => Slots::Addresses(map(kernel, kind, slots)?),
            Ring::Rx | Ring::Tx => Slots::Descriptors(map(kernel, kind, slots)?),
        }))
    }

    /// Overwrites one of the ring's words.
    pub fn set(&self, word: Word, value: u32) {
        self.word(word).store(value, Ordering::Relaxed);
    }

    /// Reads one of the ring's words.
    pub fn get(&self, word: Word) -> u32 {
        self.word(word).load(Ordering::Relaxed)
    }

    fn word(&self, word: Word) -> &AtomicU32 {
        match &self.0 {
            Slots::Addresses(ring) => shared_word(ring, word),
            Slots::Descriptors(ring) => shared_word(ring, word),
        }
    }

    /// Overwrites the slot of a free-running index. FILL and COMPLETION have addresses alone.
    pub fn write(&self, index: u32, addr: u64, len: u32, options: u32) {
        match &self.0 {
            Slots::Addresses(ring) => ring.write(index, addr),
            Slots::Descriptors(ring) => ring.write(index, Desc { addr, len, options }),
        }
    }
}

/// The slots of a socket's ring; none when it has no such ring.
pub fn ring_size(socket: &Socket, ring: Ring) -> Option<u32> {
    let (receiver, sender) = (&socket.receiver, &socket.sender);
    match ring {
        Ring::Fill => Some(receiver.fill.ring().size()),
        Ring::Completion => Some(sender.completion.ring.size()),
        Ring::Rx => receiver.main.ring.as_ref().map(Consumer::size),
        Ring::Tx => sender.main.ring.as_ref().map(Producer::size),
    }
}

fn map<T: Slot>(kernel: &dyn KernelSocket, kind: RingKind, slots: u32) -> io::Result<Mapped<T>> {
    let at = kernel
        .ring_layout(kind)?
        .ok_or(io::ErrorKind::Unsupported)?;
    let len = Mapped::<T>::bytes(at, slots).ok_or(io::ErrorKind::InvalidData)?;
    let mapping = kernel.map_ring(kind, len)?;
    Mapped::new(mapping, at, slots).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn shared_word<T: Slot>(ring: &Mapped<T>, word: Word) -> &AtomicU32 {
    match word {
        Word::Producer => ring.producer(),
        Word::Consumer => ring.consumer(),
        Word::Flags => ring.flags(),
    }
}
