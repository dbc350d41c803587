//! Sending in bulk, and moving frames by arrays.

use super::Socket;
use super::half::{RxHalf, TxHalf};
use super::sender::Sender;
use crate::frame::Frame;
use crate::ring::Cursor;
use crate::umem::{Cache, UNALIGNED};
use crate::umem_rings::{CompletionRing, TxRing};

/// See [`Socket::send_each`].
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

impl Sender {
    /// See [`Socket::send_each`].
    #[inline(always)]
    pub(super) fn send_each(&mut self, max: u32, write: impl FnMut(&mut [u8]) -> usize) -> u32 {
        let Some(tx) = &mut self.main.ring else {
            return 0;
        };
        send_each(tx, &mut self.completion, &mut self.cache, max, write)
    }

    /// See [`Socket::send_frames`].
    pub(super) fn send_frames(&mut self, frames: &mut Vec<Frame>) -> usize {
        let room = self.tx_room() as usize;
        let mut sent = 0;
        for frame in frames.drain(..room.min(frames.len())) {
            sent += usize::from(self.send(frame).is_ok());
        }
        sent
    }

    #[inline]
    pub(super) fn tx_room(&mut self) -> u32 {
        self.main.ring.as_mut().map_or(0, |tx| tx.free(tx.size()))
    }
}

impl Socket {
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
        self.sender.send_each(max, write)
    }

    /// Receives up to `max` packets as frames, which are appended to `frames`. Returns their number.
    /// So several packets can be looked at together, for instance to look up all their addresses
    /// before the first is changed.
    pub fn recv_frames(&mut self, frames: &mut Vec<Frame>, max: u32) -> usize {
        let before = frames.len();
        self.receive_each(max, |packet| {
            let (frame, done) = packet.keep();
            frames.push(frame);
            done
        });
        frames.len() - before
    }

    /// Sends frames from the front of `frames`, as many as TX has room for; they leave the vector.
    /// Frames that are empty or in another UMEM are dropped. Returns the number sent.
    pub fn send_frames(&mut self, frames: &mut Vec<Frame>) -> usize {
        self.sender.send_frames(frames)
    }

    /// Frees frames for this socket's next packets, without the atomic operations of dropping them.
    pub fn free_frames(&mut self, frames: impl IntoIterator<Item = Frame>) {
        for frame in frames {
            self.sender.cache.put(frame.into_chunk());
        }
    }
}

impl RxHalf {
    /// Same as [`Socket::recv_frames`].
    pub fn recv_frames(&mut self, frames: &mut Vec<Frame>, max: u32) -> usize {
        let before = frames.len();
        self.receive_each(max, |packet| {
            let (frame, done) = packet.keep();
            frames.push(frame);
            done
        });
        frames.len() - before
    }

    /// Same as [`Socket::free_frames`].
    pub fn free_frames(&mut self, frames: impl IntoIterator<Item = Frame>) {
        for frame in frames {
            self.cache.put(frame.into_chunk());
        }
    }
}

impl TxHalf {
    /// Same as [`Socket::send_each`].
    ///
    /// # Panics
    ///
    /// Same as [`Socket::send_each`].
    #[inline(always)]
    pub fn send_each(&mut self, max: u32, write: impl FnMut(&mut [u8]) -> usize) -> u32 {
        self.sender.send_each(max, write)
    }

    /// Same as [`Socket::send_frames`].
    pub fn send_frames(&mut self, frames: &mut Vec<Frame>) -> usize {
        self.sender.send_frames(frames)
    }
}
