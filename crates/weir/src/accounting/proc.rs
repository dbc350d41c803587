//! What /proc and /sys say of CPUs, beside the two measurements: times by state, the
//! backlogs of the network, interrupts, and how far these figures can be trusted.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result};
use rustix::param::clock_ticks_per_second;
use serde::Serialize;

use hostnet::cpulist::CpuList;
use hostnet::kernel_config::KernelConfig;

/// Where one CPU spent its time, in nanoseconds, of /proc/stat (`proc_stat(5)`).
///
/// The kernel shows it in ticks of `1/USER_HZ` s. Where it does not account interrupt time
/// ([`irq_time_accounting`]) it charges each timer tick to what it finds running: `irq` is then
/// 0 and `softirq` a sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CpuTimes {
    /// Programs.
    pub user_ns: u64,
    /// Programs with a lowered priority.
    pub nice_ns: u64,
    /// The kernel for programs, and its threads.
    pub system_ns: u64,
    /// Nothing.
    pub idle_ns: u64,
    /// Nothing, while a disk was waited for.
    pub iowait_ns: u64,
    /// Interrupts.
    pub irq_ns: u64,
    /// Softirqs.
    pub softirq_ns: u64,
    /// The hypervisor ran something else.
    pub steal_ns: u64,
}

impl CpuTimes {
    /// What passed since an earlier reading.
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

    /// All of it.
    pub fn total_ns(&self) -> u64 {
        self.busy_ns() + self.idle_ns + self.iowait_ns
    }

    /// All but idling, as `top` has it.
    pub fn busy_ns(&self) -> u64 {
        let programs = self.user_ns + self.nice_ns + self.system_ns;
        programs + self.irq_ns + self.softirq_ns + self.steal_ns
    }
}

/// The times of each CPU that is online.
pub fn cpu_times() -> Result<BTreeMap<usize, CpuTimes>> {
    let tick_ns = 1_000_000_000 / clock_ticks_per_second().max(1);
    Ok(parse_stat(&read("/proc/stat")?, tick_ns))
}

fn parse_stat(text: &str, tick_ns: u64) -> BTreeMap<usize, CpuTimes> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("cpu"));
    let parse = |line: &str| {
        let (cpu, ticks) = line.split_once(' ')?;
        let mut ticks = ticks.split_whitespace();
        // Kernels before 2.6.11 have fewer columns, later ones more.
        let mut next = || ticks.next().and_then(|word| word.parse::<u64>().ok());
        let mut next_ns = || next().unwrap_or(0) * tick_ns;
        let times = CpuTimes {
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

/// What one CPU did for the network, of `/proc/net/softnet_stat` (`softnet_seq_show` in
/// net/core/net-procfs.c). The kernel counts in 32 bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Softnet {
    /// Frames that went through the backlog or a NAPI poll that counts them.
    pub processed: u32,
    /// Frames dropped because the backlog was full.
    pub dropped: u32,
    /// How often `net_rx_action` ended with work left, out of budget or time.
    pub time_squeeze: u32,
    /// How often another CPU asked this one to process its backlog.
    pub received_rps: u32,
    /// Frames dropped by the flow limit.
    pub flow_limit: u32,
    /// Frames in the backlog at this moment; kernels before 5.10 do not tell.
    pub backlog: Option<u32>,
}

impl Softnet {
    /// What happened since an earlier reading; `backlog` stays what it is.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            processed: self.processed.wrapping_sub(earlier.processed),
            dropped: self.dropped.wrapping_sub(earlier.dropped),
            time_squeeze: self.time_squeeze.wrapping_sub(earlier.time_squeeze),
            received_rps: self.received_rps.wrapping_sub(earlier.received_rps),
            flow_limit: self.flow_limit.wrapping_sub(earlier.flow_limit),
            backlog: self.backlog,
        }
    }
}

/// What each CPU that is online did for the network.
pub fn softnet() -> Result<BTreeMap<usize, Softnet>> {
    let text = read("/proc/net/softnet_stat")?;
    Ok(parse_softnet(&text, CpuList::online()?.as_slice()))
}

/// One line for each CPU of `online`, which is where older kernels leave out its number.
fn parse_softnet(text: &str, online: &[usize]) -> BTreeMap<usize, Softnet> {
    let parse = |(index, line): (usize, &str)| {
        let words = line.split_whitespace();
        let columns: Vec<u32> = words
            .map(|word| u32::from_str_radix(word, 16).unwrap_or(0))
            .collect();
        let column = |index: usize| columns.get(index).copied();
        let softnet = Softnet {
            processed: column(0)?,
            dropped: column(1)?,
            time_squeeze: column(2)?,
            received_rps: column(9).unwrap_or(0),
            flow_limit: column(10).unwrap_or(0),
            backlog: column(11),
        };
        let cpu = column(12).map(|cpu| cpu as usize);
        Some((cpu.or(online.get(index).copied())?, softnet))
    };
    text.lines().enumerate().filter_map(parse).collect()
}

/// One line of /proc/interrupts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Interrupt {
    /// Its number, or the kernel's short name, such as `LOC`.
    pub id: String,
    /// Controller, kind and device, as the kernel writes them.
    pub name: String,
    /// How often it came, by CPU.
    pub counts: BTreeMap<usize, u64>,
}

impl Interrupt {
    /// How often it came to these CPUs.
    pub fn total(&self, cpus: &[usize]) -> u64 {
        cpus.iter().filter_map(|cpu| self.counts.get(cpu)).sum()
    }
}

/// The interrupts of this host.
pub fn interrupts() -> Result<Vec<Interrupt>> {
    Ok(parse_interrupts(&read("/proc/interrupts")?))
}

/// How often each interrupt came between two readings, those that did not left out.
pub fn interrupts_since(now: &[Interrupt], earlier: &[Interrupt]) -> Vec<Interrupt> {
    let passed = |interrupt: &Interrupt| {
        let before = earlier.iter().find(|before| before.id == interrupt.id);
        let before = |cpu| before.and_then(|before| before.counts.get(cpu).copied());
        let counts = interrupt.counts.iter().map(|(cpu, count)| {
            let passed = count.saturating_sub(before(cpu).unwrap_or(0));
            (*cpu, passed)
        });
        Interrupt {
            counts: counts.filter(|(_, count)| *count > 0).collect(),
            ..interrupt.clone()
        }
    };
    let all = now.iter().map(passed);
    all.filter(|interrupt| !interrupt.counts.is_empty())
        .collect()
}

fn parse_interrupts(text: &str) -> Vec<Interrupt> {
    let mut lines = text.lines();
    // Only CPUs that are online have a column.
    let heads = lines.next().unwrap_or_default().split_whitespace();
    let cpus: Vec<usize> = heads
        .filter_map(|head| head.strip_prefix("CPU")?.parse().ok())
        .collect();
    let parse = |line: &str| {
        let (id, mut rest) = line.split_once(':')?;
        let mut counts = BTreeMap::new();
        for cpu in &cpus {
            let (word, after) = next_word(rest);
            // ERR and MIS have one figure for all CPUs.
            let Ok(count) = word.parse() else { break };
            counts.insert(*cpu, count);
            rest = after;
        }
        let name: Vec<_> = rest.split_whitespace().collect();
        Some(Interrupt {
            id: id.trim().into(),
            name: name.join(" "),
            counts: counts.clone(),
        })
        .filter(|_| counts.len() == cpus.len())
    };
    lines.filter_map(parse).collect()
}

fn next_word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    text.split_once(char::is_whitespace).unwrap_or((text, ""))
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

/// The clock source in use.
pub const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// The name of the clock source in use.
pub fn clock_source() -> String {
    let name = fs::read_to_string(CLOCK_SOURCE).unwrap_or_default();
    match name.trim() {
        "" => "unknown".into(),
        name => name.into(),
    }
}

/// The frequency of a CPU at this moment, in kHz; `None` where the kernel does not set it, as in
/// most guests.
pub fn frequency_khz(cpu: usize) -> Option<u64> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq");
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {path}"))
}

#[cfg(test)]
mod tests {
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
        let passed = third.since(&CpuTimes {
            user_ns: 4_686_820_000_000,
            idle_ns: u64::MAX,
            ..third
        });
        assert_eq!(
            passed,
            CpuTimes {
                user_ns: 10_000_000,
                ..CpuTimes::default()
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

    #[test]
    fn softnet_is_read_from_old_and_new_kernels() {
        let new = "\
2ff65b9d 00000001 00000045 00000000 00000000 00000000 00000000 00000000 00000000 00000003 00000004 00000005 00000000 00000000 00000000
3c8534a1 00000000 0000001b 00000000 00000000 00000000 00000000 00000000 00000000 00000001 00000000 00000000 00000007 00000000 00000000
";
        let softnet = parse_softnet(new, &[0, 7]);
        let expected = Softnet {
            processed: 0x2ff6_5b9d,
            dropped: 1,
            time_squeeze: 0x45,
            received_rps: 3,
            flow_limit: 4,
            backlog: Some(5),
        };
        assert_eq!(softnet[&0], expected);
        assert_eq!(softnet[&7].time_squeeze, 0x1b);
        let old = "0000000a 0 0 0 0 0 0 0 0 00000002 00000000\n".repeat(2);
        let softnet = parse_softnet(&old, &[0, 2]);
        assert_eq!((softnet[&2].processed, softnet[&2].backlog), (10, None));
    }

    #[test]
    fn softnet_counters_wrap() {
        let at = |processed| Softnet {
            processed,
            ..Softnet::default()
        };
        assert_eq!(at(5).since(&at(u32::MAX)).processed, 6);
    }

    const INTERRUPTS: &str = "           CPU0       CPU2
 36:          0    1161347 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0
 41:       4495          0 PCI-MSIX-0000:00:04.0   1-edge      virtio3-rx
LOC:    2945523    3179575   Local timer interrupts
ERR:          0
";

    #[test]
    fn interrupts_are_read_by_cpu() {
        let all = parse_interrupts(INTERRUPTS);
        assert_eq!(all.len(), 3);
        assert_eq!(all[0].id, "36");
        assert_eq!(all[0].name, "PCI-MSIX-0000:00:02.0 1-edge virtio1-req.0");
        assert_eq!(all[2].name, "Local timer interrupts");
        assert_eq!(all[2].total(&[2, 9]), 3_179_575);
        let later = parse_interrupts(&INTERRUPTS.replace("4495", "4500"));
        let passed = interrupts_since(&later, &all);
        assert_eq!((passed.len(), passed[0].total(&[0, 2])), (1, 5));
    }
}
