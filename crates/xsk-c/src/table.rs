//! The frames that the program has of one UMEM, and their handles.
#![allow(unsafe_code)] // Without checks, frames are what C says.

use crate::abi;
use crate::fault::{Fault, Result};
use std::slice;
use xsk::compat::RawSocket;
use xsk::{Frame, Socket, Umem};

/// The frames of one UMEM. A handle has the UMEM's number, the slot, and a serial number that no
/// other frame ever had.
#[derive(Debug)]
pub(crate) struct FrameTable {
    umem: u32,
    unchecked: Option<Unchecked>,
    slots: Vec<Slot>,
    /// Slots without a frame.
    free: Vec<u32>,
    /// The next serial number.
    next: u64,
}

/// Frames without checks: the place of the bytes alone says which one it is.
#[derive(Debug)]
struct Unchecked {
    memory: Umem,
    /// Their number; with that of the [views](crate::view) it is not less than 0.
    count: u32,
}

#[derive(Debug)]
struct Slot {
    serial: u64,
    frame: Option<Frame>,
}

/// A slot without a frame, and serial numbers for the packets that may get into it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reserved {
    pub(crate) handle: [u64; 2],
}

impl FrameTable {
    /// The table of the UMEM with this number.
    pub(crate) fn new(umem: u32) -> Self {
        Self {
            umem,
            unchecked: None,
            slots: Vec::new(),
            free: Vec::new(),
            next: 1,
        }
    }

    /// The same without checks.
    pub(crate) fn unchecked(umem: u32, memory: Umem) -> Self {
        let unchecked = Some(Unchecked { memory, count: 0 });
        Self {
            unchecked,
            ..Self::new(umem)
        }
    }

    /// Counts frames that the program has without checks.
    pub(crate) fn add(&mut self, frames: u32) {
        if let Some(unchecked) = &mut self.unchecked {
            unchecked.count = unchecked.count.wrapping_add(frames);
        }
    }

    /// The number of frames that the program has.
    pub(crate) fn len(&self) -> usize {
        if let Some(unchecked) = &self.unchecked {
            return unchecked.count as usize;
        }
        self.slots
            .iter()
            .filter(|slot| slot.frame.is_some())
            .count()
    }

    /// A slot for a frame, and `count` serial numbers, of which the first is in the handle.
    #[inline(always)]
    pub(crate) fn reserve(&mut self, count: u32) -> Reserved {
        if self.unchecked.is_some() {
            return Reserved {
                handle: [u64::from(self.umem) << 32, 0],
            };
        }
        let index = self.free.pop().unwrap_or_else(|| self.grow());
        let serial = self.next;
        self.next += u64::from(count);
        Reserved {
            handle: [u64::from(self.umem) << 32 | u64::from(index), serial],
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) -> u32 {
        self.slots.push(Slot {
            serial: 0,
            frame: None,
        });
        self.slots.len() as u32 - 1
    }

    /// Gives a reserved slot back.
    pub(crate) fn cancel(&mut self, reserved: Reserved) {
        if self.unchecked.is_none() {
            self.free.push(reserved.handle[0] as u32);
        }
    }

    /// Puts a frame into its reserved slot; the handle is valid from then on.
    #[inline(always)]
    pub(crate) fn fill(&mut self, Reserved { handle }: Reserved, frame: Frame) {
        if self.unchecked.is_some() {
            frame.leave();
            self.add(1);
        } else if let Some(slot) = self.slots.get_mut(handle[0] as u32 as usize) {
            slot.serial = handle[1];
            let none = slot.frame.replace(frame);
            debug_assert!(none.is_none(), "a reserved slot has no frame");
            // Forgotten, so that there is no code to drop it.
            std::mem::forget(none);
        }
    }

    /// Gives a frame a handle. The caller knows where its packet is.
    #[inline(always)]
    pub(crate) fn insert(&mut self, frame: Frame, data: *mut u8, len: u32) -> abi::Frame {
        let (reserved, room) = (self.reserve(1), frame.capacity());
        self.fill(reserved, frame);
        show(data, len, room, reserved.handle)
    }

    /// Takes a frame out; the handle is stale, unless the frame is put [back](Self::put_back). `None`
    /// for a handle of no frame here; [`refusal`](Self::refusal) has the error.
    #[inline(always)]
    pub(crate) fn take(&mut self, shown: &abi::Frame) -> Option<Frame> {
        if let Some(unchecked) = &mut self.unchecked {
            return unchecked.take(shown);
        }
        let [place, serial] = shown.handle;
        let slot = self.slots.get_mut(place as u32 as usize)?;
        if place >> 32 != u64::from(self.umem) || slot.serial != serial {
            return None;
        }
        let frame = slot.frame.take()?;
        self.free.push(place as u32);
        Some(frame)
    }

    /// The error of a handle of no frame here.
    #[cold]
    pub(crate) fn refusal(&self, shown: &abi::Frame) -> Fault {
        if self.unchecked.is_some() {
            return Fault::new(
                libc::ESTALE,
                "the frame was sent already, or is in another UMEM than the socket",
            );
        }
        let umem = shown.handle[0] >> 32;
        if umem != 0 && umem != u64::from(self.umem) {
            return Fault::new(
                libc::EXDEV,
                "the frame is in another UMEM than the socket: copy it into a frame of this one",
            );
        }
        Fault::new(
            libc::ESTALE,
            "the frame was sent or freed already, or never was one: the program may not use it any more",
        )
    }

    /// Takes a frame out, its head and tail moved to where C has them; after an error it is still here.
    #[inline(always)]
    pub(crate) fn take_moved(&mut self, shown: &abi::Frame) -> Result<Frame> {
        let Some(mut frame) = self.take(shown) else {
            return Err(self.refusal(shown));
        };
        match move_frame(&mut frame, shown) {
            Ok(()) => Ok(frame),
            Err(fault) => {
                self.put_back(slice::from_ref(shown), [frame]);
                Err(fault)
            }
        }
    }

    /// Undoes the last [`take`](Self::take)s, of these frames.
    pub(crate) fn put_back(
        &mut self,
        shown: &[abi::Frame],
        frames: impl IntoIterator<Item = Frame>,
    ) {
        for (&abi::Frame { handle, .. }, frame) in shown.iter().zip(frames) {
            if self.unchecked.is_none() {
                // Of one of them; all of these slots get their frame again.
                let last = self.free.pop();
                debug_assert!(last.is_some(), "each had its slot freed");
            }
            self.fill(Reserved { handle }, frame);
        }
    }
}

impl Unchecked {
    /// The frame that begins where C says.
    fn take(&mut self, shown: &abi::Frame) -> Option<Frame> {
        // SAFETY: needed because the place alone says which frame it is. On a UMEM without checks, the header asks programs
        // to give frames that they have.
        let frame = unsafe { Frame::left(&self.memory, shown.data) }?;
        self.count = self.count.wrapping_sub(1);
        Some(frame)
    }
}

impl Drop for Unchecked {
    /// Frees the memory of frames that the program still has. All sockets are closed.
    fn drop(&mut self) {
        let held = self.memory.accounting().held;
        // SAFETY: needed because no value here has them. A chunk that is neither lent nor in the pool is a frame, as caches
        // end with their sockets; and without a socket of its UMEM a frame cannot be used.
        unsafe { Frame::forget_left(&self.memory, held) };
    }
}

/// Goes on with a socket where the inlined functions have stopped.
pub(crate) fn go_on_after(socket: &mut Socket, raw: &RawSocket) {
    // SAFETY: needed because C moved packets. The functions of the header keep to what is asked, and it asks programs to
    // use them, on a UMEM without checks, with frames that they have.
    unsafe { socket.go_on_after(raw) };
}

/// A packet as C sees it.
#[inline(always)]
pub(crate) fn show(data: *mut u8, len: u32, room: u32, handle: [u64; 2]) -> abi::Frame {
    abi::Frame {
        data,
        len,
        room,
        handle,
    }
}

/// The changes of a packet's head and tail that lead from what it was to what C made of it.
pub(crate) fn moves(data: *const u8, len: u32, shown: &abi::Frame) -> Result<(i32, i32)> {
    let head = shown.data.addr().wrapping_sub(data.addr()).cast_signed();
    let tail = (head as i64)
        .wrapping_add(i64::from(shown.len))
        .wrapping_sub(i64::from(len));
    match (i32::try_from(head), i32::try_from(tail)) {
        (Ok(head), Ok(tail)) => Ok((head, tail)),
        _ => Err(outside()),
    }
}

#[cold]
pub(crate) fn outside() -> Fault {
    Fault::invalid(
        "`data` and `len` are no bytes inside the chunk of the packet: leave them as they were, or move them inside it",
    )
}

/// Moves head and tail, the one that makes room first.
#[inline]
pub(crate) fn adjust<P>(
    packet: &mut P,
    (head, tail): (i32, i32),
    adjust_head: impl Fn(&mut P, i32) -> xsk::Result<()>,
    adjust_tail: impl Fn(&mut P, i32) -> xsk::Result<()>,
) -> Result<()> {
    let adjusted = if tail > 0 {
        adjust_tail(packet, tail).and_then(|()| adjust_head(packet, head))
    } else {
        adjust_head(packet, head).and_then(|()| adjust_tail(packet, tail))
    };
    adjusted.map_err(|_| outside())
}

/// Moves the head and tail of a frame to where C has them.
#[inline(always)]
pub(crate) fn move_frame(frame: &mut Frame, shown: &abi::Frame) -> Result<()> {
    if std::ptr::eq(frame.as_ptr(), shown.data) {
        return frame.resize(shown.len as usize).map_err(|_| outside());
    }
    let moves = moves(frame.as_ptr(), frame.len() as u32, shown)?;
    adjust(frame, moves, Frame::adjust_head, Frame::adjust_tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn umem() -> Umem {
        let umem = Umem::builder().chunks(16).headroom(64);
        umem.build().expect("memory")
    }

    fn code<T>(result: Result<T>) -> i32 {
        result.err().map_or(0, |fault| fault.code)
    }

    fn insert(table: &mut FrameTable, mut frame: Frame) -> abi::Frame {
        let (data, len) = (frame.as_mut_ptr(), frame.len() as u32);
        table.insert(frame, data, len)
    }

    /// The error of taking a frame.
    fn refused(table: &mut FrameTable, shown: &abi::Frame) -> i32 {
        assert!(table.take(shown).is_none());
        table.refusal(shown).code
    }

    #[test]
    fn a_handle_is_valid_once() {
        let umem = umem();
        let mut table = FrameTable::new(3);
        let first = insert(&mut table, umem.alloc().expect("a chunk"));
        assert_eq!((first.len, first.room, table.len()), (0, 2048 - 64, 1));
        drop(table.take(&first).expect("valid"));
        assert_eq!(refused(&mut table, &first), libc::ESTALE);
        let second = insert(&mut table, umem.alloc().expect("a chunk"));
        assert_eq!(second.handle[0], first.handle[0], "the same slot");
        assert_eq!(refused(&mut table, &first), libc::ESTALE);
        let frame = table.take(&second).expect("valid");
        table.put_back(slice::from_ref(&second), [frame]);
        table.take(&second).expect("as it was");
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn frames_are_put_back_together() {
        let umem = umem();
        let mut table = FrameTable::new(3);
        let mut shown = [(); 3].map(|()| insert(&mut table, umem.alloc().expect("a chunk")));
        for (len, it) in (1..).zip(&mut shown) {
            it.len = len;
        }
        let frames = shown.map(|it| table.take_moved(&it).expect("valid"));
        assert_eq!(frames.each_ref().map(Frame::len), [1, 2, 3]);
        assert_eq!(refused(&mut table, &shown[1]), libc::ESTALE);
        table.put_back(&shown, frames);
        assert_eq!(table.len(), 3);
        let outside = show(shown[0].data, 4000, 2048, shown[0].handle);
        assert_eq!(code(table.take_moved(&outside)), libc::EINVAL);
        // No slot was freed twice: another frame gets one of its own.
        let other = insert(&mut table, umem.alloc().expect("a chunk"));
        assert!(shown.iter().all(|it| it.handle[0] != other.handle[0]));
        for it in shown {
            table.take(&it).expect("valid");
        }
    }

    #[test]
    fn made_up_handles_are_refused() {
        let mut table = FrameTable::new(3);
        let mut frame = insert(&mut table, umem().alloc().expect("a chunk"));
        let good = frame.handle;
        for (handle, expected) in [
            ([0, 0], libc::ESTALE),
            ([good[0] + 1, good[1]], libc::ESTALE),
            ([good[0], good[1] + 1], libc::ESTALE),
            ([good[0] + (1 << 32), good[1]], libc::EXDEV),
            ([u64::MAX, u64::MAX], libc::EXDEV),
        ] {
            frame.handle = handle;
            assert_eq!(refused(&mut table, &frame), expected, "{handle:x?}");
        }
    }

    #[test]
    fn a_reserved_handle_is_valid_when_it_is_filled() {
        let mut table = FrameTable::new(3);
        let mut reserved = table.reserve(10);
        let shown = |reserved: Reserved| show(std::ptr::dangling_mut(), 1, 2048, reserved.handle);
        let unused = shown(reserved);
        assert_eq!(refused(&mut table, &unused), libc::ESTALE);
        reserved.handle[1] += 4;
        table.fill(reserved, umem().alloc().expect("a chunk"));
        assert_eq!(refused(&mut table, &unused), libc::ESTALE);
        table.take(&shown(reserved)).expect("valid");
        let next = table.reserve(1);
        assert_eq!(next.handle[1], 11, "no serial number of the others");
        table.cancel(next);
        assert_eq!(table.reserve(1).handle[0], next.handle[0]);
    }

    #[test]
    fn data_and_len_move_inside_the_chunk_only() {
        let umem = umem();
        let mut frame = umem.alloc().expect("a chunk");
        frame.fill_with(b"payload").expect("room");
        let start = frame.as_mut_ptr();
        let at = |offset: isize, len| show(start.wrapping_offset(offset), len, 2048, [0, 0]);
        for (offset, len) in [(-64, 2048), (3, 4), (100, 7), (-64, 1), (-4, 11), (0, 7)] {
            move_frame(&mut frame, &at(offset, len)).expect("inside");
            assert_eq!(frame.as_ptr(), start.wrapping_offset(offset));
            assert_eq!(frame.len(), len as usize);
        }
        assert_eq!(frame[..4], *b"payl");
        for (offset, len) in [
            (-65, 1),
            (0, 1985),
            (1984, 1),
            (0, u32::MAX),
            (isize::MAX, 1),
            (isize::MIN, 1),
            (-65, u32::MAX),
        ] {
            let moved = move_frame(&mut frame, &at(offset, len));
            assert_eq!(code(moved), libc::EINVAL, "{offset} {len}");
        }
    }
}
