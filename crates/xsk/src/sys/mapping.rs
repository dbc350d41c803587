//! Shared memory mappings.
#![allow(unsafe_code)] // mmap(2), madvise(2) and munmap(2).

use super::SysResult;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
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
    /// Maps `len` bytes of a socket's ring, which the kernel has allocated.
    pub(crate) fn ring(fd: BorrowedFd<'_>, offset: u64, len: usize) -> SysResult<Self> {
        Self::map(fd, offset, len, MapFlags::SHARED | MapFlags::POPULATE)
    }

    /// Maps `len` bytes of a file in memory and allocates them. `EFAULT` when a limit, such as that of a
    /// control group on huge pages, does not allow them: an access would be a SIGBUS.
    pub(crate) fn memory(fd: BorrowedFd<'_>, len: usize) -> SysResult<Self> {
        let memory = Self::map(fd, 0, len, MapFlags::SHARED)?;
        match memory.advise(Advice::LinuxPopulateWrite) {
            Ok(()) => Ok(memory),
            // Linux before 5.14, on which the limit goes unnoticed.
            Err(Errno::INVAL) => Self::map(fd, 0, len, MapFlags::SHARED | MapFlags::POPULATE),
            Err(errno) => Err(errno),
        }
    }

    /// Maps memory, shared, readable and writable, that children do not get.
    fn map(fd: BorrowedFd<'_>, offset: u64, len: usize, flags: MapFlags) -> SysResult<Self> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: needed to map memory. The address is the kernel's choice, so no existing
        // mapping is replaced.
        let start =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, prot, flags, fd, offset) }?;
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        let mapping = Self {
            start,
            len,
            #[cfg(any(test, miri, feature = "testing"))]
            on_heap: false,
        };
        // A child would keep a ring, and with it the socket and its queue; and two processes could write
        // to one packet.
        mapping.advise(Advice::LinuxDontFork)?;
        Ok(mapping)
    }

    fn advise(&self, advice: Advice) -> SysResult<()> {
        // SAFETY: needed because some advice discards memory; the two that this type gives do not. The
        // range is that of this mapping.
        unsafe { rustix::mm::madvise(self.start.as_ptr().cast::<c_void>(), self.len, advice) }
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
