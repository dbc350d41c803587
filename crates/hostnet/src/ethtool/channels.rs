//! Channels: queues with an interrupt (`ethtool -l`).

use super::ioctl::{Kernel, Request, ask};
use crate::error::{Context as _, Result};

const GET_CHANNELS: u32 = 0x3c;

/// The queues of a device (`ethtool -l`), each a channel with an interrupt.
///
/// ```
/// use hostnet::ethtool::{Channels, Queues};
///
/// let most = Queues { rx: 0, tx: 0, combined: 8 };
/// let channels = Channels { most, used: Queues { combined: 4, ..most } };
/// assert!(channels.used.combined < channels.most.combined);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Channels {
    /// The limits.
    pub most: Queues,
    /// The queues in use.
    pub used: Queues,
}

/// Numbers of queues by their direction, see [`Channels`].
///
/// ```
/// use hostnet::ethtool::Queues;
///
/// let queues = Queues { rx: 0, tx: 2, combined: 4 };
/// assert_eq!(queues.tx + queues.combined, 6);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queues {
    /// Queues that only receive.
    pub rx: u32,
    /// Queues that only send.
    pub tx: u32,
    /// Queues that receive and send.
    pub combined: u32,
}

/// The queues of `device`; `None` if its driver does not report them.
///
/// # Errors
///
/// [`ErrorKind::NotFound`] if there is no such device.
///
/// ```no_run
/// use hostnet::ethtool;
///
/// if let Some(channels) = ethtool::channels("eth0")? {
///     println!("{} of {}", channels.used.combined, channels.most.combined);
/// }
/// # Ok::<(), hostnet::Error>(())
/// ```
///
/// [`ErrorKind::NotFound`]: crate::ErrorKind::NotFound
pub fn channels(device: &str) -> Result<Option<Channels>> {
    // `struct ethtool_channels`: the limits of rx, tx, other, combined, then the numbers in use.
    let mut words = Request::new(GET_CHANNELS, 9)?;
    let known = Kernel::open(device)
        .and_then(|driver| ask(&driver, &mut words))
        .with_context(|| format!("cannot read the queues of {device}"))?;
    let queues = |at: usize| Queues {
        rx: words[at],
        tx: words[at + 1],
        combined: words[at + 3],
    };
    Ok(known.then(|| Channels {
        most: queues(1),
        used: queues(5),
    }))
}
