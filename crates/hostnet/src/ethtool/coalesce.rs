//! The coalescing of interrupts (`ethtool -c`).

use super::ioctl::{Kernel, Request, ask};
use crate::error::{Context as _, Result};

const GET_COALESCE: u32 = 0x0e;

/// The coalescing of receive interrupts (`ethtool -c`): an interrupt comes at the earlier of two
/// limits.
///
/// ```
/// use hostnet::ethtool::RxCoalesce;
///
/// let coalesce = RxCoalesce { usecs: 50, frames: 0, adaptive: false };
/// assert!(!coalesce.adaptive);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RxCoalesce {
    /// The time after a packet, in microseconds (`rx-usecs`).
    pub usecs: u32,
    /// The number of packets (`rx-frames`).
    pub frames: u32,
    /// Whether the driver chooses both by itself (`Adaptive RX`).
    pub adaptive: bool,
}

/// The coalescing of receive interrupts of `device`; `None` if its driver does not report it.
///
/// # Errors
///
/// [`ErrorKind::NotFound`] if there is no such device.
///
/// ```no_run
/// let coalesce = hostnet::ethtool::rx_coalesce("eth0")?;
/// println!("{:?} µs", coalesce.map(|coalesce| coalesce.usecs));
/// # Ok::<(), hostnet::Error>(())
/// ```
///
/// [`ErrorKind::NotFound`]: crate::ErrorKind::NotFound
pub fn rx_coalesce(device: &str) -> Result<Option<RxCoalesce>> {
    // `struct ethtool_coalesce`.
    let mut words = Request::new(GET_COALESCE, 23)?;
    let known = Kernel::open(device)
        .and_then(|driver| ask(&driver, &mut words))
        .with_context(|| format!("cannot read the interrupt coalescing of {device}"))?;
    Ok(known.then_some(RxCoalesce {
        usecs: words[1],
        frames: words[2],
        adaptive: words[10] != 0,
    }))
}
