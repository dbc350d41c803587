//! From the devices to the applications.

use super::draft::{Draft, signed};
use super::ground::{Ground, TOO_BIG};
use crate::ledger::balance::delta::Delta;
use crate::ledger::sheet::{Direction, Edge, Loss};
use crate::ledger::snapshot::{Counted, Device, Namespace};
use crate::ledger::stage::{Stage, Unit};

/// Fields whose sum is the packets that IP received, each as many as it carries (`IPSTATS_MIB_NOECTPKTS` and the
/// next three in `ip_rcv_core` of `net/ipv4/ip_input.c`).
const SEGMENTS: [&str; 8] = [
    "IpExt.InNoECTPkts",
    "IpExt.InECT1Pkts",
    "IpExt.InECT0Pkts",
    "IpExt.InCEPkts",
    "Ip6.InNoECTPkts",
    "Ip6.InECT1Pkts",
    "Ip6.InECT0Pkts",
    "Ip6.InCEPkts",
];
/// The proof of segments beyond skbs.
const CARRIED: &str = "IpExt In*ECT*Pkts less Ip.InReceives";
/// Frames that a queue of a veth holds (`VETH_RING_SIZE`).
const VETH_RING: u64 = 256;

impl Ground<'_> {
    /// Devices to IP, in segments: IP received all that the devices did, each skb as many as it carries.
    pub fn devices_to_ip(&self) -> Edge {
        let mut draft = self.draft(Direction::Receive, Stage::Driver, Stage::Ip, Unit::Segments);
        let mut is_virtual = false;
        for (&index, device) in &self.namespace.devices {
            if device.controller.is_some() || Self::is_stacked(device) {
                continue;
            }
            let received = self.statistic(index, "rx_packets");
            if received.count == 0 && received.skew == 0 {
                continue;
            }
            is_virtual |= device.loopback || device.kind.is_some();
            draft.enter(
                &device.name,
                format!("{} rx_packets", device.name),
                received,
            );
            draft.bound(Self::in_flight(device));
            self.leave_before_ip(&mut draft, index, device);
        }
        let segments = self.sum(&SEGMENTS);
        let skbs = self.sum(&["Ip.InReceives", "Ip6.InReceives"]);
        let merged = segments.count.saturating_sub(skbs.count);
        let carried = if self.method.segments { segments } else { skbs };
        draft.leave("IP", "IpExt In*ECT*Pkts, Ip6 In*ECT*Pkts", carried);
        self.leave_arp(&mut draft);
        self.leave_without_header(&mut draft);
        // Multicast that this host sends comes back to it without passing a device.
        let looped = self.sum(&["IpExt.OutMcastPkts", "Ip6.OutMcastPkts"]).count;
        draft.return_rest(
            "own multicast",
            "Ip6.OutMcastPkts, IpExt.OutMcastPkts",
            looped,
        );
        // A veth, a tap and the loopback count an skb as one frame, whatever it carries: a frame of theirs can be as
        // many segments as TSO left in it.
        if is_virtual {
            draft.return_rest("carried by skbs of several segments", CARRIED, merged);
        }
        let sockets = &self.namespace.sockets;
        if draft.unexplained() > 0 && sockets.values().any(|it| it.protocol == "packet") {
            draft.open("packets of other protocols that a packet socket takes are not counted");
        }
        draft.close()
    }

    /// A packet whose version or length of the header is wrong is not counted as a segment; one with another fault in
    /// its header is (`ip_rcv_core` of `net/ipv4/ip_input.c`). Both have one counter and one reason.
    fn leave_without_header(&self, draft: &mut Draft) {
        let bad = self.lost(|loss| {
            let place = loss.place.as_deref().unwrap_or("rcv_core");
            place.contains("rcv_core")
                && ["IP_INHDR", "Ip.InHdrErrors", "Ip6.InHdrErrors"].contains(&loss.reason.as_str())
        });
        let bad: u64 = bad.iter().map(|loss| loss.count).sum();
        draft.leave_rest("without a whole IP header", "Ip.InHdrErrors", bad);
    }

    /// Frames that may wait in a device's rings, while others move.
    fn in_flight(device: &Device) -> u64 {
        let moves = device.statistics.values().any(|reading| reading.moved > 0);
        if moves && device.kind.as_deref() == Some("veth") {
            return VETH_RING * u64::from(device.queues.max(1));
        }
        0
    }

    fn leave_before_ip(&self, draft: &mut Draft, index: u32, device: &Device) {
        let mut by_driver = 0;
        for (name, counter, delta) in self.taken_by_xdp(index) {
            by_driver += delta.count;
            draft.leave(format!("{}: {name}", device.name), counter, delta);
        }
        let early = [
            Stage::Xdp,
            Stage::AfXdp,
            Stage::Driver,
            Stage::Backlog,
            Stage::Gro,
            Stage::Tc,
            Stage::Stack,
            Stage::Bridge,
        ];
        let lost = self.lost(|loss| {
            // A driver frees packets before the stack notes that they were received.
            let is_sent = loss.stage == Stage::Stack && loss.is_received == Some(false);
            let is_of_target = loss.proof == "event xdp:xdp_devmap_xmit";
            !is_sent
                && !is_of_target
                && loss.device.as_ref() == Some(&device.name)
                && (early.contains(&loss.stage) || loss.reason.to_lowercase().contains("otherhost"))
        });
        for loss in lost {
            // The driver's own counters say so already.
            let is_counted = loss
                .also
                .iter()
                .any(|also| also.counter == "rx_queue_*_xdp_drops")
                || loss.reason == "rx_queue_*_xdp_drops"
                || (loss.reason == "rx_dropped" && loss.stage == Stage::Driver && by_driver > 0);
            // Drops of a veth's backlog, or of the sender, were never counted as received.
            if !is_counted && loss.stage != Stage::Backlog {
                let segments = if self.method.segments {
                    loss.segments
                } else {
                    loss.count
                };
                let delta = Delta {
                    count: segments,
                    skew: 0,
                };
                draft.leave(
                    format!("{}: {}", device.name, loss.reason),
                    loss.proof.clone(),
                    delta,
                );
            }
        }
        if device.xdp_driver.is_some() && !device.driver.contains_key("rx_queue_*_xdp_redirect") {
            draft.open("a driver's XDP program takes frames that the driver does not count");
        }
        if device.xdp_generic.is_some() && !self.has_deep() {
            draft.open(
                "a generic XDP program may redirect frames, which nothing counts without --deep",
            );
        }
        if device
            .qdiscs
            .keys()
            .any(|name| name.starts_with("clsact") || name.starts_with("ingress"))
        {
            draft.open("filters of tc at ingress may redirect packets, which nothing counts");
        }
    }

    fn has_deep(&self) -> bool {
        self.after
            .events
            .as_ref()
            .is_some_and(|events| !events.received.is_empty())
    }

    /// With success tracepoints: packets that devices handed to the stack went to IP, to ARP, or were lost before.
    pub fn stack_to_ip(&self) -> Option<Edge> {
        let later = self.after.events.as_ref()?;
        let earlier = self.before.events.as_ref()?;
        if later.received.is_empty() {
            return None;
        }
        let mut draft = self.draft(Direction::Receive, Stage::Stack, Stage::Ip, Unit::Skbs);
        for (&index, device) in &self.namespace.devices {
            if device.controller.is_some() {
                continue;
            }
            let of_device = |events: &Counted| {
                let mut devices = events.received.iter();
                let device = devices.find(|it| (it.netns, it.device) == (self.netns, index));
                device.map_or(0, |device| device.skbs)
            };
            let count = of_device(later).saturating_sub(of_device(earlier));
            if count > 0 {
                draft.enter(
                    &device.name,
                    "event net:netif_receive_skb",
                    Delta { count, skew: 0 },
                );
            }
        }
        let received = self.sum(&["Ip.InReceives", "Ip6.InReceives"]);
        draft.leave("IP", "Ip.InReceives, Ip6.InReceives", received);
        self.leave_arp(&mut draft);
        let early = [Stage::Xdp, Stage::Tc, Stage::Stack, Stage::Bridge];
        let lost = self.lost(|loss| {
            let place = loss.place.as_deref().unwrap_or_default();
            loss.is_received.is_some()
                && (loss.reason == "OTHERHOST" || early.contains(&loss.stage))
                && !place.contains("veth")
        });
        draft.lose(lost);
        Some(draft.close())
    }

    /// IP to the transport protocols, in skbs.
    pub fn ip_to_transport(&self) -> Edge {
        let mut draft = self.received_by_ip();
        let [before, _] = self.too_big(&draft);
        draft.leave_signed(TOO_BIG, "Ip.FragFails, Ip6.InTooBigErrors", before);
        draft.close()
    }

    /// The same without packets that are too big.
    pub fn received_by_ip(&self) -> Draft {
        let mut draft = self.draft(Direction::Receive, Stage::Ip, Stage::Transport, Unit::Skbs);
        draft.enter(
            "IP",
            "Ip.InReceives, Ip6.InReceives",
            self.sum(&["Ip.InReceives", "Ip6.InReceives"]),
        );
        draft.leave(
            "delivered",
            "Ip.InDelivers, Ip6.InDelivers",
            self.sum(&["Ip.InDelivers", "Ip6.InDelivers"]),
        );
        draft.leave(
            "forwarded",
            "Ip.ForwDatagrams, Ip6.OutForwDatagrams",
            self.sum(&["Ip.ForwDatagrams", "Ip6.OutForwDatagrams"]),
        );
        // Fragments become one packet.
        let fragments = self.sum(&["Ip.ReasmReqds", "Ip6.ReasmReqds"]);
        let whole = self.sum(&["Ip.ReasmOKs", "Ip6.ReasmOKs"]);
        draft.leave_signed(
            "fragments, less packets of them",
            "Ip.ReasmReqds less ReasmOKs",
            signed(fragments.count) - signed(whole.count),
        );
        let lost = self.lost(|loss| {
            let is_received = loss.is_received.unwrap_or(true);
            is_received
                && (matches!(loss.stage, Stage::Ip | Stage::Netfilter)
                    || loss.reason == "IP_NOPROTO"
                    || loss.reason.ends_with("InUnknownProtos"))
                && !loss.reason.to_lowercase().contains("otherhost")
                && !loss.reason.contains(".Out")
                && !loss.reason.contains("_OUT")
                && !is_fragment(loss)
                && !is_too_big(loss)
        });
        draft.lose(lost);
        draft
    }

    /// Packets that were not forwarded as they are too big, and whether their forwarding was counted: kernels differ
    /// in which comes first (`ip_forward` of `net/ipv4/ip_forward.c`). The balance of received packets tells.
    pub fn too_big(&self, received: &Draft) -> [i64; 2] {
        let lost = self.lost(is_too_big);
        let counts = lost.iter().map(|loss| loss.count);
        let count = signed(counts.fold(0, u64::saturating_add));
        let before = received.unexplained().clamp(0, count);
        [before, count - before]
    }

    /// The transport protocols and their sockets, in skbs. UDP counts a datagram when it is read.
    pub fn transport(&self) -> Edge {
        let mut draft = self.draft(
            Direction::Receive,
            Stage::Transport,
            Stage::Application,
            Unit::Skbs,
        );
        draft.enter(
            "delivered",
            "Ip.InDelivers, Ip6.InDelivers",
            self.sum(&["Ip.InDelivers", "Ip6.InDelivers"]),
        );
        draft.leave("TCP", "Tcp.InSegs", self.mib("Tcp.InSegs"));
        draft.leave(
            "ICMP",
            "Icmp.InMsgs, Icmp6.InMsgs",
            self.sum(&["Icmp.InMsgs", "Icmp6.InMsgs"]),
        );
        let datagrams = self.sum(&[
            "Udp.InDatagrams",
            "Udp6.InDatagrams",
            "UdpLite.InDatagrams",
            "UdpLite6.InDatagrams",
        ]);
        draft.leave("UDP, read", "Udp.InDatagrams, Udp6.InDatagrams", datagrams);
        draft.leave(
            "UDP, no socket",
            "Udp.NoPorts, Udp6.NoPorts",
            self.sum(&["Udp.NoPorts", "Udp6.NoPorts"]),
        );
        draft.leave(
            "UDP, refused",
            "Udp.InErrors, Udp6.InErrors",
            self.sum(&["Udp.InErrors", "Udp6.InErrors"]),
        );
        // Queues of TCP are purged too, of packets that Tcp.InSegs has counted.
        let is_tcp = |loss: &Loss| {
            let place = loss.place.as_deref().unwrap_or_default();
            place.contains("stream") || place.contains("tcp")
        };
        let purged = self.lost(|loss| loss.reason == "QUEUE_PURGE" && !is_tcp(loss));
        match self.unread() {
            Some(grown) => draft.leave_signed("UDP, unread", "receive queues of sockets", grown),
            None => draft.open("datagrams that wait unread cannot be counted here: that needs BPF (CAP_BPF, CAP_PERFMON)"),
        }
        // Raw sockets are purged too, of copies: the delivered packets tell how many were of UDP.
        let purged: u64 = purged.iter().map(|loss| loss.count).sum();
        draft.leave_rest("closed unread", "event skb:kfree_skb QUEUE_PURGE", purged);
        // A socket that did not ask for UDP_GRO gets the datagrams one by one.
        if self.method.segments {
            let carried = self.sum(&SEGMENTS).count;
            let skbs = self.sum(&["Ip.InReceives", "Ip6.InReceives"]).count;
            let most = carried.saturating_sub(skbs).min(datagrams.count);
            draft.return_rest("datagrams that one skb carried", CARRIED, most);
        }
        if draft.unexplained() > 0 {
            draft.open("IGMP and protocols of raw sockets are not counted");
        }
        draft.close()
    }

    /// By how many packets the queues of UDP sockets grew.
    fn unread(&self) -> Option<i64> {
        let of = |namespace: &Namespace| {
            let udp = namespace
                .sockets
                .values()
                .filter(|socket| socket.protocol.starts_with("udp"));
            // A socket without a process is one of the kernel.
            let mut packets =
                udp.map(|socket| socket.packets.or((socket.queued == 0).then_some(0)));
            packets.try_fold(0_u32, |sum, packets| {
                // No queue of real sockets is longer; a file may say so.
                Some(sum.saturating_add(u32::try_from(packets?).unwrap_or(u32::MAX)))
            })
        };
        Some(i64::from(of(self.namespace)?) - i64::from(self.earlier().map_or(Some(0), of)?))
    }
}

fn is_too_big(loss: &Loss) -> bool {
    ["PKT_TOO_BIG", "Ip.FragFails", "Ip6.InTooBigErrors"].contains(&loss.reason.as_str())
}

/// Fragments have left IP for good when they wait for others: see `Ip.ReasmReqds`.
fn is_fragment(loss: &Loss) -> bool {
    loss.reason.starts_with("FRAG_") || loss.reason.ends_with(".ReasmFails")
}
