//! The lease table, as the handler of AF_XDP calls sees it.

use super::log::{self, event};
use crate::identity::Identity;
use crate::lease::{Asker, LeaseId, Leases, end_holders};
use crate::policy::Tenant;
use crate::supervise::handlers::af_xdp::{Queues, Taken};
use rustix::io::Errno;
use serde_json::json;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use xsk::Device;

/// Lends queues to a tenant that binds its sockets itself.
pub(super) struct TenantsQueues {
    pub(super) leases: Arc<Leases>,
    pub(super) tenant: Arc<Tenant>,
}

impl Queues for TenantsQueues {
    fn lend(
        &self,
        _tenant: &str,
        device: &str,
        queue: u32,
        socket: BorrowedFd<'_>,
        memory: u64,
    ) -> Result<u64, Errno> {
        let device = Device::lookup(device).map_err(|_| Errno::NODEV)?;
        // The call's own log has its process.
        let asker = Asker { pid: 0, uid: 0 };
        let lent = self
            .leases
            .lend_socket(&self.tenant, &device, queue, socket, memory, asker);
        let lease = lent.map_err(|refusal| {
            log::refusal(
                &self.tenant.name,
                "lease-refused",
                json!({"tenant": self.tenant.name, "reason": refusal.message()}),
            );
            Errno::BUSY
        })?;
        Ok(lease.id.0)
    }

    fn begin(&self, lease: u64, socket: BorrowedFd<'_>) {
        match self.leases.begin(LeaseId(lease), socket) {
            Ok(lease) => event(
                "lease",
                json!({"lease": lease.id, "tenant": lease.tenant, "device": lease.device, "queue": lease.queue}),
            ),
            Err(error) => event(
                "lease-not-kept",
                json!({"lease": lease, "tenant": self.tenant.name, "error": format!("{error:#}")}),
            ),
        }
    }

    fn end(&self, lease: u64) {
        self.leases.end(LeaseId(lease));
    }

    /// A tenant can pass its socket to any process that takes descriptors: those of others are named, not ended.
    fn seize(&self, taken: &Taken<'_>) {
        let inode = rustix::fs::fstat(taken.socket).map_or(0, |stat| stat.st_ino);
        let is_users = |process: &Identity| taken.uid != 0 && process.uid == taken.uid;
        let is_ours = |process: &Identity| is_users(process) || self.tenant.who.holds(process);
        let (ended, spared) = end_holders(inode, is_ours);
        event(
            "socket-taken",
            json!({
                "tenant": self.tenant.name, "device": taken.device, "queue": taken.queue,
                "ended": ended, "not_ended": spared,
                "effect": "a holder of the socket bound it otherwise than granted: all XDP programs of the tenant's process trees are detached, and it gets none until the broker is restarted",
            }),
        );
    }
}
