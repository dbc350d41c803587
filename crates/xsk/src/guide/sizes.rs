//! Chunk size, number of chunks, ring sizes, batch size.
//!
//! # Chunk size
//!
//! A packet has to fit into one chunk, behind [`XDP_PACKET_HEADROOM`] (256 bytes) and the UMEM's
//! headroom:
//!
//! | Chunk size | Longest received packet | Largest MTU |
//! |---|---|---|
//! | 2048 | 1792 bytes | 1774 |
//! | 4096 | 3840 bytes | 3822 |
//!
//! With [`UmemBuilder::fragments`](crate::UmemBuilder::fragments) a packet takes [several
//! chunks](crate::guide::fragments).
//!
//! Chunks of a size between those are [unaligned](crate::UmemBuilder::unaligned): they lie one behind the
//! other, as 3000 bytes each for packets of 2744.
//!
//! The MTU does not count the link header: 14 bytes, and 4 for a VLAN tag. Add headroom when
//! the program prepends headers, such as a tunnel's; [`Frame::adjust_head`] moves into it.
//!
//! ```
//! # fn main() -> xsk::Result<()> {
//! let umem = xsk::Umem::builder().chunk_size(4096).headroom(64).build()?;
//! assert_eq!(umem.max_rx_packet(), 4096 - 256 - 64);
//! # Ok(())
//! # }
//! ```
//!
//! # NUMA nodes
//!
//! A card writes to memory of its own node faster. [`Device::numa_node`](crate::Device::numa_node) tells which one
//! that is, and [`UmemBuilder::numa_node`](crate::UmemBuilder::numa_node) allocates the memory there.
//!
//! # Number of chunks
//!
//! Each socket needs the chunks that it lends for receiving ([`SocketBuilder::fill_chunks`]), as
//! many as its TX ring has slots, and a cache of as many as its larger ring, at most a quarter of all. Add
//! the frames that the program holds. With too few chunks nothing fails, but packets are dropped
//! ([`Statistics::rx_dropped`]) or [`Socket::alloc`] returns none.
//!
//! In copy mode the chunks lent for receiving, and the slots of RX, are the longest burst that may arrive while
//! the program does something else: the kernel drops what is more. Their number does not depend on the load.
//! Fewer stay in the CPU's caches: docs/BENCHMARKS.md has what that gains and costs.
//!
//! Without `CAP_IPC_LOCK` the UMEM counts against the memory lock limit (`ulimit -l`), often 8 MiB.
//!
//! ```
//! // One socket: 2048 to receive, 2048 to send, 512 held by the program, and a cache of 1536.
//! let chunks = 2048 + 2048 + 512 + 1536;
//! let umem = xsk::Umem::builder().chunks(chunks).build()?;
//! assert_eq!(umem.accounting().free, chunks);
//! # Ok::<(), xsk::Error>(())
//! ```
//!
//! # Rings
//!
//! All sizes are powers of two; the default is 2048.
//!
//! | Ring | Size |
//! |---|---|
//! | RX | the packets that arrive while the program does something else; [`Statistics::rx_ring_full`] counts drops |
//! | FILL | at least the RX ring: a packet needs a chunk and a slot; [`Statistics::fill_ring_empty`] counts shortages |
//! | TX | several batches; a full ring returns [`SendErrorKind::Full`] |
//! | COMPLETION | at least the TX rings of all sockets on the queue; in copy mode a full one stops sending |
//!
//! A ring of 0 slots for RX or TX makes a socket that only sends or only receives. Larger rings
//! absorb longer bursts at the price of more memory in flight, thus more cache misses.
//!
//! # Batch
//!
//! [`Socket::recv`] costs one acquire and one release of the RX index for each batch, so a batch of
//! one is the most expensive. 64 is a good maximum, since drivers deliver up to 64 packets in each
//! NAPI poll. A larger batch delays the first of its packets on the way out, as [`Socket::flush`]
//! follows the whole batch.
//!
//! In copy mode one send(2) transmits up to [`SocketBuilder::tx_budget`] packets.
//!
//! # Huge pages
//!
//! [`UmemBuilder::huge_pages`] lowers the number of TLB misses of a large UMEM. Reserve pages
//! beforehand with `echo N > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages`; without enough of
//! them the UMEM has ordinary pages, see [`Umem::pages`]. [`UmemBuilder::collapse`] needs none reserved: the kernel makes such pages of
//! ordinary ones, where it can.
//!
//! [`XDP_PACKET_HEADROOM`]: crate::XDP_PACKET_HEADROOM
//! [`Frame::adjust_head`]: crate::Frame::adjust_head
//! [`SendErrorKind::Full`]: crate::SendErrorKind::Full
//! [`Socket::alloc`]: crate::Socket::alloc
//! [`Socket::recv`]: crate::Socket::recv
//! [`Socket::flush`]: crate::Socket::flush
//! [`SocketBuilder::fill_chunks`]: crate::SocketBuilder::fill_chunks
//! [`SocketBuilder::tx_budget`]: crate::SocketBuilder::tx_budget
//! [`Statistics::rx_dropped`]: crate::Statistics::rx_dropped
//! [`Statistics::rx_ring_full`]: crate::Statistics::rx_ring_full
//! [`Statistics::fill_ring_empty`]: crate::Statistics::fill_ring_empty
//! [`Umem::pages`]: crate::Umem::pages
//! [`UmemBuilder::collapse`]: crate::UmemBuilder::collapse
//! [`UmemBuilder::huge_pages`]: crate::UmemBuilder::huge_pages
