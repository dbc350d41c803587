//! `weir cost flame`: flame graphs of the packet path.
//!
//! A perf event on each CPU runs a BPF program at the sampling frequency; the program counts the
//! interrupted stacks. They are read several times a second: the kernel then needs little room for
//! them, and the processes and BPF programs in them still exist when they are looked up by name.

mod mappings;
mod path;
pub mod profile;
pub mod record;
mod sampler;
pub mod summary;
pub mod svg;
