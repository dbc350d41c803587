//! Sources: how many states and connections each has, and the addresses that they stick to.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::program::RuleId;
use crate::rule::Rate;

/// Factor of the fixed point numbers that rates are counted in.
const FIXED_POINT: u32 = 1000;

/// A rate that decays (`struct pf_threshold`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Threshold {
    limit: u32,
    seconds: u32,
    count: u32,
    last: u64,
}

impl Threshold {
    pub fn new(rate: Rate, now: u64) -> Self {
        Self {
            limit: rate.limit.saturating_mul(FIXED_POINT),
            seconds: rate.seconds,
            count: 0,
            last: now,
        }
    }

    pub fn add(&mut self, now: u64) {
        let passed = now.saturating_sub(self.last);
        if passed >= u64::from(self.seconds) {
            self.count = 0;
        } else {
            // 32 bits wide as in pf; seconds is not 0 here.
            let decay = u64::from(self.count) * passed / u64::from(self.seconds.max(1));
            self.count = self.count.saturating_sub(decay as u32);
        }
        self.count = self.count.saturating_add(FIXED_POINT);
        self.last = now;
    }

    pub fn is_exceeded(self) -> bool {
        self.count > self.limit
    }
}

/// The purpose of a source node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Purpose {
    /// `source-track`
    Track,
    /// `sticky-address` of nat.
    Nat,
    /// `sticky-address` of rdr.
    Rdr,
    /// `sticky-address` of a route.
    Route,
}

/// Key of a source node. OpenBSD 7.8 counts for each rule, with `source-track global`, too
/// (`pf_src_compare`).
pub(super) type NodeKey = (RuleId, Purpose, IpAddr);

/// A source.
#[derive(Clone, Debug, Default)]
pub(super) struct SourceNode {
    pub states: u32,
    pub connections: u32,
    pub rate: Threshold,
    /// Second in which it ends, once it has no state.
    pub expire: u64,
    /// The address that it sticks to.
    pub address: Option<IpAddr>,
}

/// All sources.
#[derive(Clone, Debug, Default)]
pub(super) struct SourceNodes {
    nodes: BTreeMap<NodeKey, SourceNode>,
}

impl SourceNodes {
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn get(&self, key: &NodeKey) -> Option<&SourceNode> {
        self.nodes.get(key)
    }

    pub fn get_mut(&mut self, key: &NodeKey) -> Option<&mut SourceNode> {
        self.nodes.get_mut(key)
    }

    pub fn insert(&mut self, key: NodeKey, node: SourceNode) {
        self.nodes.insert(key, node);
    }

    /// How many nodes count for a rule.
    pub fn count_of(&self, rule: RuleId) -> usize {
        self.nodes
            .keys()
            .filter(|(owner, ..)| *owner == rule)
            .count()
    }

    /// Removes a node that has no state and whose time is over.
    pub fn remove_idle(&mut self, key: &NodeKey, now: u64) {
        if self
            .nodes
            .get(key)
            .is_some_and(|node| node.states == 0 && node.expire <= now)
        {
            self.nodes.remove(key);
        }
    }

    /// Removes a node at once.
    pub fn remove(&mut self, key: &NodeKey) {
        self.nodes.remove(key);
    }

    /// Removes all nodes without a state whose time is over.
    pub fn expire(&mut self, now: u64) {
        self.nodes
            .retain(|_, node| node.states != 0 || node.expire > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_decays() {
        let mut rate = Threshold::new(
            Rate {
                limit: 3,
                seconds: 10,
            },
            0,
        );
        for _ in 0..3 {
            rate.add(0);
        }
        assert!(!rate.is_exceeded());
        rate.add(0);
        assert!(rate.is_exceeded());
        rate.add(5);
        assert!(!rate.is_exceeded(), "half of four is gone, and one is new");
        rate.add(15);
        rate.add(15);
        rate.add(15);
        assert!(!rate.is_exceeded(), "after its seconds it starts at 0");
    }
}
