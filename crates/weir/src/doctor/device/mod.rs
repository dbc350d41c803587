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

/// The checks of network devices, by subject, in the order of `--list`.
pub const CHECKS: &[&[Check]] = &[
    rps_lock_qdisc::CHECKS,
    xdp::CHECKS,
    sockets::CHECKS,
    veth::CHECKS,
    offload::CHECKS,
    errors::CHECKS,
    rings::CHECKS,
    queues::CHECKS,
    coalescing::CHECKS,
    napi::CHECKS,
    numa::CHECKS,
];
