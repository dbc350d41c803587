//! The faults, by the part of the path that they happen in.
#![expect(
    clippy::unnecessary_wraps,
    reason = "what prepares a fault has one type for all, and most can fail"
)]

mod ip;
mod packet;
mod sending;
mod stack;
mod transport;
mod xdp;
mod xdp_sockets;

use crate::fault::Fault;

/// All, in the order of the table.
pub fn all() -> Vec<Fault> {
    [
        transport::FAULTS,
        stack::FAULTS,
        packet::FAULTS,
        sending::FAULTS,
        ip::FAULTS,
        xdp::FAULTS,
        xdp_sockets::FAULTS,
    ]
    .concat()
}
