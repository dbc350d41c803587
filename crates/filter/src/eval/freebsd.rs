//! FreeBSD's steps before its filter rules: `pf_normalize_ip`, and `pf_get_translation` of its
//! `pf_lb.c`.

use std::net::IpAddr;

use super::actions::Actions;
use super::decision::Match;
use super::descriptor::Descriptor;
use super::engine::Engine;
use super::match_rule::DEPTH;
use super::pool::in_network;
use super::program::{AddressTest, Entry, Program, RuleId, Target};
use super::random::to_number;
use super::step::Outcome;
use super::walk::Walk;
use crate::packet::Packet;
use crate::rule::{Direction, Family, Network, Peer, Rule, RuleKind};

/// How a packet is normalised.
pub(super) struct Normalization {
    /// Fragments are reassembled.
    pub reassemble: bool,
    /// Their don't-fragment bit is cleared first.
    pub no_df: bool,
    /// TCP segments with impossible flags are dropped.
    pub tcp: bool,
    /// The rule's changes of the header.
    pub actions: Option<Box<Actions>>,
}

/// The new source and destination of a binat rule.
type Addresses = (IpAddr, IpAddr);

impl Engine<'_> {
    /// Finds out how a packet is normalised. Without any scrub rule that is as in OpenBSD; with
    /// some, only packets that one of them matches are.
    pub(super) fn normalization(&mut self, packet: &Packet) -> Normalization {
        let program = std::sync::Arc::clone(&self.program);
        let options = self.options();
        let plain = Normalization {
            reassemble: options.reassemble,
            no_df: options.reassemble_no_df,
            tcp: true,
            actions: None,
        };
        if program
            .levels
            .first()
            .is_none_or(|level| level.scrubs.is_empty())
        {
            return plain;
        }
        let interface = self.interface(&packet.interface);
        let mut walk = Walk::new(Descriptor::new(packet.clone()), false);
        let list = RuleKind::Scrub;
        let found = self.first_match(&program, &interface, list, 0, 0, &mut walk);
        let rule = found.map(|id| program.entry(id).rule);
        let Some((rule, scrub)) = rule.and_then(|rule| Some((rule, rule.scrub.as_deref()?))) else {
            return Normalization {
                reassemble: false,
                no_df: false,
                tcp: false,
                actions: None,
            };
        };
        let mut actions = Actions::default();
        actions.add(rule);
        Normalization {
            reassemble: !rule
                .freebsd
                .as_deref()
                .is_some_and(|freebsd| freebsd.no_reassemble),
            no_df: scrub.no_df,
            tcp: true,
            actions: Some(Box::new(actions)),
        }
    }

    /// Translates by the first rule of the direction's lists that matches. The rule, if it changed
    /// the packet.
    pub(super) fn translate_by_list(
        &mut self,
        program: &Program<'_>,
        interface: &[Option<bool>],
        walk: &mut Walk,
    ) -> Option<RuleId> {
        // Fragments go to the filter rules only.
        if walk.packet.is_fragment {
            return None;
        }
        let lists = match walk.packet.direction() {
            Direction::In => [RuleKind::Rdr, RuleKind::Binat],
            Direction::Out => [RuleKind::Binat, RuleKind::Nat],
        };
        for list in lists {
            let Some(id) = self.first_match(program, interface, list, 0, 0, walk) else {
                continue;
            };
            let rule = program.entry(id).rule;
            if rule.nat.is_none() && rule.rdr.is_none() {
                // `no …` ends its own list.
                continue;
            }
            return self.translate_by(program, id, walk);
        }
        None
    }

    fn translate_by(
        &mut self,
        program: &Program<'_>,
        id: RuleId,
        walk: &mut Walk,
    ) -> Option<RuleId> {
        let before = walk.packet.clone();
        let translated = if program.entry(id).rule.kind == RuleKind::Binat {
            binat(program, id, walk)
        } else {
            self.translate(program, id, walk).ok().flatten()
        };
        if translated.is_none() || !walk.packet.is_translated() {
            walk.packet = before;
            walk.nat_rule = None;
            walk.note("the translation that matched has no address or port for the packet".into());
            return None;
        }
        walk.log_rule(program, id);
        walk.matches.push(Match {
            rule: id,
            decides: false,
            translated: translated.map(Box::new),
        });
        Some(id)
    }

    /// The first rule of a list that matches, in anchors as well.
    fn first_match(
        &mut self,
        program: &Program<'_>,
        interface: &[Option<bool>],
        list: RuleKind,
        level: usize,
        depth: usize,
        walk: &mut Walk,
    ) -> Option<RuleId> {
        let rules = program.levels.get(level)?.list(list);
        for &id in rules {
            let entry = program.entry(id);
            if entry.rule.kind != list {
                continue;
            }
            let failure = if list == RuleKind::Binat && walk.packet.direction() == Direction::In {
                let reversed = reversed(entry.rule);
                let entry = Entry {
                    rule: &reversed,
                    source: entry.destination.clone(),
                    destination: entry.pools[0].clone().unwrap_or(AddressTest::Any),
                    ..Entry::new(&reversed, entry.ruleset, entry.index, entry.interface)
                };
                self.first_failure(program, interface, id, &entry, walk)
            } else {
                self.first_failure(program, interface, id, entry, walk)
            };
            if let Some(field) = failure {
                walk.record(id, depth, Outcome::Failed([field].into_iter().collect()));
                continue;
            }
            walk.take_tag(entry.rule);
            walk.actions.rtable = entry.rule.rtable.or(walk.actions.rtable);
            let Some(target) = entry.target else {
                walk.record(id, depth, Outcome::Matched);
                return Some(id);
            };
            walk.record(id, depth, Outcome::Entered);
            for child in children(program, target) {
                if depth >= DEPTH {
                    walk.note("anchors of translations call each other too deep".into());
                    return None;
                }
                let found = self.first_match(program, interface, list, child, depth + 1, walk);
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }
}

fn children(program: &Program<'_>, target: Target) -> Vec<usize> {
    match target {
        Target::Nowhere => Vec::new(),
        Target::One(level) => vec![level],
        Target::Children(level) => {
            let level = program.levels.get(level);
            level.map_or_else(Vec::new, |level| level.children.values().copied().collect())
        }
    }
}

/// A binat rule as packets that come in are tested: from `to`, to the pool.
fn reversed(rule: &Rule) -> Rule {
    Rule {
        source: rule.destination.clone(),
        destination: Peer::ANY,
        ..rule.clone()
    }
}

fn binat(
    program: &Program<'_>,
    id: RuleId,
    walk: &mut Walk,
) -> Option<super::decision::Translated> {
    let entry = program.entry(id);
    let packet = &mut walk.packet;
    let (source, destination): Addresses = match packet.direction() {
        Direction::Out => {
            let network = network(entry.pools[0].as_ref()?, packet.family)?;
            let number = to_number(packet.new_source);
            (in_network(network, number), packet.new_destination)
        }
        Direction::In => {
            let number = to_number(packet.new_destination);
            let destination = match &entry.source {
                AddressTest::Any => packet.new_destination,
                source => in_network(network(source, packet.family)?, number),
            };
            (packet.new_source, destination)
        }
    };
    (packet.new_source, packet.new_destination) = (source, destination);
    walk.nat_rule = Some(id);
    let packet = &walk.packet;
    Some(super::decision::Translated {
        source,
        source_port: packet.new_source_port,
        destination,
        destination_port: packet.new_destination_port,
    })
}

/// The network of one side of a binat rule.
fn network(test: &AddressTest, family: Family) -> Option<Network> {
    let of_family = |network: &&Network| Family::of(network.address) == family;
    match test {
        AddressTest::Network(network) => Some(*network).filter(|network| of_family(&network)),
        AddressTest::Dynamic(networks) => networks.iter().find(of_family).copied(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::eval::{Cause, Decision, Engine};
    use crate::host::Host;
    use crate::packet::Packet;
    use crate::parse::{Config, Dialect, parse};
    use crate::source::Memory;

    fn run(rules: &str, packets: &[&str]) -> Vec<Decision> {
        let host = Host::default();
        let mut files = Memory::default();
        files.add("pf.conf", rules);
        let config = Config {
            dialect: Dialect::FreeBsd,
            host: &host,
            loader: &files,
            macros: &[],
        };
        let parsed = parse("pf.conf", &config);
        assert!(!parsed.has_errors(), "{:?}", parsed.diagnostics);
        let mut engine = Engine::new(&parsed.ruleset, &host);
        let packet = |text: &&str| engine.run(&Packet::parse(text, &host).unwrap());
        packets.iter().map(packet).collect()
    }

    fn destination(decision: &Decision) -> String {
        decision.packet.as_ref().unwrap().destination.to_string()
    }

    fn source(decision: &Decision) -> String {
        decision.packet.as_ref().unwrap().source.to_string()
    }

    const SYN: &str =
        "in on em0 proto tcp from 198.51.100.7 port 4000 to 192.0.2.1 port 80 flags S";
    const OUT: &str =
        "out on em0 proto tcp from 10.0.0.5 port 4000 to 198.51.100.7 port 80 flags S";

    #[test]
    fn filter_rules_see_translated_addresses() {
        let rules = "rdr on em0 proto tcp to 192.0.2.1 port 80 -> 10.0.0.9 port 8080\n\
                     block all\npass in proto tcp to 10.0.0.9 port 8080\n";
        let answer = "out on em0 proto tcp from 10.0.0.9 port 8080 to 198.51.100.7 port 4000 flags SA ack 1001";
        let decisions = run(rules, &[SYN, answer]);
        assert!(decisions[0].verdict.is_pass());
        assert_eq!(destination(&decisions[0]), "10.0.0.9");
        assert_eq!(decisions[1].cause, Cause::State);
        assert_eq!(source(&decisions[1]), "192.0.2.1");
    }

    #[test]
    fn the_first_translation_wins_and_no_ends_its_list() {
        let rules = "no rdr on em0 proto tcp from 198.51.100.0/24 to any\n\
                     rdr on em0 proto tcp to any port 80 -> 10.0.0.1\n\
                     rdr on em0 proto tcp to any port 80 -> 10.0.0.2\n\
                     pass\n";
        let other = "in on em0 proto tcp from 203.0.113.7 port 4000 to 192.0.2.1 port 80 flags S";
        let decisions = run(rules, &[SYN, other]);
        assert_eq!(destination(&decisions[0]), "192.0.2.1");
        assert_eq!(destination(&decisions[1]), "10.0.0.1");
    }

    #[test]
    fn nat_is_for_packets_that_leave_and_rdr_for_those_that_come_in() {
        let rules = "nat on em0 from any to any -> 192.0.2.1\nrdr on em0 from any to any -> 10.0.0.2\npass\n";
        let decisions = run(rules, &[OUT, SYN]);
        assert_eq!(source(&decisions[0]), "192.0.2.1");
        assert_eq!(destination(&decisions[0]), "198.51.100.7");
        assert_eq!(destination(&decisions[1]), "10.0.0.2");
    }

    #[test]
    fn binat_maps_networks_both_ways_and_goes_before_nat() {
        let rules = "nat on em0 from any to any -> 192.0.2.99\n\
                     binat on em0 from 10.0.0.0/24 to any -> 192.0.2.0/24\npass\n";
        let decisions = run(rules, &[OUT, SYN]);
        assert_eq!(source(&decisions[0]), "192.0.2.5");
        assert_eq!(destination(&decisions[1]), "10.0.0.1");
    }

    #[test]
    fn nat_pass_goes_past_the_filter_rules_and_keeps_state() {
        let rules = "rdr pass on em0 proto tcp to port 80 -> 10.0.0.9\nblock all\n";
        let decisions = run(rules, &[SYN]);
        assert!(decisions[0].verdict.is_pass());
        assert!(decisions[0].state.is_some());
    }

    #[test]
    fn a_translation_keeps_state_without_a_filter_rule() {
        let rules = "rdr on em0 proto tcp to port 80 -> 10.0.0.9\n";
        let decisions = run(rules, &[SYN]);
        assert_eq!(decisions[0].cause, Cause::NoRule);
        assert!(decisions[0].state.is_some());
        assert_eq!(destination(&decisions[0]), "10.0.0.9");
    }

    #[test]
    fn a_translation_that_changes_nothing_is_none() {
        let rules = "rdr on em0 inet proto tcp to port 80 -> 192.0.2.1\n";
        let decisions = run(rules, &[SYN]);
        assert!(decisions[0].state.is_none());
        assert_eq!(
            decisions[0].notes,
            ["the translation that matched has no address or port for the packet"]
        );
    }

    #[test]
    fn scrub_changes_packets_before_rules_and_no_scrub_leaves_them() {
        let rules = "no scrub from 198.51.100.7 to any\nscrub in all min-ttl 64\npass\n";
        let low = |from: &str| {
            format!("in on em0 proto udp from {from} port 4000 to 192.0.2.1 port 53 ttl 3")
        };
        let (plain, scrubbed) = (low("198.51.100.7"), low("203.0.113.7"));
        let decisions = run(rules, &[&plain, &scrubbed]);
        assert_eq!(decisions[0].packet.as_ref().unwrap().ttl, 3);
        assert_eq!(decisions[1].packet.as_ref().unwrap().ttl, 64);
    }
}
