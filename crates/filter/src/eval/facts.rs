//! The tests of a rule (`pf_match_rule`).

use std::net::IpAddr;
use std::sync::Arc;

use super::field::Field;
use super::program::{AddressTest, Entry, Program};
use super::table::Table;
use super::walk::Walk;
use crate::names::{ICMP, ICMP6, TCP, UDP};
use crate::packet::{NO_OWNER, RouteTo};
use crate::rule::{Comparison, Direction, Family, IdMatch, KeepState, On, PortMatch, Rule};

/// Facts that a rule is tested against, beside the packet.
pub(super) struct Facts<'e> {
    pub program: &'e Program<'e>,
    pub tables: &'e [Table],
    /// Which of the program's interface names mean the packet's interface.
    pub interface: &'e [Option<bool>],
}

impl Facts<'_> {
    /// The first test that fails, of those before [`Field::Probability`] or after it.
    pub fn first_failure(&self, entry: &Entry<'_>, walk: &mut Walk, late: bool) -> Option<Field> {
        let later = entry.asked.after(Field::Probability);
        let mut tests = if late {
            later
        } else {
            entry.asked.without(later)
        }
        .iter();
        tests.find(|&field| self.fails(field, entry, walk))
    }

    /// Whether a test fails. Those that count or draw never do here.
    pub fn fails(&self, field: Field, entry: &Entry<'_>, walk: &mut Walk) -> bool {
        let rule = entry.rule;
        match field {
            Field::Interface => self.interface_fails(entry, walk),
            Field::Direction => rule
                .direction
                .is_some_and(|direction| direction != walk.packet.direction()),
            Field::Rdomain => rdomain_fails(rule, walk.packet.packet.rdomain),
            Field::Family => rule
                .family
                .is_some_and(|family| family != walk.packet.family),
            Field::Protocol => rule
                .protocol
                .is_some_and(|protocol| protocol != walk.packet.packet.protocol),
            Field::Source => {
                self.address_fails(&entry.source, rule.source.negated, Side::Source, walk)
            }
            Field::Destination => self.address_fails(
                &entry.destination,
                rule.destination.negated,
                Side::Destination,
                walk,
            ),
            Field::FragmentPorts
            | Field::FragmentFlags
            | Field::FragmentIcmp
            | Field::FragmentOwner => walk.packet.is_fragment && fragment_fails(field, rule, walk),
            Field::Flags => flags_fail(rule, walk),
            Field::Os => os_fails(rule, walk),
            Field::SourcePort => port_fails(rule.source.port, walk.packet.new_source_port, walk),
            Field::DestinationPort => port_fails(
                rule.destination.port,
                walk.packet.new_destination_port,
                walk,
            ),
            Field::User => {
                let owner = walk.packet.packet.user;
                owner_fails("user", rule.user, owner, walk)
            }
            Field::Group => {
                let owner = walk.packet.packet.group;
                owner_fails("group", rule.group, owner, walk)
            }
            Field::IcmpType => icmp_fails(rule, walk, |asked, kind, _| asked.kind != kind),
            Field::IcmpCode => icmp_fails(rule, walk, |asked, _, code| {
                asked.code.is_some_and(|asked| asked != code)
            }),
            Field::IcmpReply => icmp_reply_fails(rule, walk),
            Field::Fragment => rule.fragment && !walk.packet.is_fragment,
            Field::Tos => rule.tos != 0 && rule.tos != walk.packet.tos,
            Field::Tagged => rule.tagged.as_ref().is_some_and(|tagged| {
                let same = walk.tag.as_ref() == Some(&tagged.name);
                same == tagged.negated
            }),
            Field::ReceivedOn => self.received_on_fails(rule, walk),
            Field::Prio => rule
                .prio
                .is_some_and(|prio| prio != walk.packet.packet.prio),
            Field::Once | Field::Probability | Field::Rate => false,
        }
    }

    fn interface_fails(&self, entry: &Entry<'_>, walk: &mut Walk) -> bool {
        match entry.interface {
            Some((at, negated)) => {
                let known = self.interface.get(at).copied().flatten();
                if known.is_none() {
                    let name = self.program.names.get(at).map_or("", AsRef::as_ref);
                    let interface = Arc::clone(&walk.packet.packet.interface);
                    note_group(name, &interface, walk);
                }
                known.is_none_or(|same| same == negated)
            }
            // pf keeps one negation for interface and routing domain: `on ! rdomain` fails here.
            None => matches!(entry.rule.on, Some(On::Rdomain { negated: true, .. })),
        }
    }

    fn address_fails(
        &self,
        test: &AddressTest,
        negated: bool,
        side: Side,
        walk: &mut Walk,
    ) -> bool {
        let address = match side {
            Side::Source => walk.packet.new_source,
            Side::Destination => walk.packet.new_destination,
        };
        let inside = match test {
            AddressTest::Any => true,
            // A prefix of no bits holds both families, as its mask is 0.
            AddressTest::Network(network) => network.bits == 0 || network.contains(address),
            AddressTest::Range(first, last) => in_range(address, *first, *last),
            AddressTest::Dynamic(networks) => {
                networks.iter().any(|network| network.contains(address))
            }
            AddressTest::Table(at) => self
                .tables
                .get(*at)
                .is_some_and(|table| table.contains(address)),
            AddressTest::List(tests) => tests
                .iter()
                .any(|test| !self.address_fails(test, false, side, walk)),
            AddressTest::NoTable(name) => {
                walk.note(format!("no table <{name}> is defined: it holds no address"));
                false
            }
            AddressTest::Unknown(name) => {
                walk.note(format!(
                    "the addresses of {name} are not known: rules with it do not match"
                ));
                return true;
            }
            AddressTest::NoRoute | AddressTest::UrpfFailed | AddressTest::RouteLabel(_) => {
                match route_test(test, side, walk) {
                    Some(inside) => inside,
                    None => return true,
                }
            }
        };
        inside == negated
    }

    fn received_on_fails(&self, rule: &Rule, walk: &mut Walk) -> bool {
        let Some(asked) = &rule.received_on else {
            return false;
        };
        let packet = &walk.packet.packet;
        let received = match packet.direction {
            Direction::In => Some(Arc::clone(&packet.interface)),
            Direction::Out => packet.received_on.clone(),
        };
        let Some(received) = received else {
            return !asked.negated;
        };
        let known = super::interface::matches(&asked.name, &received, self.program.host);
        if known.is_none() {
            note_group(&asked.name, &received, walk);
        }
        known.is_none_or(|same| same == asked.negated)
    }
}

fn note_group(group: &str, interface: &str, walk: &mut Walk) {
    walk.note(format!(
        "nobody knows whether {interface} is in the group {group}: rules with it do not match"
    ));
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Source,
    Destination,
}

fn rdomain_fails(rule: &Rule, rdomain: u32) -> bool {
    matches!(rule.on, Some(On::Rdomain { id, negated }) if (id == rdomain) == negated)
}

fn fragment_fails(field: Field, rule: &Rule, walk: &Walk) -> bool {
    match field {
        Field::FragmentPorts => rule.source.port.is_some() || rule.destination.port.is_some(),
        Field::FragmentFlags => walk.packet.packet.protocol == TCP && rule.flags.is_some(),
        Field::FragmentIcmp => rule.icmp.is_some(),
        Field::FragmentOwner => rule.user.is_some() || rule.group.is_some(),
        _ => false,
    }
}

fn flags_fail(rule: &Rule, walk: &Walk) -> bool {
    let Some(flags) = rule.flags else {
        return false;
    };
    walk.packet
        .tcp()
        .is_some_and(|tcp| tcp.flags & flags.mask != flags.set)
}

fn icmp_reply_fails(rule: &Rule, walk: &Walk) -> bool {
    let Some(mapping) = walk.packet.icmp else {
        return false;
    };
    let sloppy = rule
        .state_options
        .as_deref()
        .is_some_and(|options| options.sloppy);
    rule.state != KeepState::No && !mapping.is_error && !sloppy && !mapping.is_query
}

fn in_range(address: IpAddr, first: IpAddr, last: IpAddr) -> bool {
    Family::of(address) == Family::of(first) && first <= address && address <= last
}

/// Whether a route is as asked; `None`, with a note, if nobody knows.
fn route_test(test: &AddressTest, side: Side, walk: &mut Walk) -> Option<bool> {
    let routes = &walk.packet.packet.routes;
    let route = if side == Side::Source {
        routes.source.as_ref()
    } else {
        routes.destination.as_ref()
    };
    let (known, word) = match test {
        AddressTest::NoRoute => (route.map(|route| *route == RouteTo::None), "no-route"),
        AddressTest::UrpfFailed => (routes.urpf_failed, "urpf-failed"),
        AddressTest::RouteLabel(label) => (
            route.map(|route| matches!(route, RouteTo::Some(Some(own)) if own == label)),
            "route",
        ),
        _ => (None, ""),
    };
    if known.is_none() {
        walk.note(format!(
            "the packet's routes are not known: rules with {word} do not match"
        ));
    }
    known
}

fn os_fails(rule: &Rule, walk: &mut Walk) -> bool {
    let Some(asked) = &rule.os else { return false };
    if walk.packet.tcp().is_none() {
        return false;
    }
    let Some(os) = walk.packet.packet.os.clone() else {
        walk.note("the packet's operating system is not known: rules with os do not match".into());
        return true;
    };
    let within = os
        .strip_prefix(asked.as_ref())
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
    !within
}

fn port_fails(asked: Option<PortMatch>, port: u16, walk: &Walk) -> bool {
    let Some(asked) = asked else { return false };
    let has_ports = matches!(walk.packet.packet.protocol, TCP | UDP) && !walk.packet.is_fragment;
    has_ports
        && !asked
            .comparison
            .holds(u32::from(port), u32::from(asked.low), u32::from(asked.high))
}

fn owner_fails(which: &str, asked: Option<IdMatch>, owner: Option<u32>, walk: &mut Walk) -> bool {
    let Some(asked) = asked else { return false };
    if !matches!(walk.packet.packet.protocol, TCP | UDP) || walk.packet.is_fragment {
        return false;
    }
    // A forwarded packet has no socket here.
    let owner = owner.or(walk.packet.packet.received_on.as_ref().map(|_| NO_OWNER));
    let Some(owner) = owner else {
        walk.note(format!(
            "the packet's {which} is not known: rules with {which} do not match"
        ));
        return true;
    };
    if owner == NO_OWNER && !matches!(asked.comparison, Comparison::Equal | Comparison::NotEqual) {
        return true;
    }
    !asked.comparison.holds(owner, asked.low, asked.high)
}

fn icmp_fails(
    rule: &Rule,
    walk: &Walk,
    differs: impl Fn(crate::rule::Icmp, u8, u8) -> bool,
) -> bool {
    let (Some(asked), Some(message)) = (rule.icmp, walk.packet.packet.icmp()) else {
        return false;
    };
    matches!(walk.packet.packet.protocol, ICMP | ICMP6)
        && differs(asked, message.kind, message.code)
}
