//! The program behind the `weir` command.

pub mod accounting;
pub mod bench;
pub mod bpf;
pub mod cli;
pub mod cost;
pub mod doctor;
pub mod engine;
pub mod lab;
pub mod process;
pub mod report;
pub mod traffic;
