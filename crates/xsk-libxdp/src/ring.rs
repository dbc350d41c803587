//! A ring's memory, and the structure by which C's inlined functions move it.
#![allow(unsafe_code)] // Structures of the caller's, and the kernel's indices.

use crate::abi::Ring;
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::xdp::{
    XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING,
    XdpMmapOffsets, XdpRingOffset,
};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use xsk::compat::RingMemory;

/// A `struct xsk_ring_prod` or `xsk_ring_cons` of the caller's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RingAt(NonNull<Ring>);

// SAFETY: needed because of the pointer, which a UMEM keeps until its first socket has its rings. The structure
// belongs to the program, not to a thread, and is accessed in the calls alone that the program makes.
unsafe impl Send for RingAt {}

impl RingAt {
    /// None for a null pointer.
    ///
    /// # Safety
    ///
    /// Another pointer must be one to such a structure, that lives and that nobody else accesses during
    /// each call for its UMEM or socket.
    pub(crate) unsafe fn new(ring: *mut Ring) -> Option<Self> {
        NonNull::new(ring).map(Self)
    }

    pub(crate) fn is(self, other: Self) -> bool {
        self.0 == other.0
    }

    /// Takes over what another has, with its place in the ring.
    pub(crate) fn copy_from(self, other: Self) {
        if self.is(other) {
            return;
        }
        // SAFETY: needed to read the caller's structure, which is as `new` demands.
        let ring = unsafe { other.0.read() };
        // SAFETY: needed to write the caller's structure, as above.
        unsafe { self.0.write(ring) };
    }

    /// Points it to a ring, as a producer, whose own cached index of the consumer is a ring's size ahead.
    pub(crate) fn produce(self, ring: &Mapped) {
        let mut view = ring.view();
        view.cached_cons = view.cached_cons.wrapping_add(view.size);
        // SAFETY: needed to write the caller's structure, which is as `new` demands.
        unsafe { self.0.write(view) };
    }

    /// Points it to a ring, as a consumer.
    pub(crate) fn consume(self, ring: &Mapped) {
        // SAFETY: needed to write the caller's structure, which is as `new` demands.
        unsafe { self.0.write(ring.view()) };
    }
}

/// One of a socket's rings.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Fill,
    Completion,
    Rx,
    Tx,
}

impl Kind {
    /// The offset to map it at.
    fn page_offset(self) -> u64 {
        match self {
            Self::Fill => XDP_UMEM_PGOFF_FILL_RING,
            Self::Completion => XDP_UMEM_PGOFF_COMPLETION_RING,
            Self::Rx => XDP_PGOFF_RX_RING,
            Self::Tx => XDP_PGOFF_TX_RING,
        }
    }

    /// Bytes of an entry: an address, or a `struct xdp_desc`.
    fn entry(self) -> u64 {
        match self {
            Self::Fill | Self::Completion => 8,
            Self::Rx | Self::Tx => 16,
        }
    }

    fn of(self, all: XdpMmapOffsets) -> XdpRingOffset {
        match self {
            Self::Fill => all.fr,
            Self::Completion => all.cr,
            Self::Rx => all.rx,
            Self::Tx => all.tx,
        }
    }
}

/// A ring in this process, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapped {
    memory: RingMemory,
    /// The kernel's.
    offsets: XdpRingOffset,
    size: u32,
}

impl Mapped {
    /// Maps a ring that the socket has, of `size` entries.
    pub(crate) fn new(socket: BorrowedFd<'_>, kind: Kind, size: u32) -> Result<Self, Errno> {
        let offsets = kind.of(sockopt::xdp_mmap_offsets(socket)?);
        let len = offsets.desc + u64::from(size) * kind.entry();
        let memory = RingMemory::map(socket, kind.page_offset(), len as usize);
        let memory = memory.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        Ok(Self {
            memory,
            offsets,
            size,
        })
    }

    /// C's view of it.
    fn view(&self) -> Ring {
        let at = |offset: u64| self.memory.start().as_ptr().wrapping_add(offset as usize);
        let producer = at(self.offsets.producer).cast();
        let consumer = at(self.offsets.consumer).cast();
        // Up to Linux 5.3 there are none, and libxdp has them there.
        let flags = self.offsets.flags.unwrap_or(self.offsets.consumer + 4);
        Ring {
            cached_prod: load(producer),
            cached_cons: load(consumer),
            mask: self.size.wrapping_sub(1),
            size: self.size,
            producer,
            consumer,
            ring: at(self.offsets.desc).cast(),
            flags: at(flags).cast(),
        }
    }
}

/// An index that the kernel may write.
fn load(index: *mut u32) -> u32 {
    // SAFETY: needed to read the kernel's memory. The kernel has given the offset, a multiple of four in the
    // mapping, which is at a page; it writes the index atomically, and so does the program.
    unsafe { AtomicU32::from_ptr(index) }.load(Ordering::Acquire)
}
