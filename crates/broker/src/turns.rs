//! Turns at something scarce: at most so many at one time, of one party fewer. The next one is of the party that
//! has had none for the longest time, and of its member of which the same is true.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

/// Turns of parties that are known by a key.
#[derive(Debug)]
pub struct Turns<K: Ord> {
    total: usize,
    each: usize,
    state: Mutex<State<K>>,
}

#[derive(Debug)]
struct State<K> {
    running: usize,
    clock: u64,
    /// Those that have a turn or wait for one.
    parties: BTreeMap<K, Party>,
}

#[derive(Debug, Default)]
struct Party {
    running: usize,
    /// Those that wait.
    members: BTreeMap<u32, Member>,
    /// When it last got a turn, or came.
    last: u64,
}

/// A part of a party, such as a process of a user.
#[derive(Debug, Default)]
struct Member {
    waiting: VecDeque<Arc<Waiting>>,
    last: u64,
}

/// A thread that waits for its turn.
#[derive(Debug)]
struct Waiting {
    thread: Thread,
    has_turn: AtomicBool,
}

/// A turn, which ends when it is dropped.
#[derive(Debug)]
#[must_use = "dropped, the turn is over"]
pub struct Turn<'t, K: Ord + Clone> {
    turns: &'t Turns<K>,
    key: K,
}

impl<K: Ord + Clone> Turns<K> {
    /// At most `total` at one time, and `each` of one party.
    pub const fn new(total: usize, each: usize) -> Self {
        Self {
            total,
            each,
            state: Mutex::new(State {
                running: 0,
                clock: 0,
                parties: BTreeMap::new(),
            }),
        }
    }

    /// Waits for a turn of a member of a party.
    pub fn take(&self, key: K, member: u32) -> Turn<'_, K> {
        let me = Arc::new(Waiting {
            thread: std::thread::current(),
            has_turn: AtomicBool::new(false),
        });
        let mut state = self.state();
        state.clock += 1;
        let last = state.clock;
        let new = || Party {
            last,
            ..Party::default()
        };
        let party = state.parties.entry(key.clone()).or_insert_with(new);
        let new = || Member {
            last,
            ..Member::default()
        };
        let member = party.members.entry(member).or_insert_with(new);
        member.waiting.push_back(Arc::clone(&me));
        state.give(self.total, self.each);
        drop(state);
        while !me.has_turn.load(Ordering::Acquire) {
            std::thread::park();
        }
        Turn { turns: self, key }
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
        // Each change is one step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Ord> State<K> {
    /// Gives the turns that are free.
    fn give(&mut self, total: usize, each: usize) {
        while self.running < total {
            let may = |party: &&mut Party| party.running < each && !party.members.is_empty();
            let parties = self.parties.values_mut().filter(may);
            let Some(party) = parties.min_by_key(|party| party.last) else {
                return;
            };
            self.clock += 1;
            let Some(next) = party.next(self.clock) else {
                return;
            };
            party.running += 1;
            self.running += 1;
            // Pairs with the load of `take`, which may see it before it is woken.
            next.has_turn.store(true, Ordering::Release);
            next.thread.unpark();
        }
    }
}

impl Party {
    /// The thread whose turn it is.
    fn next(&mut self, now: u64) -> Option<Arc<Waiting>> {
        self.last = now;
        let (&number, member) = self.members.iter_mut().min_by_key(|(_, it)| it.last)?;
        member.last = now;
        let next = member.waiting.pop_front();
        if member.waiting.is_empty() {
            self.members.remove(&number);
        }
        next
    }
}

impl<K: Ord + Clone> Drop for Turn<'_, K> {
    fn drop(&mut self) {
        let mut state = self.turns.state();
        state.running -= 1;
        if let Some(party) = state.parties.get_mut(&self.key) {
            party.running -= 1;
            if party.running == 0 && party.members.is_empty() {
                state.parties.remove(&self.key);
            }
        }
        state.give(self.turns.total, self.turns.each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    fn waiting(turns: &Turns<u32>) -> usize {
        let state = turns.state();
        let members = state.parties.values().flat_map(|it| it.members.values());
        members.map(|it| it.waiting.len()).sum()
    }

    #[test]
    fn one_party_never_has_all_and_turns_go_round() {
        let turns: Turns<u32> = Turns::new(2, 1);
        let first = turns.take(1, 0);
        // The second place is not for the same party.
        let (sender, order) = channel();
        std::thread::scope(|scope| {
            let turns = &turns;
            let mut expected = 0;
            let mut wait = |key: u32, member: u32| {
                let sender = sender.clone();
                scope.spawn(move || {
                    let turn = turns.take(key, member);
                    sender.send((key, member)).expect("the test waits");
                    drop(turn);
                });
                expected += 1;
                while waiting(turns) < expected {
                    std::thread::sleep(Duration::from_millis(1));
                }
            };
            let second = turns.take(2, 0);
            for (key, member) in [(1, 5), (1, 5), (1, 6), (2, 0), (3, 0), (4, 0)] {
                wait(key, member);
            }
            assert!(order.try_recv().is_err(), "all turns are taken");
            drop(second);
            // Party 1 has its turn still: the others come, the one that came first being first.
            let next: Vec<u32> = (0..3).map(|_| order.recv().expect("a turn").0).collect();
            assert_eq!(next, [2, 3, 4]);
            assert!(
                order.recv_timeout(Duration::from_millis(20)).is_err(),
                "one of party 1 at a time"
            );
            drop(first);
            // Of its members, too, each has its turn.
            let next: Vec<u32> = order.iter().take(3).map(|(_, member)| member).collect();
            assert_eq!(next, [5, 6, 5]);
        });
        assert!(turns.state().parties.is_empty(), "nothing is left");
    }
}
