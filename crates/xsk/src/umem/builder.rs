//! Settings of a UMEM.

use super::pages::allocate;
use super::{Geometry, Umem, XDP_PACKET_HEADROOM};
use crate::error::{Error, Result};

/// Bytes that the kernel requires behind the headroom: `sizeof(struct skb_shared_info)` and a pair
/// of cache lines (`net/xdp/xdp_umem.c`).
const KERNEL_TAILROOM: u32 = 320 + 128;

/// Most chunks in a UMEM; 64 GiB at 4096 bytes each.
const MAX_CHUNKS: u32 = 1 << 24;

/// Settings of a [`Umem`]; see [`Umem::builder`] and [the guide](crate::guide::sizes).
///
/// ```
/// # fn main() -> xsk::Result<()> {
/// let umem = xsk::Umem::builder()
///     .chunks(1024)
///     .chunk_size(4096)
///     .headroom(64)
///     .build()?;
/// assert_eq!((umem.chunks(), umem.chunk_size(), umem.headroom()), (1024, 4096, 64));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "call `build` to get the UMEM"]
pub struct UmemBuilder {
    geometry: Geometry,
    huge_pages: bool,
    collapse: bool,
    numa_node: Option<u32>,
}

impl UmemBuilder {
    /// Number of chunks, at most 2²⁴. Default 4096. Enough is the sum of the slots of all sockets'
    /// FILL and TX rings, the frames that the program holds, and each socket's cache: as many as its
    /// larger ring has slots, at most a quarter of all.
    pub fn chunks(mut self, chunks: u32) -> Self {
        self.geometry.chunks = chunks;
        self
    }

    /// Bytes in a chunk: 2048, the default, or 4096; any number between them where chunks are
    /// [unaligned](Self::unaligned). [`XDP_PACKET_HEADROOM`], the headroom and a
    /// received packet have to fit into it. Intel's igb, igc and 82599 receive into whole KiB of it, and so take an MTU
    /// of 1500 in zero-copy mode with 4096 bytes only. With 2048, do not raise the MTU above 1006 while a socket is
    /// open: these drivers do not refuse it, and take packets apart.
    pub fn chunk_size(mut self, bytes: u32) -> Self {
        self.geometry.chunk_size = bytes;
        self
    }

    /// Bytes kept free in front of every packet, for headers that the program prepends; in received
    /// packets in addition to [`XDP_PACKET_HEADROOM`]. Default 0.
    pub fn headroom(mut self, bytes: u32) -> Self {
        self.geometry.headroom = bytes;
        self
    }

    /// Lets packets take several chunks, up to [`MAX_FRAGMENTS`](crate::MAX_FRAGMENTS), as jumbo frames
    /// do (`XDP_USE_SG`, Linux 6.6): all sockets on the UMEM receive and send [`Fragments`]. Default off:
    /// then the kernel drops packets that do not fit into a chunk. See [the
    /// guide](crate::guide::fragments).
    ///
    /// [`Fragments`]: crate::Fragments
    pub fn fragments(mut self, on: bool) -> Self {
        self.geometry.fragments = on;
        self
    }

    /// Lets chunks have any size from 2048 to 4096 bytes, and lie one behind the other, so that some lie across
    /// pages (`XDP_UMEM_UNALIGNED_CHUNK_FLAG`, Linux 5.4): a UMEM of as many chunks of 3000 bytes is smaller
    /// by a quarter than one of 4096. An address is divided by the size then. Packets are received by
    /// [`Socket::receive_each`](crate::Socket::receive_each), [`forward_each`](crate::Socket::forward_each) or
    /// [`RxBatch::next_fragments`](crate::RxBatch::next_fragments); one that
    /// [`RxBatch::next_packet`](crate::RxBatch::next_packet) comes to is dropped and counted. A zero-copy socket
    /// takes none that lie across pages, which need not lie together for a card: for it, chunks of 2048 or 4096
    /// bytes, or a UMEM of one [huge page](Self::huge_pages). Default off.
    pub fn unaligned(mut self, on: bool) -> Self {
        self.geometry.unaligned = on;
        self
    }

    /// Keeps room for the metadata of each packet sent, in front of it: all sockets on the UMEM send
    /// [requests](crate::TxRequest) with their packets (`XDP_UMEM_TX_METADATA_LEN`, Linux 6.11). A frame
    /// then begins [`TX_METADATA_LEN`](crate::TX_METADATA_LEN) bytes behind the headroom, and its head
    /// cannot move into these. Default off. See [the guide](crate::guide::metadata).
    pub fn tx_metadata(mut self, on: bool) -> Self {
        self.geometry.tx_metadata = on;
        self
    }

    /// Requests pages of 2 MiB. Without enough free ones the UMEM has ordinary pages, and
    /// [`Umem::pages`] is [`Pages::FellBack`](super::Pages::FellBack). Default off.
    pub fn huge_pages(mut self, on: bool) -> Self {
        self.huge_pages = on;
        self
    }

    /// Makes huge pages of the UMEM's ordinary ones, as far as the kernel has memory for them
    /// (`MADV_COLLAPSE`, Linux 6.1), without reserving any: the UMEM is registered and mapped faster. They have 2 MiB,
    /// but 32 MiB where ordinary ones have 16 KiB, so that a smaller UMEM has none there.
    /// Making it may take longer, as the kernel may have to move other pages away. Default off.
    pub fn collapse(mut self, on: bool) -> Self {
        self.collapse = on;
        self
    }

    /// Allocates the memory on a NUMA node, that of the [device](crate::Device::numa_node) for instance. Default:
    /// wherever the kernel does, as a rule on the node of the CPU that builds the UMEM.
    ///
    /// ```no_run
    /// # fn main() -> xsk::Result<()> {
    /// let mut builder = xsk::Umem::builder();
    /// if let Some(node) = xsk::Device::lookup("eth0")?.numa_node() {
    ///     builder = builder.numa_node(node);
    /// }
    /// let umem = builder.build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn numa_node(mut self, node: u32) -> Self {
        self.numa_node = Some(node);
        self
    }

    /// The sizes.
    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Checks the sizes, then allocates and maps the memory.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`](crate::ErrorKind::InvalidConfig) for sizes that the kernel
    /// would reject, and for a NUMA node without memory;
    /// [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory) when the memory cannot be allocated;
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for a node where the kernel shows none.
    pub fn build(self) -> Result<Umem> {
        self.geometry.check()?;
        let (memory, pages) = allocate(
            self.geometry.len(),
            self.huge_pages,
            self.collapse,
            self.numa_node,
        )?;
        Umem::new(memory, self.geometry, pages)
    }
}

impl Geometry {
    /// Refuses sizes that the kernel would. A chunk has at most a page, of which 4096 bytes are the least that a machine has: so
    /// a UMEM of one machine is possible on each.
    pub(crate) fn check(self) -> Result<()> {
        let Self {
            chunks,
            chunk_size,
            headroom,
            fragments: _,
            tx_metadata: _,
            unaligned,
        } = self;
        if unaligned && !(2048..=4096).contains(&chunk_size) {
            return Err(Error::invalid(format!(
                "chunk size {chunk_size} is not possible: choose 2048 to 4096 bytes"
            )));
        }
        if !unaligned && !matches!(chunk_size, 2048 | 4096) {
            return Err(Error::invalid(format!(
                "chunk size {chunk_size} is not possible: choose 2048 or 4096 bytes, or `unaligned` for one between them"
            )));
        }
        if chunks == 0 || chunks > MAX_CHUNKS {
            return Err(Error::invalid(format!(
                "a UMEM of {chunks} chunks is not possible: choose 1 to {MAX_CHUNKS}"
            )));
        }
        let most = chunk_size - XDP_PACKET_HEADROOM - KERNEL_TAILROOM;
        if headroom > most {
            return Err(Error::invalid(format!(
                "headroom {headroom} leaves no room for packets: at most {most} bytes with chunks of {chunk_size}"
            )));
        }
        Ok(())
    }
}

impl Umem {
    /// A builder with the defaults: 4096 chunks of 2048 bytes, no headroom, ordinary pages. That
    /// is 8 MiB, a common memory lock limit of unprivileged processes.
    pub fn builder() -> UmemBuilder {
        UmemBuilder {
            geometry: Geometry {
                chunks: 4096,
                chunk_size: 2048,
                headroom: 0,
                fragments: false,
                tx_metadata: false,
                unaligned: false,
            },
            huge_pages: false,
            collapse: false,
            numa_node: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn sizes_are_checked_before_the_kernel_is_asked() {
        let bad = [
            Umem::builder().chunk_size(1024),
            Umem::builder().chunk_size(3000),
            Umem::builder().chunk_size(2047).unaligned(true),
            Umem::builder().chunk_size(4097).unaligned(true),
            Umem::builder()
                .chunk_size(3000)
                .unaligned(true)
                .headroom(2297),
            Umem::builder().chunk_size(8192),
            Umem::builder().chunks(0),
            Umem::builder().chunks(u32::MAX),
            Umem::builder().headroom(1345),
            Umem::builder().chunk_size(4096).headroom(3393),
        ];
        for config in bad {
            assert_eq!(
                config.geometry.check().map_err(|e| e.kind()),
                Err(ErrorKind::InvalidConfig)
            );
        }
        assert!(Umem::builder().headroom(1344).geometry.check().is_ok());
        assert!(
            Umem::builder()
                .chunk_size(4096)
                .headroom(3392)
                .geometry
                .check()
                .is_ok()
        );
    }
}
