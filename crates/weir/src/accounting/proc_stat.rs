//! /proc/stat: CPU time by state, and whether the kernel measures the time of interrupts in it.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result};
use rustix::param::clock_ticks_per_second;

use hostnet::kernel_config::KernelConfig;

const STAT: &str = "/proc/stat";

/// A CPU's time by state, in nanoseconds, of /proc/stat (`proc_stat(5)`).
///
/// The kernel shows it in ticks of `1/USER_HZ` s. Where it does not account interrupt time
/// ([`irq_time_accounting`]) it charges each timer tick to the current context: `irq` is then 0
/// and `softirq` a sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuStat {
    /// User mode.
    pub user_ns: u64,
    /// User mode, of tasks with a positive nice value.
    pub nice_ns: u64,
    /// Kernel mode: system calls and kernel threads.
    pub system_ns: u64,
    /// Idle.
    pub idle_ns: u64,
    /// Idle with an I/O request outstanding.
    pub iowait_ns: u64,
    /// Hard interrupts.
    pub irq_ns: u64,
    /// Softirqs.
    pub softirq_ns: u64,
    /// Involuntary wait while the hypervisor ran another virtual CPU.
    pub steal_ns: u64,
}

impl CpuStat {
    /// The time since an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        // idle and iowait can go back a little (proc_stat(5)).
        let passed = |of: fn(&Self) -> u64| of(self).saturating_sub(of(earlier));
        Self {
            user_ns: passed(|times| times.user_ns),
            nice_ns: passed(|times| times.nice_ns),
            system_ns: passed(|times| times.system_ns),
            idle_ns: passed(|times| times.idle_ns),
            iowait_ns: passed(|times| times.iowait_ns),
            irq_ns: passed(|times| times.irq_ns),
            softirq_ns: passed(|times| times.softirq_ns),
            steal_ns: passed(|times| times.steal_ns),
        }
    }

    /// The sum of all states.
    pub fn total_ns(&self) -> u64 {
        self.busy_ns() + self.idle_ns + self.iowait_ns
    }

    /// All but idle and iowait, as in `top`.
    pub fn busy_ns(&self) -> u64 {
        let tasks = self.user_ns + self.nice_ns + self.system_ns;
        tasks + self.irq_ns + self.softirq_ns + self.steal_ns
    }
}

/// The times of each CPU that is online.
pub fn cpu_times() -> Result<BTreeMap<usize, CpuStat>> {
    let tick_ns = 1_000_000_000 / clock_ticks_per_second().max(1);
    let text = fs::read_to_string(STAT).with_context(|| format!("cannot read {STAT}"))?;
    Ok(parse_stat(&text, tick_ns))
}

fn parse_stat(text: &str, tick_ns: u64) -> BTreeMap<usize, CpuStat> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("cpu"));
    let parse = |line: &str| {
        let (cpu, ticks) = line.split_once(' ')?;
        let mut ticks = ticks.split_whitespace();
        // Kernels before 2.6.11 have fewer columns, later ones more.
        let mut next = || ticks.next().and_then(|word| word.parse::<u64>().ok());
        let mut next_ns = || next().unwrap_or(0) * tick_ns;
        let times = CpuStat {
            user_ns: next_ns(),
            nice_ns: next_ns(),
            system_ns: next_ns(),
            idle_ns: next_ns(),
            iowait_ns: next_ns(),
            irq_ns: next_ns(),
            softirq_ns: next_ns(),
            steal_ns: next_ns(),
        };
        Some((cpu.parse().ok()?, times))
    };
    lines.filter_map(parse).collect()
}

/// Whether the kernel measures the time of interrupts rather than sampling it by ticks;
/// `None` if how it was built cannot be read.
///
/// A kernel that was built to do so still does not where its clock is unstable or it was
/// started with `tsc=noirqtime`.
pub fn irq_time_accounting() -> Option<bool> {
    let config = KernelConfig::read().ok()?;
    let native = config.has("CONFIG_VIRT_CPU_ACCOUNTING_NATIVE");
    Some(native || config.has("CONFIG_IRQ_TIME_ACCOUNTING"))
}

#[cfg(test)]
mod tests {
    use hostnet::cpulist::CpuList;

    use super::*;

    const STAT: &str = "\
cpu  873688 22 272057 1028982 12094 0 140243 1164 0 0
cpu0 405005 9 127848 556405 3879 0 70638 606 0 0
cpu3 468683 13 144208 472577 8215 7 69605 557 0 0
intr 14869949 0 0
";

    #[test]
    fn times_are_read_by_cpu() {
        let times = parse_stat(STAT, 10_000_000);
        assert_eq!(times.keys().copied().collect::<Vec<_>>(), [0, 3]);
        let third = times[&3];
        assert_eq!(third.user_ns, 4_686_830_000_000);
        assert_eq!((third.irq_ns, third.steal_ns), (70_000_000, 5_570_000_000));
        let first = times[&0];
        assert_eq!(first.total_ns() - first.busy_ns(), 5_602_840_000_000);
        let passed = third.since(&CpuStat {
            user_ns: 4_686_820_000_000,
            idle_ns: u64::MAX,
            ..third
        });
        assert_eq!(
            passed,
            CpuStat {
                user_ns: 10_000_000,
                ..CpuStat::default()
            }
        );
    }

    #[test]
    fn this_host_has_times_for_each_cpu_online() {
        let times = cpu_times().expect("times");
        let online = CpuList::online().expect("a list");
        assert!(online.as_slice().iter().eq(times.keys()));
        assert!(times.values().all(|times| times.total_ns() > 0));
    }
}
