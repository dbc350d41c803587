//! The walk over the rules: the last match wins, unless one is quick (`pf_match_rule`).

use super::decision::{Cause, Match};
use super::engine::Engine;
use super::facts::Facts;
use super::field::Field;
use super::program::{Entry, Program, RuleId, Target};
use super::step::Outcome;
use super::walk::Walk;
use crate::rule::Action;

/// Anchors that can be nested: one less than `PF_ANCHOR_STACK_MAX`.
pub(super) const DEPTH: usize = 63;
/// How often each rule may be tested for one packet, on average: anchors that are called twice at
/// each depth would take forever.
const VISITS: usize = 64;
/// Tests that any rule set may take.
const TESTS_MIN: usize = 1 << 16;

/// How the walk over a rule set ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Ok,
    Quick,
    Fail,
}

impl Engine<'_> {
    /// Walks a rule set that `anchor` calls.
    pub(super) fn walk(
        &mut self,
        program: &Program<'_>,
        interface: &[Option<bool>],
        level: usize,
        anchor: Option<RuleId>,
        depth: usize,
        walk: &mut Walk,
    ) -> Status {
        let Some(level) = program.levels.get(level) else {
            return Status::Ok;
        };
        for &id in &level.rules {
            walk.tested += 1;
            let most = (program.entries.len() * VISITS).max(TESTS_MIN);
            if walk.tested > most {
                walk.note(format!("the walk was given up after {most} rules"));
                walk.failure = Some(Cause::AnchorDepth);
                return Status::Fail;
            }
            let entry = program.entry(id);
            if let Some(field) = self.first_failure(program, interface, id, entry, walk) {
                self.record_failure(program, interface, id, field, depth, walk);
                continue;
            }
            walk.take_tag(entry.rule);
            let status = match entry.target {
                None => self.matched(program, id, anchor, depth, walk),
                Some(target) => {
                    walk.record(id, depth, Outcome::Entered);
                    self.call(program, interface, id, target, depth, walk)
                }
            };
            if status != Status::Ok {
                return status;
            }
        }
        Status::Ok
    }

    /// The first test of a rule that fails, counting and drawing where it comes to that.
    pub(super) fn first_failure(
        &mut self,
        program: &Program<'_>,
        interface: &[Option<bool>],
        id: RuleId,
        entry: &Entry<'_>,
        walk: &mut Walk,
    ) -> Option<Field> {
        if self
            .counters
            .get(id.index())
            .is_some_and(|counters| counters.expired)
        {
            return Some(Field::Once);
        }
        let facts = self.facts(program, interface);
        if let Some(field) = facts.first_failure(entry, walk, false) {
            return Some(field);
        }
        let rule = entry.rule;
        if let Some(probability) = rule.probability
            && !self.happens(probability)
        {
            return Some(Field::Probability);
        }
        let facts = self.facts(program, interface);
        if let Some(field) = facts.first_failure(entry, walk, true) {
            return Some(field);
        }
        if rule.max_packet_rate.is_some() && self.exceeds_rate(id) {
            return Some(Field::Rate);
        }
        None
    }

    /// A rule matched that is no call of an anchor.
    fn matched(
        &mut self,
        program: &Program<'_>,
        id: RuleId,
        anchor: Option<RuleId>,
        depth: usize,
        walk: &mut Walk,
    ) -> Status {
        let rule = program.entry(id).rule;
        if rule.once
            && let Some(counters) = self.counters.get_mut(id.index())
        {
            counters.expired = true;
        }
        walk.record(id, depth, Outcome::Matched);
        if rule.action == Action::Match {
            walk.match_rules.push(id);
            walk.actions.add(rule);
            let Ok(translated) = self.translate(program, id, walk) else {
                walk.failure = Some(Cause::Translate);
                return Status::Fail;
            };
            walk.log_rule(program, id);
            walk.matches.push(Match {
                rule: id,
                decides: false,
                translated: translated.map(Box::new),
            });
        } else {
            walk.matches.push(Match {
                rule: id,
                decides: true,
                translated: None,
            });
            walk.winner = Some(id);
            walk.winner_anchor = anchor;
        }
        walk.log_matches(program, id);
        if rule.quick {
            Status::Quick
        } else {
            Status::Ok
        }
    }

    /// Walks the rules that an anchor's rule calls.
    fn call(
        &mut self,
        program: &Program<'_>,
        interface: &[Option<bool>],
        id: RuleId,
        target: Target,
        depth: usize,
        walk: &mut Walk,
    ) -> Status {
        let children: Vec<usize> = match target {
            Target::Nowhere => {
                let anchor = anchor_name(program, id);
                walk.note(format!(
                    "anchor \"{anchor}\" leads above the main rule set: it has no rules"
                ));
                return Status::Ok;
            }
            Target::One(level) => {
                if program
                    .levels
                    .get(level)
                    .is_some_and(|level| level.rules.is_empty())
                {
                    let anchor = anchor_name(program, id);
                    walk.note(format!("anchor \"{anchor}\" has no rules here"));
                }
                vec![level]
            }
            Target::Children(level) => program
                .levels
                .get(level)
                .map(|level| level.children.values().copied().collect())
                .unwrap_or_default(),
        };
        for child in children {
            if depth >= DEPTH {
                walk.failure = Some(Cause::AnchorDepth);
                return Status::Fail;
            }
            let status = self.walk(program, interface, child, Some(id), depth + 1, walk);
            if status != Status::Ok {
                return status;
            }
            // A quick anchor stops only if the last match is a direct child of its rules.
            if program.entry(id).rule.quick && walk.winner_anchor == Some(id) {
                return Status::Quick;
            }
        }
        Status::Ok
    }

    pub(super) fn facts<'e>(
        &'e self,
        program: &'e Program<'e>,
        interface: &'e [Option<bool>],
    ) -> Facts<'e> {
        Facts {
            program,
            tables: &self.tables,
            interface,
        }
    }

    fn record_failure(
        &mut self,
        program: &Program<'_>,
        interface: &[Option<bool>],
        id: RuleId,
        field: Field,
        depth: usize,
        walk: &mut Walk,
    ) {
        if walk.steps.is_none() {
            return;
        }
        let entry = program.entry(id);
        let facts = self.facts(program, interface);
        let later = entry.asked.after(field).iter();
        let failed = later.filter(|&other| facts.fails(other, entry, walk));
        let fields = std::iter::once(field).chain(failed).collect();
        walk.record(id, depth, Outcome::Failed(fields));
    }
}

fn anchor_name(program: &Program<'_>, id: RuleId) -> String {
    match program.entry(id).rule.anchor.as_deref() {
        Some(crate::rule::Anchor::Inline { name, .. } | crate::rule::Anchor::Call(name)) => {
            name.to_string()
        }
        None => String::new(),
    }
}
