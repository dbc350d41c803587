//! Outcomes of rules on the way to a verdict.

use super::field::Fields;
use super::program::RuleId;

/// The outcome of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The rule.
    pub rule: RuleId,
    /// How many anchors it is in.
    pub depth: usize,
    /// Its outcome.
    pub outcome: Outcome,
}

/// Whether a rule matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It matched.
    Matched,
    /// It calls an anchor, and its own tests succeeded: the anchor's rules follow.
    Entered,
    /// These tests failed, in pf's order. pf itself stops at the first. Tests that count or draw
    /// are only there as the first.
    Failed(Fields),
}
