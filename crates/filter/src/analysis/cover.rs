//! Which rules of a rule set can decide anything, and which rules hide the others.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::build::{fingerprint, matched};
use super::compile::{Context, Never};
use super::diff::prepare;
use super::flatten::{List, RulePath, Step, decides, flatten};
use super::item::{BEFORE, Item, NO_RULE, Role, SKIP_RULE};
use super::outcome::Effect;
use super::problem::{Problem, Space};
use super::region::packet;
use super::simplify::{Hidden, simplify};
use super::space::Field;
use super::split::{choose, split};
use super::witness::Witness;
use super::{Error, Limits};
use crate::host::Host;
use crate::rule::{Origin, Ruleset};

/// Most rules that are named as hiding another.
const HIDERS_MAX: usize = 8;
/// Deepest nesting: fields and atoms on one path.
const DEPTH_MAX: usize = 256;

/// Coverage of a rule set.
#[derive(Clone, Debug)]
pub struct Cover {
    /// Rules in the order of evaluation, each once; those that call anchors are left out.
    pub rules: Vec<RuleCover>,
}

/// Coverage of a rule.
#[derive(Clone, Debug)]
pub struct RuleCover {
    /// Its place.
    pub path: RulePath,
    /// Where it comes from.
    pub origin: Origin,
    /// Its coverage.
    pub coverage: Coverage,
}

/// Coverage of a rule.
#[derive(Clone, Debug, PartialEq)]
pub enum Coverage {
    /// It decides about this packet, and perhaps others.
    Decides(Box<Witness>),
    /// It never decides, but this packet matches it: a `match` rule, or one that sets a tag.
    EffectOnly(Box<Witness>),
    /// Every packet that it matches is decided by others.
    Shadowed {
        /// The rules that decide instead, up to 8.
        by: Vec<RulePath>,
        /// There are more.
        more: bool,
        /// `set skip` is among them.
        skip: bool,
    },
    /// No packet matches it.
    NeverMatches(Never),
}

/// Coverage of the rules of a rule set on a host.
///
/// # Errors
/// When the rules are too complex for [`Limits::default`], or anchors too deep.
pub fn cover(ruleset: &Ruleset, host: &Host) -> Result<Cover, Error> {
    cover_within(ruleset, host, Limits::default())
}

/// [`cover`], within other limits.
///
/// # Errors
/// As [`cover`].
pub fn cover_within(ruleset: &Ruleset, host: &Host, limits: Limits) -> Result<Cover, Error> {
    let list = flatten(ruleset)?;
    let mut search = Search::new(&list);
    for tags in [false, true] {
        // The second time, rules that set a tag are searched for packets that they match.
        if tags && !search.hunt_tags(&list) {
            break;
        }
        let empty = Ruleset::default();
        let lists = [flatten(ruleset)?, flatten(&empty)?];
        let mut prepared = prepare(&lists, host, true);
        if !tags {
            search.never.clone_from(&prepared.problems.never);
        }
        for mut problem in std::mem::take(&mut prepared.problems.classes) {
            if tags {
                search.demote(&mut prepared.context, &mut problem);
            }
            let mut explorer = Explorer {
                context: &mut prepared.context,
                space: problem.space,
                search: &mut search,
                seen: HashSet::new(),
                path: Vec::new(),
                limits,
            };
            explorer.explore(problem.list, 0)?;
        }
    }
    Ok(search.cover(&list))
}

/// Targets of the search, by number of the step.
struct Search {
    /// A packet is looked for.
    wanted: Vec<bool>,
    /// A packet that the step decides.
    decides: Vec<Option<Box<Witness>>>,
    /// A packet that the step matches.
    fires: Vec<Option<Box<Witness>>>,
    hiders: Vec<BTreeSet<u32>>,
    never: Vec<Option<Never>>,
    work: u64,
}

impl Search {
    fn new(list: &List<'_>) -> Self {
        let count = list.steps.len();
        Self {
            wanted: list
                .steps
                .iter()
                .map(|flat| flat.step == Step::Rule)
                .collect(),
            decides: vec![None; count],
            fires: vec![None; count],
            hiders: vec![BTreeSet::new(); count],
            never: Vec::new(),
            work: 0,
        }
    }

    /// Looks for packets that rules match which never decide, but set a tag.
    fn hunt_tags(&mut self, list: &List<'_>) -> bool {
        for (at, flat) in list.steps.iter().enumerate() {
            let idle = self.decides[at].is_none() && self.never[at].is_none();
            self.wanted[at] = idle && decides(flat) && flat.rule.tag.is_some() && !flat.rule.quick;
        }
        self.wanted.contains(&true)
    }

    /// Makes the rules that are looked for `match` rules.
    fn demote(&self, context: &mut Context<'_>, problem: &mut Problem) {
        let effect = context.store.effects.intern(&Effect::default_pass());
        for item in &mut problem.list {
            if self.is_wanted(context, *item) {
                let residual = context.store.with_act(item.residual(), |act| {
                    (act.role, act.effect, act.parent) = (Role::Match, effect, NO_RULE);
                });
                *item = Item::new(residual, item.sides());
            }
        }
    }

    fn is_wanted(&self, context: &Context<'_>, item: Item) -> bool {
        let rule = context.store.act(item.residual()).rule;
        self.wanted.get(rule as usize).copied().unwrap_or(false)
    }

    fn hide(&mut self, pairs: &[Hidden]) {
        for &(rule, by) in pairs {
            if let Some(hiders) = self.hiders.get_mut(rule as usize)
                && self.wanted[rule as usize]
                && by != NO_RULE
                && by != rule
                && hiders.len() <= HIDERS_MAX
            {
                hiders.insert(by);
            }
        }
    }

    /// The result: a rule that stands at several places is as good as at the best of them.
    fn cover(mut self, list: &List<'_>) -> Cover {
        let mut best: BTreeMap<u32, (usize, Coverage)> = BTreeMap::new();
        for (at, flat) in list
            .steps
            .iter()
            .enumerate()
            .filter(|(_, flat)| flat.step == Step::Rule)
        {
            let coverage = self.coverage(at, list);
            match best.get_mut(&flat.path) {
                Some(known) if rank(&known.1) <= rank(&coverage) => {}
                Some(known) => known.1 = coverage,
                None => {
                    best.insert(flat.path, (at, coverage));
                }
            }
        }
        let mut rules: Vec<(usize, RuleCover)> = Vec::with_capacity(best.len());
        for (path, (at, coverage)) in best {
            let (path, origin) = &list.paths[path as usize];
            rules.push((
                at,
                RuleCover {
                    path: path.clone(),
                    origin: (*origin).clone(),
                    coverage,
                },
            ));
        }
        rules.sort_by_key(|rule| rule.0);
        Cover {
            rules: rules.into_iter().map(|rule| rule.1).collect(),
        }
    }

    fn coverage(&mut self, at: usize, list: &List<'_>) -> Coverage {
        if let Some(witness) = self.decides[at].take() {
            return Coverage::Decides(witness);
        }
        if let Some(witness) = self.fires[at].take() {
            return Coverage::EffectOnly(witness);
        }
        if let Some(why) = self.never[at].take() {
            return Coverage::NeverMatches(why);
        }
        let hiders = &self.hiders[at];
        if hiders.is_empty() {
            return Coverage::NeverMatches(Never::Conditions);
        }
        let skip = hiders.contains(&SKIP_RULE);
        let rules = hiders
            .iter()
            .filter_map(|&rule| list.steps.get(rule as usize));
        let mut by: Vec<RulePath> = rules
            .map(|flat| list.paths[flat.path as usize].0.clone())
            .collect();
        by.dedup();
        let more = hiders.len() > HIDERS_MAX;
        by.truncate(HIDERS_MAX);
        Coverage::Shadowed { by, more, skip }
    }
}

fn rank(coverage: &Coverage) -> u8 {
    match coverage {
        Coverage::Decides(_) => 0,
        Coverage::EffectOnly(_) => 1,
        Coverage::Shadowed { .. } => 2,
        Coverage::NeverMatches(_) => 3,
    }
}

struct Explorer<'e, 'a> {
    context: &'e mut Context<'a>,
    space: Space,
    search: &'e mut Search,
    seen: HashSet<u128>,
    path: Vec<(Field, (u32, u32))>,
    limits: Limits,
}

impl Explorer<'_, '_> {
    /// Looks for packets of the rules that are wanted, among those of a list.
    fn explore(&mut self, mut list: Vec<Item>, depth: usize) -> Result<(), Error> {
        self.search.work += list.len() as u64 + 1;
        let mut hidden = Vec::new();
        simplify(self.context, &mut self.space, &mut list, Some(&mut hidden));
        self.search.hide(&hidden);
        if !list
            .iter()
            .any(|&item| self.search.is_wanted(self.context, item))
            || !self.seen.insert(fingerprint(&list))
        {
            return Ok(());
        }
        if self.search.work > self.limits.work
            || self.seen.len() > 4 * self.limits.nodes
            || depth > DEPTH_MAX
        {
            return Err(Error::TooComplex {
                nodes: self.seen.len(),
                work: self.search.work,
            });
        }
        let (context, search) = (&*self.context, &*self.search);
        let wanted = |item: Item| search.is_wanted(context, item);
        let Some(field) = choose(context, &self.space, &list, false, &wanted) else {
            self.leaf(&list);
            return Ok(());
        };
        let mut split = split(context, &self.space, &list, field, false, &wanted);
        // Where fewer rules are left, the wide ones are found sooner.
        split.groups.sort_by_key(super::split::Group::weight);
        for group in &split.groups {
            let left = split.list(self.context, &list, group);
            let Some(&cells) = group.cells.first() else {
                continue;
            };
            self.path.push((field, cells));
            let explored = self.explore(left, depth + 1);
            self.path.pop();
            explored?;
        }
        Ok(())
    }

    /// Every rule that is left matches.
    fn leaf(&mut self, list: &[Item]) {
        let found = matched(self.context, list, BEFORE);
        let pairs: Vec<Hidden> = list
            .iter()
            .map(|item| (self.context.store.act(item.residual()).rule, found.rule))
            .collect();
        self.search.hide(&pairs);
        self.found(found.rule, true);
        for rule in found.rules {
            self.found(rule, false);
        }
    }

    fn found(&mut self, rule: u32, decides: bool) {
        let at = rule as usize;
        if !self.search.wanted.get(at).copied().unwrap_or(false) {
            return;
        }
        self.search.wanted[at] = false;
        let cells = self
            .path
            .iter()
            .map(|(field, cells)| (*field, std::slice::from_ref(cells)));
        let witness = Some(Box::new(packet(
            &self.space,
            cells,
            &self.context.vocabulary,
        )));
        if decides {
            self.search.decides[at] = witness;
        } else {
            self.search.fires[at] = witness;
        }
    }
}
