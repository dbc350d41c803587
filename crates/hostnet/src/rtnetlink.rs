//! Devices, bridges, addresses, routes, neighbours and queueing disciplines, over rtnetlink(7); and notifications of their
//! changes.

mod address;
mod bridge;
mod fdb;
mod link;
mod monitor;
mod neighbour;
mod qdisc;
mod route;
mod settings;
mod socket;
mod statistics;
mod vlan;
mod xdp;

pub use address::Address;
pub use bridge::{BridgeOptions, PortChange};
pub use fdb::{FdbEntry, FdbKey, FdbKind};
pub use link::{Counters, Link, VethEnd, XdpPrograms, check_name, max_xdp_mtu};
pub use monitor::{Event, Monitor};
pub use neighbour::{Neighbour, NeighbourState};
pub use qdisc::{FqCodelOptions, Qdisc, QdiscOptions, QdiscStatistics, TcHandle};
pub use settings::{BridgePort, BridgeSettings, PortState};
pub use socket::Rtnetlink;
pub use statistics::Statistics;
pub use vlan::BridgeVlan;
