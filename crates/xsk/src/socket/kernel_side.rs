//! The kernel's part of a socket, for those who may outlive it.

use crate::sys::{KernelCounters, KernelSocket, SysResult};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The kernel's part of the counters.
#[derive(Debug, Clone)]
pub(super) struct KernelSide(Arc<Mutex<State>>);

#[derive(Debug)]
enum State {
    /// Its close waits for the lock, so it is not delayed by a reader that has more than this reference.
    Open(Weak<dyn KernelSocket>),
    /// With the last counters.
    Closed(KernelCounters),
}

impl KernelSide {
    pub(super) fn new(socket: &Arc<dyn KernelSocket>) -> Self {
        Self(Arc::new(Mutex::new(State::Open(Arc::downgrade(socket)))))
    }

    /// Reads the last counters, if anyone can ask for them. Call it before the socket is closed.
    pub(super) fn close(&self, socket: &dyn KernelSocket) {
        if Arc::strong_count(&self.0) > 1 {
            let last = socket.statistics().unwrap_or_default();
            *self.lock() = State::Closed(last);
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(*self.lock(), State::Closed(_))
    }

    pub(super) fn socket(&self) -> Option<Arc<dyn KernelSocket>> {
        match &*self.lock() {
            State::Open(socket) => socket.upgrade(),
            State::Closed(_) => None,
        }
    }

    pub(super) fn counters(&self) -> SysResult<KernelCounters> {
        match &*self.lock() {
            State::Closed(last) => Ok(*last),
            State::Open(socket) => socket
                .upgrade()
                .map_or(Ok(KernelCounters::default()), |it| it.statistics()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // What is done under it has no second step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
