//! The engine: rules, tables, states, sources, fragments, and a clock.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::cursor::Cursor;
use super::fragment::Fragments;
use super::program::{Builder, Program, RuleId, RuleRef};
use super::random::Random;
use super::source_node::{SourceNodes, Threshold};
use super::state::{State, StateInfo, States, peer_names};
use super::table::Table;
use crate::host::Host;
use crate::rule::{Network, Options, Rule, Ruleset, TableEntry, Timeout};

/// Seed of the numbers that an engine draws, unless [`Engine::set_seed`] gives another.
const SEED: u64 = 0x7066_2e63_6f6e_6600;
/// Most interfaces whose groups are remembered.
const INTERFACES: usize = 1024;

/// Outcomes of `probability`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Chance {
    /// Drawn, from the seed.
    #[default]
    Drawn,
    /// Rules with `probability` match whenever the rest does.
    Always,
    /// They never match.
    Never,
}

/// Counters of a rule.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RuleCounters {
    /// `once`, and it matched.
    pub expired: bool,
    /// Its states.
    pub states: u32,
    /// `max-pkt-rate`
    pub rate: Threshold,
    /// Cursors of nat, rdr and route.
    pub pools: [Cursor; 3],
}

/// An interpreter of a rule set: pf, one packet at a time, on a clock that only
/// [`advance`](Self::advance) moves.
///
/// It holds no more states, sources, fragments and table entries than the rule set's limits
/// (`set limit`). It never panics, whatever the packet.
#[derive(Clone)]
pub struct Engine<'a> {
    pub(super) program: Arc<Program<'a>>,
    pub(super) tables: Vec<Table>,
    pub(super) states: States,
    pub(super) nodes: SourceNodes,
    pub(super) fragments: Fragments,
    pub(super) counters: Vec<RuleCounters>,
    pub(super) random: Random,
    /// Key of `source-hash` pools without one.
    pub(super) hash_key: [u32; 4],
    clock: Duration,
    chance: Chance,
    interfaces: BTreeMap<Arc<str>, Arc<[Option<bool>]>>,
    /// Sources that this packet brought into a table.
    pub(super) overloaded: Vec<IpAddr>,
}

impl<'a> Engine<'a> {
    /// An engine without states, at second 0.
    pub fn new(ruleset: &'a Ruleset, host: &'a Host) -> Self {
        let (program, tables) = Builder::build(ruleset, host);
        let mut random = Random::new(SEED);
        let hash_key = [
            random.number(),
            random.number(),
            random.number(),
            random.number(),
        ];
        let counters = program
            .entries
            .iter()
            .map(|entry| RuleCounters::new(entry.rule))
            .collect();
        Self {
            program: Arc::new(program),
            tables,
            states: States::default(),
            nodes: SourceNodes::default(),
            fragments: Fragments::default(),
            counters,
            random,
            hash_key,
            clock: Duration::ZERO,
            chance: Chance::default(),
            interfaces: BTreeMap::new(),
            overloaded: Vec::new(),
        }
    }

    /// Draws other numbers: for `probability`, pools, ports and sequence numbers.
    pub fn set_seed(&mut self, seed: u64) {
        self.random = Random::new(seed);
    }

    /// Sets the outcomes of `probability`.
    pub fn set_chance(&mut self, chance: Chance) {
        self.chance = chance;
    }

    /// Moves the clock on. States, sources and fragments whose time is over end at once; pf itself
    /// takes up to `set timeout interval` longer.
    pub fn advance(&mut self, by: Duration) {
        let before = self.now();
        self.clock = self.clock.saturating_add(by);
        if self.now() != before {
            self.sweep();
        }
    }

    /// Time since the engine was made.
    pub fn clock(&self) -> Duration {
        self.clock
    }

    /// The rule of a number, and its place.
    ///
    /// # Panics
    /// When the number is another engine's.
    pub fn rule(&self, id: RuleId) -> RuleRef<'a> {
        self.program.reference(id)
    }

    /// All rules, those of inline and loaded anchors behind the rule that calls them or at the
    /// end.
    pub fn rules(&self) -> impl Iterator<Item = RuleRef<'a>> + '_ {
        (0..self.program.entries.len()).map(|at| self.program.reference(RuleId(at as u32)))
    }

    /// All states, the oldest first.
    pub fn states(&self) -> impl Iterator<Item = StateInfo> + '_ {
        self.states.iter().map(|state| self.info(state))
    }

    /// How many states a rule has.
    pub fn states_of(&self, rule: RuleId) -> u32 {
        self.counters
            .get(rule.index())
            .map_or(0, |counters| counters.states)
    }

    /// How many sources are tracked.
    pub fn source_nodes(&self) -> usize {
        self.nodes.len()
    }

    /// How many fragments wait.
    pub fn fragments(&self) -> usize {
        self.fragments.len()
    }

    /// Whether a table of the main rule set holds an address; `None` without such a table.
    pub fn table_contains(&self, name: &str, address: IpAddr) -> Option<bool> {
        let tables = &self.program.ruleset.tables;
        let at = tables
            .iter()
            .position(|table| table.anchor.is_empty() && table.name.as_ref() == name)?;
        self.tables.get(at).map(|table| table.contains(address))
    }

    pub(super) fn options(&self) -> &'a Options {
        &self.program.ruleset.options
    }

    /// Whole seconds of the clock, in which pf counts.
    pub(super) fn now(&self) -> u64 {
        self.clock.as_secs()
    }

    /// Which names of the rules mean an interface.
    pub(super) fn interface(&mut self, name: &Arc<str>) -> Arc<[Option<bool>]> {
        if let Some(known) = self.interfaces.get(name) {
            return Arc::clone(known);
        }
        if self.interfaces.len() >= INTERFACES {
            self.interfaces.clear();
        }
        let names = self.program.interface(name);
        self.interfaces.insert(Arc::clone(name), Arc::clone(&names));
        names
    }

    /// Whether something of this probability, of 2^32, happens.
    pub(super) fn happens(&mut self, probability: u32) -> bool {
        match self.chance {
            Chance::Drawn => probability > self.random.below(u32::MAX - 1) + 1,
            Chance::Always => true,
            Chance::Never => false,
        }
    }

    /// Counts a packet for `max-pkt-rate`. Whether it is too many.
    pub(super) fn exceeds_rate(&mut self, id: RuleId) -> bool {
        let now = self.now();
        let Some(counters) = self.counters.get_mut(id.index()) else {
            return false;
        };
        counters.rate.add(now);
        counters.rate.is_exceeded()
    }

    /// Adds an address to a table, within the limit of all tables.
    pub(super) fn add_to_table(&mut self, at: usize, address: IpAddr) {
        let entries: usize = self.tables.iter().map(|table| table.entries().len()).sum();
        if entries >= self.options().limit_table_entries as usize {
            return;
        }
        if let Some(table) = self.tables.get_mut(at) {
            table.insert(TableEntry {
                network: Network::new(address, 128),
                negated: false,
                weight: 0,
            });
        }
    }

    fn sweep(&mut self) {
        let now = self.now();
        let ended: Vec<u64> = self
            .states
            .iter()
            .filter(|state| self.expires_at(state) <= now)
            .map(|state| state.id)
            .collect();
        for id in ended {
            self.remove_state(id);
        }
        self.nodes.expire(now);
        self.fragments.expire(
            now,
            u64::from(self.options().timeouts[Timeout::Fragment as usize]),
        );
    }

    /// Second in which a state ends (`pf_state_expires`).
    fn expires_at(&self, state: &State) -> u64 {
        if state.purged {
            return 0;
        }
        let rule = self.program.entry(state.rule).rule;
        let timeout = u64::from(self.timeout(rule, state.timeout));
        let (start, end, states) = self.adaptive(rule, state);
        let mut timeout = timeout;
        if end != 0 && states > start && start < end {
            if states >= end {
                return 0;
            }
            timeout = timeout * (end - states) / (end - start);
        }
        state.expire + timeout
    }

    /// Start and end of adaptive timeouts, and the number of states that counts.
    fn adaptive(&self, rule: &Rule, state: &State) -> (u64, u64, u64) {
        let options = &self.options().timeouts;
        let own = |timeout| own_timeout(rule, timeout).map(u64::from);
        let of_rule = u64::from(self.states_of(state.rule));
        if let Some(start) = own(Timeout::AdaptiveStart) {
            return (start, own(Timeout::AdaptiveEnd).unwrap_or(0), of_rule);
        }
        let of = |timeout: Timeout| u64::from(options[timeout as usize]);
        (
            of(Timeout::AdaptiveStart),
            of(Timeout::AdaptiveEnd),
            self.states.len() as u64,
        )
    }

    /// A timeout of a rule, or of all.
    pub(super) fn timeout(&self, rule: &Rule, timeout: Timeout) -> u32 {
        own_timeout(rule, timeout).unwrap_or(self.options().timeouts[timeout as usize])
    }

    /// Ends a state.
    pub(super) fn remove_state(&mut self, id: u64) {
        if let Some(state) = self.states.remove(id) {
            self.forget(&state);
        }
    }

    /// Takes a state that ended from the counts of its rule and sources.
    pub(super) fn forget(&mut self, state: &State) {
        let now = self.now();
        if let Some(counters) = self.counters.get_mut(state.rule.index()) {
            counters.states = counters.states.saturating_sub(1);
        }
        let track =
            u64::from(self.timeout(self.program.entry(state.rule).rule, Timeout::SourceTrack));
        for key in &state.nodes {
            if let Some(node) = self.nodes.get_mut(key) {
                node.connections = node
                    .connections
                    .saturating_sub(u32::from(state.is_connection));
                node.states = node.states.saturating_sub(1);
                node.expire = now + track;
            }
        }
    }

    pub(super) fn info(&self, state: &State) -> StateInfo {
        StateInfo {
            id: state.id,
            rule: state.rule,
            direction: state.direction,
            interface: state.interface.clone(),
            wire: *state.wire(),
            stack: *state.stack(),
            peers: peer_names(state),
            timeout: state.timeout,
            expires: self.expires_at(state).saturating_sub(self.now()),
            tag: state.tag.clone(),
        }
    }
}

impl RuleCounters {
    fn new(rule: &Rule) -> Self {
        let rate = rule.max_packet_rate.map(|rate| Threshold::new(rate, 0));
        Self {
            rate: rate.unwrap_or_default(),
            ..Self::default()
        }
    }
}

fn own_timeout(rule: &Rule, timeout: Timeout) -> Option<u32> {
    let options = rule.state_options.as_deref()?;
    options
        .timeouts
        .iter()
        .find(|(own, value)| *own == timeout && *value != 0)
        .map(|&(_, value)| value)
}
