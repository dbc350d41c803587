//! From IP to the devices.

use super::draft::{Draft, signed};
use super::ground::{Ground, TOO_BIG};
use crate::ledger::balance::delta::Delta;
use crate::ledger::sheet::{Class, Direction, Edge, Loss};
use crate::ledger::snapshot::{Counters, Device};
use crate::ledger::stage::{Stage, Unit};

/// The proof of segments beyond skbs.
const BEYOND_SKBS: &str = "Tcp.OutSegs and RetransSegs less skbs of TCP";

impl Ground<'_> {
    /// IP to the devices, in skbs.
    pub fn sending(&self) -> Edge {
        let mut draft = self.draft(Direction::Transmit, Stage::Ip, Stage::Transmit, Unit::Skbs);
        draft.enter(
            "IP",
            "Ip.OutRequests, Ip6.OutRequests",
            self.sum(&["Ip.OutRequests", "Ip6.OutRequests"]),
        );
        draft.enter(
            "forwarded",
            "Ip.ForwDatagrams, Ip6.OutForwDatagrams",
            self.sum(&["Ip.ForwDatagrams", "Ip6.OutForwDatagrams"]),
        );
        let made = signed(self.sum(&["Ip.FragCreates", "Ip6.FragCreates"]).count);
        let cut = signed(self.sum(&["Ip.FragOKs", "Ip6.FragOKs"]).count);
        draft.leave_signed("fragments made", "Ip.FragOKs less FragCreates", cut - made);
        for (&index, device) in &self.namespace.devices {
            if device.controller.is_some() || Self::is_stacked(device) {
                continue;
            }
            let sent = self.statistic(index, "tx_packets");
            let by_xdp = [
                self.driver(index, "tx_queue_*_xdp_xmit"),
                self.driver(index, "rx_queue_*_xdp_tx"),
            ];
            if sent.count > 0 {
                draft.leave(
                    device.name.clone(),
                    format!("{} tx_packets", device.name),
                    sent,
                );
            }
            for delta in by_xdp.into_iter().filter(|delta| delta.count > 0) {
                draft.leave_signed(
                    format!("{}: sent by XDP", device.name),
                    "ethtool -S xdp_xmit, xdp_tx",
                    -signed(delta.count),
                );
            }
            draft.leave_signed(
                format!("{}: queued", device.name),
                "queue_length of qdiscs",
                self.queued(index, device),
            );
        }
        let lost = self.lost(|loss| self.is_lost_behind_ip(loss));
        draft.lose(lost);
        self.leave_refused(&mut draft);
        let [_, after] = self.too_big(&self.received_by_ip());
        draft.leave_signed(TOO_BIG, "Ip.FragFails, Ip6.InTooBigErrors", after);
        // An skb of TCP is cut into segments before a device that cannot do that itself.
        if self.method.segments {
            let most = self.segments_beyond_skbs();
            draft.return_rest("skbs cut into segments", BEYOND_SKBS, most);
        }
        if draft.unexplained() != 0 {
            draft.open(
                "ARP that was sent, packets of AF_PACKET and AF_XDP, segments of UDP_SEGMENT, and redirects of XDP that failed are not counted",
            );
        }
        draft.close()
    }

    fn is_lost_behind_ip(&self, loss: &Loss) -> bool {
        let mut devices = self.namespace.devices.values();
        let device = devices.find(|device| loss.device.as_ref() == Some(&device.name));
        let is_late = match loss.stage {
            Stage::Qdisc | Stage::Transmit | Stage::Neighbour => loss.class == Class::Lost,
            Stage::Tc => loss.reason == "TC_EGRESS",
            // The loopback counts neither.
            Stage::Backlog => device.is_some_and(|device| device.loopback),
            Stage::Netfilter => loss.is_received == Some(false),
            _ => false,
        };
        is_late && !device.is_some_and(|device| self.is_bridged(device))
    }

    /// Packets that a device did not count as sent since they were lost elsewhere: at the other end of a veth, below a
    /// device in another namespace, or as what a tunnel made of them, which IP sent too.
    fn leave_refused(&self, draft: &mut Draft) {
        for refusal in self.refusals.iter().filter(|it| it.netns == self.netns) {
            let Some(device) = self.namespace.devices.get(&refusal.device) else {
                continue;
            };
            let is_elsewhere = match refusal.stage {
                Stage::Backlog => true,
                Stage::Qdisc | Stage::Transmit => {
                    refusal.lost_netns != self.netns || device.is_tunnel()
                }
                _ => false,
            };
            if is_elsewhere && device.controller.is_none() && !Self::is_stacked(device) {
                draft.leave_signed(
                    format!("{}: lost behind it", device.name),
                    format!("{} tx_dropped", device.name),
                    signed(refusal.count),
                );
            }
        }
    }

    /// How many more segments TCP sent than skbs: IP counts the skbs of all protocols. `OutSegs` has only segments that are
    /// sent for the first time (`__tcp_transmit_skb` of `net/ipv4/tcp_output.c`).
    fn segments_beyond_skbs(&self) -> u64 {
        let of_protocols = self.sum(&[
            "Tcp.OutSegs",
            "Tcp.RetransSegs",
            "Udp.OutDatagrams",
            "Udp6.OutDatagrams",
            "UdpLite.OutDatagrams",
            "UdpLite6.OutDatagrams",
            "Icmp.OutMsgs",
            "Icmp6.OutMsgs",
        ]);
        let sent = self.sum(&["Ip.OutRequests", "Ip6.OutRequests"]);
        of_protocols.count.saturating_sub(sent.count)
    }

    /// By how many packets the root queue of a device grew.
    fn queued(&self, index: u32, device: &Device) -> i64 {
        let root = |device: &Device| {
            let root = device
                .qdiscs
                .iter()
                .find(|(name, _)| name.ends_with(" root"));
            let length = root.and_then(|(_, counters)| counters.get("queue_length"));
            length.map_or(0, |length| signed(length.value))
        };
        let earlier = self
            .earlier()
            .and_then(|earlier| earlier.devices.get(&index));
        root(device).wrapping_sub(earlier.map_or(0, root))
    }

    /// A device's queueing discipline to the device, in segments for a card.
    pub fn qdisc(&self, index: u32, device: &Device) -> Option<Edge> {
        let is_root = |name: &str| name.ends_with(" root") && !name.starts_with("noqueue");
        let (name, later) = device.qdiscs.iter().find(|(name, _)| is_root(name))?;
        let earlier = self
            .earlier()
            .and_then(|earlier| earlier.devices.get(&index)?.qdiscs.get(name));
        let packets = |counters: &Counters| counters.get("packets").copied().unwrap_or_default();
        let (before, after) = (earlier.map(packets).unwrap_or_default(), packets(later));
        let mut draft = self.draft(
            Direction::Transmit,
            Stage::Qdisc,
            Stage::Transmit,
            Unit::Segments,
        );
        draft.edge.subject = Some(format!("{} {name}", device.name));
        draft.enter(
            name,
            "packets of `tc -s qdisc`",
            Delta {
                count: after.value.saturating_sub(before.value),
                skew: before.moved.saturating_add(after.moved),
            },
        );
        draft.leave(
            "sent",
            format!("{} tx_packets", device.name),
            self.statistic(index, "tx_packets"),
        );
        let lost = self.lost(|loss| {
            loss.stage == Stage::Transmit && loss.device.as_ref() == Some(&device.name)
        });
        for loss in lost {
            let count = signed(loss.segments);
            draft.leave_signed(loss.reason.clone(), loss.proof.clone(), count);
        }
        // A virtual device, and the card of a virtual machine, count skbs.
        let most = self.segments_beyond_skbs();
        draft.leave_rest("carried by skbs of several segments", BEYOND_SKBS, most);
        Some(draft.close())
    }
}
