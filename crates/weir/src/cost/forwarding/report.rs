//! The report: runs, their medians over the rounds, and the ratios within each round.

use std::collections::BTreeSet;

use serde::Serialize;

use super::Path;
use super::counts::Frames;
use super::measure::Measured;
use super::plan::{BURSTS, Pace, Part, Traffic};
use crate::cost::curve::report::Spread;
use crate::report::Machine;
use crate::traffic::rate::Rate;

/// A load has reached its target rate from this share of it on.
pub const REACHED: f64 = 0.98;

/// The whole report.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The machine and the settings.
    pub host: Host,
    /// Every run that sent frames through a switch, in order.
    pub runs: Vec<Run>,
    /// CPU time per frame and frames a second, by path and number of stations.
    pub rates: Vec<RateRow>,
    /// The same with many entries of the forwarding database, against few.
    pub entries: Vec<EntriesRow>,
    /// Softirq time at the highest rate of the bridge.
    pub softirq: Vec<SoftirqRow>,
    /// Every run of bulk TCP.
    pub tcp_runs: Vec<TcpRun>,
    /// Bulk TCP.
    pub tcp: Vec<TcpRow>,
    /// Following changes of the forwarding database.
    pub following: Option<Following>,
    /// Attaching and detaching four ports.
    pub attach: Option<Attach>,
    /// Memory of the daemon.
    pub memory: Option<Memory>,
    /// Parts and paths that are unavailable on this host.
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
    /// The CPU of the load, and of the softirqs that forward.
    pub load_cpu: usize,
    /// The CPU of processes that forward, and of those that keep a bridge accelerated.
    pub app_cpu: usize,
    /// Frame length without the FCS.
    pub size: u16,
    /// Sentences about the method.
    pub notes: Vec<String>,
}

/// One run.
#[derive(Debug, Clone, Serialize)]
pub struct Run {
    /// The part that it belongs to.
    pub part: Part,
    /// The switch.
    pub path: Path,
    /// The stations and entries.
    #[serde(flatten)]
    pub traffic: Traffic,
    /// The rate asked of the load; `None`: as many frames as it can make.
    pub target_pps: Option<Rate>,
    /// Frames that come at once; `None` without a rate.
    pub burst: Option<u64>,
    /// The round, from 1.
    pub round: u32,
    /// The length of the window.
    pub seconds: f64,
    /// Frames a second that the load made.
    pub offered_pps: f64,
    /// Frames a second that were received behind the switch.
    pub delivered_pps: f64,
    /// Whether the load reached the target rate; true without one.
    pub target_reached: bool,
    /// Frames of the run that were not received behind the switch, in percent.
    pub loss_percent: f64,
    /// The load's process, in percent of its CPU.
    pub load_percent: f64,
    /// Softirqs of the network on the load's CPU, in percent of it.
    pub softirq_percent: f64,
    /// The same on all other CPUs, in percent of one.
    pub other_softirq_percent: f64,
    /// The processes of a switch, in percent of one CPU.
    pub switch_percent: f64,
    /// The thread that keeps a bridge accelerated, in percent of one CPU.
    pub keeper_percent: f64,
    /// CPU time of the load, all softirqs and the switch for each frame received; `None` without any.
    pub ns_per_packet: Option<f64>,
    /// The part of it of softirqs and of the switch.
    pub softirq_and_switch_ns_per_packet: Option<f64>,
    /// Frames per NAPI poll on the load's CPU.
    pub packets_per_poll: Option<f64>,
    /// Frames of the whole run.
    #[serde(flatten)]
    pub frames: Frames,
    /// Contradictions between the counters; none in a good run.
    pub violations: Vec<String>,
}

/// A path with a traffic, over the rounds.
#[derive(Debug, Clone, Serialize)]
pub struct RateRow {
    /// The switch.
    pub path: Path,
    /// The stations and entries.
    #[serde(flatten)]
    pub traffic: Traffic,
    /// Rounds without violations; others do not count.
    pub rounds: usize,
    /// See [`Run::delivered_pps`].
    pub delivered_pps: Spread,
    /// CPU time for each frame, the load's included.
    pub ns_per_packet: Spread,
    /// CPU time for each frame without that of the load alone; `None` for the load.
    pub own_ns_per_packet: Option<Spread>,
    /// The bridge's own time, divided by this one's, within each round; `None` without a bridge.
    pub times_bridge: Option<Spread>,
}

/// Many entries against few.
#[derive(Debug, Clone, Serialize)]
pub struct EntriesRow {
    /// The switch.
    pub path: Path,
    /// Entries of the smaller forwarding database.
    pub few: u64,
    /// Entries of the larger one.
    pub many: u64,
    /// Rounds.
    pub rounds: usize,
    /// The path's own time for a frame with few entries.
    pub own_ns_per_packet_few: Spread,
    /// The same with many.
    pub own_ns_per_packet_many: Spread,
    /// The latter in percent of the former, within each round.
    pub percent_of_few: Spread,
}

/// A path at the highest rate of the bridge.
#[derive(Debug, Clone, Serialize)]
pub struct SoftirqRow {
    /// The switch.
    pub path: Path,
    /// The rate.
    pub target_pps: Rate,
    /// Frames that come at once.
    pub burst: u64,
    /// Rounds without violations.
    pub rounds: usize,
    /// See [`Run::delivered_pps`].
    pub delivered_pps: Spread,
    /// See [`Run::loss_percent`].
    pub loss_percent: Spread,
    /// Softirqs of the network on all CPUs, in percent of one.
    pub softirq_percent: Spread,
    /// These and the processes of a switch.
    pub total_percent: Spread,
    /// The softirq time in percent of the bridge's, within each round; `None` without a bridge.
    pub softirq_percent_of_bridge: Option<Spread>,
    /// The total in percent of that of Open vSwitch; `None` without it.
    pub total_percent_of_ovs: Option<Spread>,
}

/// One run of iperf3.
#[derive(Debug, Clone, Serialize)]
pub struct TcpRun {
    /// The switch.
    pub path: Path,
    /// The round, from 1.
    pub round: u32,
    /// Received, in gigabits (10^9) a second.
    pub gbps: f64,
    /// Segments that the sender repeated.
    pub retransmits: u64,
}

/// Bulk TCP over the rounds.
#[derive(Debug, Clone, Serialize)]
pub struct TcpRow {
    /// The switch.
    pub path: Path,
    /// Rounds.
    pub rounds: usize,
    /// Received, in gigabits (10^9) a second.
    pub gbps: Spread,
    /// This divided by the bridge's, within each round; `None` without a bridge.
    pub times_bridge: Option<Spread>,
}

/// Following changes of the forwarding database.
#[derive(Debug, Clone, Serialize)]
pub struct Following {
    /// Changes, entries added and removed.
    pub changes: u64,
    /// How long they took.
    pub seconds: f64,
    /// Changes a second.
    pub changes_per_second: f64,
    /// From the last change until the maps had everything.
    pub settled_ms: f64,
    /// Entries of the bridge at the end, by its own listing.
    pub bridge_entries: u64,
    /// Entries of the maps at the end.
    pub mirror_entries: u64,
    /// Full resynchronizations meanwhile.
    pub resyncs: u64,
    /// CPU time of the thread that follows, in percent of one CPU.
    pub keeper_percent: f64,
}

/// Attaching and detaching four ports.
#[derive(Debug, Clone, Serialize)]
pub struct Attach {
    /// Ports of the bridge.
    pub ports: u64,
    /// Repetitions.
    pub rounds: usize,
    /// Time to attach, in milliseconds.
    pub attach_ms: Spread,
    /// Time to detach, in milliseconds.
    pub detach_ms: Spread,
}

/// Memory of the daemon.
#[derive(Debug, Clone, Serialize)]
pub struct Memory {
    /// Entries of the forwarding database.
    pub entries: u64,
    /// Resident now (`VmRSS`), in KiB.
    pub rss_kib: u64,
    /// The most so far (`VmHWM`), in KiB.
    pub peak_kib: u64,
}

/// A part or path that is unavailable on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unavailable {
    /// The part.
    pub part: Part,
    /// The path; `None` for the whole part.
    pub path: Option<Path>,
    /// Cause and cure.
    pub reason: String,
}

/// A run that failed.
#[derive(Debug, Clone, Serialize)]
pub struct Failed {
    /// The part.
    pub part: Part,
    /// The path; `None` for the whole part.
    pub path: Option<Path>,
    /// The round; `None` outside of rounds.
    pub round: Option<u32>,
    /// The error.
    pub message: String,
}

impl Run {
    /// A run's figures.
    pub fn new(
        part: Part,
        (path, traffic): (Path, Traffic),
        pace: Option<Pace>,
        round: u32,
        measured: Measured,
    ) -> Self {
        let Measured {
            window,
            frames,
            violations,
        } = measured;
        let seconds = window.ns as f64 / 1e9;
        let percent = |ns: u64| ns as f64 / window.ns as f64 * 100.0;
        let per_packet =
            |ns: u64| (window.delivered > 0).then(|| ns as f64 / window.delivered as f64);
        let switch_ns = window.softirq_ns + window.other_softirq_ns + window.switch_ns;
        let offered_pps = window.offered as f64 / seconds;
        let lost = frames.sent.saturating_sub(frames.received);
        Self {
            part,
            path,
            traffic,
            target_pps: pace.map(|pace| pace.rate),
            burst: pace.map(|pace| pace.burst),
            round,
            seconds,
            offered_pps,
            delivered_pps: window.delivered as f64 / seconds,
            target_reached: pace.is_none_or(|pace| offered_pps >= pace.rate.0 as f64 * REACHED),
            loss_percent: lost as f64 / frames.sent.max(1) as f64 * 100.0,
            load_percent: percent(window.load_ns),
            softirq_percent: percent(window.softirq_ns),
            other_softirq_percent: percent(window.other_softirq_ns),
            switch_percent: percent(window.switch_ns),
            keeper_percent: percent(window.keeper_ns),
            ns_per_packet: per_packet(window.load_ns + switch_ns),
            softirq_and_switch_ns_per_packet: per_packet(switch_ns),
            packets_per_poll: (window.polls > 0)
                .then(|| window.offered as f64 / window.polls as f64),
            frames,
            violations,
        }
    }

    /// The path's own time for a frame: without the load's, which `load` measured alone. At a rate
    /// below the most that it can make, the load waits in its process, so only its softirqs count.
    fn own_ns(&self, load: &Self) -> Option<f64> {
        let (all, of_load) = match self.target_pps {
            None => (self.ns_per_packet, load.ns_per_packet),
            Some(_) => (
                self.softirq_and_switch_ns_per_packet,
                load.softirq_and_switch_ns_per_packet,
            ),
        };
        Some(all? - of_load?)
    }

    fn all_softirqs(&self) -> f64 {
        self.softirq_percent + self.other_softirq_percent
    }

    fn total(&self) -> f64 {
        self.all_softirqs() + self.switch_percent
    }
}

impl Report {
    /// A report without runs yet.
    pub fn new(host: Host) -> Self {
        Self {
            host,
            runs: Vec::new(),
            rates: Vec::new(),
            entries: Vec::new(),
            softirq: Vec::new(),
            tcp_runs: Vec::new(),
            tcp: Vec::new(),
            following: None,
            attach: None,
            memory: None,
            unavailable: Vec::new(),
            failed: Vec::new(),
            interrupted: false,
        }
    }

    /// Computes medians and ratios.
    pub fn summarize(&mut self) {
        let rates = self.combinations(Part::Rate);
        self.rates = rates.iter().filter_map(|it| self.rate_row(*it)).collect();
        let many = self.combinations(Part::Entries).into_iter();
        let many = many.filter(|(path, traffic)| *path != Path::Load && traffic.idle_entries > 0);
        self.entries = many.filter_map(|it| self.entries_row(it)).collect();
        let at_rate = self.combinations(Part::Softirq);
        self.softirq = BURSTS
            .iter()
            .flat_map(|burst| at_rate.iter().map(move |(path, _)| (*path, *burst)))
            .filter_map(|(path, burst)| self.softirq_row(path, burst))
            .collect();
        let tcp: BTreeSet<Path> = self.tcp_runs.iter().map(|run| run.path).collect();
        self.tcp = tcp.into_iter().filter_map(|it| self.tcp_row(it)).collect();
    }

    /// By traffic, then by path.
    fn combinations(&self, part: Part) -> Vec<(Path, Traffic)> {
        let runs = self.runs.iter().filter(|run| run.part == part);
        let all: BTreeSet<(Traffic, Path)> = runs.map(|run| (run.traffic, run.path)).collect();
        all.into_iter()
            .map(|(traffic, path)| (path, traffic))
            .collect()
    }

    /// The runs of a part without violations.
    fn good(&self, part: Part, path: Path, traffic: Traffic) -> Vec<&Run> {
        let runs = self.runs.iter().filter(|run| {
            run.part == part
                && run.path == path
                && run.traffic == traffic
                && run.violations.is_empty()
        });
        runs.collect()
    }

    /// A path's own time for a frame in each round, with the round.
    fn own_ns(&self, part: Part, path: Path, traffic: Traffic) -> Vec<(u32, f64)> {
        let plain = Traffic {
            idle_entries: 0,
            ..traffic
        };
        let loads = self.good(part, Path::Load, plain);
        let runs = self.good(part, path, traffic).into_iter();
        runs.filter_map(|run| {
            let load = loads.iter().find(|load| load.round == run.round)?;
            Some((run.round, run.own_ns(load)?))
        })
        .collect()
    }

    /// A path's time for a frame in each round, with that of the load alone.
    fn with_load(&self, path: Path, traffic: Traffic) -> Vec<f64> {
        let loads = self.good(Part::Rate, Path::Load, traffic);
        let own = self.own_ns(Part::Rate, path, traffic).into_iter();
        own.filter_map(|(round, own)| {
            let load = loads.iter().find(|load| load.round == round)?;
            Some(own + load.ns_per_packet?)
        })
        .collect()
    }

    fn rate_row(&self, (path, traffic): (Path, Traffic)) -> Option<RateRow> {
        let runs = self.good(Part::Rate, path, traffic);
        let own = self.own_ns(Part::Rate, path, traffic);
        let bridge = self.own_ns(Part::Rate, Path::Bridge, traffic);
        let of_load = path == Path::Load;
        Some(RateRow {
            path,
            traffic,
            rounds: runs.len(),
            delivered_pps: Spread::of(runs.iter().map(|run| run.delivered_pps))?,
            ns_per_packet: Spread::of(self.with_load(path, traffic).into_iter())?,
            own_ns_per_packet: Spread::of(own.iter().map(|(_, ns)| *ns)).filter(|_| !of_load),
            times_bridge: Spread::of(ratios(&bridge, &own)).filter(|_| !of_load),
        })
    }

    fn entries_row(&self, (path, traffic): (Path, Traffic)) -> Option<EntriesRow> {
        let plain = Traffic {
            idle_entries: 0,
            ..traffic
        };
        let few = self.own_ns(Part::Entries, path, plain);
        let many = self.own_ns(Part::Entries, path, traffic);
        let percent: Vec<f64> = ratios(&many, &few).map(|it| it * 100.0).collect();
        Some(EntriesRow {
            path,
            few: 2 * traffic.pairs,
            many: 2 * traffic.pairs + traffic.idle_entries,
            rounds: percent.len(),
            own_ns_per_packet_few: Spread::of(few.iter().map(|(_, ns)| *ns))?,
            own_ns_per_packet_many: Spread::of(many.iter().map(|(_, ns)| *ns))?,
            percent_of_few: Spread::of(percent.into_iter())?,
        })
    }

    fn softirq_row(&self, path: Path, burst: u64) -> Option<SoftirqRow> {
        let runs = |path| -> Vec<&Run> {
            let runs = self.runs.iter().filter(|run| run.burst == Some(burst));
            runs.filter(|run| run.part == Part::Softirq)
                .filter(|run| run.path == path && run.violations.is_empty())
                .collect()
        };
        let of = |path, figure: fn(&Run) -> f64| -> Vec<(u32, f64)> {
            let runs = runs(path).into_iter();
            runs.map(|run| (run.round, figure(run))).collect()
        };
        let own = runs(path);
        let percent = |figure, other| {
            Spread::of(ratios(&of(path, figure), &of(other, figure)).map(|it| it * 100.0))
        };
        Some(SoftirqRow {
            path,
            target_pps: own.first()?.target_pps?,
            burst,
            rounds: own.len(),
            delivered_pps: Spread::of(own.iter().map(|run| run.delivered_pps))?,
            loss_percent: Spread::of(own.iter().map(|run| run.loss_percent))?,
            softirq_percent: Spread::of(own.iter().map(|run| run.all_softirqs()))?,
            total_percent: Spread::of(own.iter().map(|run| run.total()))?,
            softirq_percent_of_bridge: percent(Run::all_softirqs, Path::Bridge),
            total_percent_of_ovs: percent(Run::total, Path::Ovs),
        })
    }

    fn tcp_row(&self, path: Path) -> Option<TcpRow> {
        let of = |path| -> Vec<(u32, f64)> {
            let runs = self.tcp_runs.iter().filter(|run| run.path == path);
            runs.map(|run| (run.round, run.gbps)).collect()
        };
        let (own, bridge) = (of(path), of(Path::Bridge));
        Some(TcpRow {
            path,
            rounds: own.len(),
            gbps: Spread::of(own.iter().map(|(_, gbps)| *gbps))?,
            times_bridge: Spread::of(ratios(&own, &bridge)),
        })
    }
}

/// The ratios of figures of the same round.
fn ratios<'a>(
    above: &'a [(u32, f64)],
    below: &'a [(u32, f64)],
) -> impl Iterator<Item = f64> + use<'a> {
    above.iter().filter_map(|(round, one)| {
        let (_, other) = below.iter().find(|(other, _)| other == round)?;
        (*other != 0.0).then(|| one / other)
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::measure::Window;
    use super::*;

    const PLAIN: Traffic = Traffic {
        pairs: 100,
        idle_entries: 0,
    };

    /// A window of one second, in which one CPU is busy and each frame takes `ns` of it, of which the
    /// load's process 100.
    fn measured(ns: u64, delivered: u64) -> Measured {
        Measured {
            window: Window {
                ns: 1_000_000_000,
                offered: delivered,
                delivered,
                load_ns: 100 * delivered,
                softirq_ns: (ns - 100) * delivered,
                polls: delivered / 64,
                ..Window::default()
            },
            frames: Frames {
                sent: delivered,
                received: delivered,
                ..Frames::default()
            },
            violations: Vec::new(),
        }
    }

    fn run(part: Part, path: Path, round: u32, ns: u64) -> Run {
        let measured = measured(ns, 1_000_000_000 / ns);
        Run::new(part, (path, PLAIN), None, round, measured)
    }

    pub fn report() -> Report {
        let mut report = Report::new(Host {
            machine: Machine::now(2),
            load_cpu: 0,
            app_cpu: 1,
            size: 64,
            notes: vec!["A note.".into()],
        });
        for round in 1..=2 {
            for (path, ns) in [(Path::Load, 200), (Path::Bridge, 800), (Path::WeirXdp, 320)] {
                report.runs.push(run(Part::Rate, path, round, ns));
                report.runs.push(run(Part::Entries, path, round, ns));
                let mut many = run(Part::Entries, path, round, ns + 60);
                many.traffic.idle_entries = 99_800;
                if path != Path::Load {
                    report.runs.push(many);
                    let pace = Pace {
                        rate: Rate(1_000_000),
                        burst: 64,
                    };
                    let measured = measured(ns, 1_000_000);
                    let key = (path, PLAIN);
                    let at_rate = Run::new(Part::Softirq, key, Some(pace), round, measured);
                    report.runs.push(at_rate);
                }
            }
            for (path, gbps) in [(Path::Bridge, 20.0), (Path::WeirTcx, 21.0)] {
                report.tcp_runs.push(TcpRun {
                    path,
                    round,
                    gbps,
                    retransmits: 0,
                });
            }
        }
        report.unavailable.push(Unavailable {
            part: Part::Rate,
            path: Some(Path::Ovs),
            reason: "not installed".into(),
        });
        report.attach = Some(Attach {
            ports: 4,
            rounds: 2,
            attach_ms: spread(100.0),
            detach_ms: spread(50.0),
        });
        report.memory = Some(Memory {
            entries: 100_000,
            rss_kib: 20_000,
            peak_kib: 24_000,
        });
        report.following = Some(Following {
            changes: 30_000,
            seconds: 3.0,
            changes_per_second: 10_000.0,
            settled_ms: 12.0,
            bridge_entries: 1000,
            mirror_entries: 1000,
            resyncs: 0,
            keeper_percent: 20.0,
        });
        report.summarize();
        report
    }

    fn spread(median: f64) -> Spread {
        Spread {
            median,
            min: median,
            max: median,
        }
    }

    #[test]
    fn the_loads_own_time_is_taken_off() {
        let report = report();
        let rows: Vec<_> = report
            .rates
            .iter()
            .map(|row| {
                let median = |it: Option<Spread>| it.map(|it| it.median.round());
                (
                    row.path,
                    median(row.own_ns_per_packet),
                    median(row.times_bridge),
                )
            })
            .collect();
        let expected = [
            (Path::Load, None, None),
            (Path::Bridge, Some(600.0), Some(1.0)),
            (Path::WeirXdp, Some(120.0), Some(5.0)),
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn entries_are_compared_with_few_of_the_same_path() {
        let report = report();
        let rows: Vec<_> = report
            .entries
            .iter()
            .map(|row| {
                (
                    row.path,
                    row.few,
                    row.many,
                    row.percent_of_few.median.round(),
                )
            })
            .collect();
        let expected = [
            (Path::Bridge, 200, 100_000, 110.0),
            (Path::WeirXdp, 200, 100_000, 150.0),
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn softirqs_at_a_rate_are_compared_with_the_bridges() {
        let report = report();
        let rows: Vec<_> = report
            .softirq
            .iter()
            .map(|row| {
                let percent = row.softirq_percent_of_bridge.map(|it| it.median.round());
                (row.path, row.softirq_percent.median, percent)
            })
            .collect();
        let expected = [
            (Path::Bridge, 70.0, Some(100.0)),
            (Path::WeirXdp, 22.0, Some(31.0)),
        ];
        assert_eq!(rows, expected);
        assert_eq!(report.tcp[1].times_bridge, Some(spread(1.05)));
    }

    #[test]
    fn a_contradiction_takes_a_run_out() {
        let mut report = report();
        for run in &mut report.runs {
            if run.round == 2 && run.path == Path::WeirXdp {
                run.violations.push("wrong".into());
            }
        }
        report.summarize();
        let rounds: Vec<usize> = report.rates.iter().map(|row| row.rounds).collect();
        assert_eq!(rounds, [2, 2, 1]);
    }
}
