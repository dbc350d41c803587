//! A connection whose every step ends by a deadline.

use std::cell::Cell;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

/// The moment by which a connection must have done its present step. A timeout of each read and write alone
/// would let a client send a byte now and then for ever.
#[derive(Debug, Clone)]
pub struct Deadline(Rc<Cell<Instant>>);

impl Deadline {
    /// So long from now.
    pub fn after(time: Duration) -> Self {
        Self(Rc::new(Cell::new(Instant::now() + time)))
    }

    /// Sets it anew.
    pub fn set(&self, time: Duration) {
        self.0.set(Instant::now() + time);
    }

    /// The time left.
    ///
    /// # Errors
    ///
    /// `TimedOut` when none is.
    fn left(&self) -> Result<Duration> {
        let left = self.0.get().saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        // The kernel takes a shorter one for none at all.
        Ok(left.max(Duration::from_millis(1)))
    }
}

/// A connected stream socket.
#[derive(Debug)]
pub struct Connection {
    socket: Arc<OwnedFd>,
    deadline: Deadline,
}

impl Connection {
    /// A connection with a deadline, that others can shut down.
    pub fn new(socket: Arc<OwnedFd>, deadline: Deadline) -> Self {
        Self { socket, deadline }
    }
}

impl Read for Connection {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        set_socket_timeout(&self.socket, Timeout::Recv, Some(self.deadline.left()?))?;
        let received = recv(&self.socket, into, RecvFlags::empty());
        received.map(|(count, _)| count).map_err(timed_out)
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        set_socket_timeout(&self.socket, Timeout::Send, Some(self.deadline.left()?))?;
        send(&self.socket, bytes, SendFlags::NOSIGNAL).map_err(timed_out)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

fn timed_out(errno: rustix::io::Errno) -> Error {
    if errno == rustix::io::Errno::AGAIN {
        return ErrorKind::TimedOut.into();
    }
    errno.into()
}

/// Most bytes that are read after the response.
const MOST_LEFT: usize = 64 << 10;

/// Ends a connection in order: with bytes unread, close(2) would reset it, and the client might lose the
/// response.
pub fn close(socket: &Arc<OwnedFd>) {
    // It may have been closed by the client.
    let _ = shutdown(&**socket, Shutdown::Write);
    let deadline = Deadline::after(Duration::from_millis(500));
    let mut connection = Connection::new(Arc::clone(socket), deadline);
    let mut bytes = [0; 4096];
    let mut count = 0;
    while count < MOST_LEFT {
        match connection.read(&mut bytes) {
            Ok(0) | Err(_) => return,
            Ok(more) => count += more,
        }
    }
}
