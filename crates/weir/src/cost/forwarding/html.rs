//! The report as a self-contained page, with the curve of the CPU time by rate.

use anyhow::Result;

use super::report::Report;
use super::{notes, table};
use crate::cost::curve;
use crate::report::page::{self, escape, page};

const STYLE: &str = "<style>\n\
    .charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); \
    gap: .5rem 1.5rem; margin-top: 1rem; }\n\
    figure { margin: 0; break-inside: avoid; }\n\
    table, pre { break-inside: avoid; }\n\
    .switches :is(th, td):first-child { text-align: left; }\n\
    </style>\n";

/// The page.
pub fn render(report: &Report, curve: &curve::report::Report) -> Result<String> {
    let mut body = String::from(STYLE);
    let mut add = |part: &str| {
        body.push_str(part);
        body.push('\n');
    };
    let machine = &report.host.machine;
    add(&format!(
        "<p>{} &middot; {}</p>",
        escape(&machine.date),
        escape(&table::title(report))
    ));
    add(&format!(
        "<div class=\"charts\">\n{}</div>",
        curve::picture::figures(curve)?
    ));
    for part in table::parts(report) {
        add(&format!("<h2>{}</h2>", escape(&part.title)));
        let columns = part.columns.iter().copied();
        add(&page::table("switches", columns, part.rows.into_iter()));
    }
    add("<h2>Notes</h2>\n<ul>");
    for note in notes::results(report).iter().chain(&report.host.notes) {
        add(&format!("<li>{}</li>", escape(note)));
    }
    add("</ul>\n<h2>Command</h2>");
    add(&format!("<pre>{}</pre>", escape(&machine.command)));
    Ok(page("weir switch bench", &body))
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;
    use crate::report::Machine;

    #[test]
    fn the_page_has_every_table() {
        let curve = curve::report::Report::new(curve::report::Host {
            machine: Machine::now(2),
            load_cpu: 0,
            app_cpu: 1,
            size: 64,
            notes: Vec::new(),
        });
        let html = render(&report(), &curve).expect("is drawn");
        assert_eq!(html.matches("<table").count(), 5);
        for text in ["weir-xdp", "not installed", "A note.", "</html>"] {
            assert!(html.contains(text), "no {text}");
        }
        for outside in ["http:", "https:", "<script", "url("] {
            assert!(!html.contains(outside), "{outside}");
        }
    }
}
