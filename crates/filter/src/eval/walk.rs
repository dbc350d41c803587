//! Results of a walk over the rules (`struct pf_test_ctx`).

use std::sync::Arc;

use super::actions::Actions;
use super::decision::{Cause, LogCause, LogEvent, Match};
use super::descriptor::Descriptor;
use super::program::{Program, RuleId};
use super::source_node::NodeKey;
use super::step::{Outcome, Step};
use crate::rule::Rule;

/// Most notes on one packet.
const NOTES: usize = 32;

/// Results of the walk: `struct pf_test_ctx`.
#[derive(Debug)]
pub(super) struct Walk {
    pub packet: Descriptor,
    pub tag: Option<Arc<str>>,
    /// The last pass or block rule that matched, and the rule that called its anchor.
    pub winner: Option<RuleId>,
    pub winner_anchor: Option<RuleId>,
    pub matches: Vec<Match>,
    pub match_rules: Vec<RuleId>,
    pub actions: Actions,
    pub nat_rule: Option<RuleId>,
    pub nodes: Vec<NodeKey>,
    pub log: Vec<LogEvent>,
    pub notes: Vec<String>,
    /// How many rules were tested.
    pub tested: usize,
    /// Why the walk failed.
    pub failure: Option<Cause>,
    /// The outcome of each rule, for explanations.
    pub steps: Option<Vec<Step>>,
}

impl Walk {
    pub fn new(packet: Descriptor, explain: bool) -> Self {
        Self {
            tag: packet.packet.tag.clone(),
            packet,
            winner: None,
            winner_anchor: None,
            matches: Vec::new(),
            match_rules: Vec::new(),
            actions: Actions::default(),
            nat_rule: None,
            nodes: Vec::new(),
            log: Vec::new(),
            notes: Vec::new(),
            tested: 0,
            failure: None,
            steps: explain.then(Vec::new),
        }
    }

    /// Sets the tag of a rule that matched.
    pub fn take_tag(&mut self, rule: &Rule) {
        if let Some(tag) = &rule.tag {
            self.tag = Some(Arc::clone(tag));
        }
    }

    /// Adds a note, once.
    pub fn note(&mut self, note: String) {
        if self.notes.len() < NOTES && !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Logs a match, for an earlier `log (matches)` too.
    pub fn log_rule(&mut self, program: &Program<'_>, id: RuleId) {
        if let Some(log) = program.entry(id).rule.log {
            self.log.push(LogEvent {
                rule: Some(id),
                interface: log.to,
                because: LogCause::Rule,
            });
        }
    }

    /// `pf_log_matches`
    pub fn log_matches(&mut self, program: &Program<'_>, id: RuleId) {
        let asks = |rule: &Rule| rule.log.filter(|log| log.matches);
        if !self.actions.log_matches || asks(program.entry(id).rule).is_some() {
            return;
        }
        for &earlier in self.match_rules.iter().rev() {
            if let Some(log) = asks(program.entry(earlier).rule) {
                let because = LogCause::Matches(earlier);
                self.log.push(LogEvent {
                    rule: Some(id),
                    interface: log.to,
                    because,
                });
            }
        }
    }

    /// Records a rule's outcome, for explanations.
    pub fn record(&mut self, rule: RuleId, depth: usize, outcome: Outcome) {
        if let Some(steps) = &mut self.steps {
            steps.push(Step {
                rule,
                depth,
                outcome,
            });
        }
    }
}
