//! The programs' table of addresses: buckets in memory that is shared with the kernel, so that writing an
//! address takes no system call. bpf/switch.h describes it.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use zerocopy::{FromBytes as _, IntoBytes as _};

use super::abi::{BUCKET_SLOTS, BUCKETS, FdbKey, Features, Place, place_flag};
use crate::bpf::MappedArray;

/// The table.
pub struct Table {
    memory: MappedArray,
    features: Features,
}

/// An address found no room.
#[derive(Debug, PartialEq, Eq)]
pub struct Full;

impl Place {
    fn word(self) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(self.as_bytes());
        u64::from_ne_bytes(bytes)
    }

    fn of(word: u64) -> Self {
        Self::read_from_bytes(&word.to_ne_bytes()).unwrap_or_default()
    }
}

impl Table {
    /// The table in the programs' memory, with the constants that they find addresses by.
    pub fn new(memory: MappedArray, features: Features) -> Self {
        Self { memory, features }
    }

    /// The keys of a bucket, and their places.
    fn bucket(&self, number: u32) -> (&[AtomicU64], &[AtomicU64]) {
        let words = self.memory.entry(number as usize).unwrap_or_default();
        words.split_at(BUCKET_SLOTS.min(words.len()))
    }

    /// The slots that an address may have: each its key and its place.
    fn slots(&self, key: u64) -> impl Iterator<Item = (&AtomicU64, &AtomicU64)> {
        let features = &self.features;
        let first = (key.wrapping_mul(features.hash_factor) >> features.hash_shift) as u32;
        let buckets = (0..BUCKETS).map(move |next| first.wrapping_add(next) & features.bucket_mask);
        buckets.flat_map(|number| {
            let (keys, places) = self.bucket(number);
            keys.iter().zip(places)
        })
    }

    fn find(&self, key: u64) -> Option<&AtomicU64> {
        // Only this thread writes keys.
        let mut slots = self.slots(key);
        let found = slots.find(|(there, _)| there.load(Ordering::Relaxed) == key);
        found.map(|(_, place)| place)
    }

    /// Writes the place of an address, which the programs do not use until [`Table::activate`].
    ///
    /// # Errors
    ///
    /// Where all slots that it may have are taken.
    pub fn write(&self, key: FdbKey, port: u16, ages: bool, epoch: u32) -> Result<(), Full> {
        let key = key.word();
        let place = Place {
            port,
            flags: if ages { place_flag::AGES } else { 0 },
            moved: 0,
            used: epoch,
        };
        if let Some(there) = self.find(key) {
            there.store(place.word(), Ordering::Release);
            return Ok(());
        }
        let mut slots = self.slots(key);
        let free = slots.find(|(there, _)| there.load(Ordering::Relaxed) == 0);
        let (free, there) = free.ok_or(Full)?;
        there.store(place.word(), Ordering::Release);
        free.store(key, Ordering::Release);
        Ok(())
    }

    /// Removes an address.
    pub fn remove(&self, key: FdbKey) {
        let key = key.word();
        let mut slots = self.slots(key);
        if let Some((there, place)) = slots.find(|(there, _)| there.load(Ordering::Relaxed) == key)
        {
            // A program that has just read the key must not use the place.
            Self::change(place, |place| place.flags &= !place_flag::ACTIVE);
            there.store(0, Ordering::Release);
        }
    }

    /// Has the programs use an address from now on.
    pub fn activate(&self, key: FdbKey) {
        if let Some(place) = self.find(key.word()) {
            Self::change(place, |place| place.flags |= place_flag::ACTIVE);
        }
    }

    /// Whether an address was seen at another port since it was written.
    pub fn has_moved(&self, key: FdbKey) -> bool {
        self.find(key.word())
            .is_some_and(|place| Place::of(place.load(Ordering::Acquire)).moved != 0)
    }

    /// Changes a place to which the programs may write at the same time.
    fn change(place: &AtomicU64, change: impl Fn(&mut Place)) {
        let changed = |word| {
            let mut place = Place::of(word);
            change(&mut place);
            Some(place.word())
        };
        // It always changes, so it never fails.
        let _ = place.fetch_update(Ordering::AcqRel, Ordering::Acquire, changed);
    }
}
