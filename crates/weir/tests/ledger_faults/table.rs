//! The table of faults.

use anyhow::{Context as _, Result};
use weir::ledger::balance::Method;

use crate::check::{Turn, describe_also, observe, prepare};
use crate::fault::Fault;
use crate::kernel::Kernel;
use crate::lab::Lab;
use crate::{COUNT, faults};

/// A row of the table, and whether it is exact.
struct Line {
    cells: [String; 7],
    is_exact: bool,
}

/// Causes every fault, or those whose names have a part, and prints a row for each. Returns whether all are exact.
pub fn print(part: Option<&str>) -> Result<bool> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    println!(
        "Linux {}",
        release.context("cannot read the kernel's release")?.trim()
    );
    println!(
        "| Fault | Caused | Row: class, stage, reason, place, owner | Count | Also seen as | Counters in | Unexplained |"
    );
    println!("|---|---:|---|---:|---|---|---:|");
    let (mut exact, mut all, mut skipped) = (0, 0, Vec::new());
    for fault in faults::all() {
        if part.is_some_and(|part| !fault.name.contains(part)) {
            continue;
        }
        match line(&fault).with_context(|| format!("at {}", fault.name)) {
            Ok(Ok(line)) => {
                all += 1;
                exact += u32::from(line.is_exact);
                println!("| {} |", line.cells.join(" | "));
            }
            Ok(Err(lacks)) => skipped.push(format!("{}: the kernel lacks {lacks}", fault.name)),
            Err(error) => {
                all += 1;
                println!("| {} | - | {error:#} | - | - | - | - |", fault.name);
            }
        }
    }
    for line in &skipped {
        println!("skipped: {line}");
    }
    println!("{exact} of {all} rows exact");
    Ok(exact == all)
}

fn line(fault: &Fault) -> Result<Result<Line, &'static str>> {
    let (mut lab, kernel) = (Lab::new()?, Kernel::read()?);
    let ready = match prepare(&mut lab, &kernel, fault)? {
        Ok(ready) => ready,
        Err(lacks) => return Ok(Err(lacks)),
    };
    let counts = vec![COUNT];
    let observation = observe(lab, vec![Turn { ready, counts }])?;
    let sheet = observation.sheet(Method::default())?;
    let complaints = observation.complaints(Method::default())?;
    let each = |text: &dyn Fn(&weir::ledger::sheet::Loss) -> String| {
        let texts: Vec<String> = sheet.losses.iter().map(text).collect();
        texts.join("<br>")
    };
    let rows = each(&|loss| {
        let parts = [&loss.place, &loss.device, &loss.qdisc, &loss.socket];
        let parts: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
        let class = format!("{:?}", loss.class);
        format!(
            "{class}, {}, {}: {}",
            loss.stage.name(),
            loss.reason,
            parts.join(", ")
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
    for complaint in &complaints {
        eprintln!("{}: {complaint}", fault.name);
    }
    Ok(Ok(Line {
        cells: [
            fault.name.into(),
            caused.to_string(),
            if sheet.losses.is_empty() {
                "none".into()
            } else {
                rows
            },
            each(&|loss| loss.count.to_string()),
            each(&describe_also),
            observation.programs().join(", "),
            unexplained.to_string(),
        ],
        is_exact: complaints.is_empty(),
    }))
}
