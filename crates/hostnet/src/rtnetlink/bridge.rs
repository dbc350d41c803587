//! Bridges and their ports: made and changed.

use std::time::Duration;

use netlink_packet_route::link::LinkAttribute;

use super::settings::{
    BR_AGEING_TIME, BR_FDB_MAX_LEARNED, BR_MULTICAST_SNOOPING, BR_STP_STATE, BR_VLAN_DEFAULT_PVID,
    BR_VLAN_FILTERING, BR_VLAN_PROTOCOL, BridgeSettings, CLOCK, PORT_BACKUP, PORT_FLOOD,
    PORT_HAIRPIN, PORT_ISOLATED, PORT_LEARNING, PORT_LOCKED, PORT_MAB, PORT_NEIGH_SUPPRESS,
    PORT_STATE, PORT_VLAN_TUNNEL, PortState,
};
use super::socket::{NEW, NEW_LINK, Rtnetlink, SET_LINK, link_message};
use crate::error::{Context as _, Error, ErrorKind, Result};
use crate::netlink::{push_attribute, push_nested};

/// Attributes of a device (`linux/if_link.h`).
const IFNAME: u16 = 3;
const PROTINFO: u16 = 12;
const LINKINFO: u16 = 18;
/// Attributes in `IFLA_LINKINFO`.
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;

/// The settings of a bridge to be made, for [`Rtnetlink::add_bridge_with`]. A setting that is none is
/// left to the kernel.
///
/// ```
/// use std::time::Duration;
///
/// use hostnet::rtnetlink::BridgeOptions;
///
/// let options = BridgeOptions {
///     vlan_filtering: true,
///     ageing_time: Some(Duration::from_secs(60)),
///     ..BridgeOptions::default()
/// };
/// assert!(!options.multicast_snooping);
/// ```
#[derive(Debug, Clone, Default)]
pub struct BridgeOptions {
    /// Whether the bridge looks at VLAN tags.
    pub vlan_filtering: bool,
    /// The EtherType of the tags: 0x8100 (802.1Q) or 0x88a8 (802.1ad).
    pub vlan_protocol: Option<u16>,
    /// The VLAN that a new port is a member of, untagged; 0 for none.
    pub vlan_default_pvid: Option<u16>,
    /// The time after which an unused address is forgotten, in steps of 10 ms.
    pub ageing_time: Option<Duration>,
    /// Whether the kernel's spanning tree protocol is on.
    pub stp: bool,
    /// Whether the bridge learns the receivers of multicast. Then it sends frames of its own: it
    /// reports itself as a listener.
    pub multicast_snooping: bool,
    /// The most addresses that the bridge learns; 0 for no limit (Linux 6.7).
    pub fdb_max_learned: Option<u32>,
}

impl BridgeOptions {
    fn attributes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        push_attribute(
            &mut bytes,
            BR_MULTICAST_SNOOPING,
            &[self.multicast_snooping.into()],
        );
        push_attribute(&mut bytes, BR_STP_STATE, &u32::from(self.stp).to_ne_bytes());
        if self.vlan_filtering {
            push_attribute(&mut bytes, BR_VLAN_FILTERING, &[1]);
        }
        if let Some(protocol) = self.vlan_protocol {
            push_attribute(&mut bytes, BR_VLAN_PROTOCOL, &protocol.to_be_bytes());
        }
        if let Some(vid) = self.vlan_default_pvid {
            push_attribute(&mut bytes, BR_VLAN_DEFAULT_PVID, &vid.to_ne_bytes());
        }
        if let Some(time) = self.ageing_time {
            let ticks = time.as_millis() / CLOCK.as_millis();
            let ticks = u32::try_from(ticks).unwrap_or(u32::MAX);
            push_attribute(&mut bytes, BR_AGEING_TIME, &ticks.to_ne_bytes());
        }
        if let Some(entries) = self.fdb_max_learned {
            push_attribute(&mut bytes, BR_FDB_MAX_LEARNED, &entries.to_ne_bytes());
        }
        bytes
    }
}

/// Changes of a port's settings, for [`Rtnetlink::set_port`]; what is none stays.
///
/// ```
/// use hostnet::rtnetlink::{PortChange, PortState};
///
/// let change = PortChange { state: Some(PortState::Blocking), ..PortChange::default() };
/// assert_eq!(change.isolated, None);
/// ```
#[derive(Debug, Clone, Default)]
pub struct PortChange {
    /// The state. The kernel refuses it while its own spanning tree protocol is on, and for a port
    /// without carrier. Without any spanning tree protocol, a blocking port is forwarding again at
    /// once.
    pub state: Option<PortState>,
    /// Whether it neither sends to nor receives from other isolated ports.
    pub isolated: Option<bool>,
    /// Whether a frame may leave by the port that it came by.
    pub hairpin: Option<bool>,
    /// Whether frames of unknown senders are dropped.
    pub locked: Option<bool>,
    /// Whether a locked port that learns enters unknown senders as locked.
    pub mab: Option<bool>,
    /// Whether it learns addresses.
    pub learning: Option<bool>,
    /// Whether VLANs are mapped to tunnels.
    pub vlan_tunnel: Option<bool>,
    /// Whether the bridge answers for neighbours behind the port.
    pub neigh_suppress: Option<bool>,
    /// Whether frames for unknown unicast addresses leave by it.
    pub flood: Option<bool>,
    /// The index of the port that takes over without carrier; 0 for none.
    pub backup_port: Option<u32>,
}

impl PortChange {
    fn attributes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let flags = [
            (PORT_ISOLATED, self.isolated),
            (PORT_HAIRPIN, self.hairpin),
            (PORT_LOCKED, self.locked),
            (PORT_MAB, self.mab),
            (PORT_LEARNING, self.learning),
            (PORT_VLAN_TUNNEL, self.vlan_tunnel),
            (PORT_NEIGH_SUPPRESS, self.neigh_suppress),
            (PORT_FLOOD, self.flood),
        ];
        for (kind, flag) in flags {
            if let Some(flag) = flag {
                push_attribute(&mut bytes, kind, &[flag.into()]);
            }
        }
        if let Some(state) = self.state {
            push_attribute(&mut bytes, PORT_STATE, &[state as u8]);
        }
        if let Some(port) = self.backup_port {
            push_attribute(&mut bytes, PORT_BACKUP, &port.to_ne_bytes());
        }
        bytes
    }
}

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
        self.add_bridge_with(name, &BridgeOptions::default())
    }

    /// Makes a bridge with these settings, down and without ports.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] if VLAN filtering is wanted of a kernel without
    /// `CONFIG_BRIDGE_VLAN_FILTERING`, which accepts and ignores that; there is no bridge then.
    ///
    /// ```no_run
    /// use hostnet::rtnetlink::{BridgeOptions, Rtnetlink};
    ///
    /// let mut rtnetlink = Rtnetlink::open()?;
    /// let options = BridgeOptions { vlan_filtering: true, ..BridgeOptions::default() };
    /// rtnetlink.add_bridge_with("br0", &options)?;
    /// # Ok::<(), hostnet::Error>(())
    /// ```
    pub fn add_bridge_with(&mut self, name: &str, options: &BridgeOptions) -> Result<()> {
        let mut message = link_message(NEW_LINK, libc::AF_UNSPEC, 0);
        push_attribute(&mut message.payload, IFNAME, format!("{name}\0").as_bytes());
        push_info(&mut message.payload, &options.attributes());
        let made = self.change_raw(&message, NEW, || format!("cannot make the bridge {name}"));
        made.cure(
            ErrorKind::Unsupported,
            "load the module bridge (`modprobe bridge`)",
        )?;
        if options.vlan_filtering {
            let link = self.link(name)?;
            let checked = has_filtering(&link.bridge.unwrap_or_default(), true);
            if checked.is_err() {
                self.delete(link.index)?;
            }
            checked.with_context(|| format!("cannot make the bridge {name}"))?;
        }
        Ok(())
    }

    /// Switches VLAN filtering of a bridge on or off.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] for a kernel without `CONFIG_BRIDGE_VLAN_FILTERING`.
    pub fn set_bridge_vlan_filtering(&mut self, bridge: u32, on: bool) -> Result<()> {
        let mut data = Vec::new();
        push_attribute(&mut data, BR_VLAN_FILTERING, &[on.into()]);
        let mut message = link_message(NEW_LINK, libc::AF_UNSPEC, bridge);
        push_info(&mut message.payload, &data);
        let step = || format!("cannot switch VLAN filtering of the bridge {bridge}");
        self.change_raw(&message, 0, step)?;
        let settings = self.link_by_index(bridge)?.bridge;
        has_filtering(&settings.unwrap_or_default(), on).with_context(step)
    }

    /// Makes the device with the index `port` a port of the bridge with the index `bridge`.
    pub fn add_port(&mut self, bridge: u32, port: u32) -> Result<()> {
        self.set_link(port, LinkAttribute::Controller(bridge), || {
            format!("cannot make device {port} a port of the bridge {bridge}")
        })
    }

    /// Takes a port out of its bridge, and any device out of its bond or VRF.
    pub fn remove_port(&mut self, port: u32) -> Result<()> {
        self.set_link(port, LinkAttribute::Controller(0), || {
            format!("cannot take the port {port} out of its bridge")
        })
    }

    /// Changes the settings of a bridge's port.
    ///
    /// ```no_run
    /// use hostnet::rtnetlink::{PortChange, Rtnetlink};
    ///
    /// let mut rtnetlink = Rtnetlink::open()?;
    /// let port = rtnetlink.link("tap0")?.index;
    /// let change = PortChange { isolated: Some(true), ..PortChange::default() };
    /// rtnetlink.set_port(port, &change)?;
    /// # Ok::<(), hostnet::Error>(())
    /// ```
    pub fn set_port(&mut self, port: u32, change: &PortChange) -> Result<()> {
        let mut message = link_message(SET_LINK, libc::AF_BRIDGE, port);
        push_nested(&mut message.payload, PROTINFO, &change.attributes());
        self.change_raw(&message, 0, || {
            format!("cannot change the settings of the port {port}")
        })
    }
}

fn push_info(payload: &mut Vec<u8>, data: &[u8]) {
    let mut info = Vec::new();
    push_attribute(&mut info, INFO_KIND, b"bridge\0");
    push_nested(&mut info, INFO_DATA, data);
    push_nested(payload, LINKINFO, &info);
}

fn has_filtering(settings: &BridgeSettings, on: bool) -> Result<()> {
    if settings.vlan_filtering == on {
        return Ok(());
    }
    let text = "the kernel has no bridge VLAN filtering: it needs CONFIG_BRIDGE_VLAN_FILTERING";
    Err(Error::new(ErrorKind::Unsupported, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtnetlink::BridgePort;

    #[test]
    fn options_are_read_as_settings() {
        let options = BridgeOptions {
            vlan_filtering: true,
            vlan_protocol: Some(0x88a8),
            vlan_default_pvid: Some(0),
            ageing_time: Some(Duration::from_millis(1239)),
            stp: true,
            multicast_snooping: true,
            fdb_max_learned: Some(10),
        };
        let expected = BridgeSettings {
            vlan_filtering: true,
            vlan_protocol: 0x88a8,
            vlan_default_pvid: 0,
            ageing_time: Duration::from_millis(1230),
            stp: true,
            multicast_snooping: true,
            fdb_max_learned: 10,
            ..BridgeSettings::default()
        };
        assert_eq!(BridgeSettings::read(&options.attributes()), expected);
        let default = BridgeOptions::default().attributes();
        assert_eq!(BridgeSettings::read(&default), BridgeSettings::default());
        let forever = BridgeOptions {
            ageing_time: Some(Duration::MAX),
            ..BridgeOptions::default()
        };
        let settings = BridgeSettings::read(&forever.attributes());
        assert_eq!(settings.ageing_time, CLOCK * u32::MAX);
    }

    #[test]
    fn changes_are_read_as_settings() {
        let change = PortChange {
            state: Some(PortState::Learning),
            isolated: Some(true),
            hairpin: Some(true),
            locked: Some(true),
            mab: Some(true),
            learning: Some(false),
            vlan_tunnel: Some(true),
            neigh_suppress: Some(true),
            flood: Some(false),
            backup_port: Some(9),
        };
        let expected = BridgePort {
            state: PortState::Learning,
            isolated: true,
            hairpin: true,
            locked: true,
            mab: true,
            learning: false,
            vlan_tunnel: true,
            neigh_suppress: true,
            flood: false,
            backup_port: Some(9),
            backup_nexthop: None,
        };
        assert_eq!(BridgePort::read(&change.attributes()), expected);
        assert!(PortChange::default().attributes().is_empty());
    }
}
