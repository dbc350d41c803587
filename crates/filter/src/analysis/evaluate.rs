//! The decision for one packet, by a walk along the list of its class.

use super::compile::Context;
use super::item::{NO_RULE, NewValue, REWRITTEN, Role, SKIP_RULE};
use super::outcome::{Effect, Outcome, outcome};
use super::problem::Problem;
use super::space::Field;
use super::witness::Witness;

/// A packet on its way through a list.
struct Walk<'w, 'a> {
    context: &'w mut Context<'a>,
    problem: &'w Problem,
    packet: &'w Witness,
    tag: u32,
    values: [Option<NewValue>; 4],
    marks: Vec<(u32, u32)>,
}

/// The deciding rule and the outcome of a packet of the problem's class on one side.
pub fn evaluate(
    context: &mut Context<'_>,
    problem: &Problem,
    packet: &Witness,
    side: u32,
) -> (u32, Outcome) {
    let tag = packet.value(Field::TAG, &context.vocabulary).unwrap_or(0) as u32;
    let decision = context.store.effects.intern(&Effect::default_pass());
    let mut walk = Walk {
        context,
        problem,
        packet,
        tag,
        values: [None; 4],
        marks: Vec::new(),
    };
    let (mut rule, mut decision, mut parent) = (NO_RULE, decision, NO_RULE);
    let mut matches = Vec::new();
    for item in problem.list.iter().filter(|item| item.sides() & side != 0) {
        if !walk.matches(item.residual()) {
            continue;
        }
        let act = *walk.context.store.act(item.residual());
        walk.apply(act.tag, act.rewrite);
        match act.role {
            Role::Decide => (rule, decision, parent) = (act.rule, act.effect, act.parent),
            Role::Match => matches.push(act.effect),
            Role::Leave(anchor) if parent == anchor => break,
            Role::Mark(mark) => walk.marks.push((mark, walk.tag)),
            Role::Leave(_) | Role::Tag => {}
        }
        if act.quick {
            break;
        }
    }
    if problem.reassembles & side != 0 && rule != SKIP_RULE {
        return (NO_RULE, Outcome::REASSEMBLE);
    }
    let effects: Vec<&Effect> = matches
        .iter()
        .map(|&effect| context.store.effects.get(effect))
        .collect();
    (
        rule,
        outcome(
            &effects,
            context.store.effects.get(decision),
            problem.space.class,
            packet.options,
        ),
    )
}

impl Walk<'_, '_> {
    fn matches(&mut self, residual: u32) -> bool {
        let residual = self.context.store.residual(residual).clone();
        let tags = residual.tags.iter().all(|test| {
            let marked = |mark| {
                self.marks
                    .iter()
                    .rev()
                    .find(|known| known.0 == mark)
                    .map_or(0, |known| known.1)
            };
            (test.mark.map_or(self.tag, marked) == test.tag) != test.negated
        });
        tags && residual
            .tests
            .iter()
            .all(|&(field, set)| self.passes(field, set))
    }

    fn passes(&mut self, field: Field, set: u32) -> bool {
        let new = REWRITTEN
            .iter()
            .position(|&other| other == field)
            .and_then(|at| self.values[at]);
        let Some(values) = self.problem.space.set(field, set) else {
            let holds = self.packet.value(field, &self.context.vocabulary) == Some(1);
            return (field, set) == super::problem::Space::atom_test(field, holds);
        };
        match new {
            None | Some(NewValue::Same) => self
                .packet
                .value(field, &self.context.vocabulary)
                .is_some_and(|value| values.contains(value)),
            Some(NewValue::Constant(value)) => values.contains(value),
            Some(NewValue::Unknown(value)) => {
                let family = self.problem.space.class.family;
                match self.context.translated(field, value, values, family) {
                    Ok(certain) => certain,
                    Err(atom) => self.packet.value(atom, &self.context.vocabulary) == Some(1),
                }
            }
        }
    }

    fn apply(&mut self, tag: Option<u32>, rewrite: Option<u32>) {
        self.tag = tag.unwrap_or(self.tag);
        let Some(rewrite) = rewrite else { return };
        let rewrite = *self.context.store.rewrites.get(rewrite);
        for (value, new) in self.values.iter_mut().zip(rewrite) {
            if new != NewValue::Same {
                *value = Some(new);
            }
        }
    }
}
