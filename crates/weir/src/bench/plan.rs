//! What is to be measured, in which order, and what cannot be.

use serde::Serialize;

use crate::engine::bench::Bench;
use crate::engine::libxdp;
use crate::engine::{Engine, Mode, Wait};

/// One way to do one bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Combination {
    /// What is done with the packets.
    pub bench: Bench,
    /// Who moves them.
    pub engine: Engine,
    /// The mode asked for; `None` for an engine that has none.
    pub mode: Option<Mode>,
    /// How the engine waits.
    pub wait: Wait,
}

impl std::fmt::Display for Combination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.bench, self.engine)?;
        if let Some(mode) = self.mode {
            write!(f, " {mode}")?;
        }
        write!(f, " {}", self.wait)
    }
}

/// What was asked for and does not exist here, whatever the device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unavailable {
    /// The engine.
    pub engine: Engine,
    /// The way to wait; `None` if it is the whole engine that is missing.
    pub wait: Option<Wait>,
    /// Why, and what to do about it.
    pub reason: String,
}

/// What was asked for.
#[derive(Debug, Clone)]
pub struct Choices {
    /// Benches, in the order to be run.
    pub benches: Vec<Bench>,
    /// Engines.
    pub engines: Vec<Engine>,
    /// Modes of those engines that have modes.
    pub modes: Vec<Mode>,
    /// Ways to wait.
    pub waits: Vec<Wait>,
    /// How often each combination is measured.
    pub rounds: u32,
}

/// What is going to be measured.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Each combination once, in order.
    pub combinations: Vec<Combination>,
    /// What is left out.
    pub unavailable: Vec<Unavailable>,
    benches: Vec<Bench>,
    rounds: u32,
}

impl Plan {
    /// The plan for `choices`. Doubles count once.
    pub fn new(choices: &Choices) -> Self {
        Self::with(choices, missing_engine)
    }

    fn with(choices: &Choices, missing_engine: impl Fn(Engine) -> Option<String>) -> Self {
        let mut plan = Self {
            combinations: Vec::new(),
            unavailable: Vec::new(),
            benches: once_each(&choices.benches),
            rounds: choices.rounds,
        };
        let mut ways = Vec::new();
        for engine in once_each(&choices.engines) {
            if let Some(reason) = missing_engine(engine) {
                plan.leave_out(engine, None, reason);
                continue;
            }
            for mode in modes(engine, &choices.modes) {
                for wait in once_each(&choices.waits) {
                    match missing_wait(engine, wait) {
                        Some(reason) => plan.leave_out(engine, Some(wait), reason),
                        None => ways.push((engine, mode, wait)),
                    }
                }
            }
        }
        for bench in plan.benches.clone() {
            let combine = |&(engine, mode, wait)| Combination {
                bench,
                engine,
                mode,
                wait,
            };
            plan.combinations.extend(ways.iter().map(combine));
        }
        plan
    }

    fn leave_out(&mut self, engine: Engine, wait: Option<Wait>, reason: String) {
        let left_out = Unavailable {
            engine,
            wait,
            reason,
        };
        if !self.unavailable.contains(&left_out) {
            self.unavailable.push(left_out);
        }
    }

    /// Whether anything is measured with this engine.
    pub fn uses(&self, engine: Engine) -> bool {
        self.combinations.iter().any(|it| it.engine == engine)
    }

    /// Whether anything is measured in this bench.
    pub fn does(&self, bench: Bench) -> bool {
        self.combinations.iter().any(|it| it.bench == bench)
    }

    /// All runs in order, with their rounds from 1. Within a round every engine has its turn, so
    /// that whatever drifts on this machine drifts for all of them.
    pub fn runs(&self) -> impl Iterator<Item = (u32, Combination)> {
        self.benches.iter().flat_map(move |&bench| {
            (1..=self.rounds).flat_map(move |round| {
                self.combinations
                    .iter()
                    .filter(move |combination| combination.bench == bench)
                    .map(move |&combination| (round, combination))
            })
        })
    }
}

fn once_each<T: Copy + PartialEq>(items: &[T]) -> Vec<T> {
    let mut once = Vec::new();
    for item in items {
        if !once.contains(item) {
            once.push(*item);
        }
    }
    once
}

/// A packet socket has no mode: it always gets socket buffers.
fn modes(engine: Engine, modes: &[Mode]) -> Vec<Option<Mode>> {
    match engine {
        Engine::PacketV2 | Engine::PacketV3 => vec![None],
        Engine::Xsk | Engine::Libxdp => once_each(modes).into_iter().map(Some).collect(),
    }
}

fn missing_engine(engine: Engine) -> Option<String> {
    if engine != Engine::Libxdp || libxdp::available() {
        return None;
    }
    Some(libxdp::Program::new().err()?.to_string())
}

fn missing_wait(engine: Engine, wait: Wait) -> Option<String> {
    let only_ours = "adaptive waiting is part of weir's own library: use --wait spin or poll";
    (wait == Wait::Adaptive && engine != Engine::Xsk).then(|| only_ours.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choices() -> Choices {
        Choices {
            benches: vec![Bench::Rxdrop, Bench::L2fwd],
            engines: vec![Engine::PacketV3, Engine::Xsk, Engine::Libxdp, Engine::Xsk],
            modes: vec![Mode::Skb, Mode::Drv],
            waits: vec![Wait::Spin],
            rounds: 2,
        }
    }

    fn plan(choices: &Choices) -> Plan {
        Plan::with(choices, |_| None)
    }

    #[test]
    fn rounds_alternate_engines() {
        let runs: Vec<String> = plan(&choices())
            .runs()
            .map(|(round, combination)| format!("{round} {combination}"))
            .collect();
        let of_bench = |bench| {
            let ways = [
                "packet-v3 spin",
                "xsk skb spin",
                "xsk drv spin",
                "libxdp skb spin",
                "libxdp drv spin",
            ];
            (1..=2).flat_map(move |round| ways.map(|way| format!("{round} {bench} {way}")))
        };
        let expected: Vec<String> = of_bench("rxdrop").chain(of_bench("l2fwd")).collect();
        assert_eq!(runs, expected);
    }

    #[test]
    fn what_does_not_exist_is_left_out_once() {
        let mut choices = choices();
        choices.waits = vec![Wait::Adaptive, Wait::Spin];
        let plan = plan(&choices);
        let left_out: Vec<Engine> = plan.unavailable.iter().map(|it| it.engine).collect();
        assert_eq!(left_out, [Engine::PacketV3, Engine::Libxdp]);
        let adaptive = plan
            .combinations
            .iter()
            .filter(|it| it.wait == Wait::Adaptive);
        assert!(adaptive.clone().all(|it| it.engine == Engine::Xsk));
        assert_eq!(adaptive.count(), 4);
    }

    #[test]
    fn a_missing_engine_is_left_out_as_a_whole() {
        let plan = Plan::with(&choices(), |engine| {
            (engine == Engine::Libxdp).then(|| "not built in".into())
        });
        let expected = Unavailable {
            engine: Engine::Libxdp,
            wait: None,
            reason: "not built in".into(),
        };
        assert_eq!(plan.unavailable, [expected]);
        assert!(
            plan.combinations
                .iter()
                .all(|it| it.engine != Engine::Libxdp)
        );
    }
}
