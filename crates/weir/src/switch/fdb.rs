//! The forwarding database as the maps should have it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use hostnet::rtnetlink::FdbEntry;

use super::abi::FdbKey;

/// Moves of an address are counted for so long.
const MOVES: Duration = Duration::from_secs(10);
/// Addresses whose moves are counted at most.
const MOST_MOVERS: usize = 1024;

/// The addresses behind the bridge's ports, with the number of each one's port.
#[derive(Debug, Default)]
pub struct Fdb {
    entries: HashMap<FdbKey, Known>,
    by_port: HashMap<u32, u32>,
    generation: u32,
    movers: HashMap<FdbKey, Moves>,
}

/// The place of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// The number of its port.
    pub port: u32,
    /// The kernel forgets it when it gets no frame from it.
    pub ages: bool,
    /// Of the last reading of all entries that had it.
    generation: u32,
    /// The tick from which on it is used.
    due: u32,
}

impl Known {
    /// An address behind a port, which ages or not.
    pub fn new(port: u32, ages: bool) -> Self {
        Self {
            port,
            ages,
            generation: 0,
            due: 0,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Moves {
    since: Instant,
    count: u32,
}

/// A write to the map of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    /// The address is behind this port.
    Set(FdbKey, Known),
    /// The address is left to the kernel.
    Remove(FdbKey),
}

/// An address that moves again and again, as in a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flapping {
    /// The address.
    pub key: FdbKey,
    /// Its port before, and now.
    pub ports: [u32; 2],
}

/// The key of an entry.
pub fn key(entry: &FdbEntry) -> FdbKey {
    FdbKey {
        mac: entry.mac,
        vlan: entry.vlan,
    }
}

impl Fdb {
    /// The number of addresses.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// The number of addresses behind a port.
    pub fn behind(&self, port: u32) -> u32 {
        self.by_port.get(&port).copied().unwrap_or(0)
    }

    /// The port of an address.
    pub fn port(&self, key: FdbKey) -> Option<u32> {
        self.entries.get(&key).map(|known| known.port)
    }

    /// Takes an entry of the kernel. `port` is the number of its port; none where that is not accelerated.
    pub fn learn(&mut self, entry: &FdbEntry, port: Option<u32>) -> Option<Write> {
        let key = key(entry);
        // The bridge's own address, and one that waits for an authentication, are for the kernel.
        let Some(port) = port.filter(|_| !entry.local && !entry.locked) else {
            return self.forget(key);
        };
        let known = Known {
            port,
            generation: self.generation,
            ages: !entry.static_,
            due: 0,
        };
        let before = self.entries.insert(key, known);
        if let Some(before) = before
            && (before.port, before.ages) == (port, known.ages)
        {
            self.set_due(key, before.due);
            return None;
        }
        if let Some(before) = before {
            self.add(before.port, -1);
        }
        self.add(port, 1);
        Some(Write::Set(key, known))
    }

    /// Has an address be used from a tick on.
    pub fn set_due(&mut self, key: FdbKey, tick: u32) {
        if let Some(known) = self.entries.get_mut(&key) {
            known.due = tick;
        }
    }

    /// Whether an address is to be used at a tick.
    pub fn is_due(&self, key: FdbKey, tick: u32) -> bool {
        let known = self.entries.get(&key);
        known.is_some_and(|known| tick.wrapping_sub(known.due).cast_signed() >= 0)
    }

    /// Counts the move of an address between ports, and returns it where it has moved more often than
    /// `most` times within ten seconds.
    pub fn note_move(
        &mut self,
        entry: &FdbEntry,
        port: Option<u32>,
        most: u32,
    ) -> Option<Flapping> {
        let key = key(entry);
        let (before, port) = (self.port(key)?, port?);
        if before == port {
            return None;
        }
        if self.movers.len() >= MOST_MOVERS {
            self.movers.retain(|_, moves| moves.since.elapsed() < MOVES);
        }
        if self.movers.len() >= MOST_MOVERS && !self.movers.contains_key(&key) {
            return None;
        }
        let moves = self.movers.entry(key).or_insert(Moves {
            since: Instant::now(),
            count: 0,
        });
        if moves.since.elapsed() >= MOVES {
            *moves = Moves {
                since: Instant::now(),
                count: 0,
            };
        }
        moves.count += 1;
        // Once in the ten seconds.
        (moves.count == most.max(1)).then_some(Flapping {
            key,
            ports: [before, port],
        })
    }

    /// Forgets an address.
    pub fn forget(&mut self, key: FdbKey) -> Option<Write> {
        let known = self.entries.remove(&key)?;
        self.add(known.port, -1);
        Some(Write::Remove(key))
    }

    /// Begins to read all entries anew: those that [`Fdb::learn`] does not see from now on are
    /// [`Fdb::unseen`].
    pub fn begin(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }

    /// The addresses that were not seen since [`Fdb::begin`].
    pub fn unseen(&self) -> Vec<FdbKey> {
        self.keys_of(|known| known.generation != self.generation)
    }

    /// Forgets the addresses behind a port.
    pub fn forget_port(&mut self, port: u32) -> Vec<Write> {
        let keys = self.keys_of(|known| known.port == port);
        keys.iter().filter_map(|key| self.forget(*key)).collect()
    }

    fn keys_of(&self, wanted: impl Fn(&Known) -> bool) -> Vec<FdbKey> {
        let entries = self.entries.iter();
        let wanted = entries.filter(|(_, known)| wanted(known));
        wanted.map(|(key, _)| *key).collect()
    }

    /// All addresses, for maps that have none.
    pub fn all(&self) -> impl Iterator<Item = (FdbKey, Known)> {
        self.entries.iter().map(|(key, known)| (*key, *known))
    }

    fn add(&mut self, port: u32, by: i32) {
        let count = self.by_port.entry(port).or_default();
        *count = count.saturating_add_signed(by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(last: u8) -> FdbEntry {
        FdbEntry {
            mac: [2, 0, 0, 0, 0, last],
            ..FdbEntry::default()
        }
    }

    /// The port that an address is written behind.
    fn written(write: Option<Write>) -> u32 {
        match write {
            Some(Write::Set(_, known)) => known.port,
            other => panic!("no address is set: {other:?}"),
        }
    }

    #[test]
    fn a_move_is_written_and_counted() {
        let mut fdb = Fdb::default();
        let one = entry(1);
        assert_eq!(written(fdb.learn(&one, Some(3))), 3);
        assert_eq!(fdb.learn(&one, Some(3)), None, "nothing has changed");
        assert_eq!(fdb.behind(3), 1);
        assert_eq!(written(fdb.learn(&one, Some(4))), 4);
        assert_eq!((fdb.behind(3), fdb.behind(4)), (0, 1));
        let fixed = FdbEntry {
            static_: true,
            ..one
        };
        assert_eq!(written(fdb.learn(&fixed, Some(4))), 4, "it ages no more");
        assert_eq!(fdb.learn(&one, None), Some(Write::Remove(key(&one))));
        assert_eq!((fdb.behind(4), fdb.count()), (0, 0));
        assert_eq!(fdb.forget(key(&one)), None);
    }

    #[test]
    fn addresses_for_the_kernel_are_left_to_it() {
        let mut fdb = Fdb::default();
        let local = FdbEntry {
            local: true,
            ..entry(1)
        };
        let locked = FdbEntry {
            locked: true,
            ..entry(2)
        };
        assert_eq!(fdb.learn(&local, Some(1)), None);
        assert_eq!(fdb.learn(&locked, Some(1)), None);
        assert_eq!(written(fdb.learn(&entry(1), Some(1))), 1);
        assert_eq!(fdb.learn(&local, Some(1)), Some(Write::Remove(key(&local))));
    }

    #[test]
    fn those_that_were_not_seen_are_known() {
        let mut fdb = Fdb::default();
        fdb.learn(&entry(1), Some(1));
        fdb.learn(&entry(2), Some(1));
        fdb.begin();
        fdb.learn(&entry(2), Some(1));
        fdb.learn(&entry(3), Some(2));
        assert_eq!(fdb.unseen(), [key(&entry(1))]);
        assert_eq!(fdb.count(), 3);
        assert_eq!(fdb.forget_port(2), [Write::Remove(key(&entry(3)))]);
    }

    #[test]
    fn an_address_that_moves_often_is_told_once() {
        let mut fdb = Fdb::default();
        let one = entry(1);
        let mut told = 0;
        for turn in 0..20 {
            let port = Some(turn % 2);
            if let Some(flapping) = fdb.note_move(&one, port, 5) {
                told += 1;
                assert_eq!(flapping.key, key(&one));
            }
            fdb.learn(&one, port);
        }
        assert_eq!(told, 1);
        assert_eq!(fdb.note_move(&entry(2), Some(1), 1), None, "it is new");
    }
}
