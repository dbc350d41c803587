//! Values that have names: interfaces, routing domains and tags; and atoms, the facts that neither
//! a packet's header nor the configuration gives.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::sets::ValueSet;
use super::space::Field;
use crate::host::Host;
use crate::rule::InterfaceMatch;

/// An interface that a packet can be on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterfaceValue {
    /// The interface of this name.
    Named(String),
    /// Another interface of this group: `em` for an `em7` that no rule names.
    OtherOf(String),
    /// An interface that no rule names.
    Other,
}

/// The result of an interface's test, where it is known.
#[derive(Clone, Debug, PartialEq)]
pub enum Known {
    /// The values for which it holds.
    Set(ValueSet),
    /// Unknown; the atom says.
    Atom(Field),
}

/// The subject of an atom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fact {
    /// The packet's interface is in a group.
    Group,
    /// The interface that the packet was received on is in a group.
    ReceivedGroup,
    /// The packet's source is in a table, a name, a dynamic interface.
    Source,
    /// The same of its destination.
    Destination,
    /// Anything else.
    Other,
}

/// A fact that is not known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Atom {
    /// Its subject.
    pub fact: Fact,
    /// Its text: the same text is the same fact.
    pub text: Arc<str>,
}

/// Values with names, and atoms, shared by both rule sets.
#[derive(Debug)]
pub struct Vocabulary {
    /// Interfaces; a packet's interface is an index of these.
    pub interfaces: Vec<InterfaceValue>,
    /// Groups of each interface, where they are known.
    groups: Vec<Vec<String>>,
    /// The host's interfaces are all there are.
    known: bool,
    /// Routing domains that rules name; the index past the last is any other.
    pub rdomains: Vec<u32>,
    /// Tags; 0 is every tag that no rule names, and none.
    pub tags: Vec<Arc<str>>,
    tag_numbers: HashMap<Arc<str>, u32>,
    /// Atoms.
    pub atoms: Vec<Atom>,
    atom_numbers: HashMap<Atom, usize>,
}

/// The name without the digits of an interface's unit.
fn driver(name: &str) -> &str {
    name.trim_end_matches(|c: char| c.is_ascii_digit())
}

/// A name that ends in a digit is an interface's, any other a group's.
fn is_group(name: &str) -> bool {
    driver(name).len() == name.len()
}

impl Vocabulary {
    /// The vocabulary of rules that name these interfaces, groups and routing domains.
    pub fn new(host: &Host, names: &BTreeSet<String>, rdomains: &BTreeSet<u32>) -> Self {
        let mut interfaces = Vec::new();
        let mut groups = Vec::new();
        for interface in &host.interfaces {
            interfaces.push(InterfaceValue::Named(interface.name.clone()));
            let mut of = interface.groups.clone();
            of.push(driver(&interface.name).to_owned());
            groups.push(of);
        }
        if !host.is_known() {
            for name in names
                .iter()
                .filter(|name| !is_group(name) && host.interface(name).is_none())
            {
                interfaces.push(InterfaceValue::Named(name.clone()));
                groups.push(vec![driver(name).to_owned()]);
            }
            let known: BTreeSet<&str> = groups.iter().flatten().map(String::as_str).collect();
            let grouped: BTreeSet<String> = names
                .iter()
                .map(String::as_str)
                .chain(["lo"])
                .filter(|name| known.contains(name))
                .map(str::to_owned)
                .collect();
            for name in grouped {
                groups.push(vec![name.clone()]);
                interfaces.push(InterfaceValue::OtherOf(name));
            }
            interfaces.push(InterfaceValue::Other);
            groups.push(Vec::new());
        }
        if interfaces.is_empty() {
            interfaces.push(InterfaceValue::Other);
            groups.push(Vec::new());
        }
        Self {
            interfaces,
            groups,
            known: host.is_known(),
            rdomains: rdomains.iter().copied().collect(),
            tags: vec!["".into()],
            tag_numbers: HashMap::new(),
            atoms: Vec::new(),
            atom_numbers: HashMap::new(),
        }
    }

    /// The number of a tag.
    pub fn tag(&mut self, name: &Arc<str>) -> u32 {
        if let Some(&number) = self.tag_numbers.get(name) {
            return number;
        }
        let number = self.tags.len() as u32;
        self.tags.push(Arc::clone(name));
        self.tag_numbers.insert(Arc::clone(name), number);
        number
    }

    /// The number of a tag, 0 for one that no rule names.
    pub fn known_tag(&self, name: &str) -> u32 {
        self.tag_numbers.get(name).copied().unwrap_or(0)
    }

    /// The field of an atom.
    pub fn atom(&mut self, fact: Fact, text: &str) -> Field {
        let atom = Atom {
            fact,
            text: text.into(),
        };
        if let Some(&number) = self.atom_numbers.get(&atom) {
            return Field::atom(number);
        }
        let number = self.atoms.len();
        self.atoms.push(atom.clone());
        self.atom_numbers.insert(atom, number);
        Field::atom(number)
    }

    /// The interfaces that a test holds for, without regard to `!`.
    pub fn interface(&mut self, test: &InterfaceMatch, received: bool) -> Known {
        let name = &*test.name;
        let all = self.interfaces.len() as u128;
        let members = |keep: &dyn Fn(usize) -> bool| {
            let kept = (0..self.interfaces.len()).filter(|&at| keep(at));
            ValueSet::of(kept.map(|at| (at as u128, at as u128)).collect())
        };
        if name == "all" {
            return Known::Set(ValueSet::range(0, all - 1));
        }
        if name == "any" {
            return Known::Set(members(&|at| {
                !self.groups[at].iter().any(|group| group == "lo")
            }));
        }
        let set = members(&|at| {
            self.interfaces[at] == InterfaceValue::Named(name.to_owned())
                || self.groups[at].iter().any(|group| group == name)
        });
        if self.known || !set.is_empty() {
            return Known::Set(set);
        }
        Known::Atom(self.atom(
            if received {
                Fact::ReceivedGroup
            } else {
                Fact::Group
            },
            name,
        ))
    }

    /// The values of a field that this vocabulary numbers.
    pub fn values(&self, field: Field) -> Option<ValueSet> {
        let last = match field {
            Field::INTERFACE => self.interfaces.len() - 1,
            // The value past the interfaces is "on none": a packet of this host.
            Field::RECEIVED_ON => self.interfaces.len(),
            Field::RDOMAIN => self.rdomains.len(),
            Field::TAG => self.tags.len() - 1,
            _ => {
                field.as_atom()?;
                1
            }
        };
        Some(ValueSet::range(0, last as u128))
    }

    /// Index of an interface by name; that of an unnamed one for any other.
    pub fn interface_index(&self, name: &str) -> Option<usize> {
        let named = self
            .interfaces
            .iter()
            .position(|value| *value == InterfaceValue::Named(name.to_owned()));
        let other = || {
            self.interfaces
                .iter()
                .position(|value| *value == InterfaceValue::OtherOf(driver(name).to_owned()))
        };
        let any = || {
            self.interfaces
                .iter()
                .position(|value| *value == InterfaceValue::Other)
        };
        named.or_else(other).or_else(any)
    }

    /// An interface that is not loopback, where there is one.
    pub fn likely_interface(&self) -> usize {
        self.groups
            .iter()
            .position(|groups| !groups.iter().any(|group| group == "lo"))
            .unwrap_or(0)
    }

    /// A name for an interface, for people: that of an interface that no rule names is made up.
    pub fn interface_name(&self, index: usize) -> String {
        match self.interfaces.get(index) {
            Some(InterfaceValue::Named(name)) => name.clone(),
            Some(InterfaceValue::OtherOf(group)) => {
                let free = |unit: &usize| {
                    !self
                        .interfaces
                        .contains(&InterfaceValue::Named(format!("{group}{unit}")))
                };
                let unit = (0..=self.interfaces.len()).find(free).unwrap_or(0);
                format!("{group}{unit}")
            }
            Some(InterfaceValue::Other) => "other0".to_owned(),
            None => "none".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> InterfaceMatch {
        InterfaceMatch {
            name: name.into(),
            negated: false,
        }
    }

    #[test]
    fn groups_of_an_unknown_host_are_atoms_unless_a_driver_names_them() {
        let names = ["em0", "em", "egress"].map(str::to_owned).into();
        let mut vocabulary = Vocabulary::new(&Host::default(), &names, &BTreeSet::new());
        assert!(matches!(
            vocabulary.interface(&named("egress"), false),
            Known::Atom(_)
        ));
        let Known::Set(set) = vocabulary.interface(&named("em"), false) else {
            panic!("em is known")
        };
        assert_eq!(
            vocabulary
                .interface_index("em7")
                .map(|at| set.contains(at as u128)),
            Some(true)
        );
        assert_eq!(
            vocabulary
                .interface_index("vlan1")
                .map(|at| set.contains(at as u128)),
            Some(false)
        );
        let Known::Set(any) = vocabulary.interface(&named("any"), false) else {
            panic!("any is known")
        };
        assert_eq!(
            vocabulary
                .interface_index("lo7")
                .map(|at| any.contains(at as u128)),
            Some(false)
        );
    }
}
