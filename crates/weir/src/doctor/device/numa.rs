//! The NUMA node of interrupts.

use std::collections::BTreeMap;

use anyhow::Result;
use hostnet::cpulist::CpuList;

use super::each::each;
use crate::doctor::check::Check;
use crate::doctor::context::Context;
use crate::doctor::context::device::Device;
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::irq;
use crate::doctor::severity::Severity;
use crate::doctor::step::Step;
use crate::doctor::verdict::Verdict;

const NODES: &str = "/sys/devices/system/node";

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[IRQ_NUMA];

const IRQ_NUMA: Check = Check {
    id: "irq-numa",
    title: "interrupts go to a remote NUMA node",
    severity: Severity::Warning,
    why: "A CPU of another NUMA node fetches each descriptor and packet over the interconnect.",
    source: "Documentation/networking/scaling.rst, \"RSS: Suggested Configuration\"; /sys/class/net/DEV/device/numa_node",
    more: "Reads the card's NUMA node, the CPUs of that node (/sys/devices/system/node/nodeN/cpulist), \
           and the CPUs of its interrupts (/proc/irq/N/effective_affinity_list). It does not apply to \
           machines with one node.\n\n\
           irqbalance(1) moves the interrupts again unless they are banned \
           (IRQBALANCE_BANNED_CPULIST, --banirq). The kernel refuses to move managed interrupts.\n\n\
           Measure the effect with `weir cost` (ns per packet).",
    counters: &[],
    run: |context| each(context, |device| irq_numa(context, device)),
};

fn irq_numa(context: &Context, device: &Device) -> Result<Option<Verdict>> {
    let name = device.name();
    let nodes = nodes(context)?;
    let Some((path, node)) = node_of(context, name)? else {
        return Ok(None);
    };
    let Some(near) = nodes.get(&node).filter(|_| nodes.len() > 1) else {
        return Ok(None);
    };
    let mut far = irq::of(context, name)?;
    far.retain(|irq| irq.cpus.is_disjoint(near));
    let mut evidence = vec![
        Evidence::new(path, node.to_string()),
        Evidence::new(cpulist(node), near.to_string()),
    ];
    if far.is_empty() {
        return Ok(Some(Verdict::fine(name, evidence)));
    }
    let mut steps = Vec::new();
    for irq in far {
        evidence.push(irq.evidence());
        let new = context.read(&cpulist(node))?;
        steps.push(Step::write(irq.setting(), irq.allowed, new));
    }
    let message = format!(
        "{} interrupts of {name}, which is on NUMA node {node}, go to CPUs of another node.",
        steps.len()
    );
    let fix = Fix::Steps(steps);
    Ok(Some(Verdict::found(name, evidence, message, fix)))
}

fn cpulist(node: u32) -> String {
    format!("{NODES}/node{node}/cpulist")
}

/// The CPUs of each NUMA node.
fn nodes(context: &Context) -> Result<BTreeMap<u32, CpuList>> {
    let mut nodes = BTreeMap::new();
    for name in context.list(NODES)? {
        let Some(Ok(number)) = name.strip_prefix("node").map(str::parse) else {
            continue;
        };
        let cpus: CpuList = context.read(&cpulist(number))?.parse()?;
        // A node may have memory only.
        if !cpus.as_slice().is_empty() {
            nodes.insert(number, cpus);
        }
    }
    Ok(nodes)
}

/// The NUMA node of a device, and its file; a virtio device is a child of the PCI device that has
/// one. An unknown node is -1.
fn node_of(context: &Context, device: &str) -> Result<Option<(String, u32)>> {
    for directory in ["device", "device/.."] {
        let path = format!("/sys/class/net/{device}/{directory}/numa_node");
        let node = context.read_if_there(&path)?;
        if let Some(Ok(node)) = node.map(|node| node.parse()) {
            return Ok(Some((path, node)));
        }
    }
    Ok(None)
}
