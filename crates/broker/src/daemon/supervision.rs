//! The supervised processes: a session for each listener.

use super::kept::KeptSessions;
use super::log::{self, event};
use super::queues::TenantsQueues;
use super::systemd::{Manager, Passed};
use crate::budget::{Budget, Share, descriptors};
use crate::confine::worker::Worker;
use crate::identity::Kept;
use crate::lease::Leases;
use crate::policy::{Policy, Tenant};
use crate::seccomp::Listener;
use crate::supervise::fuse::Connections;
use crate::supervise::handlers::connect::Redirections;
use crate::supervise::handlers::{self, World};
use crate::supervise::log::{Log, Queue};
use crate::supervise::metrics::Metrics;
use crate::supervise::session::{Outlets, Session};
use anyhow::{Context as _, Result, anyhow, bail};
use serde::Serialize;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Most sessions at a time; each is a thread.
const MOST_SESSIONS: usize = 1024;

/// So many of all are for tenants that have few: the others cannot use them up.
const KEPT_FOR_FEW: usize = 256;

/// Sessions of a tenant that has few.
const FEW: usize = 16;

/// Time for the sessions to end when the broker stops. Calls that still wait then, for something that their
/// caller controls, fail with `EINTR`, and their threads have as much time again.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Time between two looks at whether they have ended.
const STOP_INTERVAL: Duration = Duration::from_millis(5);

/// All sessions, and the figures of each tenant.
pub(super) struct Supervision {
    log: Arc<Queue>,
    /// Keeps the listeners over a restart.
    manager: Arc<Manager>,
    worker: Arc<Worker>,
    leases: Arc<Leases>,
    /// Who the processes of the sessions are, for the next broker.
    kept: Arc<KeptSessions>,
    /// None on a kernel without FUSE, or without the privilege.
    filesystems: Option<Connections>,
    /// Whether this broker ends: the manager keeps the listeners for the next one.
    stopping: Arc<AtomicBool>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    sessions: Vec<(Supervised, Session, Share)>,
    metrics: BTreeMap<String, Arc<Metrics>>,
    redirections: BTreeMap<String, Arc<Redirections>>,
    budgets: BTreeMap<String, Arc<Budget>>,
    next: u64,
}

/// A session, for those who look.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Supervised {
    /// Its number.
    pub(super) session: u64,
    /// Name of the tenant.
    pub(super) tenant: String,
    /// Who asked for it.
    pub(super) who: String,
    /// When it began.
    pub(super) since: SystemTime,
}

impl Supervision {
    pub(super) fn new(
        log: Arc<Queue>,
        manager: Arc<Manager>,
        worker: Worker,
        leases: &Arc<Leases>,
        state: &Path,
        filesystems: Option<Connections>,
    ) -> Self {
        Self {
            kept: Arc::new(KeptSessions::new(state)),
            log,
            manager,
            worker: Arc::new(worker),
            leases: Arc::clone(leases),
            filesystems,
            stopping: Arc::default(),
            state: Mutex::default(),
        }
    }

    /// Starts to answer the calls of a listener, which a process handed over.
    pub(super) fn start(
        &self,
        listener: Listener,
        tenant: &Arc<Tenant>,
        process: &Kept,
        who: &str,
    ) -> Result<()> {
        if self.stopping.load(Ordering::Relaxed) {
            bail!("the broker is stopping: try again once it has started");
        }
        let budget = self.budget(tenant);
        if tenant.calls.af_xdp && budget.is_closed() {
            bail!(
                "a process of {} has bound a socket otherwise than granted (socket-taken in the broker's log): it is not supervised until root has ended the holders and restarted the broker",
                tenant.name
            );
        }
        let share = budget.descriptors(descriptors::SESSION);
        let share = share.map_err(|_| no_descriptors(tenant))?;
        let outlets = Outlets {
            tenant: tenant.name.as_str().into(),
            metrics: self.metrics(&tenant.name),
            log: Arc::clone(&self.log) as Arc<dyn Log>,
            budget: Arc::clone(&budget),
        };
        let queues = TenantsQueues {
            leases: Arc::clone(&self.leases),
            tenant: Arc::clone(tenant),
        };
        let world = World {
            queues: Arc::new(queues),
            worker: Arc::clone(&self.worker),
            budget,
            redirections: self.redirections(tenant),
        };
        let handlers = handlers::of(tenant, &world).context("cannot supervise")?;
        let names = handlers::names(&tenant.calls);
        let mut state = self.state();
        state.reap();
        let is_own = |(other, ..): &&(Supervised, _, _)| other.tenant == tenant.name;
        let own = state.sessions.iter().filter(is_own).count();
        room_for_another(state.sessions.len(), own, tenant)?;
        let session = state.next;
        state.next += 1;
        let name = kept_name(session, &tenant.name);
        // Without the file the next broker does not go on with it, and says so.
        let _ = self.kept.write(session, process);
        // Without a manager, or one that does not keep it, the listener ends with this broker.
        let _ = self.manager.store(&name, &[listener.as_fd()]);
        let manager = Arc::clone(&self.manager);
        let stopping = Arc::clone(&self.stopping);
        let kept = Arc::clone(&self.kept);
        let ended = move || {
            if !stopping.load(Ordering::Relaxed) {
                let _ = manager.forget(&name);
                kept.remove(session);
            }
            event("session-end", json!({"session": session}));
        };
        let started = Session::start(listener, handlers, outlets, ended);
        let started = started.context("no thread is left")?;
        event(
            "supervise",
            json!({"session": session, "tenant": tenant.name, "who": who, "handlers": names}),
        );
        let supervised = Supervised {
            session,
            tenant: tenant.name.clone(),
            who: who.to_owned(),
            since: SystemTime::now(),
        };
        state.sessions.push((supervised, started, share));
        Ok(())
    }

    /// Goes on with the listeners that the manager has kept for this broker, if the policy admits their
    /// processes, as they were when they began, as the same tenants. Calls of others get a clean error.
    pub(super) fn resume(&self, policy: &Policy, passed: Vec<Passed>) {
        let kept = self.kept.read();
        // The files of these sessions are written before those are removed.
        if let Some(last) = kept.keys().next_back() {
            self.number_from(last + 1);
        }
        for passed in passed {
            let Some((number, tenant)) = parse_kept_name(&passed.name) else {
                event("unknown-descriptor", json!({"name": passed.name}));
                continue;
            };
            let _ = self.manager.forget(&passed.name);
            self.number_from(number + 1);
            let resume = || -> Result<()> {
                let process = kept.get(&number).and_then(Option::as_ref);
                let process = process.context("the former broker left no word of its process")?;
                let admitted = policy.admit_again(process, tenant);
                let tenant = admitted.map_err(|refusal| anyhow!("{}", refusal.reason()))?;
                let listener = Listener::new(passed.fd)?;
                let tenant = Arc::new(tenant.clone());
                self.start(listener, &tenant, process, "the former broker")
            };
            if let Err(error) = resume() {
                event(
                    "not-resumed",
                    json!({"name": passed.name, "error": format!("{error:#}")}),
                );
            }
        }
        for session in kept.into_keys() {
            self.kept.remove(session);
        }
    }

    /// Numbers new sessions from here on.
    fn number_from(&self, number: u64) {
        let mut state = self.state();
        state.next = state.next.max(number);
    }

    /// The figures of a tenant.
    pub(super) fn metrics(&self, tenant: &str) -> Arc<Metrics> {
        let mut state = self.state();
        Arc::clone(state.metrics.entry(tenant.to_owned()).or_default())
    }

    /// The figures of all tenants.
    pub(super) fn all_metrics(&self) -> BTreeMap<String, Arc<Metrics>> {
        self.state().metrics.clone()
    }

    /// The budget of a tenant, with the limits of its policy.
    fn budget(&self, tenant: &Tenant) -> Arc<Budget> {
        let mut state = self.state();
        let budget = state.budgets.entry(tenant.name.clone()).or_default();
        budget.set_limits(&tenant.limits);
        Arc::clone(budget)
    }

    /// The redirections of a tenant; new ones, that count from 0, once its policy has changed.
    fn redirections(&self, tenant: &Tenant) -> Arc<Redirections> {
        let policy = &tenant.calls.connect;
        let mut state = self.state();
        match state.redirections.get(&tenant.name) {
            Some(known) if known.are_of(policy) => Arc::clone(known),
            _ => {
                let new = Arc::new(Redirections::new(policy));
                let name = tenant.name.clone();
                state.redirections.insert(name, Arc::clone(&new));
                new
            }
        }
    }

    /// The redirections of all tenants that have had a process.
    pub(super) fn all_redirections(&self) -> BTreeMap<String, Arc<Redirections>> {
        self.state().redirections.clone()
    }

    /// The sessions.
    pub(super) fn list(&self) -> Vec<Supervised> {
        let mut state = self.state();
        state.reap();
        state
            .sessions
            .iter()
            .map(|(supervised, ..)| supervised.clone())
            .collect()
    }

    /// Decisions and refusals that were not logged.
    pub(super) fn lost_lines(&self) -> u64 {
        self.log.dropped() + log::unwritten()
    }

    /// Ends all sessions within a time that no caller can make longer: their handlers clean up. Calls that
    /// wait fail with EINTR, and later ones with ENOSYS, unless the manager has kept the listener.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        let sessions = std::mem::take(&mut self.state().sessions);
        for (_, session, _) in &sessions {
            session.stop();
        }
        wait_for(&sessions);
        let is_waiting = |(_, session, _): &&(Supervised, Session, Share)| !session.is_finished();
        let mut silent = BTreeSet::new();
        for (supervised, session, _) in sessions.iter().filter(is_waiting) {
            let callers = session.callers();
            let found = callers.iter().flat_map(|&caller| self.silent(caller));
            silent.extend(found);
            session.interrupt();
            event(
                "calls-interrupted",
                json!({"session": supervised.session, "tenant": supervised.tenant, "callers": callers}),
            );
        }
        for number in silent {
            let ended = self.filesystems.as_ref().map(|all| all.end(number));
            let is_ended = matches!(ended, Some(Ok(())));
            event(
                "silent-filesystem",
                json!({"device": format!("0:{number}"), "ended": is_ended}),
            );
        }
        wait_for(&sessions);
        for (_, session, _) in sessions {
            if !session.is_finished() {
                session.abandon();
            }
        }
    }

    /// The FUSE filesystems for which a caller's call may wait.
    fn silent(&self, caller: u32) -> BTreeSet<u32> {
        let filesystems = self.filesystems.as_ref();
        filesystems.map_or_else(BTreeSet::new, |all| all.silent(caller))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until sessions have ended, for a time.
fn wait_for(sessions: &[(Supervised, Session, Share)]) {
    let end = Instant::now() + STOP_TIMEOUT;
    let is_finished = |(_, session, _): &(Supervised, Session, Share)| session.is_finished();
    while !sessions.iter().all(is_finished) && Instant::now() < end {
        std::thread::sleep(STOP_INTERVAL);
    }
}

/// Whether a tenant that has `own` sessions of `all` gets another.
fn room_for_another(all: usize, own: usize, tenant: &Tenant) -> Result<()> {
    let Tenant { name, limits, .. } = tenant;
    let most = limits.sessions;
    if all >= MOST_SESSIONS {
        bail!("the broker supervises {MOST_SESSIONS} processes already: end one first");
    }
    if own >= most as usize {
        bail!("the broker supervises {most} processes of {name} already: end one first");
    }
    if all >= MOST_SESSIONS - KEPT_FOR_FEW && own >= FEW {
        bail!(
            "the broker supervises {all} processes already, and keeps the last {KEPT_FOR_FEW} for \
             tenants that have fewer than {FEW}; {name} has {own}: end one first"
        );
    }
    Ok(())
}

fn no_descriptors(tenant: &Tenant) -> anyhow::Error {
    anyhow::anyhow!(
        "the tenant {} has all descriptors of the broker that it may have: end processes of it, or raise `descriptors` in its `limits`, and LimitNOFILE= of the broker",
        tenant.name
    )
}

/// Name of a listener in the manager's store.
fn kept_name(session: u64, tenant: &str) -> String {
    format!("session-{session}-{tenant}")
}

fn parse_kept_name(name: &str) -> Option<(u64, &str)> {
    let (session, tenant) = name.strip_prefix("session-")?.split_once('-')?;
    Some((session.parse().ok()?, tenant))
}

impl State {
    fn reap(&mut self) {
        self.sessions
            .retain(|(_, session, _)| !session.is_finished());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_tenants_use_up_all_sessions() {
        let tenant = Tenant::default();
        let has_room = |all, own| room_for_another(all, own, &tenant).is_ok();
        assert!(has_room(0, 0) && has_room(767, 255) && has_room(768, 15) && has_room(1023, 0));
        assert!(!has_room(300, 256), "its own limit");
        assert!(!has_room(768, 16), "kept for others");
        assert!(!has_room(1024, 0), "all are taken");
    }

    #[test]
    fn names_of_kept_listeners_are_read_again() {
        assert_eq!(parse_kept_name(&kept_name(7, "a-b")), Some((7, "a-b")));
        assert_eq!(parse_kept_name("session-x-a"), None);
        assert_eq!(parse_kept_name("queue"), None);
    }
}
