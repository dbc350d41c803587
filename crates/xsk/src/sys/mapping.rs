//! Shared memory mappings.
#![allow(unsafe_code)] // mmap(2) and munmap(2).

use super::SysResult;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::c_void;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

/// A shared mapping, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
    #[cfg(any(test, miri, feature = "testing"))]
    on_heap: bool,
}

// SAFETY: needed because of the raw pointer. A mapping belongs to the process, not to a thread,
// and this type hands out the address only.
unsafe impl Send for Mapping {}
// SAFETY: as above; nothing can change through `&Mapping`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `fd` at `offset`, shared, readable and writable, present at once.
    pub(crate) fn new(fd: BorrowedFd<'_>, offset: u64, len: usize) -> SysResult<Self> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: needed to map memory. The address is the kernel's choice, so no existing
        // mapping is replaced.
        let start =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, prot, flags, fd, offset) }?;
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self {
            start,
            len,
            #[cfg(any(test, miri, feature = "testing"))]
            on_heap: false,
        })
    }

    /// Zeroed memory of this process alone, for tests and fuzzing without a kernel.
    #[cfg(any(test, miri, feature = "testing"))]
    pub(crate) fn heap(len: usize) -> Self {
        // SAFETY: needed because Miri has no mmap of files; the size is not zero.
        let start = unsafe { std::alloc::alloc_zeroed(Self::heap_layout(len)) };
        let start = NonNull::new(start).expect("memory for a test");
        Self {
            start,
            len,
            on_heap: true,
        }
    }

    #[cfg(any(test, miri, feature = "testing"))]
    fn heap_layout(len: usize) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(len.max(1), 4096).expect("a test's sizes are small")
    }

    /// The first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        #[cfg(any(test, miri, feature = "testing"))]
        if self.on_heap {
            // SAFETY: needed to free the allocation of `heap`, with the same layout.
            unsafe { std::alloc::dealloc(self.start.as_ptr(), Self::heap_layout(self.len)) };
            return;
        }
        // SAFETY: needed to unmap. mmap returned this range, and this value was its owner. An
        // error would leave memory mapped, which is safe.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast::<c_void>(), self.len) };
    }
}
