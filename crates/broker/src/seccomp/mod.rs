//! Seccomp user notification: the listener that receives a process's system calls, and the process
//! that waits for the answer.

mod listener;
mod sys;
mod target;

pub use listener::{Answer, Listener};
pub use sys::{Notification, install};
pub use target::Target;
