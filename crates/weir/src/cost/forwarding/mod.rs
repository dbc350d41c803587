//! `weir switch bench`: an accelerated bridge beside a plain one and other switches.
//!
//! ```text
//!  namespace load       namespace host                        namespaces of the ports
//!  weir1 ────────────── weir0 ──┐                      ┌── port1 ────── far1
//!  (load between pairs          ├── bridge, weir, XDP ─┤                (counts, checks, drops)
//!   of stations)                │   or Open vSwitch    └── port2 ────── far2
//!                               │                                       (must receive nothing)
//! ```
//!
//! The load's CPU runs the softirqs of everything in the kernel, up to the program at `far1`: the
//! rate is that of one CPU. The switch in user space runs on the other CPU.

pub mod counts;
pub mod html;
pub mod measure;
pub mod notes;
pub mod path;
pub mod plan;
pub mod report;
pub mod run;
pub mod stage;
pub mod table;
pub mod tcp;
pub mod upkeep;

pub use self::path::Path;
