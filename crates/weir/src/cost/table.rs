//! The report for people.

use comfy_table::presets;

use super::report::{AccountingReport, CpuReport, Report};
use crate::accounting::ledger::{GapLedger, Row, Share};
use crate::accounting::measure::Ended;
use crate::report::text::{row, table, unframed, wrap};

/// The most victims, NAPI instances and interrupts that are listed; JSON has all.
const LISTED: usize = 8;
/// What is below this is not worth a line: percent of the measured time.
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
            .setting
            .as_ref()
            .map_or_else(String::new, |text| wrap(text, 0)),
        ledger(report),
        split(report),
        victims(report),
        napi(report),
        irqs(report),
        devices(report),
        agreement(report),
        own(report),
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
            "What the network took, {:.1} s, {}. {}.",
            report.seconds,
            report.place,
            report.host.summary()
        ),
        0,
    );
    match report.ended {
        Some(Ended::Interrupted) => text.push_str("\nInterrupted: these are the figures so far."),
        Some(Ended::TooDear) => text
            .push_str("\nStopped before its time: the tracepoints cost more than --limit allows."),
        None => {}
    }
    text
}

/// Who took each CPU, in a sentence.
fn headline(report: &Report) -> String {
    let told = report.cpus.iter().filter_map(|cpu| {
        let progress = cpu.progress.as_ref()?;
        let text = progress.ledger.as_ref().map_or_else(
            || {
                let lost = estimate(Some(progress.stolen_percent), progress.confidence);
                format!("lost {lost}% to interrupts or to the outside: who took it cannot be told.")
            },
            sentence,
        );
        Some(wrap(&format!("CPU {}: {text}", cpu.cpu), 2))
    });
    told.take(SENTENCES).collect::<Vec<_>>().join("\n")
}

fn sentence(ledger: &GapLedger) -> String {
    let share = |share: Share| estimate(Some(share.percent), share.confidence);
    let mut parts = vec![
        format!("by the network {}%", share(ledger.network)),
        format!("by other interrupts {}%", share(ledger.other_interrupts)),
        format!(
            "from outside {}% ({:.1}% entering and leaving interrupts)",
            share(ledger.outside),
            ledger.outside_entry_percent
        ),
        format!("by other tasks {}%", share(ledger.other_tasks)),
    ];
    if ledger.unreported.percent >= 0.05 {
        let percent = share(ledger.unreported);
        parts.push(format!(
            "in switches that this kernel did not report {percent}%"
        ));
    }
    if ledger.throttled.percent >= 0.05 {
        parts.push(format!("by a CPU quota {}%", share(ledger.throttled)));
    }
    parts.push(format!("slower work {}%", share(ledger.slower)));
    format!("{}; left {}%.", parts.join(", "), share(ledger.progress))
}

/// All of each CPU's time, without empty rows.
fn ledger(report: &Report) -> String {
    let mut columns: Vec<(String, &[Row])> = report
        .cpus
        .iter()
        .flat_map(|cpu| {
            let gaps = cpu.progress.as_ref().and_then(|it| it.ledger.as_ref());
            let gaps = gaps.map(|it| (format!("CPU {}\ngaps", cpu.cpu), &it.rows[..]));
            let tracepoints = cpu.accounting.as_ref();
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
        let told = |(_, rows): &(String, &[Row])| {
            percent_in(rows, &row.name).is_some_and(|percent| percent.abs() >= 0.05)
        };
        if !names.contains(&row.name.as_str()) && columns.iter().any(told) {
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
fn estimate(value: Option<f64>, confidence: Option<f64>) -> String {
    match (value, confidence) {
        (Some(value), Some(half)) => format!("{value:.1} ±{half:.1}"),
        (value, _) => percent(value),
    }
}

/// What each way of measuring says, side by side.
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
        let gaps = cpu.progress.as_ref().and_then(|it| it.ledger.as_ref());
        let tracepoints = cpu.accounting.as_ref();
        let stat = cpu.proc_stat.as_ref();
        let share = |of: fn(&GapLedger) -> Share| {
            let share = gaps.map(of);
            estimate(
                share.map(|it| it.percent),
                share.and_then(|it| it.confidence),
            )
        };
        let tasks = gaps.map(|it| it.other_tasks.percent);
        let cells = [
            share(|it| it.network),
            percent(tracepoints.map(|it| it.network_percent)),
            share(|it| it.other_interrupts),
            percent(tracepoints.map(|it| it.stolen_percent - it.network_percent)),
            share(|it| it.outside),
            percent(tasks.or(cpu.progress.as_ref().map(|it| it.other_tasks_percent))),
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

/// Where the stolen time went.
fn split(report: &Report) -> String {
    let with: Vec<(&CpuReport, &AccountingReport)> = report
        .cpus
        .iter()
        .filter_map(|cpu| Some((cpu, cpu.accounting.as_ref()?)))
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
    table.set_header(row("where, % of", headings.map(String::from).into_iter()));
    for (cpu, it) in with {
        let cells = [
            one(it.irq_percent),
            percent(it.vector_percent),
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

fn victims(report: &Report) -> String {
    let worth: Vec<_> = report
        .victims
        .iter()
        .filter(|it| of_time(report, it.time.stolen_ns()) >= NOTHING)
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
    for victim in worth.iter().take(LISTED) {
        let time = victim.time;
        let share = |ns| one(of_time(report, ns));
        let cells = [
            share(time.running_ns),
            share(time.stolen_ns()),
            one(victim.lost_percent),
            share(time.net_rx_ns),
            share(time.net_tx_ns),
            share(time.irq_ns),
            share(time.other_ns),
        ];
        let name = format!("{} ({})", victim.name, victim.pid);
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
            one(it.full_percent),
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
        format!(
            "\nAll of the network's time on these CPUs, in whatever namespace, for each packet received: {ns:.0} ns"
        )
    });
    unframed(table) + &all
}

fn agreement(report: &Report) -> String {
    let mut lines = Vec::new();
    for cpu in &report.cpus {
        for sentence in &cpu.agreement {
            lines.push(wrap(&format!("CPU {}: {sentence}.", cpu.cpu), 2));
        }
        for note in cpu.progress.iter().flat_map(|it| &it.notes) {
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

fn own(report: &Report) -> String {
    let own = &report.own;
    let mut parts = Vec::new();
    if let Some(percent) = own.tracepoints_percent {
        let run = own
            .ns_per_run
            .map_or_else(String::new, |ns| format!(" ({ns:.0} ns a run)"));
        parts.push(format!("tracepoints {percent:.2}% of one CPU{run}"));
        if let Some(observed) = own.observed_percent.filter(|it| *it < 99.0) {
            parts.push(format!(
                "to keep it so low they looked {observed:.1}% of the time, now and then"
            ));
        }
    }
    if report.cpus.iter().any(|it| it.accounting.is_some()) {
        parts.push(format!("reading them {:.2}%", own.reading_percent));
    }
    let loaded = report.cpus.iter().filter(|it| it.progress.is_some());
    match loaded.count() {
        0 => {}
        1 => parts.push("the progress load kept 1 CPU busy".into()),
        many => parts.push(format!("the progress load kept {many} CPUs busy")),
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

/// What the columns mean that are not plain.
fn legend(report: &Report) -> String {
    let mut lines = Vec::new();
    if report.cpus.iter().any(|it| it.progress.is_some()) {
        lines.push("by gaps         the loss of a busy loop on the CPU, gap by gap, by the kernel's work in each");
        lines.push("outside         gaps in which this kernel did nothing, and entering and leaving interrupts: the");
        lines.push("                hypervisor or firmware; a part of it within the network's own time counts as the");
        lines.push("                network's, unless it is so long that a timer comes late");
        lines.push("slower          work that took longer without a gap: frequency, a busy sibling thread, caches");
    }
    if report.cpus.iter().any(|it| it.accounting.is_some()) {
        lines.push("by tracepoints  from the tracepoint at the beginning to that at the end; network is NET_RX, NET_TX,");
        lines.push("                NAPI threads and their part of ksoftirqd");
        lines.push("in whose context  % of one CPU; a task that sends may run softirqs for itself");
    }
    lines.join("\n")
}
