//! A flow rule, and its form in a request (`struct ethtool_rx_flow_spec`).

use std::fmt;
use std::mem::offset_of;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::ioctl::Request;
use super::rxnfc::{RxFlowSpec, RxNfc, SPEC, array};

/// A transport protocol that rules match.
///
/// ```
/// assert_eq!(hostnet::ethtool::Transport::Udp.to_string(), "udp");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// As in the flow types of `ethtool -N`.
impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

/// A value to match: the bits that are set in `mask` must be equal.
///
/// ```
/// use std::net::Ipv4Addr;
///
/// use hostnet::ethtool::Masked;
///
/// assert_eq!(Masked::from(4242), Masked { value: 4242, mask: u16::MAX });
/// let subnet = Masked {
///     value: Ipv4Addr::new(192, 0, 2, 0),
///     mask: Ipv4Addr::new(255, 255, 255, 0),
/// };
/// assert_ne!(subnet, Masked::ANY_V4);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Masked<T> {
    /// The value.
    pub value: T,
    /// The bits of it that count.
    pub mask: T,
}

impl Masked<u16> {
    /// Any port.
    pub const ANY_PORT: Self = Self { value: 0, mask: 0 };
}

impl Masked<Ipv4Addr> {
    /// Any address of IPv4.
    pub const ANY_V4: Self = Self {
        value: Ipv4Addr::UNSPECIFIED,
        mask: Ipv4Addr::UNSPECIFIED,
    };
}

impl Masked<Ipv6Addr> {
    /// Any address of IPv6.
    pub const ANY_V6: Self = Self {
        value: Ipv6Addr::UNSPECIFIED,
        mask: Ipv6Addr::UNSPECIFIED,
    };
}

/// This port alone.
impl From<u16> for Masked<u16> {
    fn from(value: u16) -> Self {
        let mask = u16::MAX;
        Self { value, mask }
    }
}

/// This address alone.
impl From<Ipv4Addr> for Masked<Ipv4Addr> {
    fn from(value: Ipv4Addr) -> Self {
        let mask = Ipv4Addr::BROADCAST;
        Self { value, mask }
    }
}

/// This address alone.
impl From<Ipv6Addr> for Masked<Ipv6Addr> {
    fn from(value: Ipv6Addr) -> Self {
        let mask = Ipv6Addr::from_bits(u128::MAX);
        Self { value, mask }
    }
}

/// The addresses that a rule matches.
///
/// ```
/// use std::net::Ipv6Addr;
///
/// use hostnet::ethtool::{Addresses, Masked};
///
/// let addresses = Addresses::V6 {
///     source: Masked::ANY_V6,
///     destination: Ipv6Addr::LOCALHOST.into(),
/// };
/// assert_ne!(addresses, Addresses::ANY_V6);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addresses {
    /// Packets of IPv4.
    V4 {
        /// Where they come from.
        source: Masked<Ipv4Addr>,
        /// Where they go to.
        destination: Masked<Ipv4Addr>,
    },
    /// Packets of IPv6.
    V6 {
        /// Where they come from.
        source: Masked<Ipv6Addr>,
        /// Where they go to.
        destination: Masked<Ipv6Addr>,
    },
}

impl Addresses {
    /// All packets of IPv4.
    pub const ANY_V4: Self = Self::V4 {
        source: Masked::ANY_V4,
        destination: Masked::ANY_V4,
    };
    /// All packets of IPv6.
    pub const ANY_V6: Self = Self::V6 {
        source: Masked::ANY_V6,
        destination: Masked::ANY_V6,
    };
}

/// A flow rule: received packets of TCP or UDP that match it go to a queue. Most cards match whole
/// addresses and ports only; their driver refuses other masks.
///
/// ```
/// use hostnet::ethtool::{Addresses, FlowRule, Masked, Transport};
///
/// let rule = FlowRule {
///     transport: Transport::Udp,
///     addresses: Addresses::ANY_V4,
///     source_port: Masked::ANY_PORT,
///     destination_port: 4242.into(),
///     ring: 1,
/// };
/// assert_eq!(rule.destination_port.mask, 0xffff);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowRule {
    /// The protocol.
    pub transport: Transport,
    /// The addresses.
    pub addresses: Addresses,
    /// The port that packets come from.
    pub source_port: Masked<u16>,
    /// The port that packets go to.
    pub destination_port: Masked<u16>,
    /// The queue that receives them.
    pub ring: u32,
}

/// A flow rule in its place.
///
/// ```
/// use hostnet::ethtool::InstalledRule;
///
/// let installed = InstalledRule { location: 15, rule: None };
/// println!("ethtool -N eth0 delete {}", installed.location);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstalledRule {
    /// Its number, for [`delete_flow_rule`](super::delete_flow_rule). With most cards, a lower one comes first.
    pub location: u32,
    /// The rule; `None` for one that [`FlowRule`] cannot express.
    pub rule: Option<FlowRule>,
}

/// The bytes of a `struct ethtool_rx_flow_spec`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Spec(pub(super) [u8; SPEC]);

impl Spec {
    pub(super) fn new(rule: &FlowRule, location: u32) -> Self {
        let mut spec = Self([0; SPEC]);
        let (flow_type, fields) = match rule.addresses {
            Addresses::V4 { .. } => (rule.transport.flow_types()[0], Fields::V4),
            Addresses::V6 { .. } => (rule.transport.flow_types()[1], Fields::V6),
        };
        spec.put(offset_of!(RxFlowSpec, flow_type), &flow_type.to_ne_bytes());
        let values = offset_of!(RxFlowSpec, h_u);
        let masks = offset_of!(RxFlowSpec, m_u);
        match rule.addresses {
            Addresses::V4 {
                source,
                destination,
            } => {
                for (at, end) in fields.addresses().into_iter().zip([source, destination]) {
                    spec.put(values + at, &end.value.octets());
                    spec.put(masks + at, &end.mask.octets());
                }
            }
            Addresses::V6 {
                source,
                destination,
            } => {
                for (at, end) in fields.addresses().into_iter().zip([source, destination]) {
                    spec.put(values + at, &end.value.octets());
                    spec.put(masks + at, &end.mask.octets());
                }
            }
        }
        let ports = [rule.source_port, rule.destination_port];
        for (at, port) in fields.ports().into_iter().zip(ports) {
            spec.put(values + at, &port.value.to_be_bytes());
            spec.put(masks + at, &port.mask.to_be_bytes());
        }
        let ring = u64::from(rule.ring).to_ne_bytes();
        spec.put(offset_of!(RxFlowSpec, ring_cookie), &ring);
        spec.put(offset_of!(RxFlowSpec, location), &location.to_ne_bytes());
        spec
    }

    pub(super) fn of(request: &Request) -> Self {
        Self(array(request.bytes(), offset_of!(RxNfc, fs)))
    }

    pub(super) fn location(&self) -> u32 {
        u32::from_ne_bytes(array(&self.0, offset_of!(RxFlowSpec, location)))
    }

    /// The rule, if it has no other field than a [`FlowRule`] and sends to a queue.
    pub(super) fn rule(&self) -> Option<FlowRule> {
        let flow_type = u32::from_ne_bytes(array(&self.0, offset_of!(RxFlowSpec, flow_type)));
        let transport = [Transport::Tcp, Transport::Udp]
            .into_iter()
            .find(|transport| transport.flow_types().contains(&flow_type))?;
        let cookie = u64::from_ne_bytes(array(&self.0, offset_of!(RxFlowSpec, ring_cookie)));
        let is_v4 = flow_type == transport.flow_types()[0];
        let fields = if is_v4 { Fields::V4 } else { Fields::V6 };
        let [source, destination] = fields.addresses();
        let [source_port, destination_port] = fields.ports();
        let rule = FlowRule {
            transport,
            addresses: if is_v4 {
                Addresses::V4 {
                    source: self.masked(source, |octets: [u8; 4]| octets.into()),
                    destination: self.masked(destination, |octets: [u8; 4]| octets.into()),
                }
            } else {
                Addresses::V6 {
                    source: self.masked(source, |octets: [u8; 16]| octets.into()),
                    destination: self.masked(destination, |octets: [u8; 16]| octets.into()),
                }
            },
            source_port: self.masked(source_port, u16::from_be_bytes),
            destination_port: self.masked(destination_port, u16::from_be_bytes),
            ring: u32::try_from(cookie).ok()?,
        };
        self.has_no_mask_beside(&rule).then_some(rule)
    }

    /// Whether every mask is one of the rule's: a type of service or a VLAN would be lost.
    fn has_no_mask_beside(&self, rule: &FlowRule) -> bool {
        let masks = offset_of!(RxFlowSpec, m_u)..offset_of!(RxFlowSpec, m_ext) + 20;
        self.0[masks.clone()] == Self::new(rule, 0).0[masks]
    }

    fn masked<T, const LENGTH: usize>(
        &self,
        at: usize,
        read: impl Fn([u8; LENGTH]) -> T,
    ) -> Masked<T> {
        Masked {
            value: read(array(&self.0, offset_of!(RxFlowSpec, h_u) + at)),
            mask: read(array(&self.0, offset_of!(RxFlowSpec, m_u) + at)),
        }
    }

    fn put(&mut self, start: usize, bytes: &[u8]) {
        self.0[start..start + bytes.len()].copy_from_slice(bytes);
    }
}

impl Transport {
    /// The flow types of IPv4 and of IPv6 (`TCP_V4_FLOW`, `TCP_V6_FLOW`, …).
    fn flow_types(self) -> [u32; 2] {
        match self {
            Self::Tcp => [0x01, 0x05],
            Self::Udp => [0x02, 0x06],
        }
    }
}

/// The fields of `struct ethtool_tcpip4_spec` or `struct ethtool_tcpip6_spec`, in the order of the
/// network.
#[derive(Clone, Copy)]
enum Fields {
    V4,
    V6,
}

impl Fields {
    fn address_length(self) -> usize {
        match self {
            Self::V4 => 4,
            Self::V6 => 16,
        }
    }

    fn addresses(self) -> [usize; 2] {
        [0, self.address_length()]
    }

    fn ports(self) -> [usize; 2] {
        let start = 2 * self.address_length();
        [start, start + 2]
    }
}

/// One rule of each flow type, with all kinds of masks.
#[cfg(test)]
pub(super) fn rules() -> [FlowRule; 4] {
    let udp4 = FlowRule {
        transport: Transport::Udp,
        addresses: Addresses::V4 {
            source: Ipv4Addr::new(192, 0, 2, 1).into(),
            destination: Masked {
                value: Ipv4Addr::new(192, 0, 2, 2),
                mask: Ipv4Addr::new(255, 255, 255, 0),
            },
        },
        source_port: 1000.into(),
        destination_port: 4242.into(),
        ring: 2,
    };
    let tcp6 = FlowRule {
        transport: Transport::Tcp,
        addresses: Addresses::V6 {
            source: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
            destination: Masked::ANY_V6,
        },
        source_port: Masked::ANY_PORT,
        destination_port: Masked {
            value: 443,
            mask: 0xff00,
        },
        ring: 3,
    };
    let udp6 = FlowRule {
        transport: Transport::Udp,
        addresses: Addresses::V6 {
            source: Masked::ANY_V6,
            destination: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2).into(),
        },
        destination_port: Masked::ANY_PORT,
        ring: 1,
        ..tcp6
    };
    let tcp4 = FlowRule {
        transport: Transport::Tcp,
        addresses: Addresses::ANY_V4,
        source_port: 80.into(),
        destination_port: Masked::ANY_PORT,
        ring: 0,
    };
    [udp4, tcp6, udp6, tcp4]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_with_other_fields_is_not_reduced() {
        let spec = Spec::new(&rules()[0], 1);
        let tos_mask = offset_of!(RxFlowSpec, m_u) + 12;
        let vlan_mask = offset_of!(RxFlowSpec, m_ext) + 10;
        // ETHER_FLOW, RX_CLS_FLOW_DISC, a type of service, a VLAN.
        for (at, bytes) in [
            (0, [0x12].as_slice()),
            (offset_of!(RxFlowSpec, ring_cookie), &[0xff; 8]),
            (tos_mask, &[1]),
            (vlan_mask, &[0xff]),
        ] {
            let mut other = spec;
            other.put(at, bytes);
            assert_eq!(other.rule(), None, "byte {at}");
        }
    }
}
