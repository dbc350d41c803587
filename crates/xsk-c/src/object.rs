//! UMEMs and sockets, by their handles.

use crate::child::once_forked;
use crate::fault::Result;
use crate::registry::{self, Registry};
use crate::table::{FrameTable, go_on_after};
use crate::view::{self, View};
use std::ffi::c_void;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use xsk::{ModeObtained, StatisticsHandle, TxSupport};

/// The UMEMs, of which at most so many are open.
pub(crate) static UMEMS: Registry<(), Arc<Memory>, 1024> = Registry::new("UMEM", 0x55);

/// The sockets, of which at most so many are open. In C their handles have another form; see [`view`].
static SOCKETS: Registry<Opened, Arc<Shared>, { view::SOCKETS }> = Registry::new("socket", 0x53);

/// The handle here of one in C.
fn handle(socket: *mut c_void) -> *mut c_void {
    if socket.is_null() {
        return socket;
    }
    match view::place(socket) {
        Some((at, uses)) => SOCKETS.handle_in(at, uses, view::USES),
        None => std::ptr::without_provenance_mut(1),
    }
}

/// Gives a UMEM a handle.
pub(crate) fn add_umem(memory: Memory) -> Result<*mut c_void> {
    /// A child has neither the memory of a UMEM nor that of a ring.
    extern "C" fn forget() {
        UMEMS.forget();
        SOCKETS.forget();
        view::forget();
    }
    once_forked(forget)?;
    UMEMS.add((), Arc::new(memory))
}

/// A UMEM, and the frames of it that the program has.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) umem: xsk::Umem,
    is_checked: bool,
    frames: Mutex<FrameTable>,
    /// Those of open sockets.
    views: Mutex<Vec<&'static View>>,
}

impl Memory {
    /// With each use of a frame checked, or not.
    pub(crate) fn new(umem: xsk::Umem, is_checked: bool) -> Self {
        /// The numbers of UMEMs count all that were ever made; 0 is none.
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let frames = if is_checked {
            FrameTable::new(number)
        } else {
            FrameTable::unchecked(number, umem.clone())
        };
        Self {
            umem,
            is_checked,
            frames: Mutex::new(frames),
            views: Mutex::default(),
        }
    }

    /// The number of frames that the program has.
    pub(crate) fn frame_count(&self) -> u32 {
        let views = lock(&self.views);
        let frames = self.frames().len() as u32;
        // Each may be less than 0; their sum is not, but for a moment.
        let sum = views.iter().map(|it| it.frames());
        sum.fold(frames, u32::wrapping_add)
    }

    /// The frames, for this thread alone. No callback may run meanwhile.
    #[inline]
    pub(crate) fn frames(&self) -> MutexGuard<'_, FrameTable> {
        // A panic inside leaves a table whose entries are all valid.
        lock(&self.frames)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let left = self.frame_count();
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
    /// Where inlined functions move its packets.
    view: Option<&'static View>,
}

impl Opened {
    /// Goes on where the inlined functions have stopped.
    fn take_back(&mut self) -> Result<()> {
        let Some(view) = self.view else {
            return Ok(());
        };
        if view.is_busy() {
            return Err(SOCKETS.busy());
        }
        if let Some(raw) = view.take_back() {
            go_on_after(&mut self.socket, raw);
        }
        Ok(())
    }

    /// Lets the inlined functions go on.
    fn lend(&self) {
        if let Some(view) = self.view {
            view.lend(self.moves(), |raw| self.socket.refresh(raw));
        }
    }

    /// What they may do.
    fn moves(&self) -> u32 {
        let receives = u32::from(self.receives) * view::RECEIVES;
        receives | (u32::from(self.sends) * view::SENDS)
    }

    /// Hands the packets in TX to the kernel. Inlined functions reclaim their chunks themselves.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if self.view.is_some() {
            self.socket.flush_raw()?;
        } else {
            self.socket.flush()?;
        }
        Ok(())
    }
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
    /// Without what the inlined functions have received.
    pub(crate) counters: StatisticsHandle,
}

/// Gives a socket a handle.
pub(crate) fn add_socket(
    socket: xsk::Socket,
    memory: Arc<Memory>,
    receives: bool,
    sends: bool,
) -> Result<*mut c_void> {
    let shared = Shared {
        program: socket.program().cloned(),
        mode: socket.mode(),
        refusals: socket.refusals().iter().map(ToString::to_string).collect(),
        has_rx_hints: socket.has_rx_hints(),
        tx_support: socket.tx_support(),
        descriptor: socket.as_raw_fd(),
        counters: socket.statistics_handle(),
    };
    let opened = Opened {
        socket,
        memory,
        receives,
        sends,
        view: None,
    };
    let memory = (!opened.memory.is_checked).then(|| Arc::clone(&opened.memory));
    let handle = SOCKETS.add(opened, Arc::new(shared))?;
    let (at, serial) = registry::place(handle);
    if let Some(memory) = memory {
        let view = View::at(at);
        SOCKETS.with(handle, |opened| {
            if let Some(raw) = opened.socket.raw() {
                lock(&memory.views).push(view);
                opened.view = Some(view);
                view.begin(raw, opened.moves());
            }
            Ok(())
        })?;
    }
    Ok(view::pointer(at, serial))
}

/// Takes a socket away.
pub(crate) fn remove_socket(socket: *mut c_void) -> Result<(Box<Opened>, Arc<Shared>)> {
    let handle = handle(socket);
    SOCKETS.get(handle)?;
    let view = View::at(registry::place(handle).0);
    if view.is_busy() {
        return Err(SOCKETS.busy());
    }
    let (mut opened, shared) = SOCKETS.remove(handle)?;
    opened.take_back()?;
    if opened.view.take().is_some() {
        let memory = &opened.memory;
        lock(&memory.views).retain(|it| !std::ptr::eq(*it, view));
        memory.frames().add(view.end());
    }
    Ok((opened, shared))
}

/// The counters of a socket: those of the library, of the inlined functions and of the kernel.
pub(crate) fn statistics(socket: *mut c_void) -> Result<xsk::Statistics> {
    let handle = handle(socket);
    let mut counts = SOCKETS.get(handle)?.counters.statistics()?;
    counts.received += View::at(registry::place(handle).0).received();
    Ok(counts)
}

/// What any thread may ask of a socket.
pub(crate) fn shared(socket: *mut c_void) -> Result<Arc<Shared>> {
    SOCKETS.get(handle(socket))
}

/// Runs a part of a call on a socket.
#[inline]
pub(crate) fn with<R>(
    socket: *mut c_void,
    part: impl FnOnce(&mut Opened) -> Result<R>,
) -> Result<R> {
    SOCKETS.with(handle(socket), |opened| {
        opened.take_back()?;
        let result = part(opened);
        opened.lend();
        result
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is done under it has no second step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// In a build for debugging: overwrites bytes that the program may not use any more.
#[inline(always)]
pub(crate) fn poison(bytes: &mut [u8]) {
    if cfg!(debug_assertions) {
        bytes.fill(0x5a);
    }
}
