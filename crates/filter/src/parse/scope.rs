//! The place of the parser in a configuration.

use std::collections::HashSet;
use std::sync::Arc;

use crate::lex::At;
use crate::rule::Rule;

/// A rule set that is being read: the main one, or an anchor's between braces.
#[derive(Default)]
pub(crate) struct Scope {
    pub rules: Vec<Rule>,
    /// FreeBSD's `scrub` rules.
    pub scrubs: Vec<Rule>,
    /// FreeBSD's `nat`, `rdr` and `binat` rules.
    pub translations: Vec<Rule>,
    /// Names of anchors with braces in it.
    pub names: HashSet<Arc<str>>,
    /// The anchor's name; empty for the main rule set.
    pub name: Arc<str>,
}

/// A `load anchor` statement.
pub(super) struct Load {
    pub path: Arc<str>,
    pub file: Arc<str>,
    pub at: At,
}

/// Sections of a file: under `set require-order yes`, none may follow a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Section {
    None,
    Option,
    Scrub,
    Translation,
    Filter,
}

impl Section {
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "nothing",
            Self::Option => "options",
            Self::Scrub => "scrub rules",
            Self::Translation => "translation rules",
            Self::Filter => "filter rules",
        }
    }
}
