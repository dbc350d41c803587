//! The packets of the tests: every byte of them depends on the sequence number.

use xsk::Frame;
use xsk::testing::programs;

/// Shortest packet, as the kernel's tests send.
pub const MIN: usize = 64;

/// First byte of the sequence number, behind the Ethernet header.
const SEQUENCE_AT: usize = programs::SEQUENCE_AT as usize;

/// First byte behind the sequence number.
const BODY: usize = SEQUENCE_AT + 8;

/// The Ethernet type for experiments, which no network stack takes.
const ETHER_TYPE: [u8; 2] = [0x88, 0xb5];

/// Fills `bytes` with packet number `sequence`, whose destination MAC ends in `to`.
pub fn write(bytes: &mut [u8], to: u8, sequence: u64) {
    bytes[..12].copy_from_slice(&[2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, 0xff]);
    bytes[12..SEQUENCE_AT].copy_from_slice(&ETHER_TYPE);
    bytes[SEQUENCE_AT..BODY].copy_from_slice(&sequence.to_be_bytes());
    for (at, byte) in bytes.iter_mut().enumerate().skip(BODY) {
        *byte = body(sequence, at);
    }
}

/// Makes an empty frame packet number `sequence`, of `size` bytes.
pub fn fill(frame: &mut Frame, to: u8, sequence: u64, size: usize) {
    let size = i32::try_from(size).expect("the size of a packet");
    frame.adjust_tail(size).expect("room for the packet");
    write(frame, to, sequence);
}

fn body(sequence: u64, at: usize) -> u8 {
    (sequence as usize * 31 + at) as u8
}

/// The sequence number of a packet.
pub fn sequence(bytes: &[u8]) -> u64 {
    let field = bytes.get(SEQUENCE_AT..BODY).expect("a whole packet");
    u64::from_be_bytes(field.try_into().expect("8 bytes"))
}

/// Panics unless `bytes` is packet number `expected`, with nothing changed.
pub fn check(bytes: &[u8], expected: u64) {
    assert_eq!(sequence(bytes), expected, "the order of the packets");
    assert_eq!(bytes[12..SEQUENCE_AT], ETHER_TYPE);
    for (at, &byte) in bytes.iter().enumerate().skip(BODY) {
        assert_eq!(byte, body(expected, at), "packet {expected}, byte {at}");
    }
}

/// The sequence number of a test's packet with nothing changed.
pub fn intact(bytes: &[u8]) -> Option<u64> {
    if bytes.len() < BODY || bytes[12..SEQUENCE_AT] != ETHER_TYPE {
        return None;
    }
    let found = sequence(bytes);
    let mut bytes = bytes.iter().enumerate().skip(BODY);
    bytes
        .all(|(at, &byte)| byte == body(found, at))
        .then_some(found)
}
