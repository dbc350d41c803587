//! `weir cost curve`: CPU time of receiving, by packet rate and path.
//!
//! ```text
//!  namespace load         namespace host
//!  weir1 ───────────────── weir0 ─┬─ bridge, weir, XDP or OVS    ─┬─ tap0 ── receiver 0
//!  (load, and the kernel's        │                               └─ tap1 ── receiver 1
//!   part of receiving)            └─ socket: UDP, AF_XDP, AF_PACKET ── receiver
//! ```
//!
//! The load's CPU runs the softirqs that receive; the receivers run on the other CPU. They stand
//! for virtual machines: they read frames from taps, check and count them.

pub mod chart;
pub mod counts;
pub mod csv;
pub mod forward;
pub mod guest;
pub mod html;
pub mod measure;
pub mod notes;
pub mod ovs;
pub mod path;
pub mod picture;
pub mod plan;
pub mod receiver;
mod recvmmsg;
pub mod report;
pub mod run;
pub mod stage;
pub mod table;

pub use self::path::Path;
