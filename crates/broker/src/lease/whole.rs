//! Whole devices: the tenant has the XSKMAP, and makes its sockets itself.
//!
//! The map is a right over all queues of its device, and cannot be taken back. So the tenant has the
//! device alone, and no other tenant ever meets a map that was given away (see `device`).

use super::record::{Asker, Record};
use super::users::{DeviceLease, Users};
use super::{Leases, terms};
use crate::identity::Identity;
use crate::policy::{FilterRule, Tenant};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::path::PathBuf;
use xsk::broker::Refusal;
use xsk::{Device, ErrorKind};

impl Leases {
    /// Lends a tenant a whole device, or gives it the map of one that it has; without a peer for a pinned
    /// map.
    ///
    /// # Errors
    ///
    /// When it is not granted with all queues, or another tenant has a lease there.
    pub fn lend_device(
        &self,
        tenant: &Tenant,
        name: &str,
        peer: Option<&Identity>,
    ) -> Result<DeviceLease<'_>, Refusal> {
        let device = Device::lookup(name).map_err(|error| Refusal::from(&error))?;
        let grant = terms::plugin_grant(tenant, &device)?;
        terms::check_all_queues(grant, &device)?;
        let asker = peer.map(|peer| Ok((peer.pid, peer.pidfd().try_clone_to_owned()?)));
        let asker: std::io::Result<_> = asker.transpose();
        let asker = asker.map_err(|error| Refusal::new(ErrorKind::Os, error.to_string()))?;
        // One begins at a time; `sweep` does not wait.
        let mut wholes = self.wholes.lock();
        let existing = self.whole(tenant, &device);
        let is_new = existing.is_none();
        let mut record = match existing {
            Some(record) => record,
            None => self.reserve_device(tenant, &device, peer, &grant.filter)?,
        };
        let given = self.devices.give_map(&device, grant, &tenant.name);
        let begun = given.and_then(|(map, mode)| {
            if is_new {
                record.mode = mode;
                self.begin_device(&record)?;
            }
            Ok(map)
        });
        let map = begun.inspect_err(|_| {
            if is_new {
                self.end(record.id);
            }
        })?;
        Ok(self.wholes.join(&mut wholes, record, map, asker))
    }

    /// Lends a tenant a whole device as long as this lasts, and gives its user the file to which the map
    /// is pinned.
    ///
    /// # Errors
    ///
    /// As those of [`lend_device`](Self::lend_device); without a BPF filesystem.
    pub fn lend_pinned(
        &self,
        tenant: &Tenant,
        name: &str,
        uid: u32,
    ) -> anyhow::Result<(DeviceLease<'_>, PathBuf)> {
        let lease = self.lend_device(tenant, name, None);
        let lease = lease.map_err(|refusal| anyhow::anyhow!("{}", refusal.message()))?;
        let path = self.devices.give_pin(lease.record.ifindex, uid)?;
        Ok((lease, path))
    }

    fn whole(&self, tenant: &Tenant, device: &Device) -> Option<Record> {
        let state = self.state();
        let mut leases = state.leases.values();
        let is_it = |lease: &&Record| {
            lease.whole_device && lease.ifindex == device.index && lease.tenant == tenant.name
        };
        leases.find(is_it).cloned()
    }

    fn reserve_device(
        &self,
        tenant: &Tenant,
        device: &Device,
        peer: Option<&Identity>,
        filter: &[FilterRule],
    ) -> Result<Record, Refusal> {
        let asker = Asker {
            pid: peer.map_or(0, |peer| peer.pid),
            uid: peer.map_or(0, |peer| peer.uid),
        };
        let lease = Record {
            whole_device: true,
            filter: filter.to_vec(),
            ..Record::new(tenant, device, asker)
        };
        self.reserve(tenant, lease, |_| Ok(0))
    }

    fn begin_device(&self, record: &Record) -> Result<(), Refusal> {
        let mut state = self.state();
        let begun = state.journal.begin(record);
        begun.map_err(|error| Refusal::new(ErrorKind::Os, format!("{error:#}")))?;
        state.leases.insert(record.id, record.clone());
        Ok(())
    }

    /// Goes on with a whole device of an earlier broker.
    pub(super) fn resume_device(&self, record: &Record) {
        let pid = i32::try_from(record.pid).ok().and_then(Pid::from_raw);
        let process = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let mut users = Users::default();
        users.add(process.map(|process| (record.pid, process)));
        self.wholes.lock().insert(record.id, users);
    }

    /// Ends the leases of whole devices that nobody uses any more.
    pub(super) fn sweep_devices(&self) -> Vec<Record> {
        let Some(mut wholes) = self.wholes.try_lock() else {
            return Vec::new();
        };
        let leases = self.list();
        let mut ended = Vec::new();
        for lease in leases.iter().filter(|lease| lease.whole_device) {
            let has_others = leases
                .iter()
                .any(|other| other.ifindex == lease.ifindex && other.id != lease.id);
            let users = wholes.entry(lease.id).or_default();
            if has_others || users.remain(lease) {
                continue;
            }
            wholes.remove(&lease.id);
            ended.extend(self.end(lease.id));
        }
        ended
    }
}
