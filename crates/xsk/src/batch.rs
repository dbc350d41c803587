//! What has been received, borrowed from the socket packet by packet.

use crate::error::Result;
use crate::frame::{Frame, Reason, Refused};
use crate::queue::{Queue, RxRing, TxRing};
use crate::socket::Socket;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// Packets received by one look at the RX ring, taken out one after the other. When the batch
/// is dropped the kernel gets the ring's slots back, and the chunks that nobody took go to FILL.
#[derive(Debug)]
#[must_use = "dropping a batch drops the packets in it"]
pub struct RxBatch<'s, 'u> {
    rx: Option<&'s mut RxRing>,
    tx: Option<&'s mut TxRing>,
    queue: &'s mut Queue<'u>,
    /// Descriptors not yet read.
    left: u32,
}

impl<'s, 'u> RxBatch<'s, 'u> {
    #[inline]
    pub(crate) fn new(
        mut rx: Option<&'s mut RxRing>,
        tx: Option<&'s mut TxRing>,
        queue: &'s mut Queue<'u>,
        max: u32,
    ) -> Self {
        let left = rx.as_mut().map_or(0, |rx| rx.available(max));
        Self {
            rx,
            tx,
            queue,
            left,
        }
    }

    /// Packets still in the batch.
    #[inline]
    pub fn len(&self) -> usize {
        self.left as usize
    }

    /// Whether no packet is left in the batch.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// The next packet. A descriptor that does not name a chunk lent to this queue is passed
    /// over and counted in [`Statistics::refused`](crate::Statistics::refused).
    #[inline]
    pub fn next_packet(&mut self) -> Option<Packet<'_, 'u>> {
        let rx = self.rx.as_mut()?;
        while self.left > 0 {
            self.left -= 1;
            if let Some(frame) = self.queue.receive(rx.pop()) {
                let tx = self.tx.as_deref_mut();
                return Some(Packet {
                    frame: Some(frame),
                    tx,
                    queue: self.queue,
                });
            }
        }
        None
    }
}

impl Drop for RxBatch<'_, '_> {
    #[inline]
    fn drop(&mut self) {
        let Some(rx) = self.rx.as_mut() else { return };
        for _ in 0..self.left {
            self.queue.recycle_unread(rx.pop());
        }
        rx.release();
        self.queue.publish_fill();
    }
}

/// A received packet, borrowed from its [`RxBatch`]. It dereferences to the packet's bytes.
///
/// Dropped, its chunk is lent for receiving again. [`send`](Self::send) forwards it,
/// [`keep`](Self::keep) makes an owned [`Frame`] of it.
pub struct Packet<'b, 'u> {
    /// There until the packet is sent, kept or dropped.
    frame: Option<Frame<'u>>,
    tx: Option<&'b mut TxRing>,
    queue: &'b mut Queue<'u>,
}

impl<'u> Packet<'_, 'u> {
    /// The frame, which is there: whatever takes it takes the packet too.
    #[inline]
    fn frame(&self) -> &Frame<'u> {
        self.frame.as_ref().expect("a packet has its frame")
    }

    #[inline]
    fn frame_mut(&mut self) -> &mut Frame<'u> {
        self.frame.as_mut().expect("a packet has its frame")
    }

    #[inline]
    fn take_frame(&mut self) -> Frame<'u> {
        self.frame.take().expect("a packet has its frame")
    }

    /// Sends the packet from the socket that received it, without copying. It leaves at the
    /// socket's next [`flush`](Socket::flush).
    ///
    /// # Errors
    ///
    /// The packet comes back, with the [`Reason`], when the TX ring is full or there is none.
    #[inline]
    pub fn send(mut self) -> std::result::Result<(), Refused<Self>> {
        let frame = self.take_frame();
        match self.queue.send(self.tx.as_deref_mut(), frame) {
            Ok(()) => Ok(()),
            Err(refused) => Err(self.refused(refused)),
        }
    }

    /// Sends the packet from another socket on the same UMEM, without copying. It leaves at
    /// that socket's next [`flush`](Socket::flush).
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send); and [`Reason::Foreign`] when the other socket is on another
    /// UMEM.
    #[inline]
    pub fn send_on(mut self, socket: &mut Socket<'u>) -> std::result::Result<(), Refused<Self>> {
        let frame = self.take_frame();
        match socket.send(frame) {
            Ok(()) => Ok(()),
            Err(refused) => Err(self.refused(refused)),
        }
    }

    #[cold]
    fn refused(mut self, refused: Refused<Frame<'u>>) -> Refused<Self> {
        let reason: Reason = refused.reason;
        self.frame = Some(refused.frame);
        Refused {
            frame: self,
            reason,
        }
    }

    /// Takes the packet out of the batch, to hold it or send it later. The socket lends another
    /// chunk for receiving in its place, as long as there is one.
    #[inline]
    pub fn keep(mut self) -> Frame<'u> {
        self.take_frame()
    }

    /// Moves the packet's first byte; see [`Frame::adjust_head`].
    ///
    /// # Errors
    ///
    /// As there.
    #[inline]
    pub fn adjust_head(&mut self, delta: i32) -> Result<()> {
        self.frame_mut().adjust_head(delta)
    }

    /// Moves the packet's end; see [`Frame::adjust_tail`].
    ///
    /// # Errors
    ///
    /// As there.
    #[inline]
    pub fn adjust_tail(&mut self, delta: i32) -> Result<()> {
        self.frame_mut().adjust_tail(delta)
    }

    /// Room in front of the packet, in bytes.
    #[inline]
    pub fn headroom(&self) -> u32 {
        self.frame().headroom()
    }
}

impl Deref for Packet<'_, '_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.frame()
    }
}

impl DerefMut for Packet<'_, '_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.frame_mut()
    }
}

impl Drop for Packet<'_, '_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(frame) = self.frame.take() {
            self.queue.recycle(frame.into_chunk());
        }
    }
}

impl fmt::Debug for Packet<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Packet").field(&self.frame).finish()
    }
}
