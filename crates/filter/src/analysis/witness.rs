//! A packet, with everything that a rule can ask about it.

use std::fmt;
use std::net::IpAddr;

use super::sets::{address, number};
use super::space::{Class, Field, Kind, normalized_flags};
use super::vocabulary::{Fact, Vocabulary};
use crate::names;
use crate::packet::{Content, Fragment, Icmp, NO_OWNER, Packet, RouteTo, Routes, Tcp, Udp};
use crate::rule::{Direction, Family};

/// A packet that meets no state, and the facts about it that its header does not give.
#[derive(Clone, Debug, PartialEq)]
pub struct Witness {
    /// Which way it goes.
    pub direction: Direction,
    /// The interface that it is on.
    pub interface: String,
    /// The interface that it was received on; `None` for a packet of this host.
    pub received_on: Option<String>,
    /// Its routing domain.
    pub rdomain: u32,
    /// Its protocol.
    pub protocol: u8,
    /// Its source.
    pub source: IpAddr,
    /// Its destination, of the same family.
    pub destination: IpAddr,
    /// Source port, of TCP and UDP.
    pub source_port: u16,
    /// Destination port, of TCP and UDP.
    pub destination_port: u16,
    /// TCP flags, as pf sees them once it has normalized the packet.
    pub flags: u8,
    /// ICMP type and code.
    pub icmp: (u8, u8),
    /// Type of service, ECN bits left out.
    pub tos: u8,
    /// Priority, 0 to 7.
    pub priority: u8,
    /// Owner of the socket; `u32::MAX` for unknown.
    pub user: u32,
    /// Group of the socket; `u32::MAX` for unknown.
    pub group: u32,
    /// The tag with which it came.
    pub tag: Option<String>,
    /// It has IP options.
    pub options: bool,
    /// It is a fragment that is not reassembled.
    pub fragment: bool,
    /// Facts that are assumed, by text; those that are not here are false.
    pub facts: Vec<(Assumption, bool)>,
}

/// A fact that neither the packet's header nor the configuration gives.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Assumption {
    /// Its subject.
    pub fact: Fact,
    /// Its text: the table, the name, the group.
    pub text: String,
}

impl From<&Packet> for Witness {
    /// A packet without facts: all are false.
    fn from(packet: &Packet) -> Self {
        let (source_port, destination_port) = packet.ports().unwrap_or((0, 0));
        Self {
            direction: packet.direction,
            interface: packet.interface.to_string(),
            received_on: packet.received_on.as_ref().map(ToString::to_string),
            rdomain: packet.rdomain,
            protocol: packet.protocol,
            source: packet.source,
            destination: packet.destination,
            source_port,
            destination_port,
            flags: packet.tcp().map_or(0, |tcp| tcp.flags),
            icmp: packet.icmp().map_or((0, 0), |icmp| (icmp.kind, icmp.code)),
            tos: packet.tos & !3,
            priority: packet.prio,
            user: packet.user.unwrap_or(NO_OWNER),
            group: packet.group.unwrap_or(NO_OWNER),
            tag: packet.tag.as_ref().map(ToString::to_string),
            options: packet.has_options(),
            fragment: packet.fragment().is_some(),
            facts: Vec::new(),
        }
    }
}

impl Witness {
    /// The packet, for the [interpreter](crate::eval): facts about routes and operating systems
    /// are part of it, others are not.
    pub fn to_packet(&self) -> Packet {
        let content = match self.protocol {
            _ if self.fragment => Content::Fragment(Fragment {
                offset: 1480,
                more: true,
                next: self.protocol,
                payload: [0; 64].into(),
            }),
            names::TCP => Content::Tcp(Tcp::new(
                self.source_port,
                self.destination_port,
                self.flags,
            )),
            names::UDP => Content::Udp(Udp {
                source_port: self.source_port,
                destination_port: self.destination_port,
                length: 0,
            }),
            names::ICMP if self.family() == Family::Inet => {
                Content::Icmp(Icmp::new(self.icmp.0, self.icmp.1))
            }
            names::ICMP6 if self.family() == Family::Inet6 => {
                Content::Icmp(Icmp::new(self.icmp.0, self.icmp.1))
            }
            _ => Content::Other(0),
        };
        let mut packet = Packet::new(
            self.direction,
            self.interface.as_str(),
            self.source,
            self.destination,
            content,
        );
        packet.protocol = self.protocol;
        packet.tos = self.tos;
        packet.options.other = self.options;
        packet.tag = self.tag.as_deref().map(Into::into);
        packet.rdomain = self.rdomain;
        packet.prio = self.priority;
        packet.received_on = self.received_on.as_deref().map(Into::into);
        packet.user = Some(self.user);
        packet.group = Some(self.group);
        let says = |kind: Fact, text: &str| {
            self.facts
                .iter()
                .any(|(fact, holds)| *holds && fact.fact == kind && fact.text == text)
        };
        let route = |kind: Fact| {
            let label = self.facts.iter().find_map(|(fact, holds)| {
                let label = fact.text.strip_prefix("route \"")?.strip_suffix('"')?;
                (*holds && fact.fact == kind).then(|| label.into())
            });
            if says(kind, "no-route") {
                RouteTo::None
            } else {
                RouteTo::Some(label)
            }
        };
        packet.routes = Routes {
            source: Some(route(Fact::Source)),
            destination: Some(route(Fact::Destination)),
            urpf_failed: Some(says(Fact::Source, "urpf-failed")),
        };
        packet.os = self.facts.iter().find_map(|(fact, holds)| {
            let os = fact.text.strip_prefix("the source runs ")?;
            holds.then(|| os.into())
        });
        packet
    }
}

impl fmt::Display for Assumption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fact {
            Fact::Group => write!(f, "the interface is in group {}", self.text),
            Fact::ReceivedGroup => {
                write!(f, "it was received on an interface of group {}", self.text)
            }
            Fact::Source => write!(f, "{} holds the source", self.text),
            Fact::Destination => write!(f, "{} holds the destination", self.text),
            Fact::Other => f.write_str(&self.text),
        }
    }
}

impl Witness {
    /// A packet of a class, with the least values everywhere.
    pub(super) fn of_class(class: Class, vocabulary: &Vocabulary) -> Self {
        let least = |field| {
            class
                .values(field)
                .and_then(|set| set.ranges().first().map(|range| range.0))
                .unwrap_or(0)
        };
        let mut witness = Self {
            direction: class.direction.unwrap_or(Direction::In),
            interface: vocabulary.interface_name(vocabulary.likely_interface()),
            received_on: None,
            rdomain: 0,
            protocol: class.protocol().unwrap_or(least(Field::PROTOCOL) as u8),
            source: address(0, class.family),
            destination: address(0, class.family),
            source_port: 0,
            destination_port: 0,
            flags: least(Field::FLAGS) as u8,
            icmp: (least(Field::ICMP_TYPE) as u8, 0),
            tos: 0,
            priority: 0,
            user: 0,
            group: 0,
            tag: None,
            options: false,
            fragment: class.kind == Kind::Fragment,
            facts: Vec::new(),
        };
        witness.set(
            Field::RDOMAIN,
            vocabulary.rdomains.len() as u128,
            vocabulary,
        );
        let sources = class.values(Field::SOURCE).unwrap_or_default();
        let source = Some(likely(Field::SOURCE, class)).filter(|&likely| sources.contains(likely));
        witness.set(
            Field::SOURCE,
            source.unwrap_or(least(Field::SOURCE) + 1),
            vocabulary,
        );
        witness.set(
            Field::DESTINATION,
            likely(Field::DESTINATION, class),
            vocabulary,
        );
        if class.has_ports() {
            witness.source_port = 40_000;
            witness.destination_port = 9;
        }
        witness
    }

    /// Its family.
    pub fn family(&self) -> Family {
        Family::of(self.source)
    }

    /// Its class; `None` for a packet that pf drops before any rule, or never sees like this.
    pub(super) fn class(&self) -> Option<Class> {
        let tcp = self.protocol == names::TCP && !self.fragment;
        let flags = if tcp {
            normalized_flags(self.flags)?
        } else {
            0
        };
        let detail = if tcp { flags } else { self.icmp.0 };
        let class = Class::of(self.family(), self.protocol, detail, self.fragment);
        let seen = |field: Field, value: u128| {
            class
                .values(field)
                .is_none_or(|values| values.contains(value))
        };
        let all = seen(Field::PROTOCOL, u128::from(self.protocol))
            && seen(Field::SOURCE, number(self.source))
            && seen(Field::DESTINATION_PORT, u128::from(self.destination_port));
        (all && Family::of(self.destination) == self.family()).then_some(class)
    }

    /// The value of a field, in the vocabulary's numbers.
    pub(super) fn value(&self, field: Field, vocabulary: &Vocabulary) -> Option<u128> {
        let index = |name: &str| vocabulary.interface_index(name).map(|at| at as u128);
        Some(match field {
            Field::DIRECTION => self.direction as u128,
            Field::INTERFACE => index(&self.interface)?,
            Field::RECEIVED_ON => match &self.received_on {
                Some(name) => index(name)?,
                None => vocabulary.interfaces.len() as u128,
            },
            Field::RDOMAIN => vocabulary
                .rdomains
                .binary_search(&self.rdomain)
                .unwrap_or(vocabulary.rdomains.len()) as u128,
            Field::PROTOCOL => u128::from(self.protocol),
            Field::SOURCE => number(self.source),
            Field::DESTINATION => number(self.destination),
            Field::SOURCE_PORT => u128::from(self.source_port),
            Field::DESTINATION_PORT => u128::from(self.destination_port),
            Field::FLAGS => u128::from(normalized_flags(self.flags)?),
            Field::ICMP_TYPE => u128::from(self.icmp.0),
            Field::ICMP_CODE => u128::from(self.icmp.1),
            Field::TOS => u128::from(self.tos & !3),
            Field::PRIORITY => u128::from(self.priority),
            Field::USER => u128::from(self.user),
            Field::GROUP => u128::from(self.group),
            Field::TAG => u128::from(self.tag.as_ref().map_or(0, |tag| vocabulary.known_tag(tag))),
            Field::OPTIONS => u128::from(self.options),
            atom => {
                let atom = vocabulary.atoms.get(atom.as_atom()?)?;
                let known = self
                    .facts
                    .iter()
                    .find(|(fact, _)| fact.fact == atom.fact && *fact.text == *atom.text);
                u128::from(known.is_some_and(|known| known.1))
            }
        })
    }

    /// Sets the value of a field, in the vocabulary's numbers.
    pub(super) fn set(&mut self, field: Field, value: u128, vocabulary: &Vocabulary) {
        let family = self.family();
        match field {
            Field::DIRECTION => {
                self.direction = if value == 0 {
                    Direction::In
                } else {
                    Direction::Out
                }
            }
            Field::INTERFACE => self.interface = vocabulary.interface_name(value as usize),
            Field::RECEIVED_ON => {
                let some = (value as usize) < vocabulary.interfaces.len();
                self.received_on = some.then(|| vocabulary.interface_name(value as usize));
            }
            Field::RDOMAIN => {
                let most = vocabulary.rdomains.len() as u32;
                let unnamed = || {
                    (0..=most)
                        .find(|id| !vocabulary.rdomains.contains(id))
                        .unwrap_or(0)
                };
                self.rdomain = vocabulary
                    .rdomains
                    .get(value as usize)
                    .copied()
                    .unwrap_or_else(unnamed);
            }
            Field::PROTOCOL => self.protocol = value as u8,
            Field::SOURCE => self.source = address(value, family),
            Field::DESTINATION => self.destination = address(value, family),
            Field::SOURCE_PORT => self.source_port = value as u16,
            Field::DESTINATION_PORT => self.destination_port = value as u16,
            Field::FLAGS => self.flags = value as u8,
            Field::ICMP_TYPE => self.icmp.0 = value as u8,
            Field::ICMP_CODE => self.icmp.1 = value as u8,
            Field::TOS => self.tos = value as u8,
            Field::PRIORITY => self.priority = value as u8,
            Field::USER => self.user = value as u32,
            Field::GROUP => self.group = value as u32,
            Field::TAG => {
                self.tag = vocabulary
                    .tags
                    .get(value as usize)
                    .filter(|tag| !tag.is_empty())
                    .map(ToString::to_string);
            }
            Field::OPTIONS => self.options = value != 0,
            atom => {
                if let Some(atom) = atom.as_atom().and_then(|at| vocabulary.atoms.get(at)) {
                    let assumption = Assumption {
                        fact: atom.fact,
                        text: atom.text.to_string(),
                    };
                    self.facts.push((assumption, value != 0));
                }
            }
        }
    }
}

/// A value of a field that looks like a packet's.
pub(super) fn likely(field: Field, class: Class) -> u128 {
    let documentation = |last: u128| match class.family {
        Family::Inet => 0xc633_6400 + last,
        Family::Inet6 => (0x2001_0db8 << 96) + last,
    };
    match field {
        Field::SOURCE => documentation(1),
        Field::DESTINATION => documentation(2),
        Field::SOURCE_PORT => 40_000,
        Field::DESTINATION_PORT => 9,
        Field::FLAGS if class.kind == Kind::TcpSyn => 2,
        Field::FLAGS if class.kind == Kind::TcpReset => 4,
        Field::FLAGS => 16,
        Field::ICMP_TYPE if class.family == Family::Inet => 8,
        Field::ICMP_TYPE => 128,
        _ => 0,
    }
}

impl fmt::Display for Witness {
    /// In the words of a rule: `in on em0 proto tcp from 10.0.0.5 port 4000 to 192.0.2.1 port 22
    /// flags S`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.direction.name(), self.interface)?;
        if self.rdomain != 0 {
            write!(f, " rdomain {}", self.rdomain)?;
        }
        match names::protocol_name(self.protocol) {
            Some(name) => write!(f, " proto {name}")?,
            None => write!(f, " proto {}", self.protocol)?,
        }
        let ports = matches!(self.protocol, names::TCP | names::UDP) && !self.fragment;
        write!(f, " from {}", self.source)?;
        if ports {
            write!(f, " port {}", self.source_port)?;
        }
        write!(f, " to {}", self.destination)?;
        if ports {
            write!(f, " port {}", self.destination_port)?;
        }
        if self.fragment {
            f.write_str(" fragment")?;
        } else if self.protocol == names::TCP {
            write!(f, " flags {}", super::sentence::flag_letters(self.flags))?;
        } else if self.class().is_some_and(|class| class.icmp().is_some()) {
            let name = if self.family() == Family::Inet {
                "icmp-type"
            } else {
                "icmp6-type"
            };
            match names::icmp_type_name(self.icmp.0, self.family()) {
                Some(kind) => write!(f, " {name} {kind} code {}", self.icmp.1)?,
                None => write!(f, " {name} {} code {}", self.icmp.0, self.icmp.1)?,
            }
        }
        self.write_rest(f)
    }
}

impl Witness {
    /// Rare fields.
    fn write_rest(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.tos != 0 {
            write!(f, " tos {:#04x}", self.tos)?;
        }
        if self.priority != 0 {
            write!(f, " prio {}", self.priority)?;
        }
        if let Some(interface) = &self.received_on {
            write!(f, " received-on {interface}")?;
        }
        for (name, value) in [("user", self.user), ("group", self.group)] {
            if value == u32::MAX {
                write!(f, " {name} unknown")?;
            } else if value != 0 {
                write!(f, " {name} {value}")?;
            }
        }
        if let Some(tag) = &self.tag {
            write!(f, " tagged {tag}")?;
        }
        if self.options {
            f.write_str(" with IP options")?;
        }
        for (at, (fact, holds)) in self.facts.iter().enumerate() {
            let joint = if at == 0 { ", where" } else { " and" };
            let not = if *holds { "" } else { "it is not so that " };
            write!(f, "{joint} {not}{fact}")?;
        }
        Ok(())
    }
}
