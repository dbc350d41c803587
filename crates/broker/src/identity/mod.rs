//! Who a process is: user, executable, control group, container.
//!
//! All of it is read by descriptors that belong to the process, and its pidfd shows afterwards that it
//! was there all the time: no later process with its id is taken for it.
//!
//! An executable proves less than a user does. Whoever may run a program can also make it do something
//! else (ptrace(2), `LD_PRELOAD`), and in a user namespace of its own a process can take any
//! executable's name (`PR_SET_MM_MAP`).

mod executable;
mod filesystem;
mod hash;
mod process;
mod sys;

pub use executable::{Executable, KeptExecutable, Program};
pub use process::{Container, Identity, Kept, Person};
