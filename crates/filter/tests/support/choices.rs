//! Decisions of a generator, taken from bytes: of a fuzzer, or of a random sequence.

/// Bytes that decide. Where they end, each decision is the first alternative.
pub struct Choices<'b> {
    bytes: &'b [u8],
}

impl<'b> Choices<'b> {
    pub fn new(bytes: &'b [u8]) -> Self {
        Self { bytes }
    }

    /// A number below `count`.
    pub fn below(&mut self, count: usize) -> usize {
        let Some((&first, rest)) = self.bytes.split_first() else {
            return 0;
        };
        self.bytes = rest;
        if count <= 256 {
            return usize::from(first) % count.max(1);
        }
        let second = self.below(256);
        (usize::from(first) << 8 | second) % count
    }

    /// True once in `of` times.
    pub fn once_in(&mut self, of: usize) -> bool {
        self.below(of) == 1 % of
    }

    pub fn pick<'t, T>(&mut self, all: &'t [T]) -> &'t T {
        &all[self.below(all.len())]
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// A sequence of random bytes that a seed repeats (`xorshift64*`).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| (self.next() >> 40) as u8).collect()
    }
}
