//! Recording of a profile.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use hostnet::cpulist::CpuList;
use indicatif::{ProgressBar, ProgressStyle};

use super::profile::{Collector, Profile};
use super::sampler::Sampler;
use crate::process::stop::StopSignal;

/// Time between two readings of the stacks. The kernel has room for 8192 different ones, which
/// 40 CPUs need in this time if no two of their samples are alike.
const READ_EVERY: Duration = Duration::from_millis(200);

/// Longer recordings show their progress.
const SHORT: Duration = Duration::from_secs(2);

/// The settings of a recording.
#[derive(Debug, Clone)]
pub struct Options {
    /// The CPUs, see [`online`].
    pub cpus: CpuList,
    /// The duration.
    pub duration: Duration,
    /// Samples a second on each CPU.
    pub frequency: u64,
    /// Whether to keep all stacks instead of those of the packet path.
    pub everything: bool,
}

/// Records until the time is over or a signal comes.
pub fn record(options: &Options, stop: &StopSignal) -> Result<Profile> {
    let mut collector = Collector::new(options.everything)?;
    let mut sampler = Sampler::start(options.cpus.as_slice(), options.frequency)?;
    let progress = progress(options.duration);
    let start = Instant::now();
    while start.elapsed() < options.duration && !stop.is_raised() {
        let left = options.duration.saturating_sub(start.elapsed());
        thread::sleep(left.min(READ_EVERY));
        collector.add(sampler.drain()?);
        progress.set_position(start.elapsed().as_secs());
    }
    sampler.stop();
    let elapsed = start.elapsed();
    progress.finish_and_clear();
    collector.add(sampler.drain()?);
    let rate = options.frequency * options.cpus.as_slice().len() as u64;
    Ok(collector.finish(sampler.clock(), rate, elapsed, sampler.taken()?))
}

/// The CPUs of a list, or all, if they are online. This process itself need not be allowed on a CPU
/// that it samples.
pub fn online(chosen: Option<&CpuList>) -> Result<CpuList> {
    // Some containers have no sysfs.
    let online = CpuList::online().or_else(|_| CpuList::allowed())?;
    let Some(chosen) = chosen else {
        return Ok(online);
    };
    let is_online = |cpu: &&usize| online.as_slice().contains(cpu);
    if chosen.as_slice().is_empty() {
        bail!("no CPU: choose among {online}");
    }
    match chosen.as_slice().iter().find(|cpu| !is_online(cpu)) {
        Some(cpu) => bail!("CPU {cpu} is offline or does not exist: choose among {online}"),
        None => Ok(chosen.clone()),
    }
}

/// On standard error, if it is a terminal.
fn progress(duration: Duration) -> ProgressBar {
    if duration <= SHORT {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(duration.as_secs());
    if let Ok(style) = ProgressStyle::with_template("sampling {bar:20} {pos}/{len} s") {
        bar.set_style(style.progress_chars("##-"));
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_that_is_not_there_is_refused() {
        let list: CpuList = "1023".parse().expect("a list");
        let error = online(Some(&list)).expect_err("not there").to_string();
        assert!(
            error.contains("CPU 1023 is offline or does not exist"),
            "{error}"
        );
        assert!(online(Some(&CpuList::default())).is_err());
    }
}
