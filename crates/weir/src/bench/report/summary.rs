//! Medians over the rounds, and ratios between engines.
//!
//! A ratio compares two runs of the same round, one soon after the other, so that a machine
//! that gets slower or faster between rounds changes both. The median over the rounds is then
//! taken of the ratios, not of the figures.

use std::collections::BTreeMap;

use serde::Serialize;

use super::run::Run;
use crate::bench::plan::Combination;
use crate::engine::{Engine, Wait};
use crate::report::statistics::median;

/// The medians of one combination, and its ratio to one other, if there is one to compare with.
/// A combination has as many of these as it has others to be compared with, and at least one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// The combination: `bench`, `engine`, `mode`, `wait`.
    #[serde(flatten)]
    pub combination: Combination,
    /// Rounds that count.
    pub rounds: usize,
    /// Packets a second.
    pub pps_median: f64,
    /// The slowest round.
    pub pps_min: f64,
    /// The fastest round.
    pub pps_max: f64,
    /// User time of the engine's process; `None` without packets.
    pub cpu_user_ns_per_packet_median: Option<f64>,
    /// Kernel time of the engine's process.
    pub cpu_sys_ns_per_packet_median: Option<f64>,
    /// User and kernel time, as a share of the window.
    pub app_cpu_percent_median: f64,
    /// Dropped by the kernel, as a share of the packets that came to the socket or were sent.
    pub dropped_percent_median: f64,
    /// The engine that this one is compared with: of the same mode, if it has modes.
    pub ratio_to: Option<Engine>,
    /// How that one waits.
    pub ratio_to_wait: Option<Wait>,
    /// Packets a second of this one for each of that one's.
    pub ratio_median: Option<f64>,
    /// CPU time for a packet of this one (user and system) for each of that one's.
    pub cpu_ratio_median: Option<f64>,
}

/// The summary of all runs that count.
pub fn summarize(runs: &[Run]) -> Vec<Summary> {
    let mut rounds: Vec<(Combination, ByRound<'_>)> = Vec::new();
    for run in runs.iter().filter(|run| run.check.ok) {
        match rounds.iter_mut().find(|(it, _)| *it == run.combination) {
            Some((_, by_round)) => {
                by_round.insert(run.round, run);
            }
            None => rounds.push((run.combination, ByRound::from([(run.round, run)]))),
        }
    }
    let mut summary = Vec::new();
    for (combination, own) in &rounds {
        let others: Vec<Ratio> = baselines(*combination)
            .into_iter()
            .filter_map(|baseline| {
                let (_, others) = rounds.iter().find(|(it, _)| *it == baseline)?;
                Ratio::new(own, others, baseline)
            })
            .collect();
        if others.is_empty() {
            summary.extend(medians(*combination, own));
        }
        for ratio in others {
            summary.extend(medians(*combination, own).map(|row| ratio.row(&row)));
        }
    }
    summary
}

type ByRound<'a> = BTreeMap<u32, &'a Run>;

/// The baselines of a combination: libxdp in the same mode, and AF_PACKET at its best.
/// Adaptive waiting should be as fast as spinning and as cheap as poll, so it is compared
/// with both. Two CPUs are compared with one, a brokered socket with a privileged one.
fn baselines(of: Combination) -> Vec<Combination> {
    if matches!(of.engine, Engine::XskHalves | Engine::XskBrokered) {
        let engine = Engine::Xsk;
        return vec![Combination { engine, ..of }];
    }
    if of.engine != Engine::Xsk {
        return Vec::new();
    }
    let waits = match of.wait {
        Wait::Adaptive => vec![Wait::Spin, Wait::Poll],
        wait => vec![wait],
    };
    [(Engine::Libxdp, of.mode), (Engine::PacketV3, None)]
        .into_iter()
        .flat_map(|(engine, mode)| {
            waits.clone().into_iter().map(move |wait| Combination {
                engine,
                mode,
                wait,
                ..of
            })
        })
        .collect()
}

#[derive(Debug, Clone, Copy)]
struct Ratio {
    to: Combination,
    pps: f64,
    cpu: Option<f64>,
}

impl Ratio {
    fn new(own: &ByRound<'_>, others: &ByRound<'_>, to: Combination) -> Option<Self> {
        let pairs: Vec<(&Run, &Run)> = own
            .iter()
            .filter_map(|(round, run)| Some((*run, *others.get(round)?)))
            .collect();
        let pps = pairs
            .iter()
            .filter(|(_, other)| other.packets > 0)
            .map(|(run, other)| run.pps / other.pps);
        let cpu = pairs.iter().filter_map(|(run, other)| {
            let other = other.cpu_ns_per_packet().filter(|&ns| ns > 0.0)?;
            Some(run.cpu_ns_per_packet()? / other)
        });
        Some(Self {
            to,
            pps: median(pps)?,
            cpu: median(cpu),
        })
    }

    fn row(self, medians: &Summary) -> Summary {
        Summary {
            ratio_to: Some(self.to.engine),
            ratio_to_wait: Some(self.to.wait),
            ratio_median: Some(self.pps),
            cpu_ratio_median: self.cpu,
            ..medians.clone()
        }
    }
}

fn medians(combination: Combination, rounds: &ByRound<'_>) -> Option<Summary> {
    let all = || rounds.values();
    Some(Summary {
        combination,
        rounds: rounds.len(),
        pps_median: median(all().map(|run| run.pps))?,
        pps_min: all().map(|run| run.pps).reduce(f64::min)?,
        pps_max: all().map(|run| run.pps).reduce(f64::max)?,
        cpu_user_ns_per_packet_median: median(all().filter_map(|run| run.cpu_user_ns_per_packet)),
        cpu_sys_ns_per_packet_median: median(all().filter_map(|run| run.cpu_sys_ns_per_packet)),
        app_cpu_percent_median: median(all().map(|run| run.app_cpu_percent))?,
        dropped_percent_median: median(all().map(|run| run.dropped_percent))?,
        ratio_to: None,
        ratio_to_wait: None,
        ratio_median: None,
        cpu_ratio_median: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::run;
    use super::*;
    use crate::engine::Mode;

    const DRV: Option<Mode> = Some(Mode::Drv);

    #[test]
    fn ratios_are_of_the_same_round() {
        let mut runs = Vec::new();
        // The machine gets ten times slower; the ratio does not.
        for (round, speed) in [(1, 1000), (2, 100), (3, 10)] {
            runs.push(run(Engine::Xsk, DRV, Wait::Spin, round, 3 * speed));
            runs.push(run(Engine::Libxdp, DRV, Wait::Spin, round, 2 * speed));
        }
        let summary = summarize(&runs);
        assert_eq!(summary.len(), 2);
        assert_eq!(summary[0].pps_median.to_string(), "300");
        assert_eq!(summary[0].ratio_to, Some(Engine::Libxdp));
        assert_eq!(summary[0].ratio_median, Some(1.5));
        assert_eq!(summary[1].ratio_to, None);
    }

    #[test]
    fn two_cpus_are_compared_with_one() {
        let runs = [
            run(Engine::XskHalves, DRV, Wait::Spin, 1, 150),
            run(Engine::Xsk, DRV, Wait::Spin, 1, 100),
            run(Engine::Libxdp, DRV, Wait::Spin, 1, 50),
        ];
        let halves = &summarize(&runs)[0];
        assert_eq!(halves.ratio_to, Some(Engine::Xsk));
        assert_eq!(halves.ratio_median, Some(1.5));
    }

    #[test]
    fn a_round_without_its_pair_does_not_count() {
        let mut broken = run(Engine::Libxdp, DRV, Wait::Spin, 2, 1);
        broken.check.ok = false;
        let runs = [
            run(Engine::Xsk, DRV, Wait::Spin, 1, 200),
            run(Engine::Libxdp, DRV, Wait::Spin, 1, 100),
            run(Engine::Xsk, DRV, Wait::Spin, 2, 900),
            broken,
        ];
        assert_eq!(summarize(&runs)[0].ratio_median, Some(2.0));
    }

    #[test]
    fn adaptive_is_compared_with_spinning_and_with_poll() {
        let runs = [
            run(Engine::Xsk, DRV, Wait::Adaptive, 1, 200),
            run(Engine::Libxdp, DRV, Wait::Spin, 1, 100),
            run(Engine::Libxdp, DRV, Wait::Poll, 1, 50),
            run(Engine::PacketV3, None, Wait::Spin, 1, 10),
        ];
        let rows: Vec<_> = summarize(&runs)
            .into_iter()
            .filter(|row| row.combination.engine == Engine::Xsk)
            .map(|row| (row.ratio_to, row.ratio_to_wait, row.ratio_median))
            .collect();
        assert_eq!(
            rows,
            [
                (Some(Engine::Libxdp), Some(Wait::Spin), Some(2.0)),
                (Some(Engine::Libxdp), Some(Wait::Poll), Some(4.0)),
                (Some(Engine::PacketV3), Some(Wait::Spin), Some(20.0)),
            ]
        );
    }
}
