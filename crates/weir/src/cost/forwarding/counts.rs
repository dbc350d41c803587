//! Frames as the devices, the sink and the switch of a stage count them.

use serde::Serialize;

use crate::traffic::programs::SinkCounts;
use hostnet::device::Counters;

/// Counters of everything on a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// The load's device.
    pub load: Counters,
    /// Its peer, the port that frames come in at.
    pub ingress: Counters,
    /// The port that they leave by; all 0 without a switch.
    pub egress: Counters,
    /// The far end of that port; without a switch, the ingress port.
    pub sink_device: Counters,
    /// The far end of a port that no frame is for; all 0 without a switch.
    pub witness: Counters,
    /// The program behind the egress port.
    pub sink: SinkCounts,
}

/// Frames of a run, from its first to its last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Frames {
    /// Taken by the device of the load.
    pub sent: u64,
    /// Received behind the egress port, by the counter of the program there.
    pub received: u64,
    /// Dropped at the egress port, by its counter.
    pub dropped_egress: u64,
    /// Dropped by a switch in user space: those that are missing otherwise.
    pub dropped_switch: u64,
    /// Received behind a port that no frame was for.
    pub flooded: u64,
    /// Received, but not as they were sent.
    pub corrupted: u64,
    /// Forwarded by the programs of an accelerated bridge, by their counters; `None` of other paths.
    pub accelerated: Option<u64>,
    /// Left by them to the kernel, so that it does not forget their sender.
    pub refreshing: u64,
}

impl Counts {
    /// The difference to an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            load: self.load.since(&earlier.load),
            ingress: self.ingress.since(&earlier.ingress),
            egress: self.egress.since(&earlier.egress),
            sink_device: self.sink_device.since(&earlier.sink_device),
            witness: self.witness.since(&earlier.witness),
            sink: SinkCounts {
                packets: self.sink.packets - earlier.sink.packets,
                corrupted: self.sink.corrupted - earlier.sink.corrupted,
                ..SinkCounts::default()
            },
        }
    }

    /// Frames that the load made, those that the ingress port had no room for included.
    pub fn offered(&self) -> u64 {
        self.load.tx_packets + self.load.tx_dropped
    }

    /// The frames of a whole run, of which the load says that it sent `sent`. In user space a frame
    /// is lost without a counter.
    pub fn frames(&self, sent: u64, in_user_space: bool) -> Frames {
        let received = self.sink.packets;
        let dropped_egress = self.egress.tx_dropped;
        let missing = sent.saturating_sub(received + dropped_egress);
        Frames {
            sent,
            received,
            dropped_egress,
            dropped_switch: if in_user_space { missing } else { 0 },
            flooded: self.witness.rx_packets,
            corrupted: self.sink.corrupted,
            accelerated: None,
            refreshing: 0,
        }
    }

    /// Counters that disagree. Nobody else sends in a lab, so they must be equal.
    pub fn violations(&self, frames: &Frames) -> Vec<String> {
        let arrived = self.ingress.rx_packets;
        let mut violations: Vec<String> = [
            (
                "sent by the load",
                frames.sent,
                "received by the ingress port",
                arrived,
            ),
            (
                "received by the ingress port",
                arrived,
                "received or dropped behind it",
                frames.received + frames.dropped_egress + frames.dropped_switch,
            ),
            (
                "received by the last device",
                self.sink_device.rx_packets,
                "counted by its program",
                frames.received,
            ),
        ]
        .into_iter()
        .filter(|(_, one, _, other)| one != other)
        .map(|(name, one, other_name, other)| format!("{one} {name}, {other} {other_name}"))
        .collect();
        if frames.flooded > 0 {
            let flooded = frames.flooded;
            violations.push(format!("{flooded} frames went to a port that none was for"));
        }
        if frames.corrupted > 0 {
            violations.push(format!("{} frames were changed", frames.corrupted));
        }
        if let Some(accelerated) = frames.accelerated
            && accelerated + frames.refreshing != frames.sent
        {
            let sent = frames.sent;
            violations.push(format!("{accelerated} of {sent} frames took the fast path"));
        }
        violations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(received: u64, dropped: u64) -> Counts {
        let received_by = |rx_packets| Counters {
            rx_packets,
            ..Counters::default()
        };
        Counts {
            load: Counters::default(),
            ingress: received_by(10),
            egress: Counters {
                tx_dropped: dropped,
                ..Counters::default()
            },
            sink_device: received_by(received),
            witness: Counters::default(),
            sink: SinkCounts {
                packets: received,
                ..SinkCounts::default()
            },
        }
    }

    #[test]
    fn each_frame_is_accounted_for() {
        let violations = |counts: Counts, in_user_space| {
            counts.violations(&counts.frames(10, in_user_space)).len()
        };
        assert_eq!(violations(counts(10, 0), false), 0);
        assert_eq!(violations(counts(7, 3), false), 0);
        assert_eq!(violations(counts(9, 0), false), 1);
        assert_eq!(violations(counts(11, 0), false), 1);
        assert_eq!(violations(counts(9, 0), true), 0);
        let mut flooded = counts(10, 0);
        flooded.witness.rx_packets = 1;
        flooded.sink.corrupted = 1;
        assert_eq!(violations(flooded, false), 2);
    }
}
