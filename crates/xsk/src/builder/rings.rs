//! Sizing and mapping the rings of a socket.

use super::SocketBuilder;
use crate::error::{Error, ErrorKind, Result};
use crate::ring::{Consumer, Mapped, Producer, Slot};
use crate::sys::{KernelSocket, RingKind};
use crate::umem_rings::{RxRing, TxRing};
use rustix::io::Errno;

impl SocketBuilder {
    /// Makes all four rings.
    pub(super) fn make_rings(&self, socket: &dyn KernelSocket) -> Result<()> {
        make_ring(socket, RingKind::Fill, self.fill_slots())?;
        make_ring(socket, RingKind::Completion, self.completion_ring)?;
        make_own_rings(socket, self.rx_ring, self.tx_ring)
    }
}

/// Makes a socket's own rings, each if it is to have slots.
pub(super) fn make_own_rings(socket: &dyn KernelSocket, rx: u32, tx: u32) -> Result<()> {
    if rx > 0 {
        make_ring(socket, RingKind::Rx, rx)?;
    }
    if tx > 0 {
        make_ring(socket, RingKind::Tx, tx)?;
    }
    Ok(())
}

fn make_ring(socket: &dyn KernelSocket, ring: RingKind, slots: u32) -> Result<()> {
    socket
        .make_ring(ring, slots)
        .map_err(|errno| Error::os(ErrorKind::Os, errno, format!("making the {ring} ring")))
}

/// Maps the RX and the TX ring, each if it has slots.
pub(crate) fn map_own_rings(
    socket: &dyn KernelSocket,
    rx: u32,
    tx: u32,
) -> Result<(Option<RxRing>, Option<TxRing>)> {
    let mut rings = (None, None);
    if rx > 0 {
        rings.0 = Some(Consumer::new(map_ring(socket, RingKind::Rx, rx)?));
    }
    if tx > 0 {
        rings.1 = Some(Producer::new(map_ring(socket, RingKind::Tx, tx)?));
    }
    Ok(rings)
}

/// Maps one ring of `size` slots.
pub(crate) fn map_ring<T: Slot>(
    socket: &dyn KernelSocket,
    ring: RingKind,
    size: u32,
) -> Result<Mapped<T>> {
    let layout = socket
        .ring_layout(ring)
        .map_err(|errno| Error::os(ErrorKind::Os, errno, "reading the layout of the rings"))?
        .ok_or_else(no_flags)?;
    let len = Mapped::<T>::bytes(layout, size).ok_or_else(|| unknown_layout(ring))?;
    let mapping = socket
        .map_ring(ring, len)
        .map_err(|errno| map_error(ring, errno))?;
    Mapped::new(mapping, layout, size).ok_or_else(|| unknown_layout(ring))
}

fn unknown_layout(ring: RingKind) -> Error {
    let message = format!("this library does not know the kernel's layout of the {ring} ring");
    Error::new(ErrorKind::Unsupported, message)
}

fn map_error(ring: RingKind, errno: Errno) -> Error {
    // `xsk_mmap` in net/xdp/xsk.c.
    if errno == Errno::BUSY {
        let message = format!(
            "mapping the {ring} ring: this kernel maps the rings of a bound socket no more, so it cannot be taken over (Linux 6.4 or later is needed)"
        );
        return Error::os(ErrorKind::Unsupported, errno, message);
    }
    Error::os(ErrorKind::Os, errno, format!("mapping the {ring} ring"))
}

fn no_flags() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "this kernel's rings have no flags: Linux 5.4 or later is needed",
    )
}
