//! States that pass rules make: `pf_create_state`, and the limits of sources.

use std::net::IpAddr;
use std::sync::Arc;

use super::decision::{Answer, Cause};
use super::descriptor::Descriptor;
use super::engine::Engine;
use super::icmp_key;
use super::pool::{PoolError, PoolOf};
use super::program::{Program, RuleId};
use super::source_node::{NodeKey, Purpose, SourceNode, Threshold};
use super::state::{Key, Peer, State, peer_state};
use super::tcp;
use super::translate::rewrite;
use super::walk::Walk;
use crate::names::{ICMP, ICMP6};
use crate::packet::Content;
use crate::packet::flags::{ACK, SYN};
use crate::rule::{Address, Direction, KeepState, Rate, Rule, StateOptions, Timeout};

impl Engine<'_> {
    /// Makes the state of a packet that a rule passes, and translates the packet.
    pub(super) fn create_state(
        &mut self,
        program: &Program<'_>,
        id: RuleId,
        walk: &mut Walk,
    ) -> Result<u64, Cause> {
        let rule = program.entry(id).rule;
        let options = rule.state_options.as_deref();
        if options.is_some_and(|options| options.source_track.is_some()) {
            self.track_source(id, rule, walk)?;
        }
        let most = options.map_or(0, |options| options.max);
        if most != 0 && self.states_of(id) >= most {
            return Err(Cause::StateLimit);
        }
        if self.states.len() >= self.options().limit_states as usize {
            return Err(Cause::StatePool);
        }
        let route = self.choose_route(program, id, walk)?;
        let mut state = self.new_state(id, rule, walk);
        state.route = route;
        let (made, replaced) = self
            .states
            .insert(state)
            .map_err(|()| Cause::StateCollision)?;
        for old in replaced {
            self.forget(&old);
        }
        for key in &walk.nodes {
            if let Some(node) = self.nodes.get_mut(key) {
                node.states += 1;
            }
        }
        if let Some(counters) = self.counters.get_mut(id.index()) {
            counters.states += 1;
        }
        self.translate_first(made, walk);
        Ok(made)
    }

    fn new_state(&mut self, id: RuleId, rule: &Rule, walk: &Walk) -> State {
        let options = rule.state_options.as_deref();
        let now = self.now();
        let packet = &walk.packet;
        let (mut src, dst, timeout) = first_peers(packet);
        if rule.state == KeepState::Modulate && is_syn(packet) {
            src.seqdiff = self.random.number().wrapping_sub(src.seqlo).max(1);
        }
        if rule.state == KeepState::Synproxy
            && is_syn(packet)
            && packet.direction() == Direction::In
        {
            src.state = peer_state::PROXY_SRC;
            src.seqhi = self.random.number();
        }
        State {
            id: 0,
            rule: id,
            nat_rule: walk.nat_rule,
            direction: packet.direction(),
            interface: options
                .is_some_and(|options| options.if_bound)
                .then(|| Arc::clone(&packet.packet.interface)),
            keys: keys(packet),
            src,
            dst,
            timeout,
            purged: false,
            expire: now,
            allow_options: rule.allow_options,
            sloppy: options.is_some_and(|options| options.sloppy),
            actions: walk.actions.clone(),
            tag: walk.tag.clone(),
            match_rules: walk.match_rules.clone(),
            nodes: walk.nodes.clone(),
            is_connection: false,
            route: None,
        }
    }

    fn choose_route(
        &mut self,
        program: &Program<'_>,
        id: RuleId,
        walk: &mut Walk,
    ) -> Result<Option<(crate::rule::RouteKind, IpAddr)>, Cause> {
        let Some(route) = program.entry(id).rule.route.as_deref() else {
            return Ok(None);
        };
        if route.pool.address == Address::Any && route.pool.more.is_empty() {
            // An interface only: the packet's destination is the next hop.
            return Ok(Some((route.kind, walk.packet.new_destination)));
        }
        let Some(of) = PoolOf::new(program, id, Purpose::Route) else {
            return Ok(None);
        };
        let packet = &walk.packet;
        let family = if packet.direction() == Direction::In {
            packet.family
        } else {
            packet.new_family
        };
        let source = packet.packet.source;
        match self.map_address(of, family, source, &mut walk.nodes) {
            Ok(hop) => Ok(Some((route.kind, hop))),
            Err(PoolError::Unknown(name)) => {
                walk.note(format!(
                    "the addresses of {name} are not known: the route to them is left out"
                ));
                Ok(None)
            }
            Err(PoolError::Empty) => Err(Cause::NoRoute),
        }
    }

    /// Gives the first packet of a state its new addresses.
    fn translate_first(&mut self, id: u64, walk: &mut Walk) {
        let Some(state) = self.states.get(id) else {
            return;
        };
        let packet = &mut walk.packet;
        if let Content::Tcp(segment) = &mut packet.packet.content
            && state.src.seqdiff != 0
        {
            segment.seq = segment.seq.wrapping_add(state.src.seqdiff);
        }
        if state.wire() == state.stack() {
            return;
        }
        let key = state.keys[usize::from(packet.direction() == Direction::In)];
        let changes = packet.family != packet.new_family;
        let source = if changes {
            packet.destination_index()
        } else {
            packet.source_index()
        };
        let destination = 1 - source;
        let is_query = packet.icmp.is_none_or(|mapping| mapping.is_query);
        let echo = if is_query {
            key.ports[source]
        } else {
            key.ports[destination]
        };
        let source = (key.addresses[source], key.ports[source]);
        let destination = (key.addresses[destination], key.ports[destination]);
        rewrite(&mut packet.packet, source, destination, echo);
    }

    /// Finds or makes the node of the packet's source (`pf_insert_src_node`).
    fn track_source(&mut self, id: RuleId, rule: &Rule, walk: &mut Walk) -> Result<(), Cause> {
        let key: NodeKey = (id, Purpose::Track, walk.packet.packet.source);
        let default = StateOptions::default();
        let options = rule.state_options.as_deref().unwrap_or(&default);
        if let Some(node) = self.nodes.get(&key) {
            if options.max_source_states != 0 && node.states >= options.max_source_states {
                return Err(Cause::SourceStateLimit);
            }
        } else {
            let most = options.max_source_nodes as usize;
            if most != 0 && self.nodes.count_of(id) >= most {
                return Err(Cause::SourceNodeLimit);
            }
            if self.nodes.len() >= self.options().limit_source_nodes as usize {
                return Err(Cause::SourceNodeLimit);
            }
            let rate = options.max_source_rate.unwrap_or(Rate {
                limit: 0,
                seconds: 0,
            });
            let rate = Threshold::new(rate, self.now());
            self.nodes.insert(
                key,
                SourceNode {
                    rate,
                    ..SourceNode::default()
                },
            );
        }
        walk.nodes.push(key);
        Ok(())
    }

    /// A connection has become established: counts it for its source. Whether it is one too many,
    /// so that its state, and perhaps others, were killed (`pf_src_connlimit`).
    pub(super) fn count_connection(&mut self, program: &Program<'_>, id: u64) -> bool {
        let now = self.now();
        let Some(state) = self.states.get_mut(id) else {
            return false;
        };
        let Some(&key) = state
            .nodes
            .iter()
            .find(|(_, purpose, _)| *purpose == Purpose::Track)
        else {
            return false;
        };
        state.is_connection = true;
        let rule = state.rule;
        let Some(options) = program.entry(rule).rule.state_options.as_deref() else {
            return false;
        };
        let Some(node) = self.nodes.get_mut(&key) else {
            return false;
        };
        node.connections += 1;
        node.rate.add(now);
        let too_many = options.max_source_connections != 0
            && options.max_source_connections < node.connections;
        let too_fast =
            options.max_source_rate.is_some_and(|rate| rate.limit != 0) && node.rate.is_exceeded();
        if !too_many && !too_fast {
            return false;
        }
        self.overload(program, rule, id, key.2);
        if let Some(state) = self.states.get_mut(id) {
            state.purge();
        }
        true
    }

    /// Puts a source into the table of `overload`, and kills its states.
    fn overload(&mut self, program: &Program<'_>, rule: RuleId, id: u64, source: IpAddr) {
        let entry = program.entry(rule);
        let Some(options) = entry.rule.state_options.as_deref() else {
            return;
        };
        let (Some(overload), Some(table)) = (&options.overload, entry.overload) else {
            return;
        };
        self.add_to_table(table, source);
        self.overloaded.push(source);
        if !overload.flush {
            return;
        }
        let Some(direction) = self.states.get(id).map(|state| state.direction) else {
            return;
        };
        let side = usize::from(direction == Direction::Out);
        for state in self.states.iter_mut() {
            if state.wire().addresses[side] == source && (overload.global || state.rule == rule) {
                state.purge();
            }
        }
    }

    /// The TCP proxy's answer to the first segment.
    pub(super) fn proxy_answer(&self, id: u64, packet: &Descriptor) -> Option<Answer> {
        let state = self.states.get(id)?;
        let segment = packet.tcp()?;
        (state.src.state == peer_state::PROXY_SRC).then(|| Answer::Tcp {
            flags: SYN | ACK,
            seq: state.src.seqhi,
            ack: segment.seq.wrapping_add(1),
            ttl: 0,
        })
    }
}

fn is_syn(packet: &Descriptor) -> bool {
    packet
        .tcp()
        .is_some_and(|segment| segment.flags & (SYN | ACK) == SYN)
}

/// Both ends after the first packet, and the timeout.
fn first_peers(packet: &Descriptor) -> (Peer, Peer, Timeout) {
    let of = |state| Peer {
        state,
        ..Peer::default()
    };
    match &packet.packet.content {
        Content::Tcp(segment) => {
            // It is closed, as an end is by default.
            let dst = Peer {
                seqhi: 1,
                max_win: 1,
                ..Peer::default()
            };
            (tcp::first_peer(segment), dst, Timeout::TcpFirst)
        }
        Content::Udp(_) => (
            of(peer_state::SINGLE),
            of(peer_state::NO_TRAFFIC),
            Timeout::UdpFirst,
        ),
        Content::Icmp(_) => (Peer::default(), Peer::default(), Timeout::IcmpFirst),
        Content::Other(_) | Content::Fragment(_) => (
            of(peer_state::SINGLE),
            of(peer_state::NO_TRAFFIC),
            Timeout::OtherFirst,
        ),
    }
}

/// Keys of the wire and of the stack (`pf_state_key_setup`).
fn keys(packet: &Descriptor) -> [Key; 2] {
    let own = &packet.packet;
    let plain = key(
        packet,
        (own.source, packet.source_port),
        (own.destination, packet.destination_port),
        false,
    );
    if !packet.is_translated() {
        return [plain, plain];
    }
    let source = (packet.new_source, packet.new_source_port);
    let destination = (packet.new_destination, packet.new_destination_port);
    let translated = key(
        packet,
        source,
        destination,
        packet.family != packet.new_family,
    );
    match packet.direction() {
        Direction::In => [plain, translated],
        Direction::Out => [translated, plain],
    }
}

fn key(
    packet: &Descriptor,
    source: (IpAddr, u16),
    destination: (IpAddr, u16),
    changes: bool,
) -> Key {
    let (mut from, mut to) = (packet.source_index(), packet.destination_index());
    let (mut family, mut protocol) = (packet.family, packet.packet.protocol);
    if changes {
        (from, to, family) = (to, from, packet.new_family);
        protocol = match protocol {
            ICMP => ICMP6,
            ICMP6 => ICMP,
            other => other,
        };
    }
    let addresses = icmp_key::addresses(packet, source.0, destination.0, false)
        .unwrap_or([source.0, destination.0]);
    let mut key = Key {
        family,
        protocol,
        rdomain: packet.packet.rdomain,
        addresses: [addresses[0]; 2],
        ports: [source.1; 2],
    };
    (key.addresses[from], key.addresses[to]) = (addresses[0], addresses[1]);
    (key.ports[from], key.ports[to]) = (source.1, destination.1);
    key
}
