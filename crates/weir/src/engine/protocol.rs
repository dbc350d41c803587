//! What the bench and its workers say to each other: the words of the command line and
//! one JSON object a line on the worker's standard output.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Who moves the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// AF_XDP through weir's own library
    Xsk,
    /// AF_PACKET with rings of TPACKET version 2
    PacketV2,
    /// AF_PACKET with rings of TPACKET version 3
    PacketV3,
    /// AF_XDP through libxdp, as xdpsock does it
    Libxdp,
}

/// What is done with the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bench {
    /// Receive and drop
    Rxdrop,
    /// Send
    Txpush,
    /// Receive, swap the MAC addresses, send back
    L2fwd,
}

/// Where in the kernel an AF_XDP socket meets its packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The best that the device offers
    Auto,
    /// After the kernel has made a socket buffer: any device
    Skb,
    /// In the driver, copied
    Drv,
    /// In the driver, not copied
    Zc,
}

/// How a worker waits for packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// Never sleep
    Spin,
    /// Sleep in poll(2) before every round
    Poll,
    /// Spin while packets come, sleep when they stop
    Adaptive,
}

macro_rules! display_as_typed {
    ($($name:ident),*) => {$(
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.to_possible_value().map_or(Ok(()), |value| f.pad(value.get_name()))
            }
        }
    )*};
}
display_as_typed!(Engine, Bench, Mode, Wait);

/// A line of a worker's standard output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The socket is open and the loop starts.
    Ready {
        /// The mode that the kernel reports; `None` where there is no choice.
        mode_obtained: Option<Mode>,
        /// Better modes that were tried first, each with its errno and reason.
        refusals: Vec<String>,
    },
    /// Nothing can be measured; the worker exits with status 1.
    Failed {
        /// What was being done.
        step: String,
        /// The error number, or 0 if the failure has none.
        errno: i32,
        /// Cause and cure.
        message: String,
    },
    /// The measuring window is over; the loop runs on.
    Window {
        /// Packets handled in the window: received, or sent and completed.
        packets: u64,
        /// Its true length.
        seconds: f64,
        /// The loop's thread in user mode, in nanoseconds.
        user_ns: u64,
        /// The loop's thread in the kernel, in nanoseconds.
        sys_ns: u64,
    },
    /// The turn is over: nothing more can be done in it.
    Turn {
        /// Packets handled in it: received, or sent and completed.
        packets: u64,
        /// Its CPU time.
        ns: u64,
    },
    /// Totals since the start, after SIGTERM and with everything drained.
    Done(Totals),
}

/// Everything a worker saw from its start to its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Packets received.
    pub received: u64,
    /// Packets sent, and completed by the kernel.
    pub sent: u64,
    /// Packets that reached the socket and were dropped by the kernel there.
    pub kernel_drops: u64,
    /// Frames whose contents were wrong. This and the rest are 0 unless payloads are read.
    pub corrupted: u64,
    /// Frames that came twice.
    pub duplicates: u64,
    /// Frames that came after a later one.
    pub reordered: u64,
    /// Frames that did not come: normal under overload.
    pub lost: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_the_agreed_form() {
        let ready = Event::Ready {
            mode_obtained: Some(Mode::Drv),
            refusals: vec!["zc: EOPNOTSUPP (95)".into()],
        };
        let done = Event::Done(Totals {
            received: 3,
            ..Totals::default()
        });
        let lines = [
            (
                ready,
                r#"{"event":"ready","mode_obtained":"drv","refusals":["zc: EOPNOTSUPP (95)"]}"#,
            ),
            (
                done,
                r#"{"event":"done","received":3,"sent":0,"kernel_drops":0,"corrupted":0,"duplicates":0,"reordered":0,"lost":0}"#,
            ),
        ];
        for (event, line) in lines {
            assert_eq!(serde_json::to_string(&event).expect("serializes"), line);
            assert_eq!(serde_json::from_str::<Event>(line).expect("parses"), event);
        }
    }

    #[test]
    fn words_are_shown_as_they_are_typed() {
        assert_eq!(Engine::PacketV3.to_string(), "packet-v3");
        assert_eq!(Bench::L2fwd.to_string(), "l2fwd");
        assert_eq!(format!("{:>4}", Mode::Zc), "  zc");
    }
}
