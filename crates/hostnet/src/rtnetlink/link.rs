//! Devices: `RTM_GETLINK`, `RTM_NEWLINK`, `RTM_SETLINK` and `RTM_DELLINK`.

use std::fmt;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};

use super::settings::{BridgePort, BridgeSettings};
use super::socket::{GET_LINK, LINK_HEADER, NEW, NEW_LINK, Rtnetlink, link_message};
use super::statistics::Statistics;
use crate::error::{Context as _, Error, ErrorKind, Result};
use crate::ethtool::page_size;
use crate::ifreq::IFNAMSIZ;
use crate::netlink::{Attributes, RawMessage, attribute, push_attribute, text, u32_of, u64_at};
use crate::privilege::Capability;

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

/// Attributes of a device (`linux/if_link.h`).
const ADDRESS: u16 = 1;
const IFNAME: u16 = 3;
const MTU: u16 = 4;
const LINK: u16 = 5;
const QDISC: u16 = 6;
const MASTER: u16 = 10;
const PROTINFO: u16 = 12;
const OPERSTATE: u16 = 16;
const LINKINFO: u16 = 18;
const STATS64: u16 = 23;
const PROMISCUITY: u16 = 30;
const NUM_TX_QUEUES: u16 = 31;
const NUM_RX_QUEUES: u16 = 32;
const PHYS_SWITCH_ID: u16 = 36;
const LINK_NETNSID: u16 = 37;
const XDP: u16 = 43;
/// The device's other names (Linux 5.5).
const PROP_LIST: u16 = 52;
const ALT_IFNAME: u16 = 53;
/// The namespace that the device of a `RTM_DELLINK` has moved to.
pub(super) const NEW_NETNSID: u16 = 45;
const TARGET_NETNSID: u16 = 46;
/// Attributes in `IFLA_LINKINFO`.
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
const INFO_SLAVE_KIND: u16 = 4;
const INFO_SLAVE_DATA: u16 = 5;
/// `IFLA_BOND_SLAVE_STATE`: `BOND_STATE_ACTIVE` or, 1, `BOND_STATE_BACKUP`.
const BOND_SLAVE_STATE: u16 = 1;
/// `IFLA_TUN_VNET_HDR` (Linux 4.17).
const TUN_VNET_HDR: u16 = 5;
/// Attributes in `IFLA_XDP`.
const XDP_PROG_ID: u16 = 4;
const XDP_DRV_PROG_ID: u16 = 5;
const XDP_SKB_PROG_ID: u16 = 6;
const XDP_HW_PROG_ID: u16 = 7;
/// `IF_OPER_UP` (`linux/if.h`).
const OPER_UP: u8 = 6;

/// The largest MTU of a veth with a native XDP program for packets of one buffer: a page less the room
/// before and after the packet (`veth_xdp_set` in `drivers/net/veth.c`). It is 3506 with pages of 4096 bytes.
///
/// ```
/// assert!(hostnet::rtnetlink::max_xdp_mtu() >= 3506);
/// ```
pub fn max_xdp_mtu() -> u32 {
    /// `XDP_PACKET_HEADROOM`, `struct skb_shared_info` in whole cache lines, and the Ethernet header.
    const ROOM: usize = 256 + 320 + 14;
    u32::try_from(page_size() - ROOM).unwrap_or(u32::MAX)
}

/// The most bytes of a device's name, an alternative one (`ALTIFNAMSIZ` of `linux/if.h` without the final zero).
const MAX_NAME: usize = 127;

/// Refuses a name that no device can have, whether it is its first or an alternative one.
///
/// ```
/// use hostnet::rtnetlink::check_name;
///
/// assert!(check_name("enx0a1b2c3d4e5f6789").is_ok());
/// assert!(check_name("").is_err() && check_name(&"x".repeat(128)).is_err());
/// ```
///
/// # Errors
///
/// [`ErrorKind::InvalidInput`].
pub fn check_name(name: &str) -> Result<()> {
    // The kernel would take the part before a zero.
    if name.is_empty() || name.len() > MAX_NAME || name.contains('\0') {
        return Err(Error::invalid(format!(
            "no device can be named {name:?}: a name has 1 to {MAX_NAME} bytes, none of them zero"
        )));
    }
    Ok(())
}

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
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    /// The name of the device (`IFLA_IFNAME`).
    pub name: String,
    /// The index of the device in its network namespace.
    pub index: u32,
    /// The kind of a virtual device, such as `veth` or `tun` (`IFLA_INFO_KIND`); none for
    /// hardware and for the loopback.
    pub kind: Option<String>,
    /// The header that packets of the device begin with, by the number of its address family in
    /// `linux/if_arp.h` (`ifi_type`): 1 for Ethernet, 65534 for none.
    pub link_type: u16,
    /// Whether the device is the loopback (`IFF_LOOPBACK`).
    pub loopback: bool,
    /// Whether the device is set up (`IFF_UP`).
    pub up: bool,
    /// Whether the device is up and has a carrier (`IFF_LOWER_UP`).
    pub carrier: bool,
    /// The MAC address (`IFLA_ADDRESS`); zeros for a device without an Ethernet address.
    pub mac: [u8; 6],
    /// The largest packet in bytes, without the Ethernet header (`IFLA_MTU`).
    pub mtu: u32,
    /// The number of receive queues (`IFLA_NUM_RX_QUEUES`).
    pub queues: u32,
    /// The number of send queues (`IFLA_NUM_TX_QUEUES`).
    pub tx_queues: u32,
    /// The number of users who want the frames of other addresses too (`IFLA_PROMISCUITY`): a bridge, a
    /// macvlan, a capture.
    pub promiscuity: u32,
    /// Whether the device is a leg of a bond that the bond does not use at present: it drops what
    /// comes from it.
    pub bond_backup: bool,
    /// Of a tap or tun device: whether its packets have a header for pending offloads
    /// (`IFF_VNET_HDR`); none where the kernel does not say.
    pub tap_vnet_header: Option<bool>,
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
    /// The kind of the root queueing discipline, such as `noqueue` (`IFLA_QDISC`).
    pub qdisc: Option<String>,
    /// Whether the device is a port of a switch that forwards in hardware
    /// (`IFLA_PHYS_SWITCH_ID`).
    pub switchdev: bool,
    /// The settings of a bridge (`IFLA_INFO_DATA` of the kind `bridge`).
    pub bridge: Option<BridgeSettings>,
    /// The settings of a port, if `controller` is a bridge (`IFLA_INFO_SLAVE_DATA`).
    pub bridge_port: Option<BridgePort>,
    /// The usual counters (`IFLA_STATS64`).
    pub stats: Counters,
    /// All counters, from the same reading.
    pub statistics: Statistics,
    /// Its other names (`IFLA_PROP_LIST`).
    pub alternative_names: Vec<String>,
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
        let made = self.change(&RouteNetlinkMessage::NewLink(message), NEW, || {
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
        self.change(&RouteNetlinkMessage::SetLink(message), 0, || {
            format!("cannot bring device {index} up")
        })
    }

    /// Brings a device down.
    pub fn set_down(&mut self, index: u32) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.change_mask = LinkFlags::Up;
        self.change(&RouteNetlinkMessage::SetLink(message), 0, || {
            format!("cannot bring device {index} down")
        })
    }

    /// Changes the MTU of a device, in bytes without the Ethernet header.
    pub fn set_mtu(&mut self, index: u32, mtu: u32) -> Result<()> {
        self.set_link(index, LinkAttribute::Mtu(mtu), || {
            format!("cannot change the MTU of device {index} to {mtu}")
        })
    }

    /// Changes the name of a device; before Linux 6.2 it must be down.
    pub fn rename(&mut self, index: u32, name: &str) -> Result<()> {
        self.set_link(index, LinkAttribute::IfName(name.into()), || {
            format!("cannot change the name of device {index} to {name}")
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
        self.change(&RouteNetlinkMessage::SetLink(message), 0, step)
    }

    /// Removes a device; the peer of a veth goes with it.
    pub fn delete(&mut self, index: u32) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        self.change(&RouteNetlinkMessage::DelLink(message), 0, || {
            format!("cannot remove device {index}")
        })
    }

    /// The device `name`, which may be one of its alternative names of up to 127 bytes
    /// (`ip link property add dev DEVICE altname NAME`); [`Link::name`] is the one that other interfaces take.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] without the device; [`ErrorKind::InvalidInput`] for a name that none can have.
    pub fn link(&mut self, name: &str) -> Result<Link> {
        check_name(name)?;
        // The kernel looks for all names of a device by the first attribute, and takes 15 bytes there.
        let kind = if name.len() < IFNAMSIZ {
            IFNAME
        } else {
            ALT_IFNAME
        };
        let mut message = link_message(GET_LINK, libc::AF_UNSPEC, 0);
        let zero_terminated = [name.as_bytes(), &[0]].concat();
        push_attribute(&mut message.payload, kind, &zero_terminated);
        self.get_raw_link(&message, &name)
    }

    /// The device with this index.
    ///
    /// ```no_run
    /// use hostnet::rtnetlink::Rtnetlink;
    ///
    /// let loopback = Rtnetlink::open()?.link_by_index(1)?;
    /// assert_eq!(loopback.name, "lo");
    /// # Ok::<(), hostnet::Error>(())
    /// ```
    pub fn link_by_index(&mut self, index: u32) -> Result<Link> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        self.get_link(message, &index)
    }

    /// The device with this index in the network namespace that this one knows by the number `netns`,
    /// such as the peer of a veth by its [`lower`](Link::lower) and [`lower_netns`](Link::lower_netns)
    /// (`IFLA_TARGET_NETNSID`, Linux 4.20). Needs `CAP_NET_ADMIN` over that namespace.
    ///
    /// ```no_run
    /// use hostnet::rtnetlink::Rtnetlink;
    ///
    /// let mut rtnetlink = Rtnetlink::open()?;
    /// let veth = rtnetlink.link("veth0")?;
    /// if let (Some(index), Some(netns)) = (veth.lower, veth.lower_netns) {
    ///     println!("its peer is {}", rtnetlink.link_in(netns, index)?.name);
    /// }
    /// # Ok::<(), hostnet::Error>(())
    /// ```
    pub fn link_in(&mut self, netns: i32, index: u32) -> Result<Link> {
        let mut message = link_message(GET_LINK, libc::AF_UNSPEC, index);
        push_attribute(&mut message.payload, TARGET_NETNSID, &netns.to_ne_bytes());
        let device = format!("{index} of the network namespace with the id {netns}");
        self.get_raw_link(&message, &device)
            .request_needs(Capability::NetAdmin)
    }

    fn get_link(&mut self, message: LinkMessage, device: &dyn fmt::Display) -> Result<Link> {
        let message = RawMessage::of(&RouteNetlinkMessage::GetLink(message));
        self.get_raw_link(&message, device)
    }

    fn get_raw_link(&mut self, message: &RawMessage, device: &dyn fmt::Display) -> Result<Link> {
        let mut link = None;
        let answer = self.get(message, &mut |kind, payload| {
            link = Link::read(payload).filter(|_| kind == NEW_LINK);
        });
        answer
            .with_context(|| format!("cannot read the device {device}"))
            .cure(
                ErrorKind::NotFound,
                "`ip link` lists the devices of this network namespace",
            )?;
        link.ok_or_else(|| {
            let text = format!("the kernel's answer does not describe the device {device}");
            Error::new(ErrorKind::InvalidAnswer, text)
        })
    }

    /// Every device of the network namespace.
    pub fn links(&mut self) -> Result<Vec<Link>> {
        self.list_links(LinkMessage::default())
            .context("cannot list the devices")
    }

    /// The lower devices of the bridge, bond or VRF with this index: those whose
    /// [`controller`](Link::controller) it is.
    ///
    /// ```no_run
    /// use hostnet::rtnetlink::Rtnetlink;
    ///
    /// let mut rtnetlink = Rtnetlink::open()?;
    /// let bond = rtnetlink.link("bond0")?;
    /// for lower in rtnetlink.links_of(bond.index)? {
    ///     println!("{}", lower.name);
    /// }
    /// # Ok::<(), hostnet::Error>(())
    /// ```
    pub fn links_of(&mut self, controller: u32) -> Result<Vec<Link>> {
        let mut message = LinkMessage::default();
        let attribute = LinkAttribute::Controller(controller);
        message.attributes.push(attribute);
        self.list_links(message)
            .with_context(|| format!("cannot list the lower devices of device {controller}"))
    }

    fn list_links(&mut self, message: LinkMessage) -> Result<Vec<Link>> {
        let message = RouteNetlinkMessage::GetLink(message);
        let mut links = Vec::new();
        self.list(&RawMessage::of(&message), &mut |kind, payload| {
            links.extend(Link::read(payload).filter(|_| kind == NEW_LINK));
        })?;
        Ok(links)
    }
}

/// An attribute of a message about a device.
pub(super) fn link_attribute(payload: &[u8], kind: u16) -> Option<Vec<u8>> {
    attribute(payload.get(LINK_HEADER..)?, kind)
}

impl Link {
    /// Whether the device has this name, or has it as an alternative one.
    pub fn is_named(&self, name: &str) -> bool {
        self.name == name || self.alternative_names.iter().any(|it| it == name)
    }

    /// Reads a message about a device. An attribute that is too short, or of an unknown form, does not
    /// count; none for bytes without the header.
    pub(super) fn read(payload: &[u8]) -> Option<Self> {
        let flags = u32_of(payload.get(8..)?)?;
        let flags = LinkFlags::from_bits_retain(flags);
        let mut link = Self {
            link_type: u16::from_ne_bytes([payload[2], payload[3]]),
            index: u32_of(&payload[4..])?,
            loopback: flags.contains(LinkFlags::Loopback),
            up: flags.contains(LinkFlags::Up),
            carrier: flags.contains(LinkFlags::LowerUp),
            ..Self::default()
        };
        let is_of_bridge = payload[0] == libc::AF_BRIDGE as u8;
        for (kind, value) in Attributes(payload.get(LINK_HEADER..)?) {
            match kind {
                // In messages of other families, it has settings of that family.
                PROTINFO if is_of_bridge => link.bridge_port = Some(BridgePort::read(value)),
                _ => drop(link.set(kind, value)),
            }
        }
        Some(link)
    }

    fn set(&mut self, kind: u16, value: &[u8]) -> Option<()> {
        match kind {
            ADDRESS => self.mac = value.try_into().unwrap_or_default(),
            IFNAME => self.name = text(value),
            MTU => self.mtu = u32_of(value)?,
            LINK => self.lower = Some(u32_of(value)?),
            QDISC => self.qdisc = Some(text(value)),
            MASTER => self.controller = Some(u32_of(value)?),
            OPERSTATE => self.running = *value.first()? == OPER_UP,
            LINKINFO => self.set_info(value),
            STATS64 => {
                self.statistics = Statistics::read(value);
                self.stats = Counters::read(value)?;
            }
            PROMISCUITY => self.promiscuity = u32_of(value)?,
            NUM_TX_QUEUES => self.tx_queues = u32_of(value)?,
            NUM_RX_QUEUES => self.queues = u32_of(value)?,
            PHYS_SWITCH_ID => self.switchdev = true,
            LINK_NETNSID => self.lower_netns = Some(u32_of(value)?.cast_signed()),
            XDP => self.set_xdp(value),
            PROP_LIST => {
                let names = Attributes(value).filter(|(kind, _)| *kind == ALT_IFNAME);
                self.alternative_names = names.map(|(_, name)| text(name)).collect();
            }
            _ => {}
        }
        Some(())
    }

    fn set_info(&mut self, info: &[u8]) {
        let find = |kind| Attributes(info).find(|attribute| attribute.0 == kind);
        self.kind = find(INFO_KIND).map(|(_, kind)| text(kind));
        if self.kind.as_deref() == Some("bridge") {
            let (_, data) = find(INFO_DATA).unwrap_or_default();
            self.bridge = Some(BridgeSettings::read(data));
        }
        if self.kind.as_deref() == Some("tun") {
            let (_, data) = find(INFO_DATA).unwrap_or_default();
            let header = Attributes(data).find(|(kind, _)| *kind == TUN_VNET_HDR);
            self.tap_vnet_header = header.map(|(_, value)| value.first() != Some(&0));
        }
        let of = find(INFO_SLAVE_KIND).map(|(_, kind)| text(kind));
        let (_, data) = find(INFO_SLAVE_DATA).unwrap_or_default();
        match of.as_deref() {
            Some("bridge") => self.bridge_port = Some(BridgePort::read(data)),
            Some("bond") => {
                let state = Attributes(data).find(|(kind, _)| *kind == BOND_SLAVE_STATE);
                self.bond_backup = state.is_some_and(|(_, value)| value.first() == Some(&1));
            }
            _ => {}
        }
    }

    fn set_xdp(&mut self, xdp: &[u8]) {
        for (kind, value) in Attributes(xdp) {
            match kind {
                XDP_PROG_ID => self.xdp_program = u32_of(value),
                XDP_SKB_PROG_ID => self.xdp_programs.generic = u32_of(value),
                XDP_DRV_PROG_ID => self.xdp_programs.driver = u32_of(value),
                XDP_HW_PROG_ID => self.xdp_programs.hardware = u32_of(value),
                _ => {}
            }
        }
    }
}

impl Counters {
    /// Reads `struct rtnl_link_stats64`.
    fn read(stats: &[u8]) -> Option<Self> {
        Some(Self {
            rx_packets: u64_at(stats, 0)?,
            tx_packets: u64_at(stats, 1)?,
            rx_errors: u64_at(stats, 4)?,
            tx_errors: u64_at(stats, 5)?,
            rx_dropped: u64_at(stats, 6)?,
            tx_dropped: u64_at(stats, 7)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{damaged, push_attribute, push_nested};
    use crate::rtnetlink::PortState;

    fn message(family: i32, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![family as u8, 0];
        bytes.extend(1_u16.to_ne_bytes());
        // The index 7, `IFF_UP` and `IFF_LOWER_UP`, no changed flags.
        bytes.extend([7_u32, 0x1_0001, 0].map(u32::to_ne_bytes).concat());
        for (kind, value) in attributes {
            push_attribute(&mut bytes, *kind, value);
        }
        bytes
    }

    fn info(kinds: [u16; 2], kind: &[u8], data: (u16, &[u8])) -> Vec<u8> {
        let (mut nested, mut bytes) = (Vec::new(), Vec::new());
        push_attribute(&mut nested, data.0, data.1);
        push_attribute(&mut bytes, kinds[0], kind);
        push_nested(&mut bytes, kinds[1], &nested);
        bytes
    }

    #[test]
    fn a_link_has_the_messages_attributes() {
        let mut xdp = Vec::new();
        push_attribute(&mut xdp, XDP_PROG_ID, &11_u32.to_ne_bytes());
        push_attribute(&mut xdp, XDP_DRV_PROG_ID, &11_u32.to_ne_bytes());
        let mut kind = Vec::new();
        push_attribute(&mut kind, INFO_KIND, b"veth\0");
        let stats: Vec<u8> = (0..24_u64).flat_map(u64::to_ne_bytes).collect();
        let bytes = message(
            0,
            &[
                (IFNAME, b"veth0\0"),
                (LINKINFO, &kind),
                (ADDRESS, &[2, 0, 0, 0, 0, 1]),
                (MTU, &1500_u32.to_ne_bytes()),
                (MASTER, &3_u32.to_ne_bytes()),
                (LINK, &9_u32.to_ne_bytes()),
                (LINK_NETNSID, &[0; 4]),
                (OPERSTATE, &[OPER_UP]),
                (NUM_TX_QUEUES, &4_u32.to_ne_bytes()),
                (NUM_RX_QUEUES, &5_u32.to_ne_bytes()),
                (QDISC, b"noqueue\0"),
                (PHYS_SWITCH_ID, &[1; 8]),
                (STATS64, &stats),
                (XDP, &xdp),
                (999, b"of a later kernel"),
            ],
        );
        let link = Link::read(&bytes).expect("a message with a header");
        assert_eq!((link.name.as_str(), link.index), ("veth0", 7));
        assert_eq!(link.link_type, 1);
        assert_eq!(link.kind.as_deref(), Some("veth"));
        assert_eq!((link.mac, link.mtu), ([2, 0, 0, 0, 0, 1], 1500));
        assert_eq!((link.controller, link.lower), (Some(3), Some(9)));
        assert_eq!((link.lower_netns, link.xdp_program), (Some(0), Some(11)));
        let programs = link.xdp_programs;
        assert_eq!((programs.driver, programs.generic), (Some(11), None));
        assert_eq!((link.tx_queues, link.queues), (4, 5));
        assert!(link.up && link.carrier && link.running && !link.loopback && link.switchdev);
        assert_eq!(link.qdisc.as_deref(), Some("noqueue"));
        let stats = link.stats;
        assert_eq!(
            (stats.tx_packets, stats.rx_errors, stats.tx_errors),
            (1, 4, 5)
        );
        assert_eq!(
            (stats.rx_packets, stats.rx_dropped, stats.tx_dropped),
            (0, 6, 7)
        );
        assert_eq!(link.statistics.get("rx_nohandler"), Some(23));
        assert_eq!(link.statistics.get("rx_otherhost_dropped"), None);
        assert_eq!((link.bridge, link.bridge_port), (None, None));
        for bytes in damaged(&bytes) {
            Link::read(&bytes);
        }
    }

    #[test]
    fn a_bridge_and_its_port_have_settings() {
        let data = info([INFO_KIND, INFO_DATA], b"bridge\0", (7, &[1]));
        let bridge = Link::read(&message(0, &[(LINKINFO, &data)])).expect("a header");
        assert!(bridge.bridge.is_some_and(|bridge| bridge.vlan_filtering));

        let mut data = info([INFO_SLAVE_KIND, INFO_SLAVE_DATA], b"bridge\0", (1, &[3]));
        push_attribute(&mut data, INFO_KIND, b"tun\0");
        let port = Link::read(&message(0, &[(LINKINFO, &data)])).expect("a header");
        let state = port.bridge_port.map(|port| port.state);
        assert_eq!(state, Some(PortState::Forwarding));
        assert_eq!(port.kind.as_deref(), Some("tun"));

        let data = info([INFO_SLAVE_KIND, INFO_SLAVE_DATA], b"bond\0", (1, &[3]));
        let leg = Link::read(&message(0, &[(LINKINFO, &data)])).expect("a header");
        assert_eq!(leg.bridge_port, None);
    }

    #[test]
    fn a_message_of_the_bridge_has_the_settings_of_a_port() {
        let mut port = Vec::new();
        push_attribute(&mut port, 1, &[4]);
        let read = |family| Link::read(&message(family, &[(PROTINFO, &port)]));
        let link = read(libc::AF_BRIDGE).expect("a header");
        assert_eq!(
            link.bridge_port.map(|port| port.state),
            Some(PortState::Blocking)
        );
        assert_eq!(read(libc::AF_INET6).expect("a header").bridge_port, None);
    }

    #[test]
    fn an_address_that_is_not_ethernet_is_none() {
        let link = Link::read(&message(0, &[(ADDRESS, &[1; 20])]));
        assert_eq!(link.expect("a header").mac, [0; 6]);
    }
}
