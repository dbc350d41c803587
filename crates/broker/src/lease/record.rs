//! The broker's record of a lease.

use crate::policy::{FilterRule, Tenant};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::SystemTime;
use xsk::Device;

/// Number of a lease; never used twice by one state directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeaseId(pub u64);

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A queue lent to a tenant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Its number.
    pub id: LeaseId,
    /// Name of the tenant in the policy.
    pub tenant: String,
    /// Name of the device.
    pub device: String,
    /// Its index.
    pub ifindex: u32,
    /// The queue.
    pub queue: u32,
    /// Whether it is the device with all queues, whose XSKMAP the tenant has; `queue` is 0 then.
    #[serde(default)]
    pub whole_device: bool,
    /// Whether the socket receives.
    pub rx: bool,
    /// Whether it sends.
    pub tx: bool,
    /// The mode obtained; empty for a socket that the tenant binds.
    pub mode: String,
    /// Bytes of its UMEM.
    pub memory: u64,
    /// Packets that it receives; all if there are none.
    pub filter: Vec<FilterRule>,
    /// Whether the holders may be killed to free the queue.
    pub kill: bool,
    /// Inode of the socket, which names it in /proc; 0 while it is opened.
    pub inode: u64,
    /// Process that asked for it.
    pub pid: u32,
    /// User of that process.
    pub uid: u32,
    /// When it began.
    pub since: SystemTime,
}

/// A process that asks for a socket.
#[derive(Debug, Clone, Copy)]
pub struct Asker {
    /// Its process id.
    pub pid: u32,
    /// Its user id.
    pub uid: u32,
}

impl Record {
    /// A lease that has no number, queue and socket yet.
    pub(super) fn new(tenant: &Tenant, device: &Device, asker: Asker) -> Self {
        Self {
            id: LeaseId(0),
            tenant: tenant.name.clone(),
            device: device.name.clone(),
            ifindex: device.index,
            queue: 0,
            whole_device: false,
            rx: true,
            tx: true,
            mode: String::new(),
            memory: 0,
            filter: Vec::new(),
            kill: tenant.kill,
            inode: 0,
            pid: asker.pid,
            uid: asker.uid,
            since: SystemTime::now(),
        }
    }
}
