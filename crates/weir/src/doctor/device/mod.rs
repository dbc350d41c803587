//! Checks of network devices, by subject.
//!
//! They examine the devices of `--dev`, or all but the loopback. Checks that matter to XDP alone
//! examine a device only if it has an XDP program or is one of `--dev`.

mod coalescing;
pub mod delivery;
mod each;
mod errors;
mod mtu;
mod napi;
mod neighbour;
mod numa;
mod offload;
mod pause;
mod qdisc;
mod queues;
mod rings;
mod rps_lock_qdisc;
mod shaping;
mod sockets;
mod tap;
mod traffic;
mod veth;
mod xdp;

use super::check::Check;

/// The checks of network devices, by subject, in the order of `--list`.
pub const CHECKS: &[&[Check]] = &[
    rps_lock_qdisc::CHECKS,
    xdp::CHECKS,
    delivery::CHECKS,
    sockets::CHECKS,
    veth::CHECKS,
    offload::CHECKS,
    mtu::CHECKS,
    neighbour::CHECKS,
    errors::CHECKS,
    shaping::CHECKS,
    tap::CHECKS,
    pause::CHECKS,
    rings::CHECKS,
    queues::CHECKS,
    coalescing::CHECKS,
    napi::CHECKS,
    numa::CHECKS,
];
