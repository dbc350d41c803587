//! PAUSE frames (IEEE 802.3x flow control).

use std::collections::BTreeMap;

use anyhow::Result;

use super::each::each;
use crate::doctor::check::Check;
use crate::doctor::context::device::Device;
use crate::doctor::context::watch::Lists;
use crate::doctor::context::{Context, Statistic};
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::mib::{period, rate};
use crate::doctor::severity::Severity;
use crate::doctor::verdict::Verdict;
use crate::report::shell::quote;

/// Parts of the names of other statistics about PAUSE: times, alarms, settings.
const OTHERS: [&str; 5] = ["duration", "transition", "storm", "time", "xon"];
/// Fewer a second are chance.
const MANY: f64 = 1.0;

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[PAUSE_FRAMES];

const PAUSE_FRAMES: Check = Check {
    id: "pause-frames",
    title: "Ethernet flow control stops a device (PAUSE frames, xoff)",
    severity: Severity::Warning,
    why: "A PAUSE frame stops everything on the link, also packets for other receivers than the slow one; losses and delays then show up far from their cause.",
    source: "IEEE 802.3, Annex 31B; ethtool(8), -a and -S; Documentation/networking/ethtool-netlink.rst, PAUSE_GET",
    more: "Reads the statistics of each card whose names are about PAUSE frames or xoff (ethtool -S) \
           twice, some seconds apart: it is a finding from one a second. Received ones come from the \
           switch or host at the other end, which is congested; sent ones mean that this host takes its \
           packets too slowly.\n\n\
           There is no automatic fix. Sent: the CPU polls the ring too late (ring-sizes, irq-affinity, \
           `weir cost`). Received: the congestion is elsewhere. Where losses are better than stops, \
           `ethtool -A DEV rx off tx off` at both ends.",
    counters: &[],
    run: pause,
};

fn pause(context: &Context) -> Result<Vec<Verdict>> {
    let lists = context.lists()?;
    each(context, |device| Ok(of_device(device, &lists)))
}

fn of_device(device: &Device, lists: &Lists<'_>) -> Option<Verdict> {
    let name = device.name();
    let before = lists.before.statistics.get(name)?;
    let after = lists.after.statistics.get(name)?;
    let before: BTreeMap<_, _> = before.iter().map(|it| (&it.name, it.value)).collect();
    let moved = |it: &Statistic| {
        let before = before.get(&it.name).copied().unwrap_or(it.value);
        (it.name.clone(), it.value.saturating_sub(before))
    };
    let all: Vec<_> = after
        .iter()
        .filter(|it| is_pause(&it.name))
        .map(moved)
        .collect();
    if all.is_empty() {
        return None;
    }
    // A driver may count one frame under several names.
    let most = |direction: &str| {
        let of = all.iter().filter(|(name, _)| name.contains(direction));
        of.map(|(_, by)| *by).max().unwrap_or_default()
    };
    let (received, sent) = (most("rx"), most("tx"));
    let seconds = lists.seconds;
    let shown = all.iter().filter(|(_, by)| *by > 0 || received + sent == 0);
    let evidence: Vec<_> = shown
        .map(|(counter, by)| {
            Evidence::new(format!("ethtool -S {name}, {counter}"), rate(*by, seconds))
        })
        .collect();
    if ((received + sent) as f64) < MANY * seconds {
        return Some(Verdict::fine(name, evidence));
    }
    let message = if sent > received {
        format!(
            "{name} stopped its link partner with {sent} PAUSE frames {}: this host takes packets too slowly.",
            period(sent, seconds)
        )
    } else {
        format!(
            "{name} was stopped with {received} PAUSE frames {}: the switch or the host at the other end is congested.",
            period(received, seconds)
        )
    };
    let fix = format!(
        "find the slow receiver; or do without flow control at both ends: `ethtool -A {0} rx off tx off`, undo with the settings of `ethtool -a {0}`",
        quote(name)
    );
    Some(Verdict::found(name, evidence, message, Fix::manual(fix)))
}

/// Whether a statistic of this name counts PAUSE frames.
fn is_pause(name: &str) -> bool {
    (name.contains("pause") || name.contains("xoff"))
        && !OTHERS.iter().any(|other| name.contains(other))
}

#[cfg(test)]
mod tests {
    use super::is_pause;

    #[test]
    fn drivers_names_are_known() {
        for name in [
            "rx_pause_ctrl_phy",
            "tx_prio3_pause",
            "rx_flow_control_xoff",
            "port.link_xoff_tx",
            "rx_pause_frames",
        ] {
            assert!(is_pause(name), "{name}");
        }
        for name in [
            "rx_prio0_pause_duration",
            "tx_pause_storm_warning_events",
            "rx_flow_control_xon",
            "rx_packets",
        ] {
            assert!(!is_pause(name), "{name}");
        }
    }
}
