//! The table of faults.

use anyhow::{Context as _, Result};
use weir::ledger::balance::Method;
use weir::ledger::sheet::{Loss, Sheet};

use crate::ledger_faults::check::{Observation, Turn, describe_also, observe, prepare};
use crate::ledger_faults::fault::Fault;
use crate::ledger_faults::kernel::Kernel;
use crate::ledger_faults::lab::Lab;
use crate::ledger_faults::monitors::{Answers, Monitors};
use crate::ledger_faults::{COUNT, faults};

/// The columns of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Columns {
    /// The ledger's row of each fault.
    Ledger,
    /// The same in short, and the answers of other programs.
    Tools,
}

impl Columns {
    fn head(self) -> &'static str {
        match self {
            Self::Ledger => {
                "| Fault | Caused | Row: class, stage, reason, place, owner | Count | Also seen as | Counters in | Unexplained |\n\
                 |---|---:|---|---:|---|---|---:|"
            }
            Self::Tools => {
                "| Fault | `weir ledger` | `ip`, `nstat`, `ss`, `ethtool`, `tc` | node_exporter | dropwatch |\n\
                 |---|---|---|---|---|"
            }
        }
    }
}

/// A row of the table, and whether it is exact.
struct Line {
    cells: Vec<String>,
    is_exact: bool,
}

/// Causes every fault, or those whose names have a part, and prints a row for each. Returns whether all are exact.
pub fn print(columns: Columns, part: Option<&str>) -> Result<bool> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    println!(
        "Linux {}",
        release.context("cannot read the kernel's release")?.trim()
    );
    println!("{}", columns.head());
    let (mut exact, mut all, mut skipped) = (0, 0, Vec::new());
    for fault in faults::all() {
        if part.is_some_and(|part| !fault.name.contains(part)) {
            continue;
        }
        match line(columns, &fault).with_context(|| format!("at {}", fault.name)) {
            Ok(Ok(line)) => {
                all += 1;
                exact += u32::from(line.is_exact);
                println!("| {} |", line.cells.join(" | "));
            }
            Ok(Err(lacks)) => skipped.push(format!("{}: the kernel lacks {lacks}", fault.name)),
            Err(error) => {
                all += 1;
                println!("| {} | {error:#} |", fault.name);
            }
        }
    }
    for line in &skipped {
        println!("skipped: {line}");
    }
    println!("{exact} of {all} rows exact");
    Ok(exact == all)
}

fn line(columns: Columns, fault: &Fault) -> Result<Result<Line, &'static str>> {
    let (mut lab, kernel) = (Lab::new()?, Kernel::read()?);
    let ready = match prepare(&mut lab, &kernel, fault)? {
        Ok(ready) => ready,
        Err(lacks) => return Ok(Err(lacks)),
    };
    let monitors = match columns {
        Columns::Ledger => None,
        Columns::Tools => Some(Monitors::start(&lab)?),
    };
    let counts = vec![COUNT];
    let observation = observe(lab, vec![Turn { ready, counts }])?;
    let answers = monitors
        .map(|monitors| monitors.finish(&observation.lab))
        .transpose()?;
    let sheet = observation.sheet(Method::default())?;
    let complaints = observation.complaints(Method::default())?;
    for complaint in &complaints {
        eprintln!("{}: {complaint}", fault.name);
    }
    let mut cells = vec![fault.name.to_owned()];
    match answers {
        None => cells.extend(ledger_cells(&observation, &sheet)),
        Some(answers) => cells.extend(tool_cells(&observation, &sheet, &answers)),
    }
    let is_exact = complaints.is_empty();
    Ok(Ok(Line { cells, is_exact }))
}

fn each(sheet: &Sheet, text: impl Fn(&Loss) -> String) -> String {
    let texts: Vec<String> = sheet.losses.iter().map(text).collect();
    texts.join("<br>")
}

fn ledger_cells(observation: &Observation, sheet: &Sheet) -> [String; 6] {
    let rows = each(sheet, |loss| {
        let class = format!("{:?}", loss.class);
        format!(
            "{class}, {}, {}: {}",
            loss.stage.name(),
            loss.reason,
            owner(loss)
        )
    });
    // Edges that the ledger calls open are counted apart, by the truth.
    let closed = sheet.edges.iter().filter(|edge| edge.open.is_empty());
    let unexplained: i64 = closed.map(|edge| edge.unexplained.abs()).sum();
    let truth = &observation.truths[0];
    let caused = if truth.rows.is_empty() && truth.gap.is_none() {
        COUNT
    } else {
        truth.count
    };
    [
        caused.to_string(),
        or_none(rows),
        each(sheet, |loss| loss.count.to_string()),
        each(sheet, describe_also),
        observation.programs().join(", "),
        unexplained.to_string(),
    ]
}

fn owner(loss: &Loss) -> String {
    let parts = [&loss.place, &loss.device, &loss.qdisc, &loss.socket];
    let parts: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
    parts.join(", ")
}

fn tool_cells(observation: &Observation, sheet: &Sheet, answers: &Answers) -> [String; 4] {
    let rows = each(sheet, |loss| {
        format!("{} {}: {}", loss.reason, loss.count, owner(loss))
    });
    let counters = observation.counters();
    [
        or_none(rows),
        or_none(counters.join("<br>")),
        or_none(answers.node_exporter.join("<br>")),
        or_none(answers.dropwatch.join("<br>")),
    ]
}

fn or_none(text: String) -> String {
    if text.is_empty() { "none".into() } else { text }
}
