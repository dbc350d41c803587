//! This process, its end by a signal and its CPU time, and its children.

pub mod child;
pub mod stop;
pub mod usage;
pub mod words;
