//! The report as text, in 100 columns.

use comfy_table::{Cell, CellAlignment, Row, presets};

use super::report::Report;
use super::summary::{Ratio, Summary};
use crate::report::text::{table, unframed, wrap};
use crate::traffic::rate::Rate;

/// The column in which the sentences of the legend begin.
const LEGEND: usize = 14;

/// The report as text: ASCII.
pub fn render(report: &Report) -> String {
    let mut text = String::new();
    let mut line = |it: &str| {
        text.push_str(it);
        text.push('\n');
    };
    if !report.summary.is_empty() {
        line(&wrap(&title(report), 2));
        line("");
        line(&aligned(&COLUMNS, LEFT, report.summary.iter().map(cells)));
        line("");
    }
    if !report.ratios.is_empty() {
        line(&aligned(&RATIOS, 3, report.ratios.iter().map(ratio_cells)));
        line("");
    }
    for note in report.notes() {
        line(&wrap(&note, 2));
    }
    if !report.summary.is_empty() {
        line("");
        for (name, meaning) in legend(report) {
            line(&wrap(&format!("{name:LEGEND$}{meaning}"), LEGEND));
        }
    }
    text
}

/// The heading.
pub fn title(report: &Report) -> String {
    format!(
        "One packet of {} bytes there and back, in microseconds from its intended time, median of the rounds:",
        report.size
    )
}

/// The columns of [`cells`].
pub const COLUMNS: [&str; 11] = [
    "pps", "engine", "mode", "wait", "p50", "p99", "p99.9", "max", "lost", "CPU %", "delay",
];
/// Columns of words, at the left.
const LEFT: usize = 4;

/// The figures of one case, as [`COLUMNS`] names them.
pub fn cells(row: &Summary) -> [String; COLUMNS.len()] {
    let way = row.case.way;
    [
        row.case.rate.to_string(),
        way.engine.to_string(),
        way.mode.map_or("-".into(), |mode| mode.to_string()),
        way.wait.to_string(),
        micros(row.at(50.0)),
        micros(row.at(99.0)),
        micros(row.at(99.9)),
        micros(row.max_ns.map(|ns| ns as f64)),
        row.lost.to_string(),
        format!("{:.0}", row.app_cpu_percent_median),
        micros(row.pinger_delay_p99_ns_median),
    ]
}

/// Microseconds, with three digits below 1000.
pub fn micros(ns: Option<f64>) -> String {
    let Some(ns) = ns else {
        return "-".into();
    };
    let micros = ns / 1000.0;
    let digits = match micros {
        it if it < 9.995 => 2,
        it if it < 99.95 => 1,
        _ => 0,
    };
    format!("{micros:.digits$}")
}

/// The columns of [`ratio_cells`].
pub const RATIOS: [&str; 7] = ["pps", "latency of", "to", "p50", "p99", "+p50", "+p99"];

/// A ratio as text.
pub fn ratio_cells(ratio: &Ratio) -> [String; RATIOS.len()] {
    let times = |ratio: f64| format!("{ratio:.2}x");
    let more = |ns: f64| format!("{:+.1}", ns / 1000.0);
    [
        Rate(ratio.case.rate.0).to_string(),
        ratio.case.way.to_string(),
        format!("{} {}", ratio.ratio_to, ratio.ratio_to_wait),
        times(ratio.p50_ratio_median),
        ratio.p99_ratio_median.map_or("-".into(), times),
        more(ratio.p50_more_ns_median),
        ratio.p99_more_ns_median.map_or("-".into(), more),
    ]
}

/// A table whose first `left` columns are words, and the others figures.
fn aligned<const N: usize>(
    names: &[&str; N],
    left: usize,
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    let row = |cells: [String; N]| {
        let cells = cells.into_iter().enumerate().map(|(index, cell)| {
            Cell::new(cell).set_alignment(if index < left {
                CellAlignment::Left
            } else {
                CellAlignment::Right
            })
        });
        Row::from(cells)
    };
    let mut table = table(presets::NOTHING);
    table.set_header(row(names.map(String::from)));
    for cells in rows {
        table.add_row(row(cells));
    }
    unframed(table)
}

/// The columns explained: a name and a sentence.
pub fn legend(report: &Report) -> Vec<(&'static str, String)> {
    let columns = [
        (
            "pps",
            "Packets a second that are sent, at equal distances, whether or not they are answered.",
        ),
        (
            "p50 ... max",
            "Latency, from the time at which a packet was to be sent to the time at which its answer was \
             read: percentiles of the answered packets, medians of the rounds; max: the longest of all rounds. - \
             where a round has too few packets.",
        ),
        ("lost", "Packets that were not answered, in all rounds."),
        (
            "CPU %",
            "Share of the window that the echo's process was on its CPU, in user mode and in system calls.",
        ),
        (
            "delay",
            "The pinger's own part in the latency: 99th percentile of the time by which it sent too late.",
        ),
        (
            "latency of",
            "Of two runs of the same round, as a multiple and in microseconds more; medians of the rounds. \
             xsk adaptive to xsk poll: what its sleeps add, of at most 200 each.",
        ),
    ];
    let mut legend: Vec<_> = columns.map(|(name, text)| (name, text.to_owned())).into();
    legend.push((
        "host",
        format!("{}. {}", report.host.machine.summary(), report.cpu_note()),
    ));
    legend
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;
    use crate::report::text::WIDTH;

    #[test]
    fn it_fits_and_shows_every_result() {
        let text = render(&report());
        let longest = text.lines().map(str::len).max();
        assert!(longest.is_some_and(|length| length <= WIDTH), "{text}");
        assert!(text.is_ascii(), "{text}");
        for word in [
            "10k",
            "xsk",
            "10.0",
            "100",
            "0.50x",
            "no <zero-copy>",
            "CPU 0 runs the pinger",
        ] {
            assert!(text.contains(word), "{word} in {text}");
        }
    }

    #[test]
    fn a_report_of_nothing_is_no_table() {
        let mut empty = report();
        empty.runs.clear();
        empty.refused.clear();
        empty.summarize();
        assert_eq!(render(&empty), "");
    }

    #[test]
    fn times_have_three_digits() {
        let shown = [1_234.0, 9_996.0, 12_345.0, 123_456.0, 1_234_567.0].map(|ns| micros(Some(ns)));
        assert_eq!(shown, ["1.23", "10.0", "12.3", "123", "1235"]);
        assert_eq!(micros(None), "-");
    }
}
