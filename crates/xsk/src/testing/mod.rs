//! For tests and fuzzing, not for programs: raw descriptors, other redirect programs, and a kernel
//! modelled in memory. They are there with the cfg `xsk_internals`, without any stability.

pub mod driver;
pub mod kernel;
pub mod moves;
pub mod programs;
pub mod raw;

/// Delays at named points.
pub mod delay {
    pub use crate::delay::{Point, set_hook};
}
