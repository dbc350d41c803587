//! Sockets in tokio's reactor.
#![allow(unsafe_code)] // Registering a descriptor, which the caller keeps open.

use crate::error::{Error, ErrorKind, Result};
use crate::socket::Socket;
use crate::wait::{Interest, Ready};
use rustix::io::Errno;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::task::coop::consume_budget;
use tokio::time::timeout;

/// A [`Socket`] whose events a task of tokio awaits. It needs the cargo feature `tokio`.
///
/// It dereferences to the socket. It can be moved to spawned tasks, one for each queue for instance.
///
/// ```no_run
/// use xsk::{AsyncSocket, Interest, Socket, Umem};
///
/// # fn main() -> xsk::Result<()> {
/// async fn count(socket: Socket) -> xsk::Result<()> {
///     let mut socket = AsyncSocket::new(socket)?;
///     let mut packets = 0;
///     loop {
///         socket.ready(Interest::Receive).await?;
///         packets += socket.recv(64).len();
///         println!("{packets} packets");
///     }
/// }
///
/// let umem = Umem::builder().build()?;
/// let socket = Socket::builder(&umem, "eth0", 0).open()?;
/// let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
/// runtime.expect("a runtime").block_on(count(socket))
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncSocket {
    /// A duplicate of the socket's epoll descriptor, readable when that is. It keeps nothing of the
    /// socket open.
    events: AsyncFd<OwnedFd>,
    socket: Socket,
}

impl AsyncSocket {
    /// Registers a socket with the runtime of the calling task or thread.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Os`] when this process can open no more descriptors.
    ///
    /// # Panics
    ///
    /// Outside a runtime, or with one that has I/O not enabled.
    pub fn new(socket: Socket) -> Result<Self> {
        let failed = |error: std::io::Error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            Error::os(ErrorKind::Os, errno, "registering a socket with tokio")
        };
        let events = socket.as_fd().try_clone_to_owned().map_err(failed)?;
        let readable = tokio::io::Interest::READABLE;
        // SAFETY: needed since the reactor uses the number of the descriptor without owning it. The
        // descriptor is moved into the `AsyncFd`, which nobody else reaches, so it stays open and the
        // same until that is dropped.
        let registered = unsafe { AsyncFd::register_with_interest(events, readable) };
        Ok(Self {
            events: registered.map_err(|refused| failed(refused.into()))?,
            socket,
        })
    }

    /// Waits for a packet, for room to send, or for either; returns what is there. Meanwhile it looks
    /// after the socket, as [`Socket::wait_for`] does.
    ///
    /// It can be dropped before it has finished, as `tokio::select!` does: no event is lost. The times
    /// of tokio are in milliseconds, so it can be late by one after the kernel was short of chunks.
    ///
    /// # Errors
    ///
    /// Same as [`Socket::wait`].
    ///
    /// # Panics
    ///
    /// With a runtime that has its timer not enabled.
    pub async fn ready(&mut self, interest: Interest) -> Result<Ready> {
        // Under load there is always a packet, and other tasks of the thread wait too.
        consume_budget().await;
        loop {
            // The reactor reports an edge once. So the rings are looked at after it is forgotten and
            // before each sleep: an event in between is seen here, and a later one is a new edge.
            let ready = self.socket.prepare_to_wait(interest)?;
            if ready.any() {
                return Ok(ready);
            }
            let most = ready.sleep_at_most.unwrap_or(Duration::MAX);
            // An error is the end of that time, after which the socket is looked after again.
            if let Ok(guard) = timeout(most, self.events.readable_mut()).await {
                guard.map_err(|error| ended(&error))?.clear_ready();
            }
        }
    }

    /// Takes the socket out of the reactor.
    pub fn into_socket(self) -> Socket {
        self.socket
    }
}

fn ended(error: &std::io::Error) -> Error {
    let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
    Error::os(ErrorKind::Os, errno, "waiting in tokio, whose runtime ends")
}

/// Do not exchange it for another socket, by [`std::mem::swap`] for instance: `ready` would wait for
/// the events of the former one.
impl DerefMut for AsyncSocket {
    fn deref_mut(&mut self) -> &mut Socket {
        &mut self.socket
    }
}

impl Deref for AsyncSocket {
    type Target = Socket;

    fn deref(&self) -> &Socket {
        &self.socket
    }
}
