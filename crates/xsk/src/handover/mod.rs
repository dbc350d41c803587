//! A socket moves from one process to another.

mod message;
mod take_over;

use crate::builder::map_ring;
use crate::error::{Error, ErrorKind, Result};
use crate::program::{Program, Takes};
use crate::socket::{Descriptors, Socket};
use crate::sys::{RingKind, scm};
use message::{Description, Length};
use rustix::io::Errno;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

/// A socket and its UMEM on their way to another process; see [the guide](crate::guide::processes).
///
/// They consist of descriptors, of the AF_XDP socket, the memory, the XSKMAP and the XDP program's
/// link, and a description of the rings and chunks. The process that makes them by
/// [`Socket::into_parts`] may end afterwards, even by `kill -9`: all lives on in the process that calls
/// [`Socket::from_parts`], which needs no privilege.
///
/// The giver:
///
/// ```no_run
/// use std::os::unix::net::UnixStream;
/// use xsk::{Socket, Umem};
///
/// # fn main() -> xsk::Result<()> {
/// # let (client, _other) = UnixStream::pair().unwrap();
/// let umem = Umem::builder().build()?;
/// let socket = Socket::builder(&umem, "eth0", 0).open()?;
/// socket.into_parts()?.send(&client)?;
/// # Ok(())
/// # }
/// ```
///
/// The taker:
///
/// ```no_run
/// use std::os::unix::net::UnixStream;
/// use xsk::{Parts, Socket};
///
/// # fn main() -> xsk::Result<()> {
/// # let (broker, _other) = UnixStream::pair().unwrap();
/// let parts = Parts::receive(&broker)?;
/// // SAFETY: only root's broker can listen at this path; it keeps no way to the memory, and sends parts once.
/// let socket = unsafe { Socket::from_parts(parts) }?;
/// println!("queue {}", socket.queue());
/// # Ok(())
/// # }
/// ```
///
/// # Trust
///
/// The taker checks all that it receives, and maps memory that no one can truncate. But a giver, or safe code
/// with a duplicate of the memory's descriptor, could write to packets while they are read, and call chunks free
/// that are lent: so [`Socket::from_parts`] is unsafe. The giver needs no trust in the taker, except that
/// [the map and the link](Self::withhold_program) reach other queues of the device.
#[derive(Debug)]
#[must_use = "dropping it closes the socket"]
pub struct Parts {
    descriptors: Descriptors,
    description: Description,
}

/// A socket that cannot be handed over now, and the reason.
///
/// ```no_run
/// # fn hand_over(socket: xsk::Socket) -> Result<xsk::Parts, xsk::HandOverError> {
/// match socket.into_parts() {
///     Err(refused) => {
///         println!("{refused}");
///         let mut socket = refused.into_socket();
///         // It continues here.
/// #       drop(socket.recv(64));
/// #       unreachable!()
///     }
///     parts => parts,
/// }
/// # }
/// ```
pub struct HandOverError {
    error: Error,
    /// In a mutex so that the error is `Sync`, as boxed errors are.
    socket: Mutex<Box<Socket>>,
}

impl HandOverError {
    /// The reason.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// The socket, unchanged.
    pub fn into_socket(self) -> Socket {
        *self
            .socket
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for HandOverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for HandOverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for HandOverError {}

/// Closes the socket.
impl From<HandOverError> for Error {
    fn from(refused: HandOverError) -> Self {
        refused.error
    }
}

impl Socket {
    /// Takes the socket apart, for another process. It is not closed: packets go on arriving in its
    /// RX ring. Those [sent](Self::send) but not flushed are published, and transmitted by the taker's
    /// first [`flush`](Self::flush). It stays in the XSKMAPs that it was [inserted
    /// into](Self::insert_into).
    ///
    /// The UMEM goes along. Here its chunks are [retired](crate::Accounting::retired) for good, and it
    /// cannot be used for another socket.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Foreign`] while other sockets, siblings or [frames](crate::Frame) use the UMEM;
    /// [`ErrorKind::Unsupported`] before Linux 6.4, where the taker could not map the rings;
    /// [`ErrorKind::Os`] when this process can open no more descriptors. The error has the socket.
    pub fn into_parts(mut self) -> std::result::Result<Parts, HandOverError> {
        self.take_apart().map_err(|error| HandOverError {
            socket: Mutex::new(Box::new(self)),
            error,
        })
    }

    fn take_apart(&mut self) -> Result<Parts> {
        let geometry = self.umem().geometry();
        let program = self.needed_program().map(Program::mode);
        // First, since it can fail.
        let descriptors = self.descriptors()?;
        // The taker maps the rings again: not all kernels let it.
        map_ring::<u64>(&**self.receiver.main.socket(), RingKind::Fill, 1)?;
        let state = self.hand_over()?;
        let description = Description {
            geometry,
            state,
            program,
            ticket: ticket(),
        };
        Ok(Parts {
            descriptors,
            description,
        })
    }
}

impl Parts {
    /// Leaves the XSKMAP and the built-in program's link out, and returns the program, if it is in
    /// use: the taker receives packets for as long as it is held here.
    ///
    /// For a taker that is trusted with its queue only: the map would let it put its socket into
    /// the slots of other queues, and the link would let it detach the program.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Foreign`] for descriptors from elsewhere that are no XDP program's.
    pub fn withhold_program(&mut self) -> Result<Option<Program>> {
        let Descriptors { map, link, .. } = &mut self.descriptors;
        let (map, link) = (map.take(), link.take());
        let mode = self.description.program.take();
        let (Some(map), Some(link), Some(mode)) = (map, link, mode) else {
            return Ok(None);
        };
        let ifindex = self.description.state.queue.ifindex;
        let fragments = self.description.geometry.fragments;
        let takes = Takes::of_another(fragments, self.description.state.rx_hints);
        Program::take_over(link, map, mode, ifindex, takes).map(Some)
    }

    /// Sends the parts to the process at the other end of `stream`, a blocking one. They are gone from
    /// here, also after an error, which closes the socket.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Os`] when sendmsg(2) fails, as when the other process has ended.
    pub fn send(self, stream: &UnixStream) -> Result<()> {
        let (message, fds) = self.into_message();
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        scm::send(stream.as_fd(), &message, &fds).map_err(|errno| {
            let message = "sending a socket to another process";
            Error::os(ErrorKind::Os, errno, message)
        })
    }

    /// Receives the parts that a process has [sent](Self::send) to `stream`, a blocking one, and no
    /// byte that follows them. Check the peer before, for instance by `SO_PEERCRED`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Os`] when the peer closes the stream before the end of the message; else those of
    /// [`from_message`](Self::from_message).
    pub fn receive(stream: &UnixStream) -> Result<Self> {
        let failed = |errno: Errno| {
            let message = "receiving a socket from another process";
            Error::os(ErrorKind::Os, errno, message)
        };
        let mut fds = Vec::new();
        let mut message = vec![0; Length::BYTES];
        scm::receive(stream.as_fd(), &mut message, &mut fds).map_err(failed)?;
        let length = Length::read(&message)?;
        message.resize(length.0, 0);
        let (_, rest) = message.split_at_mut(Length::BYTES);
        scm::receive(stream.as_fd(), rest, &mut fds).map_err(failed)?;
        Self::from_message(&message, fds)
    }

    /// The message and the descriptors that [`send`](Self::send) sends, at most four, for other means
    /// of transport.
    ///
    /// ```no_run
    /// # fn main() -> xsk::Result<()> {
    /// # let umem = xsk::Umem::builder().build()?;
    /// # let socket = xsk::Socket::builder(&umem, "eth0", 0).open()?;
    /// let (message, descriptors) = socket.into_parts()?.into_message();
    /// let parts = xsk::Parts::from_message(&message, descriptors)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_message(self) -> (Vec<u8>, Vec<OwnedFd>) {
        let Descriptors {
            socket,
            memory,
            map,
            link,
        } = self.descriptors;
        let message = self.description.write(map.is_some());
        let fds = [Some(socket), Some(memory), map, link];
        (message, fds.into_iter().flatten().collect())
    }

    /// The parts of a message and its descriptors, in the order in which
    /// [`into_message`](Self::into_message) returned them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for a malformed message, [`ErrorKind::Unsupported`] for the
    /// message of another version of this library, [`ErrorKind::Foreign`] for missing or excess descriptors.
    pub fn from_message(message: &[u8], descriptors: Vec<OwnedFd>) -> Result<Self> {
        let (description, has_map) = Description::read(message)?;
        let expected = 2 + usize::from(has_map) + usize::from(description.program.is_some());
        let count = descriptors.len();
        let mut rest = descriptors.into_iter();
        let parts = (rest.next(), rest.next());
        let (Some(socket), Some(memory)) = parts else {
            return Err(wrong_count(count, expected));
        };
        if count != expected {
            return Err(wrong_count(count, expected));
        }
        Ok(Self {
            descriptors: Descriptors {
                socket,
                memory,
                map: if has_map { rest.next() } else { None },
                link: rest.next(),
            },
            description,
        })
    }
}

/// A number that no other message has.
fn ticket() -> u64 {
    // Each has keys of its own, from the operating system's random numbers.
    RandomState::new().hash_one(())
}

fn wrong_count(count: usize, expected: usize) -> Error {
    let message = format!("the message came with {count} descriptors, and {expected} belong to it");
    Error::new(ErrorKind::Foreign, message)
}
