//! Processes: the program's own, when it is told to end, and those that it starts.

pub mod child;
pub mod stop;
pub mod usage;
pub mod words;
