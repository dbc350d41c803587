//! The checks of each network device.
//!
//! They look at the devices of the network namespace that the doctor runs in: those that were
//! asked for with `--dev`, or all but the loopback. XDP is *wanted* on a device that was asked
//! for, or that has a program; what matters to XDP alone is looked at there only.

mod command;
mod cpus;
mod irq;
mod qdisc;
mod storm;

use anyhow::Result;

use super::{Check, Context, Evidence, Verdict};
use crate::lab::route::{Link, Route};

/// The checks of each network device.
pub const CHECKS: &[Check] = &[storm::RPS_LOCK_QDISC];

/// Whether a device is to be looked at.
fn is_selected(context: &Context, device: &Link) -> bool {
    match context.devices() {
        [] => !device.loopback,
        names => names.contains(&device.name),
    }
}

/// What `look` says of each device that is to be looked at; none if it has nothing to say.
///
/// What cannot be looked at, such as a device that has gone meanwhile, does not keep the others
/// from it.
fn each(
    context: &Context,
    look: impl Fn(&Link) -> Result<Option<Verdict>>,
) -> Result<Vec<Verdict>> {
    let devices = Route::open()?.links()?;
    let devices = devices.iter().filter(|device| is_selected(context, device));
    Ok(devices
        .filter_map(|device| {
            look(device).unwrap_or_else(|error| Some(unchecked(device, format!("{error:#}"))))
        })
        .collect())
}

fn fine(device: &Link, evidence: Vec<Evidence>) -> Verdict {
    Verdict::Fine {
        subject: device.name.clone(),
        evidence,
    }
}

fn unchecked(device: &Link, reason: String) -> Verdict {
    Verdict::Unchecked {
        subject: device.name.clone(),
        reason,
    }
}
