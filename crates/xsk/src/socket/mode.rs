//! XDP modes of a socket: requested, obtained, refused.

use crate::error::Error;
use crate::feature::MissingFeature;
use std::fmt;

/// The XDP mode to request; see [the guide](crate::guide::modes).
///
/// ```no_run
/// use xsk::{Mode, Socket, Umem};
///
/// # fn main() -> xsk::Result<()> {
/// let umem = Umem::builder().build()?;
/// let socket = Socket::builder(&umem, "eth0", 0).mode(Mode::Driver).open()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Mode {
    /// Zero-copy if the driver supports it, else native XDP with a copy, else generic XDP.
    #[default]
    Auto,
    /// Generic XDP with a copy (`XDP_FLAGS_SKB_MODE`). Any device.
    Skb,
    /// Native XDP with a copy (`XDP_FLAGS_DRV_MODE`). For a socket that only sends, and so has no
    /// program, the same as [`Skb`](Self::Skb).
    Driver,
    /// Native XDP without a copy: the device writes packets into the UMEM (`XDP_ZEROCOPY`).
    ZeroCopy,
}

/// The XDP mode of an open socket, read back from the kernel; printed as `skb`, `drv`, `zc` or
/// `copy`.
///
/// ```no_run
/// # fn main() -> xsk::Result<()> {
/// # let umem = xsk::Umem::builder().build()?;
/// let socket = xsk::Socket::builder(&umem, "eth0", 0).open()?;
/// if socket.mode() == xsk::ModeObtained::Skb {
///     println!("no native XDP: mode {}", socket.mode());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModeObtained {
    /// Generic XDP with a copy.
    Skb,
    /// Native XDP with a copy.
    Driver,
    /// Native XDP without a copy.
    ZeroCopy,
    /// Copy mode without an XDP program on the device: the socket can only send.
    Copy,
}

impl fmt::Display for ModeObtained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Skb => "skb",
            Self::Driver => "drv",
            Self::ZeroCopy => "zc",
            Self::Copy => "copy",
        })
    }
}

/// A mode or setting that the kernel or driver refused while a socket was opened, or packets that it will not get.
///
/// ```no_run
/// # fn main() -> xsk::Result<()> {
/// # let umem = xsk::Umem::builder().build()?;
/// let socket = xsk::Socket::builder(&umem, "eth0", 0).open()?;
/// for refusal in socket.refusals() {
///     match refusal {
///         xsk::Refusal::Mode(mode, error) => println!("{mode:?}: {error}"),
///         other => println!("{other}"),
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Refusal {
    /// A better mode, with the error.
    Mode(Mode, Error),
    /// A requested feature that the kernel lacks.
    Feature(MissingFeature),
    /// [RX hints](crate::SocketBuilder::rx_hints), with the error.
    Hints(Error),
    /// Packets that the UMEM has no room for, in the mode that [`Mode::Auto`] has obtained: longer ones than the MTU
    /// says, or those of a burst. With the cure.
    Umem(Error),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mode(mode, error) => write!(f, "{mode:?} refused: {error}"),
            Self::Feature(missing) => missing.fmt(f),
            Self::Hints(error) => write!(f, "RX hints refused: {error}"),
            Self::Umem(error) => error.fmt(f),
        }
    }
}
