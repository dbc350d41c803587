//! Numbers that are drawn, the same in each run.

use std::net::IpAddr;

use crate::rule::Family;

/// A generator of pseudo-random numbers (`SplitMix64`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn number(&mut self) -> u32 {
        (self.next() >> 32) as u32
    }

    /// A number below `bound`; 0 for a bound of 0.
    pub fn below(&mut self, bound: u32) -> u32 {
        ((u64::from(self.number()) * u64::from(bound)) >> 32) as u32
    }
}

/// `SipHash-2-4` of an address in network order.
pub(super) fn sip_hash(key: [u32; 4], address: IpAddr) -> u64 {
    // The key is in memory as big-endian words, and read as little-endian 64-bit halves.
    let half = |first: u32, second: u32| {
        u64::from(first.swap_bytes()) | u64::from(second.swap_bytes()) << 32
    };
    let (k0, k1) = (half(key[0], key[1]), half(key[2], key[3]));
    let mut state = Sip([
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ]);
    match address {
        IpAddr::V4(address) => {
            let octets = address.octets();
            let word = u32::from_le_bytes(octets);
            state.block(u64::from(word) | 4 << 56);
        }
        IpAddr::V6(address) => {
            let octets = address.octets();
            for half in octets.chunks_exact(8) {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(half);
                state.block(u64::from_le_bytes(bytes));
            }
            state.block(16 << 56);
        }
    }
    state.finish()
}

struct Sip([u64; 4]);

impl Sip {
    fn round(&mut self) {
        let [a, b, c, d] = &mut self.0;
        *a = a.wrapping_add(*b);
        *b = b.rotate_left(13) ^ *a;
        *a = a.rotate_left(32);
        *c = c.wrapping_add(*d);
        *d = d.rotate_left(16) ^ *c;
        *a = a.wrapping_add(*d);
        *d = d.rotate_left(21) ^ *a;
        *c = c.wrapping_add(*b);
        *b = b.rotate_left(17) ^ *c;
        *c = c.rotate_left(32);
    }

    fn block(&mut self, block: u64) {
        self.0[3] ^= block;
        self.round();
        self.round();
        self.0[0] ^= block;
    }

    fn finish(&mut self) -> u64 {
        self.0[2] ^= 0xff;
        for _ in 0..4 {
            self.round();
        }
        self.0.iter().fold(0, |all, part| all ^ part)
    }
}

/// An address as a number: the lowest 32 bits for IPv4.
pub(super) fn to_number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

/// The address of a number.
pub(super) fn from_number(number: u128, family: Family) -> IpAddr {
    match family {
        Family::Inet => IpAddr::V4((number as u32).into()),
        Family::Inet6 => IpAddr::V6(number.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sip_hash_is_that_of_its_paper() {
        // Appendix A of the paper: key 00..0f, here with 16 bytes 00..0f (from the reference vectors).
        let key = [0x0001_0203, 0x0405_0607, 0x0809_0a0b, 0x0c0d_0e0f];
        let address = IpAddr::from([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!(sip_hash(key, address), 0x3f2a_cc7f_57c2_9bdb);
        assert_eq!(
            sip_hash(key, IpAddr::from([0, 1, 2, 3])),
            0xcf27_94e0_2771_87b7
        );
    }

    #[test]
    fn numbers_stay_below_their_bound() {
        let mut random = Random::new(1);
        assert_eq!(random.below(0), 0);
        assert!((0..1000).all(|_| random.below(7) < 7));
    }
}
