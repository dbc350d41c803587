//! A daemon's own log: one line of JSON for each event, on standard error.

use crate::lines::Lines;
use serde_json::{Map, Value, json};
use std::io::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

static REFUSALS: Mutex<Lines> = Mutex::new(Lines::new());

/// Writes an event, with the fields of a JSON object.
pub fn event(name: &str, fields: Value) {
    let time = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let mut line = Map::new();
    line.insert("time".into(), json!(time.as_secs_f64()));
    line.insert("event".into(), json!(name));
    if let Value::Object(fields) = fields {
        line.extend(fields);
    }
    let mut text = Value::Object(line).to_string();
    text.push('\n');
    // Nobody is left to tell when standard error is closed.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Writes the refusal of a user or a tenant, unless there were many in this second.
pub(super) fn refusal(whose: &str, name: &str, fields: Value) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let second = now.unwrap_or_default().as_secs();
    if refusals().admit(second, whose) {
        event(name, fields);
    }
}

/// How many refusals were not written.
pub(super) fn unwritten() -> u64 {
    refusals().unwritten
}

fn refusals() -> MutexGuard<'static, Lines> {
    // Each change is one step.
    REFUSALS.lock().unwrap_or_else(PoisonError::into_inner)
}
