//! The counters of a socket, for other threads than the one that uses it.

use super::Socket;
use super::kernel_side::KernelSide;
use super::statistics::{Field, Statistics, parts_of_rx, parts_of_tx};
use crate::counter::Counter;
use crate::error::{Error, ErrorKind, Result};
use crate::sys::KernelSocket;
use rustix::io::Errno;
use std::sync::Arc;

/// Reads the counters of a [`Socket`] from any thread, also while another one waits in it, or after it was closed.
///
/// [`Socket::statistics_handle`] and [`Port::statistics_handles`](crate::Port::statistics_handles) make one. It does not keep the
/// socket open.
///
/// ```no_run
/// use std::time::Duration;
///
/// # fn main() -> xsk::Result<()> {
/// # let umem = xsk::Umem::builder().build()?;
/// let mut socket = xsk::Socket::builder(&umem, "eth0", 0).open()?;
/// let counters = socket.statistics_handle();
/// std::thread::spawn(move || {
///     while !counters.is_closed() {
///         std::thread::sleep(Duration::from_secs(1));
///         match counters.statistics() {
///             Ok(now) => println!("{} received, {} dropped", now.received, now.rx_dropped),
///             Err(error) => println!("{error}"),
///         }
///     }
/// });
/// while socket.wait(Duration::from_secs(60))? {
///     socket.receive_each(64, |packet| packet.recycle());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct StatisticsHandle {
    queue: u32,
    parts: Arc<[(Field, Counter)]>,
    kernel: KernelSide,
}

impl StatisticsHandle {
    /// The device queue of the socket.
    pub fn queue(&self) -> u32 {
        self.queue
    }

    /// The counters as [`Socket::statistics`] has them, of both halves if the socket was [split](Socket::split). Those of a
    /// closed socket are its last. Each is read for itself: of one packet, some may count and others not yet.
    ///
    /// # Errors
    ///
    /// Those of [`Socket::statistics`].
    pub fn statistics(&self) -> Result<Statistics> {
        let kernel = self.kernel.counters();
        let parts = self.parts.iter().map(|(field, counter)| (*field, counter));
        Ok(Statistics::of_kernel(kernel)?.with(parts))
    }

    /// Whether the socket is closed, or has gone to another process, so that its counters do not change any more.
    pub fn is_closed(&self) -> bool {
        self.kernel.is_closed()
    }

    /// Same as [`Socket::napi_id`].
    ///
    /// # Errors
    ///
    /// Those of [`Socket::napi_id`]; [`ErrorKind::Os`] with `EBADF` when the socket is closed.
    #[doc(hidden)]
    pub fn napi_id(&self) -> Result<Option<u32>> {
        match self.kernel.socket() {
            Some(socket) => napi_id(&*socket),
            None => Err(Error::os(
                ErrorKind::Os,
                Errno::BADF,
                "the socket is closed",
            )),
        }
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

    /// A handle by which any thread reads the counters.
    pub fn statistics_handle(&self) -> StatisticsHandle {
        let Self {
            receiver, sender, ..
        } = self;
        let rx = parts_of_rx(&receiver.main, &receiver.fill);
        let tx = parts_of_tx(&sender.main, &sender.completion);
        let parts = rx.into_iter().chain(tx);
        StatisticsHandle {
            queue: self.queue(),
            parts: parts
                .map(|(field, counter)| (field, counter.clone()))
                .collect(),
            kernel: self.bound().counters().clone(),
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
