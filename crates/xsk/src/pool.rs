//! The free chunks that all threads share: a stack of indices, taken and returned many at a time.
//!
//! A lock-free stack as R. K. Treiber described it (IBM RJ 5118, 1986): each index names the one below
//! it, and one word has the top. The word also counts changes, so that a thread which read the top
//! before others took and returned it does not take it for unchanged. The last one returned is the
//! first one taken: its bytes are the likeliest to be in a cache.
#![cfg_attr(loom, allow(dead_code))] // Loom builds rings and pool alone.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::delay::{self, Point};

/// Bits of the top's index plus one; the others count changes. A thread would have to sleep through
/// 2³⁹ changes, hours of nothing else, to see the same word again.
const INDEX_BITS: u32 = 25;
const INDEX: u64 = (1 << INDEX_BITS) - 1;

/// Most indices of a pool.
pub(crate) const MOST: u32 = 1 << (INDEX_BITS - 1);

/// A stack of the indices below a number, each in it at most once.
#[derive(Debug)]
pub(crate) struct Pool {
    /// The top's index plus one, or 0 when the stack is empty, and the number of changes.
    top: AtomicU64,
    /// For each index in the stack the one below it, plus one, or 0.
    below: Box<[AtomicU32]>,
}

impl Pool {
    /// A pool of all indices below `count`, which is at most [`MOST`]; the lowest is the top.
    pub(crate) fn full(count: u32) -> Self {
        assert!(count <= MOST, "the top has room for the index");
        let below =
            (1..=count).map(|index| AtomicU32::new(if index < count { index + 1 } else { 0 }));
        Self {
            top: AtomicU64::new(u64::from(count > 0)),
            below: below.collect(),
        }
    }

    /// Takes indices into the first entries of `taken`; returns their number, less than asked for
    /// only when no more are there.
    pub(crate) fn take(&self, taken: &mut [u32]) -> usize {
        // Acquire: pairs with the release in `put`, so that all that was done to the chunks before
        // they were returned comes before their next use.
        let mut top = self.top.load(Ordering::Acquire);
        loop {
            // Others may change the stack during the walk. It then reads other indices, all in
            // range, and the exchange fails.
            let mut next = (top & INDEX) as u32;
            let mut count = 0;
            for slot in taken.iter_mut() {
                let top = next.checked_sub(1);
                let Some((index, below)) = top.and_then(|i| Some((i, self.below.get(i as usize)?)))
                else {
                    break;
                };
                *slot = index;
                next = below.load(Ordering::Relaxed);
                count += 1;
            }
            if count == 0 {
                return 0;
            }
            delay::at(Point::PoolTake);
            match self.exchange(top, next, Ordering::Relaxed) {
                Ok(()) => return count,
                Err(now) => top = now,
            }
        }
    }

    /// Returns indices, the last of which is taken first.
    pub(crate) fn put(&self, indices: &[u32]) {
        let Some((&first, rest)) = indices.split_first() else {
            return;
        };
        let mut last = first;
        for &index in rest {
            self.link(index, last + 1);
            last = index;
        }
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            self.link(first, (top & INDEX) as u32);
            delay::at(Point::PoolPut);
            match self.exchange(top, last + 1, Ordering::Release) {
                Ok(()) => return,
                Err(now) => top = now,
            }
        }
    }

    /// The number of indices; while others take and return some it is a guess, at most the number of
    /// all.
    #[cfg(not(loom))]
    pub(crate) fn len(&self) -> u32 {
        let mut next = (self.top.load(Ordering::Acquire) & INDEX) as u32;
        let mut count = 0;
        while let Some(below) = next.checked_sub(1).and_then(|i| self.below.get(i as usize))
            && count < self.below.len() as u32
        {
            next = below.load(Ordering::Relaxed);
            count += 1;
        }
        count
    }

    fn link(&self, index: u32, below: u32) {
        if let Some(entry) = self.below.get(index as usize) {
            entry.store(below, Ordering::Relaxed);
        }
    }

    fn exchange(&self, from: u64, top: u32, success: Ordering) -> Result<(), u64> {
        let changes = (from >> INDEX_BITS).wrapping_add(1);
        let to = changes << INDEX_BITS | u64::from(top);
        self.top
            .compare_exchange_weak(from, to, success, Ordering::Acquire)
            .map(drop)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Pool;
    use std::collections::BTreeSet;

    #[test]
    fn the_last_returned_is_the_first_taken() {
        let pool = Pool::full(4);
        let mut taken = [9; 6];
        assert_eq!(pool.take(&mut taken[..3]), 3);
        assert_eq!(taken[..3], [0, 1, 2]);
        pool.put(&[1, 0]);
        pool.put(&[2]);
        assert_eq!(pool.take(&mut taken), 4);
        assert_eq!(taken[..4], [2, 0, 1, 3]);
        assert_eq!(pool.take(&mut taken), 0);
        pool.put(&[]);
        assert_eq!(pool.take(&mut taken), 0);
    }

    #[test]
    fn threads_take_each_index_once() {
        const THREADS: u32 = 4;
        let rounds = if cfg!(miri) { 20 } else { 20_000 };
        let pool = Pool::full(64);
        let held: BTreeSet<u32> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let pool = &pool;
                    scope.spawn(move || {
                        let mut held = vec![];
                        for round in 0..rounds {
                            let mut taken = [0; 7];
                            let count = pool.take(&mut taken[..(round + thread as usize) % 8]);
                            held.extend_from_slice(&taken[..count]);
                            let keep = held.len().min(round % 9);
                            pool.put(&held.split_off(keep));
                        }
                        held
                    })
                })
                .collect();
            let held = workers
                .into_iter()
                .map(|worker| worker.join().expect("no panic"));
            held.flatten().collect()
        });
        let mut rest = [0; 64];
        let count = pool.take(&mut rest);
        assert_eq!(count + held.len(), 64);
        assert!(rest[..count].iter().all(|index| !held.contains(index)));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::Pool;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    /// Two threads take and return indices; each index has a cell that only its holder touches, which
    /// loom checks.
    fn exclusive(first: &'static [usize], second: &'static [usize]) {
        let mut builder = loom::model::Builder::new();
        // All orders of more preemptions would take minutes.
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let shared = Arc::new((Pool::full(3), [0, 1, 2].map(|_| UnsafeCell::new(0_u32))));
            let workers = [first, second].map(|sizes| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let (pool, cells) = &*shared;
                    for &size in sizes {
                        let mut taken = [0; 3];
                        let count = pool.take(&mut taken[..size]);
                        for &index in &taken[..count] {
                            cells[index as usize].with_mut(|cell| {
                                // SAFETY: needed to write through loom's cell, which checks that
                                // nobody else does.
                                #[allow(unsafe_code)]
                                unsafe {
                                    *cell += 1;
                                }
                            });
                        }
                        pool.put(&taken[..count]);
                    }
                })
            });
            for worker in workers {
                worker.join().expect("no panic");
            }
            let mut taken = [0; 3];
            assert_eq!(shared.0.take(&mut taken), 3);
            taken.sort_unstable();
            assert_eq!(taken, [0, 1, 2]);
        });
    }

    #[test]
    fn loom_an_index_has_one_holder() {
        exclusive(&[1, 2], &[2]);
    }

    #[test]
    fn loom_the_top_that_comes_back_is_not_taken_for_unchanged() {
        exclusive(&[2], &[1, 1]);
    }
}
