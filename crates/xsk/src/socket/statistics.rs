//! Counters of a socket.

/// What has happened on a socket since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Statistics {
    /// Packets taken from the RX ring.
    pub received: u64,
    /// Packets put into the TX ring.
    pub sent: u64,
    /// Chunks that came back from sending, over all sockets on the queue. Completed does not
    /// mean delivered.
    pub completed: u64,
    /// RX descriptors and completions that named no chunk lent through this socket's FILL or TX.
    pub invalid_descs: u64,
    /// Times that a ring index written by the kernel was impossible.
    pub invalid_indices: u64,
    /// System calls that woke the kernel for sending or for FILL.
    pub wakeups: u64,
    /// Of those, the ones where the kernel dropped a packet: the peer is down or full, or the
    /// packet is larger than the MTU.
    pub send_drops: u64,
    /// Times that the thread slept for packets.
    pub sleeps: u64,
    /// The kernel's: packets dropped because FILL was empty or they were larger than a chunk has
    /// room for. Together with `rx_ring_full` all that the socket dropped.
    pub rx_dropped: u64,
    /// The kernel's: packets dropped because the RX ring was full.
    pub rx_ring_full: u64,
    /// The kernel's: times that it found FILL empty; the packets are in `rx_dropped` too.
    pub fill_ring_empty: u64,
    /// The kernel's: TX descriptors that it found invalid.
    pub tx_invalid_descs: u64,
    /// The kernel's: times that it looked into TX and found nothing.
    pub tx_ring_empty: u64,
}
