//! The family `netdev`: XDP features of a device's driver
//! (Documentation/netlink/specs/netdev.yaml, Linux 6.3).

use std::fmt;

use super::Genetlink;
use crate::error::{Context as _, Error, ErrorKind, Result};
use crate::netlink::{attribute, push_attribute};

/// `NETDEV_CMD_DEV_GET`, `NETDEV_A_DEV_IFINDEX` and `NETDEV_A_DEV_XDP_FEATURES` of
/// linux/netdev.h.
const GET_DEVICE: u8 = 1;
const DEVICE_INDEX: u16 = 1;
const DEVICE_XDP_FEATURES: u16 = 3;

/// The XDP features of a driver, by the bits of `enum netdev_xdp_act` in linux/netdev.h.
///
/// ```
/// use hostnet::genetlink::netdev::XdpFeatures;
///
/// let veth = XdpFeatures::new(0b10_0111);
/// assert!(veth.native() && veth.redirect_target() && !veth.zero_copy());
/// assert_eq!(veth.to_string(), "basic redirect ndo-xmit rx-sg");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XdpFeatures(u64);

impl XdpFeatures {
    const NAMES: [&str; 7] = [
        "basic",
        "redirect",
        "ndo-xmit",
        "xsk-zerocopy",
        "hw-offload",
        "rx-sg",
        "ndo-xmit-sg",
    ];

    /// The features of these bits.
    pub fn new(bits: u64) -> Self {
        Self(bits)
    }

    /// Whether a program can run in the driver (`NETDEV_XDP_ACT_BASIC`).
    pub fn native(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether frames can be redirected to the device at present (`NETDEV_XDP_ACT_NDO_XMIT`).
    pub fn redirect_target(self) -> bool {
        self.0 & 1 << 2 != 0
    }

    /// Whether AF_XDP sockets can have zero-copy (`NETDEV_XDP_ACT_XSK_ZEROCOPY`).
    pub fn zero_copy(self) -> bool {
        self.0 & 1 << 3 != 0
    }
}

/// The names of netdev.yaml, separated by spaces, or `none`. Bits without a name are left out.
impl fmt::Display for XdpFeatures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_set = |bit: &usize| self.0 >> bit & 1 == 1;
        let names = (0..Self::NAMES.len()).filter(is_set);
        let names: Vec<_> = names.map(|bit| Self::NAMES[bit]).collect();
        match names.as_slice() {
            [] => f.write_str("none"),
            names => f.write_str(&names.join(" ")),
        }
    }
}

/// The XDP features of the driver of the device with this index, in the calling thread's network
/// namespace; `None` for a kernel without the family `netdev` (before Linux 6.3).
///
/// # Errors
///
/// [`ErrorKind::NotFound`] if there is no such device.
///
/// ```no_run
/// use hostnet::genetlink::netdev;
/// use hostnet::rtnetlink::Rtnetlink;
///
/// let link = Rtnetlink::open()?.link("eth0")?;
/// match netdev::xdp_features(link.index)? {
///     Some(features) => println!("{}: {features}", link.name),
///     None => println!("this kernel does not report XDP features"),
/// }
/// # Ok::<(), hostnet::Error>(())
/// ```
pub fn xdp_features(index: u32) -> Result<Option<XdpFeatures>> {
    let mut socket = Genetlink::open()?;
    let Some(family) = socket.family("netdev")? else {
        return Ok(None);
    };
    let mut attributes = Vec::new();
    push_attribute(&mut attributes, DEVICE_INDEX, &index.to_ne_bytes());
    let answers = socket
        .request(family, GET_DEVICE, &attributes)
        .with_context(|| format!("cannot read the XDP features of device {index}"))?;
    let features = answers
        .iter()
        .find_map(|answer| attribute(answer, DEVICE_XDP_FEATURES))
        .and_then(|value| value.try_into().ok());
    match features {
        Some(bits) => Ok(Some(XdpFeatures(u64::from_ne_bytes(bits)))),
        None => Err(Error::new(
            ErrorKind::InvalidAnswer,
            format!("the kernel reported device {index} without 64 bits of XDP features"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_has_no_native_xdp() -> Result<()> {
        // The loopback has index 1 in every namespace.
        if let Some(features) = xdp_features(1)? {
            assert!(!features.native(), "{features}");
        }
        Ok(())
    }

    #[test]
    fn features_have_names() {
        assert_eq!(XdpFeatures(0).to_string(), "none");
        assert_eq!(
            XdpFeatures(0b1101).to_string(),
            "basic ndo-xmit xsk-zerocopy"
        );
        assert_eq!(XdpFeatures(1 << 40 | 1).to_string(), "basic");
    }
}
