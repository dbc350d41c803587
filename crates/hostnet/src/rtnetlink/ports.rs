//! Bridges, their ports, and what else a host gives a device.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context as _, Result};
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoBridge, InfoData, InfoKind, LinkAttribute, LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{
    NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::Rtnetlink;

impl Rtnetlink {
    /// Makes a bridge, down and without ports. It sends nothing of its own: with multicast snooping
    /// it would report that it listens to other snoopers.
    pub fn add_bridge(&mut self, name: &str) -> Result<()> {
        let mut message = LinkMessage::default();
        message.attributes = vec![
            LinkAttribute::IfName(name.into()),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Bridge),
                LinkInfo::Data(InfoData::Bridge(vec![InfoBridge::MulticastSnooping(false)])),
            ]),
        ];
        let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
        self.request(RouteNetlinkMessage::NewLink(message), flags)
            .with_context(|| {
                format!(
                    "cannot make the bridge {name}: has this kernel bridges (`modprobe bridge`)?"
                )
            })?;
        Ok(())
    }

    /// Makes a device a port of a bridge.
    pub fn add_port(&mut self, bridge: u32, port: u32) -> Result<()> {
        self.change(port, LinkAttribute::Controller(bridge))
            .context("cannot make a device a port of a bridge")
    }

    /// Gives a device another MAC address.
    pub fn set_mac(&mut self, index: u32, mac: [u8; 6]) -> Result<()> {
        self.change(index, LinkAttribute::Address(mac.into()))
            .context("cannot give a device another MAC address")
    }

    fn change(&mut self, index: u32, attribute: LinkAttribute) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes.push(attribute);
        self.request(RouteNetlinkMessage::SetLink(message), NLM_F_ACK)?;
        Ok(())
    }

    /// Has a bridge send frames for `mac` to this port, for good.
    pub fn add_station(&mut self, port: u32, mac: [u8; 6]) -> Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Bridge;
        message.header.ifindex = port;
        message.header.state = NeighbourState::Noarp;
        message.header.flags = NeighbourFlags::Controller;
        message
            .attributes
            .push(NeighbourAttribute::LinkLayerAddress(mac.into()));
        let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
        self.request(RouteNetlinkMessage::NewNeighbour(message), flags)
            .context("cannot tell a bridge where a MAC address is")?;
        Ok(())
    }

    /// Gives a device an address in a network of this prefix.
    pub fn add_address(&mut self, index: u32, address: Ipv4Addr, prefix: u8) -> Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.index = index;
        message.header.prefix_len = prefix;
        message.attributes = vec![
            AddressAttribute::Local(IpAddr::V4(address)),
            AddressAttribute::Address(IpAddr::V4(address)),
        ];
        let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
        self.request(RouteNetlinkMessage::NewAddress(message), flags)
            .with_context(|| format!("cannot set the address {address}/{prefix}"))?;
        Ok(())
    }

    /// Takes the queueing discipline off a device that is up: what it is to send, it gets at once.
    pub fn set_noqueue(&mut self, index: u32) -> Result<()> {
        let mut message = TcMessage::with_index(index.cast_signed());
        message.header.parent = TcHandle::ROOT;
        message.attributes.push(TcAttribute::Kind("noqueue".into()));
        let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
        self.request(RouteNetlinkMessage::NewQueueDiscipline(message), flags)
            .context("cannot take the queueing discipline off a device")?;
        Ok(())
    }
}
