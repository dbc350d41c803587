//! The views: tables of the difference of two frames.

pub mod cpus;
pub mod devices;
pub mod drops;
pub mod kind;
pub mod napi;
pub mod processes;
pub mod programs;
pub mod queues;
pub mod scene;
pub mod sockets;
pub mod tasks;
pub mod xdp_sockets;

pub use kind::View;
pub use scene::Scene;
