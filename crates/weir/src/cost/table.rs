//! The report as text.

use comfy_table::presets;

use super::report::{CpuReport, Report, TracepointReport};
use crate::accounting::ledger::{GapLedger, Row, Share};
use crate::accounting::measure::Ended;
use crate::report::text::{row, table, unframed, wrap};

/// The most tasks, NAPI instances and interrupts that are listed; JSON has all.
const LISTED: usize = 8;
/// The smallest figure that has a line, in percent of the measured time.
const NOTHING: f64 = 0.005;
/// The most CPUs that have a sentence of their own; the table below it has all.
const SENTENCES: usize = 4;
/// The most columns of the ledger; JSON has all.
const LEDGER_COLUMNS: usize = 8;

/// The report as text.
pub fn render(report: &Report) -> String {
    let parts = [
        title(report),
        headline(report),
        overview(report),
        report
            .cpu_roles
            .as_ref()
            .map_or_else(String::new, |text| wrap(text, 0)),
        ledger(report),
        split(report),
        interrupted_tasks(report),
        napi(report),
        irqs(report),
        devices(report),
        agreement(report),
        overhead(report),
        notes(report),
        legend(report),
    ];
    let mut text = parts
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("\n\n");
    text.push('\n');
    text
}

fn title(report: &Report) -> String {
    let mut text = wrap(
        &format!(
            "CPU time spent on networking, {:.1} s, {}. {}.",
            report.seconds,
            report.traffic_source,
            report.host.summary()
        ),
        0,
    );
    match report.ended {
        Some(Ended::Interrupted) => text.push_str("\nInterrupted: these are the figures so far."),
        Some(Ended::OverLimit) => {
            text.push_str("\nStopped early: the tracepoints cost more than --limit.");
        }
        None => {}
    }
    text
}

/// The consumers of each CPU, in a sentence.
fn headline(report: &Report) -> String {
    let sentences = report.cpus.iter().filter_map(|cpu| {
        let busy_loop = cpu.busy_loop.as_ref()?;
        let text = busy_loop.ledger.as_ref().map_or_else(
            || {
                let lost = estimate(Some(busy_loop.lost_percent), busy_loop.ci95_half_width);
                format!("{lost}% lost to interrupts or outside the kernel (not attributed: no tracepoints).")
            },
            sentence,
        );
        Some(wrap(&format!("CPU {}: {text}", cpu.cpu), 2))
    });
    sentences.take(SENTENCES).collect::<Vec<_>>().join("\n")
}

fn sentence(ledger: &GapLedger) -> String {
    let share = |share: Share| estimate(Some(share.percent), share.ci95_half_width);
    let mut parts = vec![
        format!("network {}%", share(ledger.network)),
        format!("other interrupts {}%", share(ledger.other_interrupts)),
        format!(
            "outside {}% ({:.1}% interrupt entry and exit)",
            share(ledger.outside),
            ledger.outside_entry_percent
        ),
        format!("other tasks {}%", share(ledger.other_tasks)),
    ];
    if ledger.unreported.percent >= 0.05 {
        let percent = share(ledger.unreported);
        parts.push(format!("unreported switches {percent}%"));
    }
    if ledger.throttled.percent >= 0.05 {
        parts.push(format!("CPU quota {}%", share(ledger.throttled)));
    }
    parts.push(format!("slower work {}%", share(ledger.slower)));
    format!("{}; left {}%.", parts.join(", "), share(ledger.work))
}

/// All of each CPU's time, without empty rows.
fn ledger(report: &Report) -> String {
    let mut columns: Vec<(String, &[Row])> = report
        .cpus
        .iter()
        .flat_map(|cpu| {
            let gaps = cpu.busy_loop.as_ref().and_then(|it| it.ledger.as_ref());
            let gaps = gaps.map(|it| (format!("CPU {}\ngaps", cpu.cpu), &it.rows[..]));
            let tracepoints = cpu.tracepoints.as_ref();
            let tracepoints =
                tracepoints.map(|it| (format!("CPU {}\ntracepoints", cpu.cpu), &it.ledger[..]));
            [gaps, tracepoints].into_iter().flatten()
        })
        .collect();
    if columns.is_empty() {
        return String::new();
    }
    let left_out = more(columns.len(), LEDGER_COLUMNS);
    columns.truncate(LEDGER_COLUMNS);
    let percent_in = |rows: &[Row], name: &str| {
        let found = rows.iter().find(|row| row.name == name);
        found.map(|row| row.percent)
    };
    let mut names: Vec<&str> = Vec::new();
    for row in columns.iter().flat_map(|(_, rows)| *rows) {
        let has_a_line = |(_, rows): &(String, &[Row])| {
            percent_in(rows, &row.name).is_some_and(|percent| percent.abs() >= 0.05)
        };
        if !names.contains(&row.name.as_str()) && columns.iter().any(has_a_line) {
            names.push(&row.name);
        }
    }
    let mut table = table(presets::NOTHING);
    let headings = columns.iter().map(|(heading, _)| heading.clone());
    table.set_header(row("all of the time, % of", headings));
    for name in names {
        let cells = columns
            .iter()
            .map(|(_, rows)| percent(percent_in(rows, name)));
        table.add_row(row(name, cells));
    }
    let sums = columns
        .iter()
        .map(|(_, rows)| one(rows.iter().map(|row| row.percent).sum()));
    table.add_row(row("sum", sums));
    unframed(table) + &left_out
}

fn one(value: f64) -> String {
    format!("{value:.1}")
}

fn percent(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), one)
}

/// A figure with its confidence interval.
fn estimate(value: Option<f64>, half_width: Option<f64>) -> String {
    match (value, half_width) {
        (Some(value), Some(half)) => format!("{value:.1} ±{half:.1}"),
        (value, _) => percent(value),
    }
}

/// The methods side by side.
fn overview(report: &Report) -> String {
    let mut table = table(presets::NOTHING);
    let headings = [
        "network\nby gaps",
        "by trace-\npoints",
        "other\ninterrupts\nby gaps",
        "by trace-\npoints",
        "outside",
        "other\ntasks",
        "/proc/stat\nirq+soft",
        "idle",
    ];
    table.set_header(row("% of", headings.map(String::from).into_iter()));
    for cpu in &report.cpus {
        let gaps = cpu.busy_loop.as_ref().and_then(|it| it.ledger.as_ref());
        let tracepoints = cpu.tracepoints.as_ref();
        let stat = cpu.proc_stat.as_ref();
        let share = |of: fn(&GapLedger) -> Share| {
            let share = gaps.map(of);
            estimate(
                share.map(|it| it.percent),
                share.and_then(|it| it.ci95_half_width),
            )
        };
        let tasks = gaps.map(|it| it.other_tasks.percent);
        let cells = [
            share(|it| it.network),
            percent(tracepoints.map(|it| it.network_percent)),
            share(|it| it.other_interrupts),
            percent(tracepoints.map(|it| it.interrupts_percent - it.network_percent)),
            share(|it| it.outside),
            percent(tasks.or(cpu.busy_loop.as_ref().map(|it| it.other_tasks_percent))),
            percent(stat.map(|it| it.irq_percent + it.softirq_percent)),
            percent(
                tracepoints
                    .map(|it| it.idle_percent)
                    .or(stat.map(|it| it.idle_percent)),
            ),
        ];
        table.add_row(row(&format!("CPU {}", cpu.cpu), cells.into_iter()));
    }
    unframed(table)
}

/// Interrupts by kind, by tracepoints.
fn split(report: &Report) -> String {
    let with: Vec<(&CpuReport, &TracepointReport)> = report
        .cpus
        .iter()
        .filter_map(|cpu| Some((cpu, cpu.tracepoints.as_ref()?)))
        .collect();
    if with.is_empty() {
        return String::new();
    }
    let mut table = table(presets::NOTHING);
    let headings = [
        "irq",
        "timer\nIPI",
        "NET_RX",
        "in\nidle",
        "in kso-\nftirqd",
        "in\ntasks",
        "NET_TX",
        "other\nsoftirq",
        "kso-\nftirqd",
        "NAPI\nthread",
        "polls/s",
    ];
    table.set_header(row(
        "interrupts, % of",
        headings.map(String::from).into_iter(),
    ));
    for (cpu, it) in with {
        let cells = [
            one(it.irq_percent),
            percent(it.timer_and_ipi_percent),
            one(it.net_rx_percent),
            one(it.net_rx_in_idle_percent),
            one(it.net_rx_in_ksoftirqd_percent),
            one(it.net_rx_in_tasks_percent),
            one(it.net_tx_percent),
            one(it.other_softirq_percent),
            one(it.ksoftirqd_percent),
            one(it.napi_thread_percent),
            format!("{:.0}", it.polls_per_second),
        ];
        table.add_row(row(&format!("CPU {}", cpu.cpu), cells.into_iter()));
    }
    unframed(table)
}

/// Of the measured time, in percent of one CPU.
fn of_time(report: &Report, ns: u64) -> f64 {
    ns as f64 / (report.seconds * 1e9).max(1.0) * 100.0
}

fn interrupted_tasks(report: &Report) -> String {
    let worth: Vec<_> = report
        .interrupted_tasks
        .iter()
        .filter(|it| of_time(report, it.time.interrupts_ns()) >= NOTHING)
        .collect();
    if worth.is_empty() {
        return String::new();
    }
    let mut table = table(presets::NOTHING);
    let headings = [
        "ran %",
        "lost %",
        "of its time %",
        "NET_RX",
        "NET_TX",
        "irq",
        "other",
    ];
    table.set_header(row(
        "in whose context",
        headings.map(String::from).into_iter(),
    ));
    for task in worth.iter().take(LISTED) {
        let time = task.time;
        let share = |ns| one(of_time(report, ns));
        let cells = [
            share(time.running_ns),
            share(time.interrupts_ns()),
            one(task.lost_percent),
            share(time.net_rx_ns),
            share(time.net_tx_ns),
            share(time.irq_ns),
            share(time.other_softirq_ns),
        ];
        let name = format!("{} ({})", task.name, task.pid);
        table.add_row(row(&name, cells.into_iter()));
    }
    unframed(table) + &more(worth.len(), LISTED)
}

fn more(all: usize, listed: usize) -> String {
    match all.saturating_sub(listed) {
        0 => String::new(),
        rest => format!("\n... and {rest} more: --format json has all"),
    }
}

fn napi(report: &Report) -> String {
    if report.napi.is_empty() {
        return String::new();
    }
    let mut table = table(presets::NOTHING);
    let headings = [
        "CPU %",
        "packets/s",
        "a poll",
        "budget used up %",
        "ns a packet",
    ];
    table.set_header(row("NAPI", headings.map(String::from).into_iter()));
    for it in report.napi.iter().take(LISTED) {
        let cells = [
            one(of_time(report, it.napi.ns)),
            format!("{:.0}", it.napi.packets as f64 / report.seconds),
            one(it.packets_per_poll),
            one(it.budget_exhausted_percent),
            it.ns_per_packet
                .map_or_else(|| "-".into(), |ns| format!("{ns:.0}")),
        ];
        let name = match (it.napi.device.as_str(), it.napi.ifindex) {
            ("", _) => "backlog of a CPU".to_owned(),
            (device, _) => format!(
                "{device} (napi {}, netns {})",
                it.napi.napi_id, it.napi.netns
            ),
        };
        table.add_row(row(&name, cells.into_iter()));
    }
    unframed(table) + &more(report.napi.len(), LISTED)
}

fn irqs(report: &Report) -> String {
    let worth: Vec<_> = report
        .irqs
        .iter()
        .filter(|it| of_time(report, it.irq.ns) >= NOTHING)
        .collect();
    if worth.is_empty() {
        return String::new();
    }
    let mut table = table(presets::NOTHING);
    let headings = ["CPU %", "a second", "ns each"];
    table.set_header(row("interrupt", headings.map(String::from).into_iter()));
    for it in worth.iter().take(LISTED) {
        let cells = [
            format!("{:.2}", of_time(report, it.irq.ns)),
            format!("{:.0}", it.irq.count as f64 / report.seconds),
            format!("{:.0}", it.irq.ns as f64 / it.irq.count.max(1) as f64),
        ];
        let name = format!("{} {}", it.irq.irq, it.name);
        table.add_row(row(name.trim_end(), cells.into_iter()));
    }
    unframed(table) + &more(worth.len(), LISTED)
}

fn devices(report: &Report) -> String {
    if report.devices.is_empty() {
        return String::new();
    }
    let mut table = table(presets::NOTHING);
    let headings = ["received/s", "sent/s", "dropped", "ns a packet received"];
    table.set_header(row("device", headings.map(String::from).into_iter()));
    for it in &report.devices {
        let cells = [
            format!("{:.0}", it.rx_pps),
            format!("{:.0}", it.tx_pps),
            it.traffic.dropped.to_string(),
            it.ns_per_packet
                .map_or_else(|| "-".into(), |ns| format!("{ns:.0}")),
        ];
        table.add_row(row(&it.traffic.name, cells.into_iter()));
    }
    let all = report.network_ns_per_packet.map_or_else(String::new, |ns| {
        format!("\nCPU time spent on networking, all namespaces, per packet received: {ns:.0} ns")
    });
    unframed(table) + &all
}

fn agreement(report: &Report) -> String {
    let mut lines = Vec::new();
    for cpu in &report.cpus {
        for sentence in &cpu.agreement {
            lines.push(wrap(&format!("CPU {}: {sentence}.", cpu.cpu), 2));
        }
        for note in cpu.busy_loop.iter().flat_map(|it| &it.warnings) {
            lines.push(wrap(&format!("CPU {}: {note}.", cpu.cpu), 2));
        }
        if let Some(softnet) = cpu
            .softnet
            .as_ref()
            .filter(|it| it.dropped + it.time_squeeze > 0)
        {
            lines.push(wrap(
                &format!(
                    "CPU {}: /proc/net/softnet_stat: {} packets dropped at a full backlog, {} times \
                     out of budget or time (squeezed).",
                    cpu.cpu, softnet.dropped, softnet.time_squeeze
                ),
                2,
            ));
        }
    }
    lines.join("\n")
}

fn overhead(report: &Report) -> String {
    let overhead = &report.overhead;
    let mut parts = Vec::new();
    if let Some(percent) = overhead.tracepoints_percent {
        let run = overhead
            .ns_per_run
            .map_or_else(String::new, |ns| format!(" ({ns:.0} ns a run)"));
        parts.push(format!("tracepoints {percent:.2}% of one CPU{run}"));
        if let Some(duty_cycle) = overhead.duty_cycle_percent.filter(|it| *it < 99.0) {
            parts.push(format!(
                "duty-cycled to {duty_cycle:.1}% of the time by --limit"
            ));
        }
    }
    if report.cpus.iter().any(|it| it.tracepoints.is_some()) {
        parts.push(format!("reading them {:.2}%", overhead.reading_percent));
    }
    let loaded = report.cpus.iter().filter(|it| it.busy_loop.is_some());
    match loaded.count() {
        0 => {}
        1 => parts.push("the busy loop used 1 CPU".into()),
        many => parts.push(format!("busy loops used {many} CPUs")),
    }
    if parts.is_empty() {
        return String::new();
    }
    wrap(&format!("This measurement: {}.", parts.join("; ")), 0)
}

fn notes(report: &Report) -> String {
    report
        .notes
        .iter()
        .map(|note| wrap(&format!("- {note}"), 2))
        .collect::<Vec<_>>()
        .join("\n")
}

/// The legend of the columns.
fn legend(report: &Report) -> String {
    let mut lines = Vec::new();
    if report.cpus.iter().any(|it| it.busy_loop.is_some()) {
        lines.push("by gaps         CPU time lost by a busy loop, each gap attributed by the kernel's work in it");
        lines.push("outside         gaps without any work of this kernel, and interrupt entry and exit: hypervisor or");
        lines.push("                firmware; the part within the network's own time counts as the network's, unless");
        lines.push("                it is so long that a timer expires late");
        lines.push("slower          work that took longer without a gap: frequency, a busy sibling thread, caches");
    }
    if report.cpus.iter().any(|it| it.tracepoints.is_some()) {
        lines.push("by tracepoints  between the tracepoints at begin and end; network is NET_RX, NET_TX, NAPI threads");
        lines.push("                and their part of ksoftirqd");
        lines.push("in whose context  % of one CPU; a task that sends may run softirqs for itself");
    }
    lines.join("\n")
}
