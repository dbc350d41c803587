//! Counter files, read when the run starts and again one interval later.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::files::Files;

/// Counter files, read when the run starts and again one interval later.
pub struct Watch {
    counters: Vec<&'static str>,
    ksoftirqd: Vec<Ksoftirqd>,
    interval: Duration,
    before: Snapshot,
    after: OnceLock<Snapshot>,
}

/// A ksoftirqd thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ksoftirqd {
    /// Its CPU.
    pub cpu: usize,
    /// Its schedstat file, which is watched: the first number is its CPU time in nanoseconds.
    pub schedstat: String,
}

/// A counter file at two moments.
pub struct Twice<'a> {
    /// The first text.
    pub before: &'a str,
    /// The second text.
    pub after: &'a str,
    /// The time between.
    pub elapsed: Duration,
}

/// The texts of all counter files at one moment.
struct Snapshot {
    taken: Instant,
    files: BTreeMap<String, String>,
}

impl Watch {
    /// Reads the counters for the first time. A `*` stands for every entry of a directory.
    pub fn start(files: &Files, counters: &[&'static str], interval: Duration) -> Self {
        let ksoftirqd = find_ksoftirqd(files);
        Self {
            before: Snapshot::take(files, counters, &ksoftirqd),
            counters: counters.to_vec(),
            ksoftirqd,
            interval,
            after: OnceLock::new(),
        }
    }

    /// A counter file at both moments. The first call waits for the second moment.
    pub fn twice(&self, files: &Files, path: &str) -> Result<Twice<'_>> {
        let after = self.after.get_or_init(|| {
            sleep(self.interval.saturating_sub(self.before.taken.elapsed()));
            Snapshot::take(files, &self.counters, &self.ksoftirqd)
        });
        let unread = || format!("cannot read {path} twice");
        Ok(Twice {
            before: self.before.files.get(path).with_context(unread)?,
            after: after.files.get(path).with_context(unread)?,
            elapsed: after.taken - self.before.taken,
        })
    }

    /// The ksoftirqd threads; none if they are in another PID namespace.
    pub fn ksoftirqd(&self) -> &[Ksoftirqd] {
        &self.ksoftirqd
    }
}

impl Snapshot {
    fn take(files: &Files, counters: &[&str], ksoftirqd: &[Ksoftirqd]) -> Self {
        let paths = counters.iter().flat_map(|pattern| expand(files, pattern));
        let texts = paths
            .chain(ksoftirqd.iter().map(|thread| thread.schedstat.clone()))
            .filter_map(|path| Some((path.clone(), files.read(&path).ok()?)));
        Self {
            files: texts.collect(),
            taken: Instant::now(),
        }
    }
}

fn find_ksoftirqd(files: &Files) -> Vec<Ksoftirqd> {
    let processes = files.list("/proc").unwrap_or_default();
    let pids = processes
        .iter()
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    pids.filter_map(|pid| {
        let name = files.read(&format!("/proc/{pid}/comm")).ok()?;
        let cpu = name.strip_prefix("ksoftirqd/")?.parse().ok()?;
        let schedstat = format!("/proc/{pid}/schedstat");
        Some(Ksoftirqd { cpu, schedstat })
    })
    .collect()
}

/// The files of a pattern with at most one `*`.
fn expand(files: &Files, pattern: &str) -> Vec<String> {
    let Some((directory, rest)) = pattern.split_once("/*") else {
        return vec![pattern.into()];
    };
    let names = files.list(directory).unwrap_or_default();
    names
        .iter()
        .map(|name| format!("{directory}/{name}{rest}"))
        .collect()
}
