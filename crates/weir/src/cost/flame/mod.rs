//! `weir cost flame`: where on the packet path the CPUs are.
//!
//! A perf event on each CPU runs a BPF program many times a second, and that counts the stack
//! which it interrupted. Stacks are taken from the kernel several times a second, so that
//! it needs little room for them, and processes and BPF programs are still there to be named.

mod mappings;
mod path;
mod profile;
mod sampler;
mod svg;
mod symbols;

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

pub use self::path::{Account, is_packet_path};
pub use self::profile::{Counts, Profile};
pub use self::sampler::Stack;
pub use self::svg::{Labels, render};
pub use crate::bpf::perf_event::Clock;

use self::profile::Collector;
use self::sampler::Sampler;
use crate::process::stop::StopSignal;

/// Time between two readings of the stacks. The kernel has room for 8192 different ones, about
/// what 40 CPUs need for this time if no two of their samples are alike.
const READ_EVERY: Duration = Duration::from_millis(200);

/// What to sample.
#[derive(Debug, Clone)]
pub struct Options {
    /// The CPUs, which must be online.
    pub cpus: Vec<usize>,
    /// For how long.
    pub duration: Duration,
    /// Samples a second on each CPU.
    pub frequency: u64,
    /// Whether to keep all stacks, and not those of the packet path alone.
    pub everything: bool,
}

/// Samples until the time is over or a signal comes, and calls `progress` with the time that has
/// passed.
pub fn sample(
    options: &Options,
    stop: &StopSignal,
    mut progress: impl FnMut(Duration),
) -> Result<Profile> {
    let mut collector = Collector::new(options.everything)?;
    let mut sampler = Sampler::start(&options.cpus, options.frequency)?;
    let start = Instant::now();
    while start.elapsed() < options.duration && !stop.is_raised() {
        let left = options.duration.saturating_sub(start.elapsed());
        thread::sleep(left.min(READ_EVERY));
        collector.add(sampler.drain()?);
        progress(start.elapsed());
    }
    sampler.stop();
    let elapsed = start.elapsed();
    collector.add(sampler.drain()?);
    Ok(collector.finish(options, &sampler, elapsed, sampler.taken()?))
}
