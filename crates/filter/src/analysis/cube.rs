//! Sets of packets that are products of sets of values, merged until few are left.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::sentence;
use super::sets::ValueSet;
use super::space::{Class, Field, Kind, normalized_flags, unseen_protocol};
use super::vocabulary::{Fact, Vocabulary};
use super::witness::Assumption;
use crate::names;
use crate::rule::Family;

/// The family, as a dimension: 0 for IPv4, 1 for IPv6.
const FAMILY: Field = Field(u32::MAX - 1);
/// Whether the packet is a fragment, as a dimension.
const FRAGMENT: Field = Field(u32::MAX - 2);

/// A product of sets; a dimension that is missing has all values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cube(BTreeMap<Field, Arc<ValueSet>>);

/// A set of packets, as a rule could name it.
#[derive(Clone, Debug, PartialEq)]
pub struct Packets {
    /// The set in the words of pf.conf.
    pub text: String,
    /// The same by field: its name, and its values as pf writes them. A field that is not here
    /// has any value.
    pub fields: Vec<(&'static str, Vec<String>)>,
    /// Facts on which it depends whether a packet is in the set.
    pub facts: Vec<(Assumption, bool)>,
}

impl Cube {
    /// The cube of these sets in a class.
    pub fn new(
        class: Class,
        fragments: bool,
        sets: impl Iterator<Item = (Field, ValueSet)>,
    ) -> Self {
        let mut dimensions: BTreeMap<Field, Arc<ValueSet>> =
            sets.map(|(field, set)| (field, Arc::new(set))).collect();
        let mut missing = |field: Field, set: Option<ValueSet>| {
            if let Some(set) = set {
                dimensions.entry(field).or_insert_with(|| Arc::new(set));
            }
        };
        missing(FAMILY, Some(ValueSet::one(class.family as u128)));
        let direction = class
            .direction
            .map(|direction| ValueSet::one(direction as u128));
        missing(Field::DIRECTION, direction);
        let protocol = class
            .protocol()
            .map(|protocol| ValueSet::one(u128::from(protocol)));
        missing(
            Field::PROTOCOL,
            protocol.or_else(|| class.values(Field::PROTOCOL)),
        );
        if class.is_tcp() {
            missing(Field::FLAGS, class.values(Field::FLAGS));
        }
        missing(Field::ICMP_TYPE, class.values(Field::ICMP_TYPE));
        if fragments {
            missing(
                FRAGMENT,
                Some(ValueSet::one(u128::from(class.kind == Kind::Fragment))),
            );
        }
        Self(dimensions)
    }

    fn family(&self) -> Option<Family> {
        let set = self.0.get(&FAMILY)?;
        Some(if set.contains(0) {
            Family::Inet
        } else {
            Family::Inet6
        })
    }

    /// Whether a set has all values of a dimension that this cube's packets have.
    fn is_full(&self, field: Field, set: &ValueSet, vocabulary: &Vocabulary) -> bool {
        let protocols = |family: Family| {
            let seen = (0..=u8::MAX).filter(|&protocol| !unseen_protocol(family, protocol));
            ValueSet::of(
                seen.map(|protocol| (u128::from(protocol), u128::from(protocol)))
                    .collect(),
            )
        };
        match field {
            FAMILY | FRAGMENT | Field::DIRECTION | Field::OPTIONS => *set == ValueSet::range(0, 1),
            Field::FLAGS => (0..=u8::MAX).all(|flags| {
                normalized_flags(flags) != Some(flags) || set.contains(u128::from(flags))
            }),
            Field::ICMP_TYPE | Field::ICMP_CODE => *set == ValueSet::range(0, 255),
            Field::SOURCE_PORT => *set == ValueSet::range(0, 65_535),
            Field::DESTINATION_PORT => {
                set.contains(1) && set.ranges().first().is_some_and(|range| range.1 == 65_535)
            }
            Field::PROTOCOL => self
                .family()
                .is_some_and(|family| set.intersection(&protocols(family)) == protocols(family)),
            Field::SOURCE | Field::DESTINATION => self.family().is_some_and(|family| {
                *set == ValueSet::range(0, super::space::address_max(family))
            }),
            Field::TOS => set.ranges().len() == 64,
            Field::PRIORITY => *set == ValueSet::range(0, 7),
            Field::USER | Field::GROUP => *set == ValueSet::range(0, u128::from(u32::MAX)),
            _ => vocabulary.values(field).is_some_and(|all| all == *set),
        }
    }

    /// Number of facts that it depends on.
    pub fn facts(&self, vocabulary: &Vocabulary) -> usize {
        self.0
            .keys()
            .filter(|field| is_uncertain(**field, vocabulary))
            .count()
    }
}

/// Whether a field is a fact that a packet's header and interface do not give.
pub fn is_uncertain(field: Field, vocabulary: &Vocabulary) -> bool {
    let atom = field.as_atom().and_then(|at| vocabulary.atoms.get(at));
    atom.is_some_and(|atom| !matches!(atom.fact, Fact::Group | Fact::ReceivedGroup))
}

/// Merges cubes that differ in one dimension, until none do.
pub fn merge(mut cubes: Vec<Cube>, vocabulary: &Vocabulary) -> Vec<Cube> {
    loop {
        let before = cubes.len();
        let mut fields: Vec<Field> = cubes
            .iter()
            .flat_map(|cube| cube.0.keys().copied())
            .collect();
        fields.sort_unstable();
        fields.dedup();
        // Fields that tell classes apart go last, when no other does.
        fields.sort_by_key(|field| match *field {
            Field::FLAGS | Field::ICMP_TYPE => 1,
            Field::PROTOCOL => 2,
            FAMILY | FRAGMENT => 3,
            _ => 0,
        });
        for field in fields {
            cubes = merge_field(cubes, field, vocabulary);
        }
        if cubes.len() == before {
            return cubes;
        }
    }
}

fn merge_field(cubes: Vec<Cube>, field: Field, vocabulary: &Vocabulary) -> Vec<Cube> {
    let mut places: HashMap<Cube, usize> = HashMap::new();
    let mut merged: Vec<(Cube, Option<ValueSet>)> = Vec::new();
    for mut cube in cubes {
        // Numbers of addresses and ICMP types mean something else in the other family.
        const OF_FAMILY: [Field; 4] = [
            Field::SOURCE,
            Field::DESTINATION,
            Field::ICMP_TYPE,
            Field::ICMP_CODE,
        ];
        if field == FAMILY && OF_FAMILY.iter().any(|field| cube.0.contains_key(field)) {
            let set = cube.0.get(&FAMILY).map(|set| (**set).clone());
            merged.push((cube, set));
            continue;
        }
        let set = cube.0.remove(&field).map(|set| (*set).clone());
        if let Some(&place) = places.get(&cube) {
            let known = merged[place].1.take();
            merged[place].1 = known.zip(set).map(|(known, set)| known.union(&set));
        } else {
            places.insert(cube.clone(), merged.len());
            merged.push((cube, set));
        }
    }
    let close = |(mut cube, set): (Cube, Option<ValueSet>)| {
        if let Some(set) = set.filter(|set| !cube.is_full(field, set, vocabulary)) {
            cube.0.insert(field, Arc::new(set));
        }
        cube
    };
    merged.into_iter().map(close).collect()
}

impl Cube {
    /// The cube in words.
    pub fn packets(&self, vocabulary: &Vocabulary) -> Packets {
        let family = self.family();
        let mut packets = Packets {
            text: String::new(),
            fields: Vec::new(),
            facts: Vec::new(),
        };
        let mut words: Vec<String> = Vec::new();
        self.place_words(&mut words, vocabulary);
        if let Some(family) = family {
            words.push(family.name().to_owned());
        }
        let say = |field: Field| {
            let set = self.0.get(&field)?;
            Some(sentence::set_words(
                field,
                set,
                family.unwrap_or(Family::Inet),
                vocabulary,
            ))
        };
        words.extend(say(Field::PROTOCOL).map(|protocols| format!("proto {protocols}")));
        if let Some(fragment) = self.0.get(&FRAGMENT) {
            words.push(
                if fragment.contains(1) {
                    "fragment"
                } else {
                    "not fragment"
                }
                .to_owned(),
            );
        }
        let mut any = true;
        for (name, address, port, fact) in [
            ("from", Field::SOURCE, Field::SOURCE_PORT, Fact::Source),
            (
                "to",
                Field::DESTINATION,
                Field::DESTINATION_PORT,
                Fact::Destination,
            ),
        ] {
            let facts = self.facts_of(fact, vocabulary);
            let address = say(address);
            let port = say(port)
                .map(|port| format!(" port {port}"))
                .unwrap_or_default();
            if address.is_none() && port.is_empty() && facts.is_empty() {
                continue;
            }
            any = false;
            let both = address
                .into_iter()
                .chain(facts)
                .collect::<Vec<String>>()
                .join(" and ");
            words.push(format!(
                "{name} {}{port}",
                if both.is_empty() { "any" } else { &both }
            ));
        }
        if any {
            words.push("all".to_owned());
        }
        let icmp = if family == Some(Family::Inet6) {
            "icmp6-type"
        } else {
            "icmp-type"
        };
        for (name, field) in [
            ("flags", Field::FLAGS),
            (icmp, Field::ICMP_TYPE),
            ("code", Field::ICMP_CODE),
            ("tos", Field::TOS),
            ("prio", Field::PRIORITY),
            ("user", Field::USER),
            ("group", Field::GROUP),
            ("tagged", Field::TAG),
        ] {
            words.extend(say(field).map(|values| {
                values.strip_prefix("! ").map_or_else(
                    || format!("{name} {values}"),
                    |values| format!("! {name} {values}"),
                )
            }));
        }
        if let Some(options) = self.0.get(&Field::OPTIONS) {
            words.push(
                if options.contains(1) {
                    "with IP options"
                } else {
                    "without IP options"
                }
                .to_owned(),
            );
        }
        packets.facts = self.assumptions(vocabulary);
        let others = packets
            .facts
            .iter()
            .filter(|(fact, _)| fact.fact == Fact::Other);
        for (at, (fact, holds)) in others.enumerate() {
            let joint = if at == 0 { "if" } else { "and" };
            words.push(format!(
                "{joint} {}{fact}",
                if *holds { "" } else { "not: " }
            ));
        }
        packets.text = words.join(" ");
        packets.fields = self.values(vocabulary);
        packets
    }

    /// Direction and interface.
    fn place_words(&self, words: &mut Vec<String>, vocabulary: &Vocabulary) {
        let say = |field: Field| {
            let set = self.0.get(&field)?;
            Some(sentence::set_words(field, set, Family::Inet, vocabulary))
        };
        if let Some(direction) = self.0.get(&Field::DIRECTION) {
            words.push(if direction.contains(0) { "in" } else { "out" }.to_owned());
        }
        let groups = self.facts_of(Fact::Group, vocabulary);
        let on: Vec<String> = say(Field::INTERFACE).into_iter().chain(groups).collect();
        if !on.is_empty() {
            words.push(format!("on {}", on.join(" and ")));
        }
        words.extend(say(Field::RDOMAIN).map(|rdomain| format!("rdomain {rdomain}")));
        let groups = self.facts_of(Fact::ReceivedGroup, vocabulary);
        let received: Vec<String> = say(Field::RECEIVED_ON).into_iter().chain(groups).collect();
        if !received.is_empty() {
            words.push(format!("received-on {}", received.join(" and ")));
        }
    }

    /// Facts of a kind, as tables and groups are written.
    fn facts_of(&self, kind: Fact, vocabulary: &Vocabulary) -> Vec<String> {
        let facts = self
            .assumptions(vocabulary)
            .into_iter()
            .filter(|(fact, _)| fact.fact == kind);
        facts
            .map(|(fact, holds)| {
                if holds {
                    fact.text
                } else {
                    format!("! {}", fact.text)
                }
            })
            .collect()
    }

    fn assumptions(&self, vocabulary: &Vocabulary) -> Vec<(Assumption, bool)> {
        let atoms = self.0.iter().filter_map(|(field, set)| {
            let atom = vocabulary.atoms.get(field.as_atom()?)?;
            Some((
                Assumption {
                    fact: atom.fact,
                    text: atom.text.to_string(),
                },
                set.contains(1),
            ))
        });
        atoms.collect()
    }

    /// Values by field.
    fn values(&self, vocabulary: &Vocabulary) -> Vec<(&'static str, Vec<String>)> {
        let named = |field: Field| {
            Some(match field {
                FAMILY => "family",
                FRAGMENT => "fragment",
                Field::DIRECTION => "direction",
                Field::INTERFACE => "interface",
                Field::RDOMAIN => "rdomain",
                Field::PROTOCOL => "protocol",
                Field::SOURCE => "source",
                Field::SOURCE_PORT => "source-port",
                Field::DESTINATION => "destination",
                Field::DESTINATION_PORT => "destination-port",
                Field::FLAGS => "flags",
                Field::ICMP_TYPE => "icmp-type",
                Field::ICMP_CODE => "icmp-code",
                Field::TOS => "tos",
                Field::PRIORITY => "prio",
                Field::RECEIVED_ON => "received-on",
                Field::USER => "user",
                Field::GROUP => "group",
                Field::TAG => "tag",
                Field::OPTIONS => "ip-options",
                _ => return None,
            })
        };
        let family = self.family().unwrap_or(Family::Inet);
        let each = self.0.iter().filter_map(|(&field, set)| {
            let words =
                |&(low, high): &(u128, u128)| value_words(field, low, high, family, vocabulary);
            Some((named(field)?, set.ranges().iter().flat_map(words).collect()))
        });
        each.collect()
    }
}

/// A range of values, as one word or a few.
fn value_words(
    field: Field,
    low: u128,
    high: u128,
    family: Family,
    vocabulary: &Vocabulary,
) -> Vec<String> {
    let one = |value: u128| match field {
        FAMILY => if value == 0 { "inet" } else { "inet6" }.to_owned(),
        Field::DIRECTION => if value == 0 { "in" } else { "out" }.to_owned(),
        Field::PROTOCOL => {
            names::protocol_name(value as u8).map_or_else(|| value.to_string(), str::to_owned)
        }
        Field::FLAGS => sentence::flag_letters(value as u8),
        FRAGMENT | Field::OPTIONS => (value == 1).to_string(),
        Field::INTERFACE | Field::RECEIVED_ON | Field::TAG | Field::RDOMAIN => {
            sentence::set_words(field, &ValueSet::one(value), family, vocabulary)
        }
        _ => value.to_string(),
    };
    match field {
        Field::SOURCE | Field::DESTINATION => {
            let networks = sentence::networks(low, high, family, 8);
            if networks.is_empty() {
                let address = |value| super::sets::address(value, family);
                return vec![format!("{} - {}", address(low), address(high))];
            }
            networks.into_iter().map(sentence::network_words).collect()
        }
        Field::SOURCE_PORT | Field::DESTINATION_PORT | Field::USER | Field::GROUP if low < high => {
            vec![format!("{low}:{high}")]
        }
        _ => (low..=high).map(one).collect(),
    }
}
