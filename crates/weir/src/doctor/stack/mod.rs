//! Checks of the protocol stack of the network namespace: losses within the look, by subject.

mod checksum;
mod conntrack;
mod neighbour;
mod ports;
mod rp_filter;
mod socket;
mod tcp;
mod throttle;
mod udp;

use super::check::Check;

/// The checks of the protocol stack, by subject, in the order of `--list`.
pub const CHECKS: &[&[Check]] = &[
    udp::CHECKS,
    tcp::CHECKS,
    ports::CHECKS,
    rp_filter::CHECKS,
    neighbour::CHECKS,
    conntrack::CHECKS,
    checksum::CHECKS,
    throttle::CHECKS,
];
