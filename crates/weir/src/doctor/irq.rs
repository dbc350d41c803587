//! The interrupts of a device.

use anyhow::Result;
use hostnet::cpulist::CpuList;

use super::context::Context;
use super::evidence::Evidence;

/// An interrupt.
pub struct Irq {
    /// Its number in /proc/interrupts.
    pub number: u32,
    /// The CPUs it may be delivered to, as written in the file `setting`.
    pub allowed: String,
    /// The CPUs it is delivered to.
    pub cpus: CpuList,
    /// The file that lists `cpus`.
    read_from: String,
}

impl Irq {
    /// The file that sets its CPUs.
    pub fn setting(&self) -> String {
        setting(self.number)
    }

    /// The CPUs it is delivered to.
    pub fn evidence(&self) -> Evidence {
        Evidence::new(&self.read_from, self.cpus.to_string())
    }
}

fn setting(number: u32) -> String {
    format!("/proc/irq/{number}/smp_affinity_list")
}

/// The interrupts of `device`; none for a virtual one.
pub fn of(context: &Context, device: &str) -> Result<Vec<Irq>> {
    let device = format!("/sys/class/net/{device}/device");
    let mut numbers = context.list(&format!("{device}/msi_irqs"))?;
    if numbers.is_empty() {
        // A virtio device is a child of the PCI device that has the interrupts.
        numbers = context.list(&format!("{device}/../msi_irqs"))?;
    }
    let numbers = numbers.iter().filter_map(|number| number.parse().ok());
    let irqs = numbers.map(|number| read(context, number));
    irqs.filter_map(Result::transpose).collect()
}

/// An interrupt that no driver has requested has no directory in /proc/irq.
fn read(context: &Context, number: u32) -> Result<Option<Irq>> {
    let Some(allowed) = context.read_if_there(&setting(number))? else {
        return Ok(None);
    };
    let effective = format!("/proc/irq/{number}/effective_affinity_list");
    let text = context.read_if_there(&effective)?;
    let (read_from, text) = match text.filter(|text| !text.is_empty()) {
        Some(text) => (effective, text),
        None => (setting(number), allowed.clone()),
    };
    Ok(Some(Irq {
        number,
        allowed,
        cpus: text.parse()?,
        read_from,
    }))
}
