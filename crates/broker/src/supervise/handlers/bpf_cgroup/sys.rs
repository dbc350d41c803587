//! bpf(2) (`include/uapi/linux/bpf.h`).
#![allow(unsafe_code)] // bpf(2).

use super::attr::{ALLOW_MULTI, ATTACH_TYPE};
use crate::bpf;
use rustix::io::Errno;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

const PROG_QUERY: i32 = 16;
const LINK_CREATE: i32 = 28;

/// `BPF_LINK_CREATE`, as far as it is used.
#[repr(C)]
#[derive(Debug, Default)]
struct LinkAttr {
    program: u32,
    cgroup: u32,
    attach_type: u32,
    flags: u32,
}

/// `BPF_PROG_QUERY`, as far as it is used.
#[repr(C)]
#[derive(Debug, Default)]
struct QueryAttr {
    cgroup: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    ids: u64,
    count: u32,
    padding: u32,
}

const _: () = assert!(size_of::<LinkAttr>() == 16);
const _: () = assert!(size_of::<QueryAttr>() == 32);

/// Attaches a program beside others, as long as the link is open (5.7).
pub(super) fn link(program: BorrowedFd<'_>, cgroup: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let mut attr = LinkAttr {
        program: program.as_raw_fd() as u32,
        cgroup: cgroup.as_raw_fd() as u32,
        attach_type: ATTACH_TYPE,
        flags: 0,
    };
    // SAFETY: the prefix for BPF_LINK_CREATE, which makes a descriptor; it holds no pointers.
    unsafe { bpf::open(LINK_CREATE, &mut attr) }
}

/// The device programs of a control group itself.
#[derive(Debug)]
pub(super) struct Attached {
    count: u32,
    flags: u32,
}

impl Attached {
    /// Whether a program attached here or below would run instead of one of these.
    pub(super) fn gives_way(&self) -> bool {
        self.count > 0 && self.flags & ALLOW_MULTI == 0
    }
}

pub(super) fn query(cgroup: BorrowedFd<'_>) -> Result<Attached, Errno> {
    let mut attr = QueryAttr {
        cgroup: cgroup.as_raw_fd() as u32,
        attach_type: ATTACH_TYPE,
        ..QueryAttr::default()
    };
    // SAFETY: the prefix for BPF_PROG_QUERY; its only pointer, to ids, is null with a count of none.
    unsafe { bpf::run(PROG_QUERY, &mut attr) }?;
    Ok(Attached {
        count: attr.count,
        flags: attr.attach_flags,
    })
}
