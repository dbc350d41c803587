//! The report as a self-contained HTML page: no script, no font, no network.

use std::fmt::Write as _;

use super::table::{
    DETAILS, Overview, RATIOS, detail_cells, legend, mpps, notes, ratio_rows, title,
};
use super::{Report, Summary, main_wait};
use crate::engine::bench::Bench;
use crate::engine::{Engine, Wait};
use crate::report::page::{escape, page, table};

/// Geometry of the bars, in pixels of the SVG.
const ROW: usize = 26;
const LABEL: usize = 190;
const LONGEST: usize = 480;
const FIGURE: usize = 70;

/// The page.
pub fn render(report: &Report) -> String {
    let mut body = String::new();
    let mut add = |part: &str| {
        body.push_str(part);
        body.push('\n');
    };
    add(&format!(
        "<p>{} &middot; {}</p>",
        escape(&report.host.machine.date),
        escape(&report.host.place)
    ));
    if report.interrupted {
        add("<p class=\"warning\">Interrupted: unfinished runs are missing.</p>");
    }
    if let Some(wait) = main_wait(&report.combinations()) {
        add(&format!("<p>{}</p>", escape(&title(report, wait))));
        add(&overview(report, wait));
    }
    let rows = rows(report);
    for &bench in Bench::all() {
        let of_bench: Vec<_> = rows
            .iter()
            .filter(|row| row.combination.bench == bench)
            .copied()
            .collect();
        if !of_bench.is_empty() {
            add(&format!("<h2>{bench}</h2>"));
            add(&bars(&of_bench));
        }
    }
    add("<h2>Figures</h2>");
    add(&details(report, &rows));
    let ratios = ratio_rows(report);
    if !ratios.is_empty() {
        add("<h2>Ratios</h2>");
        let rows = ratios.into_iter().map(Vec::from);
        add(&table("ratios", RATIOS.into_iter(), rows));
    }
    add("<h2>Legend</h2>\n<dl>");
    for (name, meaning) in legend(report) {
        add(&format!(
            "<dt>{}</dt><dd>{}</dd>",
            escape(&name),
            escape(&meaning)
        ));
    }
    add("</dl>");
    let notes: Vec<String> = notes(report)
        .into_iter()
        .chain(report.host.notes.iter().cloned())
        .collect();
    if !notes.is_empty() {
        add("<h2>Notes</h2>\n<ul>");
        for note in notes {
            add(&format!("<li>{}</li>", escape(&note)));
        }
        add("</ul>");
    }
    add("<h2>Command</h2>");
    add(&format!(
        "<pre>{}</pre>",
        escape(&report.host.machine.command)
    ));
    page("weir bench", &body)
}

/// One row of the summary for each measured combination.
fn rows(report: &Report) -> Vec<&Summary> {
    report
        .combinations()
        .into_iter()
        .filter_map(|it| report.medians(it))
        .collect()
}

/// Medians as bars, with lines from the slowest to the fastest round.
fn bars(rows: &[&Summary]) -> String {
    let most = rows.iter().map(|row| row.pps_max).fold(1.0, f64::max);
    let length = |pps: f64| pps / most * LONGEST as f64;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"Millions of packets per second\">\n",
        LABEL + LONGEST + FIGURE,
        rows.len() * ROW
    );
    for (index, row) in rows.iter().enumerate() {
        let combination = row.combination;
        let top = index * ROW;
        let middle = top + ROW / 2;
        let class = match combination.engine {
            Engine::Xsk | Engine::XskHalves | Engine::XskBrokered => "ours",
            _ => "other",
        };
        let name = combination.to_string();
        let name = name.split_once(' ').map_or("", |(_, way)| way);
        let (low, high) = (length(row.pps_min), length(row.pps_max));
        let parts = [
            format!(
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
                LABEL - 8,
                middle + 4,
                escape(name)
            ),
            format!(
                "<rect class=\"{class}\" x=\"{LABEL}\" y=\"{}\" width=\"{:.1}\" height=\"{}\"/>",
                top + 4,
                length(row.pps_median),
                ROW - 8
            ),
            format!(
                "<path class=\"range\" d=\"M{:.1} {middle}H{:.1}\"/>",
                LABEL as f64 + low,
                LABEL as f64 + high
            ),
            format!(
                "<text x=\"{:.1}\" y=\"{}\">{}</text>",
                LABEL as f64 + high + 8.0,
                middle + 4,
                mpps(row.pps_median)
            ),
        ];
        let _ = writeln!(svg, "{}", parts.concat());
    }
    svg.push_str("</svg>");
    svg
}

fn overview(report: &Report, wait: Wait) -> String {
    let overview = Overview::new(report, wait);
    let headings: Vec<String> = overview
        .headings
        .iter()
        .map(|it| it.replace('\n', " "))
        .collect();
    let names = std::iter::once("").chain(headings.iter().map(String::as_str));
    let rows = overview.rows.into_iter().map(|(bench, figures)| {
        let bench = bench.to_string();
        std::iter::once(bench).chain(figures).collect()
    });
    table("overview", names, rows)
}

fn details(report: &Report, rows: &[&Summary]) -> String {
    let cells = rows.iter().map(|row| {
        let bench = row.combination.bench.to_string();
        std::iter::once(bench)
            .chain(detail_cells(report, row))
            .collect()
    });
    let names = std::iter::once("bench").chain(DETAILS);
    table("figures", names, cells)
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    #[test]
    fn the_page_needs_nothing_else_and_has_all() {
        let page = render(&report());
        for text in [
            "A &amp; B",
            "no &lt;zero-copy&gt;",
            "weir bench rxdrop --lab",
            "2.00",
        ] {
            assert!(page.contains(text), "{text}");
        }
        for reference in ["http:", "https:", "src=", "href=", "@import", "url("] {
            assert!(!page.contains(reference), "{reference}");
        }
        assert_eq!(page.matches("<rect").count(), 2);
    }
}
