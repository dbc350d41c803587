//! Devices: `RTM_GETLINK`, `RTM_NEWLINK`, `RTM_SETLINK` and `RTM_DELLINK`.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, LinkXdp, State,
    Stats64,
};

use super::socket::{NEW, Rtnetlink};
use crate::error::{Context as _, Error, ErrorKind, Result};

/// Frames that a device has carried, dropped and failed on since it was made.
///
/// For a real device each driver decides where it counts a drop. A veth counts a frame once,
/// where it arrives, and shows it at both ends: as received at one and as sent at the other
/// (`veth_get_stats64` in drivers/net/veth.c). The kernel's own counter depends on the way of
/// arrival; these are their sum:
///
/// | frame | counted |
/// |---|---|
/// | into a side with NAPI (GRO or a native XDP program) | when NAPI takes it off the queue, before any XDP program: native or generic, drop or redirect or pass |
/// | into a side without NAPI | by the sender, when it is handed over |
/// | that finds the receiver's queue of 256 full | not as a packet: `tx_dropped` of the sender, and for a redirected frame `rx_dropped` of the receiver too |
/// | that the receiver's NAPI has no memory for | as a packet, and in `rx_dropped` of the receiver |
///
/// So once no frame is in flight, `rx_packets` of one side and `tx_packets` of the other are
/// equal and exact for AF_PACKET, AF_XDP in generic (SKB) and in native (DRV) mode; a frame that
/// an XDP program or a full socket dropped is counted as received by the device.
///
/// ```
/// use hostnet::rtnetlink::Counters;
///
/// let earlier = Counters { rx_packets: u64::MAX, ..Counters::default() };
/// let later = Counters { rx_packets: 4, ..Counters::default() };
/// assert_eq!(later.since(&earlier).rx_packets, 5);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Counters {
    /// Frames received.
    pub rx_packets: u64,
    /// Frames sent.
    pub tx_packets: u64,
    /// Frames for this device that were lost.
    pub rx_dropped: u64,
    /// Frames from this device that were lost.
    pub tx_dropped: u64,
    /// Receive errors.
    pub rx_errors: u64,
    /// Transmit errors.
    pub tx_errors: u64,
}

impl Counters {
    /// The counts since an `earlier` reading of the same device.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            rx_packets: self.rx_packets.wrapping_sub(earlier.rx_packets),
            tx_packets: self.tx_packets.wrapping_sub(earlier.tx_packets),
            rx_dropped: self.rx_dropped.wrapping_sub(earlier.rx_dropped),
            tx_dropped: self.tx_dropped.wrapping_sub(earlier.tx_dropped),
            rx_errors: self.rx_errors.wrapping_sub(earlier.rx_errors),
            tx_errors: self.tx_errors.wrapping_sub(earlier.tx_errors),
        }
    }
}

impl From<Stats64> for Counters {
    fn from(stats: Stats64) -> Self {
        Self {
            rx_packets: stats.rx_packets,
            tx_packets: stats.tx_packets,
            rx_dropped: stats.rx_dropped,
            tx_dropped: stats.tx_dropped,
            rx_errors: stats.rx_errors,
            tx_errors: stats.tx_errors,
        }
    }
}

/// The largest MTU of a veth with a native XDP program for packets of one buffer, on a machine with
/// pages of 4096 bytes: a page less the room before and after the packet (`veth_xdp_set` in
/// `drivers/net/veth.c`).
pub const MAX_XDP_MTU: u32 = 3506;

/// One end of a veth pair to be made, for [`Rtnetlink::add_veth`].
#[derive(Debug, Clone, Copy)]
pub struct VethEnd<'a> {
    /// The name of the device.
    pub name: &'a str,
    /// The MAC address of the device.
    pub mac: [u8; 6],
    /// The network namespace of the device.
    pub netns: BorrowedFd<'a>,
}

/// The ids of the XDP programs of a device, one at most in each place.
///
/// ```
/// use hostnet::rtnetlink::XdpPrograms;
///
/// let native = XdpPrograms { driver: Some(7), ..XdpPrograms::default() };
/// assert_eq!(native.generic, None);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct XdpPrograms {
    /// Behind the driver (`IFLA_XDP_SKB_PROG_ID`).
    pub generic: Option<u32>,
    /// In the driver (`IFLA_XDP_DRV_PROG_ID`).
    pub driver: Option<u32>,
    /// On the card (`IFLA_XDP_HW_PROG_ID`).
    pub hardware: Option<u32>,
}

/// A device, by the attributes of `RTM_NEWLINK` (`linux/if_link.h`).
///
/// ```
/// use hostnet::rtnetlink::Link;
///
/// let bridge = Link { name: "br0".into(), index: 3, ..Link::default() };
/// let port = Link { name: "tap0".into(), controller: Some(3), ..Link::default() };
/// assert_eq!(port.controller, Some(bridge.index));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Link {
    /// The name of the device (`IFLA_IFNAME`).
    pub name: String,
    /// The index of the device in its network namespace.
    pub index: u32,
    /// The kind of a virtual device, such as `veth` or `tun` (`IFLA_INFO_KIND`); none for
    /// hardware and for the loopback.
    pub kind: Option<String>,
    /// Whether the device is the loopback (`IFF_LOOPBACK`).
    pub loopback: bool,
    /// Whether the device is set up (`IFF_UP`).
    pub up: bool,
    /// The MAC address (`IFLA_ADDRESS`); zeros for a device without an Ethernet address.
    pub mac: [u8; 6],
    /// The largest packet in bytes, without the Ethernet header (`IFLA_MTU`).
    pub mtu: u32,
    /// The number of receive queues (`IFLA_NUM_RX_QUEUES`).
    pub queues: u32,
    /// The number of send queues (`IFLA_NUM_TX_QUEUES`).
    pub tx_queues: u32,
    /// The index of the bridge, bond or VRF that the device belongs to (`IFLA_MASTER`).
    pub controller: Option<u32>,
    /// The index of the lower device of a VLAN or macvlan, or of the peer of a veth
    /// (`IFLA_LINK`).
    pub lower: Option<u32>,
    /// The network namespace of `lower`, by its number in the device's own namespace
    /// (`IFLA_LINK_NETNSID`); none for the same namespace.
    pub lower_netns: Option<i32>,
    /// Whether the device can carry packets: it is up, and so is its carrier or peer
    /// (`IFLA_OPERSTATE` is `IF_OPER_UP`).
    pub running: bool,
    /// The id of the XDP program (`IFLA_XDP_PROG_ID`); none if there are several.
    pub xdp_program: Option<u32>,
    /// The XDP programs by their place.
    pub xdp_programs: XdpPrograms,
    /// The counters (`IFLA_STATS64`).
    pub stats: Counters,
}

impl Rtnetlink {
    /// Makes a veth pair, both ends down, with the same number of queues each way at each end and
    /// an `mtu` in bytes.
    ///
    /// ```no_run
    /// use std::os::fd::AsFd as _;
    ///
    /// use hostnet::netns;
    /// use hostnet::rtnetlink::{Rtnetlink, VethEnd};
    ///
    /// let (a, b) = (netns::create()?, netns::create()?);
    /// let ends = [
    ///     &VethEnd { name: "a0", mac: [2, 0, 0, 0, 0, 0xa], netns: a.as_fd() },
    ///     &VethEnd { name: "b0", mac: [2, 0, 0, 0, 0, 0xb], netns: b.as_fd() },
    /// ];
    /// Rtnetlink::open()?.add_veth(ends, 1, 1500)?;
    /// # Ok::<(), hostnet::Error>(())
    /// ```
    pub fn add_veth(&mut self, ends: [&VethEnd<'_>; 2], queues: u32, mtu: u32) -> Result<()> {
        let [mut message, peer] = ends.map(|end| {
            let mut message = LinkMessage::default();
            message.attributes = vec![
                LinkAttribute::IfName(end.name.into()),
                LinkAttribute::Address(end.mac.into()),
                LinkAttribute::NetNsFd(end.netns.as_raw_fd()),
                LinkAttribute::Mtu(mtu),
                LinkAttribute::NumTxQueues(queues),
                LinkAttribute::NumRxQueues(queues),
            ];
            message
        });
        message.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]));
        let [name, peer] = ends.map(|end| end.name);
        let made = self.change(RouteNetlinkMessage::NewLink(message), NEW, || {
            format!("cannot make the veth pair {name}, {peer} of {queues} queues and MTU {mtu}")
        });
        made.cure(
            ErrorKind::Unsupported,
            "load the module veth (`modprobe veth`)",
        )
    }

    /// Brings a device up (`IFF_UP`).
    pub fn set_up(&mut self, index: u32) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.change(RouteNetlinkMessage::SetLink(message), 0, || {
            format!("cannot bring device {index} up")
        })
    }

    /// Changes the MAC address of a device.
    pub fn set_mac(&mut self, index: u32, mac: [u8; 6]) -> Result<()> {
        self.set_link(index, LinkAttribute::Address(mac.into()), || {
            format!("cannot change the MAC address of device {index}")
        })
    }

    /// Changes one attribute of a device.
    pub(super) fn set_link(
        &mut self,
        index: u32,
        attribute: LinkAttribute,
        step: impl FnOnce() -> String,
    ) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes.push(attribute);
        self.change(RouteNetlinkMessage::SetLink(message), 0, step)
    }

    /// Removes a device; the peer of a veth goes with it.
    pub fn delete(&mut self, index: u32) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        self.change(RouteNetlinkMessage::DelLink(message), 0, || {
            format!("cannot remove device {index}")
        })
    }

    /// The device `name`.
    pub fn link(&mut self, name: &str) -> Result<Link> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.into()));
        let answer = self.get(RouteNetlinkMessage::GetLink(message));
        let answer = answer
            .with_context(|| format!("cannot read the device {name}"))
            .cure(
                ErrorKind::NotFound,
                "`ip link` lists the devices of this network namespace",
            )?;
        match answer {
            Some(RouteNetlinkMessage::NewLink(message)) => Ok(message.into()),
            _ => Err(Error::new(
                ErrorKind::InvalidAnswer,
                format!("the kernel's answer does not describe the device {name}"),
            )),
        }
    }

    /// Every device of the network namespace.
    pub fn links(&mut self) -> Result<Vec<Link>> {
        let message = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let answers = self.dump(message).context("cannot list the devices")?;
        let links = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(message) => Some(message.into()),
            _ => None,
        });
        Ok(links.collect())
    }
}

impl From<LinkMessage> for Link {
    fn from(message: LinkMessage) -> Self {
        let flags = message.header.flags;
        let mut link = Self {
            index: message.header.index,
            loopback: flags.contains(LinkFlags::Loopback),
            up: flags.contains(LinkFlags::Up),
            ..Self::default()
        };
        for attribute in message.attributes {
            link.set(attribute);
        }
        link
    }
}

impl Link {
    fn set(&mut self, attribute: LinkAttribute) {
        match attribute {
            LinkAttribute::Address(address) => self.mac = address.try_into().unwrap_or_default(),
            LinkAttribute::IfName(name) => self.name = name,
            LinkAttribute::LinkInfo(info) => self.kind = info.into_iter().find_map(kind),
            LinkAttribute::Controller(index) => self.controller = Some(index),
            LinkAttribute::Link(index) => self.lower = Some(index),
            LinkAttribute::LinkNetNsId(id) => self.lower_netns = Some(id),
            LinkAttribute::Mtu(mtu) => self.mtu = mtu,
            LinkAttribute::NumRxQueues(queues) => self.queues = queues,
            LinkAttribute::OperState(state) => self.running = state == State::Up,
            LinkAttribute::Stats64(stats) => self.stats = stats.into(),
            LinkAttribute::NumTxQueues(queues) => self.tx_queues = queues,
            LinkAttribute::Xdp(xdp) => xdp.iter().for_each(|xdp| self.set_xdp(xdp)),
            _ => {}
        }
    }

    fn set_xdp(&mut self, xdp: &LinkXdp) {
        match *xdp {
            LinkXdp::ProgId(id) => self.xdp_program = Some(id),
            LinkXdp::SkbProgId(id) => self.xdp_programs.generic = Some(id),
            LinkXdp::DrvProgId(id) => self.xdp_programs.driver = Some(id),
            LinkXdp::HwProgId(id) => self.xdp_programs.hardware = Some(id),
            _ => {}
        }
    }
}

fn kind(info: LinkInfo) -> Option<String> {
    match info {
        LinkInfo::Kind(kind) => Some(kind.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_has_the_messages_attributes() {
        let mut message = LinkMessage::default();
        message.header.index = 7;
        message.header.flags = LinkFlags::Up;
        message.attributes = vec![
            LinkAttribute::IfName("veth0".into()),
            LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Veth)]),
            LinkAttribute::Address(vec![2, 0, 0, 0, 0, 1]),
            LinkAttribute::Controller(3),
            LinkAttribute::Link(9),
            LinkAttribute::LinkNetNsId(0),
            LinkAttribute::OperState(State::Up),
            LinkAttribute::NumTxQueues(4),
            LinkAttribute::Xdp(vec![LinkXdp::ProgId(11), LinkXdp::DrvProgId(11)]),
        ];
        let link = Link::from(message);
        assert_eq!((link.name.as_str(), link.index), ("veth0", 7));
        assert_eq!(link.kind.as_deref(), Some("veth"));
        assert_eq!(link.mac, [2, 0, 0, 0, 0, 1]);
        assert_eq!((link.controller, link.lower), (Some(3), Some(9)));
        assert_eq!((link.lower_netns, link.xdp_program), (Some(0), Some(11)));
        let programs = link.xdp_programs;
        assert_eq!((programs.driver, programs.generic), (Some(11), None));
        assert_eq!(link.tx_queues, 4);
        assert!(link.up && link.running && !link.loopback);
    }

    #[test]
    fn an_address_that_is_not_ethernet_is_none() {
        let mut message = LinkMessage::default();
        message.attributes = vec![LinkAttribute::Address(vec![1; 20])];
        assert_eq!(Link::from(message).mac, [0; 6]);
    }
}
