//! Packets as pf sees them: decoded from bytes by pf's own rules, or written in words.
//!
//! ```
//! use pf_filter::host::Host;
//! use pf_filter::packet::Packet;
//!
//! let text = "in on em0 proto tcp from 10.0.0.5 port 4000 to 192.0.2.1 port 22 flags S";
//! let packet = Packet::parse(text, &Host::default()).expect("a packet");
//! assert_eq!(packet.to_words(), text);
//! let bytes = packet.to_bytes();
//! assert_eq!(Packet::decode(&bytes, packet.direction, "em0"), Ok(packet));
//! ```

mod bytes;
mod checksum;
mod decode;
mod encode;
mod headers4;
mod headers6;
mod refusal;
mod transport;
mod words;

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

pub use refusal::{Reason, Refusal};
pub use words::WordError;
pub(crate) use words::flag_letters;

use crate::names;
use crate::rule::{Direction, Family};

/// TCP's flags.
pub mod flags {
    /// FIN
    pub const FIN: u8 = 1;
    /// SYN
    pub const SYN: u8 = 2;
    /// RST
    pub const RST: u8 = 4;
    /// PSH
    pub const PSH: u8 = 8;
    /// ACK
    pub const ACK: u8 = 16;
    /// URG
    pub const URG: u8 = 32;
}

/// IGMP.
pub(crate) const IGMP: u8 = 2;
/// IPv6 hop-by-hop options.
pub(crate) const HOP_BY_HOP: u8 = 0;
/// IPv6 routing header.
pub(crate) const ROUTING: u8 = 43;
/// IPv6 fragment header.
pub(crate) const FRAGMENT: u8 = 44;
/// Authentication header.
pub(crate) const AH: u8 = 51;
/// IPv6 destination options.
pub(crate) const DESTINATION_OPTIONS: u8 = 60;
/// Priority of a packet that nothing gave another (`IFQ_DEFPRIO`).
pub const DEFAULT_PRIO: u8 = 3;
/// A user or group that is not known because the packet belongs to no socket.
pub const NO_OWNER: u32 = u32::MAX;

/// Bits of TOS that rules do not see: those of ECN (RFC 3168).
pub(crate) const ECN: u8 = 3;

/// A packet, with facts beside its bytes.
///
/// The fields of the first half come from the packet; those of the second half from the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Which way it goes.
    pub direction: Direction,
    /// Name of the interface that it arrives or leaves on.
    pub interface: Arc<str>,
    /// Source address.
    pub source: IpAddr,
    /// Destination address, of the source's family.
    pub destination: IpAddr,
    /// Protocol that pf compares with `proto`: that behind authentication headers and IPv6
    /// extension headers; 44 for an IPv6 fragment whose protocol pf does not look up.
    pub protocol: u8,
    /// The part behind the IP header.
    pub content: Content,
    /// Type of service, or traffic class, with the two ECN bits.
    pub tos: u8,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// IPv4 identification, or that of the IPv6 fragment header; 0 without one.
    pub id: u32,
    /// IPv4's don't-fragment bit.
    pub dont_fragment: bool,
    /// IPv4 options, and IPv6 extension headers that count as such.
    pub options: IpOptions,
    /// TCP's checksum is right. Only an RST that answers the packet depends on it.
    pub checksum_ok: bool,

    /// Tag that an earlier evaluation gave it.
    pub tag: Option<Arc<str>>,
    /// Routing domain.
    pub rdomain: u32,
    /// Priority, 0 to 7.
    pub prio: u8,
    /// Interface that it was received on, for one that leaves and was forwarded.
    pub received_on: Option<Arc<str>>,
    /// User of its socket, [`NO_OWNER`] where there is none; `None` if nobody knows.
    pub user: Option<u32>,
    /// Group of its socket, as for `user`.
    pub group: Option<u32>,
    /// Operating system that sent it, as the fingerprints name it: `OpenBSD` or `OpenBSD 3.3`.
    pub os: Option<Arc<str>>,
    /// Routes of its addresses.
    pub routes: Routes,
    /// pf made it itself (an RST, an ICMP error): no rule sees it.
    pub generated: bool,
}

/// IP options, by the two kinds that pf tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct IpOptions {
    /// Router alert, which IGMP and MLD may have.
    pub router_alert: bool,
    /// Others: any IPv4 option, or an IPv6 routing, destination options or hop-by-hop header.
    pub other: bool,
}

/// Facts of the routing table, which pf asks for with `no-route`, `urpf-failed` and `route`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Routes {
    /// The route to the source; `None` if nobody knows.
    pub source: Option<RouteTo>,
    /// The route to the destination; `None` if nobody knows.
    pub destination: Option<RouteTo>,
    /// The route to the source does not leave by the packet's interface; `None` if nobody knows.
    pub urpf_failed: Option<bool>,
}

/// The route to an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteTo {
    /// There is none.
    None,
    /// There is one, perhaps with a label.
    Some(Option<Arc<str>>),
}

/// The part behind the IP header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// TCP.
    Tcp(Tcp),
    /// UDP.
    Udp(Udp),
    /// ICMP or `ICMPv6`.
    Icmp(Icmp),
    /// Another protocol, with this many bytes.
    Other(u16),
    /// A fragment, into which pf does not look.
    Fragment(Fragment),
}

/// A TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Flags: FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128.
    pub flags: u8,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// Window, as in the header.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// Bytes of data.
    pub length: u16,
    /// Maximum segment size, from the options.
    pub mss: Option<u16>,
    /// Window scale, from the options: 0 to 14.
    pub window_scale: Option<u8>,
}

/// A UDP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Bytes of data.
    pub length: u16,
}

/// An ICMP or `ICMPv6` message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Icmp {
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// Identifier of a query; in other messages the bytes at its place.
    pub id: u16,
    /// Target of neighbour discovery, or group of MLD.
    pub target: Option<Ipv6Addr>,
    /// Start of the packet that an error is about; `None` in other messages, and where it is cut
    /// off, inconsistent, or a later fragment: then no state is looked for.
    pub about: Option<About>,
    /// Bytes that follow; 0 for an error with a packet.
    pub length: u16,
}

/// The packet that an ICMP error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// Its source.
    pub source: IpAddr,
    /// Its destination.
    pub destination: IpAddr,
    /// Its protocol.
    pub protocol: u8,
    /// Start of its transport header.
    pub header: AboutHeader,
}

/// The first bytes of a transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AboutHeader {
    /// TCP.
    Tcp {
        /// Source port.
        source_port: u16,
        /// Destination port.
        destination_port: u16,
        /// Sequence number.
        seq: u32,
    },
    /// UDP.
    Udp {
        /// Source port.
        source_port: u16,
        /// Destination port.
        destination_port: u16,
    },
    /// ICMP or `ICMPv6`.
    Icmp {
        /// Type.
        kind: u8,
        /// Code.
        code: u8,
        /// Identifier.
        id: u16,
    },
    /// Another protocol.
    Other,
}

/// A fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Offset in bytes, a multiple of 8.
    pub offset: u16,
    /// More fragments follow.
    pub more: bool,
    /// Protocol in the IPv4 header or the IPv6 fragment header.
    pub next: u8,
    /// Its bytes, after that header.
    pub payload: Arc<[u8]>,
}

impl Packet {
    /// A packet with neither options nor context, a TTL of 64, and the content given.
    /// Its protocol follows from the content; that of [`Content::Other`] is to be set.
    pub fn new(
        direction: Direction,
        interface: impl Into<Arc<str>>,
        source: IpAddr,
        destination: IpAddr,
        content: Content,
    ) -> Self {
        let icmp = if source.is_ipv4() {
            names::ICMP
        } else {
            names::ICMP6
        };
        let protocol = match &content {
            Content::Tcp(_) => names::TCP,
            Content::Udp(_) => names::UDP,
            Content::Icmp(_) => icmp,
            Content::Other(_) => 0,
            Content::Fragment(fragment) => fragment.next,
        };
        let mut packet = Self {
            direction,
            interface: interface.into(),
            source,
            destination,
            protocol,
            content,
            tos: 0,
            ttl: 64,
            id: 0,
            dont_fragment: false,
            options: IpOptions::default(),
            checksum_ok: true,
            tag: None,
            rdomain: 0,
            prio: DEFAULT_PRIO,
            received_on: None,
            user: None,
            group: None,
            os: None,
            routes: Routes::default(),
            generated: false,
        };
        packet.ttl = packet.usual_ttl();
        packet
    }

    /// Family of its addresses.
    pub fn family(&self) -> Family {
        Family::of(self.source)
    }

    /// The TCP segment.
    pub fn tcp(&self) -> Option<&Tcp> {
        match &self.content {
            Content::Tcp(tcp) => Some(tcp),
            _ => None,
        }
    }

    /// The ICMP message.
    pub fn icmp(&self) -> Option<&Icmp> {
        match &self.content {
            Content::Icmp(icmp) => Some(icmp),
            _ => None,
        }
    }

    /// The fragment.
    pub fn fragment(&self) -> Option<&Fragment> {
        match &self.content {
            Content::Fragment(fragment) => Some(fragment),
            _ => None,
        }
    }

    /// Source and destination port of TCP and UDP.
    pub fn ports(&self) -> Option<(u16, u16)> {
        match &self.content {
            Content::Tcp(tcp) => Some((tcp.source_port, tcp.destination_port)),
            Content::Udp(udp) => Some((udp.source_port, udp.destination_port)),
            _ => None,
        }
    }

    /// Whether it has IP options that a rule must allow. Router alerts of IGMP and MLD need no
    /// permission.
    pub fn has_options(&self) -> bool {
        let excused = match (&self.content, self.family()) {
            (Content::Icmp(icmp), Family::Inet6) => is_mld(icmp.kind),
            (_, Family::Inet) => self.protocol == IGMP,
            _ => false,
        };
        self.options.other || (self.options.router_alert && !excused)
    }

    /// The cause of its refusal before any rule, by its fields alone (`pf_setup_pdesc`). A packet
    /// that was decoded has none.
    pub fn refusal(&self) -> Option<Refusal> {
        if self.source.is_ipv4() != self.destination.is_ipv4() {
            return Some(Refusal::MixedFamilies);
        }
        let family = self.family();
        if family == Family::Inet
            && self.protocol == IGMP
            && self.ttl != 1
            && is_all_hosts(self.destination)
        {
            return Some(Refusal::IgmpTtl);
        }
        match &self.content {
            Content::Tcp(tcp) if tcp.destination_port == 0 => Some(Refusal::PortZero),
            Content::Udp(udp) if udp.destination_port == 0 => Some(Refusal::PortZero),
            Content::Icmp(icmp) => self.icmp_refusal(icmp, family),
            _ => None,
        }
    }

    fn icmp_refusal(&self, icmp: &Icmp, family: Family) -> Option<Refusal> {
        let own = if family == Family::Inet {
            names::ICMP
        } else {
            names::ICMP6
        };
        if self.protocol == names::ICMP6 && is_neighbour_discovery(icmp.kind) && self.ttl != 255 {
            return Some(Refusal::NeighbourDiscovery);
        }
        if family == Family::Inet6 && self.protocol == own && is_mld(icmp.kind) {
            let local = matches!(self.source, IpAddr::V6(source) if source.is_unicast_link_local());
            if self.ttl != 1 || !local {
                return Some(Refusal::Mld);
            }
        }
        (self.protocol != own).then_some(Refusal::IcmpOfOtherFamily)
    }

    /// The TTL that a valid packet of this kind usually has.
    fn usual_ttl(&self) -> u8 {
        match &self.content {
            Content::Icmp(icmp) if self.source.is_ipv6() && is_neighbour_discovery(icmp.kind) => {
                255
            }
            Content::Icmp(icmp) if self.source.is_ipv6() && is_mld(icmp.kind) => 1,
            _ if self.source.is_ipv4() && self.protocol == IGMP => 1,
            _ => 64,
        }
    }
}

impl Tcp {
    /// A segment without data.
    pub fn new(source_port: u16, destination_port: u16, flags: u8) -> Self {
        Self {
            source_port,
            destination_port,
            flags,
            seq: 1000,
            ack: 0,
            window: 65_535,
            urgent: 0,
            length: 0,
            mss: None,
            window_scale: None,
        }
    }
}

impl Icmp {
    /// A message without data.
    pub fn new(kind: u8, code: u8) -> Self {
        Self {
            kind,
            code,
            id: 0,
            target: None,
            about: None,
            length: 0,
        }
    }
}

/// MLD, whose messages may have a router alert.
pub(crate) fn is_mld(kind: u8) -> bool {
    matches!(kind, 130..=132 | 143)
}

/// Neighbour discovery, whose messages need a hop limit of 255.
pub(crate) fn is_neighbour_discovery(kind: u8) -> bool {
    matches!(kind, 133..=137)
}

/// `ICMPv6` messages whose target or group pf reads.
pub(crate) fn has_target(kind: u8) -> bool {
    matches!(kind, 130 | 131 | 135 | 136)
}

/// ICMP messages that are about another packet.
pub(crate) fn is_icmp_error(kind: u8, family: Family) -> bool {
    match family {
        Family::Inet => matches!(kind, 3 | 4 | 5 | 11 | 12),
        Family::Inet6 => matches!(kind, 1..=4),
    }
}

fn is_all_hosts(address: IpAddr) -> bool {
    address == IpAddr::from([224, 0, 0, 1])
}
