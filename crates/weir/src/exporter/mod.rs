//! `weir exporter`: the ledger as metrics for Prometheus.
//!
//! Two processes. The reader has the privilege to see all counters; it takes a snapshot when it is asked,
//! adds up the losses of the intervals between snapshots, and writes the page. The HTTP process talks to the
//! network and has no privilege.

mod address;
mod collector;
mod daemon;
mod families;
mod family;
pub mod http;
mod message;
mod page;
mod web_config;

pub use address::{Address, DEFAULT};
pub use collector::Source;
pub use daemon::{Flags, run};
pub use family::DEFAULT_SERIES;
