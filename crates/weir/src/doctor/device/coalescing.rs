//! Interrupt coalescing.

use anyhow::Result;
use hostnet::ethtool::RxCoalesce;

use super::each::each;
use super::traffic;
use super::traffic::PROC_NET_DEV;
use crate::doctor::check::Check;
use crate::doctor::context::Context;
use crate::doctor::context::device::Device;
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::severity::Severity;
use crate::doctor::step::Read;
use crate::doctor::verdict::Verdict;

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[COALESCING];

const COALESCING: Check = Check {
    id: "coalescing",
    title: "interrupt coalescing is too long, or off under load",
    severity: Severity::Advice,
    why: "An interrupt per packet costs CPU time, and a delay of milliseconds adds to every round trip.",
    source: "ethtool(8), -c; include/uapi/linux/ethtool.h, struct ethtool_coalesce",
    more: "Reads rx-usecs, rx-frames and adaptive-rx (ethtool -c), and the packets received in one \
           second. It is a finding if the delay is 1000 us or more, or if there is none at more than \
           100000 packets a second; not with adaptive-rx. Virtual devices and virtio are not examined: \
           they have no interrupts, or suppress them while packets are polled.\n\n\
           Measure the effect with `weir cost` (hard interrupts) and `weir bench rtt`.",
    counters: &[PROC_NET_DEV],
    run: |context| each(context, |device| coalescing(context, device)),
};

/// The delay that is too long, in microseconds.
const LATE_USECS: u32 = 1000;
/// The rate at which an interrupt per packet is too many, in packets a second.
const MANY_PPS: f64 = 100_000.0;

fn coalescing(context: &Context, device: &Device) -> Result<Option<Verdict>> {
    let is_virtio = context.driver(device).as_deref() == Some("virtio_net");
    if device.kind().is_some() || is_virtio {
        return Ok(None);
    }
    let Some(now) = device.rx_coalesce()? else {
        return Ok(None);
    };
    let name = device.name();
    let pps = traffic::of(context, name)?.rx_pps();
    let adaptive = if now.adaptive { "on" } else { "off" };
    let evidence = vec![
        Evidence::new(
            format!("ethtool -c {name}"),
            format!(
                "rx-usecs {}, rx-frames {}, adaptive-rx {adaptive}",
                now.usecs, now.frames
            ),
        ),
        Evidence::new(PROC_NET_DEV, format!("{pps:.0} packets received a second")),
    ];
    let Some((message, usecs)) = wrong(now, pps) else {
        return Ok(Some(Verdict::fine(name, evidence)));
    };
    let set = |usecs: u32| format!("ethtool -C {name} rx-usecs {usecs}");
    let read = Read::of_namespace(&format!("ethtool -c {name}"), "rx-usecs:");
    let fix = Fix::command(context, &set(usecs), &set(now.usecs), read);
    let message = format!("{name} {message}.");
    Ok(Some(Verdict::found(name, evidence, message, fix)))
}

/// A wrong setting's effect, and a better delay.
fn wrong(now: RxCoalesce, pps: f64) -> Option<(&'static str, u32)> {
    match now {
        RxCoalesce { adaptive: true, .. } => None,
        RxCoalesce { usecs, .. } if usecs >= LATE_USECS => {
            Some(("delays interrupts by a millisecond or more", 50))
        }
        RxCoalesce {
            usecs: 0,
            frames: 0 | 1,
            ..
        } if pps > MANY_PPS => Some(("may interrupt for each packet at a high rate", 20)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_wrong_if_long_or_if_missing_under_load() {
        let wrong = |usecs, frames, adaptive, pps| {
            let now = RxCoalesce {
                usecs,
                frames,
                adaptive,
            };
            wrong(now, pps).is_some()
        };
        assert!(wrong(1000, 0, false, 0.0));
        assert!(!wrong(1000, 0, true, 0.0));
        assert!(!wrong(50, 0, false, 1e6));
        assert!(!wrong(0, 1, false, 1e3));
        assert!(wrong(0, 1, false, 1e6));
        assert!(!wrong(0, 64, false, 1e6));
    }
}
