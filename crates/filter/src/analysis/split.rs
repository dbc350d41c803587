//! Splits a list by the cells of a field: which items are left in which cells.

use std::collections::HashMap;

use super::compile::Context;
use super::item::{Act, BOTH, Item, NO_RULE, Residual, Role, Traits};
use super::outcome::Effect;
use super::problem::Space;
use super::sets::{EMPTY_SET, SetId};
use super::space::Field;

/// Cells of a field in which the same items are left.
pub struct Group {
    /// The cells, as ranges.
    pub cells: Vec<(u32, u32)>,
    /// The items that test the field and pass, by index.
    active: Vec<u32>,
}

/// A list, split by a field.
pub struct Split {
    /// The field.
    pub field: Field,
    /// The groups that are of interest.
    pub groups: Vec<Group>,
    /// Items that are left in every cell, by index; those behind a translation even where the
    /// test fails.
    always: Vec<u32>,
}

/// A number for an index: numbers of sets of indices are the exclusive or of their members'.
fn token(index: u32) -> u128 {
    let mix = |seed: u64| {
        let mut x = u64::from(index)
            .wrapping_add(seed)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    };
    u128::from(mix(1)) << 64 | u128::from(mix(0x5851_f42d_4c95_7f2d))
}

/// Splits a list. Cells without an item for which `interesting` holds are left out, unless
/// `forced`.
pub fn split(
    context: &Context<'_>,
    space: &Space,
    list: &[Item],
    field: Field,
    forced: bool,
    interesting: &dyn Fn(Item) -> bool,
) -> Split {
    let mut always = Vec::new();
    let mut events: Vec<(u32, bool, u32)> = Vec::new();
    let mut interest = u32::from(forced);
    let mut tagged = false;
    for (at, &item) in list.iter().enumerate() {
        let residual = context.store.residual(item.residual());
        tagged |= !residual.tags.is_empty();
        let test = residual.test(field);
        let raw = residual.is_raw(field);
        if test.is_none() || raw {
            always.push(at as u32);
            interest += u32::from(interesting(item));
        }
        let Some(set) = test else { continue };
        for &(first, last) in space.cover(field, set) {
            events.push((first, true, at as u32));
            events.push((last + 1, false, at as u32));
        }
    }
    events.sort_unstable();
    let mut sweep = Sweep {
        active: Vec::new(),
        key: 0,
        groups: Vec::new(),
        known: HashMap::new(),
        each: tagged && field == Field::TAG,
    };
    let cells = space.domain(field).len();
    let mut from = 0;
    for (cell, enters, at) in events {
        if cell > from {
            sweep.emit(from, cell - 1, interest > 0);
            from = cell;
        }
        let counts = interesting(list[at as usize]);
        sweep.toggle(at, enters);
        if counts {
            interest = if enters { interest + 1 } else { interest - 1 };
        }
    }
    if from < cells {
        sweep.emit(from, cells - 1, interest > 0);
    }
    Split {
        field,
        groups: sweep.groups,
        always,
    }
}

struct Sweep {
    active: Vec<u32>,
    key: u128,
    groups: Vec<Group>,
    known: HashMap<u128, usize>,
    /// Every cell is a group of its own.
    each: bool,
}

impl Sweep {
    fn toggle(&mut self, at: u32, enters: bool) {
        self.key ^= token(at);
        match self.active.binary_search(&at) {
            Err(place) if enters => self.active.insert(place, at),
            Ok(place) if !enters => {
                self.active.remove(place);
            }
            _ => {}
        }
    }

    fn emit(&mut self, first: u32, last: u32, wanted: bool) {
        if !wanted {
            return;
        }
        if self.each {
            let one = |cell| Group {
                cells: vec![(cell, cell)],
                active: self.active.clone(),
            };
            return self.groups.extend((first..=last).map(one));
        }
        if let Some(&group) = self.known.get(&self.key) {
            return self.groups[group].cells.push((first, last));
        }
        self.known.insert(self.key, self.groups.len());
        self.groups.push(Group {
            cells: vec![(first, last)],
            active: self.active.clone(),
        });
    }
}

impl Split {
    /// The list that is left in a group.
    pub fn list(&self, context: &mut Context<'_>, list: &[Item], group: &Group) -> Vec<Item> {
        let mut left = Vec::with_capacity(self.always.len() + group.active.len() + 1);
        if self.field == Field::TAG
            && let Some(&(cell, _)) = group.cells.first()
            && list
                .iter()
                .any(|item| !context.store.residual(item.residual()).tags.is_empty())
        {
            left.push(Item::new(came_tagged(context, cell), BOTH));
        }
        let mut active = group.active.iter().copied().peekable();
        let mut always = self.always.iter().copied().peekable();
        loop {
            let (at, passed) = match (always.peek().copied(), active.peek().copied()) {
                (None, None) => return left,
                (Some(at), Some(other)) if at == other => (at, true),
                (Some(at), Some(other)) if at < other => (at, false),
                (Some(at), None) => (at, false),
                (_, Some(at)) => (at, true),
            };
            always.next_if_eq(&at);
            active.next_if_eq(&at);
            let item = list[at as usize];
            let residual = if passed {
                context.store.passed(item.residual(), self.field)
            } else if context
                .store
                .residual(item.residual())
                .test(self.field)
                .is_some()
            {
                context.store.failed(item.residual(), self.field)
            } else {
                item.residual()
            };
            left.push(Item::new(residual, item.sides()));
        }
    }
}

impl Group {
    /// Number of items that test the field and pass.
    pub fn weight(&self) -> usize {
        self.active.len()
    }
}

/// The residual of "the packet came with this tag".
fn came_tagged(context: &mut Context<'_>, tag: u32) -> u32 {
    let effect = context.store.effects.intern(&Effect::default_pass());
    let act = Act {
        role: Role::Tag,
        quick: false,
        tag: Some(tag),
        parent: NO_RULE,
        effect,
        rewrite: None,
        rule: NO_RULE,
    };
    let act = context.store.acts.intern(&act);
    context.store.intern(&Residual {
        tests: [].into(),
        raw: [].into(),
        tags: [].into(),
        act,
    })
}

/// The tests of a field in a list: index of the item, and set.
type Tests = Vec<(u32, SetId)>;

/// The field by which a list is best split; `None` if no item tests any.
///
/// A split into parts of the sizes *s* of a list of size *n* costs as if lists of size *n* took
/// *n*^*d* steps, where the sum of (*s*/*n*)^*d* is 1: the field with the least *d* is best.
pub fn choose(
    context: &Context<'_>,
    space: &Space,
    list: &[Item],
    forced: bool,
    interesting: &dyn Fn(Item) -> bool,
) -> Option<Field> {
    let mut fields: HashMap<Field, Tests> = HashMap::new();
    for (at, item) in list.iter().enumerate() {
        for &(field, set) in &context.store.residual(item.residual()).tests {
            if set != EMPTY_SET {
                fields.entry(field).or_default().push((at as u32, set));
            }
        }
    }
    if fields.len() < 2 {
        return fields.into_keys().next();
    }
    let sizes = Sizes::new(context, list, forced, interesting);
    let mut fields: Vec<(Field, Tests)> = fields.into_iter().collect();
    fields.sort_unstable_by_key(|entry| entry.0);
    let costs = fields
        .iter()
        .map(|(field, tests)| (sizes.exponent(context, space, list, *field, tests), *field));
    costs
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, field)| field)
}

/// Sizes of a list's items: one more than the number of their tests.
struct Sizes<'i> {
    /// Sizes of all items before each.
    before: Vec<u32>,
    /// Sizes of all quick items before each.
    quick_before: Vec<u32>,
    interest: u32,
    interesting: &'i dyn Fn(Item) -> bool,
}

impl<'i> Sizes<'i> {
    fn new(
        context: &Context<'_>,
        list: &[Item],
        forced: bool,
        interesting: &'i dyn Fn(Item) -> bool,
    ) -> Self {
        let mut before = vec![0];
        let mut quick_before = vec![0];
        let (mut sum, mut quick) = (0, 0);
        let mut interest = u32::from(forced);
        for &item in list {
            let size = 1 + context.store.residual(item.residual()).len() as u32;
            sum += size;
            if context.store.traits(item.residual()).has(Traits::QUICK) {
                quick += size;
            }
            before.push(sum);
            quick_before.push(quick);
            interest += u32::from(interesting(item));
        }
        Self {
            before,
            quick_before,
            interest,
            interesting,
        }
    }

    fn total(&self) -> u32 {
        self.before.last().copied().unwrap_or(0)
    }

    fn size(&self, at: u32) -> u32 {
        self.before[at as usize + 1] - self.before[at as usize]
    }

    /// The size of the list where this item, whose last test holds, decides.
    fn cut(&self, at: u32, quick: bool) -> u32 {
        if quick {
            return self.before[at as usize] + 1;
        }
        self.total() - self.before[at as usize] + self.quick_before[at as usize]
    }

    /// The exponent *d* of a split by a field.
    fn exponent(
        &self,
        context: &Context<'_>,
        space: &Space,
        list: &[Item],
        field: Field,
        tests: &Tests,
    ) -> f64 {
        let mut open = self.total();
        let mut interest = self.interest;
        let mut events: Vec<(u32, bool, u32)> = Vec::with_capacity(2 * tests.len());
        for &(at, set) in tests {
            open -= self.size(at);
            interest -= u32::from((self.interesting)(list[at as usize]));
            for &(first, last) in space.cover(field, set) {
                events.push((first, true, at));
                events.push((last + 1, false, at));
            }
        }
        events.sort_unstable();
        let mut parts = Vec::new();
        let mut gap = false;
        let mut active = 0;
        let mut cuts: Vec<(u32, u32)> = Vec::new();
        let mut from = 0;
        let mut emit = |active: u32, interest: u32, cuts: &[(u32, u32)]| {
            if interest == 0 || active == 0 && std::mem::replace(&mut gap, true) {
                return;
            }
            let cut = cuts.iter().map(|cut| cut.1).min().unwrap_or(u32::MAX);
            parts.push((open + active).min(cut));
        };
        for (cell, enters, at) in events {
            if cell > from {
                emit(active, interest, &cuts);
                from = cell;
            }
            let item = list[at as usize];
            let counts = u32::from((self.interesting)(item));
            let traits = context.store.traits(item.residual());
            let decides =
                self.size(at) == 2 && traits.has(Traits::DECIDES) && !traits.has(Traits::COMPLEX);
            if enters {
                active += self.size(at) - 1;
                interest += counts;
                if decides {
                    cuts.push((at, self.cut(at, traits.has(Traits::QUICK))));
                }
            } else {
                active -= self.size(at) - 1;
                interest -= counts;
                if decides {
                    cuts.retain(|cut| cut.0 != at);
                }
            }
        }
        if from < space.domain(field).len() {
            emit(active, interest, &cuts);
        }
        exponent(&parts, self.total())
    }
}

/// The *d* for which the sum of (*part*/*total*)^*d* is 1; infinite if a part is as large as the
/// whole.
fn exponent(parts: &[u32], total: u32) -> f64 {
    const MOST: f64 = 64.0;
    if parts.len() < 2 {
        return if parts.iter().any(|&part| part >= total) {
            MOST
        } else {
            0.0
        };
    }
    let mut counts = [0_u32; 257];
    for &part in parts {
        let share = (f64::from(part.max(1)) / f64::from(total)).log2();
        counts[(-share * 8.0).clamp(0.0, 256.0) as usize] += 1;
    }
    if counts[0] > 0 {
        // A part that is hardly smaller than the whole: the more of them, the worse.
        return MOST
            + parts
                .iter()
                .map(|&part| f64::from(part) / f64::from(total))
                .sum::<f64>();
    }
    let sum = |d: f64| {
        let each = counts.iter().enumerate().filter(|(_, count)| **count > 0);
        each.map(|(share, &count)| f64::from(count) * (-(share as f64) / 8.0 * d).exp2())
            .sum::<f64>()
    };
    let (mut low, mut high) = (0.0, MOST);
    for _ in 0..24 {
        let middle = f64::midpoint(low, high);
        if sum(middle) > 1.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halving_is_linear_and_copying_is_worst() {
        assert!((exponent(&[500, 500], 1000) - 1.0).abs() < 0.1);
        assert!(exponent(&[300, 300], 1000) < 1.0);
        assert!(exponent(&[999, 1000], 1000) > 64.0);
        assert!(exponent(&[10], 1000) <= 0.0);
    }
}
