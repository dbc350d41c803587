//! The program behind the `weir` command.

pub mod bench;
pub mod bpf;
pub mod cli;
pub mod cost;
pub mod cpulist;
pub mod doctor;
pub mod kernel_config;
pub mod lab;
mod mounts;
pub mod process;
pub mod report;
pub mod sysfs;
