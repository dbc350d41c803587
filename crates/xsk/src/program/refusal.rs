//! Refusals to load or attach an XDP program, each with its cause and cure.

use crate::device::{AttachMode, Device};
use crate::error::{Error, ErrorKind};
use crate::sys::{self, SysResult};
use hostnet::privilege::{Capability, Feature};
use hostnet::rtnetlink::{Link, Rtnetlink, max_xdp_mtu};
use rustix::io::Errno;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// `BPF_FS_MAGIC` (`include/uapi/linux/magic.h`).
const BPF_FS_MAGIC: u64 = 0xcafe_4a11;

/// Whether a file or directory is on a BPF filesystem.
pub(super) fn is_bpffs(path: &Path) -> SysResult<bool> {
    let found = rustix::fs::statfs(path)?;
    Ok(found.f_type as u64 == BPF_FS_MAGIC)
}

/// To load and attach an XDP program.
const NEEDED: &[Capability] = &[Capability::Bpf, Capability::NetAdmin];

/// The error of a step that needs privileges, or a feature of the kernel.
pub(super) fn refused(step: impl fmt::Display) -> impl FnOnce(Errno) -> Error {
    move |errno| {
        let refused = Error::refused(&step, errno, Feature::Bpf, NEEDED);
        refused.unwrap_or_else(|| match errno {
            Errno::NOSYS | Errno::INVAL => Error::os(
                ErrorKind::Unsupported,
                errno,
                format!(
                    "{step}: this kernel cannot (Linux 5.9 or later is needed, with CONFIG_BPF_SYSCALL and CONFIG_XDP_SOCKETS)"
                ),
            ),
            _ => Error::os(ErrorKind::Os, errno, step.to_string()),
        })
    }
}

/// The error of attaching `program` to `device`.
pub(super) fn explain(
    device: &Device,
    mode: AttachMode,
    errno: Errno,
    program: Option<BorrowedFd<'_>>,
) -> Error {
    let name = &device.name;
    match errno {
        Errno::BUSY | Errno::EXIST => {
            let now = Device::lookup(name).ok();
            let obstacle = now.as_ref().and_then(Device::obstacle);
            let what = obstacle.map_or("a program".to_owned(), ToString::to_string);
            let removal = obstacle.map_or_else(
                || "it is gone now: try again".to_owned(),
                |program| program.removal(device),
            );
            let share = match obstacle {
                Some(program) if program.may_be_ours() => {
                    "share it, if a socket of this process holds it, with `SocketBuilder::program`; or "
                }
                _ => "",
            };
            let message = format!(
                "{name} already has an XDP program ({what}): {share}{removal}; or give this socket that program's XSKMAP"
            );
            Error::os(ErrorKind::ProgramAttached, errno, message)
        }
        Errno::PERM | Errno::ACCESS | Errno::NOSYS => {
            refused(format!("attaching the XDP program to {name}"))(errno)
        }
        Errno::INVAL if sys::xdp_link_known() == Ok(false) => {
            refused(format!("attaching the XDP program to {name}"))(errno)
        }
        // The kernel finds no device with its index.
        Errno::INVAL | Errno::NODEV if is_gone(device) => {
            let message = format!(
                "{name} was removed, or moved to another network namespace, while the socket was opened"
            );
            Error::os(ErrorKind::DeviceMissing, errno, message)
        }
        Errno::RANGE => {
            let message = match Peer::of(device) {
                Some(peer) => format!(
                    "the driver of {name} cannot run {mode} XDP at MTU {} of its peer: lower it with `ip link set dev {} mtu {}`{}, or build the UMEM with `fragments`",
                    peer.link.mtu,
                    peer.link.name,
                    max_xdp_mtu(),
                    peer.place,
                ),
                None => format!(
                    "the driver of {name} cannot run {mode} XDP at MTU {}{}: lower it with `ip link set dev {name} mtu 1500`, or build the UMEM with `fragments`",
                    device.mtu,
                    words(device, mode, program),
                ),
            };
            Error::os(ErrorKind::MtuTooLarge, errno, message)
        }
        Errno::NOSPC => {
            let cure = Peer::of(device).map_or_else(String::new, |peer| {
                let (queues, peer_name) = (device.rx_queues, &peer.link.name);
                format!(
                    ": lower these with `ethtool -L {peer_name} tx {queues}`{}",
                    peer.place
                )
            });
            let message = format!(
                "{name} has fewer RX queues than its peer has TX queues, and cannot run {mode} XDP{cure}"
            );
            Error::os(ErrorKind::ModeRefused, errno, message)
        }
        _ => {
            let message = format!(
                "the driver of {name} refuses a {mode} XDP program{}: try another mode, and see `dmesg`",
                words(device, mode, program),
            );
            Error::os(ErrorKind::ModeRefused, errno, message)
        }
    }
}

/// The peer of a veth.
struct Peer {
    link: Link,
    /// Of another network namespace: where its command is to be run.
    place: &'static str,
}

impl Peer {
    /// `None` for other devices, and for a peer in a namespace that may not be looked at.
    fn of(device: &Device) -> Option<Self> {
        let mut rtnetlink = Rtnetlink::open().ok()?;
        let link = rtnetlink.link_by_index(device.index).ok()?;
        if link.kind.as_deref() != Some("veth") {
            return None;
        }
        let index = link.lower?;
        Some(match link.lower_netns {
            Some(netns) => Self {
                link: rtnetlink.link_in(netns, index).ok()?,
                place: " in its network namespace",
            },
            None => Self {
                link: rtnetlink.link_by_index(index).ok()?,
                place: "",
            },
        })
    }
}

/// The driver's own words, which bpf(2) does not pass on: it is asked again over netlink.
fn words(device: &Device, mode: AttachMode, program: Option<BorrowedFd<'_>>) -> String {
    let ask = |program| {
        let mut rtnetlink = Rtnetlink::open().ok()?;
        rtnetlink.xdp_refusal(device.index, program, mode.flags())
    };
    let words = program.and_then(ask);
    words.map_or_else(String::new, |words| format!(" ({words})"))
}

fn is_gone(device: &Device) -> bool {
    match Device::lookup(&device.name) {
        Ok(now) => now.index != device.index,
        Err(error) => error.kind() == ErrorKind::DeviceMissing,
    }
}
