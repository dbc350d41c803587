//! The built-in XDP program, which redirects packets to sockets.

mod instruction;

use crate::device::{AttachMode, AttachedProgram, Device};
use crate::error::{Error, ErrorKind, Result};
use crate::sys::{self, BPF_NAME_LEN, Instruction};
use rustix::io::Errno;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Name of the built-in program and its map, as `bpftool` shows it.
const NAME: [u8; BPF_NAME_LEN] = *b"xsk_redirect\0\0\0\0";

/// `XDP_FLAGS_SKB_MODE` and `XDP_FLAGS_DRV_MODE` (`include/uapi/linux/if_link.h`).
const FLAG_SKB: u32 = 1 << 1;
const FLAG_DRIVER: u32 = 1 << 2;

/// The built-in XDP program on one device, shared by the sockets on the device's queues.
///
/// It redirects each packet to the socket on the packet's RX queue, and passes it to the network
/// stack when that queue has no socket. A `bpf_link` holds it, so it is detached when the last clone
/// is dropped, or the process killed.
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
    _link: OwnedFd,
    map: OwnedFd,
    mode: AttachMode,
    ifindex: u32,
}

impl Program {
    /// Loads the program and attaches it to `device`.
    ///
    /// It waits up to `patience` for the program of a socket that was just closed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ProgramAttached`] when another program is attached, which it names;
    /// [`ErrorKind::PermissionDenied`] without `CAP_NET_ADMIN` and `CAP_BPF`;
    /// [`ErrorKind::ModeRefused`] or [`ErrorKind::MtuTooLarge`] when the driver refuses.
    pub(crate) fn attach(device: &Device, mode: AttachMode, patience: Duration) -> Result<Self> {
        let queues = device.rx_queues.max(device.tx_queues).max(1);
        let map = sys::xskmap_create(NAME, queues).map_err(refused("creating the XSKMAP"))?;
        let instructions = redirect(map.as_fd());
        Self::attach_instructions(device, mode, patience, map, &instructions)
    }

    /// Attaches a program made of `instructions`, which refer to `map`.
    pub(crate) fn attach_instructions(
        device: &Device,
        mode: AttachMode,
        patience: Duration,
        map: OwnedFd,
        instructions: &[Instruction],
    ) -> Result<Self> {
        let program = load(instructions)?;
        let link = link(device, mode, program.as_fd(), patience)?;
        Ok(Self(Arc::new(Attached {
            _link: link,
            map,
            mode,
            ifindex: device.index,
        })))
    }

    /// The mode in which it is attached.
    pub fn mode(&self) -> AttachMode {
        self.0.mode
    }

    /// Index of its device.
    pub fn ifindex(&self) -> u32 {
        self.0.ifindex
    }

    /// Its XSKMAP, with a slot for each queue of the device.
    pub fn map(&self) -> BorrowedFd<'_> {
        self.0.map.as_fd()
    }
}

fn load(instructions: &[Instruction]) -> Result<OwnedFd> {
    sys::xdp_program_load(NAME, instructions, c"Dual BSD/GPL").map_err(|(errno, log)| {
        let step = if log.is_empty() {
            "loading the XDP program".to_owned()
        } else {
            format!("loading the XDP program: verifier: {log}")
        };
        refused(step)(errno)
    })
}

fn refused(step: impl fmt::Display) -> impl FnOnce(Errno) -> Error {
    move |errno| match errno {
        Errno::PERM | Errno::ACCESS => Error::os(
            ErrorKind::PermissionDenied,
            errno,
            format!("{step} needs CAP_BPF and CAP_NET_ADMIN: run as root or grant both"),
        ),
        Errno::NOSYS | Errno::INVAL => Error::os(
            ErrorKind::Unsupported,
            errno,
            format!(
                "{step}: this kernel cannot (Linux 5.9 or later is needed, with CONFIG_BPF_SYSCALL and CONFIG_XDP_SOCKETS)"
            ),
        ),
        _ => Error::os(ErrorKind::Os, errno, step.to_string()),
    }
}

fn link(
    device: &Device,
    mode: AttachMode,
    program: BorrowedFd<'_>,
    patience: Duration,
) -> Result<OwnedFd> {
    let flags = if mode == AttachMode::Skb {
        FLAG_SKB
    } else {
        FLAG_DRIVER
    };
    let deadline = Instant::now() + patience;
    loop {
        let errno = match sys::xdp_link_create(program, device.index, flags) {
            Ok(link) => return Ok(link),
            Err(errno) => errno,
        };
        let error = explain(device, mode, errno);
        // The kernel removes the link of a killed process with a delay.
        let leaving = error.kind() == ErrorKind::ProgramAttached
            && Device::lookup(&device.name)?
                .obstacle()
                .is_none_or(AttachedProgram::may_be_ours);
        if !leaving || Instant::now() >= deadline {
            return Err(error);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn explain(device: &Device, mode: AttachMode, errno: Errno) -> Error {
    let name = &device.name;
    match errno {
        Errno::BUSY | Errno::EXIST => {
            let now = Device::lookup(name).ok();
            let obstacle = now.as_ref().and_then(Device::obstacle);
            let what = obstacle.map_or("a program".to_owned(), ToString::to_string);
            let share = match obstacle {
                Some(program) if program.may_be_ours() => {
                    "share it, if a socket of this process holds it, with `SocketBuilder::program`; or "
                }
                _ => "",
            };
            let message = format!(
                "{name} already has an XDP program ({what}): {share}end the process that holds it, or remove it with `ip link set dev {name} xdp off` (`bpftool link` shows links), or give this socket that program's XSKMAP"
            );
            Error::os(ErrorKind::ProgramAttached, errno, message)
        }
        Errno::PERM | Errno::ACCESS => {
            refused(format!("attaching the XDP program to {name}"))(errno)
        }
        Errno::INVAL if sys::xdp_link_known() == Ok(false) => {
            refused(format!("attaching the XDP program to {name}"))(errno)
        }
        Errno::RANGE => {
            let message = format!(
                "the driver of {name} cannot run {mode} XDP at MTU {}: lower it with `ip link set dev {name} mtu 1500`",
                device.mtu
            );
            Error::os(ErrorKind::MtuTooLarge, errno, message)
        }
        Errno::NOSPC => {
            let message = format!(
                "{name} has fewer RX queues than its peer has TX queues, and cannot run {mode} XDP: set both equal with `ethtool -L {name} rx N tx N`"
            );
            Error::os(ErrorKind::ModeRefused, errno, message)
        }
        _ => {
            let message = format!(
                "the driver of {name} refuses a {mode} XDP program: try another mode, and see `dmesg`"
            );
            Error::os(ErrorKind::ModeRefused, errno, message)
        }
    }
}

/// `return bpf_redirect_map(&map, ctx->rx_queue_index, XDP_PASS)`. The last argument is
/// the action when the queue has no socket (5.3).
fn redirect(map: BorrowedFd<'_>) -> [Instruction; 6] {
    use instruction::Register::{R1, R2, R3};
    use instruction::{call, exit, load_map, load_u32, set};
    let [map_low, map_high] = load_map(R1, map);
    [
        load_u32(R2, R1, instruction::RX_QUEUE_INDEX),
        map_low,
        map_high,
        set(R3, instruction::XDP_PASS),
        call(instruction::REDIRECT_MAP),
        exit(),
    ]
}
