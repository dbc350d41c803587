//! Changes between bursts.

use crate::switch_fuzz::frame::Mac;
use crate::switch_fuzz::netlink::{BridgeSetting, EntryKind, PortSetting, Vlan};

/// The hook of a port that is accelerated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    Auto,
    Xdp,
    Tcx,
    Kernel,
}

/// A change of both bridges, or of the accelerator alone. Ports are by their place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Up(usize, bool),
    /// The far end goes down: the port loses its carrier.
    PeerUp(usize, bool),
    Member(usize, bool),
    /// The device is removed and another one comes in its place.
    Replug(usize),
    Mtu(usize, u32),
    /// The port's device gets a queueing discipline, or none.
    Queue(usize, bool),
    Port(usize, PortSetting),
    Bridge(BridgeSetting),
    BridgeUp(bool),
    BridgeMac(u8),
    AddEntry {
        port: usize,
        mac: Mac,
        vlan: u16,
        kind: EntryKind,
    },
    DeleteEntry {
        port: usize,
        mac: Mac,
        vlan: u16,
    },
    Vlan {
        /// The bridge itself if none.
        port: Option<usize>,
        vlan: Vlan,
        add: bool,
    },
    /// The port's hook from the next attach on.
    Hook(usize, Hook),
    /// Detach, and attach anew.
    Attach,
    /// The accelerator does nothing, or goes on.
    Silence(bool),
    /// The accelerator is killed; its programs go on until the next event, before which it is
    /// there again.
    Kill,
    /// Addresses that send nothing are forgotten, others not.
    Age,
}
