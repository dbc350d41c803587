//! Checks of network devices, by subject.
//!
//! They examine the devices of `--dev`, or all but the loopback. Checks that matter to XDP alone
//! examine a device only if it has an XDP program or is one of `--dev`.

mod coalescing;
mod each;
mod errors;
mod napi;
mod numa;
mod offload;
mod qdisc;
mod queues;
mod rings;
mod rps_lock_qdisc;
mod sockets;
mod traffic;
mod veth;
mod xdp;

use super::check::Check;

/// The checks of network devices, in the order of `--list`.
pub const CHECKS: &[Check] = &[
    rps_lock_qdisc::RPS_LOCK_QDISC,
    xdp::XDP_GENERIC,
    xdp::XDP_FOREIGN,
    xdp::XDP_FEATURES,
    xdp::XDP_UPPER_DEVICE,
    xdp::XDP_MTU,
    sockets::XSK_ZERO_COPY,
    veth::VETH_NAPI,
    veth::GUEST_OFFLOADS,
    offload::VLAN_OFFLOAD,
    offload::LRO,
    errors::DEVICE_ERRORS,
    rings::RING_SIZES,
    queues::QUEUES,
    coalescing::COALESCING,
    napi::THREADED_NAPI,
    numa::IRQ_NUMA,
];
