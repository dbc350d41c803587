//! Checks of the whole host or the whole network namespace, by subject.

mod bpf;
mod clock;
mod cpu;
mod irq;
mod isolated;
mod kernel;
mod memory;
mod netfilter;
mod privilege;
pub mod setting;
mod softirq;
mod sysctl;
mod vrf;

use super::check::Check;

/// The checks of the whole host or the whole network namespace, by subject, in the order of `--list`.
pub const CHECKS: &[&[Check]] = &[
    kernel::CHECKS,
    privilege::CHECKS,
    bpf::CHECKS,
    clock::CHECKS,
    cpu::CHECKS,
    memory::CHECKS,
    softirq::CHECKS,
    sysctl::CHECKS,
    irq::CHECKS,
    isolated::CHECKS,
    netfilter::CHECKS,
    vrf::CHECKS,
];
