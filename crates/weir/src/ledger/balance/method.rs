//! How losses get their owners.

use super::rules::{COUNTERS, CounterRule, RULES, Rule};

/// How losses get their owners. Tests break it to see that the fault suite notices.
#[derive(Debug, Clone, Copy)]
pub struct Method {
    /// The kernel's reasons.
    pub rules: &'static [Rule],
    /// Losses that a counter alone shows.
    pub counters: &'static [CounterRule],
    /// Whether a loss that has an owner is taken from the other counters that count it.
    pub claims: bool,
    /// Whether skbs and segments are told apart.
    pub segments: bool,
}

impl Default for Method {
    fn default() -> Self {
        Self {
            rules: RULES,
            counters: COUNTERS,
            claims: true,
            segments: true,
        }
    }
}
