//! A daemon's own log: one line of JSON for each event, on standard error.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Refusals of one peer that are logged in a second, and of all: more would push others'
/// lines out of the host's log.
const MOST_OF_ONE: u32 = 20;
const MOST_OF_ALL: u32 = 200;

static REFUSALS: Mutex<Refusals> = Mutex::new(Refusals::new());

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

fn refusals() -> MutexGuard<'static, Refusals> {
    // Each change is one step.
    REFUSALS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The refusals of a second.
struct Refusals {
    second: u64,
    count: u32,
    by_peer: BTreeMap<String, u32>,
    unwritten: u64,
}

impl Refusals {
    const fn new() -> Self {
        Self {
            second: 0,
            count: 0,
            by_peer: BTreeMap::new(),
            unwritten: 0,
        }
    }

    fn admit(&mut self, second: u64, whose: &str) -> bool {
        if self.second != second {
            (self.second, self.count) = (second, 0);
            self.by_peer.clear();
        }
        let has_room = self.count < MOST_OF_ALL && {
            let of_one = self.by_peer.entry(whose.to_owned()).or_insert(0);
            *of_one += 1;
            *of_one <= MOST_OF_ONE
        };
        if has_room {
            self.count += 1;
        } else {
            self.unwritten += 1;
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_who_is_refused_often_leaves_room_for_others() {
        let mut refusals = Refusals::new();
        let written = |refusals: &mut Refusals, second, whose: &str, tries| {
            (0..tries).filter(|_| refusals.admit(second, whose)).count() as u32
        };
        assert_eq!(written(&mut refusals, 7, "uid 1", 1000), MOST_OF_ONE);
        assert_eq!(refusals.unwritten, 1000 - u64::from(MOST_OF_ONE));
        assert_eq!(written(&mut refusals, 7, "uid 2", 3), 3);
        assert_eq!(written(&mut refusals, 8, "uid 1", 3), 3);
        let mut all = 0;
        for peer in 0..1000 {
            all += written(&mut refusals, 9, &peer.to_string(), 1);
        }
        assert_eq!(all, MOST_OF_ALL);
        assert!(refusals.by_peer.len() <= MOST_OF_ALL as usize);
    }
}
