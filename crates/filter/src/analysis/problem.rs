//! The comparison of two rule sets on the packets of one class.

use std::sync::Arc;

use super::align::align;
use super::compile::{Context, Draft, Never, Plan};
use super::flatten::{List, Step};
use super::item::{
    AFTER, Act, BEFORE, BOTH, Interner, Item, NO_RULE, REWRITTEN, Residual, Role, SKIP_RULE,
};
use super::outcome::Effect;
use super::sets::{SetId, SetTable, ValueSet};
use super::space::{Class, Domain, Field, Kind};
use super::vocabulary::Known;
use crate::rule::InterfaceMatch;

/// Number of the set {false} of every atom; that of {true} follows it.
const FALSE_SET: SetId = 1;

/// The fields of a class, cut by the rules of both rule sets.
#[derive(Debug)]
pub struct Space {
    /// The class.
    pub class: Class,
    /// The fields, atoms left out, by number; empty for a field that the class does not have.
    domains: Vec<Domain>,
    atom: Domain,
    sets: Vec<SetTable>,
    covers: Vec<Vec<Vec<(u32, u32)>>>,
    atom_covers: Vec<Vec<(u32, u32)>>,
}

impl Space {
    /// The domain of a field.
    pub fn domain(&self, field: Field) -> &Domain {
        self.domains.get(field.index()).unwrap_or(&self.atom)
    }

    /// The cells of a field that a set covers.
    pub fn cover(&self, field: Field, set: SetId) -> &[(u32, u32)] {
        match self.covers.get(field.index()) {
            Some(covers) => &covers[set as usize],
            None => &self.atom_covers[set as usize],
        }
    }

    /// The set with this number; `None` for an atom's.
    pub fn set(&self, field: Field, set: SetId) -> Option<&Arc<ValueSet>> {
        self.sets.get(field.index()).map(|sets| sets.get(set))
    }

    /// The test that an atom has this value.
    pub fn atom_test(field: Field, holds: bool) -> (Field, SetId) {
        (field, FALSE_SET + SetId::from(holds))
    }

    /// The test that the tag with which the packet came is this one, or is not.
    pub fn tag_test(&mut self, tag: u32, negated: bool) -> (Field, SetId) {
        let all = u128::from(self.domains[Field::TAG.index()].len() - 1);
        let one = ValueSet::one(u128::from(tag));
        self.intern(Field::TAG, if negated { one.complement(all) } else { one })
    }

    /// The test that the tag with which the packet came is one of a set; `None` for the empty set.
    pub fn tag_set(&mut self, set: &ValueSet) -> Option<(Field, SetId)> {
        (!set.is_empty()).then(|| self.intern(Field::TAG, set.clone()))
    }

    fn intern(&mut self, field: Field, set: ValueSet) -> (Field, SetId) {
        let set = Arc::new(set);
        let at = field.index();
        let number = self.sets[at].intern(&set);
        if number as usize == self.covers[at].len() {
            let cover = self.domains[at].cover(&set);
            self.covers[at].push(cover);
        }
        (field, number)
    }

    /// Number of packets, atoms left out.
    pub fn size(&self) -> f64 {
        self.domains
            .iter()
            .filter(|domain| domain.len() > 0)
            .map(Domain::total)
            .product()
    }
}

/// A rule of either rule set, or of both: indices of [`List::paths`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Joint {
    /// In the rule set before.
    pub before: Option<u32>,
    /// In the rule set after.
    pub after: Option<u32>,
}

/// A class's fields, and both rule sets as one list.
#[derive(Debug)]
pub struct Problem {
    /// The fields.
    pub space: Space,
    /// The rules.
    pub list: Vec<Item>,
    /// Which rule sets reassemble the fragments of this class.
    pub reassembles: u32,
}

/// Both rule sets, read for all classes.
pub struct Problems {
    /// One for each class.
    pub classes: Vec<Problem>,
    /// Rules by the number that acts have.
    pub joints: Vec<Joint>,
    /// For each step of the first list, why it matches nothing in any class.
    pub never: Vec<Option<Never>>,
}

/// A list with the roles of its steps.
pub struct Side<'l, 'a> {
    /// The list.
    pub list: &'l List<'a>,
    /// Its plans.
    pub plans: Vec<Plan>,
}

/// Both rule sets on one class, before they are one list.
struct Draw {
    space: Space,
    residuals: [Vec<Option<u32>>; 2],
    skips: [Vec<u32>; 2],
    reassembles: u32,
}

/// Reads two rule sets for all classes. With `attributed`, rules that do the same are told apart.
pub fn problems(
    context: &mut Context<'_>,
    sides: [&Side<'_, '_>; 2],
    classes: &[Class],
    attributed: bool,
) -> Problems {
    let mut never = vec![Some(Never::OtherPackets); sides[0].plans.len()];
    let draws: Vec<Draw> = classes
        .iter()
        .map(|&class| draw(context, sides, class, &mut never))
        .collect();
    let contents = contents(&draws, sides);
    let order = merge(&contents);
    let mut joints = Vec::new();
    let mut numbers = Vec::with_capacity(order.len());
    for &(before, after) in &order {
        numbers.push(joints.len() as u32);
        let path = |side: usize, at: Option<usize>| at.map(|at| sides[side].list.steps[at].path);
        joints.push(Joint {
            before: path(0, before),
            after: path(1, after),
        });
    }
    let build = |draw: Draw| {
        join(
            context,
            sides,
            draw,
            &order,
            attributed.then_some(&numbers[..]),
        )
    };
    let problems = draws.into_iter().map(build).collect();
    Problems {
        classes: problems,
        joints,
        never,
    }
}

fn draw(
    context: &mut Context<'_>,
    sides: [&Side<'_, '_>; 2],
    class: Class,
    never: &mut [Option<Never>],
) -> Draw {
    let mut reassembles = 0;
    let drafts = [0, 1].map(|side: usize| {
        let options = &sides[side].list.ruleset.options;
        if class.kind == Kind::Fragment && options.reassemble {
            reassembles |= 1 << side;
            return sides[side]
                .plans
                .iter()
                .map(|_| Err(Never::FragmentsReassembled))
                .collect();
        }
        context.drafts(sides[side].list, &sides[side].plans, class)
    });
    let skips = [0, 1].map(|side: usize| skip_drafts(context, sides[side].list));
    let all = drafts
        .iter()
        .flatten()
        .filter_map(|draft| draft.as_ref().ok())
        .chain(skips.iter().flatten());
    let mut space = space(context, class, all);
    let skips = skips.map(|drafts| {
        drafts
            .iter()
            .filter_map(|draft| skip_residual(context, &mut space, draft))
            .collect()
    });
    let residuals = [0, 1].map(|side: usize| {
        let each = drafts[side].iter().enumerate().map(|(at, draft)| {
            let found = match draft {
                Ok(draft) => {
                    residual(context, &mut space, sides[side], at, draft).ok_or(Never::OtherPackets)
                }
                Err(why) => Err(why.clone()),
            };
            if side == 0 {
                note(&mut never[at], found.as_ref().err());
            }
            found.ok()
        });
        each.collect()
    });
    Draw {
        space,
        residuals,
        skips,
        reassembles,
    }
}

/// Keeps the reason that says most; none once a class is found that the rule matches.
fn note(slot: &mut Option<Never>, why: Option<&Never>) {
    match (why, &slot) {
        (None, _) => *slot = None,
        (Some(why), Some(old)) if why > old => *slot = Some(why.clone()),
        _ => {}
    }
}

/// Tests of `set skip`, one for each name.
fn skip_drafts(context: &mut Context<'_>, list: &List<'_>) -> Vec<Draft> {
    let mut drafts = Vec::new();
    for name in &list.ruleset.options.skip {
        let test = InterfaceMatch {
            name: Arc::clone(name),
            negated: false,
        };
        let (field, set) = match context.vocabulary.interface(&test, false) {
            Known::Set(set) => (Field::INTERFACE, set),
            Known::Atom(atom) => (atom, ValueSet::one(1)),
        };
        drafts.push(Draft {
            tests: vec![(field, Arc::new(set))],
            tags: Vec::new(),
        });
    }
    drafts
}

fn space<'d>(
    context: &Context<'_>,
    class: Class,
    drafts: impl Iterator<Item = &'d Draft>,
) -> Space {
    let mut sets: Vec<SetTable> = (0..Field::COUNT).map(|_| SetTable::default()).collect();
    for (field, set) in drafts.flat_map(|draft| &draft.tests) {
        if let Some(table) = sets.get_mut(field.index()) {
            table.intern(set);
        }
    }
    let domains: Vec<Domain> = (0..Field::COUNT)
        .map(|number| {
            let field = Field(number as u32);
            let values = class
                .values(field)
                .or_else(|| context.vocabulary.values(field))
                .unwrap_or_default();
            if field == Field::TAG {
                let last = values.ranges().first().map_or(0, |range| range.1);
                let each: Vec<ValueSet> = (0..=last).map(ValueSet::one).collect();
                return Domain::new(&values, each.iter());
            }
            if field == Field::OPTIONS {
                return Domain::new(&values, [&ValueSet::one(1)].into_iter());
            }
            Domain::new(&values, sets[number].all().iter().map(|set| &**set))
        })
        .collect();
    let covers = sets.iter().zip(&domains);
    let covers = covers
        .map(|(sets, domain)| sets.all().iter().map(|set| domain.cover(set)).collect())
        .collect();
    Space {
        class,
        domains,
        atom: Domain::new(&ValueSet::range(0, 1), [&ValueSet::one(1)].into_iter()),
        sets,
        covers,
        atom_covers: vec![vec![], vec![(0, 0)], vec![(1, 1)]],
    }
}

/// The tests of a draft by numbers; `None` if no packet of the class passes them.
fn tests(space: &mut Space, draft: &Draft) -> Option<Box<[(Field, SetId)]>> {
    let mut tests = Vec::with_capacity(draft.tests.len());
    for (field, set) in &draft.tests {
        if field.as_atom().is_some() {
            if set.is_empty() {
                return None;
            }
            tests.push(Space::atom_test(*field, set.contains(1)));
            continue;
        }
        let number = space.sets[field.index()].intern(set);
        match space.cover(*field, number) {
            [] => return None,
            [(0, last)] if last + 1 == space.domain(*field).len() => {}
            _ => tests.push((*field, number)),
        }
    }
    Some(tests.into())
}

fn skip_residual(context: &mut Context<'_>, space: &mut Space, draft: &Draft) -> Option<u32> {
    let effect = context.store.effects.intern(&Effect::skip());
    let act = Act {
        role: Role::Decide,
        quick: true,
        tag: None,
        parent: NO_RULE,
        effect,
        rewrite: None,
        rule: SKIP_RULE,
    };
    let act = context.store.acts.intern(&act);
    let tests = tests(space, draft)?;
    Some(context.store.intern(&Residual {
        tests,
        raw: [].into(),
        tags: [].into(),
        act,
    }))
}

/// The residual of a step, without the identity of its rule.
fn residual(
    context: &mut Context<'_>,
    space: &mut Space,
    side: &Side<'_, '_>,
    at: usize,
    draft: &Draft,
) -> Option<u32> {
    let tests = tests(space, draft)?;
    let plan = &side.plans[at];
    let flat = &side.list.steps[at];
    let Some(number) = plan.act else {
        // An anchor that does nothing itself; its mark, if any, is all there is of it.
        let effect = context.store.effects.intern(&Effect::default_pass());
        let role = Role::Mark(plan.mark.unwrap_or(u32::MAX));
        let act = Act {
            role,
            quick: false,
            tag: None,
            parent: NO_RULE,
            effect,
            rewrite: None,
            rule: NO_RULE,
        };
        let act = context.store.acts.intern(&act);
        return Some(context.store.intern(&Residual {
            tests: [].into(),
            raw: [].into(),
            tags: [].into(),
            act,
        }));
    };
    let mut act = *context.store.acts.get(number);
    if flat.step == Step::Rule {
        act.rewrite = context.rewrite(flat.rule, space.class);
    }
    let act = context.store.acts.intern(&act);
    Some(context.store.intern(&Residual {
        tests,
        raw: [].into(),
        tags: draft.tags.clone().into(),
        act,
    }))
}

/// A number for each step: equal for steps that do the same to every packet.
fn contents(draws: &[Draw], sides: [&Side<'_, '_>; 2]) -> [Vec<u32>; 2] {
    let mut interner: Interner<Vec<Option<u32>>> = Interner::default();
    [0, 1].map(|side: usize| {
        let steps = 0..sides[side].plans.len();
        steps
            .map(|at| interner.intern(&draws.iter().map(|draw| draw.residuals[side][at]).collect()))
            .collect()
    })
}

/// Both lists as one: steps in common once, others between them.
fn merge(contents: &[Vec<u32>; 2]) -> Vec<(Option<usize>, Option<usize>)> {
    let [before, after] = contents;
    let mut order = Vec::with_capacity(before.len().max(after.len()));
    let (mut i, mut j) = (0, 0);
    for (pair_i, pair_j) in align(before, after)
        .into_iter()
        .chain([(before.len(), after.len())])
    {
        order.extend((i..pair_i).map(|at| (Some(at), None)));
        order.extend((j..pair_j).map(|at| (None, Some(at))));
        if pair_i < before.len() {
            order.push((Some(pair_i), Some(pair_j)));
        }
        (i, j) = (pair_i + 1, pair_j + 1);
    }
    order
}

/// The list of a class.
fn join(
    context: &mut Context<'_>,
    sides: [&Side<'_, '_>; 2],
    draw: Draw,
    order: &[(Option<usize>, Option<usize>)],
    numbers: Option<&[u32]>,
) -> Problem {
    let mut list = Vec::new();
    push_skips(&draw, &mut list);
    let mut joined = Joined {
        list,
        rewritten: [false; 4],
        keeps_idle: numbers.is_some() && sides[1].plans.is_empty(),
    };
    for (at, &(before, after)) in order.iter().enumerate() {
        let number = numbers.map_or(NO_RULE, |numbers| numbers[at]);
        let of =
            |side: usize, step: Option<usize>| step.and_then(|step| draw.residuals[side][step]);
        let (first, second) = (of(0, before), of(1, after));
        let mark =
            |side: usize, step: Option<usize>| step.and_then(|step| sides[side].plans[step].mark);
        let enters = |side: usize, step: Option<usize>| {
            step.is_some_and(|step| sides[side].list.steps[step].step == Step::Enter)
        };
        if enters(0, before) || enters(1, after) {
            joined.mark(context, mark(0, before), BEFORE);
            joined.mark(context, mark(1, after), AFTER);
        }
        match (first, second) {
            (Some(first), Some(second)) if first == second => {
                joined.push(context, first, BOTH, number);
            }
            _ => {
                for (residual, side) in [(first, BEFORE), (second, AFTER)] {
                    if let Some(residual) = residual {
                        joined.push(context, residual, side, number);
                    }
                }
            }
        }
    }
    let list = joined.list;
    Problem {
        space: draw.space,
        list,
        reassembles: draw.reassembles,
    }
}

fn push_skips(draw: &Draw, list: &mut Vec<Item>) {
    let [before, after] = &draw.skips;
    for &residual in before {
        list.push(Item::new(
            residual,
            if after.contains(&residual) {
                BOTH
            } else {
                BEFORE
            },
        ));
    }
    list.extend(
        after
            .iter()
            .filter(|residual| !before.contains(residual))
            .map(|&residual| Item::new(residual, AFTER)),
    );
}

struct Joined {
    list: Vec<Item>,
    /// Fields that a rule before may have translated.
    rewritten: [bool; 4],
    /// Rules without an effect are kept, to see whether they match.
    keeps_idle: bool,
}

impl Joined {
    /// Remembers the tag for an anchor.
    fn mark(&mut self, context: &mut Context<'_>, mark: Option<u32>, side: u32) {
        let Some(mark) = mark else { return };
        let effect = context.store.effects.intern(&Effect::default_pass());
        let act = Act {
            role: Role::Mark(mark),
            quick: false,
            tag: None,
            parent: NO_RULE,
            effect,
            rewrite: None,
            rule: NO_RULE,
        };
        let act = context.store.acts.intern(&act);
        let residual = context.store.intern(&Residual {
            tests: [].into(),
            raw: [].into(),
            tags: [].into(),
            act,
        });
        match self.list.last_mut() {
            // The mark of the other side.
            Some(last) if last.residual() == residual => {
                *last = Item::new(residual, last.sides() | side);
            }
            _ => self.list.push(Item::new(residual, side)),
        }
    }

    fn push(&mut self, context: &mut Context<'_>, residual: u32, side: u32, number: u32) {
        let act = *context.store.act(residual);
        if matches!(act.role, Role::Mark(_)) || self.is_idle(context, &act) {
            return;
        }
        let mut residual = context.store.residual(residual).clone();
        if number != NO_RULE {
            let act = Act {
                rule: number,
                ..act
            };
            residual.act = context.store.acts.intern(&act);
        }
        residual.raw = residual
            .tests
            .iter()
            .copied()
            .filter(|test| self.is_rewritten(test.0))
            .collect();
        if let Some(rewrite) = act.rewrite {
            let rewrite = context.store.rewrites.get(rewrite);
            for (rewritten, value) in self.rewritten.iter_mut().zip(rewrite) {
                *rewritten |= *value != super::item::NewValue::Same;
            }
        }
        let residual = context.store.intern(&residual);
        self.list.push(Item::new(residual, side));
    }

    fn is_rewritten(&self, field: Field) -> bool {
        REWRITTEN
            .iter()
            .zip(&self.rewritten)
            .any(|(&other, &rewritten)| other == field && rewritten)
    }

    /// Whether a rule changes nothing that is compared.
    fn is_idle(&self, context: &Context<'_>, act: &Act) -> bool {
        !self.keeps_idle
            && act.role == Role::Match
            && !act.quick
            && act.tag.is_none()
            && context.store.effects.get(act.effect).is_empty()
    }
}
