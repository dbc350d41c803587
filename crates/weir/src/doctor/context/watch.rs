//! Counter files and netlink's lists, read when the run starts and again one interval later.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};

use super::cgroup;
use super::files::Files;
use super::moment::{Moment, Moments};

/// Counter files and netlink's lists, read when the run starts and again one interval later.
pub struct Watch {
    counters: Vec<&'static str>,
    moments: Moments,
    others: Others,
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

/// Files that are watched besides the counters of the checks, found when the run starts.
struct Others {
    ksoftirqd: Vec<Ksoftirqd>,
    /// The directories of the control groups with a CPU limit.
    groups: Vec<String>,
}

impl Others {
    fn find(files: &Files) -> Self {
        Self {
            ksoftirqd: find_ksoftirqd(files),
            groups: cgroup::limited(files),
        }
    }

    fn paths(&self) -> impl Iterator<Item = String> {
        let threads = self.ksoftirqd.iter().map(|it| it.schedstat.clone());
        threads.chain(self.groups.iter().map(|group| format!("{group}/cpu.stat")))
    }
}

/// Netlink's lists at two moments.
pub struct Lists<'a> {
    /// The first lists.
    pub before: &'a Moment,
    /// The second lists.
    pub after: &'a Moment,
    /// The time between in seconds.
    pub seconds: f64,
}

/// The texts of all counter files, and netlink's lists, at one moment.
struct Snapshot {
    taken: Instant,
    files: BTreeMap<String, String>,
    moment: Result<Moment, String>,
}

impl Watch {
    /// Reads the counters for the first time. A `*` stands for every entry of a directory.
    pub fn start(
        files: &Files,
        counters: &[&'static str],
        moments: Moments,
        interval: Duration,
    ) -> Self {
        let others = Others::find(files);
        Self {
            before: Snapshot::take(files, counters, &others, moments.take(0)),
            moments,
            counters: counters.to_vec(),
            others,
            interval,
            after: OnceLock::new(),
        }
    }

    /// A counter file at both moments. The first call waits for the second moment.
    pub fn twice(&self, files: &Files, path: &str) -> Result<Twice<'_>> {
        let after = self.after(files);
        let unread = || format!("cannot read {path} twice");
        Ok(Twice {
            before: self.before.files.get(path).with_context(unread)?,
            after: after.files.get(path).with_context(unread)?,
            elapsed: after.taken - self.before.taken,
        })
    }

    /// Netlink's lists at both moments. The first call waits for the second moment.
    pub fn lists(&self, files: &Files) -> Result<Lists<'_>> {
        let after = self.after(files);
        Ok(Lists {
            before: self.before.moment()?,
            after: after.moment()?,
            seconds: (after.taken - self.before.taken).as_secs_f64(),
        })
    }

    fn after(&self, files: &Files) -> &Snapshot {
        self.after.get_or_init(|| {
            sleep(self.interval.saturating_sub(self.before.taken.elapsed()));
            let moment = self.moments.take(1);
            Snapshot::take(files, &self.counters, &self.others, moment)
        })
    }

    /// The ksoftirqd threads; none if they are in another PID namespace.
    pub fn ksoftirqd(&self) -> &[Ksoftirqd] {
        &self.others.ksoftirqd
    }
}

impl Watch {
    /// The directories of the control groups with a CPU limit, whose cpu.stat is watched.
    pub fn limited_groups(&self) -> &[String] {
        &self.others.groups
    }
}

impl Snapshot {
    fn take(
        files: &Files,
        counters: &[&str],
        others: &Others,
        moment: Result<Moment, String>,
    ) -> Self {
        let paths = counters.iter().flat_map(|pattern| expand(files, pattern));
        let texts = paths
            .chain(others.paths())
            .filter_map(|path| Some((path.clone(), files.read(&path).ok()?)));
        Self {
            files: texts.collect(),
            moment,
            taken: Instant::now(),
        }
    }

    fn moment(&self) -> Result<&Moment> {
        self.moment.as_ref().map_err(|reason| anyhow!("{reason}"))
    }
}

fn find_ksoftirqd(files: &Files) -> Vec<Ksoftirqd> {
    let pids = files.pids().into_iter();
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
