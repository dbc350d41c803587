//! ICMP: queries and their answers, and errors about other packets.

use crate::packet::Icmp;
use crate::rule::{Direction, Family};

/// The role of an ICMP message for states (`pf_icmp_mapping`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    /// A query, which may make a state, rather than an answer.
    pub is_query: bool,
    /// The state is that of another packet: an error. Neighbour advertisements count as such.
    pub is_error: bool,
    /// Stands for the port of the side that asks.
    pub id: u16,
    /// Stands for the port of the side that answers: the query's type.
    pub kind: u16,
}

/// The mapping of a message.
pub(super) fn mapping(message: &Icmp, family: Family) -> Mapping {
    match family {
        Family::Inet => mapping_v4(message.kind, message.id),
        Family::Inet6 => mapping_v6(message),
    }
}

fn mapping_v4(kind: u8, id: u16) -> Mapping {
    let (query, id) = match kind {
        8 | 0 => (8, id),
        13 | 14 => (13, id),
        15 | 16 => (15, id),
        17 | 18 => (17, id),
        33 | 34 => (33, 0),
        35 | 36 => (35, 0),
        10 | 9 => (10, 0),
        _ => (kind, 0),
    };
    let is_error = matches!(kind, 3 | 4 | 5 | 11 | 12);
    Mapping {
        is_query: kind == query,
        is_error,
        id,
        kind: u16::from(query),
    }
}

fn mapping_v6(message: &Icmp) -> Mapping {
    let (kind, id) = (message.kind, message.id);
    let (query, id) = match kind {
        128 | 129 => (128, id),
        // A report needs no query before it, so that both count as queries.
        130 | 131 => {
            return Mapping {
                is_query: true,
                is_error: false,
                id: target_id(message),
                kind: 130,
            };
        }
        139 | 140 => (139, 0),
        201 | 200 => (201, 0),
        135 | 136 => (135, target_id(message)),
        _ => (kind, 0),
    };
    // Nobody awaits an answer to an advertisement: it makes no state.
    let is_error = matches!(kind, 1..=4 | 136);
    Mapping {
        is_query: kind == query,
        is_error,
        id,
        kind: u16::from(query),
    }
}

/// An identifier of an address.
fn target_id(message: &Icmp) -> u16 {
    let octets = message.target.map_or([0; 16], |target| target.octets());
    let hash = octets.chunks_exact(4).fold(0, |hash, word| {
        hash ^ u32::from_be_bytes([word[0], word[1], word[2], word[3]])
    });
    ((hash >> 16) ^ (hash & 0xffff)) as u16
}

/// Whether a query or answer goes the way that its state expects (`pf_icmp_state_lookup`).
pub(super) fn goes_right_way(
    state: Direction,
    packet: Direction,
    inner: bool,
    is_query: bool,
) -> bool {
    ((state == packet) != inner) == is_query
}
