//! libxdp's own redirect program, which its dispatcher calls beside other XDP programs.

use super::refusal::{explain, is_bpffs, refused};
use crate::device::{AttachMode, Device};
use crate::error::{Error, ErrorKind, Result, shown};
use crate::sys::{self, Attachments, Libxdp, SysResult};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// The part of a user in libxdp's redirect program, given back on drop: the last user detaches it.
#[derive(Debug)]
pub(super) struct Dispatched {
    libxdp: &'static Libxdp,
    /// The network namespace of the device, which the last owner's thread may not be in.
    namespace: OwnedFd,
    ifindex: u32,
    map_id: u32,
}

/// Attaches the program by the dispatcher, or shares it with its other users. Also returns its XSKMAP.
pub(super) fn attach(device: &Device, mode: AttachMode) -> Result<(Dispatched, OwnedFd)> {
    let name = &device.name;
    let libxdp = Libxdp::get().map_err(absent)?;
    check_bpffs()?;
    if mode == AttachMode::Skb {
        let message = format!(
            "libxdp attaches its redirect program in native XDP only: request `Mode::Auto` or `Mode::Driver`, or attach it with `xdp-loader load --mode skb {name} xsk_def_xdp_prog.o` and give its XSKMAP with `SocketBuilder::map`"
        );
        return Err(Error::new(ErrorKind::ModeRefused, message));
    }
    device.check_delivery(mode)?;
    let namespace = network_namespace().map_err(refused("opening /proc/thread-self/ns/net"))?;
    let setup = libxdp.setup_xdp_prog(device.index);
    let map = setup.map_err(|errno| explain_setup(device, mode, errno))?;
    let info = sys::map_info(map.as_fd()).map_err(refused("reading libxdp's XSKMAP"))?;
    let part = Dispatched {
        libxdp,
        namespace,
        ifindex: device.index,
        map_id: info.id,
    };
    part.check_dispatcher(name)?;
    Ok((part, map))
}

fn absent(error: &str) -> Error {
    let message = format!(
        "libxdp is not installed, or is older than 1.2 ({error}): install it (Debian: `apt install libxdp1`), or open the socket without the dispatcher"
    );
    Error::new(ErrorKind::Unsupported, message)
}

/// The directory of libxdp's pinned objects is on a bpffs.
fn bpffs() -> PathBuf {
    // As libxdp does.
    std::env::var_os("LIBXDP_BPFFS").map_or_else(|| "/sys/fs/bpf".into(), PathBuf::from)
}

fn check_bpffs() -> Result<()> {
    let path = bpffs();
    if is_bpffs(&path) == Ok(true) {
        return Ok(());
    }
    let path = shown(&path);
    let message = format!(
        "no bpffs at {path}, where libxdp pins its dispatcher: mount it with `mount -t bpf bpf {path}`"
    );
    Err(Error::new(ErrorKind::Unsupported, message))
}

fn explain_setup(device: &Device, mode: AttachMode, errno: Errno) -> Error {
    match errno {
        Errno::NOENT => Error::os(
            ErrorKind::Unsupported,
            errno,
            "libxdp does not find its BPF programs xdp-dispatcher.o and xsk_def_xdp_prog.o: install its package again, or name their directory in LIBXDP_OBJECT_PATH",
        ),
        _ => explain(device, mode, errno, None).context("libxdp's redirect program"),
    }
}

impl Dispatched {
    /// Without a dispatcher libxdp attaches the program alone, so that no other can be beside it.
    fn check_dispatcher(&self, device: &str) -> Result<()> {
        let attached = self.libxdp.attachments(self.ifindex);
        let attached = attached.map_err(refused("reading libxdp's attachments"))?;
        if attached.have_dispatcher() {
            return Ok(());
        }
        let message = format!(
            "{device}: libxdp cannot attach its dispatcher, as this kernel refuses BPF trampolines (programs of type BPF_PROG_TYPE_EXT: Linux 5.10 or later with CONFIG_DEBUG_INFO_BTF, and on x86 and arm64 its BPF JIT): open the socket without the dispatcher, or use such a kernel"
        );
        Err(Error::new(ErrorKind::Unsupported, message))
    }

    /// Does work in the device's namespace, on a thread of its own if this one is in another.
    fn in_namespace(&self, work: impl FnOnce() -> SysResult<()> + Send) -> SysResult<()> {
        let here = rustix::fs::fstat(network_namespace()?)?;
        if here.st_ino == rustix::fs::fstat(&self.namespace)?.st_ino {
            return work();
        }
        let enter = || {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(self.namespace.as_fd(), kind)
        };
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| enter().and_then(|()| work()));
            thread.join().unwrap_or(Err(Errno::IO))
        })
    }

    fn give_back(&self) -> SysResult<()> {
        let attached = self.libxdp.attachments(self.ifindex)?;
        // Others could begin to use it until it is detached, so that libxdp's own count decides.
        if self.leave(&attached)? == 0 {
            attached.detach(|program| self.is_ours(program))?;
        }
        Ok(())
    }

    /// Leaves the program's count of users; returns how many remain. A program without a count stays.
    fn leave(&self, attached: &Attachments<'_>) -> SysResult<u32> {
        let _lock = lock()?;
        let Some(variables) = attached.find_map(|program| self.variables(program)) else {
            return Ok(u32::MAX);
        };
        sys::change_variables(variables.as_fd(), |value| {
            let Some(count) = value.first_chunk_mut() else {
                return u32::MAX;
            };
            let left = u32::from_ne_bytes(*count).saturating_sub(1);
            *count = left.to_ne_bytes();
            left
        })
    }

    fn is_ours(&self, program: BorrowedFd<'_>) -> bool {
        sys::program_info(program).is_ok_and(|info| info.map_ids.contains(&self.map_id))
    }

    /// The map with the program's count of users.
    fn variables(&self, program: BorrowedFd<'_>) -> Option<OwnedFd> {
        let info = sys::program_info(program).ok()?;
        let maps = info
            .map_ids
            .contains(&self.map_id)
            .then_some(info.map_ids)?;
        let mut maps = maps.into_iter().filter_map(|id| sys::map_by_id(id).ok());
        maps.find(|map| sys::map_info(map.as_fd()).is_ok_and(|info| info.name() == "xsk_def_.data"))
    }
}

impl Drop for Dispatched {
    fn drop(&mut self) {
        // After an error the program stays, as after `kill -9`, and can be removed by hand.
        let _ = self.in_namespace(|| self.give_back());
    }
}

fn network_namespace() -> SysResult<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::open("/proc/thread-self/ns/net", flags, Mode::empty())
}

/// libxdp's lock, which all users of the count hold while they change it.
fn lock() -> SysResult<OwnedFd> {
    let directory = rustix::fs::open(
        bpffs().join("xdp"),
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    rustix::fs::flock(&directory, FlockOperation::LockExclusive)?;
    Ok(directory)
}
