//! The registration of FILL and COMPLETION rings in a UMEM.

use super::{AfterClose, DeviceQueue, RingsId, Umem};
use crate::error::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The registration of one FILL and COMPLETION pair. When it ends, after rings and socket, the
/// chunks lent through the pair come back, unless the kernel may still touch them.
#[derive(Debug)]
pub(crate) struct RingsLease {
    umem: Umem,
    id: RingsId,
    queue: DeviceQueue,
    after: AfterClose,
    /// Whether an XSKMAP may still have a socket of the pair, since it could not be taken out.
    left_in_map: Arc<AtomicBool>,
    /// Whether the socket came from another process, which may still have descriptors of it.
    taken_over: bool,
}

impl RingsLease {
    /// Registers a pair whose chunks the kernel lets go of at the end.
    pub(crate) fn new(umem: &Umem, queue: DeviceQueue) -> Result<Self> {
        Ok(Self {
            id: umem.register_rings()?,
            umem: umem.clone(),
            queue,
            after: AfterClose::LetGo,
            left_in_map: Arc::default(),
            taken_over: false,
        })
    }

    /// Says that the socket came from another process. Whoever has a duplicate of its descriptor keeps
    /// it open after our close, so that the kernel may go on using the chunks.
    pub(super) fn taken_over(mut self) -> Self {
        self.taken_over = true;
        self
    }

    /// The UMEM.
    pub(crate) fn umem(&self) -> &Umem {
        &self.umem
    }

    /// The pair.
    pub(crate) fn id(&self) -> RingsId {
        self.id
    }

    /// The queue that it serves.
    pub(crate) fn queue(&self) -> DeviceQueue {
        self.queue
    }

    /// Notes that the kernel shows the socket on the queue.
    pub(crate) fn set_shown(&mut self) {
        self.queue.is_shown = true;
    }

    /// Where an entry in an XSKMAP notes that it could not be deleted.
    pub(crate) fn left_in_map(&self) -> &Arc<AtomicBool> {
        &self.left_in_map
    }

    /// Sets the kernel's access to the chunks after the end.
    pub(crate) fn set_after_close(&mut self, after: AfterClose) {
        self.after = after;
    }
}

impl Drop for RingsLease {
    fn drop(&mut self) {
        // Relaxed: the entries were dropped before, in this thread or one that this was moved from.
        let after = if self.taken_over || self.left_in_map.load(Ordering::Relaxed) {
            AfterClose::MayTouchAll
        } else {
            self.after
        };
        self.umem.release_rings(self.id, after, self.queue);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::umem::QUEUE;

    #[test]
    fn the_chunks_of_a_socket_left_in_a_map_are_retired() {
        for (is_left, retired) in [(false, 0), (true, 1)] {
            let umem = Umem::on_heap(4, 2048);
            let lease = RingsLease::new(&umem, QUEUE).expect("a pair");
            let chunk = umem.take_free().expect("a chunk");
            chunk.lend_to_receive(lease.id());
            lease.left_in_map().store(is_left, Ordering::Relaxed);
            drop(lease);
            assert_eq!(umem.accounting().retired, retired);
        }
    }
}
