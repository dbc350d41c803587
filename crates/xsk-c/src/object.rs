//! UMEMs and sockets, by their handles.

use crate::child::once_forked;
use crate::fault::Result;
use crate::registry::Registry;
use crate::table::FrameTable;
use std::ffi::c_void;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use xsk::compat::Monitor;
use xsk::{ModeObtained, TxSupport};

/// The UMEMs, of which at most so many are open.
pub(crate) static UMEMS: Registry<(), Arc<Memory>, 1024> = Registry::new("UMEM", 0x55);

/// The sockets, of which at most so many are open.
pub(crate) static SOCKETS: Registry<Opened, Arc<Shared>, 4096> = Registry::new("socket", 0x53);

/// Gives a UMEM a handle.
pub(crate) fn add_umem(memory: Memory) -> Result<*mut c_void> {
    /// A child has neither the memory of a UMEM nor that of a ring.
    extern "C" fn forget() {
        UMEMS.forget();
        SOCKETS.forget();
    }
    once_forked(forget)?;
    UMEMS.add((), Arc::new(memory))
}

/// A UMEM, and the frames of it that the program has.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) umem: xsk::Umem,
    frames: Mutex<FrameTable>,
}

impl Memory {
    pub(crate) fn new(umem: xsk::Umem) -> Self {
        /// The numbers of UMEMs count all that were ever made; 0 is none.
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let frames = FrameTable::new(number);
        Self {
            umem,
            frames: Mutex::new(frames),
        }
    }

    /// The frames, for this thread alone. No callback may run meanwhile.
    #[inline]
    pub(crate) fn frames(&self) -> MutexGuard<'_, FrameTable> {
        // A panic inside leaves a table whose entries are all valid.
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let left = self.frames().len();
        if cfg!(debug_assertions) && left > 0 {
            eprintln!(
                "weir-xsk: a UMEM is closed with {left} frames that were never freed or sent"
            );
        }
    }
}

/// An open socket.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) socket: xsk::Socket,
    pub(crate) memory: Arc<Memory>,
    pub(crate) receives: bool,
    pub(crate) sends: bool,
    monitor: Monitor,
}

/// What any thread may ask of an open socket, also while another one is in a call on it.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Of a socket that receives.
    pub(crate) program: Option<xsk::Program>,
    pub(crate) mode: ModeObtained,
    pub(crate) refusals: Vec<String>,
    pub(crate) has_rx_hints: bool,
    pub(crate) tx_support: TxSupport,
    pub(crate) descriptor: RawFd,
    pub(crate) monitor: Monitor,
}

/// Gives a socket a handle.
pub(crate) fn add_socket(
    socket: xsk::Socket,
    memory: Arc<Memory>,
    receives: bool,
    sends: bool,
) -> Result<*mut c_void> {
    let monitor = socket.monitor();
    let shared = Shared {
        program: socket.program().cloned(),
        mode: socket.mode(),
        refusals: socket.refusals().iter().map(ToString::to_string).collect(),
        has_rx_hints: socket.has_rx_hints(),
        tx_support: socket.tx_support(),
        descriptor: socket.as_raw_fd(),
        monitor: monitor.clone(),
    };
    let opened = Opened {
        socket,
        memory,
        receives,
        sends,
        monitor,
    };
    SOCKETS.add(opened, Arc::new(shared))
}

/// Runs a part of a call on a socket, and publishes its counters.
#[inline]
pub(crate) fn with<R>(
    socket: *mut c_void,
    part: impl FnOnce(&mut Opened) -> Result<R>,
) -> Result<R> {
    SOCKETS.with(socket, |opened| {
        let result = part(opened);
        opened.monitor.publish(&opened.socket);
        result
    })
}

/// In a build for debugging: overwrites bytes that the program may not use any more.
#[inline(always)]
pub(crate) fn poison(bytes: &mut [u8]) {
    if cfg!(debug_assertions) {
        bytes.fill(0x5a);
    }
}
