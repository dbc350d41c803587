//! The memory of a UMEM: a memfd, of huge pages on request.

use crate::error::{Error, ErrorKind, Result, errno_text};
use crate::sys::{Mapping, page_size};
use hostnet::cgroup;
use hostnet::cpulist::CpuList;
use hostnet::privilege::Feature;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Bytes of a huge page. A kernel may have other sizes, too, and one of those as its default: 32 MiB on arm64 with pages of
/// 16 KiB.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// How many of them are reserved.
const RESERVED: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// Seals of the file: nobody can truncate it, which would end a process that maps it (SIGBUS).
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// A UMEM's memory, and its file, by which another process can map it too.
#[derive(Debug)]
pub(super) struct Backing {
    pub(super) mapping: Mapping,
    /// None for memory on the heap.
    pub(super) file: Option<OwnedFd>,
}

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

impl Pages {
    /// Bytes in a page.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Huge => HUGE_PAGE,
            Self::Ordinary | Self::FellBack(_) => page_size(),
        }
    }
}

/// Allocates and maps `len` bytes, in reserved huge pages if `huge`, else collapsed if `collapse`; on a NUMA node
/// if one is given.
pub(super) fn allocate(
    len: usize,
    huge: bool,
    collapse: bool,
    node: Option<u32>,
) -> Result<(Backing, Pages)> {
    node.map_or(Ok(()), check_node)?;
    let map = if collapse {
        Mapping::collapsed
    } else {
        Mapping::memory
    };
    let ordinary = || {
        // All of it is made at once, and the kernel kills a process that goes beyond the limit.
        fits(len)?;
        memfd(len, MemfdFlags::empty(), map, node).map_err(out_of_memory(len))
    };
    if !huge {
        return Ok((ordinary()?, Pages::Ordinary));
    }
    match memfd(
        len.next_multiple_of(HUGE_PAGE),
        MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB,
        Mapping::memory,
        node,
    ) {
        Ok(memory) => Ok((memory, Pages::Huge)),
        Err(errno) => {
            let memory = ordinary()?;
            let needed = len.div_ceil(HUGE_PAGE);
            let cure = if errno == Errno::FAULT {
                "raise the control group's limit, `hugetlb.2MB.max`".to_owned()
            } else if Path::new(RESERVED).exists() {
                format!("reserve them with `echo {needed} > {RESERVED}`")
            } else {
                "this kernel has none of this size: leave `huge_pages` out".to_owned()
            };
            let why = format!(
                "no huge pages ({}): {needed} pages of 2 MiB are needed; {cure}",
                errno_text(errno)
            );
            Ok((memory, Pages::FellBack(why)))
        }
    }
}

/// Refuses a UMEM that the process's control groups have no memory for.
fn fits(len: usize) -> Result<()> {
    let limit = cgroup::memory_limit().filter(|limit| limit.bytes < len as u64);
    limit.map_or(Ok(()), |limit| {
        let message = format!(
            "no memory for a UMEM of {len} bytes: the control group's limit is {} bytes ({}); raise it (MemoryMax= of a service, --memory of a container), or ask for fewer chunks",
            limit.bytes,
            limit.file.display()
        );
        Err(Error::new(ErrorKind::OutOfMemory, message))
    })
}

fn out_of_memory(len: usize) -> impl FnOnce(Errno) -> Error {
    move |errno| {
        let step = format!("making a UMEM of {len} bytes");
        Error::refused(step, errno, Feature::Base, &[]).unwrap_or_else(|| {
            let message = format!("no memory for a UMEM of {len} bytes: ask for fewer chunks");
            Error::os(ErrorKind::OutOfMemory, errno, message)
        })
    }
}

/// Refuses a NUMA node without memory.
fn check_node(node: u32) -> Result<()> {
    const FILE: &str = "/sys/devices/system/node/has_memory";
    let nodes = std::fs::read_to_string(FILE).map_err(|error| {
        let message =
            format!("this kernel shows no NUMA nodes ({FILE}: {error}): leave `numa_node` out");
        Error::new(ErrorKind::Unsupported, message)
    })?;
    let nodes = nodes.trim();
    // The kernel writes nodes as it writes CPUs.
    let list: Option<CpuList> = nodes.parse().ok();
    if list.is_some_and(|list| list.as_slice().contains(&(node as usize))) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "NUMA node {node} has no memory: choose one of {nodes}"
    )))
}

/// Maps a number of bytes of a file, on a NUMA node.
type Map = fn(BorrowedFd<'_>, usize, Option<u32>) -> std::result::Result<Mapping, Errno>;

fn memfd(
    len: usize,
    flags: MemfdFlags,
    map: Map,
    node: Option<u32>,
) -> std::result::Result<Backing, Errno> {
    let flags = flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("xsk-umem", flags)?;
    rustix::fs::ftruncate(&file, len as u64)?;
    rustix::fs::fcntl_add_seals(&file, SEALS)?;
    Ok(Backing {
        mapping: map(file.as_fd(), len, node)?,
        file: Some(file),
    })
}

/// Maps the memory of another process's UMEM, of `len` bytes in chunks.
pub(super) fn map(file: OwnedFd, len: usize) -> Result<(Backing, Pages)> {
    let os = |step: &'static str| move |errno| Error::os(ErrorKind::Os, errno, step);
    let seals = rustix::fs::fcntl_get_seals(&file).map_err(|errno| {
        let message = "the memory handed over is not a memfd: pass the descriptors in their order";
        Error::os(ErrorKind::Foreign, errno, message)
    })?;
    if !seals.contains(SEALS) {
        let message = "the memory handed over can still be truncated, which would end this process: seal it (F_SEAL_SHRINK, F_SEAL_GROW)";
        return Err(Error::new(ErrorKind::Foreign, message));
    }
    let stat = rustix::fs::fstat(&file).map_err(os("reading the size of the memory"))?;
    // Not by the block size: that is a huge page's for other files, too, where shmem_enabled says `always`.
    let system = rustix::fs::fstatfs(&file).map_err(os("reading the kind of the memory"))?;
    let huge = system.f_type == libc::HUGETLBFS_MAGIC;
    let expected = if huge {
        len.next_multiple_of(HUGE_PAGE)
    } else {
        len
    };
    if u64::try_from(stat.st_size) != Ok(expected as u64) {
        let message = format!(
            "the memory handed over has {} bytes, and its description says {expected}",
            stat.st_size
        );
        return Err(Error::new(ErrorKind::Foreign, message));
    }
    let mapping =
        Mapping::existing(file.as_fd(), expected).map_err(os("mapping the memory handed over"))?;
    let pages = if huge { Pages::Huge } else { Pages::Ordinary };
    let file = Some(file);
    Ok((Backing { mapping, file }, pages))
}
