//! The report as text: a table for each part, in 100 columns.

use comfy_table::presets;

use super::notes;
use super::report::Report;
use crate::cost::curve::report::Spread;
use crate::report::text::{row, table, unframed, wrap};

/// A table of the report: its heading, the names of its columns, and its rows.
pub struct Part {
    /// The heading.
    pub title: String,
    /// The names of the columns.
    pub columns: Vec<&'static str>,
    /// The rows.
    pub rows: Vec<Vec<String>>,
}

/// The report as text.
pub fn render(report: &Report) -> String {
    let mut text = String::new();
    let mut line = |it: &str| {
        text.push_str(it);
        text.push('\n');
    };
    line(&wrap(&title(report), 2));
    for part in parts(report) {
        line("");
        line(&part.title);
        line(&part.render());
    }
    let results = notes::results(report);
    for note in results.iter().chain(&report.host.notes) {
        line("");
        line(&wrap(note, 2));
    }
    text
}

/// The heading: the measurement and the machine.
pub fn title(report: &Report) -> String {
    let rounds = report.runs.iter().map(|run| run.round);
    let rounds = match rounds
        .chain(report.tcp_runs.iter().map(|run| run.round))
        .max()
    {
        None | Some(0 | 1) => String::new(),
        Some(rounds) => format!(", medians of {rounds} rounds (minimum to maximum)"),
    };
    format!(
        "An accelerated bridge beside a plain one and other switches{rounds}. {}.",
        report.host.machine.summary()
    )
}

/// The tables that the report has figures for.
pub fn parts(report: &Report) -> Vec<Part> {
    let all = [
        rates(report),
        entries(report),
        softirq(report),
        tcp(report),
        upkeep(report),
    ];
    all.into_iter()
        .filter(|part| !part.rows.is_empty())
        .collect()
}

impl Part {
    fn render(&self) -> String {
        let mut table = table(presets::NOTHING);
        let mut columns = self.columns.iter();
        let first = columns.next().copied().unwrap_or_default();
        table.set_header(row(first, columns.map(ToString::to_string)));
        for cells in &self.rows {
            let mut cells = cells.iter().cloned();
            let first = cells.next().unwrap_or_default();
            table.add_row(row(&first, cells));
        }
        unframed(table)
    }
}

/// The median, with minimum and maximum if they differ from it.
fn spread(it: Spread, digits: usize) -> String {
    let Spread { median, min, max } = it;
    if min >= max {
        return format!("{median:.digits$}");
    }
    format!("{median:.digits$} ({min:.digits$}-{max:.digits$})")
}

fn maybe(it: Option<Spread>, digits: usize) -> String {
    it.map_or_else(|| "-".into(), |it| spread(it, digits))
}

fn mpps(it: Spread) -> String {
    format!("{:.2}", it.median / 1e6)
}

fn rates(report: &Report) -> Part {
    let rows = report.rates.iter().map(|row| {
        vec![
            row.path.to_string(),
            row.traffic.pairs.to_string(),
            format!("{:.2}", 1e3 / row.ns_per_packet.median),
            format!("{:.0}", row.ns_per_packet.median),
            maybe(row.own_ns_per_packet, 0),
            maybe(row.times_bridge, 2),
        ]
    });
    Part {
        title: "One CPU, by pairs of stations: CPU time per frame".into(),
        columns: vec!["path", "pairs", "Mpps", "ns", "own ns", "bridge's / own"],
        rows: rows.collect(),
    }
}

fn entries(report: &Report) -> Part {
    let rows = report.entries.iter().map(|row| {
        vec![
            row.path.to_string(),
            row.few.to_string(),
            row.many.to_string(),
            spread(row.own_ns_per_packet_few, 0),
            spread(row.own_ns_per_packet_many, 0),
            spread(row.percent_of_few, 0),
        ]
    });
    Part {
        title: "The same traffic with few and with many entries in the forwarding database".into(),
        columns: vec![
            "path",
            "few",
            "many",
            "own ns, few",
            "own ns, many",
            "% of few",
        ],
        rows: rows.collect(),
    }
}

fn softirq(report: &Report) -> Part {
    let rows = report.softirq.iter().map(|row| {
        vec![
            row.path.to_string(),
            row.burst.to_string(),
            mpps(row.delivered_pps),
            format!("{:.1}", row.loss_percent.median),
            spread(row.softirq_percent, 1),
            format!("{:.1}", row.total_percent.median),
            maybe(row.softirq_percent_of_bridge, 0),
            maybe(row.total_percent_of_ovs, 0),
        ]
    });
    let first = report.softirq.first();
    let rate = first.map_or_else(String::new, |row| row.target_pps.to_string());
    Part {
        title: format!(
            "At the highest rate of the bridge ({rate} pps): softirqs of all CPUs, and with switches"
        ),
        columns: vec![
            "path",
            "burst",
            "Mpps",
            "loss %",
            "softirq %",
            "total %",
            "% of bridge's",
            "% of ovs's total",
        ],
        rows: rows.collect(),
    }
}

fn tcp(report: &Report) -> Part {
    let rows = report.tcp.iter().map(|row| {
        vec![
            row.path.to_string(),
            spread(row.gbps, 1),
            maybe(row.times_bridge, 3),
        ]
    });
    Part {
        title: "Bulk TCP between two containers".into(),
        columns: vec!["path", "Gbit/s", "/ bridge's"],
        rows: rows.collect(),
    }
}

fn upkeep(report: &Report) -> Part {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut add = |name: &str, value: String| rows.push(vec![name.into(), value]);
    if let Some(it) = &report.following {
        add(
            "changes of the forwarding database followed, a second",
            format!("{:.0}", it.changes_per_second),
        );
        add(
            "entries afterwards: of the bridge, of the maps",
            format!("{}, {}", it.bridge_entries, it.mirror_entries),
        );
        add(
            "from the last change until the maps had it, ms",
            format!("{:.1}", it.settled_ms),
        );
        add("full resynchronizations meanwhile", it.resyncs.to_string());
        add(
            "CPU time of following, % of one CPU",
            format!("{:.1}", it.keeper_percent),
        );
    }
    if let Some(it) = &report.attach {
        add(
            &format!("attach a bridge of {} veth ports, ms", it.ports),
            spread(it.attach_ms, 1),
        );
        add("detach it, ms", spread(it.detach_ms, 1));
    }
    if let Some(it) = &report.memory {
        add(
            &format!(
                "memory of the daemon with {} entries, MiB: now, most",
                it.entries
            ),
            format!(
                "{:.1}, {:.1}",
                it.rss_kib as f64 / 1024.0,
                it.peak_kib as f64 / 1024.0
            ),
        );
    }
    Part {
        title: "Upkeep".into(),
        columns: vec!["", ""],
        rows,
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;

    #[test]
    fn the_tables_fit_and_list_missing_paths() {
        let text = render(&report());
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
        for word in [
            "weir-xdp",
            "5.00",
            "ovs: unavailable: not installed.",
            "of the daemon",
        ] {
            assert!(text.contains(word), "no {word:?} in {text}");
        }
    }
}
