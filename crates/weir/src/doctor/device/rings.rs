//! The receive ring.

use anyhow::{Context as _, Result};

use super::each::each;
use crate::doctor::check::Check;
use crate::doctor::context::Context;
use crate::doctor::context::device::Device;
use crate::doctor::context::moment::Moment;
use crate::doctor::context::watch::Lists;
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::mib::{period, rate};
use crate::doctor::severity::Severity;
use crate::doctor::step::Read;
use crate::doctor::verdict::Verdict;

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[RING_SIZES];

const RING_SIZES: Check = Check {
    id: "ring-sizes",
    title: "the RX ring of a card overflows (rx_missed_errors, rx_no_buffer)",
    severity: Severity::Warning,
    why: "A card drops packets while its ring has no free descriptor: a larger ring covers a longer delay of the CPU.",
    source: "ethtool(8), -g; rx_missed_errors in Documentation/networking/statistics.rst",
    more: "Reads the current and maximum ring size (ethtool -g), and the packets lost for want of \
           descriptors (rx_missed_errors, rx_fifo_errors; of ethtool -S the driver's own, such as \
           rx_no_buffer_count and rx_out_of_buffer) twice, some seconds apart. A small ring without \
           loss is no finding: it keeps packets in the CPU's cache.\n\n\
           The fix is the largest ring; with many drivers it takes the link down for a moment. If the \
           ring is at its maximum, the CPU is too slow: see irq-affinity, softnet-squeezed and `weir cost`.",
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
    let lists = context.lists()?;
    let counted = lost(context, name)?;
    // Some drivers count them in statistics of their own only, some in both.
    let lost = counted.max(lost_by_driver(name, &lists));
    let evidence = vec![
        Evidence::new(
            format!("ethtool -g {name}"),
            format!("RX {} of at most {}", ring.used, ring.most),
        ),
        Evidence::new(
            format!(
                "/sys/class/net/{name}/statistics/rx_missed_errors, rx_fifo_errors; ethtool -S {name}"
            ),
            rate(lost, lists.seconds),
        ),
    ];
    if lost == 0 {
        return Ok(Some(Verdict::fine(name, evidence)));
    }
    let period = period(lost, lists.seconds);
    if ring.used >= ring.most {
        let message = format!(
            "{name} lost {lost} packets {period} for want of descriptors, and its ring is as large as possible."
        );
        let fix = "give the ring a faster CPU: spread the queues (irq-affinity), or reduce the work per packet (`weir cost`)";
        return Ok(Some(Verdict::found(
            name,
            evidence,
            message,
            Fix::manual(fix),
        )));
    }
    let message = format!(
        "{name} lost {lost} packets {period} for want of descriptors: its ring has {} of {} possible.",
        ring.used, ring.most
    );
    let set = |size: u32| format!("ethtool -G {name} rx {size}");
    let read = Read::of_namespace(&format!("ethtool -g {name}"), "");
    let fix = Fix::command(context, &set(ring.most), &set(ring.used), read);
    Ok(Some(Verdict::found(name, evidence, message, fix)))
}

/// Names of drivers' statistics for packets that found no descriptor: e1000, igb, ixgbe; i40e, ice; mlx5.
const NO_DESCRIPTOR: [&str; 5] = [
    "rx_no_buffer_count",
    "rx_no_dma_resources",
    "port.rx_discards",
    "rx_discards.nic",
    "rx_out_of_buffer",
];

/// The same by the driver's own statistics.
fn lost_by_driver(device: &str, lists: &Lists<'_>) -> u64 {
    let value = |moment: &Moment, name: &str| {
        let mut of_device = moment.statistics.get(device)?.iter();
        of_device.find(|it| it.name == name).map(|it| it.value)
    };
    let moved = |name: &&str| {
        let both = value(lists.before, name).zip(value(lists.after, name));
        both.map(|(before, after)| after.saturating_sub(before))
    };
    NO_DESCRIPTOR
        .iter()
        .filter_map(moved)
        .max()
        .unwrap_or_default()
}

/// The packets that `device` lost for want of descriptors, as the kernel counts them.
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
