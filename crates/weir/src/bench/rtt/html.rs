//! The report as a self-contained HTML page: no script, no font, no network.

use super::chart;
use super::report::Report;
use super::table::{COLUMNS, RATIOS, cells, legend, ratio_cells, title};
use crate::report::page::{escape, page, table};
use crate::traffic::rate::Rate;

/// The page.
pub fn render(report: &Report) -> String {
    let mut body = chart::style();
    let mut add = |part: &str| {
        body.push_str(part);
        body.push('\n');
    };
    add(&format!(
        "<p>{} &middot; {}</p>",
        escape(&report.host.machine.date),
        escape(&title(report))
    ));
    if report.interrupted {
        add("<p class=\"warning\">Interrupted: unfinished runs are missing.</p>");
    }
    for (pps, rows) in report.by_rate() {
        add(&format!("<h2>{} packets per second</h2>", Rate(pps)));
        add(&chart::draw(&rows));
        let rows = rows.into_iter().map(|row| cells(row).into());
        add(&table("rtt", COLUMNS.into_iter(), rows));
    }
    if !report.ratios.is_empty() {
        add("<h2>Ratios</h2>");
        let rows = report.ratios.iter().map(|it| ratio_cells(it).into());
        add(&table("ratios", RATIOS.into_iter(), rows));
    }
    add("<h2>Legend</h2>\n<dl>");
    for (name, meaning) in legend(report) {
        add(&format!(
            "<dt>{}</dt><dd>{}</dd>",
            escape(name),
            escape(&meaning)
        ));
    }
    add("</dl>");
    let notes = report.notes();
    let notes: Vec<&String> = notes.iter().chain(&report.host.notes).collect();
    if !notes.is_empty() {
        add("<h2>Notes</h2>\n<ul>");
        for note in notes {
            add(&format!("<li>{}</li>", escape(note)));
        }
        add("</ul>");
    }
    add("<h2>Command</h2>");
    add(&format!(
        "<pre>{}</pre>",
        escape(&report.host.machine.command)
    ));
    page("weir bench rtt", &body)
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;

    #[test]
    fn the_page_needs_nothing_else_and_has_all() {
        let page = render(&report());
        for text in [
            "A &amp; B",
            "no &lt;zero-copy&gt;",
            "weir bench rtt",
            "1k packets per second",
            "0.50x",
        ] {
            assert!(page.contains(text), "{text}");
        }
        for reference in ["http:", "https:", "src=", "href=", "@import", "url("] {
            assert!(!page.contains(reference), "{reference}");
        }
        assert_eq!(page.matches("<svg").count(), 2);
    }
}
