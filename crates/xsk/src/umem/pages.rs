//! The memory of a UMEM: a memfd, of huge pages on request.

use crate::error::{Error, ErrorKind, Result, errno_text};
use crate::sys::Mapping;
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use std::os::fd::AsFd;

const HUGE_PAGE: usize = 2 << 20;

/// The kind of pages that a UMEM has.
///
/// ```
/// use xsk::{Pages, Umem};
///
/// # fn main() -> xsk::Result<()> {
/// let umem = Umem::builder().huge_pages(true).build()?;
/// if let Pages::FellBack(why) = umem.pages() {
///     println!("{why}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pages {
    /// Ordinary pages, as requested.
    Ordinary,
    /// Pages of 2 MiB, as requested.
    Huge,
    /// Ordinary pages instead of the huge ones requested, with the reason and the cure.
    FellBack(String),
}

/// Allocates and maps `len` bytes.
pub(super) fn allocate(len: usize, huge: bool) -> Result<(Mapping, Pages)> {
    if !huge {
        return Ok((
            memfd(len, MemfdFlags::empty()).map_err(out_of_memory(len))?,
            Pages::Ordinary,
        ));
    }
    match memfd(
        len.next_multiple_of(HUGE_PAGE),
        MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB,
    ) {
        Ok(memory) => Ok((memory, Pages::Huge)),
        Err(errno) => {
            let memory = memfd(len, MemfdFlags::empty()).map_err(out_of_memory(len))?;
            let needed = len.div_ceil(HUGE_PAGE);
            let why = format!(
                "no huge pages ({}): {needed} pages of 2 MiB are needed; reserve them with `sysctl vm.nr_hugepages={needed}`",
                errno_text(errno)
            );
            Ok((memory, Pages::FellBack(why)))
        }
    }
}

fn out_of_memory(len: usize) -> impl FnOnce(Errno) -> Error {
    move |errno| {
        let message = format!("no memory for a UMEM of {len} bytes: ask for fewer chunks");
        Error::os(ErrorKind::OutOfMemory, errno, message)
    }
}

fn memfd(len: usize, flags: MemfdFlags) -> std::result::Result<Mapping, Errno> {
    let file = rustix::fs::memfd_create("xsk-umem", flags | MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&file, len as u64)?;
    Mapping::new(file.as_fd(), 0, len)
}
