//! Packets that belong to a state: `pf_find_state`, `pf_test_state` and `pf_test_state_icmp`.

use super::decision::{Answer, Cause, StateUse};
use super::descriptor::Descriptor;
use super::engine::Engine;
use super::icmp::goes_right_way;
use super::icmp_key::{self, about_key};
use super::judge::StateTest;
use super::program::Program;
use super::state::{Key, State, peer_state, track_other};
use super::tcp::{self, Proxy};
use super::translate::rewrite;

use crate::packet::flags::{ACK, SYN};
use crate::packet::{About, AboutHeader, Content, Packet, Tcp};
use crate::rule::{Direction, Family, Timeout};

impl Engine<'_> {
    /// The state with a key that the packet may use.
    fn find_state(&mut self, program: &Program<'_>, packet: &Descriptor, key: &Key) -> Option<u64> {
        let direction = packet.direction();
        let id = self.states.find(key, direction, &packet.packet.interface)?;
        let state = self.states.get(id)?;
        let (rule, same_direction) = (state.rule, state.direction == direction);
        if program.entry(rule).rule.max_packet_rate.is_some()
            && same_direction
            && self.exceeds_rate(rule)
        {
            return None;
        }
        Some(id)
    }

    /// Tests TCP, UDP and protocols that are not ICMP.
    pub(super) fn test_state(
        &mut self,
        program: &Program<'_>,
        packet: &mut Descriptor,
    ) -> StateTest {
        let key = packet_key(packet);
        let Some(id) = self.find_state(program, packet, &key) else {
            return StateTest::NoState;
        };
        let now = self.now();
        let protocol = packet.packet.protocol;
        if let Content::Tcp(segment) = packet.packet.content.clone() {
            let mut segment = segment;
            match self.test_tcp(program, packet, id, &mut segment) {
                StateTest::Pass(_) => packet.packet.content = Content::Tcp(segment),
                other => return other,
            }
        } else if let Some(state) = self.states.get_mut(id) {
            let forward = packet.direction() == state.direction;
            track_other(state, forward, protocol, now);
        }
        if let Some(state) = self.states.get(id) {
            translate_back(packet, state, false);
        }
        StateTest::Pass(id)
    }

    fn test_tcp(
        &mut self,
        program: &Program<'_>,
        packet: &Descriptor,
        id: u64,
        segment: &mut Tcp,
    ) -> StateTest {
        let (direction, family, now) = (packet.direction(), packet.family, self.now());
        let random = &mut self.random;
        let Some(state) = self.states.get_mut(id) else {
            return StateTest::NoState;
        };
        let forward = direction == state.direction;
        match tcp::synproxy(state, segment, forward, || random.number()) {
            Proxy::Through => {}
            Proxy::Drop(answer) => return self.drop_by_state(packet, id, Cause::Synproxy, answer),
            Proxy::Proven => return self.prove(program, packet, id),
        }
        let Some(state) = self.states.get_mut(id) else {
            return StateTest::NoState;
        };
        if segment.flags & (SYN | ACK) == SYN {
            let (src, dst) = (state.src.state, state.dst.state);
            if src >= peer_state::FIN_WAIT_2 && dst >= peer_state::FIN_WAIT_2 {
                // Its ends stay closed, so that the new state can take its place.
                state.purged = true;
                return StateTest::NoState;
            }
            if src >= peer_state::ESTABLISHED && dst >= peer_state::ESTABLISHED {
                let (own, other) = state.peers(forward);
                let answer = Answer::Tcp {
                    flags: ACK,
                    seq: other.seqlo,
                    ack: own.seqlo,
                    ttl: 0,
                };
                return self.drop_by_state(packet, id, Cause::SynOnEstablished, answer);
            }
        }
        let tracked = if state.sloppy {
            Ok(tcp::track_sloppy(state, segment, forward, now))
        } else {
            let forward = forward != state.is_reversed(family);
            tcp::track_full(state, segment, forward, now, || random.number())
        };
        match tracked {
            Ok(true) if self.count_connection(program, id) => {
                self.drop_by_state(packet, id, Cause::ConnectionLimit, Answer::None)
            }
            Ok(_) => StateTest::Pass(id),
            Err((cause, answer)) => self.drop_by_state(packet, id, cause, answer),
        }
    }

    /// A client of the proxy has answered: its connection counts, and the server is called.
    fn prove(&mut self, program: &Program<'_>, packet: &Descriptor, id: u64) -> StateTest {
        if self.count_connection(program, id) {
            return self.drop_by_state(packet, id, Cause::ConnectionLimit, Answer::None);
        }
        let number = self.random.number();
        if let Some(state) = self.states.get_mut(id) {
            state.src.state = peer_state::PROXY_DST;
            if state.dst.seqhi == 1 {
                state.dst.seqhi = number;
            }
            if let Some(segment) = packet.tcp() {
                state.src.max_win = u32::from(segment.window).max(1);
            }
        }
        self.drop_by_state(packet, id, Cause::Synproxy, Answer::None)
    }

    fn drop_by_state(
        &self,
        packet: &Descriptor,
        id: u64,
        cause: Cause,
        answer: Answer,
    ) -> StateTest {
        let state: Option<StateUse> = self.state_use(id, packet, false);
        let rule = self.states.get(id).map(|state| state.rule);
        StateTest::Drop {
            state,
            rule,
            cause,
            answer,
        }
    }

    /// Tests ICMP.
    pub(super) fn test_icmp_state(
        &mut self,
        program: &Program<'_>,
        packet: &mut Descriptor,
    ) -> StateTest {
        let Some(mapping) = packet.icmp else {
            return StateTest::NoState;
        };
        if mapping.is_error {
            let about = packet.packet.icmp().and_then(|message| message.about);
            return match about {
                Some(about) => self.test_icmp_error(program, packet, &about),
                None => StateTest::NoState,
            };
        }
        let mut found = self.find_icmp_query(program, packet, false);
        if found.is_none() && packet.family == Family::Inet6 && !mapping.is_query {
            found = self.find_icmp_query(program, packet, true);
        }
        let Some(id) = found else {
            return StateTest::NoState;
        };
        let now = self.now();
        let Some(state) = self.states.get_mut(id) else {
            return StateTest::NoState;
        };
        let right = goes_right_way(
            way(state, packet),
            packet.direction(),
            false,
            mapping.is_query,
        );
        if !state.sloppy && !right {
            return self.drop_by_state(packet, id, Cause::IcmpDirection, Answer::None);
        }
        state.expire = now;
        state.timeout = Timeout::IcmpError;
        translate_back(packet, state, mapping.is_query);
        StateTest::Pass(id)
    }

    fn find_icmp_query(
        &mut self,
        program: &Program<'_>,
        packet: &Descriptor,
        multicast: bool,
    ) -> Option<u64> {
        let mapping = packet.icmp?;
        let own = &packet.packet;
        let [source, destination] =
            icmp_key::addresses(packet, own.source, own.destination, multicast)?;
        let (from, to) = (packet.source_index(), packet.destination_index());
        let mut key = Key {
            family: packet.family,
            protocol: own.protocol,
            rdomain: own.rdomain,
            addresses: [source; 2],
            ports: [0; 2],
        };
        key.addresses[to] = destination;
        key.ports[if mapping.is_query { from } else { to }] = mapping.id;
        key.ports[if mapping.is_query { to } else { from }] = mapping.kind;
        self.find_state(program, packet, &key)
    }

    /// An ICMP error: its state is that of the packet that it is about.
    fn test_icmp_error(
        &mut self,
        program: &Program<'_>,
        packet: &mut Descriptor,
        about: &About,
    ) -> StateTest {
        if packet.packet.destination != about.source {
            return StateTest::NoState;
        }
        let (key, mapping) = about_key(packet, about);
        let Some(id) = self.find_state(program, packet, &key) else {
            return StateTest::NoState;
        };
        let Some(state) = self.states.get(id) else {
            return StateTest::NoState;
        };
        if let AboutHeader::Tcp { seq, .. } = about.header {
            let reversed = state.is_reversed(packet.family);
            let inner_is_forward = (packet.direction() != state.direction) != reversed;
            let (src, dst) = if inner_is_forward {
                (&state.src, &state.dst)
            } else {
                (&state.dst, &state.src)
            };
            if !state.sloppy && !tcp::is_in_window(src, dst, seq) {
                return self.drop_by_state(packet, id, Cause::IcmpWindow, Answer::None);
            }
        }
        if let Some(mapping) = mapping {
            let right = goes_right_way(
                way(state, packet),
                packet.direction(),
                true,
                mapping.is_query,
            );
            if !state.sloppy && !right {
                return self.drop_by_state(packet, id, Cause::IcmpDirection, Answer::None);
            }
        }
        let asks = mapping.is_some_and(|mapping| mapping.is_query);
        translate_error(packet, state, asks);
        StateTest::Pass(id)
    }
}

/// Direction of a state, as a packet of this family sees it.
fn way(state: &State, packet: &Descriptor) -> Direction {
    match (state.is_af_to(), packet.family == state.wire().family) {
        (false, _) => state.direction,
        (true, true) => Direction::In,
        (true, false) => Direction::Out,
    }
}

/// The key that a packet is looked for with.
fn packet_key(packet: &Descriptor) -> Key {
    let own = &packet.packet;
    let mut key = Key {
        family: packet.family,
        protocol: own.protocol,
        rdomain: own.rdomain,
        addresses: [own.source; 2],
        ports: [packet.source_port; 2],
    };
    key.addresses[packet.destination_index()] = own.destination;
    key.ports[packet.destination_index()] = packet.destination_port;
    key
}

/// The key whose addresses a packet of a state gets.
fn new_key(state: &State, packet: &Descriptor) -> Key {
    let at = if state.is_reversed(packet.family) {
        packet.source_index()
    } else {
        packet.destination_index()
    };
    state.keys[at]
}

/// Translates a packet as its state says.
fn translate_back(packet: &mut Descriptor, state: &State, is_query: bool) {
    if state.wire() == state.stack() {
        return;
    }
    let key = new_key(state, packet);
    let changes = key.family != packet.family;
    let source = if changes {
        packet.destination_index()
    } else {
        packet.source_index()
    };
    let destination = 1 - source;
    let id = if is_query {
        key.ports[source]
    } else {
        key.ports[destination]
    };
    let own = &mut packet.packet;
    let source = (key.addresses[source], key.ports[source]);
    let destination = (key.addresses[destination], key.ports[destination]);
    rewrite(own, source, destination, id);
}

/// Translates an ICMP error and the packet in it.
fn translate_error(packet: &mut Descriptor, state: &State, asks: bool) {
    let key = new_key(state, packet);
    if state.wire() == state.stack() || key.family != packet.family {
        return;
    }
    // The packet in it went the other way.
    let (source, destination) = (packet.destination_index(), packet.source_index());
    let outer: &mut Packet = &mut packet.packet;
    let Content::Icmp(message) = &mut outer.content else {
        return;
    };
    let Some(about) = &mut message.about else {
        return;
    };
    if about.source != key.addresses[source] {
        about.source = key.addresses[source];
        outer.destination = about.source;
    }
    if about.destination != key.addresses[destination] {
        about.destination = key.addresses[destination];
        outer.source = about.destination;
    }
    match &mut about.header {
        AboutHeader::Tcp {
            source_port,
            destination_port,
            ..
        }
        | AboutHeader::Udp {
            source_port,
            destination_port,
        } => {
            (*source_port, *destination_port) = (key.ports[source], key.ports[destination]);
        }
        AboutHeader::Icmp { kind, id, .. } if matches!(*kind, 0 | 8 | 128 | 129) => {
            *id = if asks {
                key.ports[source]
            } else {
                key.ports[destination]
            };
        }
        AboutHeader::Icmp { .. } | AboutHeader::Other => {}
    }
}
