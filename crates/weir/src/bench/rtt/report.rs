//! The report: figures of all runs, their medians, and the ways that could not be measured.

use serde::Serialize;

use super::plan::{Case, Way};
use super::run::Run;
use super::summary::{Ratio, Summary, ratios, summarize};
use crate::bench::plan::Unavailable;
use crate::bench::report::Host;
use crate::bench::report::table::unavailable_notes;

/// A part of the 99th percentile that is worth a note.
const LARGE_PART: f64 = 0.5;

/// All results; its JSON form.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The machine and its CPUs: `load_cpu` is the pinger's, `app_cpu` the echo's.
    pub host: Host,
    /// Frame length without the FCS.
    pub size: u16,
    /// Every run that gave figures, in order.
    pub runs: Vec<Run>,
    /// Medians over the rounds.
    pub summary: Vec<Summary>,
    /// Latencies beside those of others, round by round.
    pub ratios: Vec<Ratio>,
    /// Ways that the device does not offer.
    pub refused: Vec<Refused>,
    /// Engines and ways to wait that are missing on this machine or in this build.
    pub unavailable: Vec<Unavailable>,
    /// Runs that failed.
    pub failed: Vec<Failed>,
    /// Whether it was ended before all cases were measured.
    pub interrupted: bool,
}

/// A way that the device does not offer.
#[derive(Debug, Clone, Serialize)]
pub struct Refused {
    /// The way: `engine`, `mode`, `wait`.
    #[serde(flatten)]
    pub way: Way,
    /// The error number.
    pub errno: i32,
    /// Why.
    pub reason: String,
}

/// A run that failed.
#[derive(Debug, Clone, Serialize)]
pub struct Failed {
    /// The case.
    #[serde(flatten)]
    pub case: Case,
    /// From 1.
    pub round: u32,
    /// Cause and cure.
    pub message: String,
}

impl Report {
    /// A report with nothing in it yet.
    pub fn new(host: Host, size: u16, unavailable: Vec<Unavailable>) -> Self {
        Self {
            host,
            size,
            runs: Vec::new(),
            summary: Vec::new(),
            ratios: Vec::new(),
            refused: Vec::new(),
            unavailable,
            failed: Vec::new(),
            interrupted: false,
        }
    }

    /// Computes medians and ratios of the runs that count.
    pub fn summarize(&mut self) {
        self.summary = summarize(&self.runs);
        self.ratios = ratios(&self.runs);
    }

    /// The rates with a result, ascending, each with the medians of its ways.
    pub fn by_rate(&self) -> Vec<(u64, Vec<&Summary>)> {
        let mut all: Vec<(u64, Vec<&Summary>)> = Vec::new();
        for row in &self.summary {
            let rate = row.case.rate.0;
            match all.last_mut() {
                Some((last, rows)) if *last == rate => rows.push(row),
                _ => all.push((rate, vec![row])),
            }
        }
        all
    }

    /// Notes about results that are missing or that say less than they seem to, each a paragraph.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for it in &self.refused {
            notes.push(format!("refused: {}: {}", it.way, it.reason));
        }
        notes.extend(unavailable_notes(&self.unavailable));
        for it in &self.failed {
            notes.push(format!(
                "failed: {}, round {}: {}",
                it.case, it.round, it.message
            ));
        }
        notes.extend(self.loss_note());
        notes.extend(self.delay_note());
        if self.interrupted {
            notes.push("interrupted: unfinished runs are missing.".into());
        }
        notes
    }

    /// Percentiles are of the answered packets alone.
    fn loss_note(&self) -> Option<String> {
        let lossy: Vec<String> = self
            .summary
            .iter()
            .filter(|row| row.lost > 0)
            .map(|row| row.case.to_string())
            .collect();
        (!lossy.is_empty()).then(|| {
            format!(
                "note: packets were lost, which no percentile shows: {}.",
                lossy.join(", ")
            )
        })
    }

    /// A latency cannot be told from the pinger's delay where that is a large part of it.
    fn delay_note(&self) -> Option<String> {
        let is_late = |row: &&Summary| {
            let delay = row.pinger_delay_p99_ns_median.unwrap_or(0.0);
            row.at(99.0).is_some_and(|p99| delay > p99 * LARGE_PART)
        };
        let late = self.summary.iter().filter(is_late).count();
        (late > 0).then(|| {
            format!(
                "note: in {late} of {} rows the pinger's own delay is over half of p99: other tasks ran on its CPU, \
                 and those rows say little about the echo.",
                self.summary.len()
            )
        })
    }

    /// The use of each CPU.
    pub fn cpu_note(&self) -> String {
        let app = self.host.app_cpu;
        match self.host.load_cpu {
            Some(load) if load != app => format!(
                "CPU {load} runs the pinger, which spins, and the kernel's part of delivering its packets; CPU \
                 {app} runs the echo and the kernel's part of delivering the answers."
            ),
            _ => format!(
                "CPU {app} is shared by pinger, kernel and echo, so latencies are those of taking turns."
            ),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bench::check::Check;
    use crate::engine::{Engine, Mode, Wait};
    use crate::report::Machine;
    use crate::report::latency::Recorder;
    use crate::traffic::rate::Rate;

    /// A run whose packets all took so many nanoseconds, but one in a hundred ten times as long.
    pub fn run(engine: Engine, wait: Wait, pps: u64, round: u32, ns: u64) -> Run {
        let mut recorder = Recorder::default();
        for number in 0..2000 {
            recorder.record(if number % 100 == 0 { 10 * ns } else { ns });
        }
        let mut delay = Recorder::default();
        (0..2000).for_each(|_| delay.record(300));
        Run {
            case: Case {
                rate: Rate(pps),
                way: Way {
                    engine,
                    mode: (engine == Engine::Xsk).then_some(Mode::Drv),
                    wait,
                },
            },
            mode_obtained: None,
            refusals: Vec::new(),
            round,
            sent: 2000,
            answered: 2000,
            lost: 0,
            corrupted: 0,
            duplicates: 0,
            reordered: 0,
            lost_at_pinger: 0,
            latency: recorder.percentiles(),
            pinger_delay: delay.percentiles(),
            app_cpu_percent: 100.0,
            cpu_ns_per_packet: Some(1000.0),
            check: Check {
                ok: true,
                ..Check::default()
            },
        }
    }

    /// Two rounds of two ways at two rates, with one refusal.
    pub fn report() -> Report {
        let host = Host {
            machine: Machine {
                date: "2026-01-02T03:04:05Z".into(),
                weir: "0.1.0".into(),
                command: "weir bench rtt".into(),
                kernel: "Linux 6.18.0".into(),
                cpu_model: "A & B".into(),
                cpus: 2,
            },
            load_cpu: Some(0),
            app_cpu: 1,
            sender_cpu: None,
            place: "lab".into(),
            notes: vec!["note".into()],
        };
        let mut report = Report::new(host, 64, Vec::new());
        for pps in [1_000, 10_000] {
            for round in 1..=2 {
                let runs = &mut report.runs;
                runs.push(run(Engine::PacketV2, Wait::Spin, pps, round, 20_000));
                runs.push(run(Engine::Xsk, Wait::Spin, pps, round, 10_000));
            }
        }
        report.refused.push(Refused {
            way: Way {
                mode: Some(Mode::Zc),
                ..report.runs[1].case.way
            },
            errno: 95,
            reason: "no <zero-copy>".into(),
        });
        report.summarize();
        report
    }

    #[test]
    fn the_json_form_is_the_agreed_one() {
        let json = serde_json::to_value(report()).expect("serializes");
        let run = &json["runs"][1];
        assert_eq!(
            (&run["engine"], &run["mode"]),
            (&"xsk".into(), &"drv".into())
        );
        assert_eq!(run["offered_pps"], 1_000);
        assert_eq!(run["latency"]["percentiles"][3]["percent"], 50.0);
        let row = &json["summary"][0];
        assert_eq!(
            (&row["engine"], &row["rounds"]),
            (&"packet-v2".into(), &2.into())
        );
        let ratio = &json["ratios"][0];
        assert_eq!(
            (&ratio["engine"], &ratio["ratio_to"]),
            (&"xsk".into(), &"packet-v2".into())
        );
        assert_eq!(json["refused"][0]["mode"], "zc");
    }

    #[test]
    fn a_late_pinger_is_mentioned() {
        let mut report = report();
        report.runs[0].pinger_delay = report.runs[0].latency.clone();
        report.runs.remove(2);
        report.summarize();
        let note = report.notes().pop().expect("a note");
        assert!(note.contains("in 1 of 4 rows"), "{note}");
    }

    #[test]
    fn losses_are_mentioned() {
        let mut report = report();
        assert_eq!(report.notes(), ["refused: xsk zc spin: no <zero-copy>"]);
        report.runs[1].lost = 3;
        report.summarize();
        let note = report.notes().pop().expect("a note");
        assert!(note.contains("xsk drv spin at 1k/s"), "{note}");
    }
}
