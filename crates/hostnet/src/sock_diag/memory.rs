//! The memory of a socket, and its drops: `SK_MEMINFO_*`.

use crate::netlink::u32_of;

/// The memory of a socket, in bytes, and the packets that it dropped (`linux/sock_diag.h`,
/// `sk_get_meminfo` in `net/core/sock.c`; `skmem` of ss(8)).
///
/// Packets take more memory than they have bytes: the kernel counts the buffers that they are in
/// (`truesize`).
///
/// ```
/// use hostnet::sock_diag::SocketMemory;
///
/// let memory = SocketMemory { rmem_alloc: 212_992, rcvbuf: 212_992, ..SocketMemory::default() };
/// assert!(memory.rmem_alloc >= memory.rcvbuf, "the next datagram is dropped");
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SocketMemory {
    /// Memory of packets that wait to be read.
    pub rmem_alloc: u32,
    /// The limit of that (`SO_RCVBUF`).
    pub rcvbuf: u32,
    /// Memory of packets on their way out, in queueing disciplines and devices.
    pub wmem_alloc: u32,
    /// The limit of memory for data that waits to be sent (`SO_SNDBUF`).
    pub sndbuf: u32,
    /// Memory that is reserved and not used yet.
    pub fwd_alloc: u32,
    /// Memory of TCP's data that is to be sent, or kept until it is acknowledged.
    pub wmem_queued: u32,
    /// Memory of options, filters and control messages.
    pub optmem: u32,
    /// Memory of packets that wait while a program holds the socket's lock.
    pub backlog: u32,
    /// Packets that the socket dropped since it was made; it wraps at 32 bits. Of UDP and AF_PACKET
    /// (without a ring): those that found no room. Of a TCP listener: connections that found the queue of
    /// accept(2) full, and more (`tcp_listendrop`).
    pub drops: u32,
}

impl SocketMemory {
    /// Reads the words of `SK_MEMINFO_*`, of which a later kernel may have more.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut words = bytes.chunks_exact(size_of::<u32>()).map_while(u32_of);
        Some(Self {
            rmem_alloc: words.next()?,
            rcvbuf: words.next()?,
            wmem_alloc: words.next()?,
            sndbuf: words.next()?,
            fwd_alloc: words.next()?,
            wmem_queued: words.next()?,
            optmem: words.next()?,
            backlog: words.next()?,
            drops: words.next()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_the_kernels_order() {
        let bytes: Vec<u8> = (0..10_u32).flat_map(u32::to_ne_bytes).collect();
        let expected = SocketMemory {
            rmem_alloc: 0,
            rcvbuf: 1,
            wmem_alloc: 2,
            sndbuf: 3,
            fwd_alloc: 4,
            wmem_queued: 5,
            optmem: 6,
            backlog: 7,
            drops: 8,
        };
        assert_eq!(SocketMemory::read(&bytes), Some(expected));
        assert_eq!(SocketMemory::read(&bytes[..36]), Some(expected));
        assert_eq!(SocketMemory::read(&bytes[..35]), None);
    }
}
