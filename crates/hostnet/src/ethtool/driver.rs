//! The driver of a device (`ethtool -i`).

use super::ioctl::{Kernel, Request, ask};
use crate::error::{Context as _, Result};

const GET_DRVINFO: u32 = 0x03;

/// The name of the driver of `device`, such as `igb`; `None` if it has none, as `lo`.
///
/// # Errors
///
/// [`ErrorKind::NotFound`] if there is no such device.
///
/// ```no_run
/// let driver = hostnet::ethtool::driver("eth0")?;
/// println!("{}", driver.as_deref().unwrap_or("no driver"));
/// # Ok::<(), hostnet::Error>(())
/// ```
///
/// [`ErrorKind::NotFound`]: crate::ErrorKind::NotFound
pub fn driver(device: &str) -> Result<Option<String>> {
    // `struct ethtool_drvinfo`: the command, then the name in 32 bytes.
    let mut info = Request::new(GET_DRVINFO, 49)?;
    let known = Kernel::open(device)
        .and_then(|driver| ask(&driver, &mut info))
        .with_context(|| format!("cannot read the driver of {device}"))?;
    let name = info.bytes()[4..36].split(|&byte| byte == 0).next();
    let name = name.filter(|name| known && !name.is_empty());
    Ok(name.map(|name| String::from_utf8_lossy(name).into_owned()))
}
