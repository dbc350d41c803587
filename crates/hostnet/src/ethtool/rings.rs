//! Sizes of rings (`ethtool -g`).

use super::ioctl::{Kernel, Request, ask};
use crate::error::{Context as _, Result};

const GET_RING: u32 = 0x10;

/// The receive ring of a device, in descriptors (`ethtool -g`).
///
/// ```
/// use hostnet::ethtool::RxRing;
///
/// let ring = RxRing { most: 4096, used: 512 };
/// assert!(ring.used < ring.most);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RxRing {
    /// The limit.
    pub most: u32,
    /// The size in use.
    pub used: u32,
}

/// The receive ring of `device`; `None` if its driver does not report it.
///
/// # Errors
///
/// [`ErrorKind::NotFound`] if there is no such device.
///
/// ```no_run
/// let ring = hostnet::ethtool::rx_ring("eth0")?;
/// println!("{:?} descriptors", ring.map(|ring| ring.used));
/// # Ok::<(), hostnet::Error>(())
/// ```
///
/// [`ErrorKind::NotFound`]: crate::ErrorKind::NotFound
pub fn rx_ring(device: &str) -> Result<Option<RxRing>> {
    // `struct ethtool_ringparam`: the limits of rx, mini, jumbo, tx, then the sizes in use.
    let mut words = Request::new(GET_RING, 9)?;
    let known = Kernel::open(device)
        .and_then(|driver| ask(&driver, &mut words))
        .with_context(|| format!("cannot read the rings of {device}"))?;
    Ok(known.then_some(RxRing {
        most: words[1],
        used: words[5],
    }))
}
