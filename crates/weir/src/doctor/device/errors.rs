//! Errors and drops of a device.

use anyhow::Result;

use super::each::each;
use super::traffic;
use super::traffic::{COLUMNS, PROC_NET_DEV, RX_PACKETS, TX_DROP, TX_PACKETS, Traffic, matters};
use crate::doctor::check::Check;
use crate::doctor::context::Context;
use crate::doctor::context::device::Device;
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::severity::Severity;
use crate::doctor::verdict::Verdict;

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[DEVICE_ERRORS];

const DEVICE_ERRORS: Check = Check {
    id: "device-errors",
    title: "a device drops packets or reports errors",
    severity: Severity::Warning,
    why: "Each lost packet is retransmitted or missing; the counter shows which side is too slow.",
    source: "Documentation/networking/statistics.rst; proc_pid_net(5), /proc/net/dev",
    more: "Reads the errors and drops of each device in /proc/net/dev twice, some seconds apart. It is \
           a finding from more than 10 of one kind a second and 1 in 1000 packets: the kernel also counts \
           packets of unknown protocols as dropped, and every network has a few.\n\n\
           There is no single fix. rx fifo and missed: the CPU polls the ring too late (ring-sizes, \
           irq-affinity, softnet-squeezed, weir cost). rx drop: unknown protocol, or no memory. tx \
           drop: the receiver behind a veth is too slow, or its queue too short; of a tap see tap-queue. errs and \
           frame: the cable or the card.",
    counters: &[PROC_NET_DEV],
    run: |context| each(context, |device| errors(context, device)),
};

/// The columns of losses, each with the column of packets to compare with.
const LOSSES: [(usize, usize); 7] = [
    (2, RX_PACKETS),
    (3, RX_PACKETS),
    (4, RX_PACKETS),
    (5, RX_PACKETS),
    (10, TX_PACKETS),
    (11, TX_PACKETS),
    (12, TX_PACKETS),
];
/// The columns with losses that matter.
fn losses(traffic: &Traffic, is_tap: bool) -> impl Iterator<Item = (&'static str, u64)> {
    // The drops of a tap are the finding of another check, tap-queue.
    let of_device = LOSSES
        .iter()
        .filter(move |(column, _)| !is_tap || *column != TX_DROP);
    of_device.filter_map(|&(column, of)| {
        let (lost, packets) = (traffic.counted[column], traffic.counted[of]);
        matters(lost, packets, traffic.seconds).then_some((COLUMNS[column], lost))
    })
}

fn errors(context: &Context, device: &Device) -> Result<Option<Verdict>> {
    let name = device.name();
    let traffic = traffic::of(context, name)?;
    let losses: Vec<_> = losses(&traffic, device.kind() == Some("tun")).collect();
    let period = format!("in {:.1} s", traffic.seconds);
    let shown = |(column, count): &(&str, u64)| {
        Evidence::new(
            format!("{PROC_NET_DEV}, {column} of {name}"),
            format!("{count} more {period}"),
        )
    };
    let packets = [RX_PACKETS, TX_PACKETS].map(|column| (COLUMNS[column], traffic.counted[column]));
    let evidence = losses.iter().chain(&packets).map(shown).collect();
    if losses.is_empty() {
        return Ok(Some(Verdict::fine(name, evidence)));
    }
    let list: Vec<_> = losses
        .iter()
        .map(|(column, lost)| format!("{column} {lost}"))
        .collect();
    Ok(Some(Verdict::found(
        name,
        evidence,
        format!("{name} lost packets {period}: {}.", list.join(", ")),
        Fix::manual("depends on the counter: see `weir doctor --explain device-errors`"),
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_losses_do_not_matter() {
        let losses = |packets, lost| {
            let mut traffic = Traffic {
                counted: [0; COLUMNS.len()],
                seconds: 1.0,
            };
            traffic.counted[RX_PACKETS] = packets;
            traffic.counted[3] = lost;
            losses(&traffic, false).collect::<Vec<_>>()
        };
        assert_eq!(losses(0, 10), []);
        assert_eq!(losses(0, 11), [("rx drop", 11)]);
        assert_eq!(losses(100_000, 100), []);
        assert_eq!(losses(100_000, 101), [("rx drop", 101)]);
    }
}
