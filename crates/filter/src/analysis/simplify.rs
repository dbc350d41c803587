//! Shortens a list by certain facts: rules that cannot decide any longer, tests of tags and of
//! translated addresses whose result is known.

use super::compile::Context;
use super::item::{
    AFTER, BEFORE, BOTH, Item, NO_RULE, NewValue, REWRITTEN, Residual, Role, Traits,
};
use super::problem::Space;
use super::space::Field;

/// A rule that hides another from the packets of a list, or would without it.
pub type Hidden = (u32, u32);

/// Shortens a list. With `hidden`, pairs of a rule that was dropped and of the rule that decides
/// instead are added to it.
pub fn simplify(
    context: &mut Context<'_>,
    space: &mut Space,
    list: &mut Vec<Item>,
    mut hidden: Option<&mut Vec<Hidden>>,
) {
    if list
        .iter()
        .any(|item| context.store.traits(item.residual()).has(Traits::COMPLEX))
    {
        let sides = [BEFORE, AFTER]
            .map(|side| Walk::new(context, space, side).run(list, hidden.as_deref_mut()));
        *list = merge(list, &sides);
    } else {
        plain(context, list, hidden);
    }
}

/// The same for lists without tags, translations and quick anchors.
fn plain(context: &Context<'_>, list: &mut Vec<Item>, mut hidden: Option<&mut Vec<Hidden>>) {
    const STOP: Traits = Traits::UNCONDITIONAL;
    let mut alive = BOTH;
    let mut stopper = NO_RULE;
    let mut kept = 0;
    for at in 0..list.len() {
        let item = list[at];
        let traits = context.store.traits(item.residual());
        let sides = item.sides() & alive;
        if sides == 0 {
            if let Some(hidden) = hidden.as_deref_mut() {
                hidden.push((context.store.act(item.residual()).rule, stopper));
                continue;
            }
            if alive == 0 {
                break;
            }
            continue;
        }
        if traits.has(STOP) && traits.has(Traits::QUICK) {
            alive &= !sides;
            stopper = context.store.act(item.residual()).rule;
        }
        list[kept] = Item::new(item.residual(), sides);
        kept += 1;
    }
    list.truncate(kept);
    let mut decided = 0;
    let mut winner = NO_RULE;
    let mut first = list.len();
    for at in (0..list.len()).rev() {
        let item = list[at];
        let traits = context.store.traits(item.residual());
        let mut sides = item.sides();
        if traits.has(Traits::DECIDES) {
            if !traits.has(Traits::QUICK) {
                sides &= !decided;
            }
            if sides == 0 {
                if let Some(hidden) = hidden.as_deref_mut() {
                    hidden.push((context.store.act(item.residual()).rule, winner));
                }
                continue;
            }
            if traits.has(STOP) {
                decided |= sides;
                winner = context.store.act(item.residual()).rule;
            }
        } else if traits.has(Traits::QUICK) {
            decided &= !sides;
        }
        first -= 1;
        list[first] = Item::new(item.residual(), sides);
    }
    list.drain(..first);
}

/// Both sides' residuals as one list.
fn merge(list: &[Item], sides: &[Vec<Option<u32>>; 2]) -> Vec<Item> {
    let mut merged = Vec::with_capacity(list.len());
    for (first, second) in sides[0].iter().copied().zip(sides[1].iter().copied()) {
        match (first, second) {
            (Some(first), Some(second)) if first == second => merged.push(Item::new(first, BOTH)),
            (first, second) => {
                merged.extend(first.map(|residual| Item::new(residual, BEFORE)));
                merged.extend(second.map(|residual| Item::new(residual, AFTER)));
            }
        }
    }
    merged
}

/// Possible tags at a place of the list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tag {
    /// As the packet came.
    Initial,
    /// This one.
    Known(u32),
    /// It depends on rules whose match is open.
    Open,
}

/// Possible values of a translated field at a place of the list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    /// As the packet came.
    Original,
    /// As a rule made it.
    New(NewValue),
    /// It depends on rules whose match is open.
    Open,
}

/// Possible last matches at a place of the list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    /// A rule of this quick anchor, or of none.
    Of(u32),
    /// It depends on rules whose match is open.
    Open,
}

/// A walk along the list of one rule set.
struct Walk<'w, 'a> {
    context: &'w mut Context<'a>,
    space: &'w mut Space,
    side: u32,
    tag: Tag,
    values: [Value; 4],
    last: Last,
    /// Quick anchors that have a rule of their own that may have matched.
    parents: Vec<u32>,
    marks: Vec<(u32, Tag)>,
}

/// The fate of an item.
enum Next {
    Keep(u32),
    Drop,
    Stop,
}

impl<'w, 'a> Walk<'w, 'a> {
    fn new(context: &'w mut Context<'a>, space: &'w mut Space, side: u32) -> Self {
        Self {
            context,
            space,
            side,
            tag: Tag::Initial,
            values: [Value::Original; 4],
            last: Last::Of(NO_RULE),
            parents: Vec::new(),
            marks: Vec::new(),
        }
    }

    /// The residuals that are left of the list's items; `None` for those that are not.
    fn run(mut self, list: &[Item], mut hidden: Option<&mut Vec<Hidden>>) -> Vec<Option<u32>> {
        let mut left = vec![None; list.len()];
        let mut stopper = None;
        let side = self.side;
        for (at, item) in list
            .iter()
            .enumerate()
            .filter(|(_, item)| item.sides() & side != 0)
        {
            if let Some(stopper) = stopper {
                if let Some(hidden) = hidden.as_deref_mut() {
                    hidden.push((self.context.store.act(item.residual()).rule, stopper));
                    continue;
                }
                break;
            }
            match self.step(item.residual()) {
                Next::Drop => {}
                Next::Keep(residual) => {
                    left[at] = Some(residual);
                    let traits = self.context.store.traits(residual);
                    if traits.has(Traits::UNCONDITIONAL) && traits.has(Traits::QUICK) {
                        stopper = Some(self.context.store.act(residual).rule);
                    }
                }
                Next::Stop => {
                    let decided = left[..at].iter().rev().flatten();
                    let mut decided = decided.filter(|&&residual| {
                        self.context.store.traits(residual).has(Traits::DECIDES)
                    });
                    stopper = Some(
                        decided
                            .next()
                            .map_or(NO_RULE, |&residual| self.context.store.act(residual).rule),
                    );
                }
            }
        }
        self.drop_idle(&mut left, hidden);
        left
    }

    /// The fate of an item, and its consequences for the items behind.
    fn step(&mut self, residual: u32) -> Next {
        let traits = self.context.store.traits(residual);
        let residual = if traits.has(Traits::COMPLEX) {
            let Some(residual) = self.resolve(residual) else {
                return Next::Drop;
            };
            residual
        } else {
            residual
        };
        let certain = self
            .context
            .store
            .traits(residual)
            .has(Traits::UNCONDITIONAL);
        let act = *self.context.store.act(residual);
        match act.role {
            Role::Mark(mark) => self.marks.push((mark, self.tag)),
            Role::Leave(anchor) => {
                if !self.parents.contains(&anchor)
                    || self.last != Last::Open && self.last != Last::Of(anchor)
                {
                    return Next::Drop;
                }
                if certain && self.last == Last::Of(anchor) {
                    return Next::Stop;
                }
            }
            Role::Decide => {
                self.last = if certain {
                    Last::Of(act.parent)
                } else if self.last == Last::Of(act.parent) {
                    self.last
                } else {
                    Last::Open
                };
                if !self.parents.contains(&act.parent) {
                    self.parents.push(act.parent);
                }
            }
            Role::Match | Role::Tag => {}
        }
        if let Some(tag) = act.tag {
            let known = Tag::Known(tag);
            self.tag = if certain || self.tag == known {
                known
            } else {
                Tag::Open
            };
        }
        if let Some(rewrite) = act.rewrite {
            let rewrite = *self.context.store.rewrites.get(rewrite);
            for (value, new) in self.values.iter_mut().zip(rewrite) {
                if new != NewValue::Same {
                    let new = Value::New(new);
                    *value = if certain || *value == new {
                        new
                    } else {
                        Value::Open
                    };
                }
            }
        }
        Next::Keep(residual)
    }

    /// The residual less the tests whose result is known here; `None` if one fails.
    fn resolve(&mut self, number: u32) -> Option<u32> {
        let residual = self.context.store.residual(number);
        if residual.raw.is_empty() && residual.tags.is_empty() {
            return Some(number);
        }
        let mut next = residual.clone();
        self.resolve_values(&mut next)?;
        self.resolve_tags(&mut next)?;
        Some(self.context.store.intern(&next))
    }

    fn resolve_values(&mut self, residual: &mut Residual) -> Option<()> {
        for (field, set) in residual.raw.clone() {
            let at = REWRITTEN.iter().position(|&other| other == field)?;
            match self.values[at] {
                Value::Open => continue,
                Value::Original => {
                    if residual.test(field) == Some(super::sets::EMPTY_SET) {
                        return None;
                    }
                }
                Value::New(value) => {
                    let set = std::sync::Arc::clone(self.space.set(field, set)?);
                    *residual = residual.without(field);
                    match value {
                        NewValue::Constant(value) if !set.contains(value) => return None,
                        NewValue::Constant(_) | NewValue::Same => {}
                        NewValue::Unknown(value) => {
                            let family = self.space.class.family;
                            match self.context.translated(field, value, &set, family) {
                                Ok(true) => {}
                                Ok(false) => return None,
                                Err(atom) => add(residual, Space::atom_test(atom, true))?,
                            }
                        }
                    }
                }
            }
            residual.raw = residual
                .raw
                .iter()
                .copied()
                .filter(|test| test.0 != field)
                .collect();
        }
        Some(())
    }

    fn resolve_tags(&mut self, residual: &mut Residual) -> Option<()> {
        for test in residual.tags.clone() {
            let tag = match test.mark {
                None => self.tag,
                Some(mark) => self
                    .marks
                    .iter()
                    .rev()
                    .find(|known| known.0 == mark)
                    .map_or(Tag::Initial, |known| known.1),
            };
            match tag {
                Tag::Open => continue,
                Tag::Known(tag) if (tag == test.tag) == test.negated => return None,
                Tag::Known(_) => {}
                Tag::Initial => {
                    let test = self.space.tag_test(test.tag, test.negated);
                    match residual.test(Field::TAG) {
                        None => add(residual, test)?,
                        Some(other) => {
                            let both = self
                                .space
                                .set(Field::TAG, other)?
                                .intersection(self.space.set(Field::TAG, test.1)?);
                            *residual = residual.without(Field::TAG);
                            let test = self.space.tag_set(&both)?;
                            add(residual, test)?;
                        }
                    }
                }
            }
            residual.tags = residual
                .tags
                .iter()
                .copied()
                .filter(|other| *other != test)
                .collect();
        }
        Some(())
    }

    /// Drops, from the end, rules whose decision or tag nothing can depend on.
    fn drop_idle(&mut self, left: &mut [Option<u32>], mut hidden: Option<&mut Vec<Hidden>>) {
        let mut idle = Idle {
            decided: None,
            spared: Vec::new(),
            tested: false,
            marks: Vec::new(),
        };
        for slot in left.iter_mut().rev() {
            let Some(residual) = *slot else { continue };
            *slot = idle.step(self.context, residual, hidden.as_deref_mut());
        }
    }
}

/// Adds a test; `None` if it contradicts another test of the field.
fn add(residual: &mut Residual, test: (Field, super::sets::SetId)) -> Option<()> {
    match residual.test(test.0) {
        Some(other) if other == test.1 => return Some(()),
        // An atom has two sets: two different ones exclude each other.
        Some(_) => return None,
        None => {}
    }
    let mut tests = residual.tests.to_vec();
    tests.push(test);
    tests.sort_unstable();
    residual.tests = tests.into();
    Some(())
}

/// The state of a walk from the end.
struct Idle {
    /// A rule behind decides, whatever the rules before do.
    decided: Option<u32>,
    /// Quick anchors that end before that rule: their own rules can still decide.
    spared: Vec<u32>,
    /// A rule behind tests the tag.
    tested: bool,
    /// Marks that rules behind refer to.
    marks: Vec<u32>,
}

impl Idle {
    /// The remainder of an item.
    fn step(
        &mut self,
        context: &mut Context<'_>,
        residual: u32,
        hidden: Option<&mut Vec<Hidden>>,
    ) -> Option<u32> {
        let traits = context.store.traits(residual);
        let certain = traits.has(Traits::UNCONDITIONAL);
        let act = *context.store.act(residual);
        let mut kept = Some(residual);
        match act.role {
            Role::Mark(mark) => {
                if !self.marks.contains(&mark) {
                    return None;
                }
                self.tested = true;
            }
            Role::Leave(anchor) => self.spared.push(anchor),
            Role::Decide => {
                let spared = act.parent != NO_RULE && self.spared.contains(&act.parent);
                if let Some(decider) = self.decided
                    && !act.quick
                    && !spared
                {
                    if let Some(hidden) = hidden {
                        hidden.push((act.rule, decider));
                    }
                    kept = act
                        .tag
                        .filter(|_| self.tested)
                        .map(|_| demoted(context, residual));
                } else if certain {
                    self.decided = Some(act.rule);
                    self.spared.clear();
                }
            }
            Role::Match if act.quick => self.decided = None,
            Role::Tag if !self.tested => return None,
            Role::Match | Role::Tag => {}
        }
        let kept = kept?;
        if act.tag.is_some() && certain {
            self.tested = false;
        }
        for test in &context.store.residual(kept).tags {
            match test.mark {
                Some(mark) => self.marks.push(mark),
                None => self.tested = true,
            }
        }
        Some(kept)
    }
}

/// A rule that cannot decide any longer, but sets a tag.
fn demoted(context: &mut Context<'_>, residual: u32) -> u32 {
    let effect = context
        .store
        .effects
        .intern(&super::outcome::Effect::default_pass());
    context.store.with_act(residual, |act| {
        act.role = Role::Tag;
        act.quick = false;
        act.parent = NO_RULE;
        act.effect = effect;
    })
}
