//! The packets: each byte behind the addresses follows from flow, sequence number and length, so that any
//! change, and any mixture of two packets, is found.

use super::failure::{Check, Result, fail};

/// Shortest packet.
pub const MIN: usize = 60;
/// MTUs, and the longest packets at them.
pub const MTU: u32 = 1500;
pub const MAX: usize = MTU as usize + FLOW_AT;
pub const JUMBO_MTU: u32 = 9000;
pub const JUMBO_MAX: usize = JUMBO_MTU as usize + FLOW_AT;

/// The Ethernet type for experiments, which no network stack takes.
const ETHER_TYPE: [u8; 2] = [0x88, 0xb5];

/// Last byte of the destination address: the times that the packet was forwarded.
const HOPS_AT: usize = 5;
const FLOW_AT: usize = 14;
const SEQUENCE_AT: usize = 16;
const LENGTH_AT: usize = 24;
const BODY_AT: usize = 26;

/// A packet's identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The socket that made it.
    pub flow: u16,
    /// Its place in the flow.
    pub sequence: u64,
    /// How often it was forwarded.
    pub hops: u8,
}

/// Writes a packet as long as `bytes`.
pub fn write(bytes: &mut [u8], flow: u16, sequence: u64) {
    bytes[..12].copy_from_slice(&[2, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0xff]);
    bytes[12..FLOW_AT].copy_from_slice(&ETHER_TYPE);
    bytes[FLOW_AT..SEQUENCE_AT].copy_from_slice(&flow.to_be_bytes());
    bytes[SEQUENCE_AT..LENGTH_AT].copy_from_slice(&sequence.to_be_bytes());
    let len = bytes.len() as u16;
    bytes[LENGTH_AT..BODY_AT].copy_from_slice(&len.to_be_bytes());
    for (at, chunk) in bytes[BODY_AT..].chunks_mut(8).enumerate() {
        chunk.copy_from_slice(&body(flow, sequence, at)[..chunk.len()]);
    }
}

/// Counts one more hop.
pub fn forward(bytes: &mut [u8]) {
    bytes[HOPS_AT] += 1;
}

/// The identity of a packet in which nothing has changed.
pub fn check(bytes: &[u8]) -> Result<Header> {
    let wrong = |what: &str| {
        fail(
            Check::Payload,
            format!("{what}: {:02x?}", &bytes[..bytes.len().min(64)]),
        )
    };
    if bytes.len() < BODY_AT || bytes[12..FLOW_AT] != ETHER_TYPE {
        return wrong("no packet of ours");
    }
    let header = Header {
        flow: u16::from_be_bytes([bytes[FLOW_AT], bytes[FLOW_AT + 1]]),
        sequence: number(&bytes[SEQUENCE_AT..LENGTH_AT]),
        hops: bytes[HOPS_AT],
    };
    if number(&bytes[LENGTH_AT..BODY_AT]) != bytes.len() as u64 {
        return wrong("another length");
    }
    for (at, chunk) in bytes[BODY_AT..].chunks(8).enumerate() {
        if *chunk != body(header.flow, header.sequence, at)[..chunk.len()] {
            return wrong(&format!(
                "{header:?} has changed at byte {}",
                BODY_AT + 8 * at
            ));
        }
    }
    Ok(header)
}

fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// The finalizer of `MurmurHash3` on all that identifies these eight bytes.
fn body(flow: u16, sequence: u64, at: usize) -> [u8; 8] {
    let mut word = sequence << 24 ^ u64::from(flow) << 10 ^ at as u64;
    word = (word ^ word >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    word = (word ^ word >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    (word ^ word >> 33).to_le_bytes()
}
