//! A balance sheet as a page.

use std::fmt::Write as _;

use super::report::Report;
use super::sheet::{Class, Edge, Term};
use super::table::{place_of, summary};
use crate::report::page::{self, escape};

/// The page.
pub fn page(report: &Report) -> String {
    let sheet = &report.sheet;
    let mut body = format!(
        "<p>{}</p>\n<p>{} {}</p>\n",
        escape(&summary(sheet)),
        escape(&report.scope),
        escape(&report.host.summary())
    );
    body.push_str("<h2>Balances</h2>\n");
    let names = [
        "balance",
        "direction",
        "unit",
        "in",
        "out",
        "unexplained",
        "bound",
    ];
    let rows = sheet.edges.iter().map(edge);
    body.push_str(&page::table("figures", names.into_iter(), rows));
    for (title, class) in [
        ("Lost", Class::Lost),
        ("Copies lost by packet sockets", Class::CopyLost),
        ("Freed in normal operation, not lost", Class::NotLost),
    ] {
        let losses: Vec<_> = sheet
            .losses
            .iter()
            .filter(|loss| loss.class == class)
            .collect();
        if losses.is_empty() {
            continue;
        }
        let _ = writeln!(body, "<h2>{title}</h2>");
        let names = [
            "packets",
            "stage",
            "reason",
            "meaning",
            "where",
            "proof",
            "also seen as",
        ];
        let rows = losses.into_iter().map(|loss| {
            let also = loss
                .also
                .iter()
                .map(|also| format!("{} {}", also.counter, also.count));
            vec![
                loss.count.to_string(),
                loss.stage.name().into(),
                loss.reason.clone(),
                loss.meaning.clone(),
                place_of(loss),
                loss.proof.clone(),
                also.collect::<Vec<_>>().join(", "),
            ]
        });
        body.push_str(&page::table("figures", names.into_iter(), rows));
    }
    let open = sheet.edges.iter().filter(|edge| edge.unexplained != 0);
    let open = open.flat_map(|edge| edge.open.iter().cloned());
    let gaps = sheet
        .gaps
        .iter()
        .map(|gap| format!("Not seen: {}. To see it: {}.", gap.hidden, gap.cure));
    body.push_str("<h2>Notes</h2>\n<ul>\n");
    for note in open.chain(gaps).chain(report.notes.iter().cloned()) {
        let _ = writeln!(body, "<li>{}</li>", escape(&note));
    }
    body.push_str("</ul>\n");
    page::page("weir ledger", &body)
}

fn edge(edge: &Edge) -> Vec<String> {
    let sum = |terms: &[Term]| {
        let parts: Vec<String> = terms
            .iter()
            .map(|term| format!("{} {}", term.label(), term.count))
            .collect();
        let sum: i64 = terms.iter().map(|term| term.count).sum();
        if parts.len() < 2 {
            sum.to_string()
        } else {
            format!("{sum} ({})", parts.join(", "))
        }
    };
    let subject = edge.subject.as_deref().unwrap_or_default();
    vec![
        format!(
            "{}: {} to {} {subject}",
            edge.namespace,
            edge.from.name(),
            edge.to.name()
        ),
        format!("{:?}", edge.direction).to_lowercase(),
        edge.unit.name().into(),
        sum(&edge.entered),
        sum(&edge.left),
        edge.unexplained.to_string(),
        format!("±{}", edge.bound),
    ]
}
