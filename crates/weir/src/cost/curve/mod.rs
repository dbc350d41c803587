//! `weir cost curve`: what receiving takes from the CPUs, against the rate of packets, by the way
//! that the packets go.
//!
//! ```text
//!  namespace load         namespace host
//!  weir1 ───────────────── weir0 ─┬─ bridge, XDP or Open vSwitch ─┬─ tap0 ── receiver 0
//!  (load, and the kernel's        │                               └─ tap1 ── receiver 1
//!   part of receiving)            └─ socket: UDP, AF_XDP, AF_PACKET ── receiver
//! ```
//!
//! The load's CPU runs the kernel's part, as softirqs of the load's process; the receivers have
//! the other CPU. Receivers stand for virtual machines: they read frames from taps, check and
//! count them.

pub mod chart;
pub mod csv;
pub mod forward;
pub mod guest;
pub mod html;
pub mod measure;
pub mod notes;
pub mod ovs;
pub mod plan;
pub mod receiver;
mod recvmmsg;
pub mod report;
pub mod stage;
pub mod table;

use clap::ValueEnum;
use serde::Serialize;

/// The way that packets go from the device to their receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// A Linux bridge, to taps
    Bridge,
    /// An XDP program that redirects, to taps
    Xdp,
    /// Open vSwitch, to taps
    Ovs,
    /// The network stack, to UDP sockets
    Stack,
    /// An AF_XDP socket in the driver
    AfXdp,
    /// An AF_PACKET socket with a ring (TPACKET version 3)
    AfPacket,
}

impl Path {
    /// Whether it ends at taps, as that to a virtual machine does.
    pub fn ends_at_taps(self) -> bool {
        matches!(self, Self::Bridge | Self::Xdp | Self::Ovs)
    }
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.to_possible_value()
            .map_or(Ok(()), |value| f.pad(value.get_name()))
    }
}
