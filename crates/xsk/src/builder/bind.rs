//! Opening and binding the kernel's socket.

use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::sys;
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XdpOptionsFlags,
};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Opens an AF_XDP socket, with the cause and cure of a refusal.
pub(super) fn open_socket() -> Result<OwnedFd> {
    sys::open_socket().map_err(|errno| match errno {
        Errno::PERM | Errno::ACCESS => Error::os(
            ErrorKind::PermissionDenied,
            errno,
            "opening an AF_XDP socket needs CAP_NET_RAW: run as root or grant it",
        ),
        Errno::AFNOSUPPORT | Errno::SOCKTNOSUPPORT | Errno::PROTONOSUPPORT => Error::os(
            ErrorKind::Unsupported,
            errno,
            "this kernel has no AF_XDP: Linux 5.9 or later with CONFIG_XDP_SOCKETS is needed",
        ),
        _ => Error::os(ErrorKind::Os, errno, "opening an AF_XDP socket"),
    })
}

/// Binds, waiting while the queue is busy: the kernel releases it some milliseconds after a socket
/// is closed or its process killed.
pub(super) fn bind_until(
    fd: BorrowedFd<'_>,
    addr: &SocketAddrXdp,
    lender: BorrowedFd<'_>,
    deadline: Instant,
) -> std::result::Result<(), Errno> {
    loop {
        let result = if addr.flags().contains(SocketAddrXdpFlags::XDP_SHARED_UMEM) {
            let addr = SocketAddrXdpWithSharedUmem {
                addr: addr.clone(),
                shared_umem_fd: lender,
            };
            rustix::net::bind(fd, &addr)
        } else {
            rustix::net::bind(fd, addr)
        };
        match result {
            Err(Errno::BUSY) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            result => return result,
        }
    }
}

/// The cause and cure of a failed bind.
pub(super) fn bind_error(
    errno: Errno,
    flags: SocketAddrXdpFlags,
    device: &Device,
    queue: u32,
) -> Error {
    let name = &device.name;
    let zero_copy = flags.contains(SocketAddrXdpFlags::XDP_ZEROCOPY);
    let shared = flags.contains(SocketAddrXdpFlags::XDP_SHARED_UMEM);
    let (kind, message) = match errno {
        Errno::BUSY => (
            ErrorKind::QueueBusy,
            format!(
                "queue {queue} of {name} is held by another AF_XDP socket: end its process, which `ss --xdp -ep` shows, or use another queue"
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
        _ => (ErrorKind::Os, format!("binding to queue {queue} of {name}")),
    };
    Error::os(kind, errno, message)
}

/// Reads back whether a bound socket is in zero-copy mode.
pub(super) fn is_zero_copy(fd: BorrowedFd<'_>) -> Result<bool> {
    let options = sockopt::xdp_options(fd)
        .map_err(|errno| Error::os(ErrorKind::Os, errno, "reading the mode back"))?;
    Ok(options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
}
