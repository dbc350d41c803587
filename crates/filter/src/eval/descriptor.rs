//! The packet while it is judged: `struct pf_pdesc`.

use std::net::IpAddr;

use super::icmp::{self, Mapping};
use crate::packet::flags::ACK;
use crate::packet::{Content, ECN, Packet, Tcp};
use crate::rule::{Direction, Family};

/// `IPTOS_LOWDELAY`
const LOW_DELAY: u8 = 0x10;

/// The packet while it is judged.
#[derive(Clone, Debug)]
pub(super) struct Descriptor {
    pub packet: Packet,
    pub family: Family,
    /// Family that it is translated to.
    pub new_family: Family,
    pub is_fragment: bool,
    /// TOS without ECN.
    pub tos: u8,
    /// Addresses that rules see: translated by those before.
    pub new_source: IpAddr,
    pub new_destination: IpAddr,
    /// Ports of the packet, and those that rules see.
    pub source_port: u16,
    pub destination_port: u16,
    pub new_source_port: u16,
    pub new_destination_port: u16,
    /// The kind of an ICMP message.
    pub icmp: Option<Mapping>,
}

impl Descriptor {
    pub fn new(packet: Packet) -> Self {
        let family = packet.family();
        let (source_port, destination_port) = packet.ports().unwrap_or((0, 0));
        let mapping = packet.icmp().map(|message| icmp::mapping(message, family));
        let is_fragment = packet.fragment().is_some();
        Self {
            family,
            new_family: family,
            is_fragment,
            tos: packet.tos & !ECN,
            new_source: packet.source,
            new_destination: packet.destination,
            source_port,
            destination_port,
            new_source_port: source_port,
            new_destination_port: destination_port,
            icmp: mapping,
            packet,
        }
    }

    pub fn direction(&self) -> Direction {
        self.packet.direction
    }

    /// Index of the source in a key: keys have the outside first for packets that come in.
    pub fn source_index(&self) -> usize {
        usize::from(self.direction() == Direction::Out)
    }

    pub fn destination_index(&self) -> usize {
        1 - self.source_index()
    }

    pub fn tcp(&self) -> Option<&Tcp> {
        self.packet.tcp()
    }

    /// Makes the identifier and type of an ICMP message its ports, as rules and states see them.
    pub fn set_icmp_ports(&mut self) {
        let Some(mapping) = self.icmp else { return };
        let (source, destination) = if mapping.is_query {
            (mapping.id, mapping.kind)
        } else {
            (mapping.kind, mapping.id)
        };
        (self.source_port, self.new_source_port) = (source, source);
        (self.destination_port, self.new_destination_port) = (destination, destination);
    }

    /// Whether it has IP options, and no rule or state with `allow-opts`.
    pub fn lacks_permission(&self, allow_options: bool) -> bool {
        self.packet.has_options() && !allow_options
    }

    /// Whether the second of two priorities and queues holds for it: pure ACKs and low delay.
    pub fn is_urgent(&self) -> bool {
        let pure_ack = matches!(&self.packet.content, Content::Tcp(tcp) if tcp.flags & ACK != 0 && tcp.length == 0);
        pure_ack || self.tos & LOW_DELAY != 0
    }

    /// Whether rules so far translated it.
    pub fn is_translated(&self) -> bool {
        self.new_source != self.packet.source
            || self.new_destination != self.packet.destination
            || self.new_source_port != self.source_port
            || self.new_destination_port != self.destination_port
            || self.new_family != self.family
    }
}
