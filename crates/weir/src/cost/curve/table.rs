//! The report as text: a table for each number of receivers, in 100 columns.

use comfy_table::presets;

use super::notes;
use super::report::{Ratio, Report, Spread, Summary};
use crate::report::text::{row, table, unframed, wrap};
use crate::traffic::rate::Rate;

/// The column of the legend's sentences.
const LEGEND: usize = 13;

/// The report as text.
pub fn render(report: &Report) -> String {
    let mut text = String::new();
    let mut line = |it: &str| {
        text.push_str(it);
        text.push('\n');
    };
    line(&wrap(&title(report), 2));
    for receivers in report.receivers() {
        let plural = if receivers == 1 { "" } else { "s" };
        line(&format!("\n{receivers} receiver{plural}"));
        line(&figures(report, receivers));
    }
    if !report.ratios.is_empty() {
        line("\nSoftirq time in percent of the bridge's");
        line(&ratios(report));
    }
    let results = notes::results(report);
    if !results.is_empty() {
        line("");
    }
    for note in results {
        line(&wrap(&note, 2));
    }
    if !report.summary.is_empty() {
        line("");
        for (name, meaning) in notes::figures(report) {
            line(&wrap(&format!("{name:LEGEND$}{meaning}"), LEGEND));
        }
        line("");
        for note in &report.host.notes {
            line(&wrap(note, 2));
        }
    }
    text
}

/// The heading: the measurement and the machine.
pub fn title(report: &Report) -> String {
    let rounds = match report.rounds() {
        None | Some(1) => String::new(),
        Some(rounds) => format!(", medians of {rounds} rounds for each column"),
    };
    format!(
        "CPU time of receiving, by rate and path{rounds}. {}.",
        report.host.machine.summary()
    )
}

/// The names of the columns of [`cells`].
pub fn columns(report: &Report) -> Vec<&'static str> {
    let names = notes::figures(report).into_iter().map(|(name, _)| name);
    std::iter::once("path").chain(names).collect()
}

/// A row, from its path on.
pub fn cells(report: &Report, summary: &Summary) -> Vec<String> {
    let combination = summary.combination;
    let pps = |pps: Spread| format!("{:.0}", pps.median);
    let percent = |percent: Spread| format!("{:.1}", percent.median);
    let less = if summary.target_reached { "" } else { "< " };
    let mut cells = vec![
        combination.path.to_string(),
        combination.rate.to_string(),
        format!("{less}{}", pps(summary.offered_pps)),
        pps(summary.delivered_pps),
        percent(summary.loss_percent),
        range(summary),
        percent(summary.receivers_percent),
    ];
    if report.has_switch() {
        let has_switch = combination.path.datapath().forwards_in_user_space();
        cells.push(if has_switch {
            percent(summary.switch_percent)
        } else {
            "-".into()
        });
    }
    cells.push(percent(summary.total_percent));
    cells.push(
        summary
            .softirq_ns_per_packet
            .map_or_else(|| "-".into(), |ns| format!("{:.0}", ns.median)),
    );
    cells
}

/// The softirq figure, with minimum and maximum if there were several rounds.
fn range(summary: &Summary) -> String {
    let Spread { median, min, max } = summary.softirq_percent;
    if summary.rounds == 1 {
        return format!("{median:.1}");
    }
    format!("{median:.1} ({min:.1}-{max:.1})")
}

fn figures(report: &Report, receivers: u8) -> String {
    let mut table = table(presets::NOTHING);
    let mut names = columns(report).into_iter();
    let first = names.next().unwrap_or_default();
    table.set_header(row(first, names.map(Into::into)));
    for path in report.paths() {
        for summary in report.curve(path, receivers) {
            let mut cells = cells(report, summary).into_iter();
            let path = cells.next().unwrap_or_default();
            table.add_row(row(&path, cells));
        }
    }
    unframed(table)
}

/// The names of the columns of [`ratio_cells`].
pub const RATIOS: [&str; 5] = ["path", "target", "receivers", "at equal rate", "per packet"];

/// A row of the ratios.
pub fn ratio_cells(ratio: &Ratio) -> [String; 5] {
    let percent =
        |percent: Option<f64>| percent.map_or_else(|| "-".into(), |it| format!("{it:.0}"));
    let bound = ratio.softirq_percent_of_bridge_at_most;
    let bound = bound.map_or_else(|| "-".into(), |it| format!("< {it:.0}"));
    [
        ratio.path.to_string(),
        Rate(ratio.target_pps).to_string(),
        ratio.receivers.to_string(),
        ratio
            .softirq_percent_of_bridge
            .map_or(bound, |it| percent(Some(it))),
        percent(ratio.ns_per_packet_percent_of_bridge),
    ]
}

fn ratios(report: &Report) -> String {
    let mut table = table(presets::NOTHING);
    let [first, rest @ ..] = RATIOS;
    table.set_header(row(first, rest.into_iter().map(Into::into)));
    for ratio in &report.ratios {
        let [first, rest @ ..] = ratio_cells(ratio);
        table.add_row(row(&first, rest.into_iter()));
    }
    unframed(table)
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;

    #[test]
    fn the_table_fits_and_lists_missing_paths() {
        let text = render(&report());
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
        for word in [
            "1 receiver\n",
            "< 900000",
            "unavailable: not installed.",
            "softirq %",
        ] {
            assert!(text.contains(word), "no {word:?} in {text}");
        }
        assert!(!text.contains("switch %"), "{text}");
    }
}
