//! Rules in the form in which they are compared: the remaining tests, and their effects.

use std::collections::HashMap;
use std::hash::Hash;

use super::outcome::Effect;
use super::sets::{EMPTY_SET, SetId};
use super::space::Field;

/// Each distinct value once, with a number.
#[derive(Debug)]
pub struct Interner<T> {
    values: Vec<T>,
    numbers: HashMap<T, u32>,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            numbers: HashMap::new(),
        }
    }
}

impl<T: Clone + Eq + Hash> Interner<T> {
    /// The number of a value.
    pub fn intern(&mut self, value: &T) -> u32 {
        if let Some(&number) = self.numbers.get(value) {
            return number;
        }
        let number = self.values.len() as u32;
        self.values.push(value.clone());
        self.numbers.insert(value.clone(), number);
        number
    }

    /// The value with this number.
    pub fn get(&self, number: u32) -> &T {
        &self.values[number as usize]
    }
}

/// No rule: the default, or no identity.
pub const NO_RULE: u32 = u32::MAX;
/// `set skip`.
pub const SKIP_RULE: u32 = u32::MAX - 1;

/// The role of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// A pass or block rule.
    Decide,
    /// A match rule.
    Match,
    /// Sets a tag, no more: an anchor, or a rule that cannot decide any longer.
    Tag,
    /// Remembers the tag, for the `tagged` of the anchor with this number.
    Mark(u32),
    /// Stops if the last match is a rule of the anchor with this number itself.
    Leave(u32),
}

/// The effect of a matching item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Act {
    /// Its kind.
    pub role: Role,
    /// The walk stops.
    pub quick: bool,
    /// The tag that it sets.
    pub tag: Option<u32>,
    /// The quick anchor that it is a rule of; `NO_RULE` for none.
    pub parent: u32,
    /// Its [`Effect`].
    pub effect: u32,
    /// Its [`Rewrite`], for a match rule that translates.
    pub rewrite: Option<u32>,
    /// The rule, where rules are told apart.
    pub rule: u32,
}

/// A test of the current tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TagTest {
    /// The tag.
    pub tag: u32,
    /// `!`
    pub negated: bool,
    /// Tested at this mark, not at the item.
    pub mark: Option<u32>,
}

/// A field's value behind a translating `match` rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NewValue {
    /// It stays.
    Same,
    /// This value.
    Constant(u128),
    /// Unknown; the number tells unknown values apart.
    Unknown(u32),
}

/// The fields that `match` rules translate.
pub const REWRITTEN: [Field; 4] = [
    Field::SOURCE,
    Field::SOURCE_PORT,
    Field::DESTINATION,
    Field::DESTINATION_PORT,
];

/// Values of the [`REWRITTEN`] fields behind a translating `match` rule.
pub type Rewrite = [NewValue; 4];

/// A rule, less the tests that are known to hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Residual {
    /// Tests of the packet, by field. An item behind a translation fails at an empty set only
    /// once the translation is known not to match.
    pub tests: Box<[(Field, SetId)]>,
    /// Tests of fields that an earlier rule may translate, as the rule has them.
    pub raw: Box<[(Field, SetId)]>,
    /// Tests of the tag.
    pub tags: Box<[TagTest]>,
    /// Number of the [`Act`].
    pub act: u32,
}

impl Residual {
    /// Whether it matches every packet that is left.
    pub fn is_unconditional(&self) -> bool {
        self.tests.is_empty() && self.tags.is_empty() && self.raw.is_empty()
    }

    /// Number of tests.
    pub fn len(&self) -> usize {
        self.tests.len() + self.tags.len()
    }

    /// The test of a field.
    pub fn test(&self, field: Field) -> Option<SetId> {
        self.tests
            .iter()
            .find(|test| test.0 == field)
            .map(|test| test.1)
    }

    /// Whether an earlier rule may translate this field.
    pub fn is_raw(&self, field: Field) -> bool {
        self.raw.iter().any(|test| test.0 == field)
    }

    /// Without the test of a field.
    pub fn without(&self, field: Field) -> Self {
        let tests = self
            .tests
            .iter()
            .copied()
            .filter(|test| test.0 != field)
            .collect();
        Self {
            tests,
            ..self.clone()
        }
    }

    /// With the test of a field failed.
    pub fn failed(&self, field: Field) -> Self {
        let fail =
            |&(other, set): &(Field, SetId)| (other, if other == field { EMPTY_SET } else { set });
        Self {
            tests: self.tests.iter().map(fail).collect(),
            ..self.clone()
        }
    }
}

/// An item of a list: a residual's number, and the rule sets that have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Item(u32);

/// The rule set before.
pub const BEFORE: u32 = 1;
/// The rule set after.
pub const AFTER: u32 = 2;
/// Both rule sets.
pub const BOTH: u32 = 3;

/// Most residuals that items can number.
pub const RESIDUALS_MAX: usize = 1 << 30;

impl Item {
    /// An item.
    pub fn new(residual: u32, sides: u32) -> Self {
        Self(residual << 2 | sides)
    }

    /// Its residual.
    pub fn residual(self) -> u32 {
        self.0 >> 2
    }

    /// The rule sets that have it: [`BEFORE`], [`AFTER`], [`BOTH`].
    pub fn sides(self) -> u32 {
        self.0 & 3
    }

    /// All of it as a number.
    pub fn bits(self) -> u32 {
        self.0
    }
}

/// Residuals, acts and effects by number.
#[derive(Debug, Default)]
pub struct Store {
    residuals: Interner<Residual>,
    /// Acts.
    pub acts: Interner<Act>,
    /// Effects.
    pub effects: Interner<Effect>,
    /// Translations of match rules.
    pub rewrites: Interner<Rewrite>,
    passed: HashMap<(u32, Field), u32>,
    failed: HashMap<(u32, Field), u32>,
    traits: Vec<Traits>,
}

/// Whether a residual is unconditional, and so on: as bits, for the passes over long lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits(u8);

impl Traits {
    /// It matches every packet that is left.
    pub const UNCONDITIONAL: Self = Self(1);
    /// It is quick.
    pub const QUICK: Self = Self(2);
    /// It is a pass or block rule.
    pub const DECIDES: Self = Self(4);
    /// Tags, translations or quick anchors are involved.
    pub const COMPLEX: Self = Self(8);

    /// Whether it has all of these.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    fn of(residual: &Residual, act: &Act) -> Self {
        let plain = matches!(act.role, Role::Decide | Role::Match)
            && act.tag.is_none()
            && act.rewrite.is_none();
        let complex = !plain || !residual.tags.is_empty() || !residual.raw.is_empty();
        let bits = [
            (residual.is_unconditional(), Self::UNCONDITIONAL),
            (act.quick, Self::QUICK),
            (act.role == Role::Decide, Self::DECIDES),
            (complex, Self::COMPLEX),
        ];
        Self(
            bits.into_iter()
                .filter(|bit| bit.0)
                .fold(0, |all, bit| all | bit.1.0),
        )
    }
}

impl Store {
    /// The residual with this number.
    pub fn residual(&self, number: u32) -> &Residual {
        self.residuals.get(number)
    }

    /// The number of a residual.
    pub fn intern(&mut self, residual: &Residual) -> u32 {
        let number = self.residuals.intern(residual);
        if number as usize == self.traits.len() {
            self.traits
                .push(Traits::of(residual, self.acts.get(residual.act)));
        }
        number
    }

    /// Number of residuals.
    pub fn len(&self) -> usize {
        self.traits.len()
    }

    /// Traits of the residual with this number.
    pub fn traits(&self, number: u32) -> Traits {
        self.traits[number as usize]
    }

    /// The act of a residual.
    pub fn act(&self, residual: u32) -> &Act {
        self.acts.get(self.residuals.get(residual).act)
    }

    /// The residual once its test of a field holds.
    pub fn passed(&mut self, residual: u32, field: Field) -> u32 {
        if let Some(&known) = self.passed.get(&(residual, field)) {
            return known;
        }
        let next = self.residuals.get(residual).without(field);
        let next = self.intern(&next);
        self.passed.insert((residual, field), next);
        next
    }

    /// The residual once its test of a field has failed, where a translation may yet change that.
    pub fn failed(&mut self, residual: u32, field: Field) -> u32 {
        if let Some(&known) = self.failed.get(&(residual, field)) {
            return known;
        }
        let next = self.residuals.get(residual).failed(field);
        let next = self.intern(&next);
        self.failed.insert((residual, field), next);
        next
    }

    /// The residual with another act.
    pub fn with_act(&mut self, residual: u32, change: impl FnOnce(&mut Act)) -> u32 {
        let mut next = self.residuals.get(residual).clone();
        let mut act = *self.acts.get(next.act);
        change(&mut act);
        next.act = self.acts.intern(&act);
        self.intern(&next)
    }
}
