//! A tenant's share of the broker: all its processes, sessions and connections together have these and no
//! more, so that no tenant uses up what others need.

use crate::policy::Limits;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A tenant has at most this part of the descriptors that the broker may have.
const PART_OF_DESCRIPTORS: u64 = 4;

/// Descriptors of this process that a tenant's objects need.
pub mod descriptors {
    /// A call while it is answered: its thread, its place and its arguments.
    pub const CALL: u32 = 6;
    /// A session: listener, stop, the broker's namespace; a call, and a slow one.
    pub const SESSION: u32 = 4 + 2 * CALL;
    /// A network namespace of callers.
    pub const NAMESPACE: u32 = 2;
    /// A program and its BTF or handle.
    pub const PROGRAM: u32 = 2;
    /// A program that is attached.
    pub const LINK: u32 = 1;
}

/// A kind of BPF objects. They live until their last descriptor is closed, and tenants have descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the kernel's names")]
pub enum Object {
    Map,
    Program,
    Link,
    Btf,
}

/// What a tenant has.
#[derive(Debug, Default)]
pub struct Budget(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    limits: Limits,
    descriptors: u32,
    threads: u32,
    objects: [Objects; 4],
    has_taken: bool,
    closed_with_it: Vec<Weak<dyn Close>>,
}

/// What a session of the tenant has, and what ends once the tenant has taken a socket.
pub trait Close: fmt::Debug + Send + Sync {
    /// Ends it, and all that is made of it later.
    fn close(&self);
}

/// Objects of a kind.
#[derive(Debug, Default)]
struct Objects {
    /// The kernel's ids of those that were made. Some may be gone.
    ids: BTreeSet<u32>,
    /// Places of those that are being made.
    reserved: usize,
}

impl Budget {
    /// With these limits.
    pub fn new(limits: &Limits) -> Self {
        let budget = Self::default();
        budget.set_limits(limits);
        budget
    }

    /// Changes the limits. What a tenant has beyond them it keeps.
    pub fn set_limits(&self, limits: &Limits) {
        self.state().limits = limits.clone();
    }

    /// Some of the broker's descriptors, until the share is dropped.
    ///
    /// # Errors
    ///
    /// `ENOSPC` when the tenant has all of its own.
    pub fn descriptors(self: &Arc<Self>, count: u32) -> Result<Share, Errno> {
        let mut state = self.state();
        let total = state.descriptors.saturating_add(count);
        if u64::from(total) > most_descriptors(&state.limits) {
            return Err(Errno::NOSPC);
        }
        state.descriptors = total;
        Ok(Share {
            budget: Arc::clone(self),
            descriptors: count,
            threads: 0,
        })
    }

    /// One more thread for a slow call, with its descriptors; none when the tenant has all of its own.
    pub fn thread(self: &Arc<Self>) -> Option<Share> {
        let mut share = self.descriptors(descriptors::CALL).ok()?;
        let mut state = self.state();
        if state.threads < state.limits.threads {
            state.threads += 1;
            share.threads = 1;
            return Some(share);
        }
        drop(state);
        None
    }

    /// A place for one more object. `is_there` says whether the kernel has one with an id: those that a
    /// tenant's processes keep count, also after the end of their session.
    ///
    /// # Errors
    ///
    /// `ENOSPC` when the tenant has all of its own.
    pub fn reserve(
        self: &Arc<Self>,
        kind: Object,
        is_there: impl Fn(u32) -> bool,
    ) -> Result<Place, Errno> {
        let mut state = self.state();
        let most = state.limits.objects(kind) as usize;
        let objects = state.of(kind);
        if objects.ids.len() + objects.reserved >= most {
            objects.ids.retain(|&id| is_there(id));
        }
        if objects.ids.len() + objects.reserved >= most {
            return Err(Errno::NOSPC);
        }
        objects.reserved += 1;
        Ok(Place {
            budget: Arc::clone(self),
            kind,
        })
    }

    /// Closes this once the tenant has taken a socket, or now.
    pub fn close_with_it(&self, session: &Arc<impl Close + 'static>) {
        let mut state = self.state();
        state.closed_with_it.retain(|it| it.strong_count() > 0);
        let session: Weak<dyn Close> = Arc::downgrade(session) as _;
        state.closed_with_it.push(Weak::clone(&session));
        let has_taken = state.has_taken;
        drop(state);
        if has_taken && let Some(session) = session.upgrade() {
            session.close();
        }
    }

    /// Closes all sessions, those to come too: a socket of the tenant's is bound otherwise than granted, and any of
    /// its processes can get it.
    pub fn close(&self) {
        let mut state = self.state();
        state.has_taken = true;
        let sessions = std::mem::take(&mut state.closed_with_it);
        // They ask the budget while they are locked.
        drop(state);
        for session in sessions.iter().filter_map(Weak::upgrade) {
            session.close();
        }
    }

    /// Whether they are closed, for as long as this broker runs.
    pub fn is_closed(&self) -> bool {
        self.state().has_taken
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The limit of the policy, and a part of what this process may have.
fn most_descriptors(limits: &Limits) -> u64 {
    let all = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    u64::from(limits.descriptors).min(all / PART_OF_DESCRIPTORS)
}

impl State {
    fn of(&mut self, kind: Object) -> &mut Objects {
        let [maps, programs, links, btfs] = &mut self.objects;
        match kind {
            Object::Map => maps,
            Object::Program => programs,
            Object::Link => links,
            Object::Btf => btfs,
        }
    }
}

impl Limits {
    fn objects(&self, kind: Object) -> u32 {
        match kind {
            Object::Map => self.maps,
            Object::Program => self.programs,
            Object::Link => self.links,
            Object::Btf => self.btfs,
        }
    }
}

/// Descriptors, and perhaps a thread, until it is dropped.
#[derive(Debug)]
#[must_use = "dropped, it counts no more"]
pub struct Share {
    budget: Arc<Budget>,
    descriptors: u32,
    threads: u32,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut state = self.budget.state();
        state.descriptors -= self.descriptors;
        state.threads -= self.threads;
    }
}

/// A place for an object that is about to be made.
#[derive(Debug)]
#[must_use = "dropped, it is free again"]
pub struct Place {
    budget: Arc<Budget>,
    kind: Object,
}

impl Place {
    /// Counts the object with this id until the kernel has none.
    pub fn fill(self, id: u32) {
        self.budget.state().of(self.kind).ids.insert(id);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.budget.state().of(self.kind).reserved -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget() -> Arc<Budget> {
        Arc::new(Budget::new(&Limits {
            descriptors: 20,
            threads: 2,
            maps: 2,
            ..Limits::default()
        }))
    }

    #[test]
    fn a_share_counts_until_it_is_dropped() {
        let budget = budget();
        let most = budget.descriptors(20).expect("the limit");
        assert_eq!(budget.descriptors(1).err(), Some(Errno::NOSPC));
        assert!(budget.thread().is_none(), "a thread needs descriptors");
        drop(most);
        let threads = [budget.thread(), budget.thread()];
        assert!(threads.iter().all(Option::is_some));
        assert!(budget.thread().is_none());
        drop(threads);
        let state = budget.state();
        assert_eq!((state.descriptors, state.threads), (0, 0));
    }

    #[test]
    fn an_object_counts_until_the_kernel_has_it_no_more() {
        let budget = budget();
        let reserve = |kept: &[u32]| {
            let kept = kept.to_vec();
            budget.reserve(Object::Map, move |id| kept.contains(&id))
        };
        reserve(&[]).expect("room").fill(7);
        let place = reserve(&[7]).expect("room");
        assert!(reserve(&[7]).is_err(), "one place is reserved");
        place.fill(8);
        assert!(reserve(&[7, 8]).is_err(), "both are kept");
        drop(reserve(&[8]).expect("one is gone"));
        reserve(&[8]).expect("the place was not used").fill(9);
        assert!(reserve(&[8, 9]).is_err());
    }
}
