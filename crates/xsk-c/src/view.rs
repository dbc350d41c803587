//! The part of a socket that the functions of `include/weir/xsk_inline.h` use: `struct weir_xsk_view`.
//!
//! It lies in an array that stays, so that they may follow a handle, and the library need not: the handle of a socket is
//! the place of its view, and in the bits below the size of a view the number of uses of that place.
#![allow(unsafe_code)] // C writes a view between two calls.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::offset_of;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use xsk::compat::{RawRing, RawSocket};

/// Most sockets.
pub(crate) const SOCKETS: usize = 4096;

/// `WEIR_XSK_VIEW_SIZE`.
const SIZE: usize = 512;

/// The bits of a handle that count the uses of a place.
pub(crate) const USES: u32 = SIZE as u32 - 1;

/// `WEIR_XSK_VIEW_RECEIVES`, `WEIR_XSK_VIEW_SENDS` and `WEIR_XSK_VIEW_BUSY`.
pub(crate) const RECEIVES: u32 = 1;
pub(crate) const SENDS: u32 = 2;
const BUSY: u32 = 4;

/// `struct weir_xsk_view`.
#[derive(Debug)]
#[repr(C, align(512))]
pub(crate) struct View {
    /// What the inlined functions may do; 0 while the library has the socket.
    moves: AtomicU32,
    /// Frames that the program got by them, less those that it gave.
    frames: AtomicU32,
    /// Packets that they received.
    received: AtomicU64,
    raw: UnsafeCell<RawSocket>,
}

// SAFETY: needed because of the cell and the pointers in it. `lend` and `take_back` are for the one thread that has the
// socket; others read the words before them only.
unsafe impl Sync for View {}

const _: () = {
    assert!(size_of::<View>() == SIZE && size_of::<RawRing>() == 48);
    assert!(offset_of!(View, raw) == 16 && size_of::<RawSocket>() == 256);
    assert!(offset_of!(RawSocket, memory) == 192 && offset_of!(RawSocket, sending) == 248);
};

static VIEWS: [View; SOCKETS] = [const { View::new() }; SOCKETS];

/// Views that were ever used are those below it.
static USED: AtomicUsize = AtomicUsize::new(0);

impl View {
    /// That of no socket.
    const fn new() -> Self {
        Self {
            moves: AtomicU32::new(0),
            frames: AtomicU32::new(0),
            received: AtomicU64::new(0),
            raw: UnsafeCell::new(RawSocket {
                rx: RawRing::NONE,
                tx: RawRing::NONE,
                fill: RawRing::NONE,
                completion: RawRing::NONE,
                memory: null_mut(),
                owners: null_mut(),
                free: null_mut(),
                free_count: 0,
                free_room: 0,
                chunks: 0,
                chunk_shift: 0,
                frame_offset: 0,
                lacking: 0,
                credit: 0,
                receiving: 0,
                sending: 0,
            }),
        }
    }

    /// That of a place.
    pub(crate) fn at(place: usize) -> &'static Self {
        &VIEWS[place]
    }

    /// Whether an inlined function is under way, and so this call comes from its callback or another thread.
    pub(crate) fn is_busy(&self) -> bool {
        self.moves.load(Relaxed) & BUSY != 0
    }

    /// Frames that the program has by the inlined functions. The numbers of all sockets of a UMEM add up; one of them may be
    /// less than 0, and wraps around.
    pub(crate) fn frames(&self) -> u32 {
        self.frames.load(Relaxed)
    }

    /// Packets that the inlined functions received.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Relaxed)
    }

    /// Ends the use of a view; returns its frames.
    pub(crate) fn end(&self) -> u32 {
        self.moves.store(0, Relaxed);
        self.received.store(0, Relaxed);
        self.frames.swap(0, Relaxed)
    }

    /// Lends a socket to the inlined functions for the first time.
    pub(crate) fn begin(&self, raw: RawSocket, moves: u32) {
        self.lend(moves, |place| *place = raw);
    }

    /// Lends a socket to the inlined functions, after the places are written where they are to go on.
    pub(crate) fn lend(&self, moves: u32, refresh: impl FnOnce(&mut RawSocket)) {
        // SAFETY: needed to write what C reads. This thread has the socket: its other calls have returned, and the inlined
        // functions leave a view alone that they may not use.
        refresh(unsafe { &mut *self.raw.get() });
        self.moves.store(moves, Relaxed);
    }

    /// Takes it back; `None` where it is not lent.
    pub(crate) fn take_back(&self) -> Option<&RawSocket> {
        if self.moves.load(Relaxed) & (RECEIVES | SENDS) == 0 {
            return None;
        }
        self.moves.store(0, Relaxed);
        // SAFETY: needed to read what C wrote, as in `lend`. They are numbers and pointers, which may have any value. The
        // functions write it again after the next `lend`.
        Some(unsafe { &*self.raw.get() })
    }
}

/// The handle of a socket in a place.
pub(crate) fn pointer(place: usize, uses: u32) -> *mut c_void {
    USED.fetch_max(place + 1, Relaxed);
    let view = (&raw const VIEWS[place]).cast::<u8>().cast_mut();
    view.wrapping_add((uses & USES) as usize).cast()
}

/// The place and the uses in a handle; `None` if it was never made by [`pointer`].
pub(crate) fn place(pointer: *mut c_void) -> Option<(usize, u32)> {
    let offset = pointer.addr().checked_sub(VIEWS.as_ptr().addr())?;
    let place = offset / SIZE;
    (place < SOCKETS).then_some((place, offset as u32 & USES))
}

/// In a child of fork(2), which has no rings: keeps the inlined functions away from all of them.
pub(crate) fn forget() {
    for view in &VIEWS[..USED.load(Relaxed)] {
        view.moves.store(0, Relaxed);
    }
}
