//! The frame of all traffic: its layout, its sequence number, and the check of a received one.
//!
//! ```text
//!  0      14      34    42         50                size
//!  | Ether | IPv4  | UDP | sequence | byte i is i&0xff |
//! ```
//!
//! The sequence number is big-endian and counts from 0. The UDP checksum is always
//! present and covers it. Sums are taken in the machine's byte order: a ones' complement
//! sum does not depend on it (RFC 1071, section 2).

use std::net::Ipv4Addr;

use anyhow::{Result, ensure};

/// MAC address of the application's side.
pub const APP_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x0a];
/// MAC address of the load's side.
pub const LOAD_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x0b];

/// The destination of the load's frames, of the network for benchmarks (RFC 2544, section C.2.2).
pub const APP_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
/// Their source.
pub const LOAD_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// The length of the prefix of that network in a lab.
pub const PREFIX: u8 = 24;
/// Their UDP ports, of source and destination.
pub const PORT: u16 = 9;

/// The shortest frame, without its FCS.
pub const MIN_SIZE: usize = 64;
/// The longest frame, without its FCS.
pub const MAX_SIZE: usize = 9000;
/// The longest frame that XDP makes for sure: the kernel keeps it, and what it notes of it, in one page.
pub const MAX_LIVE_SIZE: usize = 1500;
/// The longest frame that each receiver keeps in one chunk of memory: that of an MTU up to which XDP takes
/// programs for single buffers, with pages of 4096 bytes. A longer one comes in several, since no chunk is larger than
/// such a page.
pub const MAX_LINEAR_SIZE: usize = 3506 + ETHERNET_HEADER;

/// Length of the Ethernet header.
pub const ETHERNET_HEADER: usize = IP;

const IP: usize = 14;
const IP_ADDRESSES: usize = 26;
pub(super) const UDP: usize = 34;
pub(super) const UDP_CHECKSUM: usize = 40;
pub(super) const SEQUENCE: usize = 42;
pub(crate) const PATTERN: usize = 50;
const UDP_PROTOCOL: u8 = 17;

/// A frame without a sequence number, and the sum of its constant part.
#[derive(Debug, Clone)]
pub struct Template {
    bytes: Vec<u8>,
    sum: u64,
}

impl Template {
    /// A frame of `size` bytes from one MAC address to another.
    pub fn new(size: usize, source: [u8; 6], destination: [u8; 6]) -> Result<Self> {
        ensure!(
            (MIN_SIZE..=MAX_SIZE).contains(&size),
            "a frame of {size} bytes cannot be sent: choose a size from {MIN_SIZE} to {MAX_SIZE}"
        );
        let mut bytes: Vec<u8> = (0..size).map(|i| i as u8).collect();
        bytes[..6].copy_from_slice(&destination);
        bytes[6..12].copy_from_slice(&source);
        bytes[12..IP].copy_from_slice(&[0x08, 0x00]);
        bytes[IP..UDP].copy_from_slice(&ipv4_header(size - IP));
        bytes[UDP..UDP + 2].copy_from_slice(&PORT.to_be_bytes());
        bytes[UDP + 2..UDP + 4].copy_from_slice(&PORT.to_be_bytes());
        bytes[UDP + 4..UDP + 6].copy_from_slice(&((size - UDP) as u16).to_be_bytes());
        bytes[UDP_CHECKSUM..PATTERN].fill(0);
        let sum = udp_sum(&bytes);
        let mut template = Self { bytes, sum };
        let unstamped = template.clone();
        unstamped.stamp(&mut template.bytes, 0);
        Ok(template)
    }

    /// The whole frame, stamped with sequence number 0.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Writes `sequence` and the checksum that goes with it into a copy of this template.
    ///
    /// Only ten bytes are written and none is read, independent of the frame's size.
    ///
    /// # Panics
    ///
    /// If `frame` is shorter than [`MIN_SIZE`].
    #[inline]
    pub fn stamp(&self, frame: &mut [u8], sequence: u64) {
        let sequence = sequence.to_be_bytes();
        let checksum = match !fold(self.sum + sum(&sequence)) {
            0 => 0xffff, // 0 on the wire would mean "no checksum"
            checksum => checksum,
        };
        let tail = &mut frame[UDP_CHECKSUM..PATTERN];
        tail[..2].copy_from_slice(&checksum.to_ne_bytes());
        tail[2..].copy_from_slice(&sequence);
    }
}

fn ipv4_header(total: usize) -> [u8; 20] {
    let mut header = [0; 20];
    header[0] = 0x45;
    header[8] = 64;
    header[9] = UDP_PROTOCOL;
    header[12..16].copy_from_slice(&LOAD_ADDRESS.octets());
    header[16..].copy_from_slice(&APP_ADDRESS.octets());
    header[2..4].copy_from_slice(&(total as u16).to_be_bytes());
    let checksum = !fold(sum(&header));
    header[10..12].copy_from_slice(&checksum.to_ne_bytes());
    header
}

/// The sum that the UDP checksum completes: pseudo header, UDP header and payload.
#[inline]
fn udp_sum(frame: &[u8]) -> u64 {
    pseudo_sum(frame.len()) + sum(&frame[IP_ADDRESSES..])
}

/// The part of it that is not in a frame of this length: protocol, and length once more.
#[inline]
fn pseudo_sum(len: usize) -> u64 {
    let length = (len - UDP) as u16;
    u64::from(length.to_be()) + u64::from(u16::from(UDP_PROTOCOL).to_be())
}

/// Ones' complement sum, not yet folded. 32-bit words in a 64-bit sum leave room for
/// more carries than the longest frame can make.
#[inline]
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut total: u64 = words
        .iter()
        .map(|w| u64::from(u32::from_ne_bytes(*w)))
        .sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    total += u64::from(u32::from_ne_bytes(last));
    total
}

#[inline]
pub(crate) fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    sum as u16
}

/// The sequence number of an intact frame of `size` bytes; `None` if anything in it is wrong.
#[inline]
pub fn check(frame: &[u8], size: usize) -> Option<u64> {
    if frame.len() != size || size < MIN_SIZE {
        return None;
    }
    let head = frame.first_chunk()?;
    (is_ours(head, size) && fold(udp_sum(frame)) == 0xffff).then(|| sequence(head))
}

/// Same as [`check`] for a frame in pieces, of which the first has the headers.
#[inline]
pub fn check_pieces<'a>(pieces: impl Iterator<Item = &'a [u8]>, size: usize) -> Option<u64> {
    let mut head = None;
    let mut len = 0;
    let mut total = 0;
    for piece in pieces {
        let mut summed = piece;
        if head.is_none() {
            head = Some(piece.first_chunk()?);
            summed = &piece[IP_ADDRESSES..];
        }
        let part = fold(sum(summed));
        // A piece at an odd place has its bytes in each other's (RFC 1071, section 2).
        let part = if len % 2 == 0 {
            part
        } else {
            part.swap_bytes()
        };
        total += u64::from(part);
        len += piece.len();
    }
    if len != size || size < MIN_SIZE {
        return None;
    }
    let head = head.filter(|head| is_ours(head, size))?;
    (fold(pseudo_sum(size) + total) == 0xffff).then(|| sequence(head))
}

/// Whether these are the headers of a frame of `size` bytes, at least [`MIN_SIZE`].
#[inline]
fn is_ours(head: &[u8; PATTERN], size: usize) -> bool {
    let udp_length = u16::from_be_bytes([head[UDP + 4], head[UDP + 5]]);
    // Without the last test a frame whose checksum was lost would pass as one without.
    head[12..=IP] == [0x08, 0x00, 0x45]
        && head[IP + 9] == UDP_PROTOCOL
        && usize::from(udp_length) == size - UDP
        && head[UDP_CHECKSUM..SEQUENCE] != [0, 0]
}

#[inline]
fn sequence(head: &[u8; PATTERN]) -> u64 {
    u64::from_be_bytes(std::array::from_fn(|at| head[SEQUENCE + at]))
}

/// Exchanges the source and the destination MAC address, as l2fwd does.
///
/// # Panics
///
/// If `frame` is shorter than 12 bytes.
#[inline]
pub fn swap_macs(frame: &mut [u8]) {
    let (destination, rest) = frame.split_at_mut(6);
    destination.swap_with_slice(&mut rest[..6]);
}

/// Words of the window of sequence numbers, 64 numbers in each.
pub(super) const WINDOW_WORDS: u64 = 16;

/// Losses, duplicates and reordering in a single flow of numbered frames.
#[derive(Debug, Clone, Default)]
pub struct Tracker {
    size: usize,
    expected: u64,
    /// Which of the last numbers were seen: a ring of 16 words of 64 numbers. A word is
    /// cleared when the flow enters it, so between 960 and 1024 numbers are remembered.
    seen: [u64; WINDOW_WORDS as usize],
    newest_word: u64,
    /// Frames whose contents were wrong.
    pub corrupted: u64,
    /// Frames seen before, or later than the window of remembered numbers.
    pub duplicates: u64,
    /// Frames that came after one with a higher number.
    pub reordered: u64,
    /// Numbers passed over that have not come since. Under overload this is normal.
    pub lost: u64,
}

impl Tracker {
    /// A tracker for frames of `size` bytes, numbered from 0.
    pub fn new(size: usize) -> Self {
        Self {
            size,
            ..Self::default()
        }
    }

    /// Checks one frame and counts it; returns its number unless it is corrupt or came before.
    #[inline]
    pub fn frame(&mut self, frame: &[u8]) -> Option<u64> {
        self.checked(check(frame, self.size))
    }

    /// Same as [`frame`](Self::frame) for a frame in pieces, of which the first has the headers.
    #[inline]
    pub fn pieces<'a>(&mut self, pieces: impl Iterator<Item = &'a [u8]>) -> Option<u64> {
        self.checked(check_pieces(pieces, self.size))
    }

    #[inline]
    fn checked(&mut self, sequence: Option<u64>) -> Option<u64> {
        if sequence.is_none() {
            self.corrupted += 1;
        }
        sequence.filter(|&sequence| self.number(sequence))
    }

    /// Checks the UDP payload of a frame whose headers the kernel has checked, and counts it.
    #[inline]
    pub fn payload(&mut self, payload: &[u8]) {
        let pattern = (PATTERN..self.size).map(|at| at as u8);
        match payload.split_first_chunk() {
            Some((sequence, rest)) if rest.iter().copied().eq(pattern) => {
                self.number(u64::from_be_bytes(*sequence));
            }
            _ => self.corrupted += 1,
        }
    }

    /// Counts a number; returns whether it came for the first time.
    #[inline]
    fn number(&mut self, sequence: u64) -> bool {
        if sequence < self.expected {
            return self.late(sequence);
        }
        self.lost += sequence - self.expected;
        self.expected = sequence.saturating_add(1);
        let word = sequence / 64;
        if word != self.newest_word {
            self.advance(word);
        }
        self.seen[(word % WINDOW_WORDS) as usize] |= 1 << (sequence % 64);
        true
    }

    fn advance(&mut self, word: u64) {
        let skipped = (word - self.newest_word).min(WINDOW_WORDS);
        for entered in word - skipped + 1..=word {
            self.seen[(entered % WINDOW_WORDS) as usize] = 0;
        }
        self.newest_word = word;
    }

    #[cold]
    fn late(&mut self, sequence: u64) -> bool {
        let word = sequence / 64;
        let bit = 1 << (sequence % 64);
        let seen = &mut self.seen[(word % WINDOW_WORDS) as usize];
        if word + WINDOW_WORDS <= self.newest_word || *seen & bit != 0 {
            self.duplicates += 1;
            return false;
        }
        *seen |= bit;
        self.reordered += 1;
        self.lost = self.lost.saturating_sub(1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamped(size: usize, sequence: u64) -> Vec<u8> {
        let template = Template::new(size, LOAD_MAC, APP_MAC).expect("a good size");
        let mut frame = template.bytes().to_vec();
        template.stamp(&mut frame, sequence);
        frame
    }

    /// RFC 1071 as written: big-endian 16-bit words, carries folded as they come.
    fn reference_checksum(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn template_has_the_agreed_layout() {
        let frame = stamped(64, 0x0102_0304_0506_0708);
        assert_eq!(frame[..6], APP_MAC);
        assert_eq!(frame[6..12], LOAD_MAC);
        assert_eq!(frame[12..16], [0x08, 0x00, 0x45, 0x00]);
        assert_eq!(frame[16..18], 50u16.to_be_bytes());
        assert_eq!(frame[22..24], [64, 17]);
        assert_eq!(frame[26..34], [198, 18, 0, 1, 198, 18, 0, 2]);
        assert_eq!(frame[34..40], [0, 9, 0, 9, 0, 30]);
        assert_eq!(frame[42..52], [1, 2, 3, 4, 5, 6, 7, 8, 50, 51]);
        assert_eq!(frame.len(), 64);
    }

    #[test]
    fn checksums_agree_with_the_reference() {
        for size in [64, 65, 66, 67, 257, 1499, 1500, 8999, 9000] {
            for sequence in [0, 1, 0xffff, 0xdead_beef, u64::MAX] {
                let frame = stamped(size, sequence);
                assert_eq!(reference_checksum(&frame[14..34]), 0, "IPv4, {size} bytes");
                let mut udp = frame[26..34].to_vec();
                udp.extend([0, 17]);
                udp.extend(((size - 34) as u16).to_be_bytes());
                udp.extend(&frame[34..]);
                assert_eq!(reference_checksum(&udp), 0, "UDP, {size} bytes");
                assert_eq!(check(&frame, size), Some(sequence));
                for cut in [50, 51, 63] {
                    let pieces = [&frame[..cut], &frame[cut..]].into_iter();
                    assert_eq!(check_pieces(pieces, size), Some(sequence), "cut at {cut}");
                }
            }
        }
    }

    #[test]
    fn a_zero_checksum_is_sent_as_ones() {
        let found = (0..0x2_0000).any(|n| stamped(64, n)[40..42] == [0xff, 0xff]);
        assert!(found, "one in 65535 sequence numbers has it");
        assert!((0..0x2_0000).all(|n| stamped(64, n)[40..42] != [0, 0]));
    }

    #[test]
    fn sizes_out_of_range_are_refused() {
        for size in [0, 63, 9001] {
            assert!(Template::new(size, LOAD_MAC, APP_MAC).is_err());
        }
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        // The rest of the IPv4 header is the kernel's to check.
        let covered = (12..15).chain([23]).chain(26..65);
        for i in covered {
            let mut frame = stamped(65, 7);
            frame[i] ^= 0x10;
            assert_eq!(check(&frame, 65), None, "byte {i}");
            let pieces = [&frame[..57], &frame[57..]].into_iter();
            assert_eq!(check_pieces(pieces, 65), None, "byte {i}, in pieces");
        }
    }

    #[test]
    fn wrong_lengths_are_noticed() {
        let frame = stamped(65, 7);
        assert_eq!(check(&frame[..64], 65), None);
        assert_eq!(check(&frame[..64], 64), None);
        assert_eq!(check(&[], 0), None);
        let pieces = |frame| check_pieces(std::iter::once(frame), 65);
        assert_eq!(pieces(&frame), Some(7));
        assert_eq!(pieces(&frame[..64]), None);
        assert_eq!(pieces(&frame[..49]), None);
        assert_eq!(check_pieces(std::iter::empty(), 0), None);
        let mut unsummed = frame;
        unsummed[40..42].fill(0);
        assert_eq!(check(&unsummed, 65), None);
    }

    #[test]
    fn swapping_macs_keeps_the_frame_valid() {
        let mut frame = stamped(64, 7);
        swap_macs(&mut frame);
        assert_eq!(frame[..6], LOAD_MAC);
        assert_eq!(frame[6..12], APP_MAC);
        assert_eq!(check(&frame, 64), Some(7));
    }

    fn counts(numbers: impl IntoIterator<Item = u64>) -> [u64; 3] {
        let mut tracker = Tracker::new(64);
        for n in numbers {
            tracker.frame(&stamped(64, n));
        }
        assert_eq!(tracker.corrupted, 0);
        [tracker.lost, tracker.reordered, tracker.duplicates]
    }

    #[test]
    fn the_tracker_tells_loss_from_reordering_from_duplication() {
        assert_eq!(counts(0..200), [0, 0, 0]);
        assert_eq!(counts([0, 1, 5]), [3, 0, 0]);
        assert_eq!(counts([0, 2, 1, 3]), [0, 1, 0]);
        assert_eq!(counts([0, 1, 1, 2]), [0, 0, 1]);
        assert_eq!(counts([0, 2, 1, 1]), [0, 1, 1]);
        assert_eq!(counts([1, 0]), [0, 1, 0]);
    }

    #[test]
    fn the_tracker_forgets_after_its_window() {
        // 960 numbers back is always remembered, more than 1024 never.
        assert_eq!(counts([0, 960, 1]), [958, 1, 0]);
        assert_eq!(counts([0, 1100, 1]), [1099, 0, 1]);
        // A word that is used again has lost its old numbers.
        assert_eq!(counts([0, 1024, 1025, 1024]), [1023, 0, 1]);
        assert_eq!(counts([5, 1029 + 1024, 1028 + 1024]), [5 + 2046, 1, 0]);
        assert_eq!(counts([u64::MAX, 3]), [u64::MAX, 0, 1]);
    }

    #[test]
    fn the_tracker_returns_each_number_once() {
        let mut tracker = Tracker::new(64);
        let mut corrupt = stamped(64, 9);
        corrupt[60] ^= 1;
        let frames = [stamped(64, 3), stamped(64, 1), stamped(64, 3), corrupt];
        let numbers = frames.map(|frame| tracker.frame(&frame));
        assert_eq!(numbers, [Some(3), Some(1), None, None]);
    }

    #[test]
    fn the_tracker_checks_payloads() {
        let mut tracker = Tracker::new(65);
        for number in [0, 2] {
            tracker.payload(&stamped(65, number)[SEQUENCE..]);
        }
        let good = stamped(65, 3);
        for bad in [
            &good[SEQUENCE..64],
            &good[PATTERN..],
            &good[SEQUENCE - 1..],
            &[],
        ] {
            tracker.payload(bad);
        }
        let mut changed = good;
        changed[64] ^= 1;
        tracker.payload(&changed[SEQUENCE..]);
        assert_eq!([tracker.lost, tracker.corrupted], [1, 5]);
    }

    #[test]
    fn the_tracker_counts_what_is_not_ours_as_corrupted() {
        let mut tracker = Tracker::new(64);
        tracker.frame(&[0; 64]);
        tracker.frame(&stamped(65, 0));
        assert_eq!(tracker.corrupted, 2);
        assert_eq!(tracker.lost, 0);
    }
}
