//! The receive ring.

use anyhow::{Context as _, Result};

use super::each::each;
use crate::doctor::check::Check;
use crate::doctor::context::Context;
use crate::doctor::context::device::Device;
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::severity::Severity;
use crate::doctor::step::Read;
use crate::doctor::verdict::Verdict;

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[RING_SIZES];

const RING_SIZES: Check = Check {
    id: "ring-sizes",
    title: "the RX ring overflows and is below its maximum",
    severity: Severity::Warning,
    why: "A card drops packets while its ring has no free descriptor: a larger ring covers a longer delay of the CPU.",
    source: "ethtool(8), -g; rx_missed_errors in Documentation/networking/statistics.rst",
    more: "Reads the current and maximum ring size (ethtool -g), and the packets lost for want of \
           descriptors (rx_missed_errors, rx_fifo_errors) twice, a second apart. A small ring without \
           loss is no finding: it keeps packets in the CPU's cache.\n\n\
           With many drivers the fix takes the link down for a moment.",
    counters: &[
        "/sys/class/net/*/statistics/rx_missed_errors",
        "/sys/class/net/*/statistics/rx_fifo_errors",
    ],
    run: |context| each(context, |device| ring(context, device)),
};

fn ring(context: &Context, device: &Device) -> Result<Option<Verdict>> {
    let Some(ring) = device.rx_ring()? else {
        return Ok(None);
    };
    let name = device.name();
    let lost = lost(context, name)?;
    let evidence = vec![
        Evidence::new(
            format!("ethtool -g {name}"),
            format!("RX {} of at most {}", ring.used, ring.most),
        ),
        Evidence::new(
            format!("/sys/class/net/{name}/statistics/rx_missed_errors, rx_fifo_errors"),
            format!("{lost} more in one second"),
        ),
    ];
    if lost == 0 || ring.used >= ring.most {
        return Ok(Some(Verdict::fine(name, evidence)));
    }
    let message = format!(
        "{name} lost {lost} packets for want of descriptors: its ring has {} of {} possible.",
        ring.used, ring.most
    );
    let set = |size: u32| format!("ethtool -G {name} rx {size}");
    let read = Read::of_namespace(&format!("ethtool -g {name}"), "");
    let fix = Fix::command(context, &set(ring.most), &set(ring.used), read);
    Ok(Some(Verdict::found(name, evidence, message, fix)))
}

/// The packets that `device` lost for want of descriptors.
fn lost(context: &Context, device: &str) -> Result<u64> {
    let mut lost = 0;
    for counter in ["rx_missed_errors", "rx_fifo_errors"] {
        let path = format!("/sys/class/net/{device}/statistics/{counter}");
        let twice = context.twice(&path)?;
        let number = |text: &str| {
            text.parse::<u64>()
                .with_context(|| format!("{path} is not a number"))
        };
        lost += number(twice.after)?.saturating_sub(number(twice.before)?);
    }
    Ok(lost)
}
