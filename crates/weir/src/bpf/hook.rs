//! Programs attached to network devices, whose attachment can outlive this process and whose program can be
//! replaced without a gap: links of `bpf_link_create` pinned in a BPF filesystem, and filters of `tc` where
//! the kernel has no links for it (before Linux 6.6).
//!
//! Unsafe code is needed for calls of libbpf that libbpf-rs has no wrapper for.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr;

use anyhow::{Context as _, Result};
use hostnet::rtnetlink::{Rtnetlink, TcHandle};
use libbpf_rs::{ErrorKind, TC_INGRESS, TcHook, TcHookBuilder, libbpf_sys};

use super::Programs;

/// `XDP_FLAGS_DRV_MODE` of `linux/if_link.h`: in the driver or not at all.
const XDP_DRIVER: u32 = 1 << 2;

/// The place of a program on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// XDP, in the driver.
    Xdp,
    /// Ingress of tc, by tcx (Linux 6.6). It comes behind the programs that are there already.
    Tcx,
}

/// A program on a device, held by a `bpf_link`.
#[derive(Debug)]
#[must_use = "the program is detached when this is dropped, unless it is pinned"]
pub struct NetLink {
    fd: OwnedFd,
}

/// The descriptor of a call that returns one, or a negative error number.
fn descriptor(result: i32) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    // SAFETY: needed to own the descriptor, which is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

fn done(result: i32) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    Ok(())
}

fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

impl NetLink {
    /// Attaches a program to the device with this index, in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// `EBUSY` or `EEXIST` where another program has the place, `EOPNOTSUPP` or `EINVAL` where the driver
    /// has none, `ERANGE` for an MTU that it cannot have with XDP.
    pub fn attach(programs: &Programs, name: &str, ifindex: u32, place: Place) -> io::Result<Self> {
        let program = programs.program(name).map_err(io::Error::other)?;
        let (kind, flags) = match place {
            Place::Xdp => (libbpf_sys::BPF_XDP, XDP_DRIVER),
            Place::Tcx => (libbpf_sys::BPF_TCX_INGRESS, 0),
        };
        let options = libbpf_sys::bpf_link_create_opts {
            sz: size_of::<libbpf_sys::bpf_link_create_opts>() as u64,
            flags,
            ..libbpf_sys::bpf_link_create_opts::default()
        };
        let fd = program.as_fd().as_raw_fd();
        // SAFETY: needed because libbpf-rs has no wrapper with flags. The call takes numbers and options
        // that live as long as it does and have no pointers.
        let link = unsafe {
            libbpf_sys::bpf_link_create(fd, ifindex.cast_signed(), kind, &raw const options)
        };
        descriptor(link).map(|fd| Self { fd })
    }

    /// The link that is pinned at a path.
    ///
    /// # Errors
    ///
    /// `ENOENT` where there is nothing; those of open(2).
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = c_path(path)?;
        // SAFETY: needed because libbpf-rs would keep the path. The call reads a string that ends with 0.
        descriptor(unsafe { libbpf_sys::bpf_obj_get(path.as_ptr()) }).map(|fd| Self { fd })
    }

    /// Pins it, so that the program stays when this process ends.
    pub fn pin(&self, path: &Path) -> io::Result<()> {
        let path = c_path(path)?;
        // SAFETY: needed because this is no link of libbpf-rs. The call reads a string that ends with 0.
        done(unsafe { libbpf_sys::bpf_obj_pin(self.fd.as_raw_fd(), path.as_ptr()) })
    }

    /// Replaces the program: each frame meets the old one or the new one.
    pub fn replace(&self, programs: &Programs, name: &str) -> Result<()> {
        let program = programs.program(name)?;
        let (link, program) = (self.fd.as_raw_fd(), program.as_fd().as_raw_fd());
        // SAFETY: needed because this is no link of libbpf-rs. The call takes two descriptors, and no
        // options for a null pointer.
        done(unsafe { libbpf_sys::bpf_link_update(link, program, ptr::null()) })
            .with_context(|| format!("cannot replace a program by {name}"))
    }

    /// Detaches the program, also where other processes or pins hold the link (Linux 5.9).
    pub fn detach(&self) -> io::Result<()> {
        // SAFETY: needed because this is no link of libbpf-rs. The call takes a descriptor.
        done(unsafe { libbpf_sys::bpf_link_detach(self.fd.as_raw_fd()) })
    }

    /// The index of its device; 0 once the device is gone.
    pub fn ifindex(&self) -> io::Result<u32> {
        let info = self.info()?;
        match info.type_ {
            // SAFETY: needed because the members are a union's. The kernel has filled in that of the type.
            libbpf_sys::BPF_LINK_TYPE_XDP => Ok(unsafe { info.__bindgen_anon_1.xdp.ifindex }),
            // SAFETY: as above.
            libbpf_sys::BPF_LINK_TYPE_TCX => Ok(unsafe { info.__bindgen_anon_1.tcx.ifindex }),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// The id of its program.
    pub fn program_id(&self) -> io::Result<u32> {
        Ok(self.info()?.prog_id)
    }

    fn info(&self) -> io::Result<libbpf_sys::bpf_link_info> {
        let mut info = libbpf_sys::bpf_link_info::default();
        let mut length = size_of_val(&info) as u32;
        let fd = self.fd.as_raw_fd();
        // SAFETY: needed because libbpf-rs parses no links of its version's unknown types. The kernel
        // writes at most `length` bytes to `info`, which has as many, and reads no pointer from it, as
        // all of them are zero.
        done(unsafe { libbpf_sys::bpf_link_get_info_by_fd(fd, &raw mut info, &raw mut length) })?;
        Ok(info)
    }
}

/// The priority and handle of our filter; a filter of others with both is not expected.
pub const PRIORITY: u16 = 0x7765;
const HANDLE: u32 = 1;

/// A program as a filter of `tc` at ingress. It stays until it is removed, or its device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcFilter {
    /// The device.
    pub ifindex: u32,
    /// The clsact qdisc was made for it.
    pub made_qdisc: bool,
}

impl TcFilter {
    /// Attaches a program to the device with this index, or replaces the one that this function attached.
    pub fn attach(programs: &Programs, name: &str, ifindex: u32) -> Result<Self> {
        let program = programs.program(name)?;
        let mut hook = TcHookBuilder::new(program.as_fd())
            .ifindex(ifindex.cast_signed())
            .replace(true)
            .handle(HANDLE)
            .priority(PRIORITY.into())
            .hook(TC_INGRESS);
        let made_qdisc = match hook.create() {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
            Err(error) => return Err(error).context("cannot make the qdisc clsact"),
        };
        hook.attach()
            .context("cannot attach the program by a filter of tc")?;
        Ok(Self {
            ifindex,
            made_qdisc,
        })
    }

    /// Removes the filter, and the qdisc that was made for it unless others have filters there by now.
    pub fn detach(&self) -> Result<()> {
        // A descriptor that detaching does not look at.
        let null = std::fs::File::open("/dev/null").context("cannot open /dev/null")?;
        let mut hook = TcHook::new(null.as_fd());
        hook.ifindex(self.ifindex.cast_signed())
            .attach_point(TC_INGRESS)
            .handle(HANDLE)
            .priority(PRIORITY.into());
        let removed = hook.detach();
        if self.made_qdisc && !has_filters(self.ifindex) {
            let _ = hook
                .attach_point(TC_INGRESS | libbpf_rs::TC_EGRESS)
                .destroy();
        }
        match removed {
            // It went with its qdisc or its device.
            Err(error) if !is_gone(&error) => Err(error).context("cannot remove the filter of tc"),
            _ => Ok(()),
        }
    }
}

/// Whether a device has filters at ingress or egress; one that cannot tell is gone.
fn has_filters(ifindex: u32) -> bool {
    let Ok(mut rtnetlink) = Rtnetlink::open() else {
        return true;
    };
    let parents = [TcHandle::INGRESS_FILTERS, TcHandle::EGRESS_FILTERS];
    parents.into_iter().any(|parent| {
        let priorities = rtnetlink.filter_priorities(ifindex, parent);
        priorities.is_ok_and(|priorities| !priorities.is_empty())
    })
}

fn is_gone(error: &libbpf_rs::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|it| it.downcast_ref::<io::Error>());
    let errno = cause.and_then(io::Error::raw_os_error);
    error.kind() == ErrorKind::NotFound || matches!(errno, Some(libc::ENODEV | libc::EINVAL))
}

/// How many programs tcx has at a device's ingress and egress; 0 on a kernel without tcx.
pub fn tcx_programs(ifindex: u32) -> [u32; 2] {
    [libbpf_sys::BPF_TCX_INGRESS, libbpf_sys::BPF_TCX_EGRESS]
        .map(|place| tcx_programs_at(ifindex, place))
}

fn tcx_programs_at(ifindex: u32, place: libbpf_sys::bpf_attach_type) -> u32 {
    let mut options = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as u64,
        ..libbpf_sys::bpf_prog_query_opts::default()
    };
    let device = ifindex.cast_signed();
    // SAFETY: needed because libbpf-rs has no wrapper. The kernel writes numbers to the options, which live as
    // long as the call, and no list, as their pointers are null.
    let result = unsafe { libbpf_sys::bpf_prog_query_opts(device, place, &raw mut options) };
    if result < 0 {
        return 0;
    }
    // SAFETY: needed because the member is a union's. Both members are one number.
    unsafe { options.__bindgen_anon_1.prog_cnt }
}
