//! A socket for code outside of this library that moves packets itself: the functions that weir's header for C inlines.
#![allow(unsafe_code)] // That code shares the rings and the free chunks by pointers.

use super::Socket;
use super::sender::Sender;
use crate::error::Result;
use crate::frame::Frame;
use crate::ring::{Consumer, Producer, RawRing};
use crate::umem::{Extent, Umem};

/// Most packets that such code takes from RX before it lets the library look after the rings.
const MOST: u32 = 1024;

/// The rings, the owners of chunks, and the free chunks of a socket, as such code sees and changes them. Chunks have a power
/// of two of bytes, and packets one chunk and no metadata.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct RawSocket {
    /// What it takes from RX it releases.
    pub rx: RawRing,
    /// What it writes here is published by [`Socket::flush`].
    pub tx: RawRing,
    /// What it writes here it publishes.
    pub fill: RawRing,
    /// What it takes from COMPLETION it releases.
    pub completion: RawRing,
    /// The memory of packets.
    pub memory: *mut u8,
    /// The owner of each chunk: 0 is the program.
    pub owners: *mut u32,
    /// Indices of free chunks, whose owner is the program.
    pub free: *mut u32,
    /// The number of those.
    pub free_count: u32,
    /// The number of places for them.
    pub free_room: u32,
    /// Chunks in all.
    pub chunks: u32,
    /// The log2 of their size.
    pub chunk_shift: u32,
    /// Offset of an empty packet in its chunk.
    pub frame_offset: u32,
    /// Chunks that FILL lacks.
    pub lacking: u32,
    /// Packets that it may take from RX until it calls [`Socket::look_after_raw`].
    pub credit: u32,
    /// The owner of a chunk that is lent for receiving.
    pub receiving: u32,
    /// The owner of one that is lent for sending.
    pub sending: u32,
}

impl Socket {
    /// The socket for such code; `None` where its packets have several chunks, unaligned ones or metadata.
    pub fn raw(&mut self) -> Option<RawSocket> {
        let Self {
            receiver,
            sender,
            umem,
            ..
        } = self;
        if umem.fragments() || umem.unaligned() || umem.tx_metadata() {
            return None;
        }
        let (memory, owners) = umem.raw();
        let id = receiver.fill.id();
        let (rx, tx) = (receiver.main.ring.as_ref(), sender.main.ring.as_ref());
        let mut raw = RawSocket {
            rx: rx.map_or(RawRing::NONE, Consumer::raw),
            tx: tx.map_or(RawRing::NONE, Producer::raw),
            fill: receiver.fill.ring().raw(),
            completion: sender.completion.ring.raw(),
            memory,
            owners,
            free: sender.cache.raw(),
            free_count: 0,
            free_room: sender.cache.capacity() as u32,
            chunks: umem.chunks(),
            chunk_shift: umem.area().chunk_shift(),
            frame_offset: umem.area().frame_offset(),
            lacking: 0,
            credit: 0,
            receiving: id.receiving(),
            sending: id.sending(),
        };
        self.refresh(&mut raw);
        Some(raw)
    }

    /// Writes the places where such code is to go on into a value of [`raw`](Self::raw).
    pub fn refresh(&self, raw: &mut RawSocket) {
        let Self {
            receiver, sender, ..
        } = self;
        if let Some(rx) = &receiver.main.ring {
            raw.rx.set_place(rx.place());
        }
        if let Some(tx) = &sender.main.ring {
            raw.tx.set_place(tx.place());
        }
        raw.fill.set_place(receiver.fill.ring().place());
        raw.completion.set_place(sender.completion.ring.place());
        raw.free_count = sender.cache.len() as u32;
        raw.lacking = receiver.fill.lacking();
        // FILL is to keep three quarters of its chunks.
        let most = receiver.fill.target().div_ceil(4).min(MOST);
        raw.credit = most.saturating_sub(raw.lacking);
    }

    /// Goes on after such code.
    ///
    /// # Safety
    ///
    /// The value came from [`raw`](Self::raw) of this socket, which was not used since, and has changed as that code
    /// moved packets by it: each chunk that it took from a ring or from the free ones is in another ring, free, or a frame
    /// of the program's; its owner says so; and it is in no two places.
    pub unsafe fn go_on_after(&mut self, raw: &RawSocket) {
        let Self {
            receiver, sender, ..
        } = self;
        let rx = receiver.main.ring.as_mut();
        let received = rx.map_or(0, |rx| rx.go_on(&raw.rx));
        receiver.main.received_elsewhere += u64::from(received);
        receiver.fill.go_on(&raw.fill, received);
        let tx = sender.main.ring.as_mut();
        let sent = tx.map_or(0, |tx| tx.go_on(&raw.tx, false));
        sender.completion.go_on(&raw.completion, sent);
        // SAFETY: needed because the indices are used without a check. As the caller promises.
        unsafe { sender.cache.go_on(raw.free_count) };
    }

    /// Same as [`flush`](Self::flush), and leaves the chunks of sent packets to such code.
    ///
    /// # Errors
    ///
    /// Those of [`flush`](Self::flush).
    pub fn flush_raw(&mut self) -> Result<()> {
        let Sender {
            main,
            completion,
            cache,
            ..
        } = &mut self.sender;
        main.hand_over(completion, cache)
    }

    /// Reclaims completed chunks, refills FILL, wakes the kernel if it asks for that, and gets free chunks until `want`
    /// are at hand, if there are as many.
    pub fn look_after_raw(&mut self, want: u32) {
        self.look_after();
        // Counts an impossible index of RX, which such code leaves alone.
        self.receiver.main.has_packets();
        self.sender.cache.stock(want as usize);
    }
}

impl Frame {
    /// Leaves the frame to such code, which has its place in the memory.
    pub fn leave(self) {
        self.into_chunk().leave();
    }

    /// The frame of such code, without bytes, that begins at `data`; `None` when that is in no chunk of the UMEM, or in one
    /// that the kernel has.
    ///
    /// # Safety
    ///
    /// A chunk of the UMEM there is a frame that such code has, or was [left](Self::leave), and is neither free nor
    /// a [`Frame`] already.
    pub unsafe fn left(umem: &Umem, data: *const u8) -> Option<Self> {
        let addr = data.addr().wrapping_sub(umem.raw().0.addr()) as u64;
        let size = u64::from(umem.chunk_size());
        // SAFETY: needed because the index alone does not say that the chunk is a frame. As the caller promises.
        let chunk = unsafe { umem.left(addr / size) }?;
        let offset = (addr % size) as u32;
        Some(Self::new(chunk, Extent { offset, len: 0 }))
    }

    /// Ends frames that such code will not use again.
    ///
    /// # Safety
    ///
    /// At least as many are [left](Self::leave), and are not used again.
    pub unsafe fn forget_left(umem: &Umem, count: u32) {
        // SAFETY: needed to give up what they keep of the memory. As the caller promises.
        unsafe { umem.forget_left(count as usize) };
    }
}
