//! The methods that send frames, of all types that have a TX ring.
//!
//! A macro writes them as inherent methods, and no trait has them: so each type's own page has them with their whole
//! text, and a program calls them without an import. The text is here once; the module of sockets has those of whole
//! sockets in the same way.

use super::CompletionRing;
use crate::frame::Frame;
use crate::umem::Cache;

/// Takes a free chunk, and reclaims completed ones if the cache has none.
#[inline(always)]
pub(crate) fn alloc(completion: Option<&mut CompletionRing>, cache: &mut Cache) -> Option<Frame> {
    if cache.len() == 0
        && let Some(completion) = completion
    {
        completion.reclaim_sent(cache);
    }
    cache.take().map(Frame::empty)
}

/// Writes the methods into an `impl` block. The type has two of its own: `free_chunks`, the COMPLETION ring, if it can be
/// reached, and the cache; and `with_outgoing`, which calls a function with the rings that send, if there is a TX ring.
macro_rules! frame_sending_methods {
    () => {
        /// Allocates a frame, empty, behind the UMEM's headroom; `None` when no chunk is free. It
        /// reclaims completed chunks when the socket's cache is empty.
        #[inline]
        pub fn alloc(&mut self) -> Option<$crate::Frame> {
            let (completion, cache) = self.free_chunks();
            $crate::umem_rings::alloc(completion, cache)
        }

        /// Allocates a packet of `len` bytes, in as many frames as it needs, each filled up behind the UMEM's
        /// headroom; their bytes are the chunks' former content. `None` when fewer are free, or it would need
        /// more than [`MAX_FRAGMENTS`](crate::MAX_FRAGMENTS).
        pub fn alloc_fragments(&mut self, len: usize) -> Option<$crate::Fragments> {
            $crate::Fragments::alloc(len, || self.alloc())
        }

        /// Puts a frame into the TX ring. The next `flush` of the socket transmits it.
        ///
        /// # Errors
        ///
        /// A [`SendError`](crate::SendError) with the frame when the ring is full, the frame is empty or in another
        /// UMEM, or the socket has no TX ring.
        #[inline]
        pub fn send(
            &mut self,
            frame: $crate::Frame,
        ) -> std::result::Result<(), $crate::SendError<$crate::Frame>> {
            self.with_outgoing(|out| $crate::umem_rings::send(out, frame))
        }

        /// Puts a frame into the TX ring, with requests to the kernel and the card. The next
        /// `flush` of the socket transmits it. The UMEM has to be for
        /// [requests](crate::UmemBuilder::tx_metadata).
        ///
        /// ```no_run
        /// # fn main() -> xsk::Result<()> {
        /// use xsk::{Socket, TxRequest, Umem};
        ///
        /// let umem = Umem::builder().tx_metadata(true).build()?;
        /// let mut socket = Socket::builder(&umem, "eth0", 0).open()?;
        /// let mut frame = socket.alloc().expect("a free chunk");
        /// frame.fill_with(&[0; 60])?;
        /// let sent = socket.send_with(frame, &TxRequest::new().timestamp(1));
        /// sent.map_err(|error| error.kind).expect("the socket supports timestamps");
        /// socket.flush()?;
        /// while let Some(time) = socket.take_tx_timestamp() {
        ///     println!("packet {} was sent at {} ns", time.tag, time.nanoseconds);
        /// }
        /// # Ok(())
        /// # }
        /// ```
        ///
        /// # Errors
        ///
        /// Those of [`send`](Self::send); and [`SendErrorKind::NoMetadata`] on a UMEM without metadata,
        /// [`SendErrorKind::Unsupported`] for a request that `tx_support` has not,
        /// [`SendErrorKind::Checksum`] for a checksum outside the packet, [`SendErrorKind::NoHeadroom`] for a
        /// packet with less than [`TX_METADATA_LEN`](crate::TX_METADATA_LEN) bytes in front of it.
        ///
        /// [`SendErrorKind::NoMetadata`]: crate::SendErrorKind::NoMetadata
        /// [`SendErrorKind::Unsupported`]: crate::SendErrorKind::Unsupported
        /// [`SendErrorKind::Checksum`]: crate::SendErrorKind::Checksum
        /// [`SendErrorKind::NoHeadroom`]: crate::SendErrorKind::NoHeadroom
        pub fn send_with(
            &mut self,
            frame: $crate::Frame,
            request: &$crate::TxRequest,
        ) -> std::result::Result<(), $crate::SendError<$crate::Frame>> {
            self.with_outgoing(|out| $crate::umem_rings::send_with(out, frame, request))
        }

        /// Puts a packet of one frame or several into the TX ring, all or none of them. The next
        /// `flush` of the socket transmits it, without copying it together.
        ///
        /// In copy mode the kernel refuses a packet of more than 18 frames, in zero-copy mode of more than the
        /// card has segments for one (`Statistics::tx_invalid_descs`).
        ///
        /// # Errors
        ///
        /// A [`SendError`](crate::SendError) with the packet when the ring has not as many free slots, a frame is
        /// empty or in another UMEM, the UMEM is without [fragments](crate::UmemBuilder::fragments) and they are
        /// several, or the socket has no TX ring.
        pub fn send_fragments(
            &mut self,
            packet: $crate::Fragments,
        ) -> std::result::Result<(), $crate::SendError<$crate::Fragments>> {
            self.with_outgoing(|out| $crate::umem_rings::send_fragments(out, packet))
        }
    };
}

pub(crate) use frame_sending_methods;
