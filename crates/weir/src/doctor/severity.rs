//! The severity of a finding.

use std::fmt;

use serde::Serialize;

/// The severity of a finding, worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Packets are lost, or the fast path fails or is not used.
    Critical,
    /// It costs a measurable part of a CPU.
    Warning,
    /// Worth knowing; it may be intended.
    Advice,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Critical => "CRITICAL",
            Self::Warning => "WARNING",
            Self::Advice => "ADVICE",
        })
    }
}
