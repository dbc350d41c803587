//! Threads that serve the queues of a port.

use super::stop::StopFlag;
use super::{Port, Queue};
use crate::error::{Error, ErrorKind};
use crate::socket::Socket;
use rustix::io::Errno;
use std::any::Any;
use std::fmt;
use std::thread::{self, ScopedJoinHandle};

/// The failure of one worker.
///
/// ```
/// let error = xsk::WorkerError::<xsk::Error>::Panicked("index out of bounds".into());
/// assert_eq!(error.to_string(), "the worker panicked: index out of bounds");
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum WorkerError<E> {
    /// Its thread could not be started, or not be kept on its CPU.
    NotStarted(Error),
    /// It returned this error.
    Failed(E),
    /// It panicked, with this message.
    Panicked(String),
}

impl<E: fmt::Display> fmt::Display for WorkerError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted(error) => error.fmt(f),
            Self::Failed(error) => error.fmt(f),
            Self::Panicked(message) => write!(f, "the worker panicked: {message}"),
        }
    }
}

/// The failures of a port's workers, by queue; see [`Port::run`].
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use xsk::WorkerError;
///
/// let port = xsk::Port::builder("eth0").open()?;
/// let ended = port.run(|socket, _| socket.flush());
/// if let Err(errors) = &ended {
///     for (queue, error) in errors.failures() {
///         match error {
///             WorkerError::Failed(error) => println!("{queue}: {:?}", error.kind()),
///             other => println!("{queue}: {other}"),
///         }
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct WorkerErrors<E> {
    device: String,
    /// At least one.
    failures: Vec<(u32, WorkerError<E>)>,
}

impl<E> WorkerErrors<E> {
    /// The queues whose workers failed, in ascending order, and their errors.
    pub fn failures(&self) -> &[(u32, WorkerError<E>)] {
        &self.failures
    }
}

impl<E: fmt::Display> fmt::Display for WorkerErrors<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.device)?;
        for (place, (queue, error)) in self.failures.iter().enumerate() {
            let comma = if place == 0 { "" } else { "; " };
            write!(f, "{comma}queue {queue}: {error}")?;
        }
        Ok(())
    }
}

/// Same as [`Display`](fmt::Display), so that a `main` that returns it prints cause and cure.
impl<E: fmt::Display> fmt::Debug for WorkerErrors<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<E: fmt::Display> std::error::Error for WorkerErrors<E> {}

/// The end of one worker.
type End<T, E> = Result<T, WorkerError<E>>;

impl Port {
    /// A flag that ends the workers of [`run`](Self::run), for a signal handler or another thread.
    pub fn stop_flag(&self) -> StopFlag {
        self.stop.clone()
    }

    /// Runs `work` in a thread for each queue, on the CPU that
    /// [`PortBuilder::pin`](crate::PortBuilder::pin) gave it, and waits until all have ended. Then all
    /// sockets are closed and the steering is undone. Returns the result of each worker, with its
    /// queue, in ascending order.
    ///
    /// A worker ends by returning. It should do so soon after the flag was raised, so look at it
    /// between waits of, say, 100 ms. The flag is raised by [`stop_flag`](Self::stop_flag), by a worker,
    /// or when a worker fails; not when one returns a result, so one queue may end before the others.
    ///
    /// The threads are named after device and queue, such as `eth0/3`.
    ///
    /// # Errors
    ///
    /// The error or panic of every worker that failed, with its queue. The results of the others are
    /// dropped; those that have to survive can be stored in a variable outside `work`. An error leaves its
    /// thread, so a boxed one is a `Box<dyn Error + Send + Sync>`:
    ///
    /// ```no_run
    /// use std::error::Error;
    ///
    /// # fn main() -> Result<(), Box<dyn Error>> {
    /// let port = xsk::Port::builder("eth0").open()?;
    /// port.run(|socket, _| -> Result<(), Box<dyn Error + Send + Sync>> {
    ///     let mut file = std::fs::File::create(format!("packets.{}", socket.queue()))?;
    ///     socket.try_receive_each(64, |packet| {
    ///         std::io::Write::write_all(&mut file, &packet)?;
    ///         Ok::<_, std::io::Error>(packet.recycle())
    ///     })?;
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A worker for each queue, for a minute:
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let port = xsk::Port::builder("eth0").open()?;
    /// let stop = port.stop_flag();
    /// std::thread::spawn(move || {
    ///     std::thread::sleep(Duration::from_secs(60));
    ///     stop.raise();
    /// });
    /// port.run(|socket, stop| -> xsk::Result<()> {
    ///     while !stop.is_raised() {
    ///         socket.wait(Duration::from_millis(100))?;
    ///         socket.forward_each(64, |packet| packet.send());
    ///         socket.flush()?;
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn run<T, E, F>(self, work: F) -> Result<Vec<(u32, T)>, WorkerErrors<E>>
    where
        F: Fn(&mut Socket, &StopFlag) -> Result<T, E> + Sync,
        T: Send,
        E: Send,
    {
        let Self {
            steering,
            queues,
            device,
            stop,
        } = self;
        let ends: Vec<(u32, End<T, E>)> = thread::scope(|scope| {
            let start = |queue: Queue| {
                let number = queue.socket.queue();
                let thread = thread::Builder::new().name(format!("{device}/{number}"));
                let (stop, work) = (&stop, &work);
                let started = thread.spawn_scoped(scope, move || serve(queue, stop, work));
                (number, started.map_err(|error| not_started(&error, stop)))
            };
            let workers: Vec<_> = queues.into_iter().map(start).collect();
            let ended = |(number, started)| (number, Result::and_then(started, join));
            workers.into_iter().map(ended).collect()
        });
        drop(steering);
        let (mut results, mut failures) = (Vec::new(), Vec::new());
        for (queue, end) in ends {
            match end {
                Ok(result) => results.push((queue, result)),
                Err(error) => failures.push((queue, error)),
            }
        }
        if failures.is_empty() {
            Ok(results)
        } else {
            Err(WorkerErrors { device, failures })
        }
    }
}

/// Raises the flag when its thread panics.
struct StopOnPanic<'s>(&'s StopFlag);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.raise();
        }
    }
}

/// One worker, with panics left to the join of its thread.
fn serve<T, E>(
    queue: Queue,
    stop: &StopFlag,
    work: impl Fn(&mut Socket, &StopFlag) -> Result<T, E>,
) -> End<T, E> {
    let Queue { mut socket, cpu } = queue;
    // Dropped before the socket, whose closing may take a while.
    let _stop = StopOnPanic(stop);
    let pinned = cpu.map_or(Ok(()), hostnet::cpulist::pin);
    let end = match pinned {
        Ok(()) => work(&mut socket, stop).map_err(WorkerError::Failed),
        Err(error) => Err(WorkerError::NotStarted(Error::host(&error))),
    };
    if end.is_err() {
        stop.raise();
    }
    end
}

fn not_started<E>(error: &std::io::Error, stop: &StopFlag) -> WorkerError<E> {
    stop.raise();
    let errno = Errno::from_io_error(error).unwrap_or(Errno::AGAIN);
    let message = "starting the worker's thread: raise the limits of processes (`ulimit -u`, pids.max of the cgroup), or open fewer queues";
    WorkerError::NotStarted(Error::os(ErrorKind::Os, errno, message))
}

fn join<T, E>(worker: ScopedJoinHandle<'_, End<T, E>>) -> End<T, E> {
    let panicked = |panic| Err(WorkerError::Panicked(message(panic)));
    worker.join().unwrap_or_else(panicked)
}

/// The message of a panic; other payloads than text are rare.
fn message(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic
            .downcast_ref::<&str>()
            .map_or_else(|| "no message".to_owned(), ToString::to_string),
    }
}
