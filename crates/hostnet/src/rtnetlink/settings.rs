//! Settings of bridges and their ports, by the attributes `IFLA_BR_*` and `IFLA_BRPORT_*`
//! (`linux/if_link.h`).

use std::time::Duration;

use crate::netlink::{Attributes, u16_of, u32_of};

/// Attributes of a bridge.
pub(super) const BR_AGEING_TIME: u16 = 4;
pub(super) const BR_STP_STATE: u16 = 5;
pub(super) const BR_VLAN_FILTERING: u16 = 7;
pub(super) const BR_VLAN_PROTOCOL: u16 = 8;
pub(super) const BR_MULTICAST_SNOOPING: u16 = 23;
const BR_NF_CALL_IPTABLES: u16 = 36;
const BR_NF_CALL_IP6TABLES: u16 = 37;
const BR_NF_CALL_ARPTABLES: u16 = 38;
pub(super) const BR_VLAN_DEFAULT_PVID: u16 = 39;
const BR_MULTI_BOOLOPT: u16 = 46;
pub(super) const BR_FDB_MAX_LEARNED: u16 = 49;
/// `BR_BOOLOPT_MST_ENABLE`, a bit of `IFLA_BR_MULTI_BOOLOPT` (`linux/if_bridge.h`).
const MST_ENABLE: u32 = 1 << 2;

/// Attributes of a port.
pub(super) const PORT_STATE: u16 = 1;
pub(super) const PORT_HAIRPIN: u16 = 4;
pub(super) const PORT_LEARNING: u16 = 8;
pub(super) const PORT_FLOOD: u16 = 9;
pub(super) const PORT_VLAN_TUNNEL: u16 = 29;
pub(super) const PORT_NEIGH_SUPPRESS: u16 = 32;
pub(super) const PORT_ISOLATED: u16 = 33;
pub(super) const PORT_BACKUP: u16 = 34;
pub(super) const PORT_LOCKED: u16 = 39;
pub(super) const PORT_MAB: u16 = 40;
pub(super) const PORT_NEIGH_VLAN_SUPPRESS: u16 = 43;
const PORT_BACKUP_NEXTHOP: u16 = 44;

/// Times are in units of 10 ms: `USER_HZ` is 100 on every architecture that Rust knows.
pub(super) const CLOCK: Duration = Duration::from_millis(10);

/// The settings of a bridge (`IFLA_INFO_DATA`). A kernel without a feature reports nothing about it,
/// and its setting is then off: the defaults are those of a kernel without any.
///
/// ```
/// use std::time::Duration;
///
/// use hostnet::rtnetlink::BridgeSettings;
///
/// let plain = BridgeSettings::default();
/// assert_eq!(plain.ageing_time, Duration::from_secs(300));
/// assert!(!plain.vlan_filtering && !plain.stp);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeSettings {
    /// Whether the bridge looks at VLAN tags (`IFLA_BR_VLAN_FILTERING`); never with a kernel without
    /// `CONFIG_BRIDGE_VLAN_FILTERING`.
    pub vlan_filtering: bool,
    /// The EtherType of the tags: 0x8100 (802.1Q) or 0x88a8 (802.1ad).
    pub vlan_protocol: u16,
    /// The time after which an unused address is forgotten; zero switches learning off.
    pub ageing_time: Duration,
    /// Whether a spanning tree protocol is on, the kernel's or a daemon's (`IFLA_BR_STP_STATE`).
    pub stp: bool,
    /// Whether each VLAN has port states of its own (`BR_BOOLOPT_MST_ENABLE`, Linux 5.18).
    pub mst: bool,
    /// Whether IPv4 packets that the bridge forwards go through iptables, by this bridge's setting;
    /// there is another one for all bridges of the namespace (`bridge-nf-call-iptables`).
    pub nf_call_iptables: bool,
    /// The same for IPv6.
    pub nf_call_ip6tables: bool,
    /// The same for ARP.
    pub nf_call_arptables: bool,
    /// Whether the bridge learns the receivers of multicast.
    pub multicast_snooping: bool,
    /// The VLAN that a new port is a member of, untagged; 0 for none.
    pub vlan_default_pvid: u16,
    /// The most addresses that the bridge learns; 0 for no limit (Linux 6.7).
    pub fdb_max_learned: u32,
}

impl Default for BridgeSettings {
    fn default() -> Self {
        Self {
            vlan_filtering: false,
            vlan_protocol: 0x8100,
            ageing_time: Duration::from_secs(300),
            stp: false,
            mst: false,
            nf_call_iptables: false,
            nf_call_ip6tables: false,
            nf_call_arptables: false,
            multicast_snooping: false,
            vlan_default_pvid: 0,
            fdb_max_learned: 0,
        }
    }
}

impl BridgeSettings {
    /// Reads the attributes; one that is too short does not count.
    pub(super) fn read(attributes: &[u8]) -> Self {
        let mut settings = Self::default();
        for (kind, value) in Attributes(attributes) {
            settings.set(kind, value);
        }
        settings
    }

    fn set(&mut self, kind: u16, value: &[u8]) -> Option<()> {
        match kind {
            BR_AGEING_TIME => self.ageing_time = CLOCK * u32_of(value)?,
            BR_STP_STATE => self.stp = u32_of(value)? != 0,
            BR_VLAN_FILTERING => self.vlan_filtering = flag(value)?,
            BR_VLAN_PROTOCOL => self.vlan_protocol = u16::from_be(u16_of(value)?),
            BR_MULTICAST_SNOOPING => self.multicast_snooping = flag(value)?,
            BR_NF_CALL_IPTABLES => self.nf_call_iptables = flag(value)?,
            BR_NF_CALL_IP6TABLES => self.nf_call_ip6tables = flag(value)?,
            BR_NF_CALL_ARPTABLES => self.nf_call_arptables = flag(value)?,
            BR_VLAN_DEFAULT_PVID => self.vlan_default_pvid = u16_of(value)?,
            // `struct br_boolopt_multi`: the values, and which of them count.
            BR_MULTI_BOOLOPT => self.mst = u32_of(value)? & MST_ENABLE != 0,
            BR_FDB_MAX_LEARNED => self.fdb_max_learned = u32_of(value)?,
            _ => {}
        }
        Some(())
    }
}

/// The state of a bridge's port (`BR_STATE_*` in `linux/if_bridge.h`).
///
/// ```
/// use hostnet::rtnetlink::{BridgePort, PortState};
///
/// assert_eq!(BridgePort::default().state, PortState::Disabled);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PortState {
    /// It takes part in nothing, for instance because it has no carrier.
    #[default]
    Disabled = 0,
    /// It takes part in the spanning tree protocol alone.
    Listening = 1,
    /// It learns addresses, and forwards nothing.
    Learning = 2,
    /// It forwards.
    Forwarding = 3,
    /// It is kept out of a loop.
    Blocking = 4,
}

impl PortState {
    fn of(value: u8) -> Option<Self> {
        Some(match value {
            0 => Self::Disabled,
            1 => Self::Listening,
            2 => Self::Learning,
            3 => Self::Forwarding,
            4 => Self::Blocking,
            _ => return None,
        })
    }
}

/// The settings of a bridge's port (`IFLA_BRPORT_*`, bridge(8)); the defaults are those of a new port
/// without carrier.
///
/// ```
/// use hostnet::rtnetlink::BridgePort;
///
/// let new = BridgePort::default();
/// assert!(new.learning && new.flood && !new.isolated && !new.locked);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgePort {
    /// The state by the spanning tree.
    pub state: PortState,
    /// Whether it neither sends to nor receives from other isolated ports.
    pub isolated: bool,
    /// Whether a frame may leave by the port that it came by.
    pub hairpin: bool,
    /// Whether frames of unknown senders are dropped (Linux 5.18).
    pub locked: bool,
    /// Whether a locked port enters unknown senders as locked (MAC authentication bypass, Linux 6.2).
    pub mab: bool,
    /// Whether it learns addresses.
    pub learning: bool,
    /// Whether VLANs are mapped to tunnels.
    pub vlan_tunnel: bool,
    /// Whether the bridge answers for neighbours behind the port, in all VLANs or in some
    /// (`IFLA_BRPORT_NEIGH_SUPPRESS`, `IFLA_BRPORT_NEIGH_VLAN_SUPPRESS`).
    pub neigh_suppress: bool,
    /// Whether frames for unknown unicast addresses leave by it.
    pub flood: bool,
    /// The index of the port that takes over while this one has no carrier.
    pub backup_port: Option<u32>,
    /// The nexthop for frames that go to the backup port (Linux 6.6).
    pub backup_nexthop: Option<u32>,
}

impl Default for BridgePort {
    fn default() -> Self {
        Self {
            state: PortState::Disabled,
            isolated: false,
            hairpin: false,
            locked: false,
            mab: false,
            learning: true,
            vlan_tunnel: false,
            neigh_suppress: false,
            flood: true,
            backup_port: None,
            backup_nexthop: None,
        }
    }
}

impl BridgePort {
    /// Reads the attributes; one that is too short does not count.
    pub(super) fn read(attributes: &[u8]) -> Self {
        let mut port = Self::default();
        for (kind, value) in Attributes(attributes) {
            port.set(kind, value);
        }
        port
    }

    fn set(&mut self, kind: u16, value: &[u8]) -> Option<()> {
        match kind {
            PORT_STATE => self.state = PortState::of(*value.first()?)?,
            PORT_HAIRPIN => self.hairpin = flag(value)?,
            PORT_LEARNING => self.learning = flag(value)?,
            PORT_FLOOD => self.flood = flag(value)?,
            PORT_VLAN_TUNNEL => self.vlan_tunnel = flag(value)?,
            PORT_NEIGH_SUPPRESS | PORT_NEIGH_VLAN_SUPPRESS => self.neigh_suppress |= flag(value)?,
            PORT_ISOLATED => self.isolated = flag(value)?,
            PORT_BACKUP => self.backup_port = Some(u32_of(value)?).filter(|&index| index != 0),
            PORT_LOCKED => self.locked = flag(value)?,
            PORT_MAB => self.mab = flag(value)?,
            PORT_BACKUP_NEXTHOP => {
                self.backup_nexthop = Some(u32_of(value)?).filter(|&nexthop| nexthop != 0);
            }
            _ => {}
        }
        Some(())
    }
}

fn flag(value: &[u8]) -> Option<bool> {
    value.first().map(|&value| value != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{damaged, push_attribute};

    #[test]
    fn a_bridge_has_its_settings() {
        let mut bytes = Vec::new();
        let flags = [7, 36, 37, 38, 23];
        for kind in flags {
            push_attribute(&mut bytes, kind, &[1]);
        }
        push_attribute(&mut bytes, BR_AGEING_TIME, &1234_u32.to_ne_bytes());
        push_attribute(&mut bytes, BR_STP_STATE, &2_u32.to_ne_bytes());
        push_attribute(&mut bytes, BR_VLAN_PROTOCOL, &[0x88, 0xa8]);
        push_attribute(&mut bytes, BR_VLAN_DEFAULT_PVID, &7_u16.to_ne_bytes());
        push_attribute(&mut bytes, BR_FDB_MAX_LEARNED, &99_u32.to_ne_bytes());
        let options = [4_u32, 15].map(u32::to_ne_bytes).concat();
        push_attribute(&mut bytes, BR_MULTI_BOOLOPT, &options);
        let expected = BridgeSettings {
            vlan_filtering: true,
            vlan_protocol: 0x88a8,
            ageing_time: Duration::from_millis(12340),
            stp: true,
            mst: true,
            nf_call_iptables: true,
            nf_call_ip6tables: true,
            nf_call_arptables: true,
            multicast_snooping: true,
            vlan_default_pvid: 7,
            fdb_max_learned: 99,
        };
        assert_eq!(BridgeSettings::read(&bytes), expected);
        assert_eq!(BridgeSettings::read(&[]), BridgeSettings::default());
        for bytes in damaged(&bytes) {
            BridgeSettings::read(&bytes);
        }
    }

    #[test]
    fn a_port_has_its_settings() {
        let mut bytes = Vec::new();
        push_attribute(&mut bytes, PORT_STATE, &[3]);
        for kind in [PORT_LEARNING, PORT_FLOOD] {
            push_attribute(&mut bytes, kind, &[0]);
        }
        let on = [
            PORT_HAIRPIN,
            PORT_VLAN_TUNNEL,
            PORT_NEIGH_VLAN_SUPPRESS,
            PORT_ISOLATED,
            PORT_LOCKED,
            PORT_MAB,
        ];
        for kind in on {
            push_attribute(&mut bytes, kind, &[1]);
        }
        push_attribute(&mut bytes, PORT_BACKUP, &5_u32.to_ne_bytes());
        push_attribute(&mut bytes, PORT_BACKUP_NEXTHOP, &6_u32.to_ne_bytes());
        let expected = BridgePort {
            state: PortState::Forwarding,
            isolated: true,
            hairpin: true,
            locked: true,
            mab: true,
            learning: false,
            vlan_tunnel: true,
            neigh_suppress: true,
            flood: false,
            backup_port: Some(5),
            backup_nexthop: Some(6),
        };
        assert_eq!(BridgePort::read(&bytes), expected);
        for bytes in damaged(&bytes) {
            BridgePort::read(&bytes);
        }
    }

    #[test]
    fn a_state_that_is_unknown_and_a_backup_of_zero_do_not_count() {
        let mut bytes = Vec::new();
        push_attribute(&mut bytes, PORT_STATE, &[9]);
        push_attribute(&mut bytes, PORT_BACKUP, &[0; 4]);
        assert_eq!(BridgePort::read(&bytes), BridgePort::default());
    }
}
