//! The built-in program on a device, shared by processes that know nothing of each other.

use super::refusal::{explain, refused};
use super::{Attachment, NAME, Program, Takes, built_in};
use crate::device::{AttachMode, AttachedProgram, Device};
use crate::error::Result;
use crate::sys::{self, BPF_NAME_LEN, SysResult};
use hostnet::rtnetlink::Rtnetlink;
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Name of a program that stays, by which others know that no link holds it.
const LASTING: [u8; BPF_NAME_LEN] = *b"xsk_lasting\0\0\0\0\0";

/// Longest time for a program to leave whose last holder has just let go of it.
const PATIENCE: Duration = Duration::from_secs(1);

impl Program {
    /// Attaches the built-in program to `device`, for packets of several buffers as well or not, or holds the
    /// one that is there, of whatever process: it is detached with the last holder, and takes what the first
    /// asked for. To find another's needs `CAP_SYS_ADMIN`.
    ///
    /// # Errors
    ///
    /// As those of [`Program::attach_to`].
    pub(crate) fn attach_or_share(
        device: &Device,
        mode: AttachMode,
        fragments: bool,
    ) -> Result<Self> {
        let attach = |program: BorrowedFd<'_>| {
            sys::xdp_link_create(program, device.index, mode.flags()).map(Attachment::Link)
        };
        or_share(device, mode, NAME, Takes::new(fragments, None), attach)
    }

    /// The same, but a program that was not there stays, whatever becomes of this process.
    ///
    /// # Errors
    ///
    /// As those of [`Program::attach_to`].
    pub(crate) fn attach_lasting_or_share(device: &Device, mode: AttachMode) -> Result<Self> {
        let attach = |program: BorrowedFd<'_>| {
            let attached = Rtnetlink::open().and_then(|mut rtnetlink| {
                rtnetlink.attach_xdp(device.index, program, mode.flags())
            });
            match attached {
                Ok(()) => Ok(Attachment::Lasting),
                Err(error) => Err(error.errno().map_or(Errno::IO, Errno::from_raw_os_error)),
            }
        };
        or_share(device, mode, LASTING, Takes::default(), attach)
    }
}

/// Attaches, or shares what is there: one of both, also when others do the same at this time.
fn or_share(
    device: &Device,
    mode: AttachMode,
    name: [u8; BPF_NAME_LEN],
    takes: Takes,
    attach: impl Fn(BorrowedFd<'_>) -> SysResult<Attachment>,
) -> Result<Program> {
    device.check_delivery(mode)?;
    let (map, program) = built_in(name, device, None, takes)?;
    let info = sys::program_info(program.as_fd()).map_err(refused("reading the XDP program"))?;
    // Of the instructions, without the map and the name: that of each built-in program without a filter.
    let tag = Some(info.tag());
    let deadline = Instant::now() + PATIENCE;
    loop {
        let errno = match attach(program.as_fd()) {
            Ok(attachment) => {
                return Ok(Program::new(attachment, map, mode, device.index, takes));
            }
            Err(errno) => errno,
        };
        if !matches!(errno, Errno::BUSY | Errno::EXIST) {
            return Err(explain(device, mode, errno, Some(program.as_fd())));
        }
        let now = Device::lookup(&device.name)?;
        match now.obstacle() {
            Some(other) if other.tag != tag => {
                return Err(explain(device, mode, errno, Some(program.as_fd())));
            }
            Some(same) => {
                if let Some((attachment, map)) = hold(same, device.index) {
                    return Ok(Program::new(
                        attachment,
                        map,
                        same.mode,
                        device.index,
                        Takes::default(),
                    ));
                }
            }
            None => {}
        }
        if Instant::now() >= deadline {
            return Err(explain(device, mode, errno, Some(program.as_fd())));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Holds the built-in program of others, with its XSKMAP. None when they have let go of it.
fn hold(there: &AttachedProgram, ifindex: u32) -> Option<(Attachment, OwnedFd)> {
    let attachment = if there.name.as_deref() == Some("xsk_lasting") {
        Attachment::Lasting
    } else {
        let (_, link) = sys::xdp_links(there.id).find(|(device, _)| *device == ifindex)?;
        Attachment::Link(link)
    };
    let program = sys::program_by_id(there.id).ok()?;
    let maps = sys::program_info(program.as_fd()).ok()?.map_ids;
    let mut maps = maps.into_iter().filter_map(|id| sys::map_by_id(id).ok());
    let map = maps.find(|map| sys::map_info(map.as_fd()).is_ok_and(|info| info.is_xskmap()))?;
    Some((attachment, map))
}
