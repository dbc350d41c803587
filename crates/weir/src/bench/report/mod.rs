//! The report of a bench: figures, and the forms they are shown in.

use serde::Serialize;

use super::plan::{Combination, Unavailable};
use crate::engine::{Engine, Mode, Wait};

pub mod host;
pub mod html;
pub mod run;
pub mod summary;
pub mod table;

pub use host::Host;
pub use run::Run;
pub use summary::Summary;

/// All results of a bench; its JSON form.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The place and conditions of the measurement.
    pub host: Host,
    /// Every run that gave figures, in order.
    pub runs: Vec<Run>,
    /// Medians and ratios over the rounds.
    pub summary: Vec<Summary>,
    /// Modes that the device does not offer.
    pub refused: Vec<Refused>,
    /// Engines and ways to wait that are missing on this machine or in this build.
    pub unavailable: Vec<Unavailable>,
    /// Runs that failed.
    pub failed: Vec<Failed>,
    /// Whether it was ended before all combinations were measured.
    pub interrupted: bool,
}

/// A mode that the device does not offer.
#[derive(Debug, Clone, Serialize)]
pub struct Refused {
    /// The combination.
    #[serde(flatten)]
    pub combination: Combination,
    /// The error number.
    pub errno: i32,
    /// Why.
    pub reason: String,
}

/// A run that failed.
#[derive(Debug, Clone, Serialize)]
pub struct Failed {
    /// The combination.
    #[serde(flatten)]
    pub combination: Combination,
    /// From 1.
    pub round: u32,
    /// Cause and cure.
    pub message: String,
}

impl Report {
    /// A report with nothing in it yet.
    pub fn new(host: Host, unavailable: Vec<Unavailable>) -> Self {
        Self {
            host,
            runs: Vec::new(),
            summary: Vec::new(),
            refused: Vec::new(),
            unavailable,
            failed: Vec::new(),
            interrupted: false,
        }
    }

    /// Computes the summary of the runs.
    pub fn summarize(&mut self) {
        self.summary = summary::summarize(&self.runs);
    }

    /// The combinations with a result, in the order of the tables.
    pub fn combinations(&self) -> Vec<Combination> {
        let mut all: Vec<Combination> = Vec::new();
        let measured = self.runs.iter().map(|it| it.combination);
        let refused = self.refused.iter().map(|it| it.combination);
        let failed = self.failed.iter().map(|it| it.combination);
        for combination in measured.chain(refused).chain(failed) {
            if !all.contains(&combination) {
                all.push(combination);
            }
        }
        all.sort_by_key(|it| (it.bench, column(*it), it.wait));
        all
    }

    /// The runs of one combination that count.
    pub fn runs_of(&self, combination: Combination) -> impl Iterator<Item = &Run> {
        self.runs
            .iter()
            .filter(move |run| run.combination == combination && run.check.ok)
    }

    /// The first of a combination's rows in the summary: its medians.
    pub fn medians(&self, combination: Combination) -> Option<&Summary> {
        self.summary
            .iter()
            .find(|row| row.combination == combination)
    }

    /// Refusals, each reason once, with the combinations that it applies to.
    pub fn refusals(&self) -> Vec<(String, &str)> {
        let mut all: Vec<(String, Vec<String>, &str)> = Vec::new();
        for it in &self.refused {
            let Combination { engine, mode, .. } = it.combination;
            let way = match mode {
                Some(mode) => format!("{engine} {mode}"),
                None => engine.to_string(),
            };
            let bench = it.combination.bench.to_string();
            match all
                .iter_mut()
                .find(|(known, _, reason)| *known == way && *reason == it.reason)
            {
                Some((_, benches, _)) if benches.contains(&bench) => {}
                Some((_, benches, _)) => benches.push(bench),
                None => all.push((way, vec![bench], &it.reason)),
            }
        }
        all.into_iter()
            .map(|(way, benches, reason)| (format!("{way} ({})", benches.join(", ")), reason))
            .collect()
    }
}

/// The place of a combination in the table of the AF_XDP RFC: packet sockets first, then the
/// modes of AF_XDP, in each weir's library before libxdp.
pub fn column(combination: Combination) -> (Option<Mode>, Engine) {
    (combination.mode, combination.engine)
}

/// The way of waiting in the overview, if there are several.
pub fn main_wait(combinations: &[Combination]) -> Option<Wait> {
    [Wait::Spin, Wait::Poll, Wait::Adaptive]
        .into_iter()
        .find(|&wait| combinations.iter().any(|it| it.wait == wait))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::check::Check;
    use crate::bench::runner::{Measured, Settings};
    use crate::engine::bench::Bench;
    use crate::report::Machine;

    /// A run of rxdrop with `packets` in one second.
    pub(super) fn run(
        engine: Engine,
        mode: Option<Mode>,
        wait: Wait,
        round: u32,
        packets: u64,
    ) -> Run {
        let combination = Combination {
            bench: Bench::Rxdrop,
            engine,
            mode,
            wait,
        };
        let settings = Settings {
            size: 64,
            pps: None,
            warmup: std::time::Duration::ZERO,
            window: std::time::Duration::from_secs(1),
            batch: 64,
            turn: None,
            verify: false,
            load_cpu: 0,
            app_cpu: 1,
            sender_cpu: 0,
        };
        let measured = Measured {
            mode_obtained: mode,
            refusals: Vec::new(),
            packets,
            seconds: 1.0,
            user_ns: 100 * packets,
            sys_ns: 300 * packets,
            check: Check {
                ok: true,
                ..Check::default()
            },
        };
        Run::new(combination, round, &settings, measured)
    }

    pub(super) fn host() -> Host {
        Host {
            machine: Machine {
                date: "2026-01-02T03:04:05Z".into(),
                weir: "0.1.0".into(),
                command: "weir bench rxdrop --lab".into(),
                kernel: "Linux 6.18.0".into(),
                cpu_model: "A & B".into(),
                cpus: 2,
            },
            load_cpu: Some(0),
            app_cpu: 1,
            sender_cpu: None,
            place: "lab".into(),
            notes: vec!["note".into()],
        }
    }

    /// A report of two rounds of two engines, with one refusal.
    pub(super) fn report() -> Report {
        let mut report = Report::new(host(), Vec::new());
        for round in 1..=2 {
            let drv = Some(Mode::Drv);
            report
                .runs
                .push(run(Engine::Xsk, drv, Wait::Spin, round, 2_000_000));
            report
                .runs
                .push(run(Engine::Libxdp, drv, Wait::Spin, round, 1_000_000));
        }
        report.refused.push(Refused {
            combination: Combination {
                mode: Some(Mode::Zc),
                ..report.runs[0].combination
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
        let keys = |value: &serde_json::Value| -> Vec<String> {
            let object = value.as_object().expect("an object");
            object.keys().cloned().collect()
        };
        for key in [
            "host",
            "runs",
            "summary",
            "refused",
            "unavailable",
            "failed",
        ] {
            assert!(keys(&json).contains(&key.into()), "{key}");
        }
        let run = &json["runs"][0];
        for key in [
            "bench",
            "engine",
            "mode",
            "mode_obtained",
            "wait",
            "size",
            "offered_pps",
            "round",
            "seconds",
            "packets",
            "pps",
            "cpu_user_ns_per_packet",
            "cpu_sys_ns_per_packet",
            "app_cpu_percent",
            "dropped",
            "corrupted",
        ] {
            assert!(keys(run).contains(&key.into()), "{key}");
        }
        assert_eq!(run["engine"], "xsk");
        assert_eq!(run["mode"], "drv");
        assert_eq!(run["offered_pps"], serde_json::Value::Null);
        assert_eq!(run["cpu_user_ns_per_packet"], 100.0);
        assert_eq!(run["app_cpu_percent"], 80.0);
        let row = &json["summary"][0];
        assert_eq!(row["bench"], "rxdrop");
        assert_eq!(row["pps_median"], 2_000_000.0);
        assert_eq!(row["ratio_to"], "libxdp");
        assert_eq!(row["ratio_median"], 2.0);
        assert_eq!(json["refused"][0]["mode"], "zc");
    }

    #[test]
    fn a_reason_is_given_once() {
        let mut report = report();
        let mut more = report.refused[0].clone();
        more.combination.bench = Bench::L2fwd;
        report.refused.push(more);
        assert_eq!(
            report.refusals(),
            [("xsk zc (rxdrop, l2fwd)".to_owned(), "no <zero-copy>")]
        );
    }
}
