//! Exact comparison of two rule sets: which packets they treat differently; and of the rules of
//! one: which of them decide anything.
//!
//! The packets that reach the rules fall into classes that are plain products of fields.
//! In each class both rule sets become one list, in which rules in common stand once, and the
//! list is split, field by field, until every packet's decision is known or no rule is left that
//! only one rule set has. The result is a decision diagram of the difference: exact and complete
//! for a packet that meets no state.
//!
//! Facts that nobody knows in advance (the content of a table that is filled at run time, a
//! probability, an operating system) are fields of their own, with two values; the same fact has
//! the same text in both rule sets.

mod align;
mod build;
mod compile;
mod cover;
mod cube;
mod diff;
mod evaluate;
mod flatten;
mod item;
mod outcome;
mod problem;
mod region;
mod sentence;
mod sets;
mod simplify;
mod space;
mod split;
mod tables;
mod vocabulary;
mod witness;

use std::fmt;

pub use compile::Never;
pub use cover::{Cover, Coverage, RuleCover, cover, cover_within};
pub use cube::Packets;
pub use diff::{
    Certainty, Change, Comparison, Compiled, Decider, Decision, Diff, Region, diff, diff_within,
    equal,
};
pub use flatten::RulePath;
pub use outcome::{Actions, Answer, Logging, Outcome, State, Translation, Verdict};
pub use vocabulary::Fact;
pub use witness::{Assumption, Witness};

/// Bounds of an analysis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most nodes of a decision diagram; some 100 bytes each, with all that goes with it.
    pub nodes: usize,
    /// Most steps: rules looked at, over all lists.
    pub work: u64,
    /// Most regions that are described; the rest is counted.
    pub regions: usize,
    /// Most sets of packets by which a region is described; the rest is counted.
    pub packets: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            nodes: 1_000_000,
            work: 3_000_000_000,
            regions: 10_000,
            packets: 16,
        }
    }
}

/// Why an analysis has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The rules divide the packets into more parts than [`Limits`] allow.
    TooComplex {
        /// Nodes so far.
        nodes: usize,
        /// Steps so far.
        work: u64,
    },
    /// Anchors are nested deeper than pf's 64, or call themselves.
    AnchorsTooDeep,
    /// More than a million rules, once those of anchors stand where they are called.
    TooManyRules,
    /// Scrub rules or translations of FreeBSD, which are not compared.
    Translations,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooComplex { nodes, work } => {
                write!(f, "too complex: {nodes} nodes, {work} steps")
            }
            Self::AnchorsTooDeep => {
                f.write_str("anchors are nested deeper than 64, or call themselves")
            }
            Self::Translations => f.write_str(
                "scrub, nat, rdr and binat rules of FreeBSD are not compared: only filter rules are",
            ),
            Self::TooManyRules => {
                f.write_str("more than a million rules, those of anchors where they are called")
            }
        }
    }
}

impl std::error::Error for Error {}
