//! A balance sheet as text.

use std::fmt::Write as _;

use comfy_table::{Row, presets};

use super::report::Report;
use super::sheet::{Class, Direction, Edge, Loss, Sheet, Term};
use crate::report::text::{plain, row, table, unframed, wrap};

/// The report.
pub fn render(report: &Report) -> String {
    let mut text = String::new();
    let sheet = &report.sheet;
    let interval = match (report.since_boot, sheet.seconds) {
        (true, Some(seconds)) => format!("since the boot {seconds:.0} seconds ago"),
        (_, Some(seconds)) => format!("during {seconds:.1} seconds"),
        (_, None) => String::new(),
    };
    let _ = writeln!(
        text,
        "{}\n",
        format!("Packets of {} {interval}", plain(&report.scope)).trim_end()
    );
    flows(&mut text, sheet);
    let _ = writeln!(text, "{}", summary(sheet));
    for (title, class) in [
        ("Lost", Class::Lost),
        ("Copies lost by packet sockets", Class::CopyLost),
        ("Freed in normal operation, not lost", Class::NotLost),
    ] {
        losses(&mut text, title, sheet, class);
    }
    notes(&mut text, report);
    text
}

/// The verdict in a sentence.
pub fn summary(sheet: &Sheet) -> String {
    let lost: u64 = sheet.lost().map(|loss| loss.count).sum();
    let bad: Vec<&Edge> = sheet.edges.iter().filter(|edge| !edge.closes()).collect();
    let closed = sheet.edges.len() - bad.len();
    let known = bad.iter().filter(|edge| !edge.open.is_empty()).count();
    let lost = match lost {
        // Also if no counter could be read.
        0 if sheet.edges.is_empty() => "No loss was found.".to_owned(),
        0 => "Nothing was lost.".to_owned(),
        lost => format!("{lost} packets were lost, each listed once below."),
    };
    if sheet.edges.is_empty() {
        return format!("{lost} No balance was made: nothing moved, or nothing could be read.");
    }
    let balance = match (bad.len(), known) {
        (0, _) => format!("All {closed} balances close within their bounds."),
        (bad, known) if bad == known => format!(
            "{closed} of {} balances close; the others have flows that nothing counts here.",
            sheet.edges.len()
        ),
        (bad, known) => format!(
            "{} of {} balances do NOT close.",
            bad - known,
            sheet.edges.len()
        ),
    };
    format!("{lost} {balance}")
}

fn flows(text: &mut String, sheet: &Sheet) {
    for direction in [Direction::Receive, Direction::Transmit] {
        let of_direction = |edge: &&Edge| edge.direction == direction;
        if !sheet.edges.iter().any(|edge| of_direction(&edge)) {
            continue;
        }
        let title = match direction {
            Direction::Receive => "Received",
            Direction::Transmit => "Sent",
        };
        let mut table = table(presets::NOTHING);
        table.set_header(Row::from([
            title,
            "unit",
            "in",
            "out",
            "unexplained",
            "bound",
        ]));
        for edge in sheet.edges.iter().filter(of_direction) {
            let sum = |terms: &[Term]| terms.iter().map(|term| term.count).sum::<i64>().to_string();
            let mark = if edge.closes() || !edge.open.is_empty() {
                ""
            } else {
                " !"
            };
            let cells = [
                sum(&edge.entered),
                sum(&edge.left),
                format!("{}{mark}", edge.unexplained),
                format!("±{}", edge.bound),
            ];
            let mut line = vec![edge_name(edge), edge.unit.name().to_owned()];
            line.extend(cells);
            table.add_row(right(&line));
            for (sign, term) in signed(edge) {
                let line = [
                    format!("    {sign} {}", plain(&term.label())),
                    String::new(),
                    if sign == '+' {
                        term.count.to_string()
                    } else {
                        String::new()
                    },
                    if sign == '-' {
                        term.count.to_string()
                    } else {
                        String::new()
                    },
                ];
                table.add_row(right(&line));
            }
        }
        let _ = writeln!(text, "{}\n", unframed(table));
    }
}

fn right(cells: &[String]) -> Row {
    row(&cells[0], cells[1..].iter().cloned())
}

fn signed(edge: &Edge) -> impl Iterator<Item = (char, &Term)> {
    let entered = edge.entered.iter().map(|term| ('+', term));
    let left = edge.left.iter().map(|term| ('-', term));
    entered.chain(left).filter(|(_, term)| term.count != 0)
}

fn edge_name(edge: &Edge) -> String {
    let subject = edge
        .subject
        .as_deref()
        .map(|subject| format!(" ({})", plain(subject)));
    format!(
        "{}: {} to {}{}",
        plain(&edge.namespace),
        edge.from.name(),
        edge.to.name(),
        subject.unwrap_or_default()
    )
}

fn losses(text: &mut String, title: &str, sheet: &Sheet, class: Class) {
    let of_class: Vec<&Loss> = sheet
        .losses
        .iter()
        .filter(|loss| loss.class == class)
        .collect();
    if of_class.is_empty() {
        return;
    }
    let mut table = table(presets::NOTHING);
    table.set_header(Row::from([title, "stage", "reason", "where"]));
    for loss in &of_class {
        let count = if loss.segments == loss.count {
            loss.count.to_string()
        } else {
            format!("{} ({} segments)", loss.count, loss.segments)
        };
        let cells = [
            count,
            loss.stage.name().into(),
            plain(&loss.reason),
            place_of(loss),
        ];
        table.add_row(Row::from(cells.to_vec()));
    }
    let _ = writeln!(text, "\n{}", unframed(table));
    if class != Class::Lost {
        return;
    }
    for loss in of_class {
        let also: Vec<String> = loss
            .also
            .iter()
            .map(|also| format!("{} {}", plain(&also.counter), also.count))
            .collect();
        let mut line = format!(
            "{} {}: {}. Proof: {}.",
            loss.count,
            plain(&loss.reason),
            loss.meaning,
            plain(&loss.proof)
        );
        if !also.is_empty() {
            let _ = write!(line, " Also seen as {}.", also.join(", "));
        }
        if let Some(check) = &loss.check {
            let _ = write!(line, " See `weir doctor --explain {check}`.");
        }
        let _ = writeln!(text, "{}", wrap(&line, 2));
    }
}

/// Namespace, device, socket, process and function of a loss.
pub fn place_of(loss: &Loss) -> String {
    let mut parts = vec![plain(&loss.namespace)];
    parts.extend(loss.device.as_deref().map(plain));
    parts.extend(loss.qdisc.as_deref().map(plain));
    parts.extend(loss.socket.as_deref().map(plain));
    parts.extend(
        loss.process
            .as_ref()
            .map(|process| format!("{} ({})", plain(&process.name), process.pid)),
    );
    parts.extend(
        loss.place
            .as_deref()
            .map(|place| format!("at {}", plain(place))),
    );
    parts.join(", ")
}

fn notes(text: &mut String, report: &Report) {
    let sheet = &report.sheet;
    let mut notes: Vec<String> = Vec::new();
    let open = sheet.edges.iter().filter(|edge| edge.unexplained != 0);
    for edge in open {
        notes.extend(
            edge.open
                .iter()
                .map(|why| format!("{}: {why}.", edge_name(edge))),
        );
    }
    notes.extend(sheet.gaps.iter().map(|gap| {
        format!(
            "not seen ({}): {}. To see it: {}.",
            gap.stage.name(),
            plain(&gap.hidden),
            gap.cure
        )
    }));
    notes.extend(
        sheet
            .resets
            .iter()
            .map(|name| format!("{} was set back; it counts from there.", plain(name))),
    );
    notes.extend(report.notes.iter().cloned());
    if !notes.is_empty() {
        text.push('\n');
    }
    for note in notes {
        let _ = writeln!(text, "{}", wrap(&note, 2));
    }
}
