//! The result of a check for one subject.

use super::evidence::Evidence;
use super::finding::Finding;
use super::fix::Fix;

/// The subject of checks of the whole host.
pub const HOST: &str = "host";

/// The result of a check for one subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing is wrong.
    Fine {
        /// The device's name, or [`HOST`].
        subject: String,
        /// The values that show it.
        evidence: Vec<Evidence>,
    },
    /// Something is wrong.
    Finding(Finding),
    /// The check could not run.
    Unchecked {
        /// The device's name, or [`HOST`].
        subject: String,
        /// The cause and the cure.
        reason: String,
    },
}

impl Verdict {
    /// Nothing is wrong with `subject`.
    pub fn fine(subject: impl Into<String>, evidence: Vec<Evidence>) -> Self {
        Self::Fine {
            subject: subject.into(),
            evidence,
        }
    }

    /// Something is wrong with `subject`.
    pub fn found(
        subject: impl Into<String>,
        evidence: Vec<Evidence>,
        message: impl Into<String>,
        fix: Fix,
    ) -> Self {
        Self::Finding(Finding {
            subject: subject.into(),
            evidence,
            message: message.into(),
            fix,
        })
    }

    /// `subject` could not be checked.
    pub fn unchecked(subject: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Unchecked {
            subject: subject.into(),
            reason: reason.into(),
        }
    }
}
