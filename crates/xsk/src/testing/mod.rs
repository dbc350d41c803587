//! For tests and fuzzing, not for programs: raw descriptors, other redirect programs, and a kernel
//! modelled in memory. Behind the feature `testing`, without any stability.

pub mod driver;
pub mod kernel;
pub mod moves;
pub mod programs;
pub mod raw;
