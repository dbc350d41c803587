//! The layout of a recording.

use flate2::Crc;

/// The first bytes of a recording.
pub const MAGIC: &[u8] = b"weir top recording 1\n";

/// The first bytes of a frame, by which it is found behind a damaged one.
pub const MARK: &[u8; 4] = b"\xf5WF\n";

/// The bytes of a header.
pub const BYTES: usize = 24;

/// The longest body of a frame. More than a host of thousands of sockets and devices has.
pub const MOST_BYTES: u32 = 64 << 20;

/// The bytes before the body of a frame: the mark, the length of the body, the checksum of the rest (CRC-32),
/// the kind, three zeros and the time; integers are little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The bytes of the body.
    pub length: u32,
    /// The checksum of the kind, the zeros, the time and the body.
    pub checksum: u32,
    /// Whether the body is a whole frame; else it is a difference.
    pub is_key: bool,
    /// The time of the frame: `CLOCK_REALTIME` in nanoseconds.
    pub realtime_ns: u64,
}

impl Header {
    /// The header of this body; none if it is too long.
    pub fn of(body: &[u8], is_key: bool, realtime_ns: u64) -> Option<Self> {
        let length = u32::try_from(body.len()).ok()?;
        let mut header = Self {
            length,
            checksum: 0,
            is_key,
            realtime_ns,
        };
        header.checksum = header.checksum_of(body);
        (length <= MOST_BYTES).then_some(header)
    }

    /// Its bytes.
    pub fn bytes(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..4].copy_from_slice(MARK);
        bytes[4..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.checksum.to_le_bytes());
        bytes[12] = u8::from(self.is_key);
        bytes[16..].copy_from_slice(&self.realtime_ns.to_le_bytes());
        bytes
    }

    /// The header that these bytes are; none if they are no header.
    pub fn read(bytes: &[u8; BYTES]) -> Option<Self> {
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[at..at + 4]);
            u32::from_le_bytes(word)
        };
        let is_known = bytes.starts_with(MARK) && bytes[12] <= 1 && bytes[13..16] == [0; 3];
        (is_known && word(4) <= MOST_BYTES).then(|| Self {
            length: word(4),
            checksum: word(8),
            is_key: bytes[12] == 1,
            realtime_ns: u64::from(word(16)) | u64::from(word(20)) << 32,
        })
    }

    /// Whether the body is the one of this header.
    pub fn fits(&self, body: &[u8]) -> bool {
        body.len() as u64 == u64::from(self.length) && self.checksum_of(body) == self.checksum
    }

    fn checksum_of(&self, body: &[u8]) -> u32 {
        let mut crc = Crc::new();
        crc.update(&self.bytes()[12..]);
        crc.update(body);
        crc.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let header = Header::of(b"body", true, 0x0102_0304_0506_0708).expect("short");
        assert_eq!(Header::read(&header.bytes()), Some(header));
        assert!(header.fits(b"body") && !header.fits(b"bodY") && !header.fits(b"bod"));
        for at in [0, 3, 12, 13, 15] {
            let mut bytes = header.bytes();
            bytes[at] ^= 0x80;
            assert_eq!(Header::read(&bytes), None, "byte {at}");
        }
        for at in 16..BYTES {
            let mut bytes = header.bytes();
            bytes[at] ^= 1;
            let changed = Header::read(&bytes).expect("a header");
            assert!(!changed.fits(b"body"), "byte {at}");
        }
    }
}
