//! The plan: rates, ways to answer, and their order.

use std::fmt;

use anyhow::Result;
use serde::Serialize;

use crate::bench::plan::{self, Choices, Combination, Unavailable};
use crate::engine::bench::Bench;
use crate::engine::{Engine, Mode, Wait};
use crate::traffic::frame::MIN_SIZE;
use crate::traffic::rate::Rate;

/// One way to answer a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Way {
    /// The socket API.
    pub engine: Engine,
    /// The mode asked for; `None` for an engine that has none.
    pub mode: Option<Mode>,
    /// How the engine waits.
    pub wait: Wait,
}

impl Way {
    /// The bench that a worker runs for it: it sends back each packet.
    pub fn combination(self) -> Combination {
        Combination {
            bench: Bench::L2fwd,
            engine: self.engine,
            mode: self.mode,
            wait: self.wait,
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.engine)?;
        if let Some(mode) = self.mode {
            write!(f, " {mode}")?;
        }
        write!(f, " {}", self.wait)
    }
}

/// A way at a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Case {
    /// Packets a second that are offered.
    #[serde(rename = "offered_pps")]
    pub rate: Rate,
    /// The way.
    #[serde(flatten)]
    pub way: Way,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}/s", self.way, self.rate)
    }
}

/// The cases to be measured.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Each way once, in the order of their turns.
    pub ways: Vec<Way>,
    /// Choices left out.
    pub unavailable: Vec<Unavailable>,
    rates: Vec<Rate>,
    rounds: u32,
}

impl Plan {
    /// The plan for these choices; an error if nothing is available. Doubles count once.
    pub fn new(
        engines: &[Engine],
        modes: &[Mode],
        waits: &[Wait],
        rates: &[Rate],
        rounds: u32,
    ) -> Result<Self> {
        let plan = plan::Plan::new(&Choices {
            benches: vec![Bench::L2fwd],
            engines: engines.to_vec(),
            modes: modes.to_vec(),
            waits: waits.to_vec(),
            rounds,
            size: MIN_SIZE as u16,
        })?;
        let mut rates = rates.to_vec();
        rates.sort_unstable();
        rates.dedup();
        let way = |it: &Combination| Way {
            engine: it.engine,
            mode: it.mode,
            wait: it.wait,
        };
        Ok(Self {
            ways: plan.combinations.iter().map(way).collect(),
            unavailable: plan.unavailable,
            rates,
            rounds,
        })
    }

    /// All runs in order, with their rounds from 1. At each rate all ways have their turn in every
    /// round, so that a drift of the machine affects all of them.
    pub fn runs(&self) -> impl Iterator<Item = (u32, Case)> {
        self.rates.iter().flat_map(move |&rate| {
            (1..=self.rounds).flat_map(move |round| {
                let ways = self.ways.iter();
                ways.map(move |&way| (round, Case { rate, way }))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_take_turns_at_each_rate() {
        let engines = [Engine::PacketV2, Engine::Xsk];
        let waits = [Wait::Spin, Wait::Adaptive];
        let rates = [10_000, 1_000, 10_000].map(Rate);
        let plan = Plan::new(&engines, &[Mode::Drv], &waits, &rates, 2).expect("a plan");
        let runs: Vec<String> = plan
            .runs()
            .map(|(round, case)| format!("{round} {case}"))
            .collect();
        let ways = ["packet-v2 spin", "xsk drv spin", "xsk drv adaptive"];
        let expected = ["1k", "10k"].into_iter().flat_map(|rate| {
            (1..=2).flat_map(move |round| ways.map(|way| format!("{round} {way} at {rate}/s")))
        });
        assert_eq!(runs, expected.collect::<Vec<_>>());
        // AF_PACKET does not wait adaptively.
        assert_eq!(plan.unavailable.len(), 1);
    }
}
