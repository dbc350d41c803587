//! Checks a tenant's request against its grants.

use super::record::Record;
use crate::policy::{DeviceGrant, Tenant};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use xsk::broker::{Refusal, Request};
use xsk::{Device, ErrorKind};

/// Most chunks of a UMEM: their places have to fit into one message.
const MOST_CHUNKS: u32 = 1 << 19;

/// A request that the policy grants.
#[derive(Debug)]
pub(super) struct Terms<'t> {
    pub(super) tenant: &'t Tenant,
    pub(super) grant: &'t DeviceGrant,
    pub(super) request: &'t Request,
    pub(super) memory: u64,
}

impl<'t> Terms<'t> {
    /// Finds the grant for a request, which is for `device`.
    pub(super) fn of(
        tenant: &'t Tenant,
        request: &'t Request,
        device: &Device,
    ) -> Result<Self, Refusal> {
        let grants = grants(tenant, device)?;
        if grants.is_empty() {
            return Err(denied(format!(
                "tenant {} has no grant for {}",
                tenant.name, request.device
            )));
        }
        let memory = u64::from(request.chunks) * u64::from(request.chunk_size);
        let refusals = grants.iter().map(|grant| obstacle(grant, request, memory));
        let found = grants
            .iter()
            .zip(refusals)
            .find(|(_, obstacle)| obstacle.is_none());
        let Some((grant, _)) = found else {
            let why = grants
                .first()
                .and_then(|grant| obstacle(grant, request, memory));
            return Err(denied(why.unwrap_or_default()));
        };
        if request.chunks > MOST_CHUNKS {
            return Err(Refusal::new(
                ErrorKind::InvalidConfig,
                format!(
                    "a UMEM of {} chunks is too large for one message: ask for at most {MOST_CHUNKS}",
                    request.chunks
                ),
            ));
        }
        Ok(Self {
            tenant,
            grant,
            request,
            memory,
        })
    }

    /// A queue that is granted and free, but for those on which the kernel has a socket.
    pub(super) fn choose<'r>(
        &self,
        device: &Device,
        held: &BTreeSet<u32>,
        taken: impl Fn(u32) -> Option<&'r Record>,
    ) -> Result<u32, Refusal> {
        let queues = device.rx_queues.max(device.tx_queues);
        if let Some(queue) = self.request.queue {
            return match taken(queue) {
                None => Ok(queue),
                Some(lease) => Err(busy(lease)),
            };
        }
        let existing = |range: &RangeInclusive<u32>| {
            *range.start()..(*range.end()).saturating_add(1).min(queues)
        };
        let granted = self.grant.queues.iter().flat_map(existing);
        let mut granted = granted.into_iter();
        let free = granted.find(|&queue| taken(queue).is_none() && !held.contains(&queue));
        free.ok_or_else(|| {
            Refusal::new(
                ErrorKind::QueueBusy,
                format!("all queues of {} that tenant {} is granted are leased: `weir broker status` names the holders", device.name, self.tenant.name),
            )
        })
    }
}

/// The refusal of a queue that another lease has.
pub(super) fn busy(lease: &Record) -> Refusal {
    let Record {
        id,
        tenant,
        device,
        queue,
        pid,
        ..
    } = lease;
    let message = if lease.whole_device {
        format!(
            "{device} is leased to {tenant} as a whole (lease {id}, process {pid}): wait until it has closed its connection and its sockets"
        )
    } else {
        format!(
            "queue {queue} of {device} is leased to {tenant} (lease {id}, process {pid}): wait until it closes the socket, or ask for another queue"
        )
    };
    Refusal::new(ErrorKind::QueueBusy, message)
}

/// A tenant's grants for a device, which may have it by an alternative name. They must have it by one: of one device,
/// a grant by each of two names could be meant to limit the other.
fn grants<'t>(tenant: &'t Tenant, device: &Device) -> Result<Vec<&'t DeviceGrant>, Refusal> {
    let is_for = |grant: &&DeviceGrant| device.is_named(&grant.device);
    let grants: Vec<_> = tenant.devices.iter().filter(is_for).collect();
    match grants.windows(2).find(|two| two[0].device != two[1].device) {
        None => Ok(grants),
        Some(two) => Err(denied(format!(
            "the grants of tenant {} have the device {} as {} and as {}: the policy must have one name of it",
            tenant.name, device.name, two[0].device, two[1].device
        ))),
    }
}

/// The grant of a device whose XSKMAP is given out.
pub(crate) fn plugin_grant<'t>(
    tenant: &'t Tenant,
    device: &Device,
) -> Result<&'t DeviceGrant, Refusal> {
    let mut grants = grants(tenant, device)?.into_iter();
    grants.find(|grant| grant.plugin).ok_or_else(|| {
        denied(format!(
            "tenant {} has no grant for {} with `plugin = true`",
            tenant.name, device.name
        ))
    })
}

/// Refuses a grant of some of the queues: the XSKMAP is a right over all.
pub(super) fn check_all_queues(grant: &DeviceGrant, device: &Device) -> Result<(), Refusal> {
    let mut queues = 0..device.rx_queues.max(device.tx_queues);
    let is_granted = |queue| grant.queues.iter().any(|range| range.contains(&queue));
    match queues.find(|&queue| !is_granted(queue)) {
        None => Ok(()),
        Some(queue) => Err(denied(format!(
            "{}: queue {queue} is not granted, and the device's XSKMAP is a right over all queues: grant all of them, or give the device fewer (`ethtool -L`)",
            device.name
        ))),
    }
}

/// Refuses a tenant with `count` leases of `used` bytes in all one more of `memory` bytes.
pub(super) fn check_limits(
    tenant: &Tenant,
    count: usize,
    used: u64,
    memory: u64,
) -> Result<(), Refusal> {
    let Tenant {
        name,
        leases,
        memory_total,
        ..
    } = tenant;
    if count >= *leases as usize {
        return Err(denied(format!(
            "tenant {name} has all of its {leases} leases: close a socket first, and all descriptors and mappings of its memory"
        )));
    }
    if used.saturating_add(memory) > *memory_total {
        return Err(denied(format!(
            "tenant {name} uses {used} of its {memory_total} bytes: ask for a smaller UMEM, or close a socket first, and all descriptors and mappings of its memory"
        )));
    }
    Ok(())
}

/// Why a grant does not cover a request.
fn obstacle(grant: &DeviceGrant, request: &Request, memory: u64) -> Option<String> {
    let device = &grant.device;
    if request.rx && !grant.rx {
        return Some(format!("{device}: receiving is not granted"));
    }
    if request.tx && !grant.tx {
        return Some(format!(
            "{device}: sending is not granted: ask for a socket that only receives"
        ));
    }
    if let Some(queue) = request.queue
        && !grant.queues.iter().any(|range| range.contains(&queue))
    {
        return Some(format!("{device}: queue {queue} is not granted"));
    }
    if memory > grant.memory {
        return Some(format!(
            "{device}: a UMEM of {memory} bytes is more than the {} granted: ask for fewer chunks",
            grant.memory
        ));
    }
    None
}

fn denied(message: String) -> Refusal {
    Refusal::new(ErrorKind::PermissionDenied, message)
}
