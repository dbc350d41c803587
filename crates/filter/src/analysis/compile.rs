//! Tests of a rule on the packets of one class, as sets of values (`pf_match_rule`).

use std::collections::HashMap;
use std::sync::Arc;

use super::flatten::{Flat, List, Step};
use super::item::{Act, Interner, NO_RULE, NewValue, Rewrite, Role, Store, TagTest};
use super::outcome::Effect;
use super::sentence;
use super::sets::{ValueSet, number};
use super::space::{Class, Field, Kind, address_max};
use super::tables::{Content, interface_addresses, table_addresses};
use super::vocabulary::{Fact, Known, Vocabulary};
use crate::host::Host;
use crate::names;
use crate::rule::{
    Action, Address, Comparison, Direction, Family, IdMatch, InterfaceMatch, KeepState, Network,
    On, Peer, Pool, Rule,
};

/// Why a rule matches no packet of a class; the later, the more it says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Never {
    /// It is for other packets.
    OtherPackets,
    /// It is for fragments, which are reassembled before rules see them.
    FragmentsReassembled,
    /// It tests the header of a fragment that has none.
    FragmentHeader,
    /// It keeps state, and so does not match ICMP replies.
    IcmpReply,
    /// No packet that reaches the rules has these TCP flags.
    Flags,
    /// Its `tos` has ECN bits, which are masked off.
    EcnBits,
    /// Its protocol is one that pf walks over.
    Protocol(u8),
    /// No port satisfies the comparison.
    Port,
    /// No user or group satisfies the comparison.
    Owner,
    /// The address is `! any`.
    NotAny,
    /// The interface does not exist.
    NoInterface(Arc<str>),
    /// The interface has no address of the family.
    NoAddress(Arc<str>),
    /// The table is empty.
    EmptyTable(Arc<str>),
    /// It contradicts the anchor that holds it.
    Anchor,
    /// No packet that gets here has such a tag, or such addresses once they are translated.
    Conditions,
}

impl std::fmt::Display for Never {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OtherPackets => f.write_str("no packet has these values"),
            Self::FragmentsReassembled => {
                f.write_str("fragments are reassembled before rules see them")
            }
            Self::FragmentHeader => {
                f.write_str("a later fragment has no ports, flags or ICMP type")
            }
            Self::IcmpReply => f.write_str("a rule that keeps state does not match ICMP replies"),
            Self::Flags => {
                f.write_str("TCP packets with these flags are dropped before rules see them")
            }
            Self::EcnBits => f.write_str("the ECN bits of tos are masked off"),
            Self::Protocol(number) => match names::protocol_name(*number) {
                Some(name) => write!(f, "rules never see protocol {name}"),
                None => write!(f, "rules never see protocol {number}"),
            },
            Self::Port => f.write_str("no port satisfies the comparison"),
            Self::Owner => f.write_str("no user or group satisfies the comparison"),
            Self::NotAny => f.write_str("no address is outside of any"),
            Self::NoInterface(name) => write!(f, "no interface matches {name}"),
            Self::NoAddress(name) => write!(f, "({name}) has no such address"),
            Self::EmptyTable(name) => write!(f, "table <{name}> is empty"),
            Self::Conditions => {
                f.write_str("no packet gets here with such a tag, or such translated addresses")
            }
            Self::Anchor => f.write_str("it contradicts the conditions of its anchor"),
        }
    }
}

/// The tests of a step on the packets of a class.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// Tests of fields, by field.
    pub tests: Vec<(Field, Arc<ValueSet>)>,
    /// Tests of the tag.
    pub tags: Vec<TagTest>,
}

/// Context that both rule sets share.
pub struct Context<'a> {
    /// The host.
    pub host: &'a Host,
    /// Names and atoms.
    pub vocabulary: Vocabulary,
    /// Acts and effects.
    pub store: Store,
    marks: Interner<String>,
    /// Unknown values of translated fields: their text, and the possible ones.
    unknown_values: Interner<(String, Option<ValueSet>)>,
    table_sets: HashMap<(*const crate::rule::Table, Family), Arc<ValueSet>>,
}

/// A step's role, and those of its tests that do not depend on the packet's class.
pub struct Plan {
    /// Number of its act, without the rule's identity and translation; `None` for a step that
    /// does nothing by itself.
    pub act: Option<u32>,
    /// Number of the mark that remembers the tag for this anchor.
    pub mark: Option<u32>,
    atoms: Vec<Field>,
    os: Option<Field>,
}

impl<'a> Context<'a> {
    /// A context without rules.
    pub fn new(host: &'a Host, vocabulary: Vocabulary) -> Self {
        Self {
            host,
            vocabulary,
            store: Store::default(),
            marks: Interner::default(),
            unknown_values: Interner::default(),
            table_sets: HashMap::new(),
        }
    }

    /// The role of each step.
    pub fn plan(&mut self, list: &List<'_>) -> Vec<Plan> {
        let mut planner = Planner {
            context: self,
            seen: HashMap::new(),
            quick: HashMap::new(),
        };
        let mut plans: Vec<Plan> = Vec::with_capacity(list.steps.len());
        for flat in &list.steps {
            let plan = planner.step(flat, list, &plans);
            plans.push(plan);
        }
        plans
    }

    /// The tests of all steps on the packets of a class.
    pub fn drafts(
        &mut self,
        list: &List<'_>,
        plans: &[Plan],
        class: Class,
    ) -> Vec<Result<Draft, Never>> {
        let mut drafts: Vec<Result<Draft, Never>> = Vec::with_capacity(list.steps.len());
        for (flat, plan) in list.steps.iter().zip(plans) {
            let draft = match flat.step {
                Step::Leave(entry) => drafts[entry].clone().map(|mut draft| {
                    draft
                        .tags
                        .iter_mut()
                        .for_each(|test| test.mark = test.mark.or(plan.mark));
                    draft
                }),
                Step::Rule | Step::Enter => {
                    self.draft(flat, plan, list, class)
                        .and_then(|own| match flat.parent {
                            Some(parent) => {
                                inside(drafts[parent].as_ref(), plans[parent].mark, own)
                            }
                            None => Ok(own),
                        })
                }
            };
            drafts.push(draft);
        }
        drafts
    }

    fn draft(
        &mut self,
        flat: &Flat<'_>,
        plan: &Plan,
        list: &List<'_>,
        class: Class,
    ) -> Result<Draft, Never> {
        let rule = flat.rule;
        let mut draft = Draft::default();
        self.place(rule, class, &mut draft)?;
        protocol(rule, class, &mut draft)?;
        self.peer(&rule.source, Field::SOURCE, flat, list, class, &mut draft)?;
        self.peer(
            &rule.destination,
            Field::DESTINATION,
            flat,
            list,
            class,
            &mut draft,
        )?;
        transport(rule, class, &mut draft)?;
        icmp(rule, class, &mut draft)?;
        fragment(rule, class, &mut draft)?;
        if rule.tos != 0 {
            if rule.tos & 3 != 0 {
                return Err(Never::EcnBits);
            }
            draft.test(Field::TOS, ValueSet::one(u128::from(rule.tos)));
        }
        if let Some(prio) = rule.prio {
            draft.test(Field::PRIORITY, ValueSet::one(u128::from(prio)));
        }
        let os = plan.os.filter(|_| class.is_tcp());
        for field in plan.atoms.iter().copied().chain(os) {
            draft.test(field, ValueSet::one(1));
        }
        if let Some(tagged) = &rule.tagged {
            let tag = self.vocabulary.tag(&tagged.name);
            draft.tags.push(TagTest {
                tag,
                negated: tagged.negated,
                mark: None,
            });
        }
        draft.tests.sort_by_key(|test| test.0);
        Ok(draft)
    }

    /// Direction, interface, routing domain.
    fn place(&mut self, rule: &Rule, class: Class, draft: &mut Draft) -> Result<(), Never> {
        if rule.family.is_some_and(|family| family != class.family) {
            return Err(Never::OtherPackets);
        }
        if let Some(direction) = rule.direction {
            draft.test(Field::DIRECTION, ValueSet::one(direction as u128));
        }
        match &rule.on {
            Some(On::Interface(test)) => self.interface(test, Field::INTERFACE, draft)?,
            Some(On::Rdomain { id, negated }) => {
                let at = self
                    .vocabulary
                    .rdomains
                    .binary_search(id)
                    .unwrap_or(self.vocabulary.rdomains.len());
                let set = ValueSet::one(at as u128);
                let all = self.vocabulary.rdomains.len() as u128;
                draft.test(
                    Field::RDOMAIN,
                    if *negated { set.complement(all) } else { set },
                );
            }
            None => {}
        }
        match &rule.received_on {
            // A packet that comes in was received on its own interface.
            Some(test) if class.direction == Some(Direction::In) => {
                self.interface(test, Field::INTERFACE, draft)
            }
            Some(test) => self.interface(test, Field::RECEIVED_ON, draft),
            None => Ok(()),
        }
    }

    fn interface(
        &mut self,
        test: &InterfaceMatch,
        field: Field,
        draft: &mut Draft,
    ) -> Result<(), Never> {
        match self.vocabulary.interface(test, field == Field::RECEIVED_ON) {
            Known::Atom(atom) => draft.test(atom, ValueSet::one(u128::from(!test.negated))),
            Known::Set(set) => {
                let last = self
                    .vocabulary
                    .values(field)
                    .map_or(0, |values| values.ranges()[0].1);
                let set = if test.negated {
                    set.complement(last)
                } else {
                    set
                };
                if set.is_empty() {
                    return Err(Never::NoInterface(Arc::clone(&test.name)));
                }
                draft.test(field, set);
            }
        }
        Ok(())
    }

    /// Address and port of one side.
    fn peer(
        &mut self,
        peer: &Peer,
        field: Field,
        flat: &Flat<'_>,
        list: &List<'_>,
        class: Class,
        draft: &mut Draft,
    ) -> Result<(), Never> {
        match self.address(&peer.address, field, flat, list, class)? {
            None if peer.negated => return Err(Never::NotAny),
            None => {}
            Some(Known::Atom(atom)) => draft.test(atom, ValueSet::one(u128::from(!peer.negated))),
            Some(Known::Set(set)) => {
                let set = if peer.negated {
                    set.complement(address_max(class.family))
                } else {
                    set
                };
                if set.is_empty() {
                    return Err(match &peer.address {
                        Address::Table(name) => Never::EmptyTable(Arc::clone(name)),
                        Address::Interface(dynamic) => Never::NoAddress(Arc::clone(&dynamic.name)),
                        _ => Never::NotAny,
                    });
                }
                draft.test(field, set);
            }
        }
        let Some(port) = peer.port else { return Ok(()) };
        if class.kind == Kind::Fragment {
            return Err(Never::FragmentHeader);
        }
        if class.has_ports() {
            let field = if field == Field::SOURCE {
                Field::SOURCE_PORT
            } else {
                Field::DESTINATION_PORT
            };
            let set = ValueSet::comparison(
                port.comparison,
                u32::from(port.low),
                u32::from(port.high),
                65_535,
            );
            if class
                .values(field)
                .is_none_or(|values| values.intersection(&set).is_empty())
            {
                return Err(Never::Port);
            }
            draft.test(field, set);
        }
        Ok(())
    }

    /// The addresses that an address of a rule stands for; `None` for all.
    fn address(
        &mut self,
        address: &Address,
        field: Field,
        flat: &Flat<'_>,
        list: &List<'_>,
        class: Class,
    ) -> Result<Option<Known>, Never> {
        let fact = if field == Field::SOURCE {
            Fact::Source
        } else {
            Fact::Destination
        };
        let known = match address {
            Address::Any => return Ok(None),
            Address::Network(network) if Family::of(network.address) != class.family => {
                return Err(Never::OtherPackets);
            }
            Address::Network(network) if network.bits == 0 => return Ok(None),
            Address::Network(network) => Known::Set(ValueSet::network(*network)),
            Address::Range(low, high) => {
                if Family::of(*low) != class.family {
                    return Err(Never::OtherPackets);
                }
                Known::Set(ValueSet::range(number(*low), number(*high)))
            }
            Address::Interface(dynamic) => {
                match interface_addresses(dynamic, class.family, self.host) {
                    Some(networks) => Known::Set(union(&networks)),
                    None => Known::Atom(
                        self.vocabulary
                            .atom(fact, &sentence::address_words(address)),
                    ),
                }
            }
            Address::Table(name) => match list.tables.content(&flat.anchor, name) {
                Content::Declared(table) => {
                    let set = self
                        .table_sets
                        .entry((std::ptr::from_ref(table), class.family));
                    Known::Set(
                        (**set.or_insert_with(|| Arc::new(table_addresses(table, class.family))))
                            .clone(),
                    )
                }
                Content::Unknown => Known::Atom(self.vocabulary.atom(fact, &format!("<{name}>"))),
            },
            // The kernel looks for no interface on the way to a destination.
            Address::UrpfFailed if fact == Fact::Destination => return Ok(None),
            Address::Unresolved(_)
            | Address::NoRoute
            | Address::UrpfFailed
            | Address::RouteLabel(_) => Known::Atom(
                self.vocabulary
                    .atom(fact, &sentence::address_words(address)),
            ),
        };
        Ok(Some(known))
    }

    /// New values of the fields that a translating `match` rule rewrites.
    pub fn rewrite(&mut self, rule: &Rule, class: Class) -> Option<u32> {
        if rule.action != Action::Match || rule.nat.is_none() && rule.rdr.is_none() {
            return None;
        }
        let mut rewrite: Rewrite = [NewValue::Same; 4];
        if let Some(pool) = &rule.nat {
            rewrite[0] = self.pool_address(pool, class);
            if class.has_ports() && pool.ports != (0, 0) {
                rewrite[1] = self.pool_port(pool, pool.ports.0 == pool.ports.1);
            }
        }
        if let Some(pool) = &rule.rdr {
            rewrite[2] = self.pool_address(pool, class);
            if class.has_ports() && pool.ports != (0, 0) {
                rewrite[3] =
                    self.pool_port(pool, pool.ports.1 == 0 || pool.ports.0 == pool.ports.1);
            }
        }
        Some(self.store.rewrites.intern(&rewrite))
    }

    fn pool_address(&mut self, pool: &Pool, class: Class) -> NewValue {
        let networks = match &pool.address {
            Address::Network(network) => Some(vec![*network]),
            Address::Interface(dynamic) => interface_addresses(dynamic, class.family, self.host),
            _ => None,
        };
        if let Some(&[network]) = networks.as_deref()
            && Family::of(network.address) == class.family
            && network.bits == class.family.bits()
        {
            return NewValue::Constant(number(network.address));
        }
        let possible = networks
            .filter(|networks| !networks.is_empty())
            .map(|networks| union(&networks));
        self.unknown(super::outcome::pool_words(pool), possible)
    }

    fn pool_port(&mut self, pool: &Pool, one: bool) -> NewValue {
        let (first, last) = pool.ports;
        if one {
            return NewValue::Constant(u128::from(first));
        }
        let possible = ValueSet::range(u128::from(first), u128::from(last));
        let what = format!("a port of {}", super::outcome::pool_words(pool));
        self.unknown(what, Some(possible).filter(|set| !set.is_empty()))
    }

    fn unknown(&mut self, what: String, possible: Option<ValueSet>) -> NewValue {
        NewValue::Unknown(self.unknown_values.intern(&(what, possible)))
    }

    /// Whether an unknown translated value is in a set: certain, or the atom that says so.
    pub fn translated(
        &mut self,
        field: Field,
        value: u32,
        set: &ValueSet,
        family: Family,
    ) -> Result<bool, Field> {
        let (what, possible) = self.unknown_values.get(value);
        if let Some(possible) = possible {
            let inside = possible.intersection(set);
            if inside.is_empty() || inside == *possible {
                return Ok(!inside.is_empty());
            }
        }
        let words = sentence::set_words(field, set, family, &self.vocabulary);
        let name = sentence::field_name(field);
        let text = format!("the {name} translated to {what} is in {words}");
        Err(self.vocabulary.atom(Fact::Other, &text))
    }
}

impl Draft {
    /// Adds a test.
    fn test(&mut self, field: Field, set: ValueSet) {
        match self.tests.iter_mut().find(|test| test.0 == field) {
            Some(test) => test.1 = Arc::new(test.1.intersection(&set)),
            None => self.tests.push((field, Arc::new(set))),
        }
    }
}

/// The tests of a rule inside an anchor: both must hold.
fn inside(
    anchor: Result<&Draft, &Never>,
    mark: Option<u32>,
    mut own: Draft,
) -> Result<Draft, Never> {
    let anchor = anchor.map_err(Clone::clone)?;
    for (field, set) in &anchor.tests {
        match own.tests.iter_mut().find(|test| test.0 == *field) {
            Some(test) => {
                let both = test.1.intersection(set);
                if both.is_empty() {
                    return Err(Never::Anchor);
                }
                test.1 = Arc::new(both);
            }
            None => own.tests.push((*field, Arc::clone(set))),
        }
    }
    own.tests.sort_by_key(|test| test.0);
    for test in &anchor.tags {
        own.tags.push(TagTest {
            mark: test.mark.or(mark),
            ..*test
        });
    }
    Ok(own)
}

fn protocol(rule: &Rule, class: Class, draft: &mut Draft) -> Result<(), Never> {
    let Some(wanted) = rule.protocol else {
        return Ok(());
    };
    match class.protocol() {
        Some(own) if own == wanted => Ok(()),
        Some(_) => Err(Never::OtherPackets),
        None => {
            let set = ValueSet::one(u128::from(wanted));
            let values = class.values(Field::PROTOCOL).unwrap_or_default();
            if values.intersection(&set).is_empty() {
                let seen = !super::space::unseen_protocol(class.family, wanted);
                return Err(if seen {
                    Never::OtherPackets
                } else {
                    Never::Protocol(wanted)
                });
            }
            draft.test(Field::PROTOCOL, set);
            Ok(())
        }
    }
}

/// TCP flags, user and group.
fn transport(rule: &Rule, class: Class, draft: &mut Draft) -> Result<(), Never> {
    let (user, group) = (rule.user, rule.group);
    if class.kind == Kind::Fragment && (user.is_some() || group.is_some()) {
        return Err(Never::FragmentHeader);
    }
    if class.has_ports() {
        for (test, field) in [(user, Field::USER), (group, Field::GROUP)] {
            let Some(test) = test else { continue };
            let set = owners(test);
            if set.is_empty() {
                return Err(Never::Owner);
            }
            draft.test(field, set);
        }
    }
    let Some(flags) = rule.flags.filter(|_| class.is_tcp()) else {
        return Ok(());
    };
    let values = class.values(Field::FLAGS).unwrap_or_default();
    let all = values.ranges().iter().flat_map(|&(low, high)| low..=high);
    let kept = all.filter(|&value| value as u8 & flags.mask == flags.set);
    let set = ValueSet::of(kept.map(|value| (value, value)).collect());
    if set.is_empty() {
        return Err(Never::Flags);
    }
    if set != values {
        draft.test(Field::FLAGS, set);
    }
    Ok(())
}

/// Numbers of users or groups that satisfy a comparison (`pf_match_uid`): "unknown" only equals.
fn owners(test: IdMatch) -> ValueSet {
    let all = u128::from(u32::MAX);
    let set = ValueSet::comparison(test.comparison, test.low, test.high, all);
    match test.comparison {
        Comparison::Equal | Comparison::NotEqual => set,
        _ => set.intersection(&ValueSet::range(0, all - 1)),
    }
}

fn icmp(rule: &Rule, class: Class, draft: &mut Draft) -> Result<(), Never> {
    let Some(kind) = class.icmp() else {
        let header = rule.icmp.is_some() && class.kind == Kind::Fragment;
        return if header {
            Err(Never::FragmentHeader)
        } else {
            Ok(())
        };
    };
    let sloppy = rule
        .state_options
        .as_ref()
        .is_some_and(|options| options.sloppy);
    if let Some(test) = rule.icmp {
        let set = ValueSet::one(u128::from(test.kind));
        let values = class.values(Field::ICMP_TYPE).unwrap_or_default();
        if values.intersection(&set).is_empty() {
            return Err(Never::OtherPackets);
        }
        draft.test(Field::ICMP_TYPE, set);
        if let Some(code) = test.code {
            draft.test(Field::ICMP_CODE, ValueSet::one(u128::from(code)));
        }
    }
    if kind.reply && rule.state != KeepState::No && !sloppy {
        return Err(Never::IcmpReply);
    }
    Ok(())
}

/// Rules for fragments, and rules that fragments do not match.
fn fragment(rule: &Rule, class: Class, draft: &mut Draft) -> Result<(), Never> {
    if class.kind != Kind::Fragment {
        return if rule.fragment {
            Err(Never::FragmentsReassembled)
        } else {
            Ok(())
        };
    }
    if rule.flags.is_some_and(|flags| flags.mask != 0) {
        let tcp = ValueSet::one(u128::from(names::TCP));
        draft.test(Field::PROTOCOL, tcp.complement(255));
        if draft.tests.iter().any(|test| test.1.is_empty()) {
            return Err(Never::FragmentHeader);
        }
    }
    Ok(())
}

fn union(networks: &[Network]) -> ValueSet {
    ValueSet::of(
        networks
            .iter()
            .map(|&network| super::sets::network_range(network))
            .collect(),
    )
}

/// Numbers anchors and atoms in the order of the list, so that the same rule gets the same number
/// in both rule sets.
struct Planner<'c, 'a> {
    context: &'c mut Context<'a>,
    /// How often each text was seen.
    seen: HashMap<String, usize>,
    /// Numbers of quick anchors, by path of the rule that calls them.
    quick: HashMap<u32, u32>,
}

impl Planner<'_, '_> {
    fn step(&mut self, flat: &Flat<'_>, list: &List<'_>, plans: &[Plan]) -> Plan {
        let rule = flat.rule;
        let mut plan = Plan {
            act: None,
            mark: None,
            atoms: Vec::new(),
            os: None,
        };
        let parent = flat.parent.filter(|&parent| list.steps[parent].rule.quick);
        let parent = parent.map_or(NO_RULE, |parent| self.anchor(&list.steps[parent]));
        let effect = self.context.store.effects.intern(&Effect::default_pass());
        let mut act = Act {
            role: Role::Decide,
            quick: false,
            tag: None,
            parent,
            effect,
            rewrite: None,
            rule: NO_RULE,
        };
        // Every tag has its number before the first class is cut.
        if let Some(tagged) = &rule.tagged {
            self.context.vocabulary.tag(&tagged.name);
        }
        act.tag = rule
            .tag
            .as_ref()
            .map(|tag| self.context.vocabulary.tag(tag));
        match flat.step {
            Step::Leave(entry) => {
                act.role = Role::Leave(self.anchor(&list.steps[entry]));
                act.tag = None;
                plan.mark = plans[entry].mark;
            }
            Step::Enter => {
                act.role = Role::Tag;
                self.atoms(rule, &mut plan);
                if rule.tagged.is_some() {
                    plan.mark = Some(self.number(&format!(
                        "{} tagged {}",
                        flat.anchor,
                        sentence::rule_words(rule)
                    )));
                }
                if act.tag.is_none() {
                    return plan;
                }
            }
            Step::Rule => {
                self.atoms(rule, &mut plan);
                act.role = if rule.action == Action::Match {
                    Role::Match
                } else {
                    Role::Decide
                };
                act.quick = rule.quick;
                act.effect = self.context.store.effects.intern(&Effect::new(rule));
            }
        }
        plan.act = Some(self.context.store.acts.intern(&act));
        plan
    }

    /// The number of a quick anchor: one for each rule that calls one.
    fn anchor(&mut self, entry: &Flat<'_>) -> u32 {
        if let Some(&number) = self.quick.get(&entry.path) {
            return number;
        }
        let number = self.number(&format!(
            "{} {}",
            entry.anchor,
            sentence::rule_words(entry.rule)
        ));
        self.quick.insert(entry.path, number);
        number
    }

    fn number(&mut self, text: &str) -> u32 {
        let text = self.occurrence(text);
        self.context.marks.intern(&text)
    }

    fn occurrence(&mut self, text: &str) -> String {
        let seen = self.seen.entry(text.to_owned()).or_insert(0);
        *seen += 1;
        if *seen == 1 {
            text.to_owned()
        } else {
            format!("{text} (no. {seen})")
        }
    }

    /// Tests whose result nobody knows before.
    fn atoms(&mut self, rule: &Rule, plan: &mut Plan) {
        let mut facts = Vec::new();
        // Probability 0 is no probability, as in pf.
        if let Some(probability) = rule.probability.filter(|&probability| probability != 0) {
            let percent = f64::from(probability) / 4_294_967_296.0 * 100.0;
            facts.push(format!("probability {percent:.4}% holds"));
        }
        if let Some(rate) = rule.max_packet_rate {
            facts.push(format!(
                "max-pkt-rate {}/{} is not exceeded",
                rate.limit, rate.seconds
            ));
        }
        if rule.once {
            facts.push("once: it has not matched yet".to_owned());
        }
        for fact in facts {
            let text = self.occurrence(&format!("{fact} at \"{}\"", sentence::rule_words(rule)));
            plan.atoms
                .push(self.context.vocabulary.atom(Fact::Other, &text));
        }
        plan.os = rule.os.as_ref().map(|os| {
            self.context
                .vocabulary
                .atom(Fact::Other, &format!("the source runs {os}"))
        });
    }
}
