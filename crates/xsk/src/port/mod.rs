//! The queues of a device together: a socket on each, opened, steered and closed as one.

mod affinity;
mod builder;
mod stop;
mod workers;

pub use builder::PortBuilder;
pub use stop::StopFlag;
pub use workers::{WorkerError, WorkerErrors};

use crate::error::Result;
use crate::socket::{Inside, Outlet, SendRings, Socket, StatisticsHandle, Transmit};
use hostnet::ethtool::Steering;

/// Sockets on the queues of a network device, in ascending order of the queues.
///
/// They have one XDP program and the same settings. Dropping the port undoes its steering and closes
/// all of them.
///
/// Use it in one of three ways: [`run`](Self::run) a worker for each queue, use all sockets in one
/// thread ([`sockets_mut`](Self::sockets_mut)), or take them out
/// ([`into_sockets`](Self::into_sockets)). [The guide](crate::guide::queues) compares them.
///
/// ```no_run
/// use std::time::Duration;
/// use xsk::Port;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let port = Port::builder("eth0").open()?;
/// let counts = port.run(|socket, stop| -> xsk::Result<u64> {
///     let mut packets = 0;
///     while !stop.is_raised() {
///         socket.wait(Duration::from_millis(100))?;
///         packets += socket.recv(64).len() as u64;
///     }
///     Ok(packets)
/// })?;
/// for (queue, packets) in counts {
///     println!("queue {queue}: {packets} packets");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropping a port closes its sockets"]
pub struct Port {
    // Dropped first: packets return to other queues before these close.
    steering: Option<Steering>,
    /// At least one.
    queues: Vec<Queue>,
    device: String,
    stop: StopFlag,
}

/// The socket on a queue, and the CPU of its worker.
#[derive(Debug)]
struct Queue {
    socket: Socket,
    cpu: Option<usize>,
}

impl Port {
    /// Name of the device.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The device's queues with a socket, in ascending order.
    pub fn queues(&self) -> impl ExactSizeIterator<Item = u32> {
        self.queues.iter().map(|queue| queue.socket.queue())
    }

    /// The socket on a queue, counted from 0; `None` when the port has none there.
    pub fn socket(&mut self, queue: u32) -> Option<&mut Socket> {
        let mut sockets = self.sockets_mut();
        sockets.find(|socket| socket.queue() == queue)
    }

    /// All sockets, in ascending order of their queues.
    pub fn sockets_mut(&mut self) -> impl ExactSizeIterator<Item = &mut Socket> {
        self.queues.iter_mut().map(|queue| &mut queue.socket)
    }

    /// Handles by which any thread reads the counters of all sockets, in ascending order of their queues, also while
    /// [`run`](Self::run) has them.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let port = xsk::Port::builder("eth0").open()?;
    /// let (counters, stop) = (port.statistics_handles(), port.stop_flag());
    /// let monitor = std::thread::spawn(move || -> xsk::Result<()> {
    ///     while !stop.is_raised() {
    ///         std::thread::sleep(Duration::from_secs(1));
    ///         for socket in &counters {
    ///             println!("queue {}: {} received", socket.queue(), socket.statistics()?.received);
    ///         }
    ///     }
    ///     Ok(())
    /// });
    /// # let _ = monitor;
    /// port.run(|socket, stop| -> xsk::Result<()> {
    ///     while !stop.is_raised() {
    ///         socket.wait(Duration::from_millis(100))?;
    ///         socket.receive_each(64, |packet| packet.recycle());
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn statistics_handles(&self) -> Vec<StatisticsHandle> {
        let queues = self.queues.iter();
        queues.map(|it| it.socket.statistics_handle()).collect()
    }

    /// Takes the sockets out, in ascending order of their queues. They go on sharing the program.
    ///
    /// The port's steering is undone, unless it was taken before by
    /// [`take_steering`](Self::take_steering).
    pub fn into_sockets(self) -> Vec<Socket> {
        let queues = self.queues.into_iter();
        queues.map(|queue| queue.socket).collect()
    }

    /// Takes the guard that undoes the port's steering, to keep it for longer than the port, or for the
    /// errors of its [`restore`](Steering::restore). `None` when the port steers nothing.
    pub fn take_steering(&mut self) -> Option<Steering> {
        self.steering.take()
    }

    /// Flushes all sockets, as [`Socket::flush`] does: after packets were sent through the port.
    ///
    /// # Errors
    ///
    /// Same as [`Socket::flush`], with the queue; the first of several. The other sockets are flushed
    /// nevertheless.
    pub fn flush(&mut self) -> Result<()> {
        let mut outcome = Ok(());
        for socket in self.sockets_mut() {
            let flushed = socket.flush();
            let flushed =
                flushed.map_err(|error| error.context(format_args!("queue {}", socket.queue())));
            outcome = outcome.and(flushed);
        }
        outcome.map_err(|error| error.context(&self.device))
    }

    /// The place of the socket that sends packets of `queue`: the one on the same queue, or else
    /// one selected by the number.
    #[inline]
    fn place(&self, queue: u32) -> usize {
        let guess = queue as usize % self.queues.len();
        // Where the port has all queues, the guess is right.
        if self.queues[guess].socket.queue() == queue {
            return guess;
        }
        let found = self
            .queues
            .binary_search_by_key(&queue, |queue| queue.socket.queue());
        found.unwrap_or(guess)
    }
}

/// The packet is sent through the socket on the queue of the same number. If the port has none there,
/// its number modulo the number of sockets selects one, so that the packets of a queue stay in order.
impl Transmit for Port {}

impl Outlet for Port {
    #[inline]
    fn outlet(&mut self, queue: u32, inside: Inside) -> SendRings<'_> {
        let place = self.place(queue);
        self.queues[place].socket.outlet(queue, inside)
    }
}
