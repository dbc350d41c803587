//! The FILL and COMPLETION rings of one device queue, and the chunks lent through them.
//!
//! Each ring has its own half of the table of owners: only FILL's thread changes entries of chunks
//! that are lent for receiving, only COMPLETION's those of chunks lent for sending. So the two can be
//! used by two threads.

mod completion;
mod fill;
mod sending;

pub(crate) use completion::{
    CompletionRing, Outgoing, cannot_send, cannot_send_with, send, send_fragments, send_with,
};
pub(crate) use fill::FillRing;
pub(crate) use sending::{alloc, frame_sending_methods};

use crate::ring::{Consumer, Mapped, Producer};
use crate::sys::Desc;
use crate::umem::Cache;

/// The RX ring of a socket.
pub(crate) type RxRing = Consumer<Desc, Mapped<Desc>>;
/// The TX ring of a socket.
pub(crate) type TxRing = Producer<Desc, Mapped<Desc>>;
/// The slots of a FILL ring.
pub(crate) type FillSlots = Producer<u64, Mapped<u64>>;
/// The slots of a COMPLETION ring.
pub(crate) type CompletionSlots = Consumer<u64, Mapped<u64>>;

/// Reclaims completed chunks and refills FILL, with those first.
#[inline(always)]
pub(crate) fn look_after(completion: &mut CompletionRing, fill: &mut FillRing, cache: &mut Cache) {
    if !fill.is_full() {
        fill.refill_with(completion, cache);
    } else if completion.lent() > 0 {
        completion.reclaim(cache);
    }
}

/// Most free chunks in the cache of a socket for which there are `chunks`, and whose larger ring has
/// `slots`. A burst of completions is as large as the TX ring; other sockets need chunks too.
pub(crate) fn cache_size(chunks: u32, slots: u32) -> usize {
    (slots.min(chunks / 4) as usize).max(1)
}
