//! Checks of the whole host or the whole network namespace, by subject.

mod bpf;
mod clock;
mod cpu;
mod irq;
mod kernel;
mod memory;
mod netfilter;
mod privilege;
mod setting;
mod softirq;
mod sysctl;
mod vrf;

use super::check::Check;

/// The checks of the whole host or the whole network namespace, in the order of `--list`.
pub const CHECKS: &[Check] = &[
    kernel::KERNEL_FEATURES,
    privilege::CAPABILITIES,
    bpf::BPF_JIT,
    bpf::BPF_STATS,
    bpf::BPFFS,
    kernel::BTF,
    kernel::LOCKDOWN,
    clock::CLOCKSOURCE,
    cpu::IRQ_TIME_ACCOUNTING,
    cpu::GOVERNOR,
    memory::HUGE_PAGES,
    softirq::SOFTNET_DROPPED,
    softirq::SOFTNET_SQUEEZED,
    softirq::KSOFTIRQD_TIME,
    sysctl::NAPI_BUDGET,
    sysctl::NETDEV_BACKLOG,
    sysctl::BUSY_POLL,
    sysctl::DEFAULT_QDISC,
    sysctl::RPS_FLOW_TABLE,
    irq::IRQ_AFFINITY,
    netfilter::BRIDGE_NETFILTER,
    netfilter::NETFILTER_BYPASS,
    vrf::RESOLVER_VRF,
    vrf::L3MDEV_ACCEPT,
];
