//! The CPUs of device interrupts.

use anyhow::Result;
use hostnet::cpulist::CpuList;

use crate::doctor::check::Check;
use crate::doctor::context::Context;
use crate::doctor::fix::Fix;
use crate::doctor::irq;
use crate::doctor::irq::Irq;
use crate::doctor::severity::Severity;
use crate::doctor::step::Step;
use crate::doctor::verdict::Verdict;

const INTERRUPTS: &str = "/proc/interrupts";
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[IRQ_AFFINITY];

const IRQ_AFFINITY: Check = Check {
    id: "irq-affinity",
    title: "the interrupts of all queues go to one CPU",
    severity: Severity::Warning,
    why: "RSS spreads packets over queues, but one CPU handles them all if it has the interrupts of every queue.",
    source: "Documentation/networking/scaling.rst, RSS IRQ Configuration; Documentation/core-api/irq/irq-affinity.rst",
    more: "Reads, for each device with several receive queues, the interrupts that have occurred \
           (/proc/interrupts) and their CPUs (/proc/irq/N/effective_affinity_list).\n\n\
           The fix assigns the CPUs in turn. irqbalance moves the interrupts again: ban them there, \
           or stop it. Measure the effect with `weir cost`.",
    counters: &[],
    run: irq_affinity,
};

fn irq_affinity(context: &Context) -> Result<Vec<Verdict>> {
    let cpus: CpuList = context.read(ONLINE)?.parse()?;
    let cpus = cpus.as_slice();
    if cpus.len() < 2 {
        return Ok(Vec::new());
    }
    let interrupts = context.read(INTERRUPTS)?;
    let mut verdicts = Vec::new();
    for device in context.class_net()? {
        let requested = context.requested();
        if requested.is_empty() || requested.contains(&device) {
            verdicts.extend(of_device(context, &device, &interrupts, cpus)?);
        }
    }
    Ok(verdicts)
}

fn of_device(
    context: &Context,
    device: &str,
    interrupts: &str,
    cpus: &[usize],
) -> Result<Option<Verdict>> {
    let mut irqs = irq::of(context, device)?;
    irqs.retain(|irq| has_occurred(interrupts, irq.number));
    let queues = context.list(&format!("/sys/class/net/{device}/queues"))?;
    let queues = queues.iter().filter(|queue| queue.starts_with("rx-"));
    if queues.count() < 2 || irqs.len() < 2 {
        return Ok(None);
    }
    let evidence = irqs.iter().map(Irq::evidence).collect();
    let one_cpu = |irq: &Irq| irq.cpus.as_slice().len() == 1 && irq.cpus == irqs[0].cpus;
    if !irqs.iter().all(one_cpu) {
        return Ok(Some(Verdict::fine(device, evidence)));
    }
    let assigned = irqs.iter().zip(cpus.iter().cycle());
    let steps = assigned
        .filter(|(irq, cpu)| irq.allowed != cpu.to_string())
        .map(|(irq, cpu)| Step::write(irq.setting(), &irq.allowed, cpu.to_string()));
    let message = format!(
        "CPU {} handles all {} interrupts of {device}.",
        irqs[0].cpus,
        irqs.len()
    );
    let fix = Fix::Steps(steps.collect());
    Ok(Some(Verdict::found(device, evidence, message, fix)))
}

/// Whether an interrupt of a queue has occurred; those for configuration changes do not count.
fn has_occurred(interrupts: &str, number: u32) -> bool {
    let mut lines = interrupts.lines().filter_map(|line| line.split_once(':'));
    let line = lines.find(|(it, _)| it.trim().parse() == Ok(number));
    line.is_some_and(|(_, line)| {
        let mut counts = line
            .split_whitespace()
            .map_while(|word| word.parse::<u64>().ok());
        !line.contains("config") && counts.any(|count| count > 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_with_a_count_have_occurred() {
        let text = "      CPU0 CPU1\n 37:  0  0  PCI-MSIX 0-edge  virtio2-input.0\n \
                    38:  0  7  PCI-MSIX 1-edge  virtio2-input.1\n \
                    39:  9  7  PCI-MSIX 1-edge  virtio2-config\n";
        assert!(has_occurred(text, 38));
        assert!(!has_occurred(text, 37) && !has_occurred(text, 39) && !has_occurred(text, 40));
    }
}
