//! Bridges, their ports and forwarding database.

use netlink_packet_route::link::{
    InfoBridge, InfoData, InfoKind, LinkAttribute, LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{
    NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::socket::{NEW, Rtnetlink};
use crate::error::{Context as _, ErrorKind, Result};

impl Rtnetlink {
    /// Makes a bridge, down and without ports. Multicast snooping is off in it, so that it sends
    /// no frames of its own: a snooping bridge reports itself as a listener to others.
    ///
    /// ```no_run
    /// use hostnet::rtnetlink::Rtnetlink;
    ///
    /// let mut rtnetlink = Rtnetlink::open()?;
    /// rtnetlink.add_bridge("br0")?;
    /// let bridge = rtnetlink.link("br0")?.index;
    /// let port = rtnetlink.link("tap0")?.index;
    /// rtnetlink.add_port(bridge, port)?;
    /// rtnetlink.add_fdb_entry(port, [0x52, 0x54, 0, 0, 0, 1])?;
    /// rtnetlink.set_up(bridge)?;
    /// # Ok::<(), hostnet::Error>(())
    /// ```
    pub fn add_bridge(&mut self, name: &str) -> Result<()> {
        let mut message = LinkMessage::default();
        message.attributes = vec![
            LinkAttribute::IfName(name.into()),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Bridge),
                LinkInfo::Data(InfoData::Bridge(vec![InfoBridge::MulticastSnooping(false)])),
            ]),
        ];
        let made = self.change(RouteNetlinkMessage::NewLink(message), NEW, || {
            format!("cannot make the bridge {name}")
        });
        made.cure(
            ErrorKind::Unsupported,
            "load the module bridge (`modprobe bridge`)",
        )
    }

    /// Makes the device with the index `port` a port of the bridge with the index `bridge`.
    pub fn add_port(&mut self, bridge: u32, port: u32) -> Result<()> {
        self.set_link(port, LinkAttribute::Controller(bridge), || {
            format!("cannot make device {port} a port of the bridge {bridge}")
        })
    }

    /// Adds a permanent entry to the forwarding database: frames for `mac` go to this port
    /// (`bridge fdb add MAC dev PORT master static`).
    pub fn add_fdb_entry(&mut self, port: u32, mac: [u8; 6]) -> Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Bridge;
        message.header.ifindex = port;
        message.header.state = NeighbourState::Noarp;
        message.header.flags = NeighbourFlags::Controller;
        message.attributes = vec![NeighbourAttribute::LinkLayerAddress(mac.into())];
        self.change(RouteNetlinkMessage::NewNeighbour(message), NEW, || {
            format!("cannot add a MAC address to the forwarding database for port {port}")
        })
    }
}
