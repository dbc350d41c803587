//! Processes: this one, its CPUs and signals, and its children.

pub mod child;
pub mod clock;
pub mod cpus;
pub mod event;
pub mod stop;
pub mod usage;
pub mod user_command;
pub mod words;
