//! Queues of devices, each lent to one tenant at a time.
//!
//! The broker opens and binds the socket, and keeps no descriptor of it: a lease ends when no process
//! holds the socket any more, however many had copies. No call of the kernel takes a bound socket away.

mod device;
mod holders;
mod journal;
mod last_close;
mod lent;
mod memory;
mod record;
mod restore;
mod terms;
mod users;
mod whole;

pub use holders::{Holder, end_holders};
pub use record::{Asker, LeaseId, Record};
pub(crate) use terms::plugin_grant;
pub use users::DeviceLease;

use crate::policy::Tenant;
use anyhow::{Context as _, Result, bail};
use device::Devices;
use hostnet::genetlink::netdev::queue_has_xsk;
use journal::Journal;
use last_close::LastClose;
use lent::Lent;
use memory::Stock;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use terms::Terms;
use users::Wholes;
use xsk::broker::{Refusal, Request};
use xsk::{Device, ErrorKind, Socket, Umem};

/// Time for a queue that a socket of others has, and for one that the kernel is about to release: as `xsk` has them.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);
const RELEASE_TIMEOUT: Duration = Duration::from_secs(30);
/// Between two tries of such a queue, at least and at most; an eighth of the time so far.
const MIN_RELEASE_PAUSE: Duration = Duration::from_millis(1);
const MAX_RELEASE_PAUSE: Duration = Duration::from_millis(50);

/// All leases.
#[derive(Debug)]
pub struct Leases {
    state: Mutex<State>,
    devices: Devices,
    closes: LastClose,
    stock: Stock,
    lent: Lent,
    wholes: Wholes,
}

#[derive(Debug)]
struct State {
    leases: BTreeMap<LeaseId, Record>,
    next: u64,
    journal: Journal,
}

impl Leases {
    /// Opens the table, with the leases that the journal in `directory` has and that still live. Programs
    /// are pinned below `pins`, if there is a BPF filesystem.
    ///
    /// # Errors
    ///
    /// When the journal cannot be read or written.
    pub fn open(directory: &Path, pins: Option<&Path>) -> Result<Self> {
        let closes = LastClose::new().context("cannot watch sockets")?;
        let (journal, records) = Journal::open(directory)?;
        let devices = Devices::new(pins);
        let next = records.keys().next_back().map_or(1, |id| id.0 + 1);
        let table = Self {
            state: Mutex::new(State {
                leases: BTreeMap::new(),
                next,
                journal,
            }),
            devices,
            closes,
            stock: Stock::default(),
            lent: Lent::new().context("cannot watch memory")?,
            wholes: Wholes::default(),
        };
        table.restore(records)?;
        Ok(table)
    }

    /// The descriptor that is readable when a lease may have ended: then call [`sweep`](Self::sweep).
    pub fn events(&self) -> BorrowedFd<'_> {
        self.closes.as_fd()
    }

    /// The longest time until the next [`sweep`](Self::sweep), without an event.
    pub fn patience(&self) -> Duration {
        if self.state().leases.is_empty() && self.devices.is_empty() {
            return self.closes.idle_patience();
        }
        self.closes.patience()
    }

    /// Opens a socket for a tenant and lends it the queue.
    ///
    /// # Errors
    ///
    /// The reason, for the tenant.
    pub fn lend(
        &self,
        tenant: &Tenant,
        request: &Request,
        asker: Asker,
    ) -> Result<Granted, Refusal> {
        let device = Device::lookup(&request.device).map_err(|error| Refusal::from(&error))?;
        let terms = Terms::of(tenant, request, &device)?;
        let lease = Record {
            rx: request.rx,
            tx: request.tx,
            memory: terms.memory,
            filter: terms.grant.filter.clone(),
            ..Record::new(tenant, &device, asker)
        };
        let mut umem = None;
        let granted = self.lend_free(&terms, &device, &lease, &mut umem);
        if let Some(umem) = umem {
            self.stock.discard(umem);
        }
        granted
    }

    /// Lends a queue that the kernel has free, after some time if it has none: it releases one a while after its
    /// socket's last close. Nothing is held in between.
    fn lend_free(
        &self,
        terms: &Terms<'_>,
        device: &Device,
        lease: &Record,
        umem: &mut Option<Umem>,
    ) -> Result<Granted, Refusal> {
        let began = Instant::now();
        loop {
            let mut busy = BTreeSet::new();
            let refusal = loop {
                let reserve = || {
                    self.reserve(terms.tenant, lease.clone(), |taken| {
                        terms.choose(device, &busy, taken)
                    })
                };
                let reserved = reserve().or_else(|refusal| {
                    if self.lent.kept(&terms.tenant.name).0 == 0 {
                        return Err(refusal);
                    }
                    self.lent.look(&terms.tenant.name);
                    reserve()
                });
                let reserved = match reserved {
                    Ok(reserved) => reserved,
                    Err(refusal) if busy.is_empty() => return Err(refusal),
                    Err(refusal) => break refusal,
                };
                let opened = self
                    .memory(terms.request, umem)
                    .and_then(|umem| self.open_socket(terms, device, &reserved, umem));
                let refusal = match opened {
                    Ok(granted) => return Ok(granted),
                    Err(refusal) => refusal,
                };
                self.end(reserved.id);
                if refusal.kind() != ErrorKind::QueueBusy {
                    return Err(refusal);
                }
                busy.insert(reserved.queue);
                if terms.request.queue.is_some() {
                    break refusal;
                }
            };
            // A queue that the kernel shows as held needs no try, for which others would wait.
            loop {
                let shown = busy
                    .iter()
                    .map(|queue| queue_has_xsk(device.index, *queue).ok());
                let shown: Vec<_> = shown.collect();
                let waited = began.elapsed();
                let timeout = if shown.contains(&Some(false)) {
                    RELEASE_TIMEOUT
                } else {
                    BUSY_TIMEOUT
                };
                if waited >= timeout {
                    return Err(refusal);
                }
                std::thread::sleep((waited / 8).clamp(MIN_RELEASE_PAUSE, MAX_RELEASE_PAUSE));
                if shown.iter().any(|shown| *shown != Some(true)) {
                    break;
                }
            }
        }
    }

    /// The memory of a request, which is made once.
    fn memory<'u>(
        &self,
        request: &Request,
        umem: &'u mut Option<Umem>,
    ) -> Result<&'u Umem, Refusal> {
        match umem {
            Some(made) => Ok(made),
            none => {
                let made = self.stock.take(request.chunks, request.chunk_size);
                Ok(none.insert(made.map_err(|error| Refusal::from(&error))?))
            }
        }
    }

    /// Lends a queue to a tenant that is about to bind the socket itself, with a UMEM of `memory` bytes, 0 if
    /// that is unknown; a queue that it has in this way, again. [`begin`](Self::begin) follows once it is
    /// bound, [`end`](Self::end) if it is not.
    ///
    /// # Errors
    ///
    /// When another lease has the queue or the socket, or the tenant has all of its leases or memory.
    pub fn lend_socket(
        &self,
        tenant: &Tenant,
        device: &Device,
        queue: u32,
        socket: BorrowedFd<'_>,
        memory: u64,
        asker: Asker,
    ) -> Result<Record, Refusal> {
        let os = |errno: Errno| Refusal::new(ErrorKind::Os, errno.to_string());
        let inode = rustix::fs::fstat(socket).map_err(os)?.st_ino;
        if let Some(lease) = self.list().iter().find(|lease| lease.inode == inode) {
            return Err(terms::busy(lease));
        }
        let is_own = |lease: &Record| lease.tenant == tenant.name && lease.mode.is_empty();
        let lease = Record {
            memory,
            ..Record::new(tenant, device, asker)
        };
        self.reserve(tenant, lease, |taken| match taken(queue) {
            Some(lease) if !is_own(lease) => Err(terms::busy(lease)),
            // Sockets that share a UMEM share the queue.
            _ => Ok(queue),
        })
    }

    /// Begins a lease of [`lend_socket`](Self::lend_socket), whose socket is bound.
    ///
    /// # Errors
    ///
    /// When the socket cannot be watched or the journal not be written. The lease stays, so that nobody else
    /// gets the queue.
    pub fn begin(&self, id: LeaseId, socket: BorrowedFd<'_>) -> Result<Record> {
        self.watch(id, socket)
    }

    /// Ends the leases whose sockets nobody holds any more, and detaches programs that nobody needs;
    /// returns those that ended.
    pub fn sweep(&self) -> Vec<Record> {
        let closed = self.closes.closed();
        closed.memories.iter().for_each(|&id| self.lent.closed(id));
        let mut ended = Vec::new();
        for id in closed.leases {
            ended.extend(self.end(id));
        }
        ended.extend(self.sweep_unwatched(closed.lost_events));
        ended.extend(self.sweep_devices());
        self.devices.tidy(&self.ifindexes());
        ended
    }

    /// The leases.
    pub fn list(&self) -> Vec<Record> {
        self.state().leases.values().cloned().collect()
    }

    /// A lease.
    pub fn get(&self, id: LeaseId) -> Option<Record> {
        self.state().leases.get(&id).cloned()
    }

    /// The processes that hold a lease's socket.
    pub fn holders(&self, lease: &Record) -> Vec<Holder> {
        holders_of(lease.inode)
    }

    /// The processes that hold the sockets of leases, by inode.
    pub fn all_holders(&self, leases: &[Record]) -> BTreeMap<u64, Vec<Holder>> {
        holders::of(leases.iter().map(|lease| lease.inode))
    }

    /// Detaches programs that no lease needs, for the end of the broker.
    pub fn close(&self) {
        self.sweep();
        self.devices.close(&self.ifindexes());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ifindexes(&self) -> Vec<u32> {
        self.state()
            .leases
            .values()
            .map(|lease| lease.ifindex)
            .collect()
    }

    /// Begins a lease of the queue that `choose` finds free, so that nobody else gets it meanwhile.
    fn reserve(
        &self,
        tenant: &Tenant,
        mut lease: Record,
        choose: impl for<'s> FnOnce(&dyn Fn(u32) -> Option<&'s Record>) -> Result<u32, Refusal>,
    ) -> Result<Record, Refusal> {
        let mut state = self.state();
        let leases = &state.leases;
        let mine = leases.values().filter(|other| other.tenant == lease.tenant);
        let kept = self.lent.kept(&lease.tenant);
        let (count, used) = mine.fold(kept, |(count, used), other| {
            (count + 1, used + other.memory)
        });
        terms::check_limits(tenant, count, used, lease.memory)?;
        let ifindex = lease.ifindex;
        let on_device = || {
            leases
                .values()
                .filter(move |other| other.ifindex == ifindex)
        };
        let mut of_others = on_device().filter(|other| other.tenant != lease.tenant);
        if let Some(other) = of_others.find(|other| other.whole_device || lease.whole_device) {
            return Err(terms::busy(other));
        }
        lease.queue =
            choose(&|queue| on_device().find(|other| other.queue == queue && !other.whole_device))?;
        lease.id = LeaseId(state.next);
        state.next += 1;
        state.leases.insert(lease.id, lease.clone());
        Ok(lease)
    }

    fn open_socket(
        &self,
        terms: &Terms<'_>,
        device: &Device,
        reserved: &Record,
        umem: &Umem,
    ) -> Result<Granted, Refusal> {
        let socket = self
            .devices
            .open_socket(device, reserved.queue, terms, umem)?;
        let mode = socket.mode().to_string();
        if let Some(lease) = self.state().leases.get_mut(&reserved.id) {
            lease.mode = mode;
        }
        let taken = take_apart(socket);
        let (message, mut descriptors) = taken.map_err(|error| Refusal::from(&error))?;
        let lent = self.lend_memory(reserved, &mut descriptors);
        lent.map_err(|error| Refusal::new(ErrorKind::Os, format!("{error:#}")))?;
        let watched = descriptors.first().context("a socket has a descriptor");
        let watched = watched.and_then(|socket| self.watch(reserved.id, socket.as_fd()));
        let record = watched.map_err(|error| Refusal::new(ErrorKind::Os, format!("{error:#}")))?;
        Ok(Granted {
            record,
            message,
            descriptors,
        })
    }

    /// Puts a descriptor that the tenant alone has in the place of the memory's, and counts the memory from
    /// here on until nobody keeps a part of it.
    fn lend_memory(&self, lease: &Record, descriptors: &mut [OwnedFd]) -> Result<()> {
        let [_, memory, ..] = descriptors else {
            bail!("a socket has memory");
        };
        let theirs = lent::open_for_tenant(memory.as_fd()).context("opening memory")?;
        self.closes.watch_memory(lease.id, theirs.as_fd())?;
        let ours = std::mem::replace(memory, theirs);
        let begun = self.lent.begin(lease.id, &lease.tenant, lease.memory, ours);
        begun.context("watching memory")?;
        // After the watches, which need the permission.
        lent::close_to_others(memory.as_fd()).context("the mode of memory")
    }

    /// Notes the socket of a lease, which ends with the socket's last close.
    fn watch(&self, id: LeaseId, socket: BorrowedFd<'_>) -> Result<Record> {
        let inode = rustix::fs::fstat(socket)?.st_ino;
        // A lease whose socket cannot be watched ends once its device shows no socket.
        let lease = {
            let mut state = self.state();
            let lease = state.leases.get_mut(&id);
            let lease = lease.context("the lease has ended")?;
            lease.inode = inode;
            lease.clone()
        };
        self.closes.watch(id, inode, socket)?;
        self.state().journal.begin(&lease)?;
        Ok(lease)
    }

    /// Ends a lease.
    pub fn end(&self, id: LeaseId) -> Option<Record> {
        let mut state = self.state();
        let record = state.leases.remove(&id)?;
        self.lent.ended(id);
        if record.inode != 0 || record.whole_device {
            // Without the line, the next broker finds the socket closed.
            let _ = state.journal.end(id);
        } else if id.0 + 1 == state.next {
            // It never began, and nobody has its number.
            state.next = id.0;
        }
        Some(record)
    }
}

/// The processes that hold a socket, but for this one.
pub fn holders_of(inode: u64) -> Vec<Holder> {
    holders::of([inode]).remove(&inode).unwrap_or_default()
}

/// A socket for a tenant, as a message and descriptors.
#[derive(Debug)]
pub struct Granted {
    /// The lease.
    pub record: Record,
    /// The parts, see [`xsk::Parts::into_message`].
    pub message: Vec<u8>,
    /// Their descriptors, the socket's first.
    pub descriptors: Vec<OwnedFd>,
}

/// Takes a socket apart, without the map and the program: the device's own reference keeps it attached.
fn take_apart(socket: Socket) -> xsk::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut parts = socket.into_parts()?;
    parts.withhold_program()?;
    Ok(parts.into_message())
}
