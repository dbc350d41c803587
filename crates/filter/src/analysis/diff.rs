//! Which packets change between two rule sets.

use std::collections::{BTreeSet, HashMap};

use super::build::{Diagram, Results, SAME, as_terminal, build};
use super::compile::Context;
use super::cube::{Cube, Packets, merge};
use super::evaluate::evaluate;
use super::flatten::{List, RulePath, flatten, names};
use super::item::{AFTER, BEFORE, NO_RULE, SKIP_RULE};
use super::outcome::{Outcome, Verdict};
use super::problem::{Joint, Problem, Problems, Side, problems};
use super::region::{Flow, Paths};
use super::space::{Class, classes};
use super::vocabulary::Vocabulary;
use super::witness::{Assumption, Witness};
use super::{Error, Limits};
use crate::host::Host;
use crate::rule::{KeepState, Origin, Ruleset};

/// Which packets change between two rule sets.
#[derive(Clone, Debug)]
pub struct Diff {
    /// Packets by how they are treated before and after, the most important first.
    pub regions: Vec<Region>,
    /// All regions are here, each with all its packets.
    pub complete: bool,
    /// Number of regions that are not here, for there are too many ([`Limits::regions`]).
    pub omitted: usize,
    /// Regions are told apart by the rules that decide. Otherwise there were too many rules for
    /// that, and a region's rules are those that decide its witness.
    pub attributed: bool,
    /// Assumptions.
    pub assumptions: Vec<String>,
    /// Nodes of the decision diagrams.
    pub nodes: usize,
}

/// Packets that are treated in one way before, and in another after.
#[derive(Clone, Debug)]
pub struct Region {
    /// The kind of change.
    pub change: Change,
    /// The decision before.
    pub before: Decision,
    /// The decision after.
    pub after: Decision,
    /// The packets.
    pub packets: Vec<Packets>,
    /// At least so many further sets of packets, beyond [`Limits::packets`].
    pub more: u64,
    /// Whether they change in any case.
    pub certainty: Certainty,
    /// Number of packets, all values of all fields counted; an unknown fact counts as half.
    pub size: f64,
    /// One of them.
    pub witness: Witness,
}

/// A decision about a packet.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Who decides.
    pub by: Decider,
    /// The outcome.
    pub outcome: Outcome,
}

/// Who decides about a packet.
#[derive(Clone, Debug, PartialEq)]
pub enum Decider {
    /// No rule: the default, pass.
    Default,
    /// `set skip`
    Skip,
    /// A rule.
    Rule {
        /// Its place.
        path: RulePath,
        /// Where it comes from.
        origin: Origin,
    },
}

/// Kinds of change, the most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    /// Blocked before, passes now.
    NewlyPassed,
    /// Passed before, is blocked now.
    NewlyBlocked,
    /// Blocked with another answer.
    Answer,
    /// Passes with another state, or fragments are reassembled or no longer are.
    State,
    /// Passes with another translation.
    Translation,
    /// Passes by another route, to another socket, with other settings.
    Actions,
    /// Logged differently.
    Log,
}

/// Whether packets change in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Certainty {
    /// All do.
    Always,
    /// Some do; for others it depends on facts that are not known.
    Sometimes,
    /// It depends on facts that are not known.
    Maybe,
}

impl Change {
    fn of(before: &Outcome, after: &Outcome) -> Self {
        match (before.passes(), after.passes()) {
            (_, _)
                if (before.verdict == Verdict::Reassemble)
                    != (after.verdict == Verdict::Reassemble) =>
            {
                Self::State
            }
            (false, true) => Self::NewlyPassed,
            (true, false) => Self::NewlyBlocked,
            _ if before.verdict != after.verdict => Self::Answer,
            _ if before.state != after.state => Self::State,
            _ if before.translation != after.translation => Self::Translation,
            _ if before.actions != after.actions => Self::Actions,
            _ => Self::Log,
        }
    }
}

/// Which packets change between two rule sets on a host.
///
/// # Errors
/// When the rules are too complex for [`Limits::default`], or anchors too deep.
pub fn diff(before: &Ruleset, after: &Ruleset, host: &Host) -> Result<Diff, Error> {
    diff_within(before, after, host, Limits::default())
}

/// [`diff`], within other limits.
///
/// # Errors
/// As [`diff`].
pub fn diff_within(
    before: &Ruleset,
    after: &Ruleset,
    host: &Host,
    limits: Limits,
) -> Result<Diff, Error> {
    Ok(Comparison::new(before, after, host, limits)?.diff())
}

/// Whether two rule sets treat all packets the same, as far as [`diff`] looks.
///
/// # Errors
/// As [`diff`].
pub fn equal(before: &Ruleset, after: &Ruleset, host: &Host) -> Result<bool, Error> {
    let lists = [flatten(before)?, flatten(after)?];
    let mut prepared = prepare(&lists, host, false);
    for problem in std::mem::take(&mut prepared.problems.classes) {
        let diagram = build(
            &mut prepared.context,
            problem,
            &mut Results::default(),
            Limits::default(),
            true,
        )?;
        if diagram.root != SAME {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Two rule sets, read for all classes.
/// Whether classes have to be told apart by direction: by the interface on which a packet was received,
/// which is the packet's own for those that come in, and by the proxy for them.
fn directed(list: &List<'_>) -> bool {
    let rules = list.steps.iter().map(|flat| flat.rule);
    rules
        .into_iter()
        .any(|rule| rule.received_on.is_some() || rule.state == KeepState::Synproxy)
}

pub(super) struct Prepared<'a> {
    pub context: Context<'a>,
    pub problems: Problems,
    pub fragments: bool,
}

pub(super) fn prepare<'a>(lists: &[List<'_>; 2], host: &'a Host, attributed: bool) -> Prepared<'a> {
    let (mut interfaces, mut rdomains) = (BTreeSet::new(), BTreeSet::new());
    for list in lists {
        names(list, &mut interfaces, &mut rdomains);
    }
    let mut context = Context::new(host, Vocabulary::new(host, &interfaces, &rdomains));
    let sides = [0, 1].map(|side: usize| Side {
        list: &lists[side],
        plans: context.plan(&lists[side]),
    });
    let options = |side: usize| &lists[side].ruleset.options;
    // Where fragments are reassembled, rules never see one; `set skip` passes it as it is.
    let fragments =
        !options(0).reassemble || !options(1).reassemble || options(0).skip != options(1).skip;
    let classes: Vec<Class> = classes(fragments, lists.iter().any(directed));
    let problems = problems(&mut context, [&sides[0], &sides[1]], &classes, attributed);
    Prepared {
        context,
        problems,
        fragments,
    }
}

/// The decision diagrams of two rule sets' difference.
pub struct Comparison<'a> {
    context: Context<'a>,
    lists: [List<'a>; 2],
    joints: Vec<Joint>,
    diagrams: Vec<Diagram>,
    results: Results,
    /// Lists with rules told apart, where the diagrams do not tell them.
    problems: Vec<Problem>,
    fragments: bool,
    limits: Limits,
}

impl<'a> Comparison<'a> {
    /// Compares two rule sets.
    ///
    /// # Errors
    /// As [`diff`].
    pub fn new(
        before: &'a Ruleset,
        after: &'a Ruleset,
        host: &'a Host,
        limits: Limits,
    ) -> Result<Self, Error> {
        match Self::build([flatten(before)?, flatten(after)?], host, limits, true) {
            Err(Error::TooComplex { .. }) => {
                Self::build([flatten(before)?, flatten(after)?], host, limits, false)
            }
            other => other,
        }
    }

    fn build(
        lists: [List<'a>; 2],
        host: &'a Host,
        limits: Limits,
        attributed: bool,
    ) -> Result<Self, Error> {
        let mut prepared = prepare(&lists, host, attributed);
        let mut results = Results::default();
        let mut diagrams = Vec::new();
        for problem in std::mem::take(&mut prepared.problems.classes) {
            diagrams.push(build(
                &mut prepared.context,
                problem,
                &mut results,
                limits,
                false,
            )?);
        }
        let mut comparison = Self {
            context: prepared.context,
            lists,
            joints: prepared.problems.joints,
            diagrams,
            results,
            problems: Vec::new(),
            fragments: prepared.fragments,
            limits,
        };
        if !attributed {
            comparison.tell_apart();
        }
        Ok(comparison)
    }

    /// Reads the lists again with rules told apart, to name the rules of single packets. The
    /// vocabulary stays the same, for it depends on nothing but the lists.
    fn tell_apart(&mut self) {
        let prepared = prepare(&self.lists, self.context.host, true);
        self.joints = prepared.problems.joints;
        self.problems = prepared.problems.classes;
        let vocabulary = std::mem::replace(&mut self.context, prepared.context).vocabulary;
        self.context.vocabulary = vocabulary;
    }

    /// How a packet changes: the decisions before and after; `None` if it does not, or if pf drops
    /// it before any rule. Found by a walk down the decision diagram.
    pub fn classify(&self, packet: &Witness) -> Option<(Outcome, Outcome)> {
        let class = packet.class()?;
        let diagram = self
            .diagrams
            .iter()
            .find(|diagram| diagram.space.class.holds(class, packet.direction))?;
        let mut node = diagram.root;
        loop {
            if let Some(terminal) = as_terminal(node) {
                let terminal = self.results.terminals.get(terminal);
                let outcome = |number: u32| self.results.outcomes.get(number).clone();
                return Some((outcome(terminal.before.1), outcome(terminal.after.1)));
            }
            let inner = diagram.nodes.get(node as usize)?;
            let cell = diagram
                .space
                .domain(inner.field)
                .cell(packet.value(inner.field, &self.context.vocabulary)?)?;
            let at = inner.edges.partition_point(|edge| edge.0 < cell);
            node = inner.edges.get(at)?.1;
        }
    }

    /// The facts that rules ask for and nobody knows.
    pub fn facts(&self) -> Vec<Assumption> {
        facts(&self.context.vocabulary)
    }

    /// The regions of the difference.
    pub fn diff(&mut self) -> Diff {
        let paths: Vec<Paths<'_>> = self
            .diagrams
            .iter()
            .map(|diagram| Paths::new(diagram, &self.context.vocabulary))
            .collect();
        let mut flows: HashMap<u32, Flow> = HashMap::new();
        for (&terminal, &flow) in paths.iter().flat_map(|paths| &paths.flows) {
            flows.entry(terminal).or_default().add(flow);
        }
        let mut order: Vec<(u32, Flow, Change)> = flows
            .into_iter()
            .map(|(terminal, flow)| {
                let pair = self.results.terminals.get(terminal);
                let outcome = |number: u32| self.results.outcomes.get(number);
                (
                    terminal,
                    flow,
                    Change::of(outcome(pair.before.1), outcome(pair.after.1)),
                )
            })
            .collect();
        order.sort_by(|a, b| {
            let rank = |entry: &(u32, Flow, Change)| (entry.2, certainty(entry.1));
            rank(a)
                .cmp(&rank(b))
                .then(b.1.packets.total_cmp(&a.1.packets))
                .then(a.0.cmp(&b.0))
        });
        let omitted = order.len().saturating_sub(self.limits.regions);
        order.truncate(self.limits.regions);
        let raw: Vec<Raw> = order
            .into_iter()
            .filter_map(|entry| self.raw(&paths, entry))
            .collect();
        drop(paths);
        let attributed = self.problems.is_empty();
        let regions: Vec<Region> = raw.into_iter().map(|raw| self.region(raw)).collect();
        let complete = omitted == 0 && regions.iter().all(|region| region.more == 0);
        Diff {
            regions,
            complete,
            omitted,
            attributed,
            assumptions: self.assumptions(),
            nodes: self.results.nodes,
        }
    }

    fn raw(
        &self,
        paths: &[Paths<'_>],
        (terminal, flow, change): (u32, Flow, Change),
    ) -> Option<Raw> {
        /// Cubes that are collected for each that is described, before they are merged.
        const SPARE: usize = 32;
        let node = super::build::terminal(terminal);
        let vocabulary = &self.context.vocabulary;
        let most = self.limits.packets.saturating_mul(SPARE).max(1);
        let mut cubes: Vec<Cube> = Vec::new();
        for paths in paths {
            let left = most - cubes.len().min(most);
            if left > 0 && paths.flows.contains_key(&terminal) {
                cubes.extend(paths.cubes(node, left, self.fragments));
            }
        }
        let unseen = (flow.paths - cubes.len() as f64).max(0.0) as u64;
        let mut cubes = merge(cubes, vocabulary);
        cubes.sort_by_key(|cube| cube.facts(vocabulary));
        let more = unseen + cubes.len().saturating_sub(self.limits.packets) as u64;
        let shown = cubes
            .iter()
            .take(self.limits.packets)
            .map(|cube| cube.packets(vocabulary))
            .collect();
        let here = paths
            .iter()
            .filter(|paths| paths.flows.contains_key(&terminal));
        let best = here.max_by(|a, b| {
            let rank = |paths: &Paths<'_>| {
                let flow = paths.flows[&terminal];
                (flow.certain, flow.packets)
            };
            let (a, b) = (rank(a), rank(b));
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
        })?;
        let witness = best.witness(node, vocabulary)?;
        Some(Raw {
            terminal,
            flow,
            change,
            packets: shown,
            more,
            witness,
        })
    }

    fn region(&mut self, raw: Raw) -> Region {
        let terminal = *self.results.terminals.get(raw.terminal);
        let (mut first, mut second) = (terminal.before.0, terminal.after.0);
        let class = raw.witness.class();
        let holds = |problem: &&Problem| {
            class.is_some_and(|class| problem.space.class.holds(class, raw.witness.direction))
        };
        if let Some(problem) = self.problems.iter().find(holds) {
            first = evaluate(&mut self.context, problem, &raw.witness, BEFORE).0;
            second = evaluate(&mut self.context, problem, &raw.witness, AFTER).0;
        }
        let decision = |side: usize, rule: u32, outcome: u32| Decision {
            by: decider(&self.lists[side], &self.joints, side, rule),
            outcome: self.results.outcomes.get(outcome).clone(),
        };
        Region {
            change: raw.change,
            before: decision(0, first, terminal.before.1),
            after: decision(1, second, terminal.after.1),
            packets: raw.packets,
            more: raw.more,
            certainty: certainty(raw.flow),
            size: raw.flow.packets,
            witness: raw.witness,
        }
    }

    /// Assumptions.
    fn assumptions(&self) -> Vec<String> {
        let absent: BTreeSet<&String> = self.lists.iter().flat_map(|list| &list.absent).collect();
        absent
            .into_iter()
            .map(|path| format!("anchor \"{path}\" has no rules: none are in the file"))
            .collect()
    }
}

/// A region without its rules.
struct Raw {
    terminal: u32,
    flow: Flow,
    change: Change,
    packets: Vec<Packets>,
    more: u64,
    witness: Witness,
}

fn facts(vocabulary: &Vocabulary) -> Vec<Assumption> {
    let each = vocabulary.atoms.iter();
    each.map(|atom| Assumption {
        fact: atom.fact,
        text: atom.text.to_string(),
    })
    .collect()
}

fn certainty(flow: Flow) -> Certainty {
    match (flow.certain, flow.uncertain) {
        (true, false) => Certainty::Always,
        (true, true) => Certainty::Sometimes,
        (false, _) => Certainty::Maybe,
    }
}

fn decider(list: &List<'_>, joints: &[Joint], side: usize, rule: u32) -> Decider {
    if rule == SKIP_RULE {
        return Decider::Skip;
    }
    let joint = joints.get(rule as usize).copied().unwrap_or_default();
    let path = if side == 0 { joint.before } else { joint.after };
    match path.and_then(|path| list.paths.get(path as usize)) {
        Some((path, origin)) if rule != NO_RULE => Decider::Rule {
            path: path.clone(),
            origin: (*origin).clone(),
        },
        _ => Decider::Default,
    }
}

/// A rule set that can decide about single packets, by sets of values.
pub struct Compiled<'a> {
    context: Context<'a>,
    list: List<'a>,
    joints: Vec<Joint>,
    problems: Vec<Problem>,
}

impl<'a> Compiled<'a> {
    /// Reads a rule set for a host.
    ///
    /// # Errors
    /// When anchors are too deep.
    pub fn new(ruleset: &'a Ruleset, host: &'a Host) -> Result<Self, Error> {
        let empty = Ruleset::default();
        let prepared = {
            let lists = [flatten(ruleset)?, flatten(&empty)?];
            prepare(&lists, host, true)
        };
        let Prepared {
            context, problems, ..
        } = prepared;
        Ok(Self {
            context,
            list: flatten(ruleset)?,
            joints: problems.joints,
            problems: problems.classes,
        })
    }

    /// The facts that rules ask for and nobody knows.
    pub fn facts(&self) -> Vec<Assumption> {
        facts(&self.context.vocabulary)
    }

    /// The decision about a packet; `None` if pf drops it before any rule.
    pub fn decide(&mut self, packet: &Witness) -> Option<Decision> {
        let class = packet.class()?;
        let Some(problem) = self
            .problems
            .iter()
            .find(|problem| problem.space.class.holds(class, packet.direction))
        else {
            return packet.fragment.then_some(Decision {
                by: Decider::Default,
                outcome: Outcome::REASSEMBLE,
            });
        };
        let (rule, outcome) = evaluate(&mut self.context, problem, packet, BEFORE);
        Some(Decision {
            by: decider(&self.list, &self.joints, 0, rule),
            outcome,
        })
    }
}
