//! `weir doctor`: what on this host makes its network slower or its figures wrong, each finding
//! with what was read, the command that mends it and the one that takes that back.
//!
//! A [`Check`] looks at one setting and gives [`Verdict`]s. It examines the network namespace
//! that it runs in, and through a [`Context`] only, so that a test can give it another root.

pub mod context;
pub mod device;
pub mod fix;
pub mod host;

use anyhow::Result;
use serde::Serialize;

pub use context::Context;
pub use fix::{Fix, Read, Step};

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
