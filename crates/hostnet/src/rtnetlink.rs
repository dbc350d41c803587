//! Devices, bridges, addresses and queueing disciplines, over rtnetlink(7).

mod address;
mod bridge;
mod link;
mod qdisc;
mod socket;

pub use link::{Counters, Link, MAX_XDP_MTU, VethEnd, XdpPrograms};
pub use qdisc::{FqCodelOptions, Qdisc, QdiscOptions, TcHandle};
pub use socket::Rtnetlink;
