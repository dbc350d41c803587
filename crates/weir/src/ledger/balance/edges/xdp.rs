//! XDP programs, their redirects, and AF_XDP sockets.

use super::ground::Ground;
use crate::ledger::balance::delta::Delta;
use crate::ledger::sheet::{Direction, Edge};
use crate::ledger::snapshot::{Device, XdpEvent, XdpSocket};
use crate::ledger::stage::{Stage, Unit};

impl Ground<'_> {
    /// A native XDP program, where the driver counts its verdicts.
    pub fn xdp(&self, index: u32, device: &Device) -> Option<Edge> {
        device.driver.get("rx_queue_*_xdp_packets")?;
        device.xdp_driver?;
        let mut draft = self.draft(Direction::Receive, Stage::Driver, Stage::Xdp, Unit::Frames);
        draft.edge.subject = Some(device.name.clone());
        draft.enter(
            "received",
            format!("{} rx_packets", device.name),
            self.statistic(index, "rx_packets"),
        );
        for (name, counter, delta) in self.taken_by_xdp(index) {
            draft.leave(name, counter, delta);
        }
        let failed = self.lost(|loss| {
            loss.stage == Stage::Xdp
                && loss.device.as_ref() == Some(&device.name)
                && loss.reason.starts_with("xdp_redirect_err")
                || loss.stage == Stage::AfXdp && loss.device.as_ref() == Some(&device.name)
                || loss.reason == "rx_queue_*_xdp_tx_errors"
        });
        draft.lose(failed);
        let received = self.statistic(index, "rx_packets").count;
        draft.leave_rest("passed on", "no counter", received);
        Some(draft.close())
    }

    /// Frames that a device's XDP program redirected to its AF_XDP sockets.
    pub fn af_xdp(&self, index: u32, device: &Device) -> Option<Edge> {
        let sockets = || {
            let sockets = self.after.xdp_sockets.iter().flatten();
            sockets.filter(move |socket| (socket.netns, socket.device) == (self.netns, index))
        };
        sockets().next()?;
        device.driver.get("rx_queue_*_xdp_redirect")?;
        device.xdp_driver?;
        let mut draft = self.draft(Direction::Receive, Stage::Xdp, Stage::AfXdp, Unit::Frames);
        draft.edge.subject = Some(device.name.clone());
        draft.enter(
            "redirected by XDP",
            "rx_queue_*_xdp_redirect",
            self.driver(index, "rx_queue_*_xdp_redirect"),
        );
        for socket in sockets() {
            let earlier = self
                .before
                .xdp_sockets
                .iter()
                .flatten()
                .find(|it| it.cookie == socket.cookie);
            let producer = |socket: &XdpSocket| socket.rx.map_or(0, |ring| ring.producer);
            let received = producer(socket).wrapping_sub(earlier.map_or(0, producer));
            draft.leave(
                format!(
                    "queue {} of {} ({})",
                    socket.queue, socket.process.name, socket.process.pid
                ),
                "the RX ring's producer",
                Delta {
                    count: received.into(),
                    skew: 0,
                },
            );
        }
        Some(draft.close())
    }

    /// With success tracepoints: frames that a device's program redirected to other devices were sent there, or lost.
    pub fn redirects(&self, index: u32, device: &Device) -> Option<Edge> {
        let of = |event: &'static str| {
            let events = self.deltas.xdp.iter();
            events
                .filter(move |it| it.event == event && (it.netns, it.device) == (self.netns, index))
        };
        let is_devmap = |event: &&XdpEvent| {
            event
                .map
                .as_deref()
                .is_some_and(|map| map.starts_with("devmap"))
        };
        let redirected: u64 = of("xdp_redirect")
            .filter(is_devmap)
            .map(|event| event.passed)
            .sum();
        if redirected == 0 {
            return None;
        }
        let mut draft = self.draft(
            Direction::Receive,
            Stage::Xdp,
            Stage::Transmit,
            Unit::Frames,
        );
        draft.edge.subject = Some(device.name.clone());
        draft.enter(
            "redirected to devices",
            "event xdp:xdp_redirect",
            Delta {
                count: redirected,
                skew: 0,
            },
        );
        for event in of("xdp_devmap_xmit") {
            let to = self
                .after
                .device(self.netns, event.to)
                .map_or("?", |device| device.name.as_str());
            draft.leave(
                format!("{to}: sent"),
                "event xdp:xdp_devmap_xmit",
                Delta {
                    count: event.passed,
                    skew: 0,
                },
            );
            draft.leave(
                format!("{to}: lost"),
                "event xdp:xdp_devmap_xmit",
                Delta {
                    count: event.lost,
                    skew: 0,
                },
            );
        }
        Some(draft.close())
    }
}
