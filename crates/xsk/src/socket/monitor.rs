//! The counters of a socket for other threads than the one that uses it.

use super::Socket;
use super::statistics::Statistics;
use crate::error::{Error, ErrorKind, Result};
use crate::sys::KernelSocket;
use rustix::io::Errno;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// What any thread may ask of a [`Socket`], also while another one waits in it. For weir's library for C.
///
/// It does not keep the socket open, but a call that is under way when the socket is closed may do so until its end.
#[derive(Debug, Clone)]
pub struct Monitor {
    /// The library's counters when they were last published.
    counts: Arc<[AtomicU64; Statistics::OF_LIBRARY]>,
    socket: Weak<dyn KernelSocket>,
}

impl Monitor {
    /// Publishes the library's counters of the socket, without `received` packets that other code counts.
    pub fn publish(&self, socket: &Socket, received: u64) {
        let mut counts = socket.count(Statistics::default());
        counts.received -= received;
        for (to, from) in self.counts.iter().zip(counts.of_library()) {
            // Relaxed, as below: each counter is read for itself.
            to.store(*from, Relaxed);
        }
    }

    /// The library's counters when they were last published, and the kernel's of now.
    ///
    /// # Errors
    ///
    /// Those of [`Socket::statistics`]; [`ErrorKind::Os`] with `EBADF` when the socket is closed.
    pub fn statistics(&self) -> Result<Statistics> {
        let mut counts = Statistics::read(&*self.socket()?)?;
        for (to, from) in counts.of_library().into_iter().zip(&*self.counts) {
            *to = from.load(Relaxed);
        }
        Ok(counts)
    }

    /// Same as [`Socket::napi_id`].
    ///
    /// # Errors
    ///
    /// Those of [`Socket::napi_id`]; [`ErrorKind::Os`] with `EBADF` when the socket is closed.
    pub fn napi_id(&self) -> Result<Option<u32>> {
        napi_id(&*self.socket()?)
    }

    fn socket(&self) -> Result<Arc<dyn KernelSocket>> {
        self.socket
            .upgrade()
            .ok_or_else(|| Error::os(ErrorKind::Os, Errno::BADF, "the socket is closed"))
    }
}

impl Socket {
    /// The NAPI instance that [`Wait::BusyPoll`](crate::Wait::BusyPoll) runs: that of the last packet, from
    /// the first one on. `None` before, and for a device that has none for its queue, as a veth since Linux
    /// 6.13: busy polling then is no more than spinning.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Os`](crate::ErrorKind::Os) when `getsockopt(SO_INCOMING_NAPI_ID)` fails.
    pub fn napi_id(&self) -> Result<Option<u32>> {
        napi_id(&**self.receiver.main.socket())
    }

    /// A monitor of this socket, which has published no counters yet.
    #[doc(hidden)]
    pub fn monitor(&self) -> Monitor {
        Monitor {
            counts: Arc::default(),
            socket: Arc::downgrade(self.receiver.main.socket()),
        }
    }
}

/// See [`Socket::napi_id`].
fn napi_id(socket: &dyn KernelSocket) -> Result<Option<u32>> {
    let id = socket.napi_id().map_err(|errno| {
        Error::os(
            ErrorKind::Os,
            errno,
            "reading the NAPI instance of the socket",
        )
    })?;
    Ok((id != 0).then_some(id))
}
