//! One interval, printed.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Result;
use comfy_table::presets::NOTHING;
use comfy_table::{Cell, CellAlignment, Row};
use serde_json::{Map, Value as Json, json};

use super::collector::Collector;
use super::draw::gaps;
use super::live::summary;
use super::priced::Priced;
use super::record::Recording;
use super::state::State;
use super::table::{Column, Table, Value};
use super::view::{Scene, View};
use crate::ledger::read::Scope;
use crate::process::stop::StopSignal;
use crate::report::date::date;
use crate::report::text;

/// The longest wait for a signal.
const LOOK: Duration = Duration::from_millis(200);

/// Takes two frames, the interval apart. Both are recorded, if there is a file.
pub fn interval(scope: Scope, every: Duration, record: Option<&Path>) -> Result<Scene> {
    let collector = Collector::start(scope, every, record, BTreeSet::from(Priced::ALL))?;
    let before = collector.wait()?;
    let after = collector.wait()?;
    Ok(Scene::new(Arc::clone(&before), Some(before), after))
}

/// The last interval of a recording, with totals from its first frame on.
pub fn of_recording(recording: &mut Recording) -> Result<Scene> {
    let last = recording.len() - 1;
    let first = Arc::new(recording.frame(0)?);
    let before = match last {
        0 => None,
        last => Some(Arc::new(recording.frame(last - 1)?)),
    };
    Ok(Scene::new(first, before, Arc::new(recording.frame(last)?)))
}

/// Records until a signal comes, without a terminal.
pub fn record(
    scope: Scope,
    every: Duration,
    file: &Path,
    measure: BTreeSet<Priced>,
    stop: &StopSignal,
) -> Result<()> {
    let collector = Collector::start(scope, every, Some(file), measure)?;
    while !stop.is_raised() {
        std::thread::sleep(LOOK.min(every));
        while let Some(frame) = collector.take() {
            frame?;
        }
    }
    Ok(())
}

/// All views as JSON.
pub fn json(scene: &Scene) -> Json {
    let now = scene.now();
    let mut report = Map::new();
    let head = json!({
        "kernel": now.kernel,
        "boot_id": now.boot_id,
        "time": date(UNIX_EPOCH + Duration::from_nanos(now.realtime_ns)),
        "seconds": scene.seconds(),
        "totals_seconds": scene.seconds_in_all(),
        "read_ns": now.took_ns,
        "gaps": now.gaps,
    });
    report.extend(head.as_object().cloned().unwrap_or_default());
    let mut notes = Vec::new();
    for view in View::ALL {
        let table = view.table(scene);
        report.insert(view.id().into(), table.json());
        let of_view = table.notes.into_iter().chain(table.missing);
        notes.extend(of_view.map(|note| json!({"view": view.id(), "note": note})));
    }
    report.insert("notes".into(), notes.into());
    Json::Object(report)
}

/// Views as tables: those that have rows, or only the one that is named.
pub fn tables(scene: &Scene, views: &[View]) -> String {
    let mut text = format!("{}\n", summary(scene, true));
    for view in views {
        let mut state = State::default();
        state.show(*view);
        let table = state.table(scene);
        let _ = writeln!(text, "\n{}", view.title());
        for note in table.notes.iter().chain(&table.missing) {
            let _ = writeln!(text, "{}", text::plain(note));
        }
        if table.rows.is_empty() {
            text += "none\n";
        } else {
            text += &rendered(&table);
            text.push('\n');
        }
    }
    let gaps = gaps(scene);
    if !gaps.is_empty() {
        let _ = write!(text, "\n{gaps}");
    }
    text
}

fn rendered(table: &Table) -> String {
    let mut shown = text::table(NOTHING);
    shown.set_header(Row::from(
        table.columns.iter().map(|it| cell(it, it.title.to_owned())),
    ));
    for row in &table.rows {
        let cells = table.columns.iter().zip(row.cells.iter().map(Value::show));
        shown.add_row(Row::from(cells.map(|(column, text)| cell(column, text))));
    }
    text::unframed(shown)
}

fn cell(column: &Column, text: String) -> Cell {
    let alignment = if column.text > 0 {
        CellAlignment::Left
    } else {
        CellAlignment::Right
    };
    Cell::new(text).set_alignment(alignment)
}
