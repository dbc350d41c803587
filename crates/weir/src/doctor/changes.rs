//! The difference between one look and the next.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::report::{Found, Report, titled};

/// The findings of the look before.
#[derive(Debug, Default)]
pub struct Changes {
    /// The titles by id and subject; none before the first look.
    last: Option<BTreeMap<(&'static str, String), &'static str>>,
    found: bool,
}

impl Changes {
    /// The findings that appeared or went away since the report before, each with the time of this report;
    /// empty if nothing changed. Of the first report there is also a summary. A finding whose check could
    /// not be repeated stays.
    pub fn text(&mut self, report: &Report) -> String {
        let key = |found: &Found| (found.id, found.subject.clone());
        let findings = report.findings.iter();
        let mut now: BTreeMap<_, _> = findings.map(|it| (key(it), it.title)).collect();
        self.found |= !now.is_empty();
        let mut text = String::new();
        if self.last.is_none() {
            let _ = writeln!(text, "{}\n", report.host);
        }
        let last = self.last.take().unwrap_or_else(|| {
            let _ = writeln!(text, "{} {}", report.time, report.summary());
            BTreeMap::new()
        });
        for found in &report.findings {
            if !last.contains_key(&key(found)) {
                let _ = write!(text, "{} appeared\n{found}", report.time);
            }
        }
        for ((id, subject), title) in last {
            if now.contains_key(&(id, subject.clone())) {
                continue;
            }
            if report.unchecked.iter().any(|it| it.covers(id, &subject)) {
                now.insert((id, subject), title);
                continue;
            }
            let check = titled(id, &subject);
            let _ = writeln!(text, "{} gone {check}: {title}", report.time);
        }
        self.last = Some(now);
        text
    }

    /// Whether any report so far had a finding.
    pub const fn found(&self) -> bool {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::report::{FixText, Host, Unchecked};
    use crate::doctor::severity::Severity;
    use crate::doctor::verdict::HOST;

    fn report(subjects: &[&str]) -> Report {
        let found = |subject: &&str| Found {
            id: "some-check",
            severity: Severity::Warning,
            title: "it is off",
            subject: (*subject).into(),
            evidence: Vec::new(),
            message: "It matters.".into(),
            why: "That costs time.",
            source: "net/core/dev.c",
            fix: FixText {
                automatic: false,
                commands: Vec::new(),
                undo: Vec::new(),
                text: Some("wait".into()),
            },
        };
        Report {
            time: "T".into(),
            host: Host {
                kernel: "Linux".into(),
                netns: None,
                initial_netns: true,
                devices: Vec::new(),
            },
            findings: subjects.iter().map(found).collect(),
            unchecked: Vec::new(),
            ok: Vec::new(),
            not_applicable: Vec::new(),
        }
    }

    #[test]
    fn only_changes_are_told() {
        let mut changes = Changes::default();
        let first = changes.text(&report(&[]));
        assert!(first.contains("T 0 findings"), "{first}");
        assert!(!changes.found());
        assert_eq!(changes.text(&report(&[])), "");
        let text = changes.text(&report(&["a"]));
        let start = "T appeared\nWARNING  some-check a: it is off\n";
        assert!(text.starts_with(start), "{text}");
        assert_eq!(changes.text(&report(&["a"])), "", "it stays");
        let text = changes.text(&report(&["b"]));
        assert!(text.contains("some-check b:"), "{text}");
        assert!(text.ends_with("T gone some-check a: it is off\n"), "{text}");
        changes.text(&report(&[]));
        assert!(changes.found(), "of any look");
    }

    #[test]
    fn a_finding_that_could_not_be_checked_again_is_not_gone() {
        let mut changes = Changes::default();
        changes.text(&report(&["a", "b"]));
        for (subject, gone) in [("a", true), (HOST, false)] {
            let mut blind = report(&[]);
            blind.unchecked.push(Unchecked {
                id: "some-check",
                subject: subject.into(),
                reason: "no netlink".into(),
            });
            let text = changes.text(&blind);
            assert!(!text.contains("some-check a"), "{text}");
            assert_eq!(text.contains("gone some-check b"), gone, "{text}");
        }
        assert!(changes.text(&report(&[])).contains("gone some-check a"));
    }
}
