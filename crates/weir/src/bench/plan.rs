//! The plan of a session: combinations, their order, and those that are unavailable.

use anyhow::{Result, ensure};
use serde::Serialize;

use crate::engine::bench::Bench;
use crate::engine::{Engine, Mode, Wait, libxdp};

/// One way to do one bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Combination {
    /// The work done on packets.
    pub bench: Bench,
    /// The socket API that moves them.
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

/// An engine, or a way to wait, that was asked for and does not exist here on any device; or an engine
/// that does not do each of the benches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unavailable {
    /// The engine.
    pub engine: Engine,
    /// The way to wait; `None` if it is the whole engine that is missing.
    pub wait: Option<Wait>,
    /// Cause and cure.
    pub reason: String,
}

/// The choices of the command line.
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
    /// Frame length without the FCS.
    pub size: u16,
}

/// The combinations to be measured.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Each combination once, in order.
    pub combinations: Vec<Combination>,
    /// Choices left out.
    pub unavailable: Vec<Unavailable>,
    benches: Vec<Bench>,
    rounds: u32,
}

impl Plan {
    /// The plan for `choices`; an error if no combination is available. Doubles count once.
    pub fn new(choices: &Choices) -> Result<Self> {
        let plan = Self::with(choices, missing_engine);
        let reasons = plan.unavailable.iter();
        let reasons: Vec<_> = reasons
            .map(|it| format!("{}: {}", it.engine, it.reason))
            .collect();
        ensure!(
            !plan.combinations.is_empty(),
            "nothing to measure: {}",
            reasons.join("; ")
        );
        Ok(plan)
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
            let missing = missing_engine(engine).or_else(|| refuses_size(engine, choices.size));
            if let Some(reason) = missing {
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
            for &(engine, mode, wait) in &ways {
                if engine.only_forwards() && !bench.forwards() {
                    let reason = "its two CPUs receive and send, so it is measured in l2fwd alone";
                    plan.leave_out(engine, None, reason.into());
                    continue;
                }
                plan.combinations.push(Combination {
                    bench,
                    engine,
                    mode,
                    wait,
                });
            }
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

    /// Whether this engine is one of it.
    pub fn uses(&self, engine: Engine) -> bool {
        self.combinations.iter().any(|it| it.engine == engine)
    }

    /// Whether any engine of it is an AF_XDP socket.
    pub fn uses_af_xdp(&self) -> bool {
        self.combinations.iter().any(|it| it.engine.is_af_xdp())
    }

    /// Whether any engine of it is an AF_PACKET socket.
    pub fn uses_af_packet(&self) -> bool {
        self.combinations.iter().any(|it| !it.engine.is_af_xdp())
    }

    /// The benches that it measures.
    pub fn benches(&self) -> &[Bench] {
        &self.benches
    }

    /// All runs in order, with their rounds from 1. Within a round every engine has its turn, so
    /// that a drift of the machine affects all of them.
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
    if engine.is_af_xdp() {
        once_each(modes).into_iter().map(Some).collect()
    } else {
        vec![None]
    }
}

fn missing_engine(engine: Engine) -> Option<String> {
    if engine != Engine::Libxdp || libxdp::available() {
        return None;
    }
    Some(libxdp::Program::new().err()?.to_string())
}

fn refuses_size(engine: Engine, size: u16) -> Option<String> {
    let longest = engine.max_size();
    (usize::from(size) > longest)
        .then(|| format!("it takes shorter frames: lower --size to {longest}, or use --engine xsk"))
}

fn missing_wait(engine: Engine, wait: Wait) -> Option<String> {
    let reason = match (wait, engine) {
        (Wait::Adaptive, _) => {
            "adaptive waiting is part of weir's own library: use --wait spin or poll"
        }
        (_, Engine::PacketV2 | Engine::PacketV3) => {
            "a packet socket does not know the NAPI instance that it would poll: use --wait spin"
        }
        (_, Engine::Libxdp) => "the loop on libxdp has no busy polling: use --wait spin",
        _ => {
            "a broker's socket and a split one do no busy polling: use --engine xsk, or --wait spin"
        }
    };
    (!engine.supports(wait)).then(|| reason.into())
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
            size: 64,
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
    fn missing_ways_to_wait_are_left_out_once() {
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
    fn a_udp_socket_and_the_library_do_busy_polling() {
        let mut choices = choices();
        choices.engines.push(Engine::Udp);
        choices.waits = vec![Wait::BusyPoll];
        let plan = plan(&choices);
        let polls = |engine| matches!(engine, Engine::Udp | Engine::Xsk);
        assert!(plan.combinations.iter().all(|it| polls(it.engine)));
        let left_out: Vec<Engine> = plan.unavailable.iter().map(|it| it.engine).collect();
        assert_eq!(left_out, [Engine::PacketV3, Engine::Libxdp]);
    }

    #[test]
    fn a_split_socket_is_measured_in_l2fwd_alone() {
        let mut choices = choices();
        choices.engines = vec![Engine::XskHalves];
        let plan = plan(&choices);
        assert!(plan.combinations.iter().all(|it| it.bench == Bench::L2fwd));
        assert_eq!(plan.combinations.len(), 2);
        assert_eq!(plan.unavailable.len(), 1);
    }

    #[test]
    fn engines_are_left_out_where_frames_are_too_long_for_them() {
        let mut choices = choices();
        choices.benches = vec![Bench::L2fwd];
        choices.engines = vec![Engine::Xsk, Engine::XskHalves, Engine::XskBrokered];
        let left_out = |size| {
            choices.size = size;
            plan(&choices).unavailable.len()
        };
        assert_eq!([1500, 1501, 3521].map(left_out), [0, 1, 2]);
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
