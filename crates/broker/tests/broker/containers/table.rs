//! `./run containers`: each step in a container of each runtime, as a table.

use super::container::{Container, POLICY, RUNTIMES, Runtime};
use super::peer::Peer;
use super::steps::{Expected, STEPS, Step};
use crate::lab::{Broker, Lab, wait_until};
use crate::supervised::Result;
use std::path::Path;
use std::process::ExitCode;

/// First argument of this program when it prints the table; the second is `weir`.
const TABLE: &str = "--containers";

/// A cell that is neither as it should be nor skipped.
const FAILED: &str = "FAILED";

/// `--containers WEIR`
pub fn run_if_asked() -> Option<ExitCode> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [first, weir] = arguments.as_slice() else {
        return None;
    };
    if first != TABLE {
        return None;
    }
    let columns: Vec<_> = RUNTIMES
        .iter()
        .map(|runtime| Column::of(*runtime, Path::new(weir)))
        .collect();
    print(&columns);
    let trees = super::a_hundred_process_trees_at_once();
    let trees = trees.map_err(|error| println!("{FAILED}: a hundred process trees: {error}"));
    let is_good = trees.is_ok() && columns.iter().all(Column::is_good);
    Some(if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Outcomes of a runtime.
struct Column {
    name: String,
    cells: Vec<String>,
    /// Remarks on its cells, below the table.
    notes: Vec<String>,
}

impl Column {
    fn of(runtime: Runtime, weir: &Path) -> Self {
        let (name, count) = (runtime.name(), STEPS.len() + 1);
        eprintln!("== {name}");
        let (cell, note) = match Self::try_all(runtime, weir) {
            Ok(column) => return column,
            Err(error) if error.is::<testkit::Skip>() => {
                ("skipped", format!("skipped: {name}: {error}"))
            }
            Err(error) => (FAILED, format!("{FAILED}: {name}: {error}")),
        };
        Self {
            name,
            cells: vec![cell.to_owned(); count],
            notes: vec![note],
        }
    }

    fn try_all(runtime: Runtime, weir: &Path) -> Result<Self> {
        runtime.check()?;
        let lab = Lab::new(2)?;
        let broker = Broker::start(&lab, POLICY)?;
        let peer = Peer::start(&lab)?;
        let names: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        let container = Container::new(&lab, runtime, &names, Some(weir))?;
        let outcomes = container.run()?;
        let sent = peer.end();
        let mut column = Self {
            name: runtime.name(),
            cells: Vec::new(),
            notes: Vec::new(),
        };
        for step in STEPS {
            let outcome = outcomes.iter().find(|(name, _)| name == step.name);
            let outcome = outcome.map_or("failed the container ended before", |(_, it)| it);
            let outcome = if step.name == "af-xdp-send" && outcome == "ok" && sent == 0 {
                "failed no frame arrived"
            } else {
                outcome
            };
            column.judge(step, outcome);
        }
        let ends = wait_until(|| {
            broker
                .status()
                .is_ok_and(|it| it["sessions"] == serde_json::json!([]))
        });
        column.add("session-ends", ends.then_some("ok"), "it goes on");
        if column.notes.iter().any(|note| note.starts_with(FAILED)) {
            eprintln!("{}\n{}", container.errors(), broker.log());
        }
        drop(container);
        broker.stop()?;
        Ok(column)
    }

    fn judge(&mut self, step: &Step, outcome: &str) {
        if let Some(missing) = step.missing() {
            self.cells.push("skipped".to_owned());
            self.notes.push(format!(
                "skipped: {}: {}: needs {missing}",
                self.name, step.name
            ));
            return;
        }
        let is_good = match step.expected {
            Expected::Done => outcome == "ok",
            Expected::Refused => outcome.starts_with("refused"),
        };
        self.add(step.name, is_good.then_some(outcome), outcome);
    }

    fn add(&mut self, step: &str, good: Option<&str>, bad: &str) {
        if good.is_none() {
            self.notes
                .push(format!("{FAILED}: {}: {step}: {bad}", self.name));
        }
        self.cells.push(good.unwrap_or(FAILED).to_owned());
    }

    fn is_good(&self) -> bool {
        self.cells.iter().all(|cell| cell != FAILED)
    }
}

fn print(columns: &[Column]) {
    let names = STEPS.iter().map(|step| step.name).chain(["session-ends"]);
    let row = |first: &str, cells: &mut dyn Iterator<Item = &str>| {
        print!("{first:<20}");
        cells.for_each(|cell| print!("{cell:<17}"));
        println!();
    };
    row(
        "STEP",
        &mut columns.iter().map(|column| column.name.as_str()),
    );
    for (at, name) in names.enumerate() {
        row(
            name,
            &mut columns.iter().map(|column| column.cells[at].as_str()),
        );
    }
    columns
        .iter()
        .flat_map(|column| &column.notes)
        .for_each(|note| println!("{note}"));
}
