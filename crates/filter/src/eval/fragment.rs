//! Fragments, and how a datagram is put together (`pf_norm.c`).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use crate::packet::{Content, Fragment, Packet, Refusal};
use crate::rule::{Direction, Family};

/// A datagram is divided into this many parts, each of which may wait for this many fragments.
const PARTS: usize = 16;
const PART: usize = 65_536 / PARTS;
const PER_PART: usize = 64;
const DATAGRAM_MAX: usize = 65_535;

/// Fields that all fragments of a datagram share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    source: IpAddr,
    destination: IpAddr,
    /// 0 for IPv6, where only the first fragment's protocol counts.
    protocol: u8,
    direction: Direction,
    id: u32,
}

#[derive(Clone, Debug)]
struct Piece {
    offset: usize,
    more: bool,
    bytes: Vec<u8>,
}

impl Piece {
    fn end(&self) -> usize {
        self.offset + self.bytes.len()
    }
}

/// The fragments of a datagram, by offset; they do not overlap.
#[derive(Clone, Debug)]
struct Queue {
    key: Key,
    /// Second of the first fragment that came.
    since: u64,
    pieces: Vec<Piece>,
    /// The fragment at offset 0, whose header the datagram gets.
    head: Option<Packet>,
    is_v6: bool,
}

/// The fate of a fragment.
#[derive(Debug)]
pub(super) enum Reassembly {
    /// It waits.
    Wait,
    /// The datagram is complete.
    Whole(Box<Packet>),
}

/// The change of a queue.
enum Fill {
    Kept,
    /// The fragment is dropped.
    Dropped(Refusal),
    /// The whole queue is.
    Flushed(Refusal),
}

/// All fragments that wait.
#[derive(Clone, Debug, Default)]
pub(super) struct Fragments {
    /// Queues in the order in which they began.
    queues: BTreeMap<u64, Queue>,
    by_key: BTreeMap<Key, u64>,
    next: u64,
    /// Number of fragments.
    count: usize,
}

impl Fragments {
    pub fn len(&self) -> usize {
        self.count
    }

    /// Takes a fragment.
    pub fn take(
        &mut self,
        packet: &Packet,
        fragment: &Fragment,
        now: u64,
        limit: usize,
    ) -> Result<Reassembly, Refusal> {
        let piece = check(fragment)?;
        self.make_room(limit)?;
        let key = Key {
            source: packet.source,
            destination: packet.destination,
            protocol: if packet.family() == Family::Inet {
                fragment.next
            } else {
                0
            },
            direction: packet.direction,
            id: packet.id,
        };
        let number = match self.by_key.get(&key) {
            Some(&number) => number,
            None => self.begin(key, packet, now),
        };
        let Some(queue) = self.queues.get_mut(&number) else {
            return Err(Refusal::BadFragment);
        };
        let before = queue.pieces.len();
        let is_head = piece.offset == 0;
        let fill = queue.fill(piece);
        self.count = self.count + queue.pieces.len() - before.min(self.count + queue.pieces.len());
        match fill {
            Fill::Kept => {}
            Fill::Dropped(refusal) => return Err(refusal),
            Fill::Flushed(refusal) => {
                self.end(number);
                return Err(refusal);
            }
        }
        if is_head {
            queue.head = Some(packet.clone());
        }
        if !queue.is_complete() {
            return Ok(Reassembly::Wait);
        }
        match self.end(number) {
            Some(queue) => queue
                .join(packet)
                .map(|packet| Reassembly::Whole(Box::new(packet))),
            None => Ok(Reassembly::Wait),
        }
    }

    fn begin(&mut self, key: Key, packet: &Packet, now: u64) -> u64 {
        let number = self.next;
        self.next += 1;
        let is_v6 = packet.family() == Family::Inet6;
        self.queues.insert(
            number,
            Queue {
                key,
                since: now,
                pieces: Vec::new(),
                head: None,
                is_v6,
            },
        );
        self.by_key.insert(key, number);
        number
    }

    fn end(&mut self, number: u64) -> Option<Queue> {
        let queue = self.queues.remove(&number)?;
        self.by_key.remove(&queue.key);
        self.count = self.count.saturating_sub(queue.pieces.len());
        Some(queue)
    }

    /// At the limit, ends the oldest tenth (`pf_flush_fragments`).
    fn make_room(&mut self, limit: usize) -> Result<(), Refusal> {
        if self.count < limit {
            return Ok(());
        }
        let goal = self.count / 10 * 9;
        while self.count > goal {
            let Some((&oldest, _)) = self.queues.first_key_value() else {
                break;
            };
            self.end(oldest);
        }
        if self.count < limit {
            Ok(())
        } else {
            Err(Refusal::FragmentLimit)
        }
    }

    /// Ends queues whose first fragment came this many seconds ago.
    pub fn expire(&mut self, now: u64, timeout: u64) {
        while let Some((&oldest, queue)) = self.queues.first_key_value() {
            if queue.since + timeout > now {
                break;
            }
            self.end(oldest);
        }
    }
}

fn check(fragment: &Fragment) -> Result<Piece, Refusal> {
    let (offset, length) = (usize::from(fragment.offset), fragment.payload.len());
    let bad = length == 0 || (fragment.more && length % 8 != 0) || offset + length > DATAGRAM_MAX;
    if bad {
        return Err(Refusal::BadFragment);
    }
    Ok(Piece {
        offset,
        more: fragment.more,
        bytes: fragment.payload.to_vec(),
    })
}

impl Queue {
    /// Adds a piece (`pf_fillup_fragment`). Of overlapping pieces of IPv4, the first at each byte
    /// stays where it begins earlier; for IPv6, any overlap ends the whole datagram (RFC 5722).
    fn fill(&mut self, mut piece: Piece) -> Fill {
        let conflict = if self.is_v6 {
            Fill::Flushed(Refusal::FragmentOverlap)
        } else {
            Fill::Dropped(Refusal::FragmentOverlap)
        };
        if let Some(last) = self.pieces.last() {
            let total = last.end();
            let bad = (piece.end() < total && !piece.more)
                || (!last.more && (piece.end() > total || (piece.end() == total && piece.more)))
                || (last.more && piece.end() == total && !piece.more);
            if bad {
                return conflict;
            }
        }
        let mut at = self
            .pieces
            .partition_point(|other| other.offset <= piece.offset);
        if let Some(previous) = at.checked_sub(1).and_then(|before| self.pieces.get(before))
            && previous.end() > piece.offset
        {
            let cut = previous.end() - piece.offset;
            if self.is_v6 || cut >= piece.bytes.len() {
                return conflict;
            }
            piece.bytes.drain(..cut);
            piece.offset += cut;
        }
        while let Some(after) = self.pieces.get_mut(at) {
            if piece.end() <= after.offset {
                break;
            }
            if self.is_v6 {
                return conflict;
            }
            let cut = piece.end() - after.offset;
            if cut < after.bytes.len() {
                after.bytes.drain(..cut);
                after.offset += cut;
                break;
            }
            self.pieces.remove(at);
        }
        at = self
            .pieces
            .partition_point(|other| other.offset <= piece.offset);
        let part = piece.offset / PART;
        if self
            .pieces
            .iter()
            .filter(|other| other.offset / PART == part)
            .count()
            >= PER_PART
        {
            return Fill::Flushed(Refusal::FragmentQueueLimit);
        }
        self.pieces.insert(at, piece);
        Fill::Kept
    }

    fn is_complete(&self) -> bool {
        let mut next = 0;
        for piece in &self.pieces {
            if piece.offset != next {
                return false;
            }
            next = piece.end();
        }
        self.pieces.last().is_some_and(|last| !last.more)
    }

    /// The datagram, as the last fragment's interface sees it.
    fn join(self, last: &Packet) -> Result<Packet, Refusal> {
        let Some(mut head) = self.head else {
            return Err(Refusal::BadFragment);
        };
        let payload: Vec<u8> = self
            .pieces
            .into_iter()
            .flat_map(|piece| piece.bytes)
            .collect();
        let header = head
            .to_bytes()
            .len()
            .saturating_sub(head.fragment().map_or(0, |own| own.payload.len()));
        if header + payload.len() > DATAGRAM_MAX {
            return Err(Refusal::DatagramTooLong);
        }
        if let Content::Fragment(fragment) = &mut head.content {
            (fragment.more, fragment.payload) = (false, Arc::from(payload));
        }
        let mut whole = Packet::decode(&head.to_bytes(), last.direction, &last.interface)?;
        if whole.family() == Family::Inet6 {
            whole.id = 0;
        }
        Ok(Packet {
            tag: head.tag,
            rdomain: head.rdomain,
            prio: head.prio,
            received_on: head.received_on,
            user: head.user,
            group: head.group,
            os: head.os,
            routes: head.routes,
            generated: head.generated,
            ..whole
        })
    }
}
