//! The frames that are shown together.

use std::cell::OnceCell;
use std::sync::Arc;

use crate::ledger::snapshot::{Counters, Snapshot};
use crate::ledger::{self, Sheet};
use crate::top::frame::Frame;
use crate::top::priced::Priced;
use crate::top::table::{Column, Table, Value};

/// The frames that are shown together.
pub struct Scene {
    /// The one from which totals count.
    pub first: Arc<Frame>,
    /// The one before; none for the first of a host's boot.
    pub before: Option<Arc<Frame>>,
    /// The last one.
    pub after: Arc<Frame>,
    /// The balance since the first frame, and of the interval.
    sheets: OnceCell<[Option<Sheet>; 2]>,
}

impl Scene {
    /// Of these frames. Those of another boot have nothing in common with the last one, and are left out.
    pub fn new(first: Arc<Frame>, before: Option<Arc<Frame>>, after: Arc<Frame>) -> Self {
        let is_earlier = |frame: &Arc<Frame>| {
            let (frame, after) = (&frame.snapshot, &after.snapshot);
            frame.boot_id == after.boot_id && frame.boottime_ns < after.boottime_ns
        };
        Self {
            first: if is_earlier(&first) {
                first
            } else {
                Arc::clone(&after)
            },
            before: before.filter(is_earlier),
            after,
            sheets: OnceCell::new(),
        }
    }

    /// The counters before.
    pub fn then(&self) -> Option<&Snapshot> {
        self.before.as_ref().map(|frame| &frame.snapshot)
    }

    /// The counters of the first frame.
    pub fn at_first(&self) -> &Snapshot {
        &self.first.snapshot
    }

    /// The counters now.
    pub fn now(&self) -> &Snapshot {
        &self.after.snapshot
    }

    /// The length of the interval, in seconds; none without one.
    pub fn seconds(&self) -> Option<f64> {
        Some(seconds_between(self.then()?, self.now()))
    }

    /// The time for which totals count, in seconds.
    pub fn seconds_in_all(&self) -> f64 {
        seconds_between(self.at_first(), self.now())
    }

    /// The balance since the first frame; none if that is this one.
    pub fn balance_in_all(&self) -> Option<&Sheet> {
        self.balances()[0].as_ref()
    }

    /// The balance of the interval; none without one.
    pub fn balance(&self) -> Option<&Sheet> {
        self.balances()[1].as_ref()
    }

    fn balances(&self) -> &[Option<Sheet>; 2] {
        self.sheets.get_or_init(|| {
            let is_older = self.at_first().boottime_ns < self.now().boottime_ns;
            let first = is_older.then(|| self.at_first());
            // Frames of two boots, which alone cannot be compared, are no scene.
            [first, self.then()].map(|then| ledger::balance(then?, self.now()).ok())
        })
    }

    /// A rate, of the counts before and now.
    pub fn rate(&self, then: Option<u64>, now: Option<u64>) -> Value {
        let moved = moved(then, now);
        let seconds = self.seconds().filter(|seconds| *seconds > 0.0);
        match (moved, seconds) {
            (Some(moved), Some(seconds)) => Value::Rate(moved as f64 / seconds),
            _ => Value::None,
        }
    }

    /// The name of a network namespace; none for the number 0.
    pub fn namespace(&self, inode: u64) -> Value {
        if inode == 0 {
            return Value::None;
        }
        let namespace = self.now().namespaces.get(&inode);
        Value::Text(namespace.map_or_else(
            || format!("net:[{inode}]"),
            |it| match &it.container {
                Some(container) if *container != it.name => format!("{} ({container})", it.name),
                _ => it.name.clone(),
            },
        ))
    }

    /// The name of a device; its index if it is unknown.
    pub fn device(&self, netns: u64, index: u32) -> Value {
        if index == 0 {
            return Value::None;
        }
        let device = self.now().device(netns, index);
        Value::Text(device.map_or_else(|| format!("if{index}"), |device| device.name.clone()))
    }

    /// Why the table has no rows: the part was not measured, or not long enough.
    pub fn without(&self, part: Priced) -> Option<String> {
        if !part.is_in(&self.after) {
            let reason = match part {
                Priced::Cpus => &self.after.no_bill,
                Priced::Programs => &self.after.no_programs,
            };
            return Some(
                reason
                    .clone()
                    .unwrap_or_else(|| "not measured in this frame".into()),
            );
        }
        let is_first = !self.before.as_ref().is_some_and(|frame| part.is_in(frame));
        is_first.then(|| "measuring: there is one reading yet, rates need two".into())
    }
}

fn seconds_between(then: &Snapshot, now: &Snapshot) -> f64 {
    now.boottime_ns.saturating_sub(then.boottime_ns) as f64 / 1e9
}

/// How far a counter moved; none if it was set back, or is not there.
pub fn moved(then: Option<u64>, now: Option<u64>) -> Option<u64> {
    now?.checked_sub(then?)
}

/// How far a counter of 32 bits moved, which wraps.
pub fn moved_32(then: Option<u64>, now: Option<u64>) -> Option<u64> {
    Some(u64::from((now? as u32).wrapping_sub(then? as u32)))
}

/// The value of a counter.
pub fn count(counters: &Counters, name: &str) -> Option<u64> {
    Some(counters.get(name)?.value)
}

/// The sum of counters; none if there is none of them.
pub fn sum(counters: &Counters, names: &[&str]) -> Option<u64> {
    let values = names.iter().filter_map(|name| count(counters, name));
    values.reduce(u64::saturating_add)
}

/// A table without rows, for this reason.
pub fn nothing(columns: &'static [Column], reason: String) -> Table {
    Table {
        columns,
        missing: Some(reason),
        ..Table::default()
    }
}
