//! A fast path for an existing Linux bridge.
//!
//! The kernel's bridge stays the source of truth and the slow path. Its forwarding database, ports and
//! VLANs are mirrored into the maps of two BPF programs, which forward frames between known addresses:
//! `bpf/switch.bpf.c` says how.

pub mod abi;
mod accelerator;
mod choice;
pub mod daemon;
pub mod datapath;
mod facts;
pub mod fdb;
pub mod keep;
mod netfilter;
mod port;
pub mod samples;
mod settings;
pub mod status;
mod table;

pub use abi::{CONSTANTS, LAYOUTS, OBJECT, REASONS};
pub use accelerator::{Accelerator, BridgeGone, Figures, LIFE, Refusal, mac_text};
pub use settings::{Hook, PortHook, PortSettings, Settings, check_name};
