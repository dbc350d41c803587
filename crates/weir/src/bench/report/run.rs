//! The figures of one run.

use serde::Serialize;

use crate::bench::check::Check;
use crate::bench::plan::Combination;
use crate::bench::runner::{Measured, Settings};
use crate::engine::Mode;

/// One run.
#[derive(Debug, Clone, Serialize)]
pub struct Run {
    /// The combination: `bench`, `engine`, `mode`, `wait`.
    #[serde(flatten)]
    pub combination: Combination,
    /// The mode that the kernel reports.
    pub mode_obtained: Option<Mode>,
    /// Better modes that were tried first, with reasons.
    pub refusals: Vec<String>,
    /// Frame length without the FCS.
    pub size: u16,
    /// Frames a second that the load offered; `None`: as many as possible, or no load.
    pub offered_pps: Option<u64>,
    /// From 1.
    pub round: u32,
    /// The window's true length.
    pub seconds: f64,
    /// Packets handled in the window.
    pub packets: u64,
    /// Packets a second.
    pub pps: f64,
    /// User time of the engine's process; `None` without packets.
    pub cpu_user_ns_per_packet: Option<f64>,
    /// Kernel time of the engine's process.
    pub cpu_sys_ns_per_packet: Option<f64>,
    /// User and kernel time, as a share of the window.
    pub app_cpu_percent: f64,
    /// Packets that the kernel dropped at the socket, or the device when sending, in the whole
    /// run.
    pub dropped: u64,
    /// `dropped` as a share of the packets that came to the socket, or were sent.
    pub dropped_percent: f64,
    /// Frames with wrong contents, in the whole run; this and the rest at the engine and, if it
    /// sends, at the sink.
    pub corrupted: u64,
    /// Duplicate frames.
    pub duplicates: u64,
    /// Frames that came after a later one.
    pub reordered: u64,
    /// Frames that did not come, where sequence numbers are read: normal under overload.
    pub lost: u64,
    /// The balance of all packet counts.
    pub check: Check,
}

impl Run {
    /// The figures of a run.
    pub fn new(
        combination: Combination,
        round: u32,
        settings: &Settings,
        measured: Measured,
    ) -> Self {
        let counted = &measured.check.counted;
        let engine = &counted.engine;
        let sink = counted.sink.unwrap_or_default();
        let per_packet =
            |ns: u64| (measured.packets > 0).then(|| ns as f64 / measured.packets as f64);
        let has_load = counted.load_sent.is_some();
        let (lost, total) = if combination.bench.receives() {
            (engine.lost, engine.received + engine.kernel_drops)
        } else {
            (sink.lost, engine.sent)
        };
        let tx_dropped = counted.device.tx_dropped;
        let dropped = engine.kernel_drops
            + if combination.bench.sends() {
                tx_dropped
            } else {
                0
            };
        Self {
            combination,
            mode_obtained: measured.mode_obtained,
            refusals: measured.refusals,
            size: settings.size,
            offered_pps: settings.pps.map(|rate| rate.0).filter(|_| has_load),
            round,
            seconds: measured.seconds,
            packets: measured.packets,
            pps: measured.packets as f64 / measured.seconds,
            cpu_user_ns_per_packet: per_packet(measured.user_ns),
            cpu_sys_ns_per_packet: per_packet(measured.sys_ns),
            app_cpu_percent: (measured.user_ns + measured.sys_ns) as f64 / (measured.seconds * 1e9)
                * 100.0,
            dropped,
            dropped_percent: dropped as f64 / total.max(1) as f64 * 100.0,
            corrupted: engine.corrupted + sink.corrupted,
            duplicates: engine.duplicates + sink.duplicates,
            reordered: engine.reordered + sink.reordered,
            lost,
            check: measured.check,
        }
    }

    /// User and kernel time for one packet.
    pub fn cpu_ns_per_packet(&self) -> Option<f64> {
        Some(self.cpu_user_ns_per_packet? + self.cpu_sys_ns_per_packet?)
    }
}
