//! A batch as an iterator of owned packets.

use super::{Packet, RxBatch};
use crate::owned_packet::OwnedPacket;
use std::iter::FusedIterator;

/// The packets of [`next_packet`](RxBatch::next_packet), which skips and counts the same descriptors and packets, taken out of the
/// batch. The socket lends other chunks for receiving in their place while some are free, at the next call that receives or
/// waits: with a few [`fill_chunks`](crate::SocketBuilder::fill_chunks), packets that arrive before it are dropped.
impl Iterator for RxBatch<'_> {
    type Item = OwnedPacket;

    #[inline(always)]
    fn next(&mut self) -> Option<OwnedPacket> {
        self.next_packet().map(Packet::keep_with_hints)
    }

    /// At most as many as are [left](RxBatch::len).
    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.len()))
    }
}

impl FusedIterator for RxBatch<'_> {}
