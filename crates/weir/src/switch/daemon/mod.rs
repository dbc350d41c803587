//! The daemon: it keeps the mirrors of bridges and answers on a Unix socket.

mod bridges;
pub mod config;
mod main_loop;
pub mod offline;
pub mod request;

pub use bridges::Report;
pub use main_loop::{Flags, run};
