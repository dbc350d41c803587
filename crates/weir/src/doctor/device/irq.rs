//! The interrupts of a device.

use anyhow::Result;

use crate::{cpulist::CpuList, doctor::Context};

/// An interrupt.
pub struct Irq {
    /// Its number, as in /proc/interrupts.
    pub number: u32,
    /// The file that says where it goes.
    pub read_from: String,
    /// The CPUs that it goes to.
    pub cpus: CpuList,
}

/// The interrupts of `device`; none for a virtual one.
pub fn of(context: &Context, device: &str) -> Result<Vec<Irq>> {
    let device = format!("/sys/class/net/{device}/device");
    let mut found = Vec::new();
    // A virtio device is a child of the PCI device that has the interrupts.
    for directory in [
        format!("{device}/msi_irqs"),
        format!("{device}/../msi_irqs"),
    ] {
        for number in context.list(&directory)? {
            let Ok(number) = number.parse() else { continue };
            found.extend(read(context, number)?);
        }
    }
    Ok(found)
}

/// An interrupt that nobody asked for has no directory below /proc/irq.
fn read(context: &Context, number: u32) -> Result<Option<Irq>> {
    for file in ["effective_affinity_list", "smp_affinity_list"] {
        let path = format!("/proc/irq/{number}/{file}");
        let text = context.read_if_there(&path)?;
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            let cpus = text.parse()?;
            return Ok(Some(Irq {
                number,
                read_from: path,
                cpus,
            }));
        }
    }
    Ok(None)
}
