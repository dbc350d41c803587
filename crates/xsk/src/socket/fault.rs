//! Why a socket gets or sends nothing: its device or its XDP program.

use super::{ModeObtained, Socket};
use crate::program::Hold;
use rustix::io::Errno;
use std::fmt;

/// A fault of a socket's device or XDP program, see [`Socket::fault`]. Its text names cause and cure.
///
/// ```
/// use xsk::Fault;
///
/// assert!(!Fault::DeviceDown.needs_rebind());
/// assert!(Fault::DeviceGone.needs_rebind());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The device is set down. The socket goes on when it is up again.
    DeviceDown,
    /// The device was removed, or has moved to another network namespace. The socket gets and sends
    /// nothing any more, also when the device returns.
    DeviceGone,
    /// The XDP program was detached from the device.
    ProgramDetached,
    /// Another XDP program is in the place of the socket's, which knows nothing of its XSKMAP.
    ProgramReplaced,
}

impl Fault {
    /// Whether only a new socket will receive and send.
    pub fn needs_rebind(self) -> bool {
        self != Self::DeviceDown
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DeviceDown => {
                "the device is down: set it up with `ip link set dev NAME up`, and the socket goes on"
            }
            Self::DeviceGone => {
                "the device was removed or moved to another network namespace: rebind the socket when it is there again"
            }
            Self::ProgramDetached => "the XDP program was detached: rebind the socket",
            Self::ProgramReplaced => {
                "the XDP program was replaced by one without this socket: rebind the socket"
            }
        })
    }
}

impl Socket {
    /// The reason that the socket gets and sends nothing, if it is its device or its XDP program; `None`
    /// for a socket that works. [`SocketBuilder::rebind`](crate::SocketBuilder::rebind) opens its
    /// successor where it takes one.
    ///
    /// A program of the caller's own ([`SocketBuilder::map`](crate::SocketBuilder::map)), of libxdp's
    /// dispatcher, or that this process may not look at, does not count. It takes a few system calls: for
    /// each [`DeviceEvent`](crate::DeviceEvent) or some silence, not for each packet.
    ///
    /// ```no_run
    /// # fn main() -> xsk::Result<()> {
    /// # let umem = xsk::Umem::builder().build()?;
    /// # let socket = xsk::Socket::builder(&umem, "eth0", 0).open()?;
    /// if let Some(fault) = socket.fault() {
    ///     eprintln!("{fault}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn fault(&self) -> Option<Fault> {
        self.device_fault()
            .or_else(|| match self.program()?.hold() {
                Hold::Attached => None,
                Hold::Detached => Some(Fault::ProgramDetached),
                Hold::Replaced => Some(Fault::ProgramReplaced),
            })
    }

    /// The kernel looks at the device before it looks for packets (`xsk_check_common` in
    /// net/xdp/xsk.c); poll(2) and `SO_ERROR` say nothing, or say it once.
    fn device_fault(&self) -> Option<Fault> {
        let socket = self.receiver.main.socket();
        match socket.recv() {
            Err(Errno::NXIO | Errno::NODEV) => Some(Fault::DeviceGone),
            // A zero-copy driver says so of a reset and of a lost carrier, too.
            Err(Errno::NETDOWN)
                if self.mode() == ModeObtained::ZeroCopy && socket.device_is_up() =>
            {
                None
            }
            Err(Errno::NETDOWN) => Some(Fault::DeviceDown),
            _ => None,
        }
    }
}
