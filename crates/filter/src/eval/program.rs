//! Rules as they are walked: each with a number, anchors resolved, interface names numbered.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::field::Fields;
use super::interface;
use super::table::Table;
use crate::host::Host;
use crate::rule::{Address, Anchor, Network, On, Pool, Rule, RuleKind, Ruleset};

/// Number of a rule, counted over the main rule set, inline anchors and loaded ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(pub(super) u32);

impl RuleId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A rule and its place.
#[derive(Clone, Debug)]
pub struct RuleRef<'a> {
    /// Its number.
    pub id: RuleId,
    /// The rule.
    pub rule: &'a Rule,
    /// Path of the anchor that holds it; empty for the main rule set.
    pub anchor: Arc<str>,
    /// Its index in that rule set, from 0, as `pfctl -vvsr` counts.
    pub index: usize,
}

/// The target of an anchor rule.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// A rule set.
    One(usize),
    /// Each child of a rule set.
    Children(usize),
    /// Nothing: the path leads above the main rule set.
    Nowhere,
}

/// An address as it is compared.
#[derive(Clone, Debug)]
pub(super) enum AddressTest {
    Any,
    Network(Network),
    Range(IpAddr, IpAddr),
    Dynamic(Vec<Network>),
    Table(usize),
    NoRoute,
    UrpfFailed,
    RouteLabel(Arc<str>),
    /// Nobody knows the addresses. The text says which.
    Unknown(Arc<str>),
    /// A table that nobody defined: it holds nothing.
    NoTable(Arc<str>),
    /// The list of a pool of FreeBSD.
    List(Vec<AddressTest>),
}

/// A rule that is walked.
pub(super) struct Entry<'a> {
    pub rule: &'a Rule,
    /// The tests that it asks for.
    pub asked: Fields,
    pub ruleset: usize,
    pub index: usize,
    pub target: Option<Target>,
    pub source: AddressTest,
    pub destination: AddressTest,
    /// Index of the name of its interface in [`Program::names`].
    pub interface: Option<(usize, bool)>,
    /// Index of the table of `overload`.
    pub overload: Option<usize>,
    /// Pools of nat, rdr and route.
    pub pools: [Option<AddressTest>; 3],
}

impl<'a> Entry<'a> {
    /// An entry without addresses and targets.
    pub fn new(
        rule: &'a Rule,
        ruleset: usize,
        index: usize,
        interface: Option<(usize, bool)>,
    ) -> Self {
        Self {
            rule,
            asked: Fields::asked_by(rule),
            ruleset,
            index,
            target: None,
            source: AddressTest::Any,
            destination: AddressTest::Any,
            interface,
            overload: None,
            pools: [None, None, None],
        }
    }
}

/// A rule set: the main one, or an anchor's.
#[derive(Default)]
pub(super) struct Level {
    pub path: Arc<str>,
    pub rules: Vec<RuleId>,
    /// FreeBSD's scrub rules.
    pub scrubs: Vec<RuleId>,
    /// FreeBSD's translations, of all kinds.
    pub translations: Vec<RuleId>,
    pub children: BTreeMap<Arc<str>, usize>,
}

impl Level {
    /// The list that holds rules of a kind.
    pub fn list(&self, kind: RuleKind) -> &[RuleId] {
        match kind {
            RuleKind::Filter => &self.rules,
            RuleKind::Scrub => &self.scrubs,
            RuleKind::Nat | RuleKind::Rdr | RuleKind::Binat => &self.translations,
        }
    }

    fn list_mut(&mut self, kind: RuleKind) -> &mut Vec<RuleId> {
        match kind {
            RuleKind::Filter => &mut self.rules,
            RuleKind::Scrub => &mut self.scrubs,
            RuleKind::Nat | RuleKind::Rdr | RuleKind::Binat => &mut self.translations,
        }
    }
}

/// All rules.
pub(super) struct Program<'a> {
    pub entries: Vec<Entry<'a>>,
    /// Rule sets; the main one is the first.
    pub levels: Vec<Level>,
    /// Names of interfaces and groups that rules test.
    pub names: Vec<Arc<str>>,
    pub host: &'a Host,
    pub ruleset: &'a Ruleset,
}

/// A program being built.
pub(super) struct Builder<'a> {
    program: Program<'a>,
    tables: Vec<Table>,
    by_name: BTreeMap<(Arc<str>, Arc<str>), usize>,
}

impl<'a> Builder<'a> {
    pub fn build(ruleset: &'a Ruleset, host: &'a Host) -> (Program<'a>, Vec<Table>) {
        let program = Program {
            entries: Vec::new(),
            levels: vec![Level::default()],
            names: Vec::new(),
            host,
            ruleset,
        };
        let mut builder = Self {
            program,
            tables: Vec::new(),
            by_name: BTreeMap::new(),
        };
        for table in &ruleset.tables {
            let key = (Arc::clone(&table.anchor), Arc::clone(&table.name));
            builder.by_name.entry(key).or_insert_with(|| {
                builder.tables.push(Table::new(table));
                builder.tables.len() - 1
            });
        }
        for rules in [&ruleset.rules, &ruleset.scrubs, &ruleset.translations] {
            builder.add(0, rules);
        }
        for loaded in &ruleset.loaded {
            let level = builder.level(&loaded.path);
            let own = &mut builder.program.levels[level];
            for list in [&mut own.rules, &mut own.scrubs, &mut own.translations] {
                list.clear();
            }
            for rules in [&loaded.rules, &loaded.scrubs, &loaded.translations] {
                builder.add(level, rules);
            }
        }
        builder.resolve();
        (builder.program, builder.tables)
    }

    fn add(&mut self, level: usize, rules: &'a [Rule]) {
        for rule in rules {
            let id = RuleId(self.program.entries.len() as u32);
            let list = self.program.levels[level].list_mut(rule.kind);
            list.push(id);
            let index = self.index(level, rule.kind);
            let interface = match &rule.on {
                Some(On::Interface(on)) => Some((self.name(&on.name), on.negated)),
                _ => None,
            };
            let overload = rule
                .state_options
                .as_deref()
                .and_then(|options| options.overload.as_ref());
            let overload = overload.map(|overload| self.own_table(level, &overload.table));
            self.program.entries.push(Entry {
                overload,
                ..Entry::new(rule, level, index, interface)
            });
            let target = self.target(level, rule);
            self.program.entries[id.index()].target = target;
            if let (Some(Target::One(inner)), Some(Anchor::Inline { rules, .. })) =
                (target, rule.anchor.as_deref())
            {
                self.add(inner, rules);
            }
        }
    }

    /// Index of the next rule of a kind in its rule set, as FreeBSD counts them.
    fn index(&self, level: usize, kind: RuleKind) -> usize {
        let list = self.program.levels[level].list(kind);
        let entries = &self.program.entries;
        let own = |id: &&RuleId| {
            entries
                .get(id.index())
                .is_some_and(|entry| entry.rule.kind == kind)
        };
        match kind {
            RuleKind::Filter | RuleKind::Scrub => list.len() - 1,
            _ => list.iter().filter(own).count(),
        }
    }

    /// Addresses refer to tables, which may come later.
    fn resolve(&mut self) {
        for at in 0..self.program.entries.len() {
            let (rule, level) = (
                self.program.entries[at].rule,
                self.program.entries[at].ruleset,
            );
            let source = self.address(level, &rule.source.address);
            let destination = self.address(level, &rule.destination.address);
            let mut pool = |pool: Option<&'a Pool>| pool.map(|pool| self.pool(level, pool));
            let pools = [
                pool(rule.nat.as_deref()),
                pool(rule.rdr.as_deref()),
                pool(rule.route.as_deref().map(|route| &route.pool)),
            ];
            let entry = &mut self.program.entries[at];
            (entry.source, entry.destination, entry.pools) = (source, destination, pools);
        }
    }

    fn pool(&mut self, level: usize, pool: &Pool) -> AddressTest {
        if pool.more.is_empty() {
            return self.address(level, &pool.address);
        }
        let addresses = pool.addresses();
        AddressTest::List(
            addresses
                .map(|address| self.address(level, address))
                .collect(),
        )
    }

    fn address(&mut self, level: usize, address: &Address) -> AddressTest {
        match address {
            Address::Any => AddressTest::Any,
            Address::Network(network) => AddressTest::Network(*network),
            Address::Range(first, last) => AddressTest::Range(*first, *last),
            Address::Interface(dynamic) => match interface::addresses(dynamic, self.program.host) {
                Some(networks) => AddressTest::Dynamic(networks),
                None => AddressTest::Unknown(Arc::from(format!("({})", dynamic.name))),
            },
            Address::Unresolved(name) => AddressTest::Unknown(Arc::clone(name)),
            Address::Table(name) => match self.table(level, name) {
                Some(at) => AddressTest::Table(at),
                None => AddressTest::NoTable(Arc::clone(name)),
            },
            Address::NoRoute => AddressTest::NoRoute,
            Address::UrpfFailed => AddressTest::UrpfFailed,
            Address::RouteLabel(label) => AddressTest::RouteLabel(Arc::clone(label)),
        }
    }

    /// The table that a rule of this level means: the level's own, else that of the main rule set
    /// (`pfr_ktable_select_active`).
    fn table(&self, level: usize, name: &Arc<str>) -> Option<usize> {
        let own = (
            Arc::clone(&self.program.levels[level].path),
            Arc::clone(name),
        );
        let main = (Arc::from(""), Arc::clone(name));
        self.by_name
            .get(&own)
            .or_else(|| self.by_name.get(&main))
            .copied()
    }

    /// The level's own table, which `overload` brings into being.
    fn own_table(&mut self, level: usize, name: &Arc<str>) -> usize {
        let key = (
            Arc::clone(&self.program.levels[level].path),
            Arc::clone(name),
        );
        *self.by_name.entry(key).or_insert_with(|| {
            self.tables.push(Table::default());
            self.tables.len() - 1
        })
    }

    fn name(&mut self, name: &Arc<str>) -> usize {
        let names = &mut self.program.names;
        names
            .iter()
            .position(|other| other == name)
            .unwrap_or_else(|| {
                names.push(Arc::clone(name));
                names.len() - 1
            })
    }

    /// Resolves the anchor of a rule (`pf_anchor_setup`).
    fn target(&mut self, level: usize, rule: &Rule) -> Option<Target> {
        let name = match rule.anchor.as_deref()? {
            Anchor::Inline { name, .. } => name,
            Anchor::Call(path) => path,
        };
        let base = Arc::clone(&self.program.levels[level].path);
        let Some(path) = join(&base, name) else {
            return Some(Target::Nowhere);
        };
        let target = match path.strip_suffix("/*") {
            Some(parent) => Target::Children(self.level(parent)),
            None => Target::One(self.level(&path)),
        };
        Some(target)
    }

    /// The rule set at a path, which is made if it is not there.
    fn level(&mut self, path: &str) -> usize {
        let mut at = 0;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let known = self.program.levels[at].children.get(name).copied();
            at = known.unwrap_or_else(|| self.new_level(at, name));
        }
        at
    }

    fn new_level(&mut self, parent: usize, name: &str) -> usize {
        let base = &self.program.levels[parent].path;
        let path = if base.is_empty() {
            name.to_owned()
        } else {
            format!("{base}/{name}")
        };
        let child = self.program.levels.len();
        self.program.levels.push(Level {
            path: path.into(),
            ..Level::default()
        });
        self.program.levels[parent]
            .children
            .insert(Arc::from(name), child);
        child
    }
}

/// A path from the main rule set, of a name that rules at `base` use; `None` above the main one.
fn join(base: &str, name: &str) -> Option<String> {
    if let Some(absolute) = name.strip_prefix('/') {
        return Some(absolute.to_owned());
    }
    let (mut base, mut name) = (base, name);
    while let Some(rest) = name.strip_prefix("../") {
        if base.is_empty() {
            return None;
        }
        base = base.rsplit_once('/').map_or("", |(parent, _)| parent);
        name = rest;
    }
    Some(if base.is_empty() {
        name.to_owned()
    } else {
        format!("{base}/{name}")
    })
}

impl<'a> Program<'a> {
    pub fn entry(&self, id: RuleId) -> &Entry<'a> {
        &self.entries[id.index()]
    }

    pub fn reference(&self, id: RuleId) -> RuleRef<'a> {
        let entry = self.entry(id);
        RuleRef {
            id,
            rule: entry.rule,
            anchor: Arc::clone(&self.levels[entry.ruleset].path),
            index: entry.index,
        }
    }

    /// Which of the names mean this interface.
    pub fn interface(&self, interface: &str) -> Arc<[Option<bool>]> {
        self.names
            .iter()
            .map(|name| interface::matches(name, interface, self.host))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::join;

    #[test]
    fn paths_are_relative_absolute_or_of_the_parent() {
        assert_eq!(join("", "a").as_deref(), Some("a"));
        assert_eq!(join("a/b", "c").as_deref(), Some("a/b/c"));
        assert_eq!(join("a/b", "/c/d").as_deref(), Some("c/d"));
        assert_eq!(join("a/b", "../c").as_deref(), Some("a/c"));
        assert_eq!(join("a", "../c").as_deref(), Some("c"));
        assert_eq!(join("a", "../../c"), None);
        assert_eq!(join("a", "*").as_deref(), Some("a/*"));
    }
}
