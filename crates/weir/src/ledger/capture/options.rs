//! The selection of packets.

use crate::ledger::read::Scope;

/// Bytes of each packet that are kept where nothing else is said: the headers, also within a tunnel, and the
/// beginning of the payload.
pub const SNAPLEN: u32 = 256;
/// The largest file where nothing else is said: 1 GiB.
pub const MAX_BYTES: u64 = 1 << 30;
/// Bytes of the ring between the kernel and this program: 16 MiB, some ten thousand packets.
const RING_BYTES: u32 = 16 << 20;

/// The selection of packets, and its limits.
#[derive(Debug, Clone)]
pub struct Options {
    /// The namespaces and devices.
    pub scope: Scope,
    /// The most bytes of a packet, from 1 to 16384.
    pub snaplen: u32,
    /// Whether packets that are freed in normal operation are written too.
    pub normal: bool,
    /// The most packets.
    pub max_packets: u64,
    /// The most bytes of the file up to its last packet.
    pub max_bytes: u64,
    /// Bytes of the ring between the kernel and this program, a power of two and at least a page.
    pub ring_bytes: u32,
    /// Whether a file may be replaced.
    pub replace: bool,
}

impl Default for Options {
    /// The losses of this process's namespace.
    fn default() -> Self {
        Self {
            scope: Scope::default(),
            snaplen: SNAPLEN,
            normal: false,
            max_packets: u64::MAX,
            max_bytes: MAX_BYTES,
            ring_bytes: RING_BYTES,
            replace: false,
        }
    }
}
