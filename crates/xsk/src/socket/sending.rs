//! Sending through one TX ring: that of a socket, of its sending half, or of a sibling.

use super::sender::{Sender, TxEnd};
use crate::error::Result;
use crate::frame::Frame;
use crate::ring::Cursor;
use crate::umem::{Cache, UNALIGNED};
use crate::umem_rings::{CompletionRing, Outgoing, TxRing, send};

/// A TX ring, and the COMPLETION ring and the free chunks of its queue.
#[derive(Debug)]
pub(crate) struct Sending<'s> {
    pub(super) tx: &'s mut TxEnd,
    pub(super) completion: &'s mut CompletionRing,
    pub(super) cache: &'s mut Cache,
}

impl Sender {
    /// The ring of the queue's socket, to send through it.
    #[inline(always)]
    pub(super) fn sending(&mut self) -> Sending<'_> {
        Sending {
            tx: &mut self.main,
            completion: &mut self.completion,
            cache: &mut self.cache,
        }
    }
}

impl<'s> Sending<'s> {
    #[inline(always)]
    pub(super) fn outgoing(self) -> Option<Outgoing<'s>> {
        let completion = self.completion;
        let tx = self.tx.ring.as_mut();
        tx.map(|tx| Outgoing { tx, completion })
    }

    #[inline(always)]
    pub(super) fn send_each(self, max: u32, write: impl FnMut(&mut [u8]) -> usize) -> u32 {
        let Some(tx) = &mut self.tx.ring else {
            return 0;
        };
        send_each(tx, self.completion, self.cache, max, write)
    }

    pub(super) fn send_frames(mut self, frames: &mut Vec<Frame>) -> usize {
        let room = self.tx.room() as usize;
        let mut sent = 0;
        for frame in frames.drain(..room.min(frames.len())) {
            sent += usize::from(send(self.reborrow().outgoing(), frame).is_ok());
        }
        sent
    }

    fn reborrow(&mut self) -> Sending<'_> {
        Sending {
            tx: self.tx,
            completion: self.completion,
            cache: self.cache,
        }
    }

    pub(super) fn flush(self) -> Result<()> {
        self.tx.flush(self.completion, self.cache)
    }

    pub(super) fn reclaim(self) -> u32 {
        self.completion.reclaim(self.cache)
    }
}

/// See `Socket::send_each`.
#[inline(always)]
pub(crate) fn send_each(
    tx: &mut TxRing,
    completion: &mut CompletionRing,
    cache: &mut Cache,
    max: u32,
    write: impl FnMut(&mut [u8]) -> usize,
) -> u32 {
    completion.reclaim_sent(cache);
    let slots = tx.reserve(max);
    let before = slots.next;
    let mut writing = Writing {
        tx,
        completion,
        slots,
    };
    match cache.area().chunk_shift() {
        11 => writing.run::<11>(cache, write),
        12 => writing.run::<12>(cache, write),
        _ => writing.run::<UNALIGNED>(cache, write),
    }
    writing.slots.next.wrapping_sub(before)
}

/// TX slots being written. Its end hands them to the ring, also when a closure panics.
struct Writing<'s> {
    tx: &'s mut TxRing,
    completion: &'s mut CompletionRing,
    slots: Cursor,
}

impl Writing<'_> {
    // Not inlined, so that all its places are in registers.
    #[inline(never)]
    fn run<const SHIFT: u32>(
        &mut self,
        cache: &mut Cache,
        mut write: impl FnMut(&mut [u8]) -> usize,
    ) {
        let id = self.completion.id();
        let mut more = true;
        while more && self.slots.left() > 0 {
            let run = self.tx.run(&self.slots);
            let mut sent = Sent {
                count: 0,
                slots: &mut self.slots,
            };
            more = cache.lend_to_send::<SHIFT>(run, id, &mut sent.count, &mut write);
        }
    }
}

/// Slots that were written. Its end moves the cursor behind them, also when the closure panics.
struct Sent<'s> {
    count: u32,
    slots: &'s mut Cursor,
}

impl Drop for Sent<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.slots.advance(self.count);
    }
}

impl Drop for Writing<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let sent = self.tx.stage(&self.slots);
        self.completion.sent(sent);
    }
}

/// Writes the methods of a type with a TX ring into its `impl` block: those of
/// [`frame_sending_methods`](crate::umem_rings::frame_sending_methods), which says why, and those that need the whole ring.
/// The type has two methods of its own: `sending`, with the ring and what belongs to it, and `completion`.
macro_rules! sending_methods {
    () => {
        $crate::umem_rings::frame_sending_methods!();

        #[inline(always)]
        fn free_chunks(
            &mut self,
        ) -> (
            Option<&mut $crate::umem_rings::CompletionRing>,
            &mut $crate::umem::Cache,
        ) {
            let sending = self.sending();
            (Some(sending.completion), sending.cache)
        }

        #[inline(always)]
        fn with_outgoing<R>(
            &mut self,
            send: impl FnOnce(Option<$crate::umem_rings::Outgoing<'_>>) -> R,
        ) -> R {
            send(self.sending().outgoing())
        }

        /// Sends up to `max` packets in bulk: calls `write` with the room for each, behind the UMEM's
        /// headroom, which returns the packet's length, or 0 to end early. Returns the number of packets
        /// written, less than asked for also when TX is full or no chunk is free; the next
        /// [`flush`](Self::flush) transmits them.
        ///
        /// # Panics
        ///
        /// When the length is larger than the room.
        ///
        /// ```no_run
        /// # fn main() -> xsk::Result<()> {
        /// # let umem = xsk::Umem::builder().build()?;
        /// # let mut socket = xsk::Socket::builder(&umem, "eth0", 0).open()?;
        /// let packet = [0xff; 60];
        /// let sent = socket.send_each(64, |room| {
        ///     room[..60].copy_from_slice(&packet);
        ///     60
        /// });
        /// socket.flush()?;
        /// # Ok(())
        /// # }
        /// ```
        #[inline(always)]
        pub fn send_each(&mut self, max: u32, write: impl FnMut(&mut [u8]) -> usize) -> u32 {
            self.sending().send_each(max, write)
        }

        /// Reserves up to `max` free chunks and slots of TX, to write packets into while iterating: with one's own flow of
        /// control, where [`send_each`](Self::send_each) takes a closure. The next [`flush`](Self::flush) after it
        /// transmits the packets sent.
        ///
        /// The batch has fewer when TX has not as many slots or no more chunks are free, and at most as many as the socket
        /// takes from the UMEM at a time: a quarter of the UMEM's chunks, 1024 by default, or 256 for the half of a
        /// socket. The next batch has more.
        #[inline(always)]
        pub fn send_batch(&mut self, max: u32) -> $crate::TxBatch<'_> {
            $crate::TxBatch::of(self.sending(), max)
        }

        /// Sends frames from the front of `frames`, as many as TX has room for; they leave the vector.
        /// Frames that are empty or in another UMEM are dropped. Returns the number sent.
        pub fn send_frames(&mut self, frames: &mut Vec<$crate::Frame>) -> usize {
            self.sending().send_frames(frames)
        }

        /// Free slots of the TX ring; 0 without one.
        #[inline]
        pub fn tx_room(&mut self) -> u32 {
            self.sending().tx.room()
        }

        /// Publishes the TX ring to the kernel, and wakes the kernel when it asks for that. While the
        /// device is busy, packets may stay in the ring until the next call.
        ///
        /// # Errors
        ///
        /// [`ErrorKind::DeviceDown`](crate::ErrorKind::DeviceDown) or
        /// [`ErrorKind::DeviceMissing`](crate::ErrorKind::DeviceMissing); the packets stay in the ring.
        /// A packet that the kernel drops is no error; `Statistics::send_drops`
        /// counts it.
        #[inline]
        pub fn flush(&mut self) -> $crate::Result<()> {
            self.sending().flush()
        }

        /// Reclaims the chunks of sent packets from the COMPLETION ring; returns the number of entries
        /// read. [`alloc`](Self::alloc) and [`flush`](Self::flush) do so too, and `recv`.
        pub fn reclaim(&mut self) -> u32 {
            self.sending().reclaim()
        }

        /// Sent packets whose chunks have not been reclaimed, of all sockets on the queue.
        pub fn outstanding(&self) -> u32 {
            self.completion().lent()
        }

        /// The requests that [`send_with`](Self::send_with) takes: in copy mode the kernel sums and takes the
        /// time; in zero-copy mode it depends on the card. None on a UMEM without metadata.
        pub fn tx_support(&self) -> $crate::TxSupport {
            self.completion().support()
        }

        /// The oldest time at which a packet was sent, of those [requested](crate::TxRequest::timestamp) and not
        /// taken yet, of all sockets on the queue. Times are known when chunks are [reclaimed](Self::reclaim); with
        /// more than 16384 that nobody takes, the oldest are dropped and counted
        /// (`Statistics::lost_timestamps`).
        pub fn take_tx_timestamp(&mut self) -> Option<$crate::TxTimestamp> {
            self.sending().completion.take_timestamp()
        }
    };
}

pub(super) use sending_methods;
