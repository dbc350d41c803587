//! Shared memory mappings.
#![allow(unsafe_code)] // mmap(2), madvise(2), mbind(2) and munmap(2).

use super::{SysResult, last_errno};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

/// Not in `libc` for musl (`include/uapi/asm-generic/mman-common.h`).
const MADV_COLLAPSE: libc::c_int = 25;

/// A shared mapping, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
    #[cfg(any(test, miri, xsk_internals))]
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
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        Self::map(std::ptr::null_mut(), fd, offset, len, flags)
    }

    /// The same, for a process whose children shall have the ring too.
    #[cfg(xsk_internals)]
    pub(crate) fn inherited_ring(fd: BorrowedFd<'_>, offset: u64, len: usize) -> SysResult<Self> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        Self::inherited(std::ptr::null_mut(), fd, offset, len, flags)
    }

    /// Maps `len` bytes of a file in memory and allocates them. `EFAULT` when a limit, such as that of a
    /// control group on huge pages, does not allow them: an access would be a SIGBUS. All of them are on a
    /// NUMA node, if one is given.
    pub(crate) fn memory(fd: BorrowedFd<'_>, len: usize, node: Option<u32>) -> SysResult<Self> {
        let memory = Self::unpopulated(fd, len)?;
        memory.bind(node)?;
        memory.populated(fd, Advice::LinuxPopulateWrite)
    }

    /// The same, in huge pages as far as the kernel has them at once.
    pub(crate) fn collapsed(fd: BorrowedFd<'_>, len: usize, node: Option<u32>) -> SysResult<Self> {
        let memory = Self::unpopulated(fd, len)?;
        memory.bind(node)?;
        memory.collapse();
        memory.populated(fd, Advice::LinuxPopulateWrite)
    }

    /// Maps `len` bytes of a file in memory that has them. A read maps the pages around it as well, and
    /// a shared mapping of such a file is writable at once.
    pub(crate) fn existing(fd: BorrowedFd<'_>, len: usize) -> SysResult<Self> {
        Self::unpopulated(fd, len)?.populated(fd, Advice::LinuxPopulateRead)
    }

    fn populated(self, fd: BorrowedFd<'_>, populate: Advice) -> SysResult<Self> {
        match self.advise(populate) {
            Ok(()) => Ok(self),
            // Linux before 5.14, on which the limit goes unnoticed.
            Err(Errno::INVAL) => {
                let flags = MapFlags::SHARED | MapFlags::POPULATE;
                Self::map(std::ptr::null_mut(), fd, 0, self.len, flags)
            }
            Err(errno) => Err(errno),
        }
    }

    fn unpopulated(fd: BorrowedFd<'_>, len: usize) -> SysResult<Self> {
        Self::map(aligned_hint(len), fd, 0, len, MapFlags::SHARED)
    }

    /// Lets the pages of a file that are allocated from now on be on a NUMA node.
    fn bind(&self, node: Option<u32>) -> SysResult<()> {
        /// `MPOL_BIND` (`include/uapi/linux/mempolicy.h`), and the nodes that a kernel can have.
        const MPOL_BIND: libc::c_ulong = 2;
        const NODES: usize = 1024;
        const BITS: usize = u64::BITS as usize;
        let Some(node) = node else { return Ok(()) };
        let mut nodes = [0_u64; NODES / BITS];
        let word = nodes.get_mut(node as usize / BITS).ok_or(Errno::INVAL)?;
        *word = 1 << (node as usize % BITS);
        // SAFETY: needed because there is no wrapper. The call changes no byte of the range, which is this
        // mapping's, and reads the mask of so many bits; the kernel takes one off their number.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.start.as_ptr(),
                self.len,
                MPOL_BIND,
                nodes.as_ptr(),
                NODES + 1,
                0,
            )
        };
        if result == 0 {
            Ok(())
        } else {
            Err(last_errno())
        }
    }

    /// Makes huge pages of the extents that a file has not allocated yet; those for which there are none stay
    /// as they are.
    fn collapse(&self) {
        let size = huge_page();
        let whole = self.len - self.len % size;
        for at in (0..whole).step_by(size) {
            let start = self.start.as_ptr().wrapping_add(at);
            // The kernel collapses no empty extent (`collapse_file`).
            // SAFETY: needed to allocate the page of the extent's first byte, which the mapping has.
            let _ = unsafe { rustix::mm::madvise(start.cast(), 1, Advice::LinuxPopulateWrite) };
            // SAFETY: needed because some advice discards memory; this one changes the pages behind the bytes,
            // and not the bytes. The mapping has the bytes.
            unsafe { libc::madvise(start.cast(), size, MADV_COLLAPSE) };
        }
    }

    /// Maps memory, shared, readable and writable, that children do not get.
    fn map(
        hint: *mut c_void,
        fd: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        flags: MapFlags,
    ) -> SysResult<Self> {
        let mapping = Self::inherited(hint, fd, offset, len, flags)?;
        // A child would keep a ring, and with it the socket and its queue; and two processes could write
        // to one packet.
        mapping.advise(Advice::LinuxDontFork)?;
        Ok(mapping)
    }

    /// Maps memory, shared, readable and writable.
    fn inherited(
        hint: *mut c_void,
        fd: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        flags: MapFlags,
    ) -> SysResult<Self> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: needed to map memory. The address is a hint only, so no existing mapping is replaced.
        let start = unsafe { rustix::mm::mmap(hint, len, prot, flags, fd, offset) }?;
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self {
            start,
            len,
            #[cfg(any(test, miri, xsk_internals))]
            on_heap: false,
        })
    }

    fn advise(&self, advice: Advice) -> SysResult<()> {
        // SAFETY: needed because some advice discards memory; those that this type gives do not. The
        // range is that of this mapping.
        unsafe { rustix::mm::madvise(self.start.as_ptr().cast::<c_void>(), self.len, advice) }
    }

    /// Zeroed memory of this process alone, for tests and fuzzing without a kernel.
    #[cfg(any(test, miri, xsk_internals))]
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

    #[cfg(any(test, miri, xsk_internals))]
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

/// Bytes in an ordinary page.
pub(crate) fn page_size() -> usize {
    // SAFETY: needed because it is a function of C. It takes a number and returns one.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(page).unwrap_or(4096)
}

/// Bytes that an entry in the upper level of a page table maps: 2 MiB, or 32 MiB with pages of 16 KiB.
fn huge_page() -> usize {
    page_size() * (page_size() / size_of::<u64>())
}

/// Where `len` bytes fit, at an address that can have huge pages: the kernel chooses one for memory of
/// its own accord only where the administrator has huge pages for such files. None for less than one page.
fn aligned_hint(len: usize) -> *mut c_void {
    let (none, size) = (std::ptr::null_mut(), huge_page());
    if len < size {
        return none;
    }
    let reserved = len + size;
    let (prot, flags) = (ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE);
    // SAFETY: needed to reserve addresses, which are the kernel's choice, and which nothing accesses.
    let Ok(start) = (unsafe { rustix::mm::mmap_anonymous(none, reserved, prot, flags) }) else {
        return none;
    };
    // SAFETY: needed to free the addresses, which nobody else knows. Another thread may get them now: then
    // the hint is ignored.
    let _ = unsafe { rustix::mm::munmap(start, reserved) };
    start.wrapping_byte_add(start.addr().next_multiple_of(size) - start.addr())
}

impl Drop for Mapping {
    fn drop(&mut self) {
        #[cfg(any(test, miri, xsk_internals))]
        if self.on_heap {
            // SAFETY: needed to free the allocation of `heap`, with the same layout.
            unsafe { std::alloc::dealloc(self.start.as_ptr(), Self::heap_layout(self.len)) };
            return;
        }
        if cfg!(xsk_broken = "forgotten_unmap") {
            return;
        }
        // SAFETY: needed to unmap. mmap returned this range, and this value was its owner. An
        // error would leave memory mapped, which is safe.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast::<c_void>(), self.len) };
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use rustix::io::{pread, pwrite};
    use std::os::fd::AsFd as _;

    /// Whatever pages the kernel has for it, and whatever was populated.
    #[test]
    fn memory_is_that_of_its_file_to_the_end() {
        for len in [4096, huge_page(), 2 * huge_page() + 3 * 4096] {
            let file = memfd_create("mapping", MemfdFlags::CLOEXEC).expect("a memfd");
            ftruncate(&file, len as u64).expect("room");
            let ours = Mapping::collapsed(file.as_fd(), len, None).expect("memory");
            let theirs = Mapping::existing(file.as_fd(), len).expect("the same memory");
            assert_eq!((ours.len(), theirs.len()), (len, len));
            for at in [0, len / 2, len - 1] {
                let mut byte = [9];
                pread(&file, &mut byte, at as u64).expect("it is in the file");
                assert_eq!(byte, [0]);
                pwrite(&file, &[7], at as u64).expect("it is in the file");
                let [ours, theirs] = [&ours, &theirs].map(|it| it.start.as_ptr().wrapping_add(at));
                // SAFETY: needed to read a byte of a mapping, to which there is no reference.
                assert_eq!(unsafe { ours.read_volatile() }, 7);
                // SAFETY: as above, to write it.
                unsafe { theirs.write_volatile(8) };
                // SAFETY: as above.
                assert_eq!(unsafe { ours.read_volatile() }, 8);
            }
        }
    }
}
