//! The faults, by the part of the path that they happen in.
#![expect(
    clippy::unnecessary_wraps,
    reason = "functions that prepare a fault have one type, and most can fail"
)]

mod devices;
mod ip;
mod packet;
mod sending;
mod stack;
mod transport;
mod xdp;
mod xdp_sockets;

use crate::ledger_faults::fault::Fault;

/// All, in the order of the table.
pub fn all() -> Vec<Fault> {
    kinds().concat()
}

/// The same, by the part of the path that loses the packets.
pub fn kinds() -> [&'static [Fault]; 8] {
    [
        transport::FAULTS,
        stack::FAULTS,
        packet::FAULTS,
        sending::FAULTS,
        devices::FAULTS,
        ip::FAULTS,
        xdp::FAULTS,
        xdp_sockets::FAULTS,
    ]
}
