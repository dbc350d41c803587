//! Who uses the devices that are lent as a whole.

use super::record::{LeaseId, Record};
use hostnet::ErrorKind;
use hostnet::genetlink::netdev::queue_has_xsk;
use hostnet::rtnetlink::Rtnetlink;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Who uses each of the devices that are lent as a whole.
#[derive(Debug, Default)]
pub(super) struct Wholes(Mutex<BTreeMap<LeaseId, Users>>);

/// Who uses a device.
#[derive(Debug, Default)]
pub(super) struct Users {
    /// Connections by which the map was given.
    connections: usize,
    /// The processes at their other ends, which may have left.
    askers: Vec<(u32, OwnedFd)>,
    /// Whether the kernel has shown a socket on the device: it would show the others. Until then, and on
    /// kernels that show none (before 6.15), the askers count.
    has_seen_socket: bool,
}

impl Wholes {
    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<LeaseId, Users>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// None while a lease is about to begin.
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, BTreeMap<LeaseId, Users>>> {
        match self.0.try_lock() {
            Ok(wholes) => Some(wholes),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// One more user of a device, by a connection of this process, if any.
    pub(super) fn join(
        &self,
        wholes: &mut BTreeMap<LeaseId, Users>,
        record: Record,
        map: OwnedFd,
        asker: Option<(u32, OwnedFd)>,
    ) -> DeviceLease<'_> {
        let users = wholes.entry(record.id).or_default();
        users.connections += 1;
        users.add(asker);
        // DPDK's socket is bound before it asks.
        users.look(&record);
        DeviceLease {
            record,
            map,
            wholes: self,
        }
    }
}

/// A device and its map, for as long as a connection keeps them.
#[derive(Debug)]
pub struct DeviceLease<'l> {
    /// The lease.
    pub record: Record,
    /// The map.
    pub map: OwnedFd,
    wholes: &'l Wholes,
}

impl Drop for DeviceLease<'_> {
    fn drop(&mut self) {
        if let Some(users) = self.wholes.lock().get_mut(&self.record.id) {
            users.connections = users.connections.saturating_sub(1);
            // CNDP's sockets may have come and gone between two looks of `sweep`.
            users.look(&self.record);
        }
    }
}

impl Users {
    /// A process that has the map.
    pub(super) fn add(&mut self, asker: Option<(u32, OwnedFd)>) {
        self.askers.retain(|(_, process)| is_alive(process));
        let new = asker.filter(|(pid, _)| self.askers.iter().all(|(known, _)| known != pid));
        self.askers.extend(new);
    }

    /// Whether somebody uses the device.
    pub(super) fn remain(&mut self, lease: &Record) -> bool {
        match self.look(lease) {
            None => false,
            Some(true) => true,
            Some(false) => self.connections > 0 || (!self.has_seen_socket && self.has_asker()),
        }
    }

    /// Whether the kernel shows a socket on the device; `None` without the device.
    fn look(&mut self, lease: &Record) -> Option<bool> {
        // By its index: it may have been renamed.
        let link = Rtnetlink::open().and_then(|mut it| it.link_by_index(lease.ifindex));
        let link = match link {
            Ok(link) => link,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(_) => return Some(true),
        };
        let queues = 0..link.queues.max(1);
        let mut sockets = queues.map(|queue| has_socket(link.index, queue));
        let found = sockets.find(|found| *found != Some(false));
        self.has_seen_socket |= found == Some(Some(true));
        Some(found.is_some())
    }

    fn has_asker(&self) -> bool {
        self.askers.iter().any(|(_, process)| is_alive(process))
    }
}

/// Whether the kernel shows a socket on a queue; `None` where it cannot tell, as of a device that is down.
fn has_socket(ifindex: u32, queue: u32) -> Option<bool> {
    match queue_has_xsk(ifindex, queue) {
        Ok(has) => Some(has),
        // Before 6.8; without the device; allocated and not in use.
        Err(error) if error.kind() == ErrorKind::Unsupported => Some(false),
        Err(error) if matches!(error.errno(), Some(libc::ENODEV | libc::EINVAL)) => Some(false),
        Err(_) => None,
    }
}

/// A pidfd can be read when its process has ended.
fn is_alive(process: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())) == Ok(0)
}
