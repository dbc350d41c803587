//! Softirqs and hard interrupts, by the kernel's numbers and names.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result};

/// `NR_SOFTIRQS` of linux/interrupt.h.
pub const SOFTIRQS: usize = 10;
/// The names of softirqs, as in /proc/softirqs.
pub const SOFTIRQ_NAMES: [&str; SOFTIRQS] = [
    "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU",
];
/// The softirq of qdiscs that could not send at once.
pub const NET_TX: usize = 2;
/// The softirq of NAPI polls.
pub const NET_RX: usize = 3;

/// The interrupts with tracepoints of their own on x86 (`irq_vectors`), in the order of
/// `enum vector` in bpf/cost.h.
pub const VECTORS: usize = 5;
/// The interrupt of the CPU's own timer.
pub const LOCAL_TIMER: usize = 0;
/// IPI: run the scheduler.
pub const RESCHEDULE: usize = 1;
/// IPI: call a function, sent to several CPUs.
pub const CALL_FUNCTION: usize = 2;
/// IPI: call a function, sent to one CPU.
pub const CALL_FUNCTION_SINGLE: usize = 3;
/// The interrupt of `irq_work_queue`.
pub const IRQ_WORK: usize = 4;
/// Their names.
pub const VECTOR_NAMES: [&str; VECTORS] = {
    let mut names = [""; VECTORS];
    names[LOCAL_TIMER] = "local timer";
    names[RESCHEDULE] = "reschedule";
    names[CALL_FUNCTION] = "call function";
    names[CALL_FUNCTION_SINGLE] = "call function single";
    names[IRQ_WORK] = "irq work";
    names
};

/// Devices' interrupts by number, with controller, kind and device as in /proc/interrupts.
pub fn irq_names() -> Result<BTreeMap<u64, String>> {
    const INTERRUPTS: &str = "/proc/interrupts";
    let text =
        fs::read_to_string(INTERRUPTS).with_context(|| format!("cannot read {INTERRUPTS}"))?;
    Ok(parse_interrupts(&text))
}

/// Leaves out the kernel's own interrupts, such as `LOC`, which have no number.
fn parse_interrupts(text: &str) -> BTreeMap<u64, String> {
    let mut lines = text.lines();
    // Each CPU that is online has a column of counts.
    let cpus = lines.next().unwrap_or_default().split_whitespace().count();
    let parse = |line: &str| {
        let (number, rest) = line.split_once(':')?;
        let name: Vec<_> = rest.split_whitespace().skip(cpus).collect();
        Some((number.trim().parse().ok()?, name.join(" ")))
    };
    lines.filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERRUPTS: &str = "           CPU0       CPU2
 36:          0    1161347 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0
 41:       4495          0 PCI-MSIX-0000:00:04.0   1-edge      virtio3-rx
LOC:    2945523    3179575   Local timer interrupts
ERR:          0
";

    #[test]
    fn devices_interrupts_have_names() {
        let names = parse_interrupts(INTERRUPTS);
        assert_eq!(names.keys().copied().collect::<Vec<_>>(), [36, 41]);
        assert_eq!(names[&36], "PCI-MSIX-0000:00:02.0 1-edge virtio1-req.0");
    }

    #[test]
    fn the_names_of_softirqs_are_in_the_kernels_order() {
        assert_eq!(SOFTIRQ_NAMES[NET_RX], "NET_RX");
        assert_eq!(SOFTIRQ_NAMES[NET_TX], "NET_TX");
    }
}
