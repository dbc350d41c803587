//! The lease table, as the handler of AF_XDP calls sees it.

use super::log::{self, event};
use crate::lease::{Asker, Leases};
use crate::policy::Tenant;
use crate::supervise::handlers::af_xdp::Queues;
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
    ) -> Result<(), Errno> {
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
        event(
            "lease",
            json!({"lease": lease.id, "tenant": lease.tenant, "device": lease.device, "queue": queue}),
        );
        Ok(())
    }
}
