//! Socket statistics over `sock_diag(7)`, and the processes that have the sockets.

pub mod inet;
mod memory;
mod owners;
pub mod packet;
mod request;
pub mod xdp_diag;

pub use memory::SocketMemory;
pub use owners::{Owner, Owners, owners};
