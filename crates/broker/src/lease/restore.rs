//! The leases of an earlier broker, which ended or was killed while its tenants went on.

use super::Leases;
use super::holders;
use super::record::{LeaseId, Record};
use anyhow::Result;
use hostnet::genetlink::netdev::queue_has_xsk;
use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use xsk::Device;

impl Leases {
    /// Takes over the leases whose sockets still are open, and their programs.
    pub(super) fn restore(&self, records: BTreeMap<LeaseId, Record>) -> Result<()> {
        let holders = holders::of(records.values().map(|lease| lease.inode));
        for (id, record) in records {
            self.state().leases.insert(id, record.clone());
            if record.whole_device {
                self.resume_device(&record);
                continue;
            }
            let mut sockets = holders.get(&record.inode).into_iter().flatten();
            let socket = sockets.find_map(|holder| holder.socket(record.inode).ok());
            match socket {
                Some(socket) => drop(self.watch(id, socket.as_fd())?),
                // In a message on its way, or a mapping alone: the device shows the end.
                None if is_in_use(&record) => {}
                None => drop(self.end(id)),
            }
        }
        self.restore_programs();
        Ok(())
    }

    fn restore_programs(&self) {
        let leases = self.list();
        let mut devices: Vec<String> = leases.iter().map(|lease| lease.device.clone()).collect();
        devices.dedup();
        for name in &devices {
            let Ok(device) = Device::lookup(name) else {
                continue;
            };
            let mine = || leases.iter().filter(|lease| lease.ifindex == device.index);
            let whole = mine().find(|lease| lease.whole_device);
            let filters = mine().flat_map(|lease| {
                let queues = if lease.whole_device {
                    0..device.rx_queues
                } else {
                    lease.queue..lease.queue.saturating_add(1)
                };
                queues.map(|queue| (queue, lease.filter.clone()))
            });
            let given_to = whole.map(|lease| lease.tenant.clone());
            let restored = self.devices.restore(&device, filters, given_to);
            // Without the program its tenants receive nothing, which `status` shows by the device.
            // Those of a whole device ask again, for a new map.
            if let Some(whole) = whole.filter(|_| !matches!(restored, Ok(true))) {
                self.end(whole.id);
            }
        }
        self.devices.unpin_others(&devices);
    }

    /// Ends leases of an earlier broker whose sockets were nowhere to be found, once the device has
    /// no socket on the queue; with `all`, others too.
    pub(super) fn sweep_unwatched(&self, all: bool) -> Vec<Record> {
        let watched = self.closes.inodes();
        let leases = self.list();
        let unwatched = leases
            .into_iter()
            .filter(|lease| lease.inode != 0 && (all || !watched.contains(&lease.inode)));
        let ended = unwatched.filter(|lease| !is_in_use(lease));
        let end = |lease: Record| {
            self.closes.forget(lease.inode);
            self.end(lease.id)
        };
        ended.filter_map(end).collect()
    }
}

/// Whether the kernel shows a socket on the queue; true where it cannot say.
fn is_in_use(lease: &Record) -> bool {
    match queue_has_xsk(lease.ifindex, lease.queue) {
        Ok(has) => has,
        Err(error) => error.errno() != Some(libc::ENODEV),
    }
}
