//! The program behind the `weir` command.

pub mod bench;
pub mod bpf;
pub mod cli;
pub mod lab;
