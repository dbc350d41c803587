//! The report: points, their medians over the rounds, and the ratios of XDP and weir to the bridge.

use serde::Serialize;

use super::Path;
use super::counts::Drops;
use super::measure::Measured;
use super::plan::Combination;
use crate::report::Machine;
use crate::report::statistics::median;

/// A load has reached its target rate from this share of it on.
const REACHED: f64 = 0.98;

/// The whole report.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The machine and the settings.
    pub host: Host,
    /// Every run, in order.
    pub points: Vec<Point>,
    /// The medians over the rounds.
    pub summary: Vec<Summary>,
    /// XDP and weir compared with the bridge.
    pub ratios: Vec<Ratio>,
    /// Paths that are unavailable on this host.
    pub unavailable: Vec<Unavailable>,
    /// Runs that failed.
    pub failed: Vec<Failed>,
    /// Whether a signal ended it early.
    pub interrupted: bool,
}

/// The machine and the settings.
#[derive(Debug, Clone, Serialize)]
pub struct Host {
    /// The machine, the build and the command.
    #[serde(flatten)]
    pub machine: Machine,
    /// The CPU of the load, and of the softirqs that receive it.
    pub load_cpu: usize,
    /// The CPU of the receivers.
    pub app_cpu: usize,
    /// Frame length without the FCS.
    pub size: u16,
    /// Sentences about the method.
    pub notes: Vec<String>,
}

/// One run.
#[derive(Debug, Clone, Serialize)]
pub struct Point {
    /// The combination.
    #[serde(flatten)]
    pub combination: Combination,
    /// The round, from 1.
    pub round: u32,
    /// The length of the window.
    pub seconds: f64,
    /// The figures of the window.
    #[serde(flatten)]
    pub figures: Figures,
    /// Whether the load reached the target rate.
    pub target_reached: bool,
    /// Frames that the load sent in the whole run.
    pub sent: u64,
    /// Frames that the receivers received in the whole run.
    pub received: u64,
    /// Frames lost, by place.
    pub drops: Drops,
    /// Contradictions between the counters; none in a good run.
    pub violations: Vec<String>,
}

/// The figures of a point.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Figures {
    /// Frames a second that the load sent or tried to send.
    pub offered_pps: f64,
    /// Frames a second that the receivers received.
    pub delivered_pps: f64,
    /// Frames of the whole run that no receiver received, in percent.
    pub loss_percent: f64,
    /// The softirqs `NET_RX` and `NET_TX` on the load's CPU, in percent of it.
    pub softirq_percent: f64,
    /// The same on all other CPUs, in percent of one.
    pub other_softirq_percent: f64,
    /// The receivers' processes, in percent of one CPU.
    pub receivers_percent: f64,
    /// A switch's processes, in percent of one CPU.
    pub switch_percent: f64,
    /// All of these, in percent of one CPU.
    pub total_percent: f64,
    /// Softirq time on all CPUs per frame delivered; `None` without any.
    pub softirq_ns_per_packet: Option<f64>,
    /// All CPU time per frame delivered.
    pub total_ns_per_packet: Option<f64>,
    /// Frames per NAPI poll on the load's CPU: the fewer, the higher the cost of each.
    pub packets_per_poll: Option<f64>,
}

/// A figure over the rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
}

/// One combination over the rounds.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// The combination.
    #[serde(flatten)]
    pub combination: Combination,
    /// Rounds without violations; others do not count.
    pub rounds: usize,
    /// Whether the load reached the target rate in most rounds.
    pub target_reached: bool,
    /// See [`Figures`].
    pub offered_pps: Spread,
    /// See [`Figures`].
    pub delivered_pps: Spread,
    /// See [`Figures`].
    pub loss_percent: Spread,
    /// See [`Figures`].
    pub softirq_percent: Spread,
    /// See [`Figures`].
    pub receivers_percent: Spread,
    /// See [`Figures`].
    pub switch_percent: Spread,
    /// See [`Figures`].
    pub total_percent: Spread,
    /// See [`Figures`].
    pub softirq_ns_per_packet: Option<Spread>,
    /// See [`Figures`].
    pub total_ns_per_packet: Option<Spread>,
}

/// A path compared with the bridge: the median of the ratios within each round.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratio {
    /// The path.
    pub path: Path,
    /// The number of receivers.
    pub receivers: u8,
    /// The target rate of the load.
    pub target_pps: u64,
    /// Its softirq time in percent of the bridge's; `None` unless the load reached the target
    /// rate on both.
    pub softirq_percent_of_bridge: Option<f64>,
    /// The same if it reached it on this path only: an upper bound, since the bridge handled fewer frames.
    pub softirq_percent_of_bridge_at_most: Option<f64>,
    /// Its softirq time per frame delivered, in percent of the bridge's.
    pub ns_per_packet_percent_of_bridge: Option<f64>,
}

/// A path that is unavailable on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unavailable {
    /// The path.
    pub path: Path,
    /// The number of receivers.
    pub receivers: u8,
    /// Cause and cure.
    pub reason: String,
}

/// A run that failed.
#[derive(Debug, Clone, Serialize)]
pub struct Failed {
    /// The combination.
    #[serde(flatten)]
    pub combination: Combination,
    /// The round.
    pub round: u32,
    /// The error.
    pub message: String,
}

impl Point {
    /// A run's figures.
    pub fn new(combination: Combination, round: u32, measured: Measured) -> Self {
        let window = measured.window;
        let seconds = window.ns as f64 / 1e9;
        let percent = |ns: u64| ns as f64 / window.ns as f64 * 100.0;
        let softirq_ns = window.softirq_ns + window.other_softirq_ns;
        let total_ns = softirq_ns + window.receivers_ns + window.switch_ns;
        let per_packet =
            |ns: u64| (window.delivered > 0).then(|| ns as f64 / window.delivered as f64);
        let offered_pps = window.offered as f64 / seconds;
        let lost = measured.drops.total();
        let made = measured.sent + measured.drops.device;
        Self {
            combination,
            round,
            seconds,
            figures: Figures {
                offered_pps,
                delivered_pps: window.delivered as f64 / seconds,
                loss_percent: lost as f64 / made.max(1) as f64 * 100.0,
                softirq_percent: percent(window.softirq_ns),
                other_softirq_percent: percent(window.other_softirq_ns),
                receivers_percent: percent(window.receivers_ns),
                switch_percent: percent(window.switch_ns),
                total_percent: percent(total_ns),
                softirq_ns_per_packet: per_packet(softirq_ns),
                total_ns_per_packet: per_packet(total_ns),
                packets_per_poll: (window.polls > 0)
                    .then(|| window.offered as f64 / window.polls as f64),
            },
            target_reached: offered_pps >= combination.rate.0 as f64 * REACHED,
            sent: measured.sent,
            received: measured.received,
            drops: measured.drops,
            violations: measured.violations,
        }
    }
}

impl Report {
    /// A report without points yet.
    pub fn new(host: Host) -> Self {
        Self {
            host,
            points: Vec::new(),
            summary: Vec::new(),
            ratios: Vec::new(),
            unavailable: Vec::new(),
            failed: Vec::new(),
            interrupted: false,
        }
    }

    /// Computes medians and ratios.
    pub fn summarize(&mut self) {
        let mut combinations: Vec<Combination> = Vec::new();
        for point in &self.points {
            if !combinations.contains(&point.combination) {
                combinations.push(point.combination);
            }
        }
        combinations.sort_by_key(|it| (it.receivers, it.rate));
        self.summary = combinations
            .iter()
            .filter_map(|it| Summary::of(*it, &self.good(*it)))
            .collect();
        self.ratios = combinations
            .into_iter()
            .filter(|it| matches!(it.path, Path::Weir | Path::Xdp))
            .filter_map(|it| self.ratio(it))
            .collect();
    }

    /// The points of a combination without violations.
    fn good(&self, combination: Combination) -> Vec<&Point> {
        self.points
            .iter()
            .filter(|it| it.combination == combination && it.violations.is_empty())
            .collect()
    }

    fn ratio(&self, own: Combination) -> Option<Ratio> {
        let bridge = Combination {
            path: Path::Bridge,
            ..own
        };
        let (ours, theirs) = (self.good(own), self.good(bridge));
        let pairs: Vec<(&Point, &Point)> = ours
            .iter()
            .filter_map(|one| {
                let other = theirs.iter().find(|other| other.round == one.round)?;
                Some((*one, *other))
            })
            .collect();
        if pairs.is_empty() {
            return None;
        }
        let at_rate = |bridge_too: bool| {
            let pairs = pairs.iter().filter(move |(one, other)| {
                one.target_reached && other.target_reached == bridge_too
            });
            median(pairs.map(|(one, other)| {
                one.figures.softirq_percent / other.figures.softirq_percent * 100.0
            }))
        };
        let each = pairs.iter().filter_map(|(one, other)| {
            let ns = one.figures.softirq_ns_per_packet?;
            Some(ns / other.figures.softirq_ns_per_packet? * 100.0)
        });
        Some(Ratio {
            path: own.path,
            receivers: own.receivers,
            target_pps: own.rate.0,
            softirq_percent_of_bridge: at_rate(true),
            softirq_percent_of_bridge_at_most: at_rate(false),
            ns_per_packet_percent_of_bridge: median(each),
        })
    }

    /// The medians of a path and a number of receivers, in the order of the rates.
    pub fn curve(&self, path: Path, receivers: u8) -> impl Iterator<Item = &Summary> {
        self.summary
            .iter()
            .filter(move |it| it.combination.path == path && it.combination.receivers == receivers)
    }

    /// The number of rounds; `None` without points.
    pub fn rounds(&self) -> Option<u32> {
        self.points.iter().map(|point| point.round).max()
    }

    /// Whether a path that forwards in user space was measured.
    pub fn has_switch(&self) -> bool {
        let paths = self.paths();
        paths
            .iter()
            .any(|path| path.datapath().forwards_in_user_space())
    }

    /// The numbers of receivers that were measured.
    pub fn receivers(&self) -> Vec<u8> {
        let mut receivers: Vec<u8> = Vec::new();
        for summary in &self.summary {
            if !receivers.contains(&summary.combination.receivers) {
                receivers.push(summary.combination.receivers);
            }
        }
        receivers
    }

    /// The paths that were measured, in the order of the command line.
    pub fn paths(&self) -> Vec<Path> {
        let mut paths: Vec<Path> = Vec::new();
        for point in &self.points {
            if !paths.contains(&point.combination.path) {
                paths.push(point.combination.path);
            }
        }
        paths
    }
}

impl Summary {
    fn of(combination: Combination, points: &[&Point]) -> Option<Self> {
        let all =
            |of: fn(&Figures) -> f64| Spread::of(points.iter().map(|point| of(&point.figures)));
        let some = |of: fn(&Figures) -> Option<f64>| {
            Spread::of(points.iter().filter_map(|point| of(&point.figures)))
        };
        let target_reached = points.iter().filter(|point| point.target_reached).count();
        Some(Self {
            combination,
            rounds: points.len(),
            target_reached: target_reached * 2 > points.len(),
            offered_pps: all(|it| it.offered_pps)?,
            delivered_pps: all(|it| it.delivered_pps)?,
            loss_percent: all(|it| it.loss_percent)?,
            softirq_percent: all(|it| it.softirq_percent)?,
            receivers_percent: all(|it| it.receivers_percent)?,
            switch_percent: all(|it| it.switch_percent)?,
            total_percent: all(|it| it.total_percent)?,
            softirq_ns_per_packet: some(|it| it.softirq_ns_per_packet),
            total_ns_per_packet: some(|it| it.total_ns_per_packet),
        })
    }
}

impl Spread {
    /// `None` without values.
    pub fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.collect();
        Some(Self {
            median: median(values.iter().copied())?,
            min: values.iter().copied().reduce(f64::min)?,
            max: values.iter().copied().reduce(f64::max)?,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::measure::Window;
    use super::*;
    use crate::traffic::rate::Rate;

    fn measured(offered: u64, softirq_ns: u64) -> Measured {
        Measured {
            window: Window {
                ns: 1_000_000_000,
                offered,
                delivered: offered / 100 * 99,
                softirq_ns,
                other_softirq_ns: 10_000_000,
                receivers_ns: 200_000_000,
                switch_ns: 0,
                polls: offered / 2,
            },
            drops: Drops {
                receiver: offered / 100,
                ..Drops::default()
            },
            sent: offered,
            received: offered / 100 * 99,
            violations: Vec::new(),
        }
    }

    fn point(path: Path, rate: u64, round: u32, measured: Measured) -> Point {
        let combination = Combination {
            path,
            receivers: 1,
            rate: Rate(rate),
        };
        Point::new(combination, round, measured)
    }

    /// Two paths at two rates; the bridge reaches only the first.
    pub fn report() -> Report {
        let mut report = Report::new(Host {
            machine: Machine::now(2),
            load_cpu: 0,
            app_cpu: 1,
            size: 64,
            notes: vec!["A note.".into()],
        });
        report.points = vec![
            point(Path::Bridge, 100_000, 1, measured(100_000, 200_000_000)),
            point(Path::Xdp, 100_000, 1, measured(100_000, 50_000_000)),
            point(Path::Bridge, 1_000_000, 1, measured(900_000, 900_000_000)),
            point(Path::Xdp, 1_000_000, 1, measured(1_000_000, 200_000_000)),
        ];
        report.unavailable.push(Unavailable {
            path: Path::Ovs,
            receivers: 1,
            reason: "not installed".into(),
        });
        report.summarize();
        report
    }

    #[test]
    fn figures_are_of_the_window_and_losses_of_the_run() {
        let report = report();
        let figures = report.points[0].figures;
        let expected = Figures {
            offered_pps: 100_000.0,
            delivered_pps: 99_000.0,
            loss_percent: 1.0,
            softirq_percent: 20.0,
            other_softirq_percent: 1.0,
            receivers_percent: 20.0,
            switch_percent: 0.0,
            total_percent: 41.0,
            softirq_ns_per_packet: Some(210_000_000.0 / 99_000.0),
            total_ns_per_packet: Some(410_000_000.0 / 99_000.0),
            packets_per_poll: Some(2.0),
        };
        assert_eq!(figures, expected);
    }

    #[test]
    fn ratios_are_of_runs_that_reached_the_rate() {
        let report = report();
        let same: Vec<_> = report
            .ratios
            .iter()
            .map(|it| (it.target_pps, it.softirq_percent_of_bridge))
            .collect();
        assert_eq!(same, [(100_000, Some(25.0)), (1_000_000, None)]);
        let bounds = report.ratios.iter();
        let bounds: Vec<_> = bounds
            .map(|it| it.softirq_percent_of_bridge_at_most.map(f64::round))
            .collect();
        assert_eq!(bounds, [None, Some(22.0)]);
        let target_reached: Vec<bool> = report.summary.iter().map(|it| it.target_reached).collect();
        assert_eq!(target_reached, [true, true, false, true]);
    }

    #[test]
    fn the_median_is_over_good_rounds() {
        let mut report = report();
        for (round, softirq_ns) in [(2, 60_000_000), (3, 80_000_000), (4, 990_000_000)] {
            report.points.push(point(
                Path::Xdp,
                100_000,
                round,
                measured(100_000, softirq_ns),
            ));
        }
        report.points[6].violations.push("wrong".into());
        report.summarize();
        let summary = report.curve(Path::Xdp, 1).next().expect("is there");
        let expected = Spread {
            median: 6.0,
            min: 5.0,
            max: 8.0,
        };
        assert_eq!((summary.rounds, summary.softirq_percent), (3, expected));
    }
}
