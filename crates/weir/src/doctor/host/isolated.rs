//! Isolated CPUs.

use anyhow::Result;
use hostnet::cpulist::CpuList;

use super::setting::{fine, fine_all, found};
use crate::doctor::check::Check;
use crate::doctor::context::Context;
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::irq;
use crate::doctor::severity::Severity;
use crate::doctor::step::Step;
use crate::doctor::verdict::Verdict;

const ISOLATED: &str = "/sys/devices/system/cpu/isolated";
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[ISOLATED_CPUS];

const ISOLATED_CPUS: Check = Check {
    id: "isolated-cpus",
    title: "interrupts or RPS of a network device use isolated CPUs (isolcpus)",
    severity: Severity::Advice,
    why: "An isolated CPU is kept for one program, which the softirqs of packets then interrupt.",
    source: "Documentation/admin-guide/kernel-parameters.txt, isolcpus and nohz_full; Documentation/core-api/irq/irq-affinity.rst; Documentation/networking/scaling.rst, RPS",
    more: "Reads /sys/devices/system/cpu/isolated, the CPUs of the interrupts of each network device \
           (/proc/irq/N/effective_affinity_list) and rps_cpus of each receive queue. It may be meant: a \
           program that polls its own queue on its own CPU.\n\n\
           The fix gives both to the other CPUs. irqbalance keeps off isolated CPUs by itself, the \
           kernel with isolcpus=managed_irq. Measure the effect with `weir cost`.",
    counters: &[],
    run: isolated,
};

fn isolated(context: &Context) -> Result<Vec<Verdict>> {
    let text = context.read_if_there(ISOLATED)?.unwrap_or_default();
    if text.is_empty() {
        return Ok(fine(ISOLATED, "none"));
    }
    let isolated: CpuList = text.parse()?;
    let online: CpuList = context.read(ONLINE)?.parse()?;
    let others = without(&online, &isolated);
    let mut evidence = vec![Evidence::new(ISOLATED, &text)];
    let mut steps = Vec::new();
    let mut users = Vec::new();
    for device in context.class_net()? {
        for irq in irq::of(context, &device)? {
            if !irq.cpus.is_disjoint(&isolated) {
                evidence.push(irq.evidence());
                users.push(format!("interrupt {} of {device}", irq.number));
                steps.push(Step::write(irq.setting(), &irq.allowed, others.to_string()));
            }
        }
        let queues = format!("/sys/class/net/{device}/queues");
        for queue in context.list(&queues)? {
            let path = format!("{queues}/{queue}/rps_cpus");
            let Some(mask) = context.read_if_there(&path)? else {
                continue;
            };
            let cpus = CpuList::from_mask(&mask)?;
            if !cpus.is_disjoint(&isolated) {
                evidence.push(Evidence::new(&path, &mask));
                users.push(format!("RPS of {device}, {queue}"));
                let kept = written_like(&without(&cpus, &isolated), &mask);
                steps.push(Step::write(path, &mask, kept));
            }
        }
    }
    if steps.is_empty() {
        return Ok(fine_all(evidence));
    }
    let message = format!(
        "The CPUs {text} are isolated, but used by: {}.",
        users.join("; ")
    );
    Ok(found(evidence, message, Fix::Steps(steps)))
}

/// The CPUs without some.
fn without(cpus: &CpuList, some: &CpuList) -> CpuList {
    let kept = cpus.as_slice().iter().copied();
    CpuList::new(kept.filter(|cpu| !some.as_slice().contains(cpu)))
}

/// A mask with as many digits as this one, which is how the kernel will show it.
fn written_like(cpus: &CpuList, mask: &str) -> String {
    let new = cpus.mask();
    let digits = mask
        .bytes()
        .rev()
        .zip(new.bytes().rev().map(Some).chain(std::iter::repeat(None)));
    let digits = digits.map(|(old, new)| match (old, new) {
        (b',', _) => ',',
        (_, Some(new)) => new.into(),
        (_, None) => '0',
    });
    let digits: Vec<char> = digits.collect();
    digits.into_iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_keeps_its_width() {
        let written =
            |cpus: &[usize], mask| written_like(&CpuList::new(cpus.iter().copied()), mask);
        assert_eq!(written(&[], "3"), "0");
        assert_eq!(written(&[1], "f"), "2");
        assert_eq!(written(&[0], "00,0000000f"), "00,00000001");
        assert_eq!(written(&[33, 1], "3,00000003"), "2,00000002");
        let (all, some) = (CpuList::new(0..4), CpuList::new([3]));
        assert_eq!(without(&all, &some).to_string(), "0-2");
    }
}
