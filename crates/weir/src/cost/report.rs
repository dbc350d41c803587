//! What a measurement found: the figures, how they agree, and what could not be seen.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::accounting::busy_loop::Progress;
use crate::accounting::ledger::{GapLedger, Row, tracepoint_rows};
use crate::accounting::measure::{DeviceTraffic, Ended, Measured};
use crate::accounting::proc::{CpuTimes, Softnet};
use crate::accounting::tracepoints::abi::{NET_RX, NET_TX};
use crate::accounting::tracepoints::{CpuTotals, Irq, Napi, TaskTime};
use crate::accounting::watch::Slices;
use crate::report::Machine;
use crate::report::statistics::{Estimate, share};

/// Two figures that differ by no more than this are said to agree: percent of a CPU.
pub const AGREEMENT: f64 = 2.0;

/// The report; its JSON form.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The machine, the build and the command.
    pub host: Machine,
    /// Where packets came from.
    pub place: String,
    /// Which CPU does what, where packets are made for the measurement.
    pub setting: Option<String>,
    /// Seconds that were measured.
    pub seconds: f64,
    /// Why it ended before its time.
    pub ended: Option<Ended>,
    /// CPU by CPU.
    pub cpus: Vec<CpuReport>,
    /// Processes and kernel threads, those first from which most was taken.
    pub victims: Vec<Victim>,
    /// NAPI instances, the busiest first.
    pub napi: Vec<NapiReport>,
    /// Devices' interrupts, the dearest first.
    pub irqs: Vec<IrqReport>,
    /// What the devices carried.
    pub devices: Vec<DeviceReport>,
    /// What the network took on the measured CPUs, by tracepoints and in all namespaces, in
    /// nanoseconds for each packet that the devices received; `None` if no device was chosen, as a
    /// packet may pass several.
    pub network_ns_per_packet: Option<f64>,
    /// What the measurement itself cost.
    pub own: Own,
    /// What could not be measured, and why; and what else must be known to read the figures.
    pub notes: Vec<String>,
}

/// One CPU.
#[derive(Debug, Clone, Serialize)]
pub struct CpuReport {
    /// Its number.
    pub cpu: usize,
    /// By the progress of a program.
    pub progress: Option<ProgressReport>,
    /// By tracepoints.
    pub accounting: Option<AccountingReport>,
    /// By /proc/stat.
    pub proc_stat: Option<ProcStatReport>,
    /// By `/proc/net/softnet_stat`.
    pub softnet: Option<Softnet>,
    /// How these agree, one sentence each.
    pub agreement: Vec<String>,
}

/// What a program on the CPU lost, in percent of the time that other tasks left it.
#[derive(Debug, Clone, Serialize)]
pub struct ProgressReport {
    /// Taken by interrupts, softirqs and their threads.
    pub stolen_percent: f64,
    /// With 95% confidence the true value is within this of it.
    pub confidence: Option<f64>,
    /// What other tasks had, in percent of the CPU's time.
    pub other_tasks_percent: f64,
    /// Who had the time, gap by gap, in percent of the CPU's; `None` where tracepoints cannot tell.
    pub ledger: Option<GapLedger>,
    /// What is to be known of the calibration.
    pub notes: Vec<String>,
}

/// Where the CPU's time went, in percent of it.
#[derive(Debug, Clone, Serialize)]
pub struct AccountingReport {
    /// All of what follows, but for idle.
    pub stolen_percent: f64,
    /// With 95% confidence the true value is within this of it.
    pub confidence: Option<f64>,
    /// The network's part: `NET_RX`, `NET_TX`, NAPI threads and its part of ksoftirqd.
    pub network_percent: f64,
    /// Handlers of devices' interrupts.
    pub irq_percent: f64,
    /// The timer's interrupt and those from other CPUs; `None` where they cannot be seen.
    pub vector_percent: Option<f64>,
    /// Receiving, in softirqs.
    pub net_rx_percent: f64,
    /// The part of it while the CPU was otherwise idle.
    pub net_rx_in_idle_percent: f64,
    /// The part of it in ksoftirqd.
    pub net_rx_in_ksoftirqd_percent: f64,
    /// The rest of it: in the context of tasks.
    pub net_rx_in_tasks_percent: f64,
    /// Sending what could not be sent at once, in softirqs.
    pub net_tx_percent: f64,
    /// Other softirqs.
    pub other_softirq_percent: f64,
    /// ksoftirqd, outside its softirqs.
    pub ksoftirqd_percent: f64,
    /// Threads of threaded NAPI.
    pub napi_thread_percent: f64,
    /// Idle.
    pub idle_percent: f64,
    /// Taken from outside the kernel, but for the load's and the idle task's own time, as late timers
    /// tell it; in none of the above.
    pub outside_percent: f64,
    /// All of the CPU's time; the rows sum up to 100%.
    pub ledger: Vec<Row>,
    /// Softirqs of receiving a second.
    pub net_rx_per_second: f64,
    /// NAPI polls a second.
    pub polls_per_second: f64,
    /// Hard interrupts a second, those of the timer and from other CPUs included where they are
    /// seen.
    pub interrupts_per_second: f64,
}

impl AccountingReport {
    /// What /proc/stat calls irq and softirq.
    fn softirqs_and_irqs(&self) -> f64 {
        self.irq_percent
            + self.vector_percent.unwrap_or(0.0)
            + self.net_rx_percent
            + self.net_tx_percent
            + self.other_softirq_percent
    }
}

/// What /proc/stat says, in percent of the CPU's time.
#[derive(Debug, Clone, Serialize)]
pub struct ProcStatReport {
    /// Hard interrupts.
    pub irq_percent: f64,
    /// Softirqs.
    pub softirq_percent: f64,
    /// What the hypervisor gave to others.
    pub steal_percent: f64,
    /// Idle, or waiting for a disk.
    pub idle_percent: f64,
}

/// Who was interrupted.
#[derive(Debug, Clone, Serialize)]
pub struct Victim {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Its time.
    #[serde(flatten)]
    pub time: TaskTime,
    /// What was taken from it, in percent of the time that it seemed to run.
    pub lost_percent: f64,
}

/// A NAPI instance.
#[derive(Debug, Clone, Serialize)]
pub struct NapiReport {
    /// What was counted.
    #[serde(flatten)]
    pub napi: Napi,
    /// Packets a poll.
    pub packets_per_poll: f64,
    /// Polls that used up their budget, in percent.
    pub full_percent: f64,
    /// Nanoseconds a packet; `None` without packets.
    pub ns_per_packet: Option<f64>,
}

/// A device's interrupt.
#[derive(Debug, Clone, Serialize)]
pub struct IrqReport {
    /// What was counted.
    #[serde(flatten)]
    pub irq: Irq,
    /// What /proc/interrupts calls it.
    pub name: String,
}

/// A device.
#[derive(Debug, Clone, Serialize)]
pub struct DeviceReport {
    /// What it carried.
    #[serde(flatten)]
    pub traffic: DeviceTraffic,
    /// Packets received a second.
    pub rx_pps: f64,
    /// Packets sent a second.
    pub tx_pps: f64,
    /// Nanoseconds that its NAPI took for each packet received; `None` if it has no NAPI of its
    /// own, or received nothing.
    pub ns_per_packet: Option<f64>,
}

/// What the measurement cost.
#[derive(Debug, Clone, Serialize)]
pub struct Own {
    /// The tracepoints' programs, in percent of one CPU, summed over all that are watched: timed
    /// by the kernel in some windows, or reckoned by their number.
    pub tracepoints_percent: Option<f64>,
    /// What one run of such a program takes, without what comes before and after it.
    pub ns_per_run: Option<f64>,
    /// The share of the time that tracepoints looked at: all, unless that would cost too much.
    pub observed_percent: Option<f64>,
    /// Reading the sums, in percent of one CPU, without the progress load.
    pub reading_percent: f64,
}

/// What the report is made of besides the measurement.
pub struct Setting {
    /// The machine.
    pub host: Machine,
    /// Where packets came from.
    pub place: String,
    /// Whether /proc/stat can be trusted for interrupts; `None` if that is not known.
    pub irq_time_accounting: Option<bool>,
    /// Names of interrupts.
    pub irq_names: BTreeMap<u64, String>,
    /// Whether packets are counted on devices that were chosen, and not on all.
    pub devices_chosen: bool,
    /// Which CPU does what, where packets are made for the measurement.
    pub roles: Option<String>,
}

impl Report {
    /// The report of a measurement.
    pub fn new(setting: Setting, cpus: &[usize], measured: &Measured) -> Self {
        let seconds = measured.elapsed.as_secs_f64();
        let accounted = measured.accounting.as_ref().ok();
        let cpus: Vec<CpuReport> = cpus
            .iter()
            .map(|cpu| cpu_report(*cpu, measured, setting.irq_time_accounting))
            .collect();
        let napis = accounted.map_or(&[][..], |it| &it.napis);
        let mut notes = not_seen(measured);
        notes.extend(irq_time_note(setting.irq_time_accounting));
        Self {
            host: setting.host,
            place: setting.place,
            setting: setting.roles,
            seconds,
            ended: measured.ended,
            victims: victims(measured),
            napi: napi_reports(napis),
            irqs: irq_reports(measured, &setting.irq_names),
            devices: device_reports(measured, napis),
            network_ns_per_packet: setting
                .devices_chosen
                .then(|| network_ns_per_packet(measured))
                .flatten(),
            own: own(measured),
            cpus,
            notes,
        }
    }
}

fn not_seen(measured: &Measured) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |what: &str, result: Option<&String>| {
        notes.extend(result.map(|reason| format!("{what}: {reason}.")));
    };
    note("By progress", measured.progress.as_ref().err());
    note("By tracepoints", measured.accounting.as_ref().err());
    note("/proc/stat", measured.ticks.as_ref().err());
    note("/proc/net/softnet_stat", measured.softnet.as_ref().err());
    if measured.progress.is_ok() && measured.accounting.is_err() {
        notes.push(
            "Without tracepoints it cannot be told who took the time that was lost: the network, other \
             interrupts, or the outside (a hypervisor, firmware)."
                .into(),
        );
    }
    if let Ok(accounted) = &measured.accounting {
        if !accounted.sees_vectors {
            notes.push(
                "The timer's interrupt and those from other CPUs have no tracepoint here (x86 has), so \
                 tracepoints miss them."
                    .into(),
            );
        }
        if !accounted.sees_late_timers {
            notes.push(
                "This kernel's timers could not be read: time taken from outside while softirqs or \
                 other tasks ran counts as theirs."
                    .into(),
            );
        }
        notes.extend(unreported(&accounted.slices));
        if accounted.own_ns_per_run.is_none() {
            notes.push(
                "What the tracepoints cost could not be timed, which needs CAP_SYS_ADMIN: it is \
                 reckoned by their number, at 150 ns each."
                    .into(),
            );
        }
    }
    notes.extend(not_watched(measured));
    for device in &measured.devices {
        if let Some(after) = device.vanished_after {
            notes.push(format!(
                "{} vanished after {after:.1} s; its figures end there.",
                device.name
            ));
        }
    }
    notes
}

/// Switches between tasks that had no tracepoint.
fn unreported(slices: &Slices) -> Option<String> {
    let sum = |of: fn(&CpuTotals) -> u64| slices.totals.iter().map(of).sum::<u64>();
    let switches = sum(|cpu| cpu.times.unreported_switches);
    let around = percent(
        sum(|cpu| cpu.times.unreported_ns),
        sum(|cpu| cpu.observed_ns),
    );
    (switches > 0).then(|| {
        format!(
            "This kernel did not report {switches} switches between tasks: who had the {around:.2}% \
             of the time before them, softirqs among them, is not known."
        )
    })
}

/// CPUs that went away, and maps that were full.
fn not_watched(measured: &Measured) -> Vec<String> {
    let Ok(accounted) = &measured.accounting else {
        return Vec::new();
    };
    let mut notes: Vec<String> = accounted
        .slices
        .totals
        .iter()
        .filter(|cpu| cpu.observed_ns < accounted.slices.wall_ns / 10 * 9)
        .map(|cpu| {
            format!(
                "CPU {} went offline, or could not be looked at all the time: its figures are not for \
                 all of it.",
                cpu.cpu
            )
        })
        .collect();
    if accounted.lists_full {
        notes.push("More NAPI instances or interrupts came than there is room to list.".into());
    }
    notes
}

/// Whether other tools that read /proc/stat can be trusted.
fn irq_time_note(irq_time_accounting: Option<bool>) -> Option<String> {
    (irq_time_accounting == Some(false)).then(|| {
        "IRQ time accounting is off in this kernel (CONFIG_IRQ_TIME_ACCOUNTING): top, mpstat and \
         /proc/PID/stat charge interrupts and softirqs to the task that they interrupted, and see \
         %irq and %soft only when the tick meets them."
            .into()
    })
}

fn percent(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64 * 100.0
}

fn cpu_report(cpu: usize, measured: &Measured, irq_time_accounting: Option<bool>) -> CpuReport {
    let progress = measured.progress.as_ref().ok();
    let accounted = measured.accounting.as_ref().ok();
    let ticks = measured.ticks.as_ref().ok();
    let softnet = measured.softnet.as_ref().ok();
    let mut report = CpuReport {
        cpu,
        progress: progress
            .and_then(|all| all.iter().find(|it| it.cpu == cpu))
            .map(ProgressReport::from),
        accounting: accounted.and_then(|it| accounting_report(cpu, &it.slices, it.sees_vectors)),
        proc_stat: ticks
            .and_then(|all| all.get(&cpu))
            .map(ProcStatReport::from),
        softnet: softnet.and_then(|all| all.get(&cpu)).copied(),
        agreement: Vec::new(),
    };
    report.agreement = agreement(&report, irq_time_accounting);
    report
}

impl From<&Progress> for ProgressReport {
    fn from(progress: &Progress) -> Self {
        let wall = progress.total.wall_ns;
        // A measured difference may be a little below nothing.
        let left = progress.total.left_ns();
        let share_of = |ns: i64| percent(u64::try_from(ns).unwrap_or(0), left);
        Self {
            stolen_percent: share_of(progress.stolen_ns()),
            confidence: half_width(progress.stolen_share()),
            other_tasks_percent: percent(progress.total.other_tasks_ns(), wall),
            ledger: GapLedger::of(progress),
            notes: progress
                .calibration
                .doubts
                .iter()
                .map(ToString::to_string)
                .collect(),
        }
    }
}

fn half_width(estimate: Option<Estimate>) -> Option<f64> {
    Some(estimate?.half_width? * 100.0)
}

fn accounting_report(cpu: usize, slices: &Slices, sees_vectors: bool) -> Option<AccountingReport> {
    let index = slices.totals.iter().position(|it| it.cpu == cpu)?;
    let all = &slices.totals[index];
    let wall = all.observed_ns;
    // Nothing is known of a CPU that was not looked at.
    if all.observed_ns == 0 {
        return None;
    }
    let share_of = |ns| percent(ns, wall);
    let receive = all.softirq[NET_RX];
    let softirqs: u64 = all.softirq.iter().map(|it| it.ns).sum();
    let network = receive.ns + all.softirq[NET_TX].ns;
    let seconds = wall as f64 / 1e9;
    Some(AccountingReport {
        stolen_percent: share_of(all.stolen_ns()),
        confidence: half_width(share(&slices.stolen[index])),
        network_percent: share_of(all.net_ns()),
        irq_percent: share_of(all.times.irq_ns),
        vector_percent: sees_vectors.then(|| share_of(all.times.vector_ns.iter().sum())),
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

impl From<&CpuTimes> for ProcStatReport {
    fn from(ticks: &CpuTimes) -> Self {
        let all = ticks.total_ns();
        Self {
            irq_percent: percent(ticks.irq_ns, all),
            softirq_percent: percent(ticks.softirq_ns, all),
            steal_percent: percent(ticks.steal_ns, all),
            idle_percent: percent(ticks.idle_ns + ticks.iowait_ns, all),
        }
    }
}

/// How the ways of measuring agree, with the likely reasons where they do not.
fn agreement(report: &CpuReport, irq_time_accounting: Option<bool>) -> Vec<String> {
    let mut said = Vec::new();
    let ledger = report.progress.as_ref().and_then(|it| it.ledger.as_ref());
    if let (Some(ledger), Some(accounting)) = (ledger, &report.accounting) {
        said.push(outside_said(ledger, accounting));
    }
    if let (Some(accounting), Some(stat)) = (&report.accounting, &report.proc_stat) {
        let difference = accounting.softirqs_and_irqs() - stat.irq_percent - stat.softirq_percent;
        said.push(format!(
            "tracepoints less /proc/stat {}",
            judged(difference, AGREEMENT, || stat_differs(irq_time_accounting)
                .into())
        ));
    }
    said
}

/// The loss of the load in excess of the kernel's account, and how well the rest agrees with it.
fn outside_said(ledger: &GapLedger, accounting: &AccountingReport) -> String {
    let difference = ledger.kernel_percent() - accounting.stolen_percent;
    let rate = accounting.interrupts_per_second;
    let entry_ns = ledger.outside_entry_percent / 100.0 * 1e9 / rate.max(1.0);
    let gaps: u64 = ledger.gaps.iter().map(|it| it.count).sum();
    let usual = ledger.gaps.iter().max_by_key(|it| it.ns);
    let length = match usual.map(|it| it.up_to_ns) {
        _ if gaps == 0 => String::new(),
        Some(Some(ns)) => format!(", most of them up to {}", duration(ns)),
        _ => ", most of them longer than 10 ms".into(),
    };
    format!(
        "from outside came {:.1}%: {:.1}% entering and leaving {rate:.0} interrupts a second ({} \
         each), {:.1}% in gaps, {gaps} of which without any work of this kernel{length}, the longest \
         {}, and {:.1}% by late timers; the rest of the loss is {difference:+.1} points from \
         the tracepoints' own sums",
        ledger.outside.percent,
        ledger.outside_entry_percent,
        duration(entry_ns.max(0.0) as u64),
        ledger.outside_gaps_percent,
        duration(ledger.longest_gap_ns),
        ledger.outside_late_percent,
    )
}

fn duration(ns: u64) -> String {
    match ns {
        ..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        _ => format!("{:.1} ms", ns as f64 / 1e6),
    }
}

fn judged(difference: f64, tolerance: f64, reason: impl FnOnce() -> String) -> String {
    if difference.abs() <= tolerance {
        return format!("{difference:+.1} points: they agree");
    }
    format!("{difference:+.1} points: {}", reason())
}

fn stat_differs(irq_time_accounting: Option<bool>) -> &'static str {
    match irq_time_accounting {
        Some(false) => {
            "without IRQ time accounting /proc/stat asks at each tick what runs, and guesses the rest"
        }
        Some(true) => {
            "with IRQ time accounting /proc/stat also has what is before and after the tracepoints"
        }
        None => {
            "/proc/stat guesses if this kernel was built without CONFIG_IRQ_TIME_ACCOUNTING, which \
             is not known here"
        }
    }
}

fn victims(measured: &Measured) -> Vec<Victim> {
    let Ok(accounted) = &measured.accounting else {
        return Vec::new();
    };
    let mut victims: Vec<Victim> = accounted
        .tasks
        .iter()
        .filter(|task| task.pid != 0 && task.time.stolen_ns() > 0)
        .map(|task| Victim {
            pid: task.pid,
            name: if task.pid == std::process::id() {
                "this measurement".into()
            } else {
                task.name.clone()
            },
            time: task.time,
            lost_percent: percent(task.time.stolen_ns(), task.time.running_ns),
        })
        .collect();
    let unlisted = accounted
        .slices
        .totals
        .iter()
        .fold(TaskTime::default(), |sum, cpu| sum.plus(cpu.unlisted));
    if unlisted.stolen_ns() > 0 {
        victims.push(Victim {
            pid: 0,
            name: "tasks beyond the 1024 that are listed".into(),
            time: unlisted,
            lost_percent: percent(unlisted.stolen_ns(), unlisted.running_ns),
        });
    }
    victims.sort_by_key(|victim| std::cmp::Reverse(victim.time.stolen_ns()));
    victims
}

fn napi_reports(napis: &[Napi]) -> Vec<NapiReport> {
    let mut reports: Vec<NapiReport> = napis
        .iter()
        .map(|napi| NapiReport {
            packets_per_poll: napi.packets as f64 / napi.polls.max(1) as f64,
            full_percent: percent(napi.full, napi.polls),
            ns_per_packet: (napi.packets > 0).then(|| napi.ns as f64 / napi.packets as f64),
            napi: napi.clone(),
        })
        .collect();
    reports.sort_by_key(|it| std::cmp::Reverse((it.napi.ns, it.napi.packets)));
    reports
}

fn irq_reports(measured: &Measured, names: &BTreeMap<u64, String>) -> Vec<IrqReport> {
    let Ok(accounted) = &measured.accounting else {
        return Vec::new();
    };
    let mut reports: Vec<IrqReport> = accounted
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
        let seconds = traffic.vanished_after.unwrap_or(seconds);
        DeviceReport {
            rx_pps: packets as f64 / seconds,
            tx_pps: traffic.tx_packets as f64 / seconds,
            ns_per_packet: (packets > 0 && ns > 0).then(|| ns as f64 / packets as f64),
            traffic: traffic.clone(),
        }
    };
    measured.devices.iter().map(report).collect()
}

/// What the network took on the watched CPUs, for each packet of the watched devices.
fn network_ns_per_packet(measured: &Measured) -> Option<f64> {
    let slices = &measured.accounting.as_ref().ok()?.slices;
    let of_a_cpu = |cpu: &CpuTotals| cpu.net_ns() as f64 / cpu.observed_ns.max(1) as f64;
    let packets: u64 = measured.devices.iter().map(|it| it.rx_packets).sum();
    let of_a_second: f64 = slices.totals.iter().map(of_a_cpu).sum();
    let all = of_a_second * measured.elapsed.as_nanos() as f64;
    (packets > 0).then(|| all / packets as f64)
}

fn own(measured: &Measured) -> Own {
    let accounted = measured.accounting.as_ref().ok();
    Own {
        tracepoints_percent: accounted.map(|it| it.own_percent),
        ns_per_run: accounted.and_then(|it| it.own_ns_per_run),
        observed_percent: accounted.map(|it| it.observed * 100.0),
        reading_percent: percent(measured.own_ns, measured.elapsed.as_nanos() as u64),
    }
}
