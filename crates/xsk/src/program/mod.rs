//! The XDP programs that redirect packets to sockets: the built-in one, and the caller's.

pub(crate) mod assembler;
mod callers;
#[cfg(feature = "libxdp")]
mod dispatcher;
mod filter;
mod hints;
pub(crate) mod instruction;
mod queues;
mod redirect;
mod refusal;
#[cfg(xsk_internals)]
mod shared;

pub(crate) use callers::CallersProgram;
pub use filter::{Filter, Rule};
pub(crate) use hints::Hints;
pub(crate) use redirect::redirect;

use crate::device::{AttachMode, AttachedProgram, Device};
use crate::error::{Error, ErrorKind, Result};
use crate::sys::{self, BPF_NAME_LEN, Instruction};
use refusal::{explain, refused};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Name of the built-in program and its map, as `bpftool` shows it.
const NAME: [u8; BPF_NAME_LEN] = *b"xsk_redirect\0\0\0\0";

/// The XDP program on one device, shared by the sockets on the device's queues.
///
/// The built-in one redirects each packet, or those of a [`Filter`], to the socket on the packet's RX
/// queue, and passes it to the network stack when that queue has no socket. A `bpf_link` holds the
/// program, so it is detached when the last clone is dropped, or the process killed; one that libxdp's
/// dispatcher calls [outlives a killed process](crate::guide::packets#beside-other-xdp-programs).
///
/// ```no_run
/// use xsk::{Socket, Umem};
///
/// # fn main() -> xsk::Result<()> {
/// let umem = Umem::builder().chunks(8192).build()?;
/// let first = Socket::builder(&umem, "eth0", 0).open()?;
/// let program = first.program().expect("no XSKMAP was given");
/// let second = Socket::builder(&umem, "eth0", 1).program(program).open()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Program(Arc<Attached>);

#[derive(Debug)]
struct Attached {
    /// Dropped first, so that packets stop before the map is freed.
    attachment: Attachment,
    map: OwnedFd,
    mode: AttachMode,
    ifindex: u32,
    takes: Takes,
}

/// Which packets a program takes, and what it does with them, as far as is known.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Takes {
    /// Packets of several buffers as well.
    pub(crate) fragments: bool,
    /// Writes hints in front of them.
    pub(crate) hints: Option<Hints>,
    /// Writes hints, in a way that only the process knows which loaded it.
    hints_of_another: bool,
    /// Those of a filter only.
    filtered: bool,
    /// Packets without an Ethernet header, which no filter reads.
    without_ethernet: bool,
}

impl Takes {
    /// Of a program whose loader knows whether it takes packets of several buffers.
    const LOADED: Self = Self {
        fragments: true,
        hints: None,
        hints_of_another: false,
        filtered: false,
        without_ethernet: false,
    };

    /// Of a program that this library loaded for the packets and hints of a socket.
    pub(crate) fn new(fragments: bool, hints: Option<Hints>) -> Self {
        Self {
            fragments,
            hints,
            ..Self::default()
        }
    }

    /// The same of another process.
    pub(crate) fn of_another(fragments: bool, hints_of_another: bool) -> Self {
        Self {
            fragments,
            hints_of_another,
            ..Self::default()
        }
    }

    /// Of a device's packets, those of the filter if there is one.
    fn from(self, device: &Device, filter: Option<&Filter>) -> Self {
        Self {
            filtered: filter.is_some(),
            without_ethernet: !device.has_ethernet_header(),
            ..self
        }
    }
}

/// What became of an attached program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// It is attached, as far as this process may know.
    Attached,
    /// It was detached, or its device is gone.
    Detached,
    /// Its link has another program, which does not use its XSKMAP.
    Replaced,
}

/// Whatever keeps the program attached.
#[derive(Debug)]
enum Attachment {
    Link(OwnedFd),
    #[cfg(feature = "libxdp")]
    Dispatcher(#[expect(dead_code, reason = "held until it is dropped")] dispatcher::Dispatched),
    /// Nothing: rtnetlink has attached it, and it stays.
    #[cfg(xsk_internals)]
    Lasting,
}

impl Program {
    fn new(
        attachment: Attachment,
        map: OwnedFd,
        mode: AttachMode,
        ifindex: u32,
        takes: Takes,
    ) -> Self {
        Self(Arc::new(Attached {
            attachment,
            map,
            mode,
            ifindex,
            takes,
        }))
    }

    /// Loads the built-in program, which takes the packets of `filter`, or all, and attaches it to `device`.
    ///
    /// It waits up to `patience` for the program of a socket that was just closed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ProgramAttached`] when another program is attached, which it names;
    /// [`ErrorKind::PermissionDenied`] without `CAP_NET_ADMIN` and `CAP_BPF`;
    /// [`ErrorKind::ModeRefused`] or [`ErrorKind::MtuTooLarge`] when the driver refuses.
    pub(crate) fn attach(
        device: &Device,
        mode: AttachMode,
        patience: Duration,
        filter: Option<&Filter>,
        takes: Takes,
    ) -> Result<Self> {
        let (map, program) = built_in(NAME, device, filter, takes)?;
        let link = Attachment::Link(link(device, mode, program.as_fd(), patience)?);
        let takes = takes.from(device, filter);
        Ok(Self::new(link, map, mode, device.index, takes))
    }

    /// Attaches a loaded program, which redirects to `map`. Its loader knows whether it takes packets of
    /// several buffers.
    pub(crate) fn attach_loaded(
        device: &Device,
        mode: AttachMode,
        patience: Duration,
        map: OwnedFd,
        program: BorrowedFd<'_>,
    ) -> Result<Self> {
        let link = Attachment::Link(link(device, mode, program, patience)?);
        Ok(Self::new(link, map, mode, device.index, Takes::LOADED))
    }

    /// Attaches libxdp's redirect program by its dispatcher, or shares it with its other users on the
    /// device.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] without libxdp, without bpffs, or when the kernel refuses the
    /// dispatcher; [`ErrorKind::ModeRefused`] for generic XDP; else those of the built-in program.
    #[cfg(feature = "libxdp")]
    pub(crate) fn attach_by_dispatcher(device: &Device, mode: AttachMode) -> Result<Self> {
        let (part, map) = dispatcher::attach(device, mode)?;
        // It is in the mode in which its first user, or another program, has attached the dispatcher.
        let now = Device::lookup(&device.name)?;
        let mode = now.obstacle().map_or(mode, |program| program.mode);
        let part = Attachment::Dispatcher(part);
        Ok(Self::new(part, map, mode, device.index, Takes::LOADED))
    }

    /// The program of another process, which `link` attaches to the device `ifindex`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Foreign`] when it is no such link.
    pub(crate) fn take_over(
        link: OwnedFd,
        map: OwnedFd,
        mode: AttachMode,
        ifindex: u32,
        takes: Takes,
    ) -> Result<Self> {
        let known = match sys::xdp_link(link.as_fd()) {
            // 0 when the device is gone.
            Ok(link) => link.is_some_and(|link| link.ifindex == ifindex || link.ifindex == 0),
            // Some kernels before 5.19 tell an unprivileged process nothing; then the giver's word counts.
            Err(errno) => errno == Errno::PERM,
        };
        if !known {
            let message = format!("the link handed over is no XDP link of the device {ifindex}");
            return Err(Error::new(ErrorKind::Foreign, message));
        }
        let link = Attachment::Link(link);
        Ok(Self::new(link, map, mode, ifindex, takes))
    }

    /// The link that holds it; none in libxdp's dispatcher, and none of a program that stays.
    pub(crate) fn link(&self) -> Option<BorrowedFd<'_>> {
        match &self.0.attachment {
            Attachment::Link(link) => Some(link.as_fd()),
            #[cfg(feature = "libxdp")]
            Attachment::Dispatcher(_) => None,
            #[cfg(xsk_internals)]
            Attachment::Lasting => None,
        }
    }

    /// Whether it still is attached to its device. One that cannot be read counts as attached.
    pub(crate) fn hold(&self) -> Hold {
        let Some(Ok(Some(link))) = self.link().map(sys::xdp_link) else {
            return Hold::Attached;
        };
        if link.ifindex == 0 {
            return Hold::Detached;
        }
        match self.is_user(link.program) {
            Ok(false) => Hold::Replaced,
            Ok(true) | Err(_) => Hold::Attached,
        }
    }

    /// Whether the program with this id uses the XSKMAP: another filter is another program.
    fn is_user(&self, id: u32) -> sys::SysResult<bool> {
        let program = sys::program_by_id(id)?;
        let map = sys::map_info(self.map())?;
        Ok(sys::program_info(program.as_fd())?
            .map_ids
            .contains(&map.id))
    }

    /// The mode in which it is attached.
    pub fn mode(&self) -> AttachMode {
        self.0.mode
    }

    /// Index of its device.
    pub fn ifindex(&self) -> u32 {
        self.0.ifindex
    }

    /// Whether it takes packets of several buffers, as far as is known.
    pub(crate) fn takes_fragments(&self) -> bool {
        self.0.takes.fragments
    }

    /// Whether it passes packets that its filter does not take, as far as is known.
    pub(crate) fn is_filtered(&self) -> bool {
        self.0.takes.filtered
    }

    /// How it writes hints, if it does.
    pub(crate) fn hints(&self) -> Option<Hints> {
        self.0.takes.hints
    }

    /// Its XSKMAP; that of the built-in program has a slot for each queue that the device can have.
    pub fn map(&self) -> BorrowedFd<'_> {
        self.0.map.as_fd()
    }
}

/// Loads the built-in program for a device, with its XSKMAP.
fn built_in(
    name: [u8; BPF_NAME_LEN],
    device: &Device,
    filter: Option<&Filter>,
    takes: Takes,
) -> Result<(OwnedFd, OwnedFd)> {
    // Queues may be added while the program is attached.
    let queues = device.most_queues.max(1);
    let map = sys::xskmap_create(name, queues).map_err(refused("creating the XSKMAP"))?;
    let instructions = redirect(map.as_fd(), filter, takes.hints);
    let program = load_named(name, &instructions, takes.fragments, takes.hints)?;
    Ok((map, program))
}

/// Loads an XDP program, for packets of several buffers as well or not, and bound to a device whose hints it
/// writes.
pub(crate) fn load(
    instructions: &[Instruction],
    fragments: bool,
    hints: Option<Hints>,
) -> Result<OwnedFd> {
    load_named(NAME, instructions, fragments, hints)
}

fn load_named(
    name: [u8; BPF_NAME_LEN],
    instructions: &[Instruction],
    fragments: bool,
    hints: Option<Hints>,
) -> Result<OwnedFd> {
    let device = hints.map(|hints| hints.ifindex);
    let loaded = sys::xdp_program_load(name, instructions, fragments, device, c"Dual BSD/GPL");
    loaded.map_err(|(errno, log)| {
        if log.is_empty() {
            return refused("loading the XDP program")(errno);
        }
        let message = format!("this kernel's verifier refuses the XDP program: {log}");
        Error::os(ErrorKind::Unsupported, errno, message)
    })
}

fn link(
    device: &Device,
    mode: AttachMode,
    program: BorrowedFd<'_>,
    patience: Duration,
) -> Result<OwnedFd> {
    device.check_delivery(mode)?;
    let flags = mode.flags();
    let deadline = Instant::now() + patience;
    let tag = sys::program_info(program).ok().map(|info| info.tag());
    let may_leave = |other: &AttachedProgram| other.may_be_ours() || other.tag == tag;
    loop {
        let errno = match sys::xdp_link_create(program, device.index, flags) {
            Ok(link) => return Ok(link),
            Err(errno) => errno,
        };
        // The kernel removes the link of a killed process with a delay.
        let leaving = matches!(errno, Errno::BUSY | Errno::EXIST)
            && Device::lookup(&device.name)?
                .obstacle()
                .is_none_or(may_leave);
        if !leaving || Instant::now() >= deadline {
            return Err(explain(device, mode, errno, Some(program)));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
