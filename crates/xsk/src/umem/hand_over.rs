//! All chunks of a UMEM pass to another process, or come from one.
#![allow(unsafe_code)] // The caller vouches for memory that another process had.

use super::owner::{OURS, Place};
use super::pages::map;
use super::{DeviceQueue, Geometry, Rings, RingsId, RingsLease, Umem, claim};
use crate::error::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Where retired chunks of the other process come from: no device has this index, so no socket that
/// is bound brings them back.
const NOWHERE: DeviceQueue = DeviceQueue {
    namespace: None,
    is_shown: false,
    ifindex: 0,
    queue: 0,
};

impl Umem {
    /// The sizes.
    pub(crate) fn geometry(&self) -> Geometry {
        Geometry {
            chunks: self.chunks(),
            chunk_size: self.chunk_size(),
            headroom: self.headroom(),
            fragments: self.fragments(),
            tx_metadata: self.tx_metadata(),
            unaligned: self.unaligned(),
        }
    }

    /// The file of the memory; none on the heap.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.0.file.as_ref().map(AsFd::as_fd)
    }

    /// Whether another process has the chunks. For the user of the open rings, who alone can hand them over.
    pub(crate) fn is_handed_over(&self) -> bool {
        self.registry().handed_over
    }

    /// Gives all chunks away for good, together with the rings `id`, and returns their places.
    ///
    /// # Errors
    ///
    /// When other sockets have some, or frames; then nothing changes.
    pub(crate) fn hand_over(&self, id: RingsId) -> Result<Vec<Place>> {
        // Locked throughout, so that no socket is opened meanwhile.
        let mut registry = self.registry();
        let open = registry.rings.iter().filter(|&&is| is == Rings::Open);
        if open.count() > 1 {
            let message = "other sockets are open on the UMEM: give a socket that is handed over a UMEM of its own";
            return Err(Error::new(ErrorKind::Foreign, message));
        }
        let places = self.0.owners.places(id);
        let free = self.take_all_free();
        let ours = places.iter().filter(|&&place| place == Place::Free).count();
        if ours > free.len() {
            self.0.pool.put(&free);
            let held = ours - free.len();
            let message = format!(
                "{held} frames of the UMEM are held in this process: send or drop them before the handover"
            );
            return Err(Error::new(ErrorKind::Foreign, message));
        }
        for &index in &free {
            self.0.owners.set(index, id.receiving());
        }
        self.0.leave(free.len());
        registry.handed_over = true;
        registry.claim = None;
        Ok(places)
    }

    fn take_all_free(&self) -> Vec<u32> {
        let mut free = vec![0; self.chunks() as usize];
        let count = self.0.pool.take(&mut free);
        free.truncate(count);
        free
    }

    /// The UMEM of another process, which has given it away by the message with this `ticket`, and the rings of its
    /// socket, which serve `queue`.
    ///
    /// # Safety
    ///
    /// Until the UMEM is dropped no one else reads or writes the file, by a mapping or a descriptor; chunks whose place
    /// is `Free` belong neither to the kernel nor to another process.
    pub(crate) unsafe fn take_over(
        file: OwnedFd,
        geometry: Geometry,
        places: &[Place],
        queue: DeviceQueue,
        ticket: u64,
    ) -> Result<RingsLease> {
        geometry.check()?;
        let (memory, pages) = map(file, geometry.len())?;
        let umem = Self::new(memory, geometry, pages)?;
        claim::use_up(ticket)?;
        let lease = RingsLease::new(&umem, queue)?.taken_over();
        umem.take_places(lease.id(), places);
        Ok(lease)
    }

    /// Lends the chunks of a new UMEM as they were lent elsewhere.
    fn take_places(&self, id: RingsId, places: &[Place]) {
        let retired = RingsId(id.0 + 1);
        self.registry().rings.push(Rings::Retired(NOWHERE));
        let (mut free, mut lent) = (Vec::new(), 0);
        // Of those without a place nothing is known, so they are not used.
        let places = places.iter().chain(std::iter::repeat(&Place::Retired));
        for (index, place) in self.take_all_free().into_iter().zip(places) {
            let owner = match place {
                Place::Free => {
                    free.push(index);
                    OURS
                }
                Place::Receiving => id.receiving(),
                Place::Sending => id.sending(),
                Place::Retired => retired.receiving(),
            };
            lent += usize::from(matches!(place, Place::Receiving | Place::Sending));
            self.0.owners.set(index, owner);
        }
        self.0.leave(lent);
        self.0.pool.put(&free);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::umem::{Accounting, AfterClose, QUEUE};

    fn lent(umem: &Umem) -> RingsId {
        let id = umem.register_rings().expect("a pair");
        umem.take_free().expect("a chunk").lend_to_receive(id);
        umem.take_free().expect("a chunk").lend_to_send(id);
        id
    }

    #[test]
    fn all_chunks_go_and_none_come_back() {
        let umem = Umem::on_heap(4, 2048);
        let id = lent(&umem);
        let places = umem.hand_over(id).expect("no other user");
        let expected = [Place::Receiving, Place::Sending, Place::Free, Place::Free];
        assert_eq!(places, expected);
        assert!(umem.alloc().is_none());
        umem.release_rings(id, AfterClose::LetGo, QUEUE);
        umem.recover_retired(|_| true);
        assert!(umem.alloc().is_none());
        assert_eq!(umem.accounting().retired, 4);
        let error = umem.register_rings().expect_err("it is gone");
        assert_eq!(error.kind(), ErrorKind::Foreign);
    }

    #[test]
    fn nothing_changes_while_frames_or_sockets_have_chunks() {
        let umem = Umem::on_heap(4, 2048);
        let id = lent(&umem);
        let frame = umem.alloc();
        let error = umem.hand_over(id).expect_err("a frame is held");
        assert!(error.to_string().starts_with("1 frames"), "{error}");
        drop(frame);
        let other = umem.register_rings().expect("a pair");
        assert!(umem.hand_over(id).is_err());
        umem.release_rings(other, AfterClose::LetGo, QUEUE);
        assert_eq!(umem.accounting().free, 2);
        umem.hand_over(id).expect("no other user");
        umem.release_rings(id, AfterClose::LetGo, QUEUE);
    }

    #[test]
    fn the_taker_has_each_chunk_where_the_giver_had_it() {
        let umem = Umem::on_heap(6, 2048);
        let id = umem.register_rings().expect("a pair");
        let places = [
            Place::Free,
            Place::Receiving,
            Place::Sending,
            Place::Retired,
            Place::Free,
        ];
        umem.take_places(id, &places);
        let count = Accounting {
            free: 2,
            held: 0,
            receiving: 1,
            sending: 1,
            retired: 2,
        };
        assert_eq!(umem.accounting(), count);
        umem.release_rings(id, AfterClose::LetGo, QUEUE);
        assert_eq!(umem.accounting().free, 4);
    }
}
