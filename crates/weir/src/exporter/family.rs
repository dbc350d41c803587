//! Families of metrics: definitions, label values, and the bound on the series of each.
//!
//! A family has at most so many series. The rest is added up in series whose labels are `other`, all but the
//! first ones, by which sums stay right.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The series of all families together by default.
pub const DEFAULT_SERIES: usize = 2000;

/// The fewest series of all families together: those whose number is fixed, every `other`, and one more in each
/// family that has `other` series.
pub const FEWEST_SERIES: usize = 360;

/// The label value of folded series.
const OTHER: &str = "other";

/// Longest label value, in bytes.
const MOST_BYTES: usize = 128;

/// The type of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, until its subject or the exporter begins anew.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// A family of metrics.
#[derive(Debug, Clone, Copy)]
pub struct Definition {
    /// Its name, without the `_total` of a counter.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Its unit, with which the name ends.
    pub unit: Option<&'static str>,
    /// Its explanation.
    pub help: &'static str,
    /// Names of labels.
    pub labels: &'static [&'static str],
    /// How many of the first labels an `other` series keeps.
    pub kept: usize,
    /// Most values of the kept labels: so many series `other` can have.
    pub others: usize,
    /// Most series of the family, `other` included, of [`DEFAULT_SERIES`].
    pub most: usize,
}

impl Definition {
    /// Most series, where all families together have `limit`, which is at least [`FEWEST_SERIES`]: each family has its
    /// fewest, and its share of the rest.
    pub fn most(&self, limit: usize) -> usize {
        let fewest = self.fewest();
        let rest = limit.saturating_sub(FEWEST_SERIES);
        fewest + (self.most - fewest) * rest / (DEFAULT_SERIES - FEWEST_SERIES)
    }

    /// Fewest series that keep the sums right.
    pub const fn fewest(&self) -> usize {
        if self.others == 0 {
            self.most
        } else {
            self.others + 1
        }
    }
}

/// The label values of a series, in the order of its family's names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Labels(Vec<String>);

impl Labels {
    /// Label values from names that anybody may have chosen: at most 128 bytes, without control characters,
    /// which a terminal would obey.
    pub fn new(values: &[&str]) -> Self {
        Self(values.iter().map(|value| clean(value)).collect())
    }

    /// The values.
    pub fn values(&self) -> &[String] {
        &self.0
    }

    fn folded(&self, kept: usize) -> Self {
        let value = |(at, value): (usize, &String)| {
            if at < kept {
                value.clone()
            } else {
                OTHER.into()
            }
        };
        Self(self.0.iter().enumerate().map(value).collect())
    }
}

fn clean(value: &str) -> String {
    let mut text = String::new();
    for char in value.chars() {
        let char = if char.is_control() {
            char::REPLACEMENT_CHARACTER
        } else {
            char
        };
        if text.len() + char.len_utf8() > MOST_BYTES {
            break;
        }
        text.push(char);
    }
    text
}

/// The subject of a series, which is dropped with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subject {
    /// The inode of the network namespace; 0 for none.
    pub netns: u64,
    /// The name of the device.
    pub device: Option<String>,
}

#[derive(Debug)]
struct Series {
    value: u64,
    subject: Subject,
}

/// The series of a family of counters.
#[derive(Debug)]
pub struct Counter {
    definition: &'static Definition,
    most: usize,
    series: BTreeMap<Labels, Series>,
    /// The last values of those that have no series of their own.
    below: BTreeMap<Labels, u64>,
    others: BTreeMap<Labels, u64>,
    folded: u64,
}

impl Counter {
    /// A family without series; `limit` is the most series of all families together.
    pub fn new(definition: &'static Definition, limit: usize) -> Self {
        Self {
            definition,
            most: definition.most(limit),
            series: BTreeMap::new(),
            below: BTreeMap::new(),
            others: BTreeMap::new(),
            folded: 0,
        }
    }

    /// Adds growth since the last time. Of new series the largest come first.
    pub fn add(&mut self, counted: BTreeMap<Labels, (u64, Subject)>) {
        let mut counted: Vec<_> = counted.into_iter().collect();
        counted.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
        for (labels, (count, subject)) in counted {
            let has_room = self.has_room();
            if let Some(series) = self.series.get_mut(&labels) {
                series.value += count;
                series.subject = subject;
            } else if has_room {
                let value = count;
                self.series.insert(labels, Series { value, subject });
            } else {
                self.fold(&labels, count);
            }
        }
    }

    /// Drops the series whose subject is gone.
    pub fn retain(&mut self, exists: impl Fn(&Subject) -> bool) {
        self.series.retain(|_, series| exists(&series.subject));
    }

    /// Takes over counters as the kernel has them; those that are not among them are gone. A series that has
    /// none of its own gets none later, since its past is in `other`.
    pub fn observe(&mut self, read: BTreeMap<Labels, u64>) {
        self.series.retain(|labels, _| read.contains_key(labels));
        self.below.retain(|labels, _| read.contains_key(labels));
        let mut read: Vec<_> = read.into_iter().collect();
        read.sort_by_key(|(_, value)| std::cmp::Reverse(*value));
        for (labels, value) in read {
            let has_room = self.has_room();
            if let Some(series) = self.series.get_mut(&labels) {
                series.value = value;
            } else if let Some(last) = self.below.insert(labels.clone(), value) {
                // A smaller value is that of a counter that began anew.
                self.fold(&labels, value.checked_sub(last).unwrap_or(value));
            } else if has_room {
                self.below.remove(&labels);
                let subject = Subject::default();
                self.series.insert(labels, Series { value, subject });
            } else {
                self.fold(&labels, value);
            }
        }
    }

    fn has_room(&self) -> bool {
        self.series.len() + self.definition.others < self.most
    }

    fn fold(&mut self, labels: &Labels, count: u64) {
        let labels = labels.folded(self.definition.kept);
        *self.others.entry(labels).or_default() += count;
        self.folded += 1;
    }

    /// The family.
    pub fn definition(&self) -> &'static Definition {
        self.definition
    }

    /// How often a value was folded.
    pub fn folded(&self) -> u64 {
        self.folded
    }

    /// The series with their values. A device that is called `other` shares a series with the folded ones.
    pub fn samples(&self) -> BTreeMap<&Labels, u64> {
        let mut samples: BTreeMap<_, _> = self
            .series
            .iter()
            .map(|(labels, series)| (labels, series.value))
            .collect();
        for (labels, count) in &self.others {
            *samples.entry(labels).or_default() += count;
        }
        samples
    }
}

/// The series of a family of gauges at one moment.
#[derive(Debug)]
pub struct Gauge {
    definition: &'static Definition,
    most: usize,
    samples: BTreeMap<Labels, f64>,
    folded: u64,
}

impl Gauge {
    /// A family without series; `limit` is the most series of all families together.
    pub fn new(definition: &'static Definition, limit: usize) -> Self {
        Self {
            definition,
            most: definition.most(limit),
            samples: BTreeMap::new(),
            folded: 0,
        }
    }

    /// Takes over values; the largest have series of their own.
    pub fn set(&mut self, values: BTreeMap<Labels, f64>) {
        let room = self.most - self.definition.others;
        let mut values: Vec<_> = values.into_iter().collect();
        values.sort_by(|(_, a), (_, b)| b.abs().total_cmp(&a.abs()));
        self.samples.clear();
        for (at, (labels, value)) in values.into_iter().enumerate() {
            let labels = if at < room {
                labels
            } else {
                self.folded += 1;
                labels.folded(self.definition.kept)
            };
            *self.samples.entry(labels).or_default() += value;
        }
    }

    /// The family.
    pub fn definition(&self) -> &'static Definition {
        self.definition
    }

    /// How often a value was folded.
    pub fn folded(&self) -> u64 {
        self.folded
    }

    /// The series with their values.
    pub fn samples(&self) -> &BTreeMap<Labels, f64> {
        &self.samples
    }
}

/// `value` as it stands between quotes in both formats.
pub fn escape(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for char in value.chars() {
        // Writing to a string cannot fail.
        let _ = match char {
            '\\' => text.write_str("\\\\"),
            '"' => text.write_str("\\\""),
            '\n' => text.write_str("\\n"),
            char => text.write_char(char),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    static FAMILY: Definition = Definition {
        name: "test",
        kind: Kind::Counter,
        unit: None,
        help: "",
        labels: &["stage", "device"],
        kept: 1,
        others: 2,
        most: 5,
    };

    fn labels(stage: &str, device: &str) -> Labels {
        Labels::new(&[stage, device])
    }

    fn total(counter: &Counter, stage: &str) -> u64 {
        let of_stage = |(labels, _): &(&Labels, u64)| labels.values()[0] == stage;
        counter
            .samples()
            .into_iter()
            .filter(of_stage)
            .map(|(_, value)| value)
            .sum()
    }

    #[test]
    fn series_without_room_are_folded_and_sums_stay_right() {
        let mut counter = Counter::new(&FAMILY, DEFAULT_SERIES);
        let subject = Subject::default;
        let batch = |range: std::ops::Range<u64>| {
            range
                .map(|at| {
                    let stage = if at % 2 == 0 { "udp" } else { "tcp" };
                    (labels(stage, &format!("eth{at}")), (at, subject()))
                })
                .collect()
        };
        let mut expected = BTreeMap::from([("udp", 0), ("tcp", 0)]);
        let mut before: BTreeMap<Labels, u64> = BTreeMap::new();
        for round in 0..5 {
            counter.add(batch(0..10 + round));
            for at in 0..10 + round {
                *expected
                    .get_mut(if at % 2 == 0 { "udp" } else { "tcp" })
                    .unwrap() += at;
            }
            assert_eq!(total(&counter, "udp"), expected["udp"]);
            assert_eq!(total(&counter, "tcp"), expected["tcp"]);
            assert!(counter.samples().len() <= 5);
            for (labels, value) in counter.samples() {
                let last = before.insert(labels.clone(), value).unwrap_or(0);
                assert!(last <= value, "{labels:?} fell from {last} to {value}");
            }
        }
        assert!(
            counter.samples().contains_key(&labels("tcp", "eth9")),
            "the largest"
        );
        assert!(counter.folded() > 0);
    }

    #[test]
    fn a_vanished_device_loses_its_series() {
        let mut counter = Counter::new(&FAMILY, DEFAULT_SERIES);
        let subject = Subject {
            netns: 7,
            device: Some("eth0".into()),
        };
        counter.add([(labels("udp", "eth0"), (3, subject))].into());
        counter.retain(|subject| subject.device.as_deref() != Some("eth0"));
        assert!(counter.samples().is_empty());
    }

    #[test]
    fn counters_of_the_kernel_fold_by_their_growth() {
        let mut counter = Counter::new(&FAMILY, DEFAULT_SERIES);
        let read = |values: &[u64]| {
            values
                .iter()
                .enumerate()
                .map(|(at, value)| (labels("udp", &format!("eth{at}")), *value))
                .collect()
        };
        counter.observe(read(&[90, 80, 70, 5, 6]));
        assert_eq!(total(&counter, "udp"), 251);
        counter.observe(read(&[91, 81, 71, 8, 6]));
        assert_eq!(total(&counter, "udp"), 257);
        // The fourth began anew, the fifth is gone: `other` does not fall.
        counter.observe(read(&[91, 81, 71, 2]));
        assert_eq!(total(&counter, "udp"), 259);
        // A place is free: a new series takes it, and folded ones stay folded.
        counter.observe(
            [
                (labels("udp", "eth3"), 2),
                (labels("udp", "new"), 1),
                (labels("udp", "eth1"), 81),
            ]
            .into(),
        );
        let samples = counter.samples();
        assert!(samples.contains_key(&labels("udp", "new")));
        assert_eq!(samples[&labels("udp", "other")], 16);
    }

    #[test]
    fn gauges_keep_the_largest() {
        let mut gauge = Gauge::new(&FAMILY, DEFAULT_SERIES);
        gauge.set(
            (0..9)
                .map(|at| (labels("udp", &format!("eth{at}")), f64::from(-at)))
                .collect(),
        );
        assert_eq!(gauge.samples().len(), 4);
        assert!((gauge.samples().values().sum::<f64>() + 36.0).abs() < 1e-9);
        assert!(gauge.samples().contains_key(&labels("udp", "eth8")));
        gauge.set(BTreeMap::new());
        assert!(gauge.samples().is_empty());
    }

    #[test]
    fn hostile_names_are_bounded_and_escaped() {
        let labels = Labels::new(&[
            "a\"} 1\nforged{x=\"",
            &"ü".repeat(1000),
            "\u{1b}[2J\r\0",
            "\\",
        ]);
        let [forged, long, terminal, backslash] = labels.values() else {
            panic!("four");
        };
        assert_eq!(escape(forged), "a\\\"} 1\u{fffd}forged{x=\\\"");
        assert_eq!(long.len(), 128);
        assert_eq!(terminal, "\u{fffd}[2J\u{fffd}\u{fffd}");
        assert_eq!(escape(backslash), "\\\\");
    }
}
