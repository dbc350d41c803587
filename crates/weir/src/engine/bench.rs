//! The benches: the name, the properties and the loop of each.
//!
//! Processes, checks and reports ask for the properties and name no bench. The libxdp engine has
//! its own table, in `libxdp/loop.c`.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::Failure;
use super::moves::{Moves, Unread};
use super::protocol::Totals;
use super::rounds::Rounds;
use crate::traffic::frame::Tracker;

/// The work done on packets. The first line of each is its description, in help and reports.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Bench {
    /// Receive and drop
    Rxdrop,
    /// Send
    Txpush,
    /// Receive, swap the MAC addresses, send back
    L2fwd,
}

/// The way of packets through the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    /// They end in it.
    In,
    /// They begin in it.
    Out,
    /// Each that it receives it also sends.
    Through,
}

struct Properties {
    flow: Flow,
    /// Its effect on a device of this host, announced beforehand; `None` if it sends nothing.
    notice: Option<&'static str>,
}

impl Bench {
    fn properties(self) -> Properties {
        match self {
            Self::Rxdrop => Properties {
                flow: Flow::In,
                notice: None,
            },
            Self::Txpush => Properties {
                flow: Flow::Out,
                notice: Some("sends UDP from 198.18.0.1 to 198.18.0.2 at full speed"),
            },
            Self::L2fwd => Properties {
                flow: Flow::Through,
                notice: Some("sends back each packet, with MAC addresses swapped"),
            },
        }
    }

    /// Runs its loop until the end of `rounds`. With `verify` a bench that only receives leaves
    /// its own work for that of `tracker`, which checks every payload.
    pub fn run<M: Moves>(
        self,
        rounds: &Rounds<'_>,
        socket: &mut M,
        tracker: &mut Tracker,
        verify: bool,
    ) -> Result<Totals, Failure> {
        if verify && self.properties().flow == Flow::In {
            return rounds.receive(socket, tracker);
        }
        // Each arm is compiled into a loop of its own.
        match self {
            Self::Rxdrop => rounds.receive(socket, &mut Unread),
            Self::Txpush => rounds.send(socket),
            Self::L2fwd => rounds.forward(socket, tracker),
        }
    }

    /// All of them, in the order that they run in.
    pub fn all() -> &'static [Self] {
        Self::value_variants()
    }

    /// A line of text.
    pub fn description(self) -> String {
        let value = self.to_possible_value();
        let help = value.and_then(|value| value.get_help().cloned());
        help.unwrap_or_default().to_string()
    }

    /// Whether packets arrive: in a lab the load sends them.
    pub fn receives(self) -> bool {
        self.properties().flow != Flow::Out
    }

    /// Whether packets leave: in a lab the sink counts and verifies them.
    pub fn sends(self) -> bool {
        self.properties().flow != Flow::In
    }

    /// Whether as many packets leave as were received.
    pub fn forwards(self) -> bool {
        self.properties().flow == Flow::Through
    }

    /// The effect on a device of this host, announced beforehand; `None` if it sends nothing.
    pub fn notice(self) -> Option<&'static str> {
        self.properties().notice
    }
}

impl fmt::Display for Bench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        value.map_or(Ok(()), |value| f.pad(value.get_name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bench_moves_packets_and_is_described() {
        for bench in Bench::all() {
            assert!(bench.receives() || bench.sends(), "{bench}");
            assert_eq!(bench.notice().is_some(), bench.sends(), "{bench}");
            assert!(!bench.description().is_empty(), "{bench}");
        }
        assert_eq!(Bench::L2fwd.to_string(), "l2fwd");
        assert_eq!(Bench::Rxdrop.description(), "Receive and drop");
    }
}
