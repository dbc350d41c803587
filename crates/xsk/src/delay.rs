//! Named points at which a test can delay a thread: between two steps that another thread, or the
//! kernel, can come between. In a build without debug assertions, and in programs of others, a point is no code.
#![cfg_attr(loom, allow(dead_code))] // Loom builds rings and pool alone.

/// A point of the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Point {
    /// Slots of FILL or TX are written, and not published.
    Publish,
    /// TX is published, and the wake-up flag not read.
    Flag,
    /// Slots of RX or COMPLETION are read, and not released.
    Release,
    /// The chunks to take from the pool of free chunks are known, and not taken.
    PoolTake,
    /// Chunks are linked to the pool's top, and not put there.
    PoolPut,
    /// The kernel is about to be woken for TX.
    Send,
    /// Completions are seen, and their chunks not taken back.
    Reclaim,
    /// A socket is bound, and in no XSKMAP.
    Bound,
    /// A closing socket has left its XSKMAPs, and not waited for packets on their way out.
    Drain,
    /// A socket is closed, and its chunks are not freed.
    Closed,
}

#[cfg(all(any(test, xsk_internals), not(loom)))]
mod hook {
    use super::Point;
    use std::cell::RefCell;

    type Hook = Box<dyn FnMut(Point)>;

    thread_local! {
        static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
    }

    /// Calls `hook` at each point that this thread passes from now on.
    pub fn set_hook(hook: impl FnMut(Point) + 'static) {
        HOOK.set(Some(Box::new(hook)));
    }

    pub(super) fn at(point: Point) {
        // A socket may be dropped when the thread's variables are gone, and by the hook itself.
        let _ = HOOK.try_with(|hook| {
            if let Ok(mut hook) = hook.try_borrow_mut()
                && let Some(hook) = hook.as_mut()
            {
                hook(point);
            }
        });
    }
}

#[cfg(all(any(test, xsk_internals), not(loom)))]
pub use hook::set_hook;

/// Passes a point.
#[inline(always)]
pub(crate) fn at(point: Point) {
    #[cfg(all(any(test, xsk_internals), not(loom)))]
    if cfg!(debug_assertions) {
        hook::at(point);
    }
    let _ = point;
}
