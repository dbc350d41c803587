//! State that the calls of a session share.

use super::known::Hash;
use super::objects::Objects;
use super::place::Place;
use crate::budget::{Budget, Share, descriptors};
use crate::confine::worker::{self, Worker};
use crate::policy::{DeviceGrant, Mode};
use crate::seccomp::Target;
use rustix::io::Errno;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Queues that are lent, each to one tenant at a time.
pub trait Queues: Send + Sync {
    /// Lends a queue to a tenant that is about to bind `socket`, with a UMEM of `memory` bytes, to it;
    /// 0 if the size is unknown. Returns the number of the lease, for [`begin`](Self::begin) or
    /// [`end`](Self::end).
    ///
    /// # Errors
    ///
    /// `EBUSY` when another tenant has it: bind(2) fails with that.
    fn lend(
        &self,
        tenant: &str,
        device: &str,
        queue: u32,
        socket: BorrowedFd<'_>,
        memory: u64,
    ) -> Result<u64, Errno>;

    /// The socket is bound: its last close ends the lease.
    fn begin(&self, lease: u64, socket: BorrowedFd<'_>);

    /// The socket was not bound.
    fn end(&self, lease: u64);

    /// Ends the tenant's processes that hold a socket, and tells the operator.
    fn seize(&self, taken: &Taken<'_>);
}

/// A socket that a holder has bound otherwise than the broker judged, or whose state cannot be read.
#[derive(Debug)]
pub struct Taken<'a> {
    /// The device that was asked for.
    pub device: &'a str,
    /// The queue.
    pub queue: u32,
    /// The socket.
    pub socket: BorrowedFd<'a>,
    /// User of the process that asked.
    pub uid: u32,
}

/// A queue that is lent to a socket about to be bound. Dropped, it is not.
pub(super) struct Loan<'s>(Option<(&'s dyn Queues, u64)>);

impl Loan<'_> {
    pub(super) fn begin(mut self, socket: BorrowedFd<'_>) {
        if let Some((queues, lease)) = self.0.take() {
            queues.begin(lease, socket);
        }
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        if let Some((queues, lease)) = self.0.take() {
            queues.end(lease);
        }
    }
}

/// Most namespaces, besides the broker's, that a session keeps open.
const MOST_PLACES: usize = 8;

/// State that the calls of a session share.
pub(super) struct Session {
    tenant: String,
    grants: Vec<DeviceGrant>,
    programs: Vec<Hash>,
    queues: Arc<dyn Queues>,
    worker: Arc<Worker>,
    budget: Arc<Budget>,
    home: Arc<Place>,
    places: Mutex<Vec<(Arc<Place>, Share)>>,
    objects: Arc<Mutex<Objects>>,
}

impl Session {
    pub(super) fn new(
        tenant: &str,
        grants: Vec<DeviceGrant>,
        programs: Vec<Hash>,
        queues: Arc<dyn Queues>,
        worker: Arc<Worker>,
        budget: Arc<Budget>,
    ) -> Result<Self, Errno> {
        let objects = Arc::new(Mutex::new(Objects::new(Arc::clone(&budget))));
        budget.close_with_it(&objects);
        Ok(Self {
            tenant: tenant.to_owned(),
            grants,
            programs,
            queues,
            worker,
            home: Arc::new(Place::home()?),
            places: Mutex::default(),
            objects,
            budget,
        })
    }

    /// The caller's namespace, `None` if it is the broker's.
    pub(super) fn callers_place(&self, target: &Target) -> Result<Option<Arc<Place>>, Errno> {
        let Some(place) = Place::of(target, &self.home)? else {
            return Ok(None);
        };
        let mut places = lock(&self.places);
        let is_it = |(it, _): &&(Arc<Place>, Share)| it.identity() == place.identity();
        if let Some((known, _)) = places.iter().find(is_it) {
            return Ok(Some(Arc::clone(known)));
        }
        let place = Arc::new(place);
        if places.len() < MOST_PLACES
            && let Ok(share) = self.budget.descriptors(descriptors::NAMESPACE)
        {
            places.push((Arc::clone(&place), share));
        }
        Ok(Some(place))
    }

    /// Where a call of a caller has its effect: in its own namespace if that has a granted device, else in
    /// the broker's.
    pub(super) fn place(&self, target: &Target) -> Result<Arc<Place>, Errno> {
        let has_device = |place: &Place| {
            let mut names = self.grants.iter().map(|grant| &grant.device);
            names.any(|name| place.index(name).is_ok())
        };
        match self.callers_place(target)? {
            Some(place) if has_device(&place) => Ok(place),
            _ => Ok(Arc::clone(&self.home)),
        }
    }

    /// Whether a caller's namespace is another than that in which its calls have their effect.
    pub(super) fn is_elsewhere(&self, target: &Target, place: &Place) -> Result<bool, Errno> {
        let callers = self.callers_place(target)?;
        Ok(place.is_home() && callers.is_some())
    }

    /// The grants for a device, which may have it by an alternative name. None if they have it by two names: of one
    /// device, each could be meant to limit the other.
    pub(super) fn grants(&self, place: &Place, ifindex: u32) -> Vec<&DeviceGrant> {
        let is_for = |it: &&DeviceGrant| place.index(&it.device) == Ok(ifindex);
        let grants: Vec<_> = self.grants.iter().filter(is_for).collect();
        let has_one_name = grants.windows(2).all(|two| two[0].device == two[1].device);
        if has_one_name { grants } else { Vec::new() }
    }

    /// Lends a queue, if the device is the broker's: of other devices it lends none, and the kernel keeps
    /// a queue to one socket.
    pub(super) fn lend(
        &self,
        place: &Place,
        device: &str,
        queue: u32,
        socket: BorrowedFd<'_>,
        memory: u64,
    ) -> Result<Loan<'_>, Errno> {
        if !place.is_home() {
            return Ok(Loan(None));
        }
        let queues = &*self.queues;
        let lease = queues.lend(&self.tenant, device, queue, socket, memory)?;
        Ok(Loan(Some((queues, lease))))
    }

    /// The queues that are lent.
    pub(super) fn queues(&self) -> Arc<dyn Queues> {
        Arc::clone(&self.queues)
    }

    /// Loads a program.
    pub(super) fn load(&self, program: &worker::Program<'_>) -> Result<OwnedFd, Errno> {
        let loaded = self.worker.load(&self.tenant, program);
        loaded.map_err(|refusal| refusal.errno)
    }

    /// The broker's namespace.
    pub(super) fn home(&self) -> Arc<Place> {
        Arc::clone(&self.home)
    }

    /// All grants.
    pub(super) fn all_grants(&self) -> &[DeviceGrant] {
        &self.grants
    }

    /// The tenant's budget.
    pub(super) fn budget(&self) -> Arc<Budget> {
        Arc::clone(&self.budget)
    }

    /// Whether the operator allows a program.
    pub(super) fn allows(&self, program: &Hash) -> bool {
        self.programs.contains(program)
    }

    pub(super) fn objects(&self) -> MutexGuard<'_, Objects> {
        lock(&self.objects)
    }

    /// The objects, as long as the session lasts.
    pub(super) fn weak_objects(&self) -> Weak<Mutex<Objects>> {
        Arc::downgrade(&self.objects)
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Session");
        debug.field("tenant", &self.tenant).finish_non_exhaustive()
    }
}

/// Whether a grant has a mode.
pub(super) fn has_mode(grant: &DeviceGrant, mode: Mode) -> bool {
    grant.modes.contains(&mode)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
