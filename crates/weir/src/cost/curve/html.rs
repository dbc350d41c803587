//! The report as a self-contained page: no script, no font, no network.

use anyhow::Result;

use super::report::Report;
use super::{notes, picture, table};
use crate::report::page;
use crate::report::page::{escape, page};

const STYLE: &str = "<style>\n\
    .charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); \
    gap: .5rem 1.5rem; margin-top: 1rem; }\n\
    figure { margin: 0; break-inside: avoid; }\n\
    table, pre { break-inside: avoid; }\n\
    .curve :is(th, td):first-child { text-align: left; }\n\
    </style>\n";

/// The page.
pub fn render(report: &Report) -> Result<String> {
    let mut body = String::from(STYLE);
    let mut add = |part: &str| {
        body.push_str(part);
        body.push('\n');
    };
    add(&format!(
        "<p>{} &middot; {}</p>",
        escape(&report.host.machine.date),
        escape(&table::title(report))
    ));
    if report.interrupted {
        add("<p class=\"warning\">Interrupted: the remaining runs are missing.</p>");
    }
    add(&format!(
        "<div class=\"charts\">\n{}</div>",
        picture::figures(report)?
    ));
    add(
        "<p>The rate is shared by all receivers. At a hollow point the load did not reach the target \
         rate; vertical bars reach from the minimum to the maximum of the rounds.</p>",
    );
    for receivers in report.receivers() {
        let plural = if receivers == 1 { "" } else { "s" };
        add(&format!("<h2>{receivers} receiver{plural}</h2>"));
        let rows = report.paths().into_iter().flat_map(|path| {
            let summaries = report.curve(path, receivers);
            summaries.map(|summary| table::cells(report, summary))
        });
        add(&page::table(
            "curve",
            table::columns(report).into_iter(),
            rows,
        ));
    }
    if !report.ratios.is_empty() {
        add("<h2>Softirq time in percent of the bridge's</h2>");
        let rows = report.ratios.iter().map(|it| table::ratio_cells(it).into());
        add(&page::table("curve", table::RATIOS.into_iter(), rows));
    }
    add("<h2>Columns</h2>\n<dl>");
    for (name, meaning) in notes::figures(report) {
        add(&format!(
            "<dt>{}</dt><dd>{}</dd>",
            escape(name),
            escape(meaning)
        ));
    }
    add("</dl>\n<h2>Notes</h2>\n<ul>");
    for note in notes::results(report).iter().chain(&report.host.notes) {
        add(&format!("<li>{}</li>", escape(note)));
    }
    add("</ul>\n<h2>Command</h2>");
    add(&format!(
        "<pre>{}</pre>",
        escape(&report.host.machine.command)
    ));
    Ok(page("weir cost curve", &body))
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;

    #[test]
    fn the_page_has_charts_tables_and_missing_paths() {
        let html = render(&report()).expect("is drawn");
        assert_eq!(html.matches("<figure>").count(), 2);
        assert_eq!(html.matches("<table").count(), 2);
        assert_eq!(html.matches("<svg").count(), html.matches("</svg>").count());
        for text in ["&lt; 900000", "not installed", "A note.", "</html>"] {
            assert!(html.contains(text), "no {text}");
        }
        for outside in ["http:", "https:", "<script", "url("] {
            assert!(!html.contains(outside), "{outside}");
        }
    }
}
