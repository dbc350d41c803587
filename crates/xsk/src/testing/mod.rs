//! What tests and fuzzing need and programs must not use: raw descriptors, other redirect
//! programs, and a kernel modelled in memory. Behind the feature `testing`, without any promise
//! of staying as it is.

pub mod kernel;
pub mod moves;
pub mod programs;
pub mod raw;
