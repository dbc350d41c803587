//! Sockets that are being bound, and those whose bind has failed a moment ago.
//!
//! While the broker binds a socket, its device is open to each holder of the socket. If the broker's bind(2)
//! succeeds, the kernel lets no other one succeed. If it fails, another one that began in that instant may
//! still be on its way: the kernel looks at the device first, then waits for its locks. So such a socket
//! is looked at again for a while.

use super::bound::{Bound, Probe};
use super::objects::Objects;
use super::session::{Queues, Taken};
use crate::budget::Budget;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// Time for which a socket is looked at after its last bind that failed. It keeps the socket's memory, which
/// counts towards its user's limit.
const WATCH_TIMEOUT: Duration = Duration::from_secs(1);
/// Between two looks.
const WATCH_INTERVAL: Duration = Duration::from_millis(20);
/// Time for another bind of a socket, or a look, to be over; and between two tries.
const TURN_TIMEOUT: Duration = Duration::from_secs(1);
const TURN_INTERVAL: Duration = Duration::from_millis(1);
/// Most sockets of a session that are looked at; the next one is not bound for now.
const MAX_WATCHED: usize = 16;
/// Stack of a thread that looks.
const STACK: usize = 128 << 10;

/// The sockets by their inodes, of all sessions: a socket can be passed from one to another.
static SOCKETS: Mutex<Sockets> = Mutex::new(Sockets {
    binding: BTreeSet::new(),
    watched: BTreeMap::new(),
});

struct Sockets {
    binding: BTreeSet<u64>,
    /// Until when, and for which session.
    watched: BTreeMap<u64, (Instant, SessionId)>,
}

/// A session, by the place of its objects.
pub(super) type SessionId = usize;

/// The right to bind a socket: one bind at a time, since a second one could not tell the first one's success
/// from an attack.
#[derive(Debug)]
pub(super) struct Turn(u64);

impl Turn {
    /// Waits for one that is over soon.
    ///
    /// # Errors
    ///
    /// `EBUSY` while it is being bound; `ENOBUFS` when too many of the session have failed a moment ago.
    pub(super) fn take(inode: u64, session: SessionId) -> Result<Self, Errno> {
        let deadline = Instant::now() + TURN_TIMEOUT;
        loop {
            match Self::try_take(inode, session) {
                Err(Errno::BUSY) if Instant::now() < deadline => thread::sleep(TURN_INTERVAL),
                turn => return turn,
            }
        }
    }

    fn try_take(inode: u64, session: SessionId) -> Result<Self, Errno> {
        let mut sockets = sockets();
        let mine = sockets.watched.values().filter(|it| it.1 == session);
        if !sockets.watched.contains_key(&inode) && mine.count() >= MAX_WATCHED {
            return Err(Errno::NOBUFS);
        }
        if !sockets.binding.insert(inode) {
            return Err(Errno::BUSY);
        }
        Ok(Self(inode))
    }

    /// The socket is bound as it should be, for good.
    pub(super) fn succeeded(&self) {
        sockets().watched.remove(&self.0);
    }

    /// Its bind has failed.
    pub(super) fn failed(self, watch: Watch) {
        let inode = self.0;
        let until = (Instant::now() + WATCH_TIMEOUT, watch.session());
        let is_new = sockets().watched.insert(inode, until).is_none();
        // Others may bind it from here on.
        drop(self);
        if !is_new {
            return;
        }
        let watch = Arc::new(watch);
        let aside = Arc::clone(&watch);
        let thread = thread::Builder::new()
            .name("watch".into())
            .stack_size(STACK);
        if thread.spawn(move || aside.run(inode)).is_err() {
            watch.run(inode);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        sockets().binding.remove(&self.0);
    }
}

/// A socket whose bind failed, and who is to know if it is bound nevertheless.
pub(super) struct Watch {
    /// Asked before, so that no descriptor may be missing for it.
    pub(super) probe: Probe,
    pub(super) objects: Weak<Mutex<Objects>>,
    pub(super) budget: Arc<Budget>,
    pub(super) queues: Arc<dyn Queues>,
    pub(super) socket: OwnedFd,
    pub(super) device: String,
    pub(super) ifindex: u32,
    pub(super) queue: u32,
    pub(super) uid: u32,
}

impl Watch {
    pub(super) fn session(&self) -> SessionId {
        self.objects.as_ptr().addr()
    }

    fn run(&self, inode: u64) {
        loop {
            thread::sleep(WATCH_INTERVAL);
            match sockets().watched.get(&inode) {
                None => return,
                Some((until, _)) if *until < Instant::now() => break,
                Some(_) => {}
            }
            // Whoever binds it now looks as well.
            let Ok(_turn) = Turn::try_take(inode, self.session()) else {
                continue;
            };
            // The kernel may take a while to answer: no lock is held then.
            let is_watched = sockets().watched.contains_key(&inode);
            if is_watched && !self.is_unbound() {
                self.seize();
                break;
            }
        }
        sockets().watched.remove(&inode);
    }

    /// What cannot be read counts as bound.
    fn is_unbound(&self) -> bool {
        let look = self
            .probe
            .look(self.socket.as_fd(), self.ifindex, self.queue);
        look == Ok(Bound::Nothing)
    }

    pub(super) fn seize(&self) {
        self.budget.close();
        self.queues.seize(&Taken {
            device: &self.device,
            queue: self.queue,
            socket: self.socket.as_fd(),
            uid: self.uid,
        });
    }
}

fn sockets() -> MutexGuard<'static, Sockets> {
    lock(&SOCKETS)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is one step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
