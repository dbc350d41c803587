//! The balance of a run's packet counts, once the machine is quiet again.
//!
//! Three parties count the same packets: the processes that send and receive them, the kernel's
//! devices ([`Counters`]), and the socket's own statistics. In a lab nobody else sends, so their
//! counts are equal, not nearly equal; a run for which they differ measured something else
//! and counts as failed.
//!
//! | benches that | in a lab | on a real device |
//! |---|---|---|
//! | receive | sent by the load = received by the device | - |
//! | receive | received by the device = received by the engine + dropped at its socket | - |
//! | forward | received by the engine = sent by the engine | the same |
//! | send | sent by the engine = sent by the device + dropped by the device, where it stays so | - |
//! | send | sent by the device = received by the sink | - |
//! | all | no frame is corrupt, duplicate or out of order, where frames are read | - |
//!
//! "Sent by the load" leaves out frames that found the device's queue full: their number shows
//! how far the load outran the receiver. "Dropped at its socket" is
//! `rx_dropped + rx_ring_full` of `XDP_STATISTICS`, or `tp_drops` of `PACKET_STATISTICS`. A frame
//! that a device drops for lack of memory counts as received by it, so such a run fails: it
//! measured the shortage. On a real device others send and receive too, and each driver counts in
//! its own way.

use serde::Serialize;

use crate::engine::Engine;
use crate::engine::bench::Bench;
use crate::engine::protocol::Totals;
use crate::traffic::programs::SinkCounts;
use hostnet::device::Counters;

/// The counts of one run, from before its first packet to after its last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// Frames that the device took from the load; `None` without a load.
    pub load_sent: Option<u64>,
    /// Counters of the application's device.
    pub device: Counters,
    /// Frames that did not fit into the device's queue: the load was faster than its receiver.
    pub device_queue_full: Option<u64>,
    /// Counters of the engine.
    #[serde(flatten)]
    pub engine: Totals,
    /// Counters of the sink; `None` without one.
    pub sink: Option<SinkCounts>,
}

/// The result of the check.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Whether the counts add up.
    pub ok: bool,
    /// Counts that differ.
    pub violations: Vec<String>,
    /// Counts that could not be checked, and why.
    pub not_checked: Vec<String>,
    /// The counts.
    pub counted: Counted,
}

impl Check {
    /// Checks a run in a lab.
    pub fn in_lab(bench: Bench, engine: Engine, counted: Counted) -> Self {
        let gone = if engine.sends_dropped_again() {
            0
        } else {
            counted.device.tx_dropped
        };
        let mut sums = Sums::default();
        let (device, engine) = (&counted.device, &counted.engine);
        if bench.receives() {
            sums.equal(
                ("sent by the load", counted.load_sent.unwrap_or(0)),
                ("received by the device", device.rx_packets),
            );
            sums.equal(
                ("received by the device", device.rx_packets),
                (
                    "received by the engine + dropped at its socket",
                    engine.received + engine.kernel_drops,
                ),
            );
        }
        if bench.forwards() {
            sums.received_and_sent(engine);
        }
        if bench.sends() {
            sums.equal(
                ("sent by the engine", engine.sent),
                (
                    "sent by the device + dropped by the device",
                    device.tx_packets + gone,
                ),
            );
            let sink = counted.sink.unwrap_or_default();
            sums.equal(
                ("sent by the device", device.tx_packets),
                ("received by the sink", sink.packets),
            );
            sums.none("corrupt at the sink", sink.corrupted);
            sums.none("duplicate at the sink", sink.duplicates);
            sums.none("out of order at the sink", sink.reordered);
        }
        sums.none("corrupt", engine.corrupted);
        sums.none("duplicate", engine.duplicates);
        sums.none("out of order", engine.reordered);
        sums.into_check(Vec::new(), counted)
    }

    /// Checks a run on a real device.
    pub fn on_device(bench: Bench, counted: Counted) -> Self {
        let mut sums = Sums::default();
        if bench.forwards() {
            sums.received_and_sent(&counted.engine);
        }
        let not_checked = vec![
            "the device's counters: others may send and receive on it too".into(),
            "the contents of frames: others may have sent them".into(),
        ];
        sums.into_check(not_checked, counted)
    }
}

#[derive(Default)]
struct Sums {
    violations: Vec<String>,
}

impl Sums {
    fn equal(&mut self, (name, count): (&str, u64), (other, other_count): (&str, u64)) {
        if count != other_count {
            let violation = format!("{name} ({count}) is not {other} ({other_count})");
            self.violations.push(violation);
        }
    }

    fn received_and_sent(&mut self, engine: &Totals) {
        self.equal(
            ("received by the engine", engine.received),
            ("sent by the engine", engine.sent),
        );
    }

    fn none(&mut self, defect: &str, count: u64) {
        if count != 0 {
            self.violations.push(format!("frames {defect}: {count}"));
        }
    }

    fn into_check(self, not_checked: Vec<String>, counted: Counted) -> Check {
        Check {
            ok: self.violations.is_empty(),
            violations: self.violations,
            not_checked,
            counted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good_l2fwd() -> Counted {
        Counted {
            load_sent: Some(100),
            device: Counters {
                rx_packets: 100,
                tx_packets: 88,
                tx_dropped: 2,
                ..Counters::default()
            },
            device_queue_full: Some(40),
            engine: Totals {
                received: 90,
                sent: 90,
                kernel_drops: 10,
                lost: 10,
                ..Totals::default()
            },
            sink: Some(SinkCounts {
                packets: 88,
                lost: 12,
                ..SinkCounts::default()
            }),
        }
    }

    #[test]
    fn a_run_that_adds_up_passes() {
        let check = Check::in_lab(Bench::L2fwd, Engine::Xsk, good_l2fwd());
        assert_eq!(check.violations, [""; 0]);
        assert!(check.ok);
    }

    #[test]
    fn one_packet_too_many_anywhere_is_found() {
        let spoil: [fn(&mut Counted); 8] = [
            |it| it.load_sent = Some(101),
            |it| it.device.rx_packets += 1,
            |it| it.device.tx_packets += 1,
            |it| it.device.tx_dropped += 1,
            |it| it.engine.received += 1,
            |it| it.engine.kernel_drops += 1,
            |it| it.engine.sent += 1,
            |it| it.engine.reordered += 1,
        ];
        for (number, spoil) in spoil.iter().enumerate() {
            let mut counted = good_l2fwd();
            spoil(&mut counted);
            let check = Check::in_lab(Bench::L2fwd, Engine::Xsk, counted);
            assert!(!check.ok, "{number}");
        }
    }

    #[test]
    fn a_dropped_frame_of_af_packet_is_sent_again() {
        let mut counted = good_l2fwd();
        counted.device.tx_packets += counted.device.tx_dropped;
        counted.sink = Some(SinkCounts {
            packets: counted.device.tx_packets,
            ..SinkCounts::default()
        });
        for (engine, ok) in [
            (Engine::PacketV2, true),
            (Engine::PacketV3, true),
            (Engine::Xsk, false),
        ] {
            let check = Check::in_lab(Bench::L2fwd, engine, counted.clone());
            assert_eq!(check.ok, ok, "{engine:?}: {:?}", check.violations);
        }
    }

    #[test]
    fn a_violation_gives_its_numbers() {
        let mut counted = good_l2fwd();
        counted.load_sent = Some(101);
        assert_eq!(
            Check::in_lab(Bench::Rxdrop, Engine::Xsk, counted).violations,
            ["sent by the load (101) is not received by the device (100)"]
        );
    }

    #[test]
    fn on_a_device_others_may_send() {
        let mut counted = good_l2fwd();
        counted.device.rx_packets = 1_000_000;
        counted.engine.corrupted = 3;
        let check = Check::on_device(Bench::L2fwd, counted);
        assert!(check.ok);
        assert_eq!(check.not_checked.len(), 2);
    }
}
