//! The figures of one run.

use serde::Serialize;

use super::plan::Case;
use super::runner::Measured;
use crate::bench::check::Check;
use crate::engine::Mode;
use crate::report::latency::Latency;

/// One run.
#[derive(Debug, Clone, Serialize)]
pub struct Run {
    /// The case: `offered_pps`, `engine`, `mode`, `wait`.
    #[serde(flatten)]
    pub case: Case,
    /// The mode that the kernel reports.
    pub mode_obtained: Option<Mode>,
    /// Better modes that were tried first, with reasons.
    pub refusals: Vec<String>,
    /// From 1.
    pub round: u32,
    /// Packets that the pinger sent in the whole run, as the next counts.
    pub sent: u64,
    /// Packets answered, each once.
    pub answered: u64,
    /// Packets not answered.
    pub lost: u64,
    /// Answers whose contents were wrong.
    pub corrupted: u64,
    /// Answers that came twice.
    pub duplicates: u64,
    /// Answers that came after a later one's.
    pub reordered: u64,
    /// Of the lost ones, those that found no room at the pinger's socket.
    pub lost_at_pinger: u64,
    /// From the intended time of sending to the answer.
    pub latency: Latency,
    /// From the intended time of sending to sending.
    pub pinger_delay: Latency,
    /// CPU time of the echo's process, as a share of its window.
    pub app_cpu_percent: f64,
    /// CPU time of the echo's process for each packet; `None` without packets.
    pub cpu_ns_per_packet: Option<f64>,
    /// The balance of all packet counts.
    pub check: Check,
}

impl Run {
    /// The figures of a run.
    pub fn new(case: Case, round: u32, measured: Measured) -> Self {
        let trips = measured.trips;
        let answers = trips.answers;
        let answered = answers
            .packets
            .saturating_sub(answers.corrupted + answers.duplicates);
        let cpu_ns = measured.cpu_ns as f64;
        Self {
            case,
            mode_obtained: measured.mode_obtained,
            refusals: measured.refusals,
            round,
            sent: trips.sent,
            answered,
            lost: trips.sent.saturating_sub(answered),
            corrupted: answers.corrupted + measured.check.counted.engine.corrupted,
            duplicates: answers.duplicates,
            reordered: answers.reordered,
            lost_at_pinger: trips.dropped,
            latency: trips.latency,
            pinger_delay: trips.delay,
            app_cpu_percent: cpu_ns / (measured.seconds * 1e9) * 100.0,
            cpu_ns_per_packet: (measured.packets > 0).then(|| cpu_ns / measured.packets as f64),
            check: measured.check,
        }
    }
}
