//! Tenants compared with each other.

use super::super::diagnostic::Diagnostics;
use super::super::{DeviceGrant, Who};
use super::tenant::Placed;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Reports names that are there twice, queues that are granted twice, and tenants that no process gets.
pub(super) fn report(tenants: &[Placed], out: &mut Diagnostics) {
    names(tenants, out);
    queues(tenants, out);
    whole_devices(tenants, out);
    // A condition with a fault would seem to be none.
    if out.is_valid() {
        shadows(tenants, out);
    }
}

fn names(tenants: &[Placed], out: &mut Diagnostics) {
    let mut seen = HashSet::new();
    for Placed { tenant, at, .. } in tenants {
        let name = &tenant.name;
        // An empty one has been reported.
        if !name.is_empty() && !seen.insert(name) {
            let message =
                format!("a tenant before this one is named \"{name}\": choose another name");
            out.error(at.clone(), message);
        }
    }
}

/// The first tenant whose conditions hold is taken.
fn shadows(tenants: &[Placed], out: &mut Diagnostics) {
    let mut everyone: Option<&str> = None;
    let mut seen: HashMap<&Who, &str> = HashMap::new();
    for Placed { tenant, at, .. } in tenants {
        if let Some(first) = everyone.or_else(|| seen.get(&tenant.who).copied()) {
            let message = format!(
                "every process that this tenant is for is one of \"{first}\" first: it must ask by name, `weir run --tenant {}`",
                tenant.name
            );
            out.note(at.clone(), message);
        }
        seen.entry(&tenant.who).or_insert(&tenant.name);
        if tenant.who == Who::default() {
            everyone.get_or_insert(&tenant.name);
        }
    }
}

/// A range of queues granted, and where.
struct Granted<'t> {
    queues: (u32, u32),
    name: &'t str,
    at: &'t Range<usize>,
}

fn queues(tenants: &[Placed], out: &mut Diagnostics) {
    let mut devices: HashMap<&str, Vec<Granted<'_>>> = HashMap::new();
    for placed in tenants {
        let mut own: HashMap<&str, Vec<Granted<'_>>> = HashMap::new();
        for (DeviceGrant { device, queues, .. }, at) in
            placed.tenant.devices.iter().zip(&placed.devices)
        {
            let granted = queues.iter().map(|range| Granted {
                queues: (*range.start(), *range.end()),
                name: &placed.tenant.name,
                at,
            });
            own.entry(device).or_default().extend(granted);
        }
        for (device, mut granted) in own {
            overlaps(&mut granted, |queue, _, later| {
                let message = format!(
                    "queue {queue} of {device} is granted to this tenant twice, and only the first would count: name it in one place"
                );
                out.error(later.at.clone(), message);
            });
            devices.entry(device).or_default().extend(granted);
        }
    }
    for (device, mut granted) in devices {
        overlaps(&mut granted, |queue, first, later| {
            let message = format!(
                "queue {queue} of {device} is granted to \"{}\" too: whoever asks first holds it",
                first.name
            );
            out.note(later.at.clone(), message);
        });
    }
}

/// A device whose XSKMAP one tenant gets is of no use to another at the same time.
fn whole_devices(tenants: &[Placed], out: &mut Diagnostics) {
    let grants = || {
        tenants.iter().flat_map(|placed| {
            let grants = placed.tenant.devices.iter().zip(&placed.devices);
            grants.map(|(grant, at)| (placed.tenant.name.as_str(), grant, at))
        })
    };
    let whole: HashMap<_, _> = grants()
        .filter(|(_, grant, _)| grant.plugin)
        .map(|(name, grant, _)| (grant.device.as_str(), name))
        .collect();
    for (name, grant, at) in grants() {
        if let Some(&owner) = whole.get(grant.device.as_str())
            && owner != name
        {
            let message = format!(
                "\"{owner}\" gets {} as a whole, by `plugin = true`: one of the two waits until the other has left it",
                grant.device
            );
            out.note(at.clone(), message);
        }
    }
}

/// Compares each range with the one before it that reaches farthest, and reports a queue in both.
fn overlaps<'t>(
    granted: &mut [Granted<'t>],
    mut tell: impl FnMut(u32, &Granted<'t>, &Granted<'t>),
) {
    granted.sort_by_key(|it| it.queues);
    let mut farthest: Option<&Granted<'_>> = None;
    for next in &*granted {
        if let Some(before) = farthest
            && next.queues.0 <= before.queues.1
        {
            let in_order = before.at.start <= next.at.start;
            let (first, later) = if in_order {
                (before, next)
            } else {
                (next, before)
            };
            tell(next.queues.0, first, later);
        }
        if farthest.is_none_or(|before| before.queues.1 < next.queues.1) {
            farthest = Some(next);
        }
    }
}
