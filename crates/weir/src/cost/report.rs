//! The report of a measurement: the figures of each method, their agreement, and notes.

use std::collections::BTreeMap;

use hostnet::softnet::Softnet;
use serde::Serialize;

use crate::accounting::busy_loop::CpuLoss;
use crate::accounting::duty_cycle::{CpuSlices, Observed};
use crate::accounting::interrupts::{NET_RX, NET_TX};
use crate::accounting::ledger::{GapLedger, Row, tracepoint_rows};
use crate::accounting::measure::{DeviceTraffic, Ended, Measured};
use crate::accounting::proc_stat::CpuStat;
use crate::accounting::tracepoints::{CpuTotals, Irq, Napi, TaskTime};
use crate::report::Machine;
use crate::report::statistics::{Estimate, share};

/// The largest difference of two figures that agree, in percent of a CPU.
pub const AGREEMENT: f64 = 2.0;

/// The report, and its form in JSON.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The machine, the build and the command.
    pub host: Machine,
    /// The source of the packets: this host, or a lab with its rate.
    pub traffic_source: String,
    /// In a lab, the CPUs of its sender and its receiver.
    pub cpu_roles: Option<String>,
    /// The duration.
    pub seconds: f64,
    /// The reason for an early end.
    pub ended: Option<Ended>,
    /// CPU by CPU.
    pub cpus: Vec<CpuReport>,
    /// Processes and kernel threads with interrupts in their context, the most affected first.
    pub interrupted_tasks: Vec<InterruptedTask>,
    /// NAPI instances, the busiest first.
    pub napi: Vec<NapiReport>,
    /// Devices' interrupts, the most expensive first.
    pub irqs: Vec<IrqReport>,
    /// The devices' packets.
    pub devices: Vec<DeviceReport>,
    /// CPU time spent on networking on the measured CPUs, by tracepoints and in all namespaces, in
    /// nanoseconds for each packet that the devices received; `None` if no device was chosen, as a
    /// packet may pass several.
    pub network_ns_per_packet: Option<f64>,
    /// The cost of the measurement itself.
    pub overhead: Overhead,
    /// Unavailable measurements with their reasons, and limits of the figures.
    pub notes: Vec<String>,
}

/// One CPU.
#[derive(Debug, Clone, Serialize)]
pub struct CpuReport {
    /// Its number.
    pub cpu: usize,
    /// By a busy loop.
    pub busy_loop: Option<BusyLoopReport>,
    /// By tracepoints.
    pub tracepoints: Option<TracepointReport>,
    /// By /proc/stat.
    pub proc_stat: Option<ProcStatReport>,
    /// By `/proc/net/softnet_stat`.
    pub softnet: Option<Softnet>,
    /// The agreement of the methods, one sentence each.
    pub agreement: Vec<String>,
}

/// CPU time lost, by a busy loop.
#[derive(Debug, Clone, Serialize)]
pub struct BusyLoopReport {
    /// CPU time lost to interrupts, softirqs and their threads, or outside the kernel, in percent of
    /// the time left by other tasks.
    pub lost_percent: f64,
    /// Half the width of its 95% confidence interval, in percentage points.
    pub ci95_half_width: Option<f64>,
    /// Other tasks, in percent of the CPU's time.
    pub other_tasks_percent: f64,
    /// The time by consumer, gap by gap, in percent of the CPU's; `None` without tracepoints.
    pub ledger: Option<GapLedger>,
    /// Reasons to distrust the figures.
    pub warnings: Vec<String>,
}

/// The CPU's time by consumer, by tracepoints, in percent of it.
#[derive(Debug, Clone, Serialize)]
pub struct TracepointReport {
    /// Interrupts and softirqs of every kind, with their threads.
    pub interrupts_percent: f64,
    /// Half the width of its 95% confidence interval, in percentage points.
    pub ci95_half_width: Option<f64>,
    /// The network's part: `NET_RX`, `NET_TX`, NAPI threads and a part of ksoftirqd.
    pub network_percent: f64,
    /// Handlers of devices' interrupts.
    pub irq_percent: f64,
    /// The timer's interrupt and IPIs; `None` where they have no tracepoints.
    pub timer_and_ipi_percent: Option<f64>,
    /// `NET_RX` softirqs.
    pub net_rx_percent: f64,
    /// The part of it while the CPU was otherwise idle.
    pub net_rx_in_idle_percent: f64,
    /// The part of it in ksoftirqd.
    pub net_rx_in_ksoftirqd_percent: f64,
    /// The part of it in the context of tasks.
    pub net_rx_in_tasks_percent: f64,
    /// `NET_TX` softirqs: deferred transmission.
    pub net_tx_percent: f64,
    /// Other softirqs.
    pub other_softirq_percent: f64,
    /// ksoftirqd, outside its softirqs.
    pub ksoftirqd_percent: f64,
    /// Threads of threaded NAPI.
    pub napi_thread_percent: f64,
    /// Idle.
    pub idle_percent: f64,
    /// Lost outside the kernel, by late timers, without the busy loop's and the idle task's own time;
    /// in none of the above.
    pub outside_percent: f64,
    /// All of the CPU's time; the rows sum up to 100%.
    pub ledger: Vec<Row>,
    /// `NET_RX` softirqs a second.
    pub net_rx_per_second: f64,
    /// NAPI polls a second.
    pub polls_per_second: f64,
    /// Hard interrupts a second, with the timer's and IPIs where they have tracepoints.
    pub interrupts_per_second: f64,
}

impl TracepointReport {
    /// The sum of /proc/stat's irq and softirq.
    fn softirqs_and_irqs(&self) -> f64 {
        self.irq_percent
            + self.timer_and_ipi_percent.unwrap_or(0.0)
            + self.net_rx_percent
            + self.net_tx_percent
            + self.other_softirq_percent
    }
}

/// The CPU's time by /proc/stat, in percent of it.
#[derive(Debug, Clone, Serialize)]
pub struct ProcStatReport {
    /// Hard interrupts.
    pub irq_percent: f64,
    /// Softirqs.
    pub softirq_percent: f64,
    /// Steal time.
    pub steal_percent: f64,
    /// Idle, with iowait.
    pub idle_percent: f64,
}

/// A task with interrupts in its context.
#[derive(Debug, Clone, Serialize)]
pub struct InterruptedTask {
    /// Its PID.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Its time.
    #[serde(flatten)]
    pub time: TaskTime,
    /// Interrupts in its context, in percent of its `running_ns`.
    pub lost_percent: f64,
}

/// A NAPI instance.
#[derive(Debug, Clone, Serialize)]
pub struct NapiReport {
    /// Its counters.
    #[serde(flatten)]
    pub napi: Napi,
    /// Packets a poll.
    pub packets_per_poll: f64,
    /// Polls that used up their budget, in percent.
    pub budget_exhausted_percent: f64,
    /// Nanoseconds a packet; `None` without packets.
    pub ns_per_packet: Option<f64>,
}

/// A device's interrupt.
#[derive(Debug, Clone, Serialize)]
pub struct IrqReport {
    /// Its counters.
    #[serde(flatten)]
    pub irq: Irq,
    /// Its name in /proc/interrupts.
    pub name: String,
}

/// A device.
#[derive(Debug, Clone, Serialize)]
pub struct DeviceReport {
    /// Its packets.
    #[serde(flatten)]
    pub traffic: DeviceTraffic,
    /// Packets received a second.
    pub rx_pps: f64,
    /// Packets sent a second.
    pub tx_pps: f64,
    /// Nanoseconds of its NAPI for each packet received; `None` if it has no NAPI of its own, or
    /// received nothing.
    pub ns_per_packet: Option<f64>,
}

/// The cost of the measurement.
#[derive(Debug, Clone, Serialize)]
pub struct Overhead {
    /// The tracepoints' programs, in percent of one CPU, summed over all measured CPUs: measured by
    /// the kernel in some windows, or estimated from run counts.
    pub tracepoints_percent: Option<f64>,
    /// The mean run time of such a program, without its entry and exit.
    pub ns_per_run: Option<f64>,
    /// The duty cycle of the tracepoints: 100, unless that would exceed the limit.
    pub duty_cycle_percent: Option<f64>,
    /// Reading the sums, in percent of one CPU, without the busy loops.
    pub reading_percent: f64,
}

/// The circumstances of the measurement.
pub struct Setting {
    /// The machine.
    pub host: Machine,
    /// The source of the packets.
    pub place: String,
    /// Whether /proc/stat measures interrupts; `None` if that is unknown.
    pub irq_time_accounting: Option<bool>,
    /// Names of interrupts.
    pub irq_names: BTreeMap<u64, String>,
    /// Whether packets are counted on chosen devices instead of all.
    pub devices_chosen: bool,
    /// In a lab, the CPUs of its sender and its receiver.
    pub roles: Option<String>,
}

impl Report {
    /// The report of a measurement.
    pub fn new(setting: Setting, cpus: &[usize], measured: &Measured) -> Self {
        let seconds = measured.elapsed.as_secs_f64();
        let observed = measured.tracepoints.as_ref().ok();
        let cpus: Vec<CpuReport> = cpus
            .iter()
            .map(|cpu| cpu_report(*cpu, measured, setting.irq_time_accounting))
            .collect();
        let napis = observed.map_or(&[][..], |it| &it.napis);
        let mut notes = unavailable(measured);
        notes.extend(irq_time_note(setting.irq_time_accounting));
        Self {
            host: setting.host,
            traffic_source: setting.place,
            cpu_roles: setting.roles,
            seconds,
            ended: measured.ended,
            interrupted_tasks: interrupted_tasks(measured),
            napi: napi_reports(napis),
            irqs: irq_reports(measured, &setting.irq_names),
            devices: device_reports(measured, napis),
            network_ns_per_packet: setting
                .devices_chosen
                .then(|| network_ns_per_packet(measured))
                .flatten(),
            overhead: overhead(measured),
            cpus,
            notes,
        }
    }
}

fn unavailable(measured: &Measured) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |method: &str, error: Option<&String>| {
        notes.extend(error.map(|reason| format!("{method}: {reason}.")));
    };
    note("Busy loops", measured.busy_loops.as_ref().err());
    note("Tracepoints", measured.tracepoints.as_ref().err());
    note("/proc/stat", measured.proc_stat.as_ref().err());
    note("/proc/net/softnet_stat", measured.softnet.as_ref().err());
    if measured.busy_loops.is_ok() && measured.tracepoints.is_err() {
        notes.push(
            "Without tracepoints, lost CPU time cannot be attributed to the network, other interrupts, \
             or the outside (hypervisor, firmware)."
                .into(),
        );
    }
    if let Ok(observed) = &measured.tracepoints {
        if !observed.sees_vectors {
            notes.push(
                "IPIs have no tracepoints on this architecture (x86 has them): they are missing. So is the \
                 timer's interrupt, but not on arm64, where it is an ordinary one."
                    .into(),
            );
        }
        if !observed.sees_late_timers {
            notes.push(
                "The fields of this kernel's timers are unknown: time lost outside the kernel while \
                 softirqs or other tasks ran counts as theirs."
                    .into(),
            );
        }
        notes.extend(unreported(&observed.slices));
        if observed.own_ns_per_run.is_none() {
            notes.push(
                "The cost of the tracepoints could not be measured, which needs CAP_SYS_ADMIN: it is \
                 estimated from run counts, at 150 ns each."
                    .into(),
            );
        }
    }
    notes.extend(incomplete(measured));
    for device in &measured.devices {
        if let Some(after) = device.vanished_after_seconds {
            notes.push(format!(
                "{} vanished after {after:.1} s; its figures end there.",
                device.name
            ));
        }
    }
    notes
}

/// Context switches without a tracepoint.
fn unreported(slices: &CpuSlices) -> Option<String> {
    let sum = |of: fn(&CpuTotals) -> u64| slices.totals.iter().map(of).sum::<u64>();
    let switches = sum(|cpu| cpu.times.unreported_switches);
    let around = percent(
        sum(|cpu| cpu.times.unreported_ns),
        sum(|cpu| cpu.observed_ns),
    );
    (switches > 0).then(|| {
        format!(
            "This kernel did not report {switches} context switches: the {around:.2}% of the time \
             before them, with its softirqs, cannot be attributed."
        )
    })
}

/// CPUs that went offline, and full maps.
fn incomplete(measured: &Measured) -> Vec<String> {
    let Ok(observed) = &measured.tracepoints else {
        return Vec::new();
    };
    let mut notes: Vec<String> = observed
        .slices
        .totals
        .iter()
        .filter(|cpu| cpu.observed_ns < observed.slices.wall_ns / 10 * 9)
        .map(|cpu| {
            format!(
                "CPU {} went offline, or was not observed all the time: its figures are of a part of \
                 it.",
                cpu.cpu
            )
        })
        .collect();
    if observed.lists_full {
        notes.push(
            "The list of NAPI instances or of interrupts is full and may be incomplete.".into(),
        );
    }
    notes
}

/// A warning about other tools where the kernel does not measure interrupts.
fn irq_time_note(irq_time_accounting: Option<bool>) -> Option<String> {
    (irq_time_accounting == Some(false)).then(|| {
        "IRQ time accounting is off in this kernel (CONFIG_IRQ_TIME_ACCOUNTING): top, mpstat and \
         /proc/PID/stat charge interrupts and softirqs to the interrupted task, and sample %irq \
         and %soft by the tick."
            .into()
    })
}

fn percent(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64 * 100.0
}

fn cpu_report(cpu: usize, measured: &Measured, irq_time_accounting: Option<bool>) -> CpuReport {
    let busy_loops = measured.busy_loops.as_ref().ok();
    let observed = measured.tracepoints.as_ref().ok();
    let proc_stat = measured.proc_stat.as_ref().ok();
    let softnet = measured.softnet.as_ref().ok();
    let mut report = CpuReport {
        cpu,
        busy_loop: busy_loops
            .and_then(|all| all.iter().find(|it| it.cpu == cpu))
            .map(BusyLoopReport::from),
        tracepoints: observed.and_then(|it| tracepoint_report(cpu, it)),
        proc_stat: proc_stat
            .and_then(|all| all.get(&cpu))
            .map(ProcStatReport::from),
        softnet: softnet.and_then(|all| all.get(&cpu)).copied(),
        agreement: Vec::new(),
    };
    report.agreement = agreement(&report, irq_time_accounting);
    report
}

impl From<&CpuLoss> for BusyLoopReport {
    fn from(loss: &CpuLoss) -> Self {
        let wall = loss.total.wall_ns;
        // A measured difference may be slightly negative.
        let left = loss.total.left_ns();
        let share_of = |ns: i64| percent(u64::try_from(ns).unwrap_or(0), left);
        Self {
            lost_percent: share_of(loss.lost_ns()),
            ci95_half_width: half_width(loss.lost_share()),
            other_tasks_percent: percent(loss.total.other_tasks_ns(), wall),
            ledger: GapLedger::of(loss),
            warnings: loss
                .calibration
                .warnings
                .iter()
                .map(ToString::to_string)
                .collect(),
        }
    }
}

fn half_width(estimate: Option<Estimate>) -> Option<f64> {
    Some(estimate?.half_width? * 100.0)
}

fn tracepoint_report(cpu: usize, observed: &Observed) -> Option<TracepointReport> {
    let slices = &observed.slices;
    let index = slices.totals.iter().position(|it| it.cpu == cpu)?;
    let all = &slices.totals[index];
    let wall = all.observed_ns;
    // The CPU was never observed.
    if all.observed_ns == 0 {
        return None;
    }
    let share_of = |ns| percent(ns, wall);
    let receive = all.softirq[NET_RX];
    let softirqs: u64 = all.softirq.iter().map(|it| it.ns).sum();
    let network = receive.ns + all.softirq[NET_TX].ns;
    let seconds = wall as f64 / 1e9;
    Some(TracepointReport {
        interrupts_percent: share_of(all.interrupts_ns()),
        ci95_half_width: half_width(share(&slices.interrupts[index])),
        network_percent: share_of(all.network_ns()),
        irq_percent: share_of(all.times.irq_ns),
        timer_and_ipi_percent: observed
            .sees_vectors
            .then(|| share_of(all.times.vector_ns.iter().sum())),
        net_rx_percent: share_of(receive.ns),
        net_rx_in_idle_percent: share_of(receive.idle_ns),
        net_rx_in_ksoftirqd_percent: share_of(receive.ksoftirqd_ns),
        net_rx_in_tasks_percent: share_of(
            receive
                .ns
                .saturating_sub(receive.idle_ns + receive.ksoftirqd_ns),
        ),
        net_tx_percent: share_of(all.softirq[NET_TX].ns),
        other_softirq_percent: share_of(softirqs - network),
        ksoftirqd_percent: share_of(all.times.ksoftirqd_ns),
        napi_thread_percent: share_of(all.times.napi_thread_ns),
        idle_percent: share_of(all.times.idle_ns),
        outside_percent: share_of(all.times.outside_ns),
        ledger: tracepoint_rows(all),
        net_rx_per_second: receive.count as f64 / seconds,
        polls_per_second: all.polls as f64 / seconds,
        interrupts_per_second: all.times.interrupts as f64 / seconds,
    })
}

impl From<&CpuStat> for ProcStatReport {
    fn from(ticks: &CpuStat) -> Self {
        let all = ticks.total_ns();
        Self {
            irq_percent: percent(ticks.irq_ns, all),
            softirq_percent: percent(ticks.softirq_ns, all),
            steal_percent: percent(ticks.steal_ns, all),
            idle_percent: percent(ticks.idle_ns + ticks.iowait_ns, all),
        }
    }
}

/// The agreement of the methods, with the likely reasons for a difference.
fn agreement(report: &CpuReport, irq_time_accounting: Option<bool>) -> Vec<String> {
    let mut sentences = Vec::new();
    let ledger = report.busy_loop.as_ref().and_then(|it| it.ledger.as_ref());
    if let (Some(ledger), Some(tracepoints)) = (ledger, &report.tracepoints) {
        sentences.push(outside(ledger, tracepoints));
    }
    if let (Some(tracepoints), Some(stat)) = (&report.tracepoints, &report.proc_stat) {
        let difference = tracepoints.softirqs_and_irqs() - stat.irq_percent - stat.softirq_percent;
        let verdict = if difference.abs() <= AGREEMENT {
            "they agree"
        } else {
            stat_differs(irq_time_accounting)
        };
        sentences.push(format!(
            "tracepoints minus /proc/stat: {difference:+.1} points: {verdict}"
        ));
    }
    sentences
}

/// The time outside the kernel, and the agreement of the rest with the tracepoints' own sums.
fn outside(ledger: &GapLedger, tracepoints: &TracepointReport) -> String {
    let difference = ledger.kernel_percent() - tracepoints.interrupts_percent;
    let rate = tracepoints.interrupts_per_second;
    let entry_ns = ledger.outside_entry_percent / 100.0 * 1e9 / rate.max(1.0);
    let gaps: u64 = ledger.gaps.iter().map(|it| it.count).sum();
    let usual = ledger.gaps.iter().max_by_key(|it| it.ns);
    let length = match usual.map(|it| it.up_to_ns) {
        _ if gaps == 0 => String::new(),
        Some(Some(ns)) => format!(", most of them up to {}", duration(ns)),
        _ => ", most of them longer than 10 ms".into(),
    };
    format!(
        "{:.1}% outside the kernel: {:.1}% entry and exit of {rate:.0} interrupts a second ({} each), \
         {:.1}% in gaps, {gaps} of them without any work of the kernel{length}, the longest {}, and \
         {:.1}% by late timers; the rest of the loss differs by {difference:+.1} points from the \
         tracepoints' own sums",
        ledger.outside.percent,
        ledger.outside_entry_percent,
        duration(entry_ns.max(0.0) as u64),
        ledger.outside_gaps_percent,
        duration(ledger.longest_gap_ns),
        ledger.outside_late_timers_percent,
    )
}

fn duration(ns: u64) -> String {
    match ns {
        ..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        _ => format!("{:.1} ms", ns as f64 / 1e6),
    }
}

fn stat_differs(irq_time_accounting: Option<bool>) -> &'static str {
    match irq_time_accounting {
        Some(false) => {
            "without IRQ time accounting /proc/stat samples the current context at each tick"
        }
        Some(true) => {
            "with IRQ time accounting /proc/stat includes the time before and after the tracepoints"
        }
        None => {
            "/proc/stat samples by ticks if this kernel was built without \
             CONFIG_IRQ_TIME_ACCOUNTING, which is unknown here"
        }
    }
}

fn interrupted_tasks(measured: &Measured) -> Vec<InterruptedTask> {
    let Ok(observed) = &measured.tracepoints else {
        return Vec::new();
    };
    let mut tasks: Vec<InterruptedTask> = observed
        .tasks
        .iter()
        .filter(|task| task.pid != 0 && task.time.interrupts_ns() > 0)
        .map(|task| InterruptedTask {
            pid: task.pid,
            name: if task.pid == std::process::id() {
                "this measurement".into()
            } else {
                task.name.clone()
            },
            time: task.time,
            lost_percent: percent(task.time.interrupts_ns(), task.time.running_ns),
        })
        .collect();
    let unlisted = observed
        .slices
        .totals
        .iter()
        .fold(TaskTime::default(), |sum, cpu| sum.plus(cpu.unlisted));
    if unlisted.interrupts_ns() > 0 {
        tasks.push(InterruptedTask {
            pid: 0,
            name: "tasks beyond the 1024 that are listed".into(),
            time: unlisted,
            lost_percent: percent(unlisted.interrupts_ns(), unlisted.running_ns),
        });
    }
    tasks.sort_by_key(|task| std::cmp::Reverse(task.time.interrupts_ns()));
    tasks
}

fn napi_reports(napis: &[Napi]) -> Vec<NapiReport> {
    let mut reports: Vec<NapiReport> = napis
        .iter()
        .map(|napi| NapiReport {
            packets_per_poll: napi.packets as f64 / napi.polls.max(1) as f64,
            budget_exhausted_percent: percent(napi.budget_exhausted, napi.polls),
            ns_per_packet: (napi.packets > 0).then(|| napi.ns as f64 / napi.packets as f64),
            napi: napi.clone(),
        })
        .collect();
    reports.sort_by_key(|it| std::cmp::Reverse((it.napi.ns, it.napi.packets)));
    reports
}

fn irq_reports(measured: &Measured, names: &BTreeMap<u64, String>) -> Vec<IrqReport> {
    let Ok(observed) = &measured.tracepoints else {
        return Vec::new();
    };
    let mut reports: Vec<IrqReport> = observed
        .irqs
        .iter()
        .map(|irq| IrqReport {
            name: names.get(&irq.irq).cloned().unwrap_or_default(),
            irq: irq.clone(),
        })
        .collect();
    reports.sort_by_key(|it| std::cmp::Reverse(it.irq.ns));
    reports
}

fn device_reports(measured: &Measured, napis: &[Napi]) -> Vec<DeviceReport> {
    let seconds = measured.elapsed.as_secs_f64().max(f64::EPSILON);
    let report = |traffic: &DeviceTraffic| {
        let ns: u64 = napis
            .iter()
            .filter(|napi| napi.device == traffic.name && napi.netns == traffic.netns)
            .map(|napi| napi.ns)
            .sum();
        let packets = traffic.rx_packets;
        let seconds = traffic.vanished_after_seconds.unwrap_or(seconds);
        DeviceReport {
            rx_pps: packets as f64 / seconds,
            tx_pps: traffic.tx_packets as f64 / seconds,
            ns_per_packet: (packets > 0 && ns > 0).then(|| ns as f64 / packets as f64),
            traffic: traffic.clone(),
        }
    };
    measured.devices.iter().map(report).collect()
}

/// CPU time spent on networking on the measured CPUs, for each packet of the devices.
fn network_ns_per_packet(measured: &Measured) -> Option<f64> {
    let slices = &measured.tracepoints.as_ref().ok()?.slices;
    let of_a_cpu = |cpu: &CpuTotals| cpu.network_ns() as f64 / cpu.observed_ns.max(1) as f64;
    let packets: u64 = measured.devices.iter().map(|it| it.rx_packets).sum();
    let of_a_second: f64 = slices.totals.iter().map(of_a_cpu).sum();
    let all = of_a_second * measured.elapsed.as_nanos() as f64;
    (packets > 0).then(|| all / packets as f64)
}

fn overhead(measured: &Measured) -> Overhead {
    let observed = measured.tracepoints.as_ref().ok();
    Overhead {
        tracepoints_percent: observed.map(|it| it.own_percent),
        ns_per_run: observed.and_then(|it| it.own_ns_per_run),
        duty_cycle_percent: observed.map(|it| it.share * 100.0),
        reading_percent: percent(measured.own_ns, measured.elapsed.as_nanos() as u64),
    }
}
