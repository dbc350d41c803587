//! The parts of the measurement, and the runs of those that send frames.

use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

use super::Path;
use crate::traffic::rate::Rate;

/// A part of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// CPU time per frame, and frames a second of one CPU, by number of stations
    Rate,
    /// The same with many other entries in the forwarding database
    Entries,
    /// Softirq time of all paths at the highest rate of the bridge
    Softirq,
    /// Bulk TCP between two containers (iperf3)
    Tcp,
    /// Following changes of the forwarding database
    Following,
    /// Time to attach and to detach four ports
    Attach,
    /// Memory of the daemon
    Memory,
}

/// The frames that a load makes in a second, and how they come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Frames a second.
    pub rate: Rate,
    /// Frames that come at once.
    pub burst: u64,
}

/// The numbers of frames that come at once in the part [`Part::Softirq`]: as they are made, and as from a card
/// that coalesces its interrupts.
pub const BURSTS: [u64; 2] = [1, 64];

/// The stations that send and receive, and the entries of the forwarding database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Traffic {
    /// Pairs of stations, one on either side of the switch, that exchange frames.
    pub pairs: u64,
    /// Entries of the forwarding database for stations without traffic.
    pub idle_entries: u64,
}

impl Part {
    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Entries => "entries",
            Self::Softirq => "softirq",
            Self::Tcp => "TCP",
            Self::Following => "following changes",
            Self::Attach => "attaching",
            Self::Memory => "memory",
        }
    }
}

impl Traffic {
    /// Its name in messages.
    pub fn name(self) -> String {
        let plural = if self.pairs == 1 { "" } else { "s" };
        let pairs = format!("{} pair{plural} of stations", self.pairs);
        match self.idle_entries {
            0 => pairs,
            idle => format!("{pairs}, {idle} idle entries"),
        }
    }
}

/// What is measured.
#[derive(Debug, Clone)]
pub struct Options {
    /// The parts.
    pub parts: Vec<Part>,
    /// The switches.
    pub paths: Vec<Path>,
    /// Numbers of pairs of stations, for the rate.
    pub pairs: Vec<u64>,
    /// The entries of the forwarding database, for that part and for the daemon's memory.
    pub entries: u64,
    /// Repetitions of each run.
    pub rounds: u32,
    /// The settings of all runs.
    pub settings: Settings,
}

/// The settings of all runs.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Frame length without the FCS.
    pub size: u16,
    /// The length of a window.
    pub window: Duration,
    /// The CPU of the load, and of the softirqs that forward.
    pub load_cpu: usize,
    /// The CPU of processes: of a switch in user space, of the daemon, of this program.
    pub app_cpu: usize,
}

/// The pairs with traffic where the number of entries varies, and for softirq time.
pub const FEW: u64 = 100;

impl Options {
    /// Whether a part is wanted.
    pub fn has(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }

    /// The traffic of the part [`Part::Rate`] or [`Part::Entries`].
    pub fn traffic(&self, part: Part) -> Vec<Traffic> {
        let plain = |pairs| Traffic {
            pairs,
            idle_entries: 0,
        };
        match part {
            Part::Rate => self.pairs.iter().copied().map(plain).collect(),
            Part::Entries => vec![
                plain(FEW),
                Traffic {
                    pairs: FEW,
                    idle_entries: self.entries.saturating_sub(2 * FEW),
                },
            ],
            _ => vec![plain(FEW)],
        }
    }

    /// The paths of a part.
    pub fn paths(&self, part: Part) -> Vec<Path> {
        let all = self.paths.iter().copied();
        match part {
            // The entries are those of a bridge.
            Part::Entries => all.filter(|path| path.has_bridge()).collect(),
            Part::Tcp => all
                .filter(|path| matches!(path, Path::Bridge | Path::WeirTcx))
                .collect(),
            _ => all.collect(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn options() -> Options {
        Options {
            parts: vec![Part::Rate],
            paths: Path::value_variants().to_vec(),
            pairs: vec![1, 100],
            entries: 100_000,
            rounds: 2,
            settings: Settings {
                size: 64,
                window: Duration::from_secs(1),
                load_cpu: 0,
                app_cpu: 1,
            },
        }
    }

    #[test]
    fn the_entries_are_those_of_a_bridge() {
        let options = options();
        let paths = options.paths(Part::Entries);
        assert_eq!(paths, [Path::Bridge, Path::WeirXdp, Path::WeirTcx]);
        let entries = options.traffic(Part::Entries);
        // Both stations of a pair have one.
        let all: Vec<u64> = entries
            .iter()
            .map(|it| 2 * it.pairs + it.idle_entries)
            .collect();
        assert_eq!(all, [200, 100_000]);
    }
}
