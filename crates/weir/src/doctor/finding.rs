//! A misconfiguration.

use super::evidence::Evidence;
use super::fix::Fix;

/// A misconfiguration. Every finding has evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The device's name, or [`HOST`](super::verdict::HOST).
    pub subject: String,
    /// The values that show it.
    pub evidence: Vec<Evidence>,
    /// Its effect on this host, in one sentence.
    pub message: String,
    /// The cure.
    pub fix: Fix,
}
