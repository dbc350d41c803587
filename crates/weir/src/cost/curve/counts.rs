//! Frames as the lab, the path and the receivers count them.

use serde::Serialize;

use crate::engine::protocol::Totals;
use hostnet::device::Counters;

/// Counters of everything on a path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// The load's device.
    pub load: Counters,
    /// The host's device.
    pub host: Counters,
    /// Each tap.
    pub taps: Vec<Counters>,
    /// The path's own.
    pub path: PathCounters,
}

/// Counters of a path's own; those that it does not have are zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PathCounters {
    /// Frames redirected to a receiver.
    pub forwarded: u64,
    /// Frames left to the network stack.
    pub unknown: u64,
    /// Packets that receivers read.
    pub received: u64,
    /// Packets dropped by the path itself or at a full receive buffer.
    pub dropped: u64,
}

/// Frames lost from the first to the last of a run, by place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Drops {
    /// The device had no room: its NAPI was late.
    pub device: u64,
    /// A tap's ring or a socket's buffer was full: its receiver was late.
    pub receiver: u64,
    /// A switch in user space was late.
    pub switch: u64,
}

impl Counts {
    /// The difference to an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let taps = earlier.taps.iter().zip(&self.taps);
        Self {
            load: self.load.since(&earlier.load),
            host: self.host.since(&earlier.host),
            taps: taps.map(|(then, now)| now.since(then)).collect(),
            path: self.path.since(earlier.path),
        }
    }

    /// Frames that the load made, those that the host's device had no room for included.
    pub fn offered(&self) -> u64 {
        self.load.tx_packets + self.load.tx_dropped
    }

    /// Frames that were read from taps.
    pub fn read_from_taps(&self) -> u64 {
        self.taps.iter().map(|tap| tap.tx_packets).sum()
    }

    /// Frames that found a tap's ring full.
    pub fn dropped_by_taps(&self) -> u64 {
        self.taps.iter().map(|tap| tap.tx_dropped).sum()
    }
}

impl PathCounters {
    fn since(self, earlier: Self) -> Self {
        Self {
            forwarded: self.forwarded - earlier.forwarded,
            unknown: self.unknown - earlier.unknown,
            received: self.received - earlier.received,
            dropped: self.dropped - earlier.dropped,
        }
    }
}

impl Drops {
    /// Frames that found the ring of an engine's socket full.
    pub fn of_engines(totals: &[Totals]) -> Self {
        Self {
            receiver: totals.iter().map(|it| it.kernel_drops).sum(),
            ..Self::default()
        }
    }

    /// Frames lost anywhere.
    pub fn total(&self) -> u64 {
        self.device + self.receiver + self.switch
    }
}
