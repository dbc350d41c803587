//! States and their keys.
//!
//! A key is oriented: it holds the outside first for packets that come in, and the inside first
//! for packets that leave, so that the key of a packet in one direction is that of its answer
//! in the other. A state therefore matches (its direction, forward) and (the other direction,
//! reverse), on any interface unless it is bound; never the same packet in the other direction.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::actions::Actions;
use super::program::RuleId;
use super::source_node::NodeKey;
use crate::names::{ICMP, ICMP6, TCP, UDP};
use crate::rule::{Direction, Family, RouteKind, Timeout};

/// Key of a state, by pf's order: index 0 is the side that packets come in from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Family of the addresses.
    pub family: Family,
    /// Protocol.
    pub protocol: u8,
    /// Routing domain.
    pub rdomain: u32,
    /// Source and destination of packets that come in.
    pub addresses: [IpAddr; 2],
    /// Their ports; the identifier and type of ICMP queries.
    pub ports: [u16; 2],
}

/// States of one end of a connection, by pf's numbers.
pub(super) mod peer_state {
    pub const CLOSED: u8 = 0;
    pub const SYN_SENT: u8 = 2;
    pub const ESTABLISHED: u8 = 4;
    pub const CLOSING: u8 = 7;
    pub const FIN_WAIT_2: u8 = 9;
    pub const TIME_WAIT: u8 = 10;
    pub const PROXY_SRC: u8 = 11;
    pub const PROXY_DST: u8 = 12;
    /// UDP and others.
    pub const NO_TRAFFIC: u8 = 0;
    pub const SINGLE: u8 = 1;
    pub const MULTIPLE: u8 = 2;

    /// pf's name of a TCP state.
    pub fn tcp_name(state: u8) -> &'static str {
        const NAMES: [&str; 13] = [
            "CLOSED",
            "LISTEN",
            "SYN_SENT",
            "SYN_RCVD",
            "ESTABLISHED",
            "CLOSE_WAIT",
            "FIN_WAIT_1",
            "CLOSING",
            "LAST_ACK",
            "FIN_WAIT_2",
            "TIME_WAIT",
            "PROXY_SRC",
            "PROXY_DST",
        ];
        NAMES.get(usize::from(state)).copied().unwrap_or("BAD")
    }

    /// pf's name of a state of UDP and others.
    pub fn other_name(state: u8) -> &'static str {
        ["NO_TRAFFIC", "SINGLE", "MULTIPLE"]
            .get(usize::from(state))
            .copied()
            .unwrap_or("BAD")
    }
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Peer {
    pub state: u8,
    /// Highest sequence number sent, and highest allowed.
    pub seqlo: u32,
    pub seqhi: u32,
    /// Offset of modulated sequence numbers.
    pub seqdiff: u32,
    pub max_win: u32,
    /// Window scale, with [`SCALE_KNOWN`]; 0 without.
    pub wscale: u8,
}

/// Bit that marks a window scale as seen.
pub(super) const SCALE_KNOWN: u8 = 0x80;
pub(super) const SCALE: u8 = 0x0f;

/// A state.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub id: u64,
    pub rule: RuleId,
    pub nat_rule: Option<RuleId>,
    pub direction: Direction,
    /// Interface that it is bound to.
    pub interface: Option<Arc<str>>,
    /// Wire side and stack side.
    pub keys: [Key; 2],
    pub src: Peer,
    pub dst: Peer,
    pub timeout: Timeout,
    /// Killed: it ends at the next sweep, and matches nothing until then.
    pub purged: bool,
    /// Second of the last packet.
    pub expire: u64,
    pub allow_options: bool,
    pub sloppy: bool,
    pub actions: Actions,
    pub tag: Option<Arc<str>>,
    pub match_rules: Vec<RuleId>,
    pub nodes: Vec<NodeKey>,
    /// It counts as a connection of its source.
    pub is_connection: bool,
    pub route: Option<(RouteKind, IpAddr)>,
}

impl State {
    pub fn wire(&self) -> &Key {
        &self.keys[0]
    }

    pub fn stack(&self) -> &Key {
        &self.keys[1]
    }

    /// Whether it translates between families.
    pub fn is_af_to(&self) -> bool {
        self.keys[0].family != self.keys[1].family
    }

    /// Whether a packet of this family meets the state from its inner side (`PF_REVERSED_KEY`).
    pub fn is_reversed(&self, family: Family) -> bool {
        self.is_af_to() && self.keys[0].family != family
    }

    /// Ends it.
    pub fn purge(&mut self) {
        self.purged = true;
        self.set_both(peer_state::CLOSED);
    }

    pub fn set_both(&mut self, state: u8) {
        self.src.state = state;
        self.dst.state = state;
    }

    /// Both ends, the packet's first.
    pub fn peers(&mut self, forward: bool) -> (&mut Peer, &mut Peer) {
        if forward {
            (&mut self.src, &mut self.dst)
        } else {
            (&mut self.dst, &mut self.src)
        }
    }

    /// Whether it has a key where a packet of this direction is looked for.
    fn has_key(&self, key: &Key, direction: Direction) -> bool {
        if self.is_af_to() {
            return direction == Direction::In && self.keys.contains(key);
        }
        *key == self.keys[usize::from(direction == Direction::Out)]
    }
}

/// A state as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateInfo {
    /// Its number, from 0.
    pub id: u64,
    /// The rule that made it.
    pub rule: RuleId,
    /// Direction of its first packet.
    pub direction: Direction,
    /// Interface that it is bound to; `None` for a floating one.
    pub interface: Option<Arc<str>>,
    /// Its key on the wire: before translation of packets that come in.
    pub wire: Key,
    /// Its key at the host: after it.
    pub stack: Key,
    /// pf's names of the states of the end that sent the first packet, and of the other.
    pub peers: (&'static str, &'static str),
    /// The timeout that holds.
    pub timeout: Timeout,
    /// Seconds until it ends, unless a packet comes.
    pub expires: u64,
    /// Its packets get this tag.
    pub tag: Option<Arc<str>>,
}

/// All states.
#[derive(Clone, Debug, Default)]
pub(super) struct States {
    by_id: BTreeMap<u64, State>,
    /// States by each of their keys, those bound to an interface first.
    by_key: BTreeMap<Key, Vec<u64>>,
    next: u64,
}

impl States {
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &State> {
        self.by_id.values()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut State> {
        self.by_id.values_mut()
    }

    pub fn get(&self, id: u64) -> Option<&State> {
        self.by_id.get(&id)
    }

    pub fn get_mut(&mut self, id: u64) -> Option<&mut State> {
        self.by_id.get_mut(&id)
    }

    fn at(&self, key: &Key) -> impl Iterator<Item = &State> {
        let ids = self.by_key.get(key).map_or(&[][..], Vec::as_slice);
        ids.iter().filter_map(|id| self.by_id.get(id))
    }

    /// The state of a packet with this key (`pf_find_state`).
    pub fn find(&self, key: &Key, direction: Direction, interface: &str) -> Option<u64> {
        let fits = |state: &&State| {
            !state.purged
                && state
                    .interface
                    .as_deref()
                    .is_none_or(|bound| bound == interface)
                && state.has_key(key, direction)
        };
        self.at(key).find(fits).map(|state| state.id)
    }

    /// Whether a packet of this direction has a state with this key (`pf_find_state_all`).
    pub fn is_taken(&self, key: &Key, direction: Direction) -> bool {
        self.at(key)
            .any(|state| *key == state.keys[usize::from(direction == Direction::Out)])
    }

    /// Adds a state, unless another one has one of its keys on its interface and in its direction.
    /// A closed TCP connection gives way: these are returned (`pf_state_key_attach`).
    pub fn insert(&mut self, mut state: State) -> Result<(u64, Vec<State>), ()> {
        let mut replaced = Vec::new();
        for (side, key) in state.keys.iter().enumerate() {
            if side == 1 && state.keys[0] == *key {
                break;
            }
            for other in self.at(key) {
                if !collides(&state, other, key) {
                    continue;
                }
                let closed = other.src.state >= peer_state::FIN_WAIT_2
                    && other.dst.state >= peer_state::FIN_WAIT_2;
                if key.protocol != TCP || !closed {
                    return Err(());
                }
                replaced.push(other.id);
            }
        }
        let replaced = replaced
            .into_iter()
            .filter_map(|id| self.remove(id))
            .collect();
        state.id = self.next;
        self.next += 1;
        let id = state.id;
        self.link(state.keys[0], id, state.interface.is_some());
        if state.keys[1] != state.keys[0] {
            self.link(state.keys[1], id, state.interface.is_some());
        }
        self.by_id.insert(id, state);
        Ok((id, replaced))
    }

    fn link(&mut self, key: Key, id: u64, bound: bool) {
        let ids = self.by_key.entry(key).or_default();
        if bound {
            ids.insert(0, id);
        } else {
            ids.push(id);
        }
    }

    /// Removes a state.
    pub fn remove(&mut self, id: u64) -> Option<State> {
        let state = self.by_id.remove(&id)?;
        for key in &state.keys {
            if let Some(ids) = self.by_key.get_mut(key) {
                ids.retain(|&other| other != id);
                if ids.is_empty() {
                    self.by_key.remove(key);
                }
            }
        }
        Some(state)
    }
}

/// Whether a new state with this key cannot exist beside another.
fn collides(new: &State, other: &State, key: &Key) -> bool {
    if other.interface != new.interface {
        return false;
    }
    let same_family = other.wire().family == key.family && other.direction == new.direction;
    let other_family =
        other.is_af_to() && key.family == other.stack().family && other.direction != new.direction;
    same_family || other_family
}

/// State of both ends after a packet of a protocol without handshake.
pub(super) fn track_other(state: &mut State, forward: bool, protocol: u8, now: u64) {
    let (src, dst) = state.peers(forward);
    src.state = src.state.max(peer_state::SINGLE);
    if dst.state == peer_state::SINGLE {
        dst.state = peer_state::MULTIPLE;
    }
    let both = src.state == peer_state::MULTIPLE && dst.state == peer_state::MULTIPLE;
    state.expire = now;
    state.timeout = match (protocol, both) {
        (UDP, true) => Timeout::UdpMultiple,
        (UDP, false) => Timeout::UdpSingle,
        (_, true) => Timeout::OtherMultiple,
        (_, false) => Timeout::OtherSingle,
    };
}

/// pf's names of both ends' states.
pub(super) fn peer_names(state: &State) -> (&'static str, &'static str) {
    match state.stack().protocol {
        TCP => (
            peer_state::tcp_name(state.src.state),
            peer_state::tcp_name(state.dst.state),
        ),
        ICMP | ICMP6 => (peer_state::other_name(0), peer_state::other_name(0)),
        _ => (
            peer_state::other_name(state.src.state),
            peer_state::other_name(state.dst.state),
        ),
    }
}
