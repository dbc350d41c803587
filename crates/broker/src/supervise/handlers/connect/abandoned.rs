//! Connections whose caller was killed while it waited, and those that wait when the broker stops.
//!
//! A blocking connect waits for minutes, in a thread of the broker. `O_NONBLOCK` would not do: it
//! belongs to the file description, which is the caller's too. So one thread watches the callers of
//! all that wait, and shuts the socket of a killed one down, which ends the wait.

use crate::seccomp::Target;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::Shutdown;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the callers are looked at.
const INTERVAL: Duration = Duration::from_millis(50);

/// Ends connections whose caller is gone.
#[derive(Debug, Default)]
pub(super) struct Abandoned {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Waiting>,
    next: u64,
    /// Whether no connection may wait any longer.
    stopped: bool,
    ended: bool,
}

/// A connection that may wait.
#[derive(Debug)]
struct Waiting {
    number: u64,
    caller: OwnedFd,
    socket: Arc<OwnedFd>,
}

/// Watches a connection until it is dropped.
#[derive(Debug)]
#[must_use = "dropped, it watches no more"]
pub(super) struct Watched<'a> {
    shared: &'a Shared,
    number: u64,
}

impl Abandoned {
    /// Watches the caller of a connection that begins now.
    pub(super) fn watch(
        &self,
        target: &Target,
        socket: &Arc<OwnedFd>,
    ) -> Result<Watched<'_>, Errno> {
        let caller = rustix::io::fcntl_dupfd_cloexec(target.pidfd(), 0)?;
        self.start()?;
        let mut state = self.shared.lock();
        if state.stopped {
            return Err(Errno::INTR);
        }
        let number = state.next;
        state.next += 1;
        state.waiting.push(Waiting {
            number,
            caller,
            socket: Arc::clone(socket),
        });
        if state.waiting.len() == 1 {
            self.shared.changed.notify_all();
        }
        Ok(Watched {
            shared: &self.shared,
            number,
        })
    }

    /// Ends all waits.
    pub(super) fn stop(&self) {
        self.shared.lock().stopped = true;
        self.shared.changed.notify_all();
    }

    /// Whether all waits were ended.
    pub(super) fn has_stopped(&self) -> bool {
        self.shared.lock().stopped
    }

    /// Starts the thread, once.
    fn start(&self) -> Result<(), Errno> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let builder = std::thread::Builder::new().name("connect".into());
            let started = builder.spawn(move || shared.run());
            *thread = Some(started.map_err(|_| Errno::AGAIN)?);
        }
        Ok(())
    }
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.changed.notify_all();
        let thread = self
            .thread
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            // It panics nowhere.
            let _ = thread.join();
        }
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.waiting.retain(|it| it.number != self.number);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.lock();
        while !state.ended {
            if state.waiting.is_empty() {
                let woken = self.changed.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.changed.wait_timeout(state, INTERVAL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            // Each time again: a thread that has not yet begun to wait misses the first one.
            let ends = |it: &&Waiting| state.stopped || is_gone(&it.caller);
            for waiting in state.waiting.iter().filter(ends) {
                // Not connected yet, or no more: nothing to end.
                let _ = rustix::net::shutdown(&waiting.socket, Shutdown::Both);
            }
        }
    }
}

/// Whether the thread has ended.
fn is_gone(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}
