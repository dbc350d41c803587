//! Opening and binding the kernel's socket.

use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::sys::{Kernel, KernelSocket};
use hostnet::privilege::{Capability, Feature};
use hostnet::sock_diag::xdp_diag;
use rustix::io::Errno;
use rustix::net::xdp::SocketAddrXdpFlags;
use std::sync::Arc;
use std::time::Duration;

/// Interval at which a busy queue is tried again.
pub(super) const BUSY_PAUSE: Duration = Duration::from_millis(1);

/// Time to wait by default for a queue or a device that something holds.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// Time to wait by default for a queue without a socket, which the kernel is about to release.
pub(super) const RELEASE_TIMEOUT: Duration = Duration::from_secs(30);

/// Opens an AF_XDP socket, with the cause and cure of a refusal.
pub(super) fn open_socket(kernel: &dyn Kernel) -> Result<Arc<dyn KernelSocket>> {
    const STEP: &str = "opening an AF_XDP socket";
    kernel.socket().map_err(|errno| {
        let refused = Error::refused(STEP, errno, Feature::AfXdp, &[Capability::NetRaw]);
        refused.unwrap_or_else(|| match errno {
            Errno::AFNOSUPPORT | Errno::SOCKTNOSUPPORT | Errno::PROTONOSUPPORT => Error::os(
                ErrorKind::Unsupported,
                errno,
                "this kernel has no AF_XDP: Linux 5.9 or later with CONFIG_XDP_SOCKETS is needed",
            ),
            _ => Error::os(ErrorKind::Os, errno, STEP),
        })
    })
}

/// The cause and cure of a failed bind; `held` says whether a socket has the queue.
pub(super) fn bind_error(
    errno: Errno,
    flags: SocketAddrXdpFlags,
    device: &Device,
    queue: u32,
    held: bool,
) -> Error {
    let name = &device.name;
    let zero_copy = flags.contains(SocketAddrXdpFlags::XDP_ZEROCOPY);
    let shared = flags.contains(SocketAddrXdpFlags::XDP_SHARED_UMEM);
    // The kernel's own bind(2) asks for no privilege.
    let step = format!("binding to queue {queue} of {name}");
    let refused = || Error::refused(&step, errno, Feature::Base, &[]);
    // In zero-copy mode the driver answers, and copy mode is tried after it.
    if !zero_copy && let Some(refused) = refused() {
        return refused;
    }
    let (kind, message) = match errno {
        Errno::BUSY if !held => (
            ErrorKind::QueueBusy,
            format!(
                "queue {queue} of {name} has no AF_XDP socket any more, but the kernel has not released it yet: try again, or set a longer `busy_timeout`"
            ),
        ),
        Errno::BUSY => (
            ErrorKind::QueueBusy,
            format!(
                "queue {queue} of {name} is held by another AF_XDP socket: {}, or use another queue",
                holder_cure()
            ),
        ),
        Errno::NETDOWN => (
            ErrorKind::DeviceDown,
            format!("{name} is down: set it up with `ip link set dev {name} up`"),
        ),
        Errno::NODEV => (ErrorKind::DeviceMissing, format!("{name} is gone")),
        // Some drivers return the kernel's internal 524 (ENOTSUPP).
        _ if zero_copy && (errno == Errno::OPNOTSUPP || errno.raw_os_error() == 524) => (
            ErrorKind::ModeRefused,
            format!("the driver of {name} has no zero-copy for queue {queue}: use copy mode"),
        ),
        _ if zero_copy => (
            ErrorKind::ModeRefused,
            format!(
                "the driver of {name} refused zero-copy on queue {queue}: it may lack resources or require other offloads, ring sizes or MTU (see `dmesg`); use copy mode"
            ),
        ),
        Errno::INVAL if shared => (
            ErrorKind::InvalidConfig,
            format!(
                "queue {queue} of {name} already has a socket on this UMEM: open a second one with its `add_sibling`"
            ),
        ),
        Errno::INVAL => (
            ErrorKind::InvalidConfig,
            format!("the kernel rejects this combination of settings for queue {queue} of {name}"),
        ),
        _ => (ErrorKind::Os, step),
    };
    Error::os(kind, errno, message)
}

/// How to find the process of a socket: a kernel without `CONFIG_XDP_SOCKETS_DIAG` lists none, and `ss` then shows an
/// empty table.
fn holder_cure() -> &'static str {
    match xdp_diag::xdp_sockets() {
        Ok(None) => {
            "end its process, which `lsof | grep 'protocol: XDP'` shows to root (this kernel has no CONFIG_XDP_SOCKETS_DIAG for `ss --xdp`)"
        }
        _ => "end its process, which `ss --xdp -ep` shows",
    }
}

/// Reads back whether a bound socket is in zero-copy mode.
pub(crate) fn is_zero_copy(socket: &dyn KernelSocket) -> Result<bool> {
    socket
        .is_zero_copy()
        .map_err(|errno| Error::os(ErrorKind::Os, errno, "reading the mode back"))
}

/// Sets a socket up for busy polling.
pub(super) fn prefer_busy_poll(socket: &dyn KernelSocket) -> Result<()> {
    /// The values of the kernel's example (`Documentation/networking/af_xdp.rst`).
    const MICROSECONDS: u32 = 20;
    const BUDGET: u32 = 64;
    let set = socket.set_busy_poll(MICROSECONDS, BUDGET);
    set.map_err(|errno| {
        let step = "setting the socket up for busy polling (`Wait::Spin` needs no privilege)";
        let refused = Error::refused(step, errno, Feature::Base, &[Capability::NetAdmin]);
        refused.unwrap_or_else(|| match errno {
            Errno::NOPROTOOPT => Error::os(
                ErrorKind::Unsupported,
                errno,
                "busy polling needs Linux 5.11 with CONFIG_NET_RX_BUSY_POLL: wait with `Wait::Spin`",
            ),
            _ => Error::os(
                ErrorKind::Os,
                errno,
                "setting the socket up for busy polling",
            ),
        })
    })
}

/// Checks that a zero-copy socket without an XDP program can send: some drivers have no rings for it
/// then, and refuse each wake-up.
pub(super) fn expect_sending(socket: &dyn KernelSocket, device: &Device) -> Result<()> {
    if socket.send() != Err(Errno::INVAL) {
        return Ok(());
    }
    let name = &device.name;
    let message = format!(
        "the driver of {name} sends in zero-copy mode only while an XDP program is attached: give this socket an RX ring, or the program of another socket on {name}; or use copy mode"
    );
    Err(Error::os(ErrorKind::ModeRefused, Errno::INVAL, message))
}
