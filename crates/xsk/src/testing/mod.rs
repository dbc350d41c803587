//! For tests and fuzzing, not for programs: raw descriptors, other redirect programs, and a kernel
//! modelled in memory. Behind the feature `testing`, without any stability.

pub mod driver;
pub mod kernel;
pub mod moves;
pub mod programs;
pub mod raw;

/// Delays at named points.
#[cfg(feature = "delays")]
pub mod delay {
    pub use crate::delay::{Point, set_hook};
}
