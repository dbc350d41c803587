//! `weir doctor`: what on this host makes its network slower or its figures wrong, each finding
//! with what was read, the command that mends it and the one that takes that back.
//!
//! A [`Check`] looks at one setting and gives [`Verdict`]s. It examines the network namespace
//! that it runs in, and through a [`Context`] only, so that a test can give it another root.

pub mod context;
pub mod device;
pub mod fix;
pub mod host;
mod irq;
pub mod journal;
pub mod mend;
pub mod report;

use anyhow::{Context as _, Result};
use serde::Serialize;

pub use context::Context;
pub use fix::{Fix, Read, Step};
pub use report::Report;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Packets are lost, or the fast path does not work or is not used.
    Critical,
    /// It costs a measurable part of a CPU.
    Warning,
    /// Worth knowing; it may be wanted.
    Advice,
}

/// One thing that the doctor looks at.
pub struct Check {
    /// Its name on the command line, in kebab-case. It stays what it is.
    pub id: &'static str,
    /// What a finding of it says, in a few words.
    pub title: &'static str,
    /// How much a finding matters.
    pub severity: Severity,
    /// Why it matters, in one sentence.
    pub why: &'static str,
    /// Where that is from: a kernel file, a manual page, an article.
    pub source: &'static str,
    /// More for `--explain`: what is read, what the fix does, and how to measure its effect.
    pub more: &'static str,
    /// Looks. No verdict at all means that there is nothing to look at, such as no device of a
    /// kind; an error means that it could not be checked.
    pub run: fn(&Context) -> Result<Vec<Verdict>>,
}

/// What a check says of one subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is as it should be.
    Fine {
        /// What was looked at: `host`, or the name of a device.
        subject: String,
        /// What was read.
        evidence: Vec<Evidence>,
    },
    /// It is not.
    Finding(Finding),
    /// It could not be looked at.
    Unchecked {
        /// What was to be looked at.
        subject: String,
        /// Why not, and what would help.
        reason: String,
    },
}

/// What was found to be wrong. There is none without evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What it is wrong with: `host`, or the name of a device.
    pub subject: String,
    /// What was read.
    pub evidence: Vec<Evidence>,
    /// What it means here, in one sentence.
    pub message: String,
    /// What mends it.
    pub fix: Fix,
}

/// Something that was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// Where: a file, a command, an attribute of netlink.
    pub source: String,
    /// What it said.
    pub value: String,
}

impl Evidence {
    /// That `source` said `value`.
    pub fn new(source: impl Into<String>, value: impl AsRef<str>) -> Self {
        Self {
            source: source.into(),
            value: value.as_ref().trim().to_owned(),
        }
    }
}

/// The subject of what holds for the whole host.
pub const HOST: &str = "host";

/// Every check there is.
pub fn checks() -> impl Iterator<Item = &'static Check> {
    host::CHECKS.iter().chain(device::CHECKS)
}

/// The check of this id.
pub fn check(id: &str) -> Result<&'static Check> {
    checks().find(|check| check.id == id).with_context(|| {
        let near = near(id);
        let ids = if near.is_empty() {
            checks().map(|check| check.id).collect()
        } else {
            near
        };
        let ids = ids.join(", ");
        format!("there is no check '{id}': choose from {ids}")
    })
}

/// The ids that share a word with what was typed, or begin like it.
fn near(id: &str) -> Vec<&'static str> {
    let is_near = |check: &str| {
        id.split(['-', '_', '.', ' '])
            .filter(|word| word.len() > 2)
            .any(|word| check.contains(word) || word.contains(check))
            || id.get(..3).is_some_and(|start| check.starts_with(start))
    };
    checks()
        .map(|check| check.id)
        .filter(|check| is_near(check))
        .collect()
}

impl Check {
    /// What it says; that it could not look is a verdict too.
    pub fn verdicts(&self, context: &Context) -> Vec<Verdict> {
        (self.run)(context).unwrap_or_else(|error| {
            vec![Verdict::Unchecked {
                subject: HOST.into(),
                reason: format!("{error:#}"),
            }]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_words_and_stand_for_one_check() {
        let mut seen = Vec::new();
        for check in checks() {
            let allowed =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            assert!(check.id.bytes().all(allowed), "{}", check.id);
            assert!(!seen.contains(&check.id), "{} twice", check.id);
            for text in [check.title, check.why, check.source, check.more] {
                assert!(!text.is_empty(), "{} does not explain itself", check.id);
            }
            seen.push(check.id);
        }
    }

    #[test]
    fn an_id_that_is_not_there_is_told_those_near() {
        let said = |id| check(id).map(|it| it.id).map_err(|error| error.to_string());
        assert_eq!(said("bpf-jit"), Ok("bpf-jit"));
        let near = said("jit").expect_err("there is no such id");
        assert!(
            near.contains("bpf-jit") && !near.contains("governor"),
            "{near}"
        );
        let all = said("zz").expect_err("there is no such id");
        assert!(all.contains("governor"), "{all}");
        assert!(said("\u{e9}\u{e9}").is_err());
    }
}
