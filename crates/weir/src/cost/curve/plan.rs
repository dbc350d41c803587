//! The combinations of a curve and their order.

use std::fmt;

use serde::Serialize;

use super::Path;
use crate::traffic::rate::Rate;

/// The combinations to measure.
#[derive(Debug, Clone)]
pub struct Choices {
    /// The paths.
    pub paths: Vec<Path>,
    /// The rates, shared by all receivers.
    pub rates: Vec<Rate>,
    /// Numbers of receivers.
    pub receivers: Vec<u8>,
    /// Repetitions of each combination.
    pub rounds: u32,
}

/// A path, a number of receivers and a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Combination {
    /// The path.
    pub path: Path,
    /// The number of receivers.
    pub receivers: u8,
    /// The target rate of the load, shared by all receivers.
    #[serde(rename = "target_pps")]
    pub rate: Rate,
}

impl fmt::Display for Combination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.receivers == 1 { "" } else { "s" };
        let (path, receivers, rate) = (self.path, self.receivers, self.rate);
        write!(f, "{path}, {receivers} receiver{plural}, {rate} pps")
    }
}

impl Choices {
    /// The number of runs if every path is available.
    pub fn most_runs(&self) -> u32 {
        let combinations = self.paths.len() * self.rates.len() * self.receivers.len();
        self.rounds.saturating_mul(combinations as u32)
    }

    /// All runs in order, with their rounds from 1. Every path has its turn at a rate before the
    /// next round, so that drift of the machine affects all of them.
    pub fn runs<'a>(
        &'a self,
        stages: &'a [(Path, u8)],
    ) -> impl Iterator<Item = (u32, Combination)> + 'a {
        self.receivers.iter().flat_map(move |&receivers| {
            self.rates.iter().flat_map(move |&rate| {
                (1..=self.rounds).flat_map(move |round| {
                    stages.iter().filter(move |(_, of)| *of == receivers).map(
                        move |&(path, receivers)| {
                            let combination = Combination {
                                path,
                                receivers,
                                rate,
                            };
                            (round, combination)
                        },
                    )
                })
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_take_turns_at_every_rate() {
        let choices = Choices {
            paths: vec![Path::Bridge, Path::Xdp],
            rates: vec![Rate(1000), Rate(2000)],
            receivers: vec![1, 2],
            rounds: 2,
        };
        let stages = [(Path::Bridge, 1), (Path::Xdp, 1), (Path::Xdp, 2)];
        let runs: Vec<String> = choices
            .runs(&stages)
            .map(|(round, combination)| format!("{round} {combination}"))
            .collect();
        let expected = [
            "1 bridge, 1 receiver, 1k pps",
            "1 xdp, 1 receiver, 1k pps",
            "2 bridge, 1 receiver, 1k pps",
            "2 xdp, 1 receiver, 1k pps",
            "1 bridge, 1 receiver, 2k pps",
            "1 xdp, 1 receiver, 2k pps",
            "2 bridge, 1 receiver, 2k pps",
            "2 xdp, 1 receiver, 2k pps",
            "1 xdp, 2 receivers, 1k pps",
            "2 xdp, 2 receivers, 1k pps",
            "1 xdp, 2 receivers, 2k pps",
            "2 xdp, 2 receivers, 2k pps",
        ];
        assert_eq!(runs, expected);
    }
}
