//! Which CPUs handle the interrupts of devices.

use anyhow::Result;

use super::setting::write;
use crate::doctor::irq::Irq;
use crate::doctor::{Check, Context, Finding, Fix, Severity, Verdict, irq};
use hostnet::cpulist::CpuList;

const INTERRUPTS: &str = "/proc/interrupts";
const ONLINE: &str = "/sys/devices/system/cpu/online";

pub const IRQ_AFFINITY: Check = Check {
    id: "irq-affinity",
    title: "one CPU handles the interrupts of every queue",
    severity: Severity::Warning,
    why: "The queues of a device share out its packets only if their interrupts go to different CPUs; else one CPU handles all, and the others watch.",
    source: "Documentation/networking/scaling.rst, RSS IRQ Configuration; Documentation/core-api/irq/irq-affinity.rst",
    more: "For each device with several receive queues it reads the interrupts that have come \
           (/proc/interrupts) and the CPUs that they go to (/proc/irq/N/effective_affinity_list).\n\n\
           The fix gives one CPU to each, in turn. irqbalance, where it runs, moves them again: ban \
           them there, or stop it. Measure it with `weir cost`.",
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
        let asked = context.devices();
        if asked.is_empty() || asked.contains(&device) {
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
    irqs.retain(|irq| has_come(interrupts, irq.number));
    let queues = context.list(&format!("/sys/class/net/{device}/queues"))?;
    let queues = queues.iter().filter(|queue| queue.starts_with("rx-"));
    if queues.count() < 2 || irqs.len() < 2 {
        return Ok(None);
    }
    let evidence = irqs.iter().map(Irq::evidence).collect();
    let one_cpu = |irq: &Irq| irq.cpus.as_slice().len() == 1 && irq.cpus == irqs[0].cpus;
    if !irqs.iter().all(one_cpu) {
        return Ok(Some(Verdict::Fine {
            subject: device.into(),
            evidence,
        }));
    }
    let steps = irqs
        .iter()
        .zip(cpus.iter().cycle())
        .map(|(irq, cpu)| write(&irq.setting(), &irq.allowed, &cpu.to_string()));
    let steps = steps.filter(|step| step.target() != Some(step.old()));
    Ok(Some(Verdict::Finding(Finding {
        subject: device.into(),
        message: format!("CPU {} handles all {} of them.", irqs[0].cpus, irqs.len()),
        evidence,
        fix: Fix::Steps(steps.collect()),
    })))
}

/// Whether an interrupt of a queue has come; those that announce a change of settings are none.
fn has_come(interrupts: &str, number: u32) -> bool {
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
    fn interrupts_that_have_come() {
        let text = "      CPU0 CPU1\n 37:  0  0  PCI-MSIX 0-edge  virtio2-input.0\n \
                    38:  0  7  PCI-MSIX 1-edge  virtio2-input.1\n \
                    39:  9  7  PCI-MSIX 1-edge  virtio2-config\n";
        assert!(has_come(text, 38));
        assert!(!has_come(text, 37) && !has_come(text, 39) && !has_come(text, 40));
    }
}
