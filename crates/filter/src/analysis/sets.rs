//! Sets of values of one field: sorted, disjoint, inclusive ranges.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use crate::rule::{Comparison, Family, Network};

/// A set of values: sorted ranges that neither overlap nor touch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct ValueSet(Vec<(u128, u128)>);

impl ValueSet {
    /// The empty set.
    pub const EMPTY: Self = Self(Vec::new());

    /// All values from `low` to `high`, both included; empty where `low` is above `high`.
    pub fn range(low: u128, high: u128) -> Self {
        if low > high {
            Self::EMPTY
        } else {
            Self(vec![(low, high)])
        }
    }

    /// One value.
    pub fn one(value: u128) -> Self {
        Self::range(value, value)
    }

    /// The union of ranges in any order.
    pub fn of(mut ranges: Vec<(u128, u128)>) -> Self {
        ranges.retain(|&(low, high)| low <= high);
        ranges.sort_unstable();
        let mut merged: Vec<(u128, u128)> = Vec::with_capacity(ranges.len());
        for (low, high) in ranges {
            match merged.last_mut() {
                Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
                _ => merged.push((low, high)),
            }
        }
        Self(merged)
    }

    /// The addresses of a network, as numbers.
    pub fn network(network: Network) -> Self {
        let (low, high) = network_range(network);
        Self::range(low, high)
    }

    /// The ranges.
    pub fn ranges(&self) -> &[(u128, u128)] {
        &self.0
    }

    /// Whether it has no value.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it has the value.
    pub fn contains(&self, value: u128) -> bool {
        let at = self.0.partition_point(|&(_, high)| high < value);
        self.0.get(at).is_some_and(|&(low, _)| low <= value)
    }

    /// The values up to `max` that it does not have.
    #[must_use]
    pub fn complement(&self, max: u128) -> Self {
        let mut rest = Vec::with_capacity(self.0.len() + 1);
        let mut next = Some(0);
        for &(low, high) in &self.0 {
            if let Some(start) = next
                && start < low
            {
                rest.push((start, low - 1));
            }
            next = high.checked_add(1);
        }
        if let Some(start) = next
            && start <= max
        {
            rest.push((start, max));
        }
        Self(rest)
    }

    /// The values that both have.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let (mut left, mut right) = (0, 0);
        let mut common = Vec::new();
        while let (Some(&(a_low, a_high)), Some(&(b_low, b_high))) =
            (self.0.get(left), other.0.get(right))
        {
            let (low, high) = (a_low.max(b_low), a_high.min(b_high));
            if low <= high {
                common.push((low, high));
            }
            if a_high < b_high {
                left += 1;
            } else {
                right += 1;
            }
        }
        Self(common)
    }

    /// The values that either has.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self::of(self.0.iter().chain(&other.0).copied().collect())
    }

    /// The values up to `max` for which a comparison holds.
    pub fn comparison(comparison: Comparison, low: u32, high: u32, max: u128) -> Self {
        let (low, high) = (u128::from(low), u128::from(high));
        let up_to = |end: u128| Self::range(0, end.min(max));
        let below = |end: u128| end.checked_sub(1).map_or(Self::EMPTY, up_to);
        match comparison {
            Comparison::Equal => Self::range(low, low.min(max)),
            Comparison::NotEqual => Self::one(low).complement(max),
            Comparison::Less => below(low),
            Comparison::LessOrEqual => up_to(low),
            Comparison::Greater => Self::range(low + 1, max),
            Comparison::GreaterOrEqual => Self::range(low, max),
            Comparison::Range => Self::range(low, high.min(max)),
            Comparison::Inside => high
                .checked_sub(1)
                .map_or(Self::EMPTY, |end| Self::range(low + 1, end.min(max))),
            Comparison::Outside => below(low).union(&Self::range(high + 1, max)),
        }
    }
}

/// First and last address of a network, as numbers.
pub fn network_range(network: Network) -> (u128, u128) {
    match network.address {
        std::net::IpAddr::V4(address) => {
            let rest = u32::MAX.checked_shr(u32::from(network.bits)).unwrap_or(0);
            let low = u32::from(address) & !rest;
            (u128::from(low), u128::from(low | rest))
        }
        std::net::IpAddr::V6(address) => {
            let rest = u128::MAX.checked_shr(u32::from(network.bits)).unwrap_or(0);
            let low = u128::from(address) & !rest;
            (low, low | rest)
        }
    }
}

/// Number of a set in a [`SetTable`].
pub type SetId = u32;

/// The empty set's number in every table.
pub const EMPTY_SET: SetId = 0;

/// Each distinct set once, so that equal sets have equal numbers.
#[derive(Debug)]
pub struct SetTable {
    sets: Vec<Arc<ValueSet>>,
    numbers: HashMap<Arc<ValueSet>, SetId>,
}

impl Default for SetTable {
    fn default() -> Self {
        let empty = Arc::new(ValueSet::EMPTY);
        Self {
            sets: vec![Arc::clone(&empty)],
            numbers: HashMap::from([(empty, EMPTY_SET)]),
        }
    }
}

impl SetTable {
    /// The number of a set.
    pub fn intern(&mut self, set: &Arc<ValueSet>) -> SetId {
        if let Some(&number) = self.numbers.get(set) {
            return number;
        }
        let number = self.sets.len() as SetId;
        self.sets.push(Arc::clone(set));
        self.numbers.insert(Arc::clone(set), number);
        number
    }

    /// The set with this number.
    pub fn get(&self, number: SetId) -> &Arc<ValueSet> {
        &self.sets[number as usize]
    }

    /// All sets, by number.
    pub fn all(&self) -> &[Arc<ValueSet>] {
        &self.sets
    }
}

/// An address as a number.
pub fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

/// The address of a family with this number.
pub fn address(value: u128, family: Family) -> IpAddr {
    match family {
        Family::Inet => IpAddr::V4((value as u32).into()),
        Family::Inet6 => IpAddr::V6(value.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complements_reach_both_ends() {
        let set = ValueSet::of(vec![(3, 4), (0, 1), (2, 2), (9, 9)]);
        assert_eq!(set.ranges(), [(0, 4), (9, 9)]);
        assert_eq!(set.complement(10).ranges(), [(5, 8), (10, 10)]);
        assert_eq!(
            ValueSet::range(0, u128::MAX).complement(u128::MAX),
            ValueSet::EMPTY
        );
        assert_eq!(
            ValueSet::EMPTY.complement(u128::MAX).ranges(),
            [(0, u128::MAX)]
        );
    }

    #[test]
    fn comparisons_hold_for_exactly_their_set() {
        let all = [
            Comparison::Equal,
            Comparison::NotEqual,
            Comparison::Less,
            Comparison::LessOrEqual,
            Comparison::Greater,
            Comparison::GreaterOrEqual,
            Comparison::Range,
            Comparison::Inside,
            Comparison::Outside,
        ];
        for comparison in all {
            for low in 0..8 {
                for high in 0..8 {
                    let set = ValueSet::comparison(comparison, low, high, 7);
                    for value in 0..8 {
                        let holds = comparison.holds(value, low, high);
                        assert_eq!(
                            set.contains(u128::from(value)),
                            holds,
                            "{comparison:?} {low} {high} {value}"
                        );
                    }
                }
            }
        }
    }
}
