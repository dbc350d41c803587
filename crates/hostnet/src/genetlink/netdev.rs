//! The family `netdev`: XDP features of a device's driver, and statistics of its queues
//! (Documentation/netlink/specs/netdev.yaml, Linux 6.3 and 6.10).

use std::collections::BTreeMap;
use std::fmt;

use super::Genetlink;
use crate::error::{Context as _, Error, ErrorKind, Result};
use crate::netlink::{attribute, push_attribute};

/// `NETDEV_CMD_DEV_GET`, `NETDEV_A_DEV_IFINDEX` and `NETDEV_A_DEV_XDP_FEATURES` of
/// linux/netdev.h.
const GET_DEVICE: u8 = 1;
const DEVICE_INDEX: u16 = 1;
const DEVICE_XDP_FEATURES: u16 = 3;
/// `NETDEV_A_DEV_XDP_RX_METADATA_FEATURES` and `NETDEV_A_DEV_XSK_FEATURES`.
const DEVICE_RX_METADATA_FEATURES: u16 = 5;
const DEVICE_XSK_FEATURES: u16 = 6;
/// `NETDEV_CMD_QSTATS_GET` and its attributes, `NETDEV_A_QSTATS_…`.
const GET_QUEUE_STATISTICS: u8 = 12;
const STATISTICS_INDEX: u16 = 1;
const STATISTICS_QUEUE_TYPE: u16 = 2;
const STATISTICS_QUEUE: u16 = 3;
const STATISTICS_SCOPE: u16 = 4;
const STATISTICS_RX_PACKETS: u16 = 8;
/// `NETDEV_CMD_QUEUE_GET` and its attributes, `NETDEV_A_QUEUE_…`.
const GET_QUEUE: u8 = 10;
const QUEUE_ID: u16 = 1;
const QUEUE_INDEX: u16 = 2;
const QUEUE_TYPE: u16 = 3;
const QUEUE_XSK: u16 = 7;
/// One answer for each queue, not their sum (`NETDEV_QSTATS_SCOPE_QUEUE`).
const SCOPE_QUEUE: u32 = 1;
/// `NETDEV_QUEUE_TYPE_RX`.
const RX: u64 = 0;

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
    let Some(answers) = device(index)? else {
        return Ok(None);
    };
    match bits(&answers, DEVICE_XDP_FEATURES) {
        Some(bits) => Ok(Some(XdpFeatures(bits))),
        None => Err(Error::new(
            ErrorKind::InvalidAnswer,
            format!("the kernel reported device {index} without 64 bits of XDP features"),
        )),
    }
}

/// The metadata of packets that a driver has for XDP programs and AF_XDP sockets, by the bits of `enum
/// netdev_xdp_rx_metadata` and `enum netdev_xsk_flags` in linux/netdev.h.
///
/// ```
/// use hostnet::genetlink::netdev::MetadataFeatures;
///
/// let veth = MetadataFeatures::new(0b111, 0);
/// assert!(veth.rx_timestamp() && veth.rx_hash() && veth.rx_vlan_tag());
/// assert!(!veth.tx_timestamp() && !veth.tx_checksum() && !veth.tx_launch_time());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MetadataFeatures {
    rx: u64,
    tx: u64,
}

impl MetadataFeatures {
    /// The features of these bits, of received and of sent packets.
    pub fn new(rx: u64, tx: u64) -> Self {
        Self { rx, tx }
    }

    /// Whether a program can ask when a packet was received (`NETDEV_XDP_RX_METADATA_TIMESTAMP`).
    pub fn rx_timestamp(self) -> bool {
        self.rx & 1 != 0
    }

    /// Whether a program can ask for a packet's hash (`NETDEV_XDP_RX_METADATA_HASH`).
    pub fn rx_hash(self) -> bool {
        self.rx & 1 << 1 != 0
    }

    /// Whether a program can ask for the VLAN tag that the device has taken off
    /// (`NETDEV_XDP_RX_METADATA_VLAN_TAG`).
    pub fn rx_vlan_tag(self) -> bool {
        self.rx & 1 << 2 != 0
    }

    /// Whether the driver tells a zero-copy socket when a packet was sent (`NETDEV_XSK_FLAGS_TX_TIMESTAMP`).
    pub fn tx_timestamp(self) -> bool {
        self.tx & 1 != 0
    }

    /// Whether the device writes checksums for a zero-copy socket (`NETDEV_XSK_FLAGS_TX_CHECKSUM`).
    pub fn tx_checksum(self) -> bool {
        self.tx & 1 << 1 != 0
    }

    /// Whether the device keeps a packet until a time given with it
    /// (`NETDEV_XSK_FLAGS_TX_LAUNCH_TIME_FIFO`).
    pub fn tx_launch_time(self) -> bool {
        self.tx & 1 << 2 != 0
    }
}

/// The metadata that the driver of the device with this index has, in the calling thread's network
/// namespace; none for a kernel before Linux 6.8, which does not say.
///
/// # Errors
///
/// [`ErrorKind::NotFound`] if there is no such device.
///
/// ```no_run
/// use hostnet::genetlink::netdev;
///
/// let features = netdev::metadata_features(2)?;
/// println!("hash of received packets: {}", features.rx_hash());
/// # Ok::<(), hostnet::Error>(())
/// ```
pub fn metadata_features(index: u32) -> Result<MetadataFeatures> {
    let answers = device(index)?.unwrap_or_default();
    Ok(MetadataFeatures {
        rx: bits(&answers, DEVICE_RX_METADATA_FEATURES).unwrap_or(0),
        tx: bits(&answers, DEVICE_XSK_FEATURES).unwrap_or(0),
    })
}

/// What the family says of a device; `None` without the family.
fn device(index: u32) -> Result<Option<Vec<Vec<u8>>>> {
    let mut socket = Genetlink::open()?;
    let Some(family) = socket.family("netdev")? else {
        return Ok(None);
    };
    let mut attributes = Vec::new();
    push_attribute(&mut attributes, DEVICE_INDEX, &index.to_ne_bytes());
    let answers = socket
        .request(family, GET_DEVICE, &attributes)
        .with_context(|| format!("cannot read the XDP features of device {index}"))?;
    Ok(Some(answers))
}

/// An attribute of 64 bits.
fn bits(answers: &[Vec<u8>], name: u16) -> Option<u64> {
    let value = answers.iter().find_map(|answer| attribute(answer, name))?;
    value.try_into().ok().map(u64::from_ne_bytes)
}

/// Packets received by each queue of the device with this index, in the calling thread's network
/// namespace, those that an XDP program took among them; `None` if its driver does not count them
/// this way, and for a kernel before Linux 6.10. Counts begin anew when the number of queues changes.
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
/// if let Some(packets) = netdev::rx_packets_by_queue(link.index)? {
///     println!("queue 0 received {:?} packets", packets.get(&0));
/// }
/// # Ok::<(), hostnet::Error>(())
/// ```
pub fn rx_packets_by_queue(index: u32) -> Result<Option<BTreeMap<u32, u64>>> {
    let mut socket = Genetlink::open()?;
    let Some(family) = socket.family("netdev")? else {
        return Ok(None);
    };
    let mut attributes = Vec::new();
    push_attribute(&mut attributes, STATISTICS_INDEX, &index.to_ne_bytes());
    push_attribute(
        &mut attributes,
        STATISTICS_SCOPE,
        &SCOPE_QUEUE.to_ne_bytes(),
    );
    match socket.dump(family, GET_QUEUE_STATISTICS, &attributes) {
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(None),
        answers => {
            let answers = answers.with_context(|| {
                format!("cannot read the statistics of device {index}'s queues")
            })?;
            Ok(Some(answers.iter().filter_map(|a| rx_packets(a)).collect()))
        }
    }
}

/// Whether an AF_XDP socket has the receive queue `queue` of the device with this index, in the calling
/// thread's network namespace. Linux shows that since 6.15: earlier, the answer is always false.
///
/// # Errors
///
/// [`ErrorKind::NotFound`] with the error number `ENODEV` if there is no such device, with `ENOENT` if it is
/// down; [`ErrorKind::Unsupported`] for a kernel before Linux 6.8.
///
/// ```no_run
/// if hostnet::genetlink::netdev::queue_has_xsk(2, 0)? {
///     println!("queue 0 of device 2 belongs to an AF_XDP socket");
/// }
/// # Ok::<(), hostnet::Error>(())
/// ```
pub fn queue_has_xsk(index: u32, queue: u32) -> Result<bool> {
    let mut socket = Genetlink::open()?;
    let Some(family) = socket.family("netdev")? else {
        let message = "this kernel has no family netdev";
        return Err(Error::new(ErrorKind::Unsupported, message));
    };
    let mut attributes = Vec::new();
    push_attribute(&mut attributes, QUEUE_ID, &queue.to_ne_bytes());
    push_attribute(&mut attributes, QUEUE_INDEX, &index.to_ne_bytes());
    push_attribute(&mut attributes, QUEUE_TYPE, &(RX as u32).to_ne_bytes());
    let answers = socket
        .request(family, GET_QUEUE, &attributes)
        .with_context(|| format!("cannot read queue {queue} of device {index}"))?;
    Ok(answers
        .iter()
        .any(|answer| attribute(answer, QUEUE_XSK).is_some()))
}

/// A queue and its packets, from the statistics of a queue that receives.
fn rx_packets(answer: &[u8]) -> Option<(u32, u64)> {
    let value = |kind| number(&attribute(answer, kind)?);
    let queue = u32::try_from(value(STATISTICS_QUEUE)?).ok()?;
    let packets = value(STATISTICS_RX_PACKETS)?;
    (value(STATISTICS_QUEUE_TYPE)? == RX).then_some((queue, packets))
}

/// A number in an attribute, which takes 8 bytes only if it must (`nla_put_uint`).
fn number(value: &[u8]) -> Option<u64> {
    match *value {
        [a, b, c, d] => Some(u32::from_ne_bytes([a, b, c, d]).into()),
        _ => value.try_into().ok().map(u64::from_ne_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_those_of_receiving_queues() {
        let answer = |kind: u32, queue: u32, packets: &[u8]| {
            let mut attributes = Vec::new();
            push_attribute(&mut attributes, STATISTICS_QUEUE_TYPE, &kind.to_ne_bytes());
            push_attribute(&mut attributes, STATISTICS_QUEUE, &queue.to_ne_bytes());
            push_attribute(&mut attributes, STATISTICS_RX_PACKETS, packets);
            attributes
        };
        let few = 7_u32.to_ne_bytes();
        let many = (1_u64 << 40).to_ne_bytes();
        assert_eq!(rx_packets(&answer(0, 1, &few)), Some((1, 7)));
        assert_eq!(rx_packets(&answer(0, 2, &many)), Some((2, 1 << 40)));
        assert_eq!(rx_packets(&answer(1, 1, &few)), None);
        assert_eq!(rx_packets(&answer(0, 1, &[])), None);
    }

    #[test]
    fn the_loopback_has_no_statistics_of_queues() -> Result<()> {
        assert_eq!(rx_packets_by_queue(1)?, None);
        Ok(())
    }

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
