//! Chunks that user space owns, and the bytes of received packets.
#![allow(unsafe_code)] // Chunks are slices of the mapping, and resume the reference that they left.

use super::owner::{OURS, OwnerTable};
use super::{
    AfterClose, Area, Burst, DeviceQueue, Extent, OwnedBy, Rings, RingsId, TX_METADATA_LEN,
    UNALIGNED, Umem, XDP_PACKET_HEADROOM,
};
use crate::error::Error;
use crate::hints::{HINTS_LEN, HintBytes, RxHints};
use crate::ring::SharedSlot;
use crate::sys::Desc;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// The right to read and write the bytes of one chunk. It exists exactly while the owner of the
/// chunk is "ours", so at most once for each chunk. Dropping it frees the chunk.
#[derive(Debug)]
pub(crate) struct Chunk {
    umem: Umem,
    index: u32,
}

impl Chunk {
    #[inline(always)]
    pub(crate) fn umem(&self) -> &Umem {
        &self.umem
    }

    #[inline(always)]
    pub(crate) fn area(&self) -> &Area {
        self.umem.area()
    }

    /// Address of the first byte, in the UMEM.
    #[inline(always)]
    pub(crate) fn addr(&self) -> u64 {
        u64::from(self.index) * u64::from(self.area().chunk_size)
    }

    /// Lends the chunk to the kernel for receiving through `rings`; returns its address for FILL.
    #[cfg(any(test, xsk_internals))]
    pub(crate) fn lend_to_receive(self, rings: RingsId) -> u64 {
        self.lend(rings.receiving())
    }

    /// Lends the chunk to the kernel for sending through `rings`; returns its address for TX.
    #[inline(always)]
    pub(crate) fn lend_to_send(self, rings: RingsId) -> u64 {
        self.lend(rings.sending())
    }

    /// The reference to the memory stays behind with the owner's entry.
    #[inline(always)]
    fn lend(self, owner: u32) -> u64 {
        let chunk = ManuallyDrop::new(self);
        let ours = chunk.area().any_chunks();
        // SAFETY: needed because the check would be the second. The index was below the number of chunks when the chunk
        // was made.
        unsafe { ours.set_unchecked(chunk.index as usize, owner) };
        chunk.addr()
    }

    #[inline]
    pub(crate) fn bytes(&self, at: Extent) -> &[u8] {
        assert!(
            at.fits(self.area().chunk_size()),
            "a packet lies in its chunk"
        );
        // SAFETY: needed to reach mapped memory. The index was below the number of chunks when
        // the chunk was made, and the extent was just checked.
        let start = unsafe { self.area().start(self.addr(), at) };
        // SAFETY: needed because the memory is mapped. The range is inside the chunk; `self` is the
        // only right to it, borrowed for as long as the slice; the kernel has not been lent the
        // chunk, so nobody writes.
        unsafe { std::slice::from_raw_parts(start, at.len as usize) }
    }

    /// The hints of the packet that was received into the chunk.
    pub(crate) fn hints(&self) -> RxHints {
        // SAFETY: needed as in `bytes`: the chunk is one of this memory, and `self` is the only right to it.
        unsafe { self.area().hints(self.addr()) }
    }

    #[inline]
    pub(crate) fn bytes_mut(&mut self, at: Extent) -> &mut [u8] {
        assert!(
            at.fits(self.area().chunk_size()),
            "a packet lies in its chunk"
        );
        // SAFETY: as in `bytes`.
        let start = unsafe { self.area().start(self.addr(), at) };
        // SAFETY: as in `bytes`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(start, at.len as usize) }
    }
}

#[cfg(xsk_internals)]
impl Chunk {
    /// Leaves the chunk, which stays ours, and its reference to the memory: [`Umem::left`] makes it a `Chunk` again.
    pub(crate) fn leave(self) {
        let _ = ManuallyDrop::new(self);
    }
}

impl Drop for Chunk {
    #[inline]
    fn drop(&mut self) {
        self.area().pool.put(&[self.index]);
    }
}

/// Free chunks of one socket, which need no atomic operation. The UMEM's pool has the others; chunks
/// move between the two many at a time.
#[derive(Debug)]
pub(crate) struct Cache {
    umem: Umem,
    /// Indices of chunks that are ours, up to `len`; each has left a reference to the memory.
    indices: Box<[u32]>,
    len: usize,
    /// Chunks that move to or from the pool at once.
    magazine: usize,
}

/// Most chunks that move between a cache and the pool at once: enough that the exchange, which
/// other CPUs see, costs little for each.
const MAGAZINE: usize = 64;

impl Cache {
    /// An empty cache for at most `most` chunks, which is not 0.
    pub(crate) fn new(umem: &Umem, most: usize) -> Self {
        Self {
            umem: umem.clone(),
            indices: vec![0; most].into(),
            len: 0,
            magazine: MAGAZINE.min(most.div_ceil(2)),
        }
    }

    #[inline(always)]
    pub(crate) fn umem(&self) -> &Umem {
        &self.umem
    }

    #[inline(always)]
    pub(crate) fn area(&self) -> &Area {
        self.umem.area()
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Holds at most `most` chunks from now on.
    pub(crate) fn limit(&mut self, most: usize) {
        if most < self.indices.len() {
            self.return_to_pool(self.len.saturating_sub(most));
            self.indices = self.indices[..most].into();
        }
    }

    /// Most chunks that it holds.
    #[inline(always)]
    pub(crate) fn capacity(&self) -> usize {
        self.indices.len()
    }

    /// Keeps a free chunk.
    #[inline(always)]
    pub(crate) fn put(&mut self, chunk: Chunk) {
        if !chunk.umem.is(&self.umem) {
            return; // To the pool of its own UMEM.
        }
        self.keep(ManuallyDrop::new(chunk).index);
    }

    /// Keeps the index of a chunk that is ours and has left its reference.
    #[inline(always)]
    fn keep(&mut self, index: u32) {
        if self.len == self.indices.len() {
            self.spill(1);
        }
        if let Some(slot) = self.indices.get_mut(self.len) {
            *slot = index;
            self.len += 1;
        }
    }

    /// Moves chunks to the pool, so that there is room for `more`.
    #[cold]
    #[inline(never)]
    fn spill(&mut self, more: usize) {
        let count = self.magazine.max(more).min(self.len);
        self.return_to_pool(count);
    }

    /// Takes chunks from the pool until `want` are here, as far as there are some and there is room.
    #[cfg(xsk_internals)]
    pub(crate) fn stock(&mut self, want: usize) {
        if self.len < want {
            self.restock(want);
        }
    }

    /// The places of the indices of free chunks, for other code.
    #[cfg(xsk_internals)]
    pub(crate) fn raw(&mut self) -> *mut u32 {
        self.indices.as_mut_ptr()
    }

    /// Goes on after such code.
    ///
    /// # Safety
    ///
    /// There are `len` indices of chunks that are ours, that have left a reference, and that are nowhere else.
    #[cfg(xsk_internals)]
    pub(crate) unsafe fn go_on(&mut self, len: u32) {
        self.len = self.indices.len().min(len as usize);
    }

    /// Moves all chunks to the pool.
    pub(crate) fn clear(&mut self) {
        self.return_to_pool(self.len);
    }

    fn return_to_pool(&mut self, count: usize) {
        self.len -= count;
        let chunks = &self.indices[self.len..][..count];
        self.area().pool.put(chunks);
        // SAFETY: needed to give up the references that these chunks left; they are in the pool now,
        // and their indices are not used again from here.
        unsafe { self.umem.0.withdraw(count) };
    }

    /// Takes chunks from the pool until `want` are here, as far as there are some and there is room.
    #[cold]
    #[inline(never)]
    fn restock(&mut self, want: usize) {
        let most = self.indices.len();
        let until = want.max(self.magazine).min(most).max(self.len);
        let room = &mut self.indices[self.len..until];
        let taken = self.umem.area().pool.take(room);
        self.umem.0.leave(taken);
        self.len += taken;
    }

    /// Whether a chunk is free, here or in the pool, from which it then comes here.
    #[inline]
    pub(crate) fn has_free(&mut self) -> bool {
        if self.len == 0 {
            self.restock(1);
        }
        self.len > 0
    }

    /// A free chunk, from here or from the pool.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Option<Chunk> {
        let index = self.take_index()?;
        // SAFETY: needed to resume the reference that the chunk left; its index is no longer here.
        let umem = Umem(unsafe { self.umem.0.resume() });
        Some(Chunk { umem, index })
    }

    #[inline(always)]
    fn take_index(&mut self) -> Option<u32> {
        if self.len == 0 {
            self.restock(1);
        }
        let last = self.len.checked_sub(1)?;
        self.len = last;
        self.indices.get(last).copied()
    }

    /// Lends chunks of 2^`SHIFT` bytes, or unaligned ones, for receiving through `rings`, one for each slot of FILL.
    /// Returns their number, less than there are slots when no more are free.
    #[inline(always)]
    pub(crate) fn lend_to_receive<const SHIFT: u32>(
        &mut self,
        slots: &[SharedSlot<u64>],
        rings: RingsId,
    ) -> usize {
        let to = rings.receiving();
        let mut none = 0;
        let mut lending = self.lend::<SHIFT>(slots.len(), &mut none);
        let indices = &lending.indices[lending.from..];
        let slots = &slots[..indices.len()];
        while lending.lent < indices.len() {
            let index = indices[lending.lent];
            // SAFETY: needed because the check would cost as much as the rest. The index of a chunk.
            unsafe { lending.ours.set_unchecked(index as usize, to) };
            slots[lending.lent].write(u64::from(index) * lending.ours.size());
            lending.lent += 1;
        }
        slots.len()
    }

    /// Lends chunks of 2^`SHIFT` bytes for sending through `rings`, one for each slot of TX, after
    /// `write` wrote a packet into each, behind the headroom; it returns the packet's length, or 0 to
    /// end early. Adds their number to `sent`, also when `write` panics. Returns whether more may follow.
    #[inline(always)]
    pub(crate) fn lend_to_send<const SHIFT: u32>(
        &mut self,
        slots: &[SharedSlot<Desc>],
        rings: RingsId,
        sent: &mut u32,
        mut write: impl FnMut(&mut [u8]) -> usize,
    ) -> bool {
        let to = rings.sending();
        let (memory, headroom) = (self.area().memory(), self.area().frame_offset);
        let mut lending = self.lend::<SHIFT>(slots.len(), sent);
        let size = lending.ours.size();
        let room = size as usize - headroom as usize;
        let indices = &lending.indices[lending.from..];
        let slots = &slots[..indices.len()];
        while lending.lent < indices.len() {
            let index = indices[lending.lent];
            let addr = u64::from(index) * size + u64::from(headroom);
            // SAFETY: needed because the memory is mapped. The chunk is ours: its index is in the
            // cache, which is borrowed, and no `Chunk` of it exists. The room ends with the chunk,
            // and the slice lives during the call only.
            let bytes = unsafe { std::slice::from_raw_parts_mut(memory.at(addr), room) };
            let len = write(bytes);
            if len > room {
                too_long(len, room);
            }
            if len == 0 {
                return false;
            }
            // SAFETY: as for `lend_to_receive`.
            unsafe { lending.ours.set_unchecked(index as usize, to) };
            slots[lending.lent].write_packet(addr, len as u32);
            lending.lent += 1;
        }
        !slots.is_empty()
    }

    /// Up to `want` of the chunks here, after restocking; their number is added to `count` when they
    /// are lent.
    #[inline(always)]
    fn lend<'c, const SHIFT: u32>(
        &'c mut self,
        want: usize,
        count: &'c mut u32,
    ) -> Lending<'c, SHIFT> {
        if self.len < want {
            self.restock(want);
        }
        let from = self.len - want.min(self.len);
        Lending {
            ours: self.umem.area().owned_by(OURS),
            indices: &mut self.indices[..self.len],
            len: &mut self.len,
            from,
            lent: 0,
            count,
        }
    }

    /// Takes up to `want` chunks out, after restocking, to be lent for sending through `rings`.
    #[inline(always)]
    pub(crate) fn reserve(&mut self, want: usize, rings: RingsId) -> Reserved<'_> {
        if self.len < want {
            self.restock(want);
        }
        let from = self.len - want.min(self.len);
        let indices = &mut self.indices[from..self.len];
        // From here on they are in the cache no more, even if the value is forgotten.
        self.len = from;
        Reserved {
            area: self.umem.area(),
            sending: rings.sending(),
            indices,
            taken: 0,
            len: &mut self.len,
        }
    }

    /// Takes back chunks of 2^`SHIFT` bytes that were lent for sending through `rings`, and whose
    /// completions are in `slots`. Returns their number: it ends at the first of a chunk that was not.
    #[inline(always)]
    pub(crate) fn take_back<const SHIFT: u32>(
        &mut self,
        slots: &[SharedSlot<u64>],
        rings: RingsId,
    ) -> usize {
        if self.indices.len() - self.len < slots.len() {
            self.spill(slots.len());
        }
        let sent = self.umem.area().owned_by::<SHIFT>(rings.sending());
        let room = &mut self.indices[self.len..];
        let count = room.len().min(slots.len());
        let (room, slots) = (&mut room[..count], &slots[..count]);
        let mut taken = 0;
        while taken < count {
            let Some(index) = sent.give(slots[taken].read(), OURS) else {
                break;
            };
            room[taken] = index;
            taken += 1;
        }
        self.len += taken;
        taken
    }

    /// Addresses of the chunks here.
    #[cfg(any(test, xsk_internals))]
    pub(crate) fn addresses(&self) -> impl Iterator<Item = u64> {
        let size = u64::from(self.area().chunk_size);
        self.indices[..self.len]
            .iter()
            .map(move |&index| u64::from(index) * size)
    }
}

#[cold]
#[inline(never)]
fn too_long(len: usize, room: usize) -> ! {
    panic!("the closure of `send_each` returned a length of {len}, and its room has {room} bytes")
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Chunks at the end of a cache that are being lent. Those that are not lent stay in it.
struct Lending<'c, const SHIFT: u32> {
    ours: OwnedBy<'c, SHIFT>,
    /// All chunks of the cache.
    indices: &'c mut [u32],
    len: &'c mut usize,
    /// The first of those to lend, and the number of those lent.
    from: usize,
    lent: usize,
    count: &'c mut u32,
}

impl<const SHIFT: u32> Drop for Lending<'_, SHIFT> {
    #[inline(always)]
    fn drop(&mut self) {
        let rest = self.from + self.lent..self.indices.len();
        *self.len = self.from + rest.len();
        *self.count += self.lent as u32;
        if !rest.is_empty() {
            close_gap(self.indices, rest, self.from);
        }
    }
}

/// Chunks taken out of a cache together. Those that are not lent [return](Self::return_rest) there.
#[derive(Debug)]
pub(crate) struct Reserved<'c> {
    area: &'c Area,
    /// The entry of a chunk that is lent.
    sending: u32,
    /// Their indices; [`LENT`] in the place of those that were lent.
    indices: &'c mut [u32],
    /// The number of those handed out as a [`Room`].
    taken: usize,
    /// The number of chunks in the cache, which are in front of these.
    len: &'c mut usize,
}

/// No index of a chunk.
const LENT: u32 = u32::MAX;

impl Reserved<'_> {
    /// Chunks in all.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.indices.len()
    }

    /// Chunks that were not handed out.
    #[inline(always)]
    pub(crate) fn left(&self) -> usize {
        self.indices.len() - self.taken
    }

    /// Chunks that were.
    #[inline(always)]
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// Whether one of them was lent.
    #[inline(always)]
    pub(crate) fn is_lent(&self, taken: usize) -> bool {
        self.indices[taken] == LENT
    }

    /// The number of those that were lent.
    #[inline(always)]
    pub(crate) fn lent(&self) -> u32 {
        // A sum, and not a search, which the compiler would not vectorize.
        let taken = self.indices[..self.taken].iter();
        taken.map(|&index| u32::from(index == LENT)).sum()
    }

    /// Hands out the chunks that are left, one after the other.
    #[inline(always)]
    pub(crate) fn rooms(&mut self) -> Rooms<'_> {
        let (memory, chunk_size) = (self.area.memory(), self.area.chunk_size());
        // Until `Rooms` ends: if that is forgotten, no chunk is handed out again.
        let from = std::mem::replace(&mut self.taken, self.indices.len());
        Rooms {
            indices: self.indices[from..].iter_mut(),
            taken: &mut self.taken,
            owners: self.area.any_chunks(),
            sending: self.sending,
            memory,
            chunk_size,
            offset: self.area.frame_offset,
        }
    }

    /// Returns the chunks that were not lent to the cache. If this is not called, they are lost.
    #[cold]
    #[inline(never)]
    pub(crate) fn return_rest(&mut self) {
        let mut kept = 0;
        for at in 0..self.indices.len() {
            let index = self.indices[at];
            if index != LENT {
                self.indices[kept] = index;
                kept += 1;
            }
        }
        *self.len += kept;
    }
}

/// The chunks of a [`Reserved`] that are left.
#[derive(Debug)]
pub(crate) struct Rooms<'b> {
    indices: std::slice::IterMut<'b, u32>,
    /// All of the chunks, from which the end takes off those that are left.
    taken: &'b mut usize,
    owners: OwnedBy<'b, UNALIGNED>,
    sending: u32,
    memory: Memory,
    chunk_size: u32,
    offset: u32,
}

impl Rooms<'_> {
    /// Chunks left.
    #[inline(always)]
    pub(crate) fn left(&self) -> usize {
        self.indices.len()
    }
}

impl Drop for Rooms<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        *self.taken -= self.left();
    }
}

impl<'b> Iterator for Rooms<'b> {
    type Item = Room<'b>;

    #[inline(always)]
    fn next(&mut self) -> Option<Room<'b>> {
        let index = self.indices.next()?;
        let start = u64::from(*index) * u64::from(self.chunk_size);
        let extent = Extent {
            offset: self.offset,
            len: 0,
        };
        Some(Room {
            index,
            start,
            extent,
            chunk_size: self.chunk_size,
            owners: self.owners,
            sending: self.sending,
            memory: self.memory,
        })
    }
}

/// The right to read and write the bytes of one chunk of a [`Reserved`], and to lend it. The chunk is ours, no
/// [`Chunk`] of it exists, and no other `Room`: each borrows its place among the indices exclusively.
#[derive(Debug)]
pub(crate) struct Room<'b> {
    index: &'b mut u32,
    start: u64,
    extent: Extent,
    chunk_size: u32,
    owners: OwnedBy<'b, UNALIGNED>,
    sending: u32,
    memory: Memory,
}

impl Room<'_> {
    /// Longest packet that fits, in bytes.
    #[inline(always)]
    pub(crate) fn capacity(&self) -> u32 {
        self.chunk_size - self.extent.offset
    }

    /// Sets the packet's length.
    #[inline(always)]
    pub(crate) fn resize(&mut self, len: usize) -> Result<(), Error> {
        self.extent.resize(len, self.chunk_size)
    }

    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        let addr = self.start + u64::from(self.extent.offset);
        // SAFETY: needed because the memory is mapped. `resize` keeps the extent inside the chunk, which is one of this
        // memory, and ours alone, as the type says; so nobody writes while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.memory.at(addr), self.extent.len as usize) }
    }

    #[inline(always)]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let addr = self.start + u64::from(self.extent.offset);
        // SAFETY: as in `bytes`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.memory.at(addr), self.extent.len as usize) }
    }

    /// Lends the chunk to the kernel for sending; returns the packet's address and length for TX. An empty packet is
    /// not lent.
    #[inline(always)]
    pub(crate) fn lend_to_send(self) -> Option<(u64, u32)> {
        let Extent { offset, len } = self.extent;
        if len == 0 {
            return None;
        }
        let index = std::mem::replace(self.index, LENT);
        // SAFETY: needed because the check would cost as much as the rest. The index of a chunk.
        unsafe { self.owners.set_unchecked(index as usize, self.sending) };
        Some((self.start + u64::from(offset), len))
    }
}

#[cold]
#[inline(never)]
fn close_gap(indices: &mut [u32], rest: std::ops::Range<usize>, to: usize) {
    indices.copy_within(rest, to);
}

impl Umem {
    #[inline(always)]
    pub(crate) fn area(&self) -> &Area {
        &self.0
    }

    /// Whether both are the same memory.
    #[inline(always)]
    pub(crate) fn is(&self, other: &Umem) -> bool {
        self.0.is(&other.0)
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn take_free(&self) -> Option<Chunk> {
        let mut taken = [0];
        (self.area().pool.take(&mut taken) == 1).then(|| Chunk {
            umem: self.clone(),
            index: taken[0],
        })
    }

    /// Takes back a chunk that was lent through `rings` for receiving; `addr` is anywhere inside it.
    #[inline]
    pub(crate) fn received(&self, addr: u64, rings: RingsId) -> Option<Chunk> {
        self.returned(addr, OwnerTable::is_receiving(rings))
    }

    /// The same, unless the burst has read a packet of the chunk.
    pub(crate) fn unread(&self, addr: u64, burst: Burst) -> Option<Chunk> {
        self.returned(addr, OwnerTable::is_unread(burst))
    }

    /// Takes back a chunk that was lent through `rings` for sending. The address can differ from the
    /// descriptor's: copy mode clears its lowest bit.
    pub(crate) fn completed(&self, addr: u64, rings: RingsId) -> Option<Chunk> {
        self.returned(addr, |entry| entry == rings.sending())
    }

    #[inline(always)]
    fn returned(&self, addr: u64, is_lent: impl Fn(u32) -> bool) -> Option<Chunk> {
        let area = self.area();
        let index = area.index(addr);
        area.owners.change(index, is_lent, OURS).then(|| Chunk {
            // SAFETY: needed to resume the reference that the chunk left when it was lent, as its
            // entry said until now.
            umem: Umem(unsafe { self.0.resume() }),
            index: index as u32,
        })
    }

    /// The chunk of an index that was [left](Chunk::leave), or made ours by other code; `None` when the kernel has it,
    /// or there is none.
    ///
    /// # Safety
    ///
    /// If it is ours, it is neither free nor a [`Chunk`].
    #[cfg(xsk_internals)]
    pub(crate) unsafe fn left(&self, index: u64) -> Option<Chunk> {
        let is_ours = self
            .area()
            .owners
            .change(index, |entry| entry == OURS, OURS);
        is_ours.then(|| Chunk {
            // SAFETY: needed to resume the reference that the chunk left, which the caller answers for.
            umem: Umem(unsafe { self.0.resume() }),
            index: index as u32,
        })
    }

    /// Ends chunks that were [left](Chunk::leave) and will not be used again.
    ///
    /// # Safety
    ///
    /// At least as many are left, and are not resumed.
    #[cfg(xsk_internals)]
    pub(crate) unsafe fn forget_left(&self, count: usize) {
        // SAFETY: needed to give up the references that they left, as the caller promises.
        unsafe { self.0.withdraw(count) };
    }

    /// The start of the memory and of the table of owners, for other code.
    #[cfg(xsk_internals)]
    pub(crate) fn raw(&self) -> (*mut u8, *mut u32) {
        let owners = self.area().owners.entries().as_ptr();
        (self.area().memory().at(0), owners.cast_mut().cast())
    }

    /// Writes that the packet at an address has no request, where its chunk is lent for sending through
    /// `rings`, and has room for that in front of the packet. The kernel must not have the packet yet; it
    /// refuses one without the room.
    pub(crate) fn clear_metadata(&self, addr: u64, rings: RingsId) {
        let area = self.area();
        let addr = area.decode(addr);
        let lent = rings.sending();
        let is_lent = |entry| entry == lent;
        let is_lent = area.owners.change(area.index(addr), is_lent, lent);
        let len = u64::from(TX_METADATA_LEN);
        if is_lent && addr - area.chunk_start(addr) >= len {
            // SAFETY: needed because the chunk has no `Chunk`. The range lies inside a chunk of this memory.
            // While it is lent for sending, no code here reads or writes it, but for the one thread that
            // sends through these rings, which is at this place.
            unsafe {
                std::ptr::write_bytes(area.memory().at(addr - len), 0, TX_METADATA_LEN as usize);
            };
        }
    }

    /// Ends a pair of rings: the chunks lent through it become free, unless the kernel may still
    /// touch them. Returns the number of retired chunks.
    pub(crate) fn release_rings(&self, id: RingsId, kernel: AfterClose, queue: DeviceQueue) -> u32 {
        let area = self.area();
        let mut registry = self.registry();
        let lent = area.owners.lent(id);
        let free = |index| area.pool.put(&[index]);
        let retired = match kernel {
            _ if registry.handed_over => lent as u32,
            AfterClose::LetGo => area.owners.release(id, true, free),
            AfterClose::MaySend => area.owners.release(id, false, free),
            AfterClose::MayTouchAll => lent as u32,
        };
        // SAFETY: needed to give up the references that the lent chunks left. They are in the pool
        // now, or retired, from where they go to the pool.
        unsafe { self.0.withdraw(lent) };
        registry.rings[usize::from(id.0)] = match retired {
            0 => Rings::Unused,
            _ => Rings::Retired(queue),
        };
        retired
    }
}

impl Area {
    /// The first byte of an extent.
    ///
    /// # Safety
    ///
    /// `chunk_addr` is the address of a chunk of this UMEM, and `at` lies inside a chunk.
    #[inline(always)]
    unsafe fn start(&self, chunk_addr: u64, at: Extent) -> *mut u8 {
        let offset = chunk_addr as usize + at.offset as usize;
        // SAFETY: needed to reach mapped memory; the caller promises that it is inside.
        unsafe { self.memory.start().as_ptr().add(offset) }
    }

    /// The memory, for a loop over many packets.
    #[inline(always)]
    pub(crate) fn memory(&self) -> Memory {
        Memory(self.memory.start())
    }

    /// The hints of the packet received into the chunk at this address: in front of the place where the kernel put
    /// its first byte.
    ///
    /// # Safety
    ///
    /// The address is that of a chunk of this memory, and nobody writes into the chunk during the call.
    pub(crate) unsafe fn hints(&self, chunk: u64) -> RxHints {
        let packet = self.headroom() + XDP_PACKET_HEADROOM;
        if packet > self.chunk_size() {
            return RxHints::default();
        }
        let at = chunk + u64::from(packet) - u64::from(HINTS_LEN);
        // SAFETY: needed to reach mapped memory. The bytes lie inside the chunk, which the caller answers for, and
        // may be any, which an array of bytes can have.
        let bytes = unsafe { self.memory().at(at).cast::<HintBytes>().read() };
        RxHints::read(&bytes)
    }
}

/// The start of a UMEM's memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory(NonNull<u8>);

// SAFETY: needed because of the pointer, so that a batch can move to another thread, as when an async task holds one. It
// is a number alone: who follows it borrows the memory, and shows that nobody else has the bytes.
unsafe impl Send for Memory {}

impl Memory {
    /// The byte at an address. The pointer is valid where the address is inside the memory.
    #[inline(always)]
    pub(crate) fn at(self, addr: u64) -> *mut u8 {
        self.0.as_ptr().wrapping_add(addr as usize)
    }

    /// Loads the first bytes of the packet at an address into the CPU's caches, ahead of its use.
    #[inline(always)]
    pub(crate) fn prefetch(self, addr: u64) {
        crate::sys::prefetch(self.at(addr));
    }
}

#[cfg(test)]
mod tests {
    use crate::umem::{AfterClose, Burst, Geometry, QUEUE, TX_METADATA_LEN, Umem};

    #[test]
    fn a_chunk_comes_back_through_the_rings_that_it_was_lent_through() {
        let umem = Umem::on_heap(4, 2048);
        let first = umem.register_rings().expect("a pair");
        let second = umem.register_rings().expect("a pair");
        let addr = umem.take_free().expect("a chunk").lend_to_receive(first);
        assert!(umem.received(addr, second).is_none());
        assert!(umem.completed(addr, first).is_none());
        let chunk = umem.received(addr + 300, first).expect("the chunk");
        assert!(umem.received(addr, first).is_none(), "handed out twice");
        assert_eq!(chunk.addr(), addr);
        drop(chunk);
        assert_eq!(umem.accounting().free, 4);
    }

    #[test]
    fn an_address_outside_the_umem_is_refused() {
        let umem = Umem::on_heap(4, 2048);
        let rings = umem.register_rings().expect("a pair");
        for addr in [4 * 2048, u64::MAX, 1 << 48, u64::from(u32::MAX) * 2048] {
            assert!(umem.received(addr, rings).is_none());
            assert!(umem.completed(addr, rings).is_none());
            let one = crate::ring::Size::of(1);
            let burst = Burst::new(rings, 1);
            assert!(!umem.area().lent_to_receive(burst).mark_read(addr, one));
        }
    }

    /// A peer may have written any address into TX that leads to the chunk.
    #[test]
    fn metadata_is_cleared_where_the_address_leads() {
        let umem = Umem::of_geometry_on_heap(Geometry {
            chunks: 4,
            chunk_size: 2048,
            headroom: 0,
            fragments: false,
            tx_metadata: true,
            unaligned: true,
        });
        let rings = umem.register_rings().expect("a pair");
        let addr = umem.take_free().expect("a chunk").lend_to_send(rings) + 300;
        for offset in [0, 5, 300] {
            umem.clear_metadata((addr - offset) | offset << 48, rings);
        }
        // Without the room, and in another chunk.
        umem.clear_metadata(addr - 300 + u64::from(TX_METADATA_LEN) - 1, rings);
        umem.clear_metadata(addr | 2048 << 48, rings);
        assert!(umem.completed(addr, rings).is_some());
    }

    #[test]
    fn closing_rings_frees_or_retires_their_chunks() {
        for (kernel, free, retired) in [
            (AfterClose::LetGo, 4, 0),
            (AfterClose::MaySend, 3, 1),
            (AfterClose::MayTouchAll, 2, 2),
        ] {
            let umem = Umem::on_heap(4, 2048);
            let rings = umem.register_rings().expect("a pair");
            umem.take_free().expect("a chunk").lend_to_receive(rings);
            umem.take_free().expect("a chunk").lend_to_send(rings);
            assert_eq!(umem.release_rings(rings, kernel, QUEUE), retired);
            let count = umem.accounting();
            assert_eq!((count.free, count.retired), (free, retired));
            let next = umem.register_rings().expect("a pair");
            assert_eq!(next == rings, retired == 0, "retired rings are in use");
            umem.recover_retired(|queue| !queue.is(&QUEUE));
            assert_eq!(umem.accounting().retired, retired);
            umem.recover_retired(|queue| queue.is(&QUEUE));
            assert_eq!(umem.accounting().free, 4);
        }
    }
}
