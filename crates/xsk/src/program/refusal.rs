//! Refusals to load or attach an XDP program, each with its cause and cure.

use crate::device::{AttachMode, Device};
use crate::error::{Error, ErrorKind};
use crate::sys;
use hostnet::privilege::{Capability, Feature};
use rustix::io::Errno;
use std::fmt;

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

/// The error of attaching a program to `device`.
pub(super) fn explain(device: &Device, mode: AttachMode, errno: Errno) -> Error {
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
            let message = format!(
                "the driver of {name} cannot run {mode} XDP at MTU {} (of a veth it is the peer's that counts): lower it with `ip link set dev {name} mtu 1500`, or build the UMEM with `fragments`",
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

fn is_gone(device: &Device) -> bool {
    match Device::lookup(&device.name) {
        Ok(now) => now.index != device.index,
        Err(error) => error.kind() == ErrorKind::DeviceMissing,
    }
}
