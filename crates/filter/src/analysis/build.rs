//! The decision diagram of a difference: which packets two rule sets treat differently.
//!
//! Built from the root down: a node splits the rules that are left by the cells of one field.
//! Where only rules are left that both rule sets have, in the same order, nothing can differ, and
//! nothing is built. Equal lists give the same node.

use std::collections::HashMap;
use std::rc::Rc;

use super::compile::Context;
use super::item::{
    AFTER, BEFORE, BOTH, Interner, Item, NO_RULE, RESIDUALS_MAX, Role, SKIP_RULE, Traits,
};
use super::outcome::{Effect, Outcome, outcome};
use super::problem::{Problem, Space};
use super::simplify::simplify;
use super::space::{Class, Field};
use super::split::{choose, split};
use super::{Error, Limits};

/// Number of a node, or of a terminal with the highest bit set.
pub type NodeId = u32;

const TERMINAL: NodeId = 1 << 31;
/// The terminal of packets that both treat the same.
pub const SAME: NodeId = TERMINAL | (TERMINAL - 1);
/// Deepest nesting: fields and atoms on one path.
const DEPTH_MAX: usize = 256;

/// A node: for ranges of cells of a field, the last cell and the node below.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// The field.
    pub field: Field,
    /// Last cell and child, ascending; the last range ends at the last cell.
    pub edges: Box<[(u32, NodeId)]>,
}

/// Two rule sets' decisions: rule and outcome before, rule and outcome after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terminal {
    /// Deciding rule, `NO_RULE` for the default, and number of the outcome.
    pub before: (u32, u32),
    /// The same of the rule set after.
    pub after: (u32, u32),
}

/// The difference of two rule sets on one class.
#[derive(Debug)]
pub struct Diagram {
    /// The fields.
    pub space: Space,
    /// Nodes, children before parents.
    pub nodes: Vec<Rc<Node>>,
    /// Where to begin.
    pub root: NodeId,
}

/// The number of a terminal.
pub fn as_terminal(node: NodeId) -> Option<u32> {
    (node & TERMINAL != 0 && node != SAME).then_some(node & !TERMINAL)
}

/// The node of a terminal's number.
pub fn terminal(number: u32) -> NodeId {
    TERMINAL | number
}

/// Parts that the diagrams of all classes share.
#[derive(Debug, Default)]
pub struct Results {
    /// Pairs of decisions.
    pub terminals: Interner<Terminal>,
    /// Outcomes.
    pub outcomes: Interner<Outcome>,
    known: HashMap<(Class, bool, Vec<u32>, u32), u32>,
    /// Nodes built.
    pub nodes: usize,
    /// Items looked at.
    pub work: u64,
}

struct Builder<'b, 'a> {
    context: &'b mut Context<'a>,
    space: Space,
    reassembles: u32,
    nodes: Vec<Rc<Node>>,
    numbers: HashMap<Rc<Node>, NodeId>,
    memo: HashMap<u128, NodeId>,
    results: &'b mut Results,
    limits: Limits,
    edges: usize,
    /// Ends at the first difference.
    first_only: bool,
}

/// Builds the diagram of a class. With `first_only`, of one difference at most.
pub fn build(
    context: &mut Context<'_>,
    problem: Problem,
    results: &mut Results,
    limits: Limits,
    first_only: bool,
) -> Result<Diagram, Error> {
    let Problem {
        space,
        list,
        reassembles,
    } = problem;
    let mut builder = Builder {
        context,
        space,
        reassembles,
        nodes: Vec::new(),
        numbers: HashMap::new(),
        memo: HashMap::new(),
        results,
        limits,
        edges: 0,
        first_only,
    };
    let root = builder.build(list, 0)?;
    builder.results.nodes += builder.nodes.len();
    Ok(Diagram {
        space: builder.space,
        nodes: builder.nodes,
        root,
    })
}

/// A number for a list, by which equal lists are found again. Of 128 bits, so that different ones
/// do not meet.
pub fn fingerprint(list: &[Item]) -> u128 {
    let fold = |state: u64, word: u64| {
        let product = u128::from(state ^ word) * 0x9e37_79b9_7f4a_7c15_u128;
        (product >> 64) as u64 ^ product as u64
    };
    let (mut low, mut high) = (
        0x243f_6a88_85a3_08d3 ^ list.len() as u64,
        0x1319_8a2e_0370_7344,
    );
    for item in list {
        let word = u64::from(item.bits());
        low = fold(low, word.wrapping_mul(0xd6e8_feb8_6659_fd93));
        high = fold(high, word ^ low.rotate_left(17)).wrapping_add(word);
    }
    u128::from(high) << 64 | u128::from(low)
}

impl Builder<'_, '_> {
    /// The node of a list.
    fn build(&mut self, mut list: Vec<Item>, depth: usize) -> Result<NodeId, Error> {
        self.results.work += list.len() as u64 + 1;
        simplify(self.context, &mut self.space, &mut list, None);
        let forced = self.reassembles != 0;
        if !forced && list.iter().all(|item| item.sides() == BOTH) {
            return Ok(SAME);
        }
        let key = fingerprint(&list);
        if let Some(&known) = self.memo.get(&key) {
            return Ok(known);
        }
        self.check(depth)?;
        let differs = |item: Item| item.sides() != BOTH;
        let node = match choose(self.context, &self.space, &list, forced, &differs) {
            None => self.leaf(&list),
            Some(field) => self.node(&list, field, depth)?,
        };
        self.memo.insert(key, node);
        Ok(node)
    }

    fn check(&self, depth: usize) -> Result<(), Error> {
        let nodes = self.results.nodes + self.nodes.len();
        let most = self.limits.nodes;
        let over = nodes > most || self.memo.len() > 4 * most || self.edges > 32 * most;
        let residuals = self.context.store.len();
        if over
            || residuals > (8 * most).min(RESIDUALS_MAX)
            || self.results.work > self.limits.work
            || depth > DEPTH_MAX
        {
            return Err(Error::TooComplex {
                nodes,
                work: self.results.work,
            });
        }
        Ok(())
    }

    fn node(&mut self, list: &[Item], field: Field, depth: usize) -> Result<NodeId, Error> {
        let differs = |item: Item| item.sides() != BOTH;
        let split = split(
            self.context,
            &self.space,
            list,
            field,
            self.reassembles != 0,
            &differs,
        );
        let mut edges: Vec<(u32, u32, NodeId)> = Vec::new();
        for group in &split.groups {
            let left = split.list(self.context, list, group);
            let child = self.build(left, depth + 1)?;
            if child != SAME {
                edges.extend(
                    group
                        .cells
                        .iter()
                        .map(|&(first, last)| (first, last, child)),
                );
                if self.first_only {
                    break;
                }
            }
        }
        Ok(self.intern(field, edges))
    }

    /// The node with these edges; cells without an edge are the same.
    fn intern(&mut self, field: Field, mut edges: Vec<(u32, u32, NodeId)>) -> NodeId {
        edges.sort_unstable();
        let mut all: Vec<(u32, NodeId)> = Vec::with_capacity(edges.len() + 1);
        let mut push = |last: u32, child: NodeId| match all.last_mut() {
            Some(edge) if edge.1 == child => edge.0 = last,
            _ => all.push((last, child)),
        };
        let mut next = 0;
        for (first, last, child) in edges {
            if first > next {
                push(first - 1, SAME);
            }
            push(last, child);
            next = last + 1;
        }
        let cells = self.space.domain(field).len();
        if next < cells {
            push(cells - 1, SAME);
        }
        if let [(_, child)] = all[..] {
            return child;
        }
        let node = Rc::new(Node {
            field,
            edges: all.into(),
        });
        if let Some(&known) = self.numbers.get(&node) {
            return known;
        }
        let number = self.nodes.len() as NodeId;
        self.edges += node.edges.len();
        self.nodes.push(Rc::clone(&node));
        self.numbers.insert(node, number);
        number
    }

    /// The decisions where every rule that is left matches.
    fn leaf(&mut self, list: &[Item]) -> NodeId {
        let sides = [BEFORE, AFTER].map(|side| matched(self.context, list, side));
        let mut ends = [false, true].map(|options| {
            let [before, after] =
                [0, 1].map(|side: usize| self.decision(&sides[side], side, options));
            if before.1 == after.1 {
                return SAME;
            }
            TERMINAL | self.results.terminals.intern(&Terminal { before, after })
        });
        if ends[0] == ends[1] {
            return ends[0];
        }
        if self.first_only && ends[0] != SAME {
            ends[1] = SAME;
        }
        let edges = ends.iter().enumerate().filter(|end| *end.1 != SAME);
        let edges = edges
            .map(|(cell, &end)| (cell as u32, cell as u32, end))
            .collect();
        self.intern(Field::OPTIONS, edges)
    }

    fn decision(&mut self, matched: &Matched, side: usize, options: bool) -> (u32, u32) {
        if self.reassembles & (1 << side) != 0 && matched.rule != SKIP_RULE {
            return (NO_RULE, self.results.outcomes.intern(&Outcome::REASSEMBLE));
        }
        let class = self.space.class;
        let key = (class, options, matched.effects.clone(), matched.decision);
        if let Some(&known) = self.results.known.get(&key) {
            return (matched.rule, known);
        }
        let store = &self.context.store;
        let effects: Vec<&Effect> = matched
            .effects
            .iter()
            .map(|&effect| store.effects.get(effect))
            .collect();
        let made = outcome(
            &effects,
            store.effects.get(matched.decision),
            class,
            options,
        );
        let number = self.results.outcomes.intern(&made);
        self.results.known.insert(key, number);
        (matched.rule, number)
    }
}

/// The rules that match where all that are left do.
pub struct Matched {
    /// Effects of match rules, in order.
    pub effects: Vec<u32>,
    /// Match rules, and rules that only set a tag.
    pub rules: Vec<u32>,
    /// The deciding rule; `NO_RULE` for the default.
    pub rule: u32,
    /// Its effect.
    pub decision: u32,
}

/// Walks a list of which every item matches, as pf does.
pub fn matched(context: &mut Context<'_>, list: &[Item], side: u32) -> Matched {
    let decision = context.store.effects.intern(&Effect::default_pass());
    let mut matched = Matched {
        effects: Vec::new(),
        rules: Vec::new(),
        rule: NO_RULE,
        decision,
    };
    let mut parent = NO_RULE;
    for item in list.iter().filter(|item| item.sides() & side != 0) {
        if !context
            .store
            .traits(item.residual())
            .has(Traits::UNCONDITIONAL)
        {
            continue;
        }
        let act = context.store.act(item.residual());
        match act.role {
            Role::Decide => {
                (matched.rule, matched.decision) = (act.rule, act.effect);
                parent = act.parent;
            }
            Role::Match => {
                matched.rules.push(act.rule);
                if !context.store.effects.get(act.effect).is_empty() {
                    matched.effects.push(act.effect);
                }
            }
            Role::Leave(anchor) if parent == anchor => break,
            Role::Tag => matched.rules.push(act.rule),
            Role::Leave(_) | Role::Mark(_) => {}
        }
        if act.quick {
            break;
        }
    }
    matched
}
