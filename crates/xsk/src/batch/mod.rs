//! Received packets, borrowed from the socket one by one.

mod packet;

pub use packet::Packet;

use crate::ring::Cursor;
use crate::sys::Desc;
use crate::umem::LentChunks;
use crate::umem_rings::{RxRing, TxRing, UmemRings};

/// The packets of one read of the RX ring; see [`Socket::recv`](crate::Socket::recv).
///
/// [`next_packet`](Self::next_packet) borrows them one after the other. Dropping the batch releases
/// the ring's slots to the kernel, and returns the chunks of packets that were neither sent nor
/// kept to FILL.
///
/// ```no_run
/// # fn main() -> xsk::Result<()> {
/// # let umem = xsk::Umem::builder().build()?;
/// # let mut socket = xsk::Socket::builder(&umem, "eth0", 0).open()?;
/// let mut batch = socket.recv(64);
/// let mut bytes = 0;
/// while let Some(packet) = batch.next_packet() {
///     bytes += packet.len();
/// }
/// # Ok(())
/// # }
/// ```
// The cursors are here and not in the rings, so that they stay in registers for the whole batch.
#[derive(Debug)]
#[must_use = "dropping a batch drops the packets in it"]
pub struct RxBatch<'s, 'u> {
    rx: Option<&'s mut RxRing>,
    tx: Option<&'s mut TxRing>,
    umem_rings: &'s mut UmemRings<'u>,
    /// The chunks that a descriptor may name.
    lent: LentChunks<'u>,
    /// Unread descriptors.
    received: Cursor,
    /// FILL slots for recycled chunks.
    fill: Cursor,
    /// TX slots for forwarded packets.
    send: Cursor,
}

/// No slots of a ring.
const NONE: Cursor = Cursor { next: 0, end: 0 };

impl<'s, 'u> RxBatch<'s, 'u> {
    #[inline(always)]
    pub(crate) fn new(
        mut rx: Option<&'s mut RxRing>,
        mut tx: Option<&'s mut TxRing>,
        umem_rings: &'s mut UmemRings<'u>,
        max: u32,
    ) -> Self {
        let received = rx.as_mut().map_or(NONE, |rx| rx.peek(max));
        let fill = umem_rings.reserve_fill(received.left());
        let send = tx.as_mut().map_or(NONE, |tx| tx.reserve(received.left()));
        let lent = umem_rings.lent_to_receive();
        Self {
            rx,
            tx,
            umem_rings,
            lent,
            received,
            fill,
            send,
        }
    }

    /// Packets left in the batch.
    #[inline]
    pub fn len(&self) -> usize {
        self.received.left() as usize
    }

    /// Whether no packet is left in the batch.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.received.left() == 0
    }

    /// The next packet. Descriptors of chunks that were not lent for receiving on this queue are
    /// skipped and counted in [`Statistics::invalid_descs`](crate::Statistics::invalid_descs).
    #[inline(always)]
    pub fn next_packet(&mut self) -> Option<Packet<'_, 'u>> {
        let rx = self.rx.as_deref_mut()?;
        for index in self.received.by_ref() {
            let Desc { addr, len, .. } = rx.read_at(index);
            if let Some((chunk_addr, extent)) = self.lent.find(addr, len) {
                let (tx, umem_rings) = (self.tx.as_deref_mut(), &mut *self.umem_rings);
                let (fill, send) = (&mut self.fill, &mut self.send);
                return Some(Packet {
                    chunk_addr,
                    extent,
                    tx,
                    umem_rings,
                    fill,
                    send,
                });
            }
            self.umem_rings.reject(addr);
        }
        None
    }
}

impl Drop for RxBatch<'_, '_> {
    #[inline(always)]
    fn drop(&mut self) {
        let Some(rx) = self.rx.as_deref_mut() else {
            return;
        };
        if self.received.left() > 0 {
            let received = std::mem::replace(&mut self.received, NONE);
            let fill = std::mem::replace(&mut self.fill, NONE);
            self.fill = recycle_unread(rx, self.umem_rings, received, fill);
        }
        rx.release();
        if let Some(tx) = self.tx.as_deref_mut() {
            let sent = tx.stage(&self.send);
            self.umem_rings.forwarded(sent);
        }
        self.umem_rings.publish_fill(&self.fill);
    }
}

/// Lends the chunks of unread packets for receiving again. Outlined, and by value, so that the drop
/// is small enough to be inlined and the batch's cursors stay in registers.
#[inline(never)]
fn recycle_unread(
    rx: &mut RxRing,
    umem_rings: &mut UmemRings<'_>,
    received: Cursor,
    mut fill: Cursor,
) -> Cursor {
    let lent = umem_rings.lent_to_receive();
    for index in received {
        let Desc { addr, len, .. } = rx.read_at(index);
        match lent.find(addr, len) {
            Some((chunk_addr, _)) => umem_rings.recycle(chunk_addr, &mut fill),
            None => umem_rings.reject(addr),
        }
    }
    fill
}
