//! Slices of the time of a load, in constant memory.

use super::{MOST_SLICES, Slice};

/// Slices, two of which become one whenever there are too many.
#[derive(Default)]
pub struct Slices {
    kept: Vec<Slice>,
    /// The one that is being gathered, and of how many.
    open: Slice,
    gathered: usize,
    /// How often two became one.
    halved: u32,
}

impl Slices {
    /// Adds one.
    pub fn push(&mut self, slice: &Slice) {
        self.open = self.open.join(slice);
        self.gathered += 1;
        if self.gathered < 1 << self.halved {
            return;
        }
        self.close();
        if self.kept.len() == MOST_SLICES {
            let pairs = self.kept.chunks(2);
            self.kept = pairs
                .map(|pair| pair.iter().fold(Slice::default(), |sum, it| sum.join(it)))
                .collect();
            self.halved += 1;
        }
    }

    /// The time in all of them, in seconds.
    pub fn seconds(&self) -> f64 {
        let kept: u64 = self.kept.iter().map(|slice| slice.wall_ns).sum();
        (kept + self.open.wall_ns) as f64 / 1e9
    }

    fn close(&mut self) {
        if self.open.wall_ns > 0 {
            self.kept.push(self.open);
        }
        self.open = Slice::default();
        self.gathered = 0;
    }

    /// All that are kept, in the order of time.
    pub fn all(mut self) -> Vec<Slice> {
        self.close();
        self.kept
    }
}
