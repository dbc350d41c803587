//! Sizing and mapping the rings of a socket.

use super::SocketBuilder;
use crate::error::{Error, ErrorKind, Result};
use crate::ring::{Consumer, Mapped, Offsets, Producer, Slot};
use crate::sys::Mapping;
use crate::umem_rings::{RxRing, TxRing};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::xdp::{XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XdpMmapOffsets, XdpRingOffset};
use std::os::fd::BorrowedFd;

impl SocketBuilder<'_> {
    /// Sets the sizes of all four rings; returns the offsets of their parts.
    pub(super) fn set_ring_sizes(&self, fd: BorrowedFd<'_>) -> Result<XdpMmapOffsets> {
        let set = |name, result: std::result::Result<(), Errno>| {
            result.map_err(|errno| ring_error(name, errno))
        };
        set(
            "FILL",
            sockopt::set_xdp_umem_fill_ring_size(fd, self.fill_ring),
        )?;
        set(
            "COMPLETION",
            sockopt::set_xdp_umem_completion_ring_size(fd, self.completion_ring),
        )?;
        set_own_ring_sizes(fd, self.rx_ring, self.tx_ring)
    }
}

/// Sets the sizes of a socket's own rings; returns the offsets of their parts.
pub(super) fn set_own_ring_sizes(fd: BorrowedFd<'_>, rx: u32, tx: u32) -> Result<XdpMmapOffsets> {
    if rx > 0 {
        sockopt::set_xdp_rx_ring_size(fd, rx).map_err(|errno| ring_error("RX", errno))?;
    }
    if tx > 0 {
        sockopt::set_xdp_tx_ring_size(fd, tx).map_err(|errno| ring_error("TX", errno))?;
    }
    sockopt::xdp_mmap_offsets(fd)
        .map_err(|errno| Error::os(ErrorKind::Os, errno, "reading the layout of the rings"))
}

fn ring_error(name: &str, errno: Errno) -> Error {
    Error::os(ErrorKind::Os, errno, format!("making the {name} ring"))
}

/// Maps the RX and the TX ring, each if it has slots.
pub(super) fn map_own_rings(
    fd: BorrowedFd<'_>,
    offsets: &XdpMmapOffsets,
    rx: u32,
    tx: u32,
) -> Result<(Option<RxRing>, Option<TxRing>)> {
    let mut rings = (None, None);
    if rx > 0 {
        let ring = map_ring(fd, "RX", XDP_PGOFF_RX_RING, &offsets.rx, rx)?;
        rings.0 = Some(Consumer::new(ring));
    }
    if tx > 0 {
        let ring = map_ring(fd, "TX", XDP_PGOFF_TX_RING, &offsets.tx, tx)?;
        rings.1 = Some(Producer::new(ring));
    }
    Ok(rings)
}

/// Maps one ring of `size` slots.
pub(super) fn map_ring<T: Slot>(
    fd: BorrowedFd<'_>,
    name: &str,
    page_offset: u64,
    offsets: &XdpRingOffset,
    size: u32,
) -> Result<Mapped<T>> {
    let len = offsets.desc as usize + size as usize * size_of::<T>();
    let mapping = Mapping::new(fd, page_offset, len)
        .map_err(|errno| Error::os(ErrorKind::Os, errno, format!("mapping the {name} ring")))?;
    let at = Offsets {
        producer: offsets.producer as usize,
        consumer: offsets.consumer as usize,
        flags: offsets.flags.ok_or_else(no_flags)? as usize,
        slots: offsets.desc as usize,
    };
    Mapped::new(mapping, at, size).ok_or_else(|| {
        Error::new(
            ErrorKind::Unsupported,
            format!("this library does not know the kernel's layout of the {name} ring"),
        )
    })
}

fn no_flags() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "this kernel's rings have no flags: Linux 5.4 or later is needed",
    )
}
