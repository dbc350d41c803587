//! Medians over the rounds, and ratios between ways of the same round: a machine that gets slower or
//! faster between rounds changes both sides of a ratio.

use serde::Serialize;

use super::plan::{Case, Way};
use super::run::Run;
use crate::engine::{Engine, Wait};
use crate::report::latency::PERCENTS;
use crate::report::statistics::median;

/// The medians of one case.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// The case: `offered_pps`, `engine`, `mode`, `wait`.
    #[serde(flatten)]
    pub case: Case,
    /// Rounds that count.
    pub rounds: usize,
    /// The median of each percentile of latency.
    pub percentiles: Vec<Median>,
    /// The longest latency of all rounds.
    pub max_ns: Option<u64>,
    /// The 99th percentile of the pinger's own delay.
    pub pinger_delay_p99_ns_median: Option<f64>,
    /// Packets sent, in all rounds.
    pub sent: u64,
    /// Packets not answered, in all rounds.
    pub lost: u64,
    /// CPU time of the echo's process, as a share of the window.
    pub app_cpu_percent_median: f64,
    /// CPU time of the echo's process for each packet.
    pub cpu_ns_per_packet_median: Option<f64>,
}

/// The median of a percentile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Median {
    /// The percentile.
    pub percent: f64,
    /// Of those rounds that have it.
    pub ns_median: f64,
}

impl Summary {
    /// The median of a percentile; `None` with too few samples.
    pub fn at(&self, percent: f64) -> Option<f64> {
        let same = |it: &&Median| it.percent.total_cmp(&percent).is_eq();
        self.percentiles.iter().find(same).map(|it| it.ns_median)
    }
}

/// Latencies of a case beside another's at the same rate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ratio {
    /// The case.
    #[serde(flatten)]
    pub case: Case,
    /// The engine that it is compared with: of the same mode, if it has modes.
    pub ratio_to: Engine,
    /// How that one waits.
    pub ratio_to_wait: Wait,
    /// Of the medians of latency.
    pub p50_ratio_median: f64,
    /// Of the 99th percentiles; `None` with too few samples.
    pub p99_ratio_median: Option<f64>,
    /// Nanoseconds by which its median of latency is longer.
    pub p50_more_ns_median: f64,
    /// The same of the 99th percentiles.
    pub p99_more_ns_median: Option<f64>,
}

/// The medians of all runs that count, by rate and in the order of the ways' turns.
pub fn summarize(runs: &[Run]) -> Vec<Summary> {
    cases(runs)
        .into_iter()
        .filter_map(|case| medians(case, &of(runs, case)))
        .collect()
}

/// The ratios of weir's library to others, and of its adaptive waiting to its poll.
pub fn ratios(runs: &[Run]) -> Vec<Ratio> {
    let cases = cases(runs);
    let ours = cases.iter().filter(|it| it.way.engine == Engine::Xsk);
    ours.flat_map(|&case| {
        let others = cases.iter().filter(move |it| are_comparable(case, **it));
        others.filter_map(move |&other| ratio(runs, case, other))
    })
    .collect()
}

/// Each case with a run that counts, once.
fn cases(runs: &[Run]) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for run in runs.iter().filter(|run| run.check.ok) {
        if !cases.contains(&run.case) {
            cases.push(run.case);
        }
    }
    cases
}

fn of(runs: &[Run], case: Case) -> Vec<&Run> {
    let counts = |run: &&Run| run.case == case && run.check.ok;
    runs.iter().filter(counts).collect()
}

fn medians(case: Case, runs: &[&Run]) -> Option<Summary> {
    let percentiles = PERCENTS.iter().filter_map(|&percent| {
        let of_rounds = runs.iter().filter_map(|run| run.latency.at(percent));
        Some(Median {
            percent,
            ns_median: median(of_rounds.map(|ns| ns as f64))?,
        })
    });
    let delays = runs.iter().filter_map(|run| run.pinger_delay.at(99.0));
    Some(Summary {
        case,
        rounds: runs.len(),
        percentiles: percentiles.collect(),
        max_ns: runs.iter().filter_map(|run| run.latency.max_ns).max(),
        pinger_delay_p99_ns_median: median(delays.map(|ns| ns as f64)),
        sent: runs.iter().map(|run| run.sent).sum(),
        lost: runs.iter().map(|run| run.lost).sum(),
        app_cpu_percent_median: median(runs.iter().map(|run| run.app_cpu_percent))?,
        cpu_ns_per_packet_median: median(runs.iter().filter_map(|run| run.cpu_ns_per_packet)),
    })
}

/// Whether another engine answers at the same rate and waits alike. Adaptive waiting is ours alone; like
/// poll it sleeps, and what it adds to that of the same library is its promise.
fn are_comparable(case: Case, other: Case) -> bool {
    let Way { engine, mode, wait } = other.way;
    let wanted = match case.way.wait {
        Wait::Adaptive => Wait::Poll,
        wait => wait,
    };
    other.rate == case.rate
        && wait == wanted
        && (engine != Engine::Xsk || wait != case.way.wait)
        && (mode.is_none() || mode == case.way.mode)
}

fn ratio(runs: &[Run], case: Case, other: Case) -> Option<Ratio> {
    let others = of(runs, other);
    let own = of(runs, case);
    let pairs: Vec<(&Run, &Run)> = own
        .into_iter()
        .filter_map(|run| Some((run, *others.iter().find(|it| it.round == run.round)?)))
        .collect();
    let median_at = |percent, compare: fn(f64, f64) -> f64| {
        median(pairs.iter().filter_map(|(run, other)| {
            let ns = other.latency.at(percent).filter(|&ns| ns > 0)?;
            Some(compare(run.latency.at(percent)? as f64, ns as f64))
        }))
    };
    let ratio = |percent| median_at(percent, |ns, other| ns / other);
    let more = |percent| median_at(percent, |ns, other| ns - other);
    Some(Ratio {
        case,
        ratio_to: other.way.engine,
        ratio_to_wait: other.way.wait,
        p50_ratio_median: ratio(50.0)?,
        p99_ratio_median: ratio(99.0),
        p50_more_ns_median: more(50.0)?,
        p99_more_ns_median: more(99.0),
    })
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::run;
    use super::*;

    #[test]
    fn ratios_are_of_the_same_round_and_rate() {
        let mut runs = Vec::new();
        // The machine gets ten times slower; the ratio does not.
        for (round, slow) in [(1, 1), (2, 10), (3, 100)] {
            runs.push(run(Engine::Xsk, Wait::Spin, 1000, round, 3_000 * slow));
            runs.push(run(Engine::PacketV2, Wait::Spin, 1000, round, 6_000 * slow));
        }
        runs.push(run(Engine::PacketV2, Wait::Spin, 5000, 1, 1));
        let ratios = ratios(&runs);
        assert_eq!(ratios.len(), 1);
        assert!(
            (ratios[0].p50_ratio_median - 0.5).abs() < 0.01,
            "{ratios:?}"
        );
        let more = ratios[0].p50_more_ns_median;
        assert!((more + 30_000.0).abs() < 100.0, "{more}");
        let summary = summarize(&runs);
        assert_eq!(summary.len(), 3);
        let median = summary[0].at(50.0).expect("a median");
        assert!((median - 30_000.0).abs() < 100.0, "{median}");
        assert!(summary[0].max_ns > Some(2_990_000));
    }

    #[test]
    fn adaptive_is_compared_with_poll() {
        let runs = [
            run(Engine::Xsk, Wait::Adaptive, 1000, 1, 200),
            run(Engine::Udp, Wait::Spin, 1000, 1, 100),
            run(Engine::Udp, Wait::Poll, 1000, 1, 100),
            run(Engine::Xsk, Wait::Poll, 1000, 1, 150),
        ];
        let ratios = ratios(&runs);
        let of: Vec<_> = ratios
            .iter()
            .map(|it| (it.case.way.wait, it.ratio_to, it.ratio_to_wait))
            .collect();
        let expected = [
            (Wait::Adaptive, Engine::Udp, Wait::Poll),
            (Wait::Adaptive, Engine::Xsk, Wait::Poll),
            (Wait::Poll, Engine::Udp, Wait::Poll),
        ];
        assert_eq!(of, expected);
    }

    #[test]
    fn a_run_whose_counts_do_not_add_up_does_not_count() {
        let mut broken = run(Engine::Xsk, Wait::Spin, 1000, 2, 900);
        broken.check.ok = false;
        let runs = [run(Engine::Xsk, Wait::Spin, 1000, 1, 200), broken];
        let summary = summarize(&runs);
        assert_eq!((summary.len(), summary[0].rounds), (1, 1));
    }
}
