//! The structures and constants of `include/weir/xsk.h`, where they are documented.
#![allow(unsafe_code)] // Structures are made of the caller's bytes.

use crate::memory::Sized32;
use std::ffi::{c_int, c_void};
use std::mem::offset_of;

/// `struct weir_xsk_umem_options`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)] // The header has the documentation.
pub struct UmemOptions {
    pub size: u32,
    pub chunks: u32,
    pub chunk_size: u32,
    pub headroom: u32,
    pub flags: u32,
    pub reserved: u32,
    pub numa_node: u32,
}

/// `WEIR_XSK_HUGE_PAGES` and the other flags of a UMEM.
pub(crate) const HUGE_PAGES: u32 = 1;
pub(crate) const COLLAPSE: u32 = 2;
pub(crate) const FRAGMENTS: u32 = 4;
pub(crate) const UNALIGNED: u32 = 8;
pub(crate) const NUMA_NODE: u32 = 16;
pub(crate) const TX_METADATA: u32 = 32;

/// `struct weir_xsk_accounting`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)] // The header has the documentation.
pub struct Accounting {
    pub size: u32,
    pub free: u32,
    pub held: u32,
    pub receiving: u32,
    pub sending: u32,
    pub retired: u32,
    pub frames: u32,
}

/// `struct weir_xsk_rule`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)] // The header has the documentation.
pub struct Rule {
    pub ether_type: u16,
    pub protocol: u8,
    pub family: u8,
    pub source_port: u16,
    pub destination_port: u16,
    pub source_bits: u8,
    pub destination_bits: u8,
    pub reserved: [u8; 6],
    pub source: [u8; 16],
    pub destination: [u8; 16],
}

/// `struct weir_xsk_socket_options`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)] // The header has the documentation.
pub struct SocketOptions {
    pub size: u32,
    pub mode: u32,
    pub flags: u32,
    pub rx_ring: u32,
    pub tx_ring: u32,
    pub fill_ring: u32,
    pub completion_ring: u32,
    pub fill_chunks: u32,
    pub waiting: u32,
    pub max_delay_us: u32,
    pub program_of: *mut c_void,
    pub rules: *const Rule,
    pub rule_count: u32,
    pub reserved: u32,
    pub program_fd: c_int,
    pub map_fd: c_int,
}

/// `WEIR_XSK_NO_NEED_WAKEUP` and the other flags of a socket, and `WEIR_XSK_NONE`.
pub(crate) const NO_NEED_WAKEUP: u32 = 1;
pub(crate) const OWN_PROGRAM: u32 = 2;
pub(crate) const OWN_MAP: u32 = 4;
pub(crate) const RX_HINTS: u32 = 8;
pub(crate) const NONE: u32 = u32::MAX;

/// `struct weir_xsk_frame`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)] // The header has the documentation.
pub struct Frame {
    pub data: *mut u8,
    pub len: u32,
    pub room: u32,
    pub handle: [u64; 2],
}

/// `weir_xsk_each` and `weir_xsk_write`.
pub type Each = unsafe extern "C" fn(packet: *mut Frame, context: *mut c_void) -> c_int;
/// `weir_xsk_write`.
pub type Write = unsafe extern "C" fn(room: *mut u8, size: u32, context: *mut c_void) -> u32;

/// `enum weir_xsk_verdict`.
pub(crate) const RECYCLE: c_int = 0;
pub(crate) const KEEP: c_int = 1;
pub(crate) const SEND: c_int = 2;

/// `WEIR_XSK_RECEIVE` and `WEIR_XSK_ROOM`.
pub(crate) const RECEIVE: u32 = 1;
pub(crate) const ROOM: u32 = 2;

/// `struct weir_xsk_rx_hints`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
#[allow(missing_docs)] // The header has the documentation.
pub struct RxHints {
    pub flags: u32,
    pub hash: u32,
    pub hash_kind: u32,
    pub vlan_protocol: u16,
    pub vlan_tci: u16,
    pub timestamp: u64,
    pub reserved: u64,
}

/// `WEIR_XSK_HINT_TIMESTAMP` and the other flags of hints.
pub(crate) const HINT_TIMESTAMP: u32 = 1;
pub(crate) const HINT_HASH: u32 = 2;
pub(crate) const HINT_VLAN: u32 = 4;

/// `struct weir_xsk_tx_request`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)] // The header has the documentation.
pub struct TxRequest {
    pub size: u32,
    pub flags: u32,
    pub checksum_start: u16,
    pub checksum_offset: u16,
    pub reserved: u32,
    pub tag: u64,
    pub launch_time: u64,
}

/// `WEIR_XSK_TX_CHECKSUM` and the other flags of a request.
pub(crate) const TX_CHECKSUM: u32 = 1;
pub(crate) const TX_TIMESTAMP: u32 = 2;
pub(crate) const TX_LAUNCH_TIME: u32 = 4;

/// `struct weir_xsk_tx_timestamp`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)] // The header has the documentation.
pub struct TxTimestamp {
    pub tag: u64,
    pub nanoseconds: u64,
}

/// `enum weir_xsk_checksum`.
pub(crate) const SUM_UNKNOWN: u32 = 0;
pub(crate) const SUM_CORRECT: u32 = 1;
pub(crate) const SUM_PARTIAL: u32 = 2;
pub(crate) const SUM_ABSENT: u32 = 3;
pub(crate) const SUM_WRONG: u32 = 4;

/// `struct weir_xsk_statistics`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)] // The header has the documentation.
pub struct Statistics {
    pub size: u32,
    pub reserved: u32,
    pub received: u64,
    pub sent: u64,
    pub completed: u64,
    pub invalid_descs: u64,
    pub invalid_indices: u64,
    pub wakeups: u64,
    pub send_drops: u64,
    pub sleeps: u64,
    pub rx_dropped: u64,
    pub rx_ring_full: u64,
    pub fill_ring_empty: u64,
    pub tx_invalid_descs: u64,
    pub tx_ring_empty: u64,
    pub fragmented: u64,
    pub lost_timestamps: u64,
}

// SAFETY: `u32` alone.
unsafe impl Sized32 for UmemOptions {
    const NAME: &'static str = "struct weir_xsk_umem_options";
    const LEAST: usize = 24;
}

// SAFETY: `u32` alone.
unsafe impl Sized32 for Accounting {
    const NAME: &'static str = "struct weir_xsk_accounting";
    const LEAST: usize = 28;
}

// SAFETY: ten `u32`, two raw pointers, which may have any value, two `u32` and two `c_int`.
unsafe impl Sized32 for SocketOptions {
    const NAME: &'static str = "struct weir_xsk_socket_options";
    const LEAST: usize = 64;
}

// SAFETY: two `u32`, two `u16`, a `u32` and two `u64`, each at a multiple of its size.
unsafe impl Sized32 for TxRequest {
    const NAME: &'static str = "struct weir_xsk_tx_request";
    const LEAST: usize = 32;
}

// SAFETY: two `u32`, then `u64` alone.
unsafe impl Sized32 for Statistics {
    const NAME: &'static str = "struct weir_xsk_statistics";
    const LEAST: usize = 112;
}

// The header asserts the same; `tests/xsk_c/abi.rs` compares every field of the two.
const _: () = {
    assert!(size_of::<UmemOptions>() == 28);
    assert!(size_of::<Accounting>() == 28);
    assert!(size_of::<Rule>() == 48 && offset_of!(Rule, source) == 16);
    assert!(size_of::<SocketOptions>() == 72 && offset_of!(SocketOptions, program_of) == 40);
    assert!(size_of::<Frame>() == 32 && offset_of!(Frame, handle) == 16);
    assert!(size_of::<RxHints>() == 32 && offset_of!(RxHints, timestamp) == 16);
    assert!(size_of::<TxRequest>() == 32 && offset_of!(TxRequest, tag) == 16);
    assert!(size_of::<TxTimestamp>() == 16 && offset_of!(TxTimestamp, nanoseconds) == 8);
    assert!(size_of::<Statistics>() == 128 && offset_of!(Statistics, received) == 8);
};
