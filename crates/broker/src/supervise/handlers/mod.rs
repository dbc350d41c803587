//! The handlers, one for each kind of call.

pub mod af_xdp;
pub mod bpf_cgroup;
pub mod connect;
pub mod filters;
pub mod memory_lock;
pub mod mknod;
pub mod mount;
pub mod scheduler;
pub mod setxattr;
pub mod sysinfo;

use super::Handler;
use super::mounts::Made;
use super::rule::Rule;
use crate::budget::Budget;
use crate::confine::worker::Worker;
use crate::policy::{Calls, Tenant};
use rustix::io::Errno;
use std::sync::Arc;

/// The calls of each handler, by its name, and when they are notified. A call of several handlers is
/// asked of the first one here first.
pub const RULES: &[(&str, &[Rule])] = &[
    (filters::NAME, filters::RULES),
    (mknod::NAME, mknod::RULES),
    (setxattr::NAME, setxattr::RULES),
    (sysinfo::NAME, sysinfo::RULES),
    (scheduler::NAME, scheduler::RULES),
    (connect::NAME, connect::RULES),
    (mount::NAME, mount::RULES),
    (bpf_cgroup::NAME, bpf_cgroup::RULES),
    (af_xdp::NAME, af_xdp::RULES),
    (memory_lock::NAME, memory_lock::RULES),
];

/// The rules of these handlers.
pub fn rules<'a>(names: &'a [&'a str]) -> impl Iterator<Item = &'static Rule> + 'a {
    let of = RULES.iter().filter(|(name, _)| names.contains(name));
    of.flat_map(|(_, rules)| rules.iter())
}

/// Names of the handlers of a tenant's grants, and of the one that watches for filters that hide calls from
/// them.
pub fn names(calls: &Calls) -> Vec<&'static str> {
    let granted = |name: &str| match name {
        mknod::NAME => !calls.mknod.is_empty(),
        setxattr::NAME => calls.setxattr,
        sysinfo::NAME => calls.sysinfo,
        scheduler::NAME => calls.sched_setscheduler.is_some(),
        connect::NAME => !calls.connect.is_empty(),
        mount::NAME => calls.mount.is_some(),
        bpf_cgroup::NAME => calls.bpf_cgroup_device,
        af_xdp::NAME | memory_lock::NAME => calls.af_xdp,
        _ => false,
    };
    let all = RULES.iter().map(|(name, _)| *name);
    let mut names: Vec<_> = all.filter(|name| granted(name)).collect();
    if !names.is_empty() {
        names.push(filters::NAME);
    }
    names
}

/// State that handlers share with the rest of the broker.
pub struct World {
    /// Queues that are lent.
    pub queues: Arc<dyn af_xdp::Queues>,
    /// Loads programs that are not the broker's.
    pub worker: Arc<Worker>,
    /// Of all the tenant's process trees.
    pub budget: Arc<Budget>,
    /// Redirections of the tenant, whose turns and counters all its process trees share.
    pub redirections: Arc<connect::Redirections>,
}

/// The handlers of a tenant's grants, for one supervised process tree.
///
/// # Errors
///
/// When /proc is not mounted, or no descriptors are left.
pub fn of(tenant: &Tenant, world: &World) -> Result<Vec<Box<dyn Handler>>, Errno> {
    let calls = &tenant.calls;
    let mut handlers = of_calls(calls, &world.redirections);
    if calls.bpf_cgroup_device {
        let worker = Arc::clone(&world.worker);
        let budget = Arc::clone(&world.budget);
        let handler = bpf_cgroup::BpfCgroup::new(&tenant.name, worker, budget);
        handlers.push(Box::new(handler));
    }
    if calls.af_xdp {
        let queues = Arc::clone(&world.queues);
        let worker = Arc::clone(&world.worker);
        let budget = Arc::clone(&world.budget);
        let devices = &tenant.devices;
        let handler = af_xdp::AfXdp::new(&tenant.name, devices, &[], queues, worker, budget)?;
        handlers.push(Box::new(handler));
        handlers.push(Box::new(memory_lock::MemoryLock::new(tenant.memory_total)));
    }
    Ok(handlers)
}

/// Those that need nothing but the grants and the redirections of them.
pub fn of_calls(calls: &Calls, redirections: &Arc<connect::Redirections>) -> Vec<Box<dyn Handler>> {
    let mut handlers: Vec<Box<dyn Handler>> = Vec::new();
    let made = Arc::new(Made::default());
    if !calls.mknod.is_empty() {
        handlers.push(Box::new(mknod::Mknod::new(&calls.mknod, Arc::clone(&made))));
    }
    if calls.setxattr {
        handlers.push(Box::new(setxattr::Setxattr));
    }
    if calls.sysinfo {
        handlers.push(Box::new(sysinfo::Sysinfo::new()));
    }
    if let Some(highest) = calls.sched_setscheduler {
        handlers.push(Box::new(scheduler::Scheduler::new(highest)));
    }
    if !calls.connect.is_empty() {
        handlers.push(Box::new(connect::Connect::new(Arc::clone(redirections))));
    }
    if let Some(mounts) = &calls.mount {
        handlers.push(Box::new(mount::Mount::new(mounts, made)));
    }
    handlers.push(Box::new(filters::Filters));
    handlers
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// A filter knows a call by its number, which each architecture has its own of, and a runtime by its name.
    #[test]
    fn each_call_has_one_name_and_each_name_one_call() {
        let rules = || RULES.iter().flat_map(|(_, rules)| rules.iter());
        let names: BTreeMap<i64, &str> = rules().map(|rule| (rule.call, rule.name)).collect();
        let calls: BTreeMap<&str, i64> = rules().map(|rule| (rule.name, rule.call)).collect();
        for rule in rules() {
            assert_eq!(
                (names[&rule.call], calls[rule.name]),
                (rule.name, rule.call)
            );
        }
    }
}
