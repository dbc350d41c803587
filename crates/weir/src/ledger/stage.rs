//! The stages of a packet's path.

use serde::{Deserialize, Serialize};

/// The unit that a stage counts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Frames, as a card or an XDP program has them.
    Frames,
    /// Packets as the stack handles them: GRO makes one of several, TSO keeps several as one.
    Skbs,
    /// Packets as they are on the wire, however the stack carries them.
    Segments,
}

impl Unit {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Frames => "frames",
            Self::Skbs => "skbs",
            Self::Segments => "segments",
        }
    }
}

/// A stage of a packet's path, in the order in which a received packet meets them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The card: its rings and errors.
    Card,
    /// The driver or the virtual device.
    Driver,
    /// XDP programs and redirects.
    Xdp,
    /// AF_XDP sockets.
    AfXdp,
    /// Merging of packets (GRO).
    Gro,
    /// The backlog of a CPU.
    Backlog,
    /// AF_PACKET sockets.
    Packet,
    /// Programs and filters of tc.
    Tc,
    /// A bridge.
    Bridge,
    /// The layer that hands packets to protocols.
    Stack,
    /// Rules of netfilter.
    Netfilter,
    /// IPv4 and IPv6.
    Ip,
    /// ARP and neighbour discovery.
    Neighbour,
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
    /// Other transport protocols.
    Transport,
    /// The queue of a socket.
    Socket,
    /// The process that reads a socket.
    Application,
    /// Queueing disciplines.
    Qdisc,
    /// Sending by the device.
    Transmit,
}

impl Stage {
    /// All, in order.
    pub const ALL: [Self; 20] = [
        Self::Card,
        Self::Driver,
        Self::Xdp,
        Self::AfXdp,
        Self::Gro,
        Self::Backlog,
        Self::Packet,
        Self::Tc,
        Self::Bridge,
        Self::Stack,
        Self::Netfilter,
        Self::Ip,
        Self::Neighbour,
        Self::Udp,
        Self::Tcp,
        Self::Transport,
        Self::Socket,
        Self::Application,
        Self::Qdisc,
        Self::Transmit,
    ];

    /// Its name in reports, labels and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Card => "card",
            Self::Driver => "driver",
            Self::Xdp => "xdp",
            Self::AfXdp => "af_xdp",
            Self::Gro => "gro",
            Self::Backlog => "backlog",
            Self::Packet => "packet",
            Self::Tc => "tc",
            Self::Bridge => "bridge",
            Self::Stack => "stack",
            Self::Netfilter => "netfilter",
            Self::Ip => "ip",
            Self::Neighbour => "neighbour",
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Transport => "transport",
            Self::Socket => "socket",
            Self::Application => "application",
            Self::Qdisc => "qdisc",
            Self::Transmit => "transmit",
        }
    }

    /// The unit of its losses.
    pub fn unit(self) -> Unit {
        match self {
            Self::Card | Self::Driver | Self::Xdp | Self::AfXdp | Self::Transmit => Unit::Frames,
            _ => Unit::Skbs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_json() {
        for stage in Stage::ALL {
            let json = serde_json::to_value(stage).expect("a name");
            assert_eq!(json, stage.name());
        }
        assert!(Stage::ALL.is_sorted());
    }
}
