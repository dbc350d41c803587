//! The engines: AF_XDP, AF_PACKET and UDP sockets that run the same benches.

use std::{fmt, io};

use clap::ValueEnum;
use hostnet::privilege::{self, Capability, Feature};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::traffic::frame::{MAX_LINEAR_SIZE, MAX_LIVE_SIZE, MAX_SIZE};

pub mod af_packet;
pub mod bench;
pub mod brokered;
pub mod busy_poll;
pub mod halves;
pub mod jumbo;
pub mod libxdp;
pub mod moves;
pub mod pinger;
pub mod protocol;
pub mod rounds;
pub mod udp;
pub mod worker;
pub mod xsk;

/// The socket API that moves the packets, in the order of the report's columns.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// AF_PACKET, TPACKET version 2 rings
    PacketV2,
    /// AF_PACKET, TPACKET version 3 rings
    PacketV3,
    /// UDP socket, through the network stack
    Udp,
    /// AF_XDP, weir's own library
    Xsk,
    /// AF_XDP, weir's own library, receiving and sending on two CPUs; l2fwd only
    XskHalves,
    /// AF_XDP, weir's own library on a socket of weir-broker
    XskBrokered,
    /// AF_XDP, libxdp as xdpsock uses it
    Libxdp,
}

impl Engine {
    /// Whether it is an AF_XDP socket: these have modes, and an XDP program on the device.
    pub fn is_af_xdp(self) -> bool {
        match self {
            Self::PacketV2 | Self::PacketV3 | Self::Udp => false,
            Self::Xsk | Self::XskHalves | Self::XskBrokered | Self::Libxdp => true,
        }
    }

    /// Whether a frame that the device drops stays in the ring and is sent again (`tpacket_snd` of
    /// `net/packet/af_packet.c`): it counts as sent once. The others count it as sent, and it is gone.
    pub fn sends_dropped_again(self) -> bool {
        matches!(self, Self::PacketV2 | Self::PacketV3)
    }

    /// Whether it can wait in this way.
    pub fn supports(self, wait: Wait) -> bool {
        match wait {
            Wait::Spin | Wait::Poll => true,
            Wait::Adaptive => matches!(self, Self::Xsk | Self::XskHalves | Self::XskBrokered),
            Wait::BusyPoll => matches!(self, Self::Udp | Self::Xsk),
        }
    }

    /// The longest frame that it moves, without the FCS.
    pub fn max_size(self) -> usize {
        match self {
            Self::PacketV2 | Self::PacketV3 | Self::Xsk | Self::Libxdp => MAX_SIZE,
            Self::XskHalves => MAX_LINEAR_SIZE,
            // The broker's chunks are of 2048 bytes.
            Self::Udp | Self::XskBrokered => MAX_LIVE_SIZE,
        }
    }

    /// Whether it can only forward: its two threads receive and send.
    pub fn only_forwards(self) -> bool {
        self == Self::XskHalves
    }

    /// The last line of its column's heading, below the socket family and the mode.
    pub fn heading(self) -> &'static str {
        match self {
            Self::PacketV2 => "V2",
            Self::PacketV3 => "V3",
            Self::Udp => "UDP",
            Self::Xsk => "weir",
            Self::XskHalves => "halves",
            Self::XskBrokered => "broker",
            Self::Libxdp => "libxdp",
        }
    }
}

/// The XDP mode of an AF_XDP socket, in the order of the report's columns.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Generic XDP, after the socket buffer is allocated: any device
    Skb,
    /// Native XDP, in the driver, with a copy
    Drv,
    /// Zero-copy, in the driver
    Zc,
    /// The best mode of the device
    Auto,
}

/// The way an engine waits for packets.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// Spin, never sleep
    Spin,
    /// Sleep in poll(2) before every batch
    Poll,
    /// Spin while packets arrive, sleep when they stop
    Adaptive,
    /// Spin in system calls that poll the device, if it can be polled; never sleep
    BusyPoll,
}

macro_rules! display_as_typed {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.to_possible_value().map_or(Ok(()), |value| f.pad(value.get_name()))
            }
        }
    )*};
}
display_as_typed!(Engine, Mode, Wait);

/// The error that ends an engine: step, errno, likely cause and cure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The step that failed.
    pub step: &'static str,
    /// The error number, or 0 if there is none.
    pub errno: i32,
    /// Cause and cure.
    pub message: String,
}

impl Failure {
    /// A failure of `step` by `error`, explained by `hint`.
    pub fn new(step: &'static str, error: &io::Error, hint: impl fmt::Display) -> Self {
        Self {
            step,
            errno: error.raw_os_error().unwrap_or(0),
            message: format!("{error}: {hint}"),
        }
    }

    /// A refused `SO_RCVBUFFORCE`.
    pub fn of_buffer(errno: Errno) -> Self {
        let needed = [Capability::NetAdmin];
        let hint = privilege::refusal(errno.raw_os_error(), Feature::Base, &needed);
        let hint = hint.unwrap_or_else(|| "this kernel refuses so long a queue".to_owned());
        Self::new("SO_RCVBUFFORCE", &errno.into(), hint)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.step, self.message)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_displayed_as_typed() {
        assert_eq!(Engine::PacketV3.to_string(), "packet-v3");
        assert_eq!(format!("{:>4}", Mode::Zc), "  zc");
    }
}
