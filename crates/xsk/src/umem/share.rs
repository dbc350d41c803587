//! Counted references, as to the memory of a UMEM.
#![allow(unsafe_code)] // The memory is reached through a pointer, and freed by the last reference.

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

/// A value and the number of references to it.
struct Counted<T> {
    shares: AtomicUsize,
    value: T,
}

/// A counted reference, as `Arc` is one, to the memory of a UMEM.
///
/// Each chunk outside the pool has one as well, which is why no chunk outlives its memory. Those in a
/// cache or lent to the kernel have it without a value of this type: they [leave](Self::leave) it with
/// the count, many at a time, and [resume](Self::resume) it later. So a packet's way changes no
/// counter that other CPUs read.
pub(crate) struct Share<T>(NonNull<Counted<T>>);

// SAFETY: needed because of the pointer. All threads reach the value through it, and the last share
// drops it, on whichever thread: so it is `Sync` and `Send`.
unsafe impl<T: Send + Sync> Send for Share<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Share<T> {}

impl<T> Share<T> {
    /// Moves the value to the heap, with one reference to it.
    pub(super) fn new(value: T) -> Self {
        let shares = AtomicUsize::new(1);
        Self(NonNull::from(Box::leak(Box::new(Counted {
            shares,
            value,
        }))))
    }

    #[inline(always)]
    fn counted(&self) -> &Counted<T> {
        // SAFETY: needed to reach the value behind a pointer. It was allocated by `new`, and is
        // freed by the last reference only; this one is counted until it is dropped.
        unsafe { self.0.as_ref() }
    }

    #[inline(always)]
    fn shares(&self) -> &AtomicUsize {
        &self.counted().shares
    }

    /// Adds `count` references without a value; each is resumed or withdrawn later.
    #[inline]
    pub(super) fn leave(&self, count: usize) {
        // Relaxed: the reference that this one is made from keeps the memory.
        let before = self.shares().fetch_add(count, Ordering::Relaxed);
        // Far below the point where the counter would wrap; forgotten values could get there.
        assert!(before < usize::MAX / 2, "a UMEM has too many references");
    }

    /// Drops `count` references that were left.
    ///
    /// # Safety
    ///
    /// That many were left, and are neither resumed nor withdrawn elsewhere.
    #[inline]
    pub(super) unsafe fn withdraw(&self, count: usize) {
        // Release, as in `drop`. It cannot be the last: `self` remains.
        self.shares().fetch_sub(count, Ordering::Release);
    }

    /// The value of a reference that was left.
    ///
    /// # Safety
    ///
    /// It was left, and is neither resumed nor withdrawn elsewhere.
    #[inline(always)]
    pub(super) unsafe fn resume(&self) -> Self {
        Self(self.0)
    }

    /// Whether both refer to the same memory.
    #[inline]
    pub(super) fn is(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T> Clone for Share<T> {
    fn clone(&self) -> Self {
        self.leave(1);
        Self(self.0)
    }
}

impl<T> Deref for Share<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.counted().value
    }
}

impl<T: fmt::Debug> fmt::Debug for Share<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Drop for Share<T> {
    #[inline]
    fn drop(&mut self) {
        // Release, and an acquire before the end: all uses of the memory come before its end.
        if self.shares().fetch_sub(1, Ordering::Release) > 1 {
            return;
        }
        fence(Ordering::Acquire);
        // SAFETY: needed to free the memory. `new` leaked this box, the count says that this was
        // the last reference, and nobody can make another from none.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
