//! Rules with lists to rules without (`expand_rule` of pfctl).

mod combination;
mod consistent;
mod label;
mod translate;

use std::sync::Arc;

use combination::{Choice, Combination, Peers, choices, decide_family};

use crate::lex::At;
use crate::parse::syntax::{self, Divert, Host, HostAddress, IcmpType, Id, Node, Port};
use crate::parse::{Dialect, Failed, Parser, RULES_MAX};
use crate::rule::{
    Address, Anchor, Direction, DynamicInterface, Element, Family, FreeBsd, Icmp, IdMatch,
    InterfaceMatch, KeepState, Network, On, Origin, Peer, PortMatch, Rule, RuleKind, Set,
};
use crate::{names, rule};

/// Visits all elements of `from` and `to`, in the order of the dialect.
fn each_peers<'r>(rule: &'r syntax::Rule, dialect: Dialect, mut visit: impl FnMut(Peers<'r>)) {
    let syntax::Rule {
        source: from,
        destination: to,
        oses,
        ..
    } = rule;
    for source in choices(&from.hosts) {
        match dialect {
            Dialect::OpenBsd => {
                for destination in choices(&to.hosts) {
                    for source_port in choices(&from.ports) {
                        for destination_port in choices(&to.ports) {
                            for os in choices(oses) {
                                visit(Peers {
                                    source,
                                    destination,
                                    source_port,
                                    destination_port,
                                    os,
                                });
                            }
                        }
                    }
                }
            }
            Dialect::FreeBsd => {
                for source_port in choices(&from.ports) {
                    for os in choices(oses) {
                        for destination in choices(&to.hosts) {
                            for destination_port in choices(&to.ports) {
                                visit(Peers {
                                    source,
                                    destination,
                                    source_port,
                                    destination_port,
                                    os,
                                });
                            }
                        }
                    }
                }
            }
        }
    }
}

impl Parser<'_> {
    /// Expands a rule's lists and adds the rules that they give.
    pub(crate) fn expand(&mut self, mut rule: syntax::Rule) {
        let errors = self.errors;
        if self.config.dialect == Dialect::FreeBsd && self.keep_families(&mut rule).is_err() {
            return;
        }
        decide_family(&rule.source.hosts, &mut rule.family);
        decide_family(&rule.destination.hosts, &mut rule.family);
        if !self.check_size(&rule) {
            return;
        }
        let Ok(template) = self.template(&mut rule) else {
            return;
        };
        let none: [Node<IcmpType>; 0] = [];
        let icmp = rule.options.icmp.as_deref().unwrap_or(&none);
        let mut added = 0;
        for interface in choices(&rule.interfaces) {
            for protocol in choices(&rule.protocols) {
                for icmp in choices(icmp) {
                    each_peers(&rule, self.config.dialect, |peers| {
                        let Peers {
                            source,
                            destination,
                            source_port,
                            destination_port,
                            os,
                        } = peers;
                        for user in choices(&rule.options.users) {
                            for group in choices(&rule.options.groups) {
                                let combination = Combination {
                                    interface,
                                    protocol,
                                    icmp,
                                    source,
                                    destination,
                                    source_port,
                                    destination_port,
                                    os,
                                    user,
                                    group,
                                };
                                added += self.combine(&rule, &template, &combination);
                            }
                        }
                    });
                }
            }
        }
        if added == 0 && self.errors == errors {
            let at = At::plain(rule.span);
            let error = Self::error(
                "no-combination",
                &at,
                "the rule expands to no valid combination",
            );
            self.report(error.help(
                "families of its addresses disagree with each other, or with `inet` and `inet6`",
            ));
        }
    }

    fn check_size(&mut self, rule: &syntax::Rule) -> bool {
        let lengths = [
            rule.interfaces.len(),
            rule.protocols.len(),
            rule.options.icmp.as_ref().map_or(0, Vec::len),
            rule.source.hosts.len(),
            rule.destination.hosts.len(),
            rule.source.ports.len(),
            rule.destination.ports.len(),
            rule.oses.len(),
            rule.options.users.len(),
            rule.options.groups.len(),
        ];
        let product = lengths.iter().fold(1usize, |product, &length| {
            product.saturating_mul(length.max(1))
        });
        if self.expanded.saturating_add(product) <= RULES_MAX {
            self.expanded += product;
            return true;
        }
        let at = At::plain(rule.span);
        let message =
            format!("the rule's lists expand to {product} rules: more than {RULES_MAX} in all");
        let error = Self::error("too-many-rules", &at, message);
        self.report(error.help("put addresses into a table, and ports into ranges"));
        false
    }

    /// Fields that all rules of an expansion share.
    fn template(&mut self, rule: &mut syntax::Rule) -> Result<Rule, Failed> {
        let options = &rule.options;
        let origin = Origin {
            span: rule.span,
            elements: Vec::new(),
        };
        let mut made = Rule::new(rule.action, origin);
        made.kind = rule.kind;
        made.freebsd =
            (options.freebsd != FreeBsd::default()).then(|| Box::new(options.freebsd.clone()));
        made.direction = rule.direction;
        made.log = rule.log;
        made.quick = rule.quick;
        made.received_on = options.received_on.as_ref().map(|node| InterfaceMatch {
            name: node.value.name.clone().unwrap_or_default(),
            negated: node.value.negated,
        });
        made.tos = options.tos.unwrap_or(0);
        made.prio = options.prio;
        made.max_packet_rate = options.max_packet_rate.filter(|rate| rate.limit != 0);
        made.probability = options.probability;
        made.fragment = options.fragment;
        made.allow_options = options.allow_opts.is_some();
        made.once = options.once.is_some();
        made.rtable = options.rtable;
        made.state_options.clone_from(&rule.state_options);
        let set = Set {
            prio: options.set_prio,
            queue: options.queue.clone(),
            tos: options.set_tos,
            delay: options.set_delay,
        };
        made.set = (set != Set::default()).then(|| Box::new(set));
        // A scrub rule without options reassembles fragments; `no scrub` has none at all.
        let empty =
            |scrub: &rule::Scrub| *scrub == rule::Scrub::default() && rule.kind == RuleKind::Filter;
        made.scrub = options.scrub.filter(|scrub| !empty(scrub)).map(Box::new);
        made.tagged = options.tagged.as_ref().map(|node| node.value.clone());
        made.tag = options.tag.as_ref().map(|node| node.value.clone());
        made.label = options
            .label
            .as_ref()
            .map(|node| node.value.clone())
            .filter(|label| !label.is_empty());
        self.expand_divert(rule, &mut made)?;
        made.family = rule.family;
        Ok(made)
    }

    fn expand_divert(&mut self, rule: &mut syntax::Rule, made: &mut Rule) -> Result<(), Failed> {
        let Some(node) = rule.options.divert.clone() else {
            return Ok(());
        };
        made.divert = Some(Box::new(match node.value {
            Divert::To(..) if rule.direction == Some(Direction::Out) => {
                return self.fail(
                    "divert",
                    &node.at,
                    "`divert-to` is for packets that come in",
                );
            }
            Divert::Reply if rule.direction == Some(Direction::In) => {
                return self.fail(
                    "divert",
                    &node.at,
                    "`divert-reply` is for packets that go out",
                );
            }
            Divert::Reply => rule::Divert::Reply,
            Divert::Packet(port) => rule::Divert::Packet { port },
            Divert::To(hosts, port) => {
                let fits =
                    |host: &&Node<Host>| rule.family.is_none() || host.value.family == rule.family;
                match hosts.iter().find(fits).map(|host| &host.value.address) {
                    Some(&HostAddress::Network(address, _)) => {
                        rule.family.get_or_insert(Family::of(address));
                        rule::Divert::To { address, port }
                    }
                    _ => {
                        return self.fail(
                            "family",
                            &node.at,
                            "the address of `divert-to` is of the other family",
                        );
                    }
                }
            }
        }));
        Ok(())
    }

    /// Adds the rule of one combination, if its families agree. Returns how many rules it gave.
    fn combine(
        &mut self,
        rule: &syntax::Rule,
        template: &Rule,
        combination: &Combination<'_>,
    ) -> usize {
        let mut made = template.clone();
        let Ok(()) = self.pools(rule, &mut made) else {
            return 0;
        };
        let Ok(family) = agreed_family(made.family, combination) else {
            return 0;
        };
        if scopes_disagree(combination) {
            return 0;
        }
        made.family = family;
        made.on = on(combination);
        made.protocol = combination.protocol.value().copied();
        let Ok(()) = self.expand_peers(&mut made, combination) else {
            return 0;
        };
        made.os = combination.os.value().cloned();
        made.user = combination.user.value().map(id);
        made.group = combination.group.value().map(id);
        let tcp = made.protocol.is_none_or(|protocol| protocol == names::TCP);
        made.state = match rule.state {
            KeepState::Modulate | KeepState::Synproxy if !tcp => KeepState::Keep,
            state => state,
        };
        made.flags = rule.flags.filter(|_| tcp);
        if let Some(icmp) = combination.icmp.value() {
            if made.protocol != Some(icmp.protocol) {
                let name = if icmp.protocol == names::ICMP {
                    "icmp"
                } else {
                    "icmp6"
                };
                if let Some(at) = combination.icmp.at() {
                    let message = format!("this ICMP type is of `proto {name}`");
                    let _ = self.fail_with::<()>(
                        "icmp-type",
                        at,
                        message,
                        format!("add `proto {name}`"),
                    );
                }
                return 0;
            }
            made.icmp = Some(Icmp {
                kind: icmp.kind,
                code: icmp.code,
            });
        }
        if self.label(&mut made, combination, rule).is_err() {
            return 0;
        }
        made.origin.elements = elements(combination);
        self.finish_combination(rule, made, combination)
    }

    fn expand_peers(
        &mut self,
        made: &mut Rule,
        combination: &Combination<'_>,
    ) -> Result<(), Failed> {
        made.source =
            self.expand_peer(&combination.source, &combination.source_port, made.family)?;
        made.destination = self.expand_peer(
            &combination.destination,
            &combination.destination_port,
            made.family,
        )?;
        Ok(())
    }

    fn expand_peer(
        &mut self,
        host: &Choice<'_, Host>,
        port: &Choice<'_, Port>,
        family: Option<Family>,
    ) -> Result<Peer, Failed> {
        let port = port.value().map(|port| PortMatch {
            comparison: port.comparison,
            low: port.low,
            high: port.high,
        });
        let Some(node) = host.node else {
            return Ok(Peer { port, ..Peer::ANY });
        };
        let address = self.address(&node.value, &node.at, family)?;
        Ok(Peer {
            address,
            negated: node.value.negated,
            port,
        })
    }

    /// An address of a rule, with a prefix length that fits the rule's family.
    fn address(&mut self, host: &Host, at: &At, family: Option<Family>) -> Result<Address, Failed> {
        Ok(match &host.address {
            HostAddress::Network(address, bits) => {
                if *bits > Family::of(*address).bits() {
                    let message =
                        format!("a prefix of {bits} bits is too long for an IPv4 address");
                    return self.fail("prefix", at, message);
                }
                Address::Network(Network::new(*address, *bits))
            }
            HostAddress::Range(first, last) => Address::Range(*first, *last),
            HostAddress::Dynamic(interface) => Address::Interface(DynamicInterface {
                bits: interface.bits.min(family.unwrap_or(Family::Inet6).bits()),
                ..interface.clone()
            }),
            HostAddress::Unresolved(name) => Address::Unresolved(name.clone()),
            HostAddress::Table(name) => Address::Table(name.clone()),
            HostAddress::NoRoute => Address::NoRoute,
            HostAddress::UrpfFailed => Address::UrpfFailed,
            HostAddress::RouteLabel(label) => Address::RouteLabel(label.clone()),
        })
    }

    fn finish_combination(
        &mut self,
        rule: &syntax::Rule,
        mut made: Rule,
        combination: &Combination<'_>,
    ) -> usize {
        let binat = rule.options.nat.as_ref().is_some_and(|nat| nat.binat);
        if binat {
            if self.check_binat(rule, &made, combination).is_err() {
                return 0;
            }
            made.direction = Some(Direction::Out);
        }
        if self.pool_options(rule, &mut made, combination).is_err()
            || self.check_consistent(rule, &made, combination).is_err()
        {
            return 0;
        }
        self.attach_anchor(rule, &mut made);
        if !binat {
            self.add_rule(made);
            return 1;
        }
        let inbound = translate::inbound_of_binat(rule, &made);
        self.add_rule(made);
        self.add_rule(inbound);
        2
    }

    /// The first rule of an expansion holds the anchor's rules, the others call it.
    fn attach_anchor(&mut self, rule: &syntax::Rule, made: &mut Rule) {
        let Some(anchor) = &rule.anchor else {
            return;
        };
        let first = self.expansion_of.replace(rule.span) != Some(rule.span);
        made.anchor = Some(Box::new(match anchor {
            Anchor::Inline { name, .. } if !first => Anchor::Call(name.clone()),
            anchor => anchor.clone(),
        }));
    }
}

/// The family of a combination; an error if its parts disagree.
fn agreed_family(
    rule: Option<Family>,
    combination: &Combination<'_>,
) -> Result<Option<Family>, Failed> {
    let source = combination.source.value().and_then(|host| host.family);
    let destination = combination.destination.value().and_then(|host| host.family);
    let mut agreed = rule;
    for family in [source, destination].into_iter().flatten() {
        if agreed.is_some_and(|agreed| agreed != family) {
            return Err(Failed);
        }
        agreed = Some(family);
    }
    Ok(agreed)
}

/// Link-local addresses belong to their interface.
fn scopes_disagree(combination: &Combination<'_>) -> bool {
    let interface = combination
        .interface
        .value()
        .and_then(|interface| interface.name.as_ref());
    let source = combination
        .source
        .value()
        .and_then(|host| host.scope.as_ref());
    let destination = combination
        .destination
        .value()
        .and_then(|host| host.scope.as_ref());
    let differ = |a: Option<&Arc<str>>, b: Option<&Arc<str>>| a.is_some() && b.is_some() && a != b;
    differ(source, destination) || differ(source, interface) || differ(destination, interface)
}

fn on(combination: &Combination<'_>) -> Option<On> {
    let interface = combination.interface.value();
    let negated = interface.is_some_and(|interface| interface.negated);
    if let Some(id) = interface.and_then(|interface| interface.rdomain) {
        return Some(On::Rdomain { id, negated });
    }
    let scope = |choice: &Choice<'_, Host>| choice.value().and_then(|host| host.scope.clone());
    let name = interface
        .and_then(|interface| interface.name.clone())
        .or_else(|| scope(&combination.source))
        .or_else(|| scope(&combination.destination))?;
    Some(On::Interface(InterfaceMatch { name, negated }))
}

fn id(id: &Id) -> IdMatch {
    IdMatch {
        comparison: id.comparison,
        low: id.low,
        high: id.high,
    }
}

/// The elements of lists and macros that made this combination.
fn elements(combination: &Combination<'_>) -> Vec<Element> {
    fn element<T>(dimension: &'static str, choice: &Choice<'_, T>) -> Option<Element> {
        let at = choice.at()?;
        if choice.count < 2 && at.macro_name.is_none() {
            return None;
        }
        let (index, count) = (choice.index, choice.count);
        Some(Element {
            dimension,
            span: at.span,
            index,
            count,
            macro_name: at.macro_name.clone(),
        })
    }
    let all = [
        element("interface", &combination.interface),
        element("proto", &combination.protocol),
        element("icmp-type", &combination.icmp),
        element("source", &combination.source),
        element("destination", &combination.destination),
        element("source port", &combination.source_port),
        element("destination port", &combination.destination_port),
        element("os", &combination.os),
        element("user", &combination.user),
        element("group", &combination.group),
    ];
    all.into_iter().flatten().collect()
}
