//! A check of one setting or counter.

use anyhow::Result;

use super::context::Context;
use super::severity::Severity;
use super::verdict::{HOST, Verdict};

/// A check of one setting or counter.
pub struct Check {
    /// Its name on the command line, in kebab-case. It never changes.
    pub id: &'static str,
    /// The title of its findings, in the words of a search engine's user.
    pub title: &'static str,
    /// The severity of its findings.
    pub severity: Severity,
    /// The reason why it matters, in one sentence.
    pub why: &'static str,
    /// The source of that: a kernel file, a manual page, an article.
    pub source: &'static str,
    /// For `--explain`: the values read, the effect of the fix, and how to measure that effect.
    pub more: &'static str,
    /// Counter files that [`Context::twice`] compares, read when the run starts. A `*` stands for
    /// every entry of a directory.
    pub counters: &'static [&'static str],
    /// Examines the host through the context. No verdict: the host has no such setting or device.
    /// An error: the check could not run.
    pub run: fn(&Context) -> Result<Vec<Verdict>>,
}

impl Check {
    /// Runs the check; an error becomes [`Verdict::Unchecked`].
    pub fn verdicts(&self, context: &Context) -> Vec<Verdict> {
        (self.run)(context)
            .unwrap_or_else(|error| vec![Verdict::unchecked(HOST, format!("{error:#}"))])
    }
}
