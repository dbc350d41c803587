//! The balances between stages.

use super::Method;
use super::delta::{Delta, Deltas};
use crate::ledger::sheet::{Class, Direction, Edge, Loss, Term};
use crate::ledger::snapshot::{Counted, Device, Namespace, Snapshot, XdpEvent};
use crate::ledger::stage::{Stage, Unit};

/// Fields whose sum is the packets that IP received, each as many as it carries (`IPSTATS_MIB_NOECTPKTS` and the
/// next three in `ip_rcv_core` of net/ipv4/ip_input.c).
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
/// Devices on top of another, whose frames the lower one has counted.
const STACKED: [&str; 5] = ["vlan", "macvlan", "macvtap", "ipvlan", "ipvtap"];
/// Frames that a queue of a veth holds (`VETH_RING_SIZE`).
const VETH_RING: u64 = 256;

/// Everything that an edge is made of.
struct Ground<'a> {
    method: Method,
    before: &'a Snapshot,
    after: &'a Snapshot,
    deltas: &'a Deltas,
    losses: &'a [Loss],
    netns: u64,
    namespace: &'a Namespace,
}

/// An edge in the making.
struct Draft {
    edge: Edge,
}

/// All balances of the namespaces.
pub fn edges(
    method: Method,
    before: &Snapshot,
    after: &Snapshot,
    deltas: &Deltas,
    losses: &[Loss],
) -> Vec<Edge> {
    let mut edges = Vec::new();
    for (&netns, namespace) in &after.namespaces {
        let ground = Ground {
            method,
            before,
            after,
            deltas,
            losses,
            netns,
            namespace,
        };
        for (&index, device) in &namespace.devices {
            edges.extend(ground.xdp(index, device));
            edges.extend(ground.af_xdp(index, device));
            edges.extend(ground.redirects(index, device));
        }
        if !after.devices_only {
            edges.push(ground.devices_to_ip());
            edges.extend(ground.stack_to_ip());
            edges.push(ground.ip_to_transport());
            edges.push(ground.transport());
            edges.push(ground.sending());
        }
        for (&index, device) in &namespace.devices {
            edges.extend(ground.qdisc(index, device));
        }
    }
    edges.retain(|edge| !edge.is_idle());
    edges
}

impl Draft {
    fn enter(&mut self, name: &str, proof: impl Into<String>, delta: Delta) {
        self.edge.entered.push(Term {
            name: name.into(),
            proof: proof.into(),
            count: delta.count.cast_signed(),
        });
        self.edge.bound += delta.skew;
    }

    fn leave(&mut self, name: impl Into<String>, proof: impl Into<String>, delta: Delta) {
        self.leave_signed(name, proof, delta.count.cast_signed());
        self.edge.bound += delta.skew;
    }

    fn leave_signed(&mut self, name: impl Into<String>, proof: impl Into<String>, count: i64) {
        if count != 0 {
            self.edge.left.push(Term {
                name: name.into(),
                proof: proof.into(),
                count,
            });
        }
    }

    fn unexplained(&self) -> i64 {
        let sum = |terms: &[Term]| terms.iter().map(|term| term.count).sum::<i64>();
        sum(&self.edge.entered) - sum(&self.edge.left)
    }

    fn close(mut self) -> Edge {
        self.edge.unexplained = self.unexplained();
        self.edge
    }
}

impl<'a> Ground<'a> {
    fn draft(&self, direction: Direction, from: Stage, to: Stage, unit: Unit) -> Draft {
        Draft {
            edge: Edge {
                direction,
                from,
                to,
                unit,
                netns: self.netns,
                namespace: self.namespace.name.clone(),
                subject: None,
                entered: Vec::new(),
                left: Vec::new(),
                unexplained: 0,
                bound: 0,
                open: Vec::new(),
            },
        }
    }

    fn mib(&self, name: &str) -> Delta {
        self.deltas.mib(self.netns, name)
    }

    fn sum(&self, names: &[&str]) -> Delta {
        let deltas = names.iter().map(|name| self.mib(name));
        deltas.fold(Delta::default(), |sum, delta| Delta {
            count: sum.count + delta.count,
            skew: sum.skew + delta.skew,
        })
    }

    fn statistic(&self, index: u32, name: &str) -> Delta {
        self.deltas
            .get(&super::delta::Key::Device(self.netns, index, name.into()))
    }

    fn driver(&self, index: u32, name: &str) -> Delta {
        self.deltas
            .get(&super::delta::Key::Driver(self.netns, index, name.into()))
    }

    fn earlier(&self) -> Option<&'a Namespace> {
        self.before.namespaces.get(&self.netns)
    }

    /// Losses of this namespace in some stages. A lost copy is no loss of the packet.
    fn lost(&self, is_meant: impl Fn(&Loss) -> bool) -> Vec<&'a Loss> {
        let losses = self.losses.iter();
        losses
            .filter(|loss| {
                loss.netns == self.netns && loss.class != Class::CopyLost && is_meant(loss)
            })
            .collect()
    }

    /// What native XDP took of a device's frames, where its driver tells.
    fn taken_by_xdp(&self, index: u32) -> [(&'static str, &'static str, Delta); 3] {
        [
            ("redirected by XDP", "rx_queue_*_xdp_redirect"),
            ("dropped by XDP", "rx_queue_*_xdp_drops"),
            ("sent back by XDP", "rx_queue_*_xdp_tx"),
        ]
        .map(|(name, counter)| (name, counter, self.driver(index, counter)))
    }

    /// Devices to IP, in segments: what the devices received is what IP received, each skb as many as it carries.
    fn devices_to_ip(&self) -> Edge {
        let mut draft = self.draft(Direction::Receive, Stage::Driver, Stage::Ip, Unit::Segments);
        let mut is_virtual = false;
        for (&index, device) in &self.namespace.devices {
            if device.controller.is_some() || self.is_stacked(device) {
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
            draft.edge.bound += self.in_flight(device);
            self.leave_before_ip(&mut draft, index, device);
        }
        let segments = self.sum(&SEGMENTS);
        let skbs = self.sum(&["Ip.InReceives", "Ip6.InReceives"]);
        let merged = segments.count.saturating_sub(skbs.count);
        let carried = if self.method.segments { segments } else { skbs };
        draft.leave("IP", "IpExt In*ECT*Pkts, Ip6 In*ECT*Pkts", carried);
        let headers = self.sum(&[
            "Ip.InHdrErrors",
            "Ip6.InHdrErrors",
            "IpExt.InTruncatedPkts",
            "Ip6.InTruncatedPkts",
        ]);
        // Packets with a bad header are received and not counted as segments; others with errors may be both.
        let before_count = self.lost(|loss| {
            ["IP_CSUM", "IP_INHDR", "PKT_TOO_SMALL"].contains(&loss.reason.as_str())
                || ["Ip.InHdrErrors", "Ip6.InHdrErrors"].contains(&loss.reason.as_str())
        });
        let bad: u64 = before_count.iter().map(|loss| loss.count).sum();
        draft.leave_signed(
            "bad IP headers",
            "Ip.InHdrErrors",
            bad.min(headers.count).cast_signed(),
        );
        self.leave_arp(&mut draft);
        if is_virtual && merged > 0 {
            self.explain_merged(&mut draft, merged);
        }
        draft.close()
    }

    fn leave_arp(&self, draft: &mut Draft) {
        let Some(after) = self.namespace.arp else {
            draft.open("received ARP is not counted here: run as root");
            return;
        };
        let before = self.earlier().and_then(|earlier| earlier.arp);
        let count = after
            .value
            .saturating_sub(before.map_or(0, |before| before.value));
        draft.leave("ARP", "a packet socket of ARP", Delta { count, skew: 0 });
    }

    /// A veth, a tap and the loopback count an skb as one frame, whatever it carries: a frame of theirs can be as
    /// many segments as TSO left in it, or a part of one that GRO made. Between the two, the difference is known
    /// to be one of units.
    fn explain_merged(&self, draft: &mut Draft, merged: u64) {
        let rest = draft.unexplained();
        if rest < 0 && rest.unsigned_abs() <= merged {
            draft.leave_signed(
                "carried by skbs of several segments",
                "IpExt In*ECT*Pkts less Ip.InReceives",
                rest,
            );
        }
    }

    fn is_stacked(&self, device: &Device) -> bool {
        device.lower.is_some()
            && device
                .kind
                .as_deref()
                .is_some_and(|kind| STACKED.contains(&kind))
    }

    /// Frames that may wait in a device's rings, while others move.
    fn in_flight(&self, device: &Device) -> u64 {
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
            loss.device.as_ref() == Some(&device.name)
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
            // What a veth's backlog, or the sender, dropped was never counted as received.
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

    /// With success tracepoints: what devices handed to the stack is what IP, ARP and losses before them got.
    fn stack_to_ip(&self) -> Option<Edge> {
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
        for loss in lost {
            draft.leave(
                loss.reason.clone(),
                loss.proof.clone(),
                Delta {
                    count: loss.count,
                    skew: 0,
                },
            );
        }
        Some(draft.close())
    }

    /// With success tracepoints: what a device's program redirected to other devices was sent there, or lost.
    fn redirects(&self, index: u32, device: &Device) -> Option<Edge> {
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

    /// IP to the transport protocols, in skbs.
    fn ip_to_transport(&self) -> Edge {
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
            "fragments put together",
            "Ip.ReasmReqds less ReasmOKs",
            fragments.count.cast_signed() - whole.count.cast_signed(),
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
        });
        for loss in lost {
            draft.leave(
                loss.reason.clone(),
                loss.proof.clone(),
                Delta {
                    count: loss.count,
                    skew: 0,
                },
            );
        }
        if fragments.count > 0 {
            draft.open("fragments that wait for others are not counted");
        }
        draft.close()
    }

    /// The transport protocols and their sockets, in skbs. UDP counts a datagram when it is read.
    fn transport(&self) -> Edge {
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
        draft.leave(
            "UDP, read",
            "Udp.InDatagrams, Udp6.InDatagrams",
            self.sum(&[
                "Udp.InDatagrams",
                "Udp6.InDatagrams",
                "UdpLite.InDatagrams",
                "UdpLite6.InDatagrams",
            ]),
        );
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
        let purged: u64 = purged.iter().map(|loss| loss.count).sum();
        draft.leave(
            "closed unread",
            "event skb:kfree_skb QUEUE_PURGE",
            Delta {
                count: purged,
                skew: 0,
            },
        );
        match self.unread() {
            Some(grown) => draft.leave_signed("UDP, unread", "receive queues of sockets", grown),
            None => draft.open("datagrams that wait unread cannot be counted here: run as root"),
        }
        // A socket that did not ask for UDP_GRO gets the datagrams one by one.
        let segments = self.sum(&SEGMENTS).count;
        let skbs = self.sum(&["Ip.InReceives", "Ip6.InReceives"]).count;
        let rest = draft.unexplained();
        if self.method.segments && rest < 0 && rest.unsigned_abs() <= segments.saturating_sub(skbs)
        {
            draft.leave_signed(
                "datagrams that one skb carried",
                "IpExt In*ECT*Pkts less Ip.InReceives",
                rest,
            );
        }
        if rest > 0 {
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
            let packets = udp.map(|socket| socket.packets.or((socket.queued == 0).then_some(0)));
            packets.sum::<Option<u64>>().map(u64::cast_signed)
        };
        Some(of(self.namespace)? - self.earlier().map_or(Some(0), of)?)
    }

    /// IP to the devices, in skbs.
    fn sending(&self) -> Edge {
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
        let made = self
            .sum(&["Ip.FragCreates", "Ip6.FragCreates"])
            .count
            .cast_signed();
        let cut = self.sum(&["Ip.FragOKs", "Ip6.FragOKs"]).count.cast_signed();
        draft.leave_signed("fragments made", "Ip.FragOKs less FragCreates", cut - made);
        for (&index, device) in &self.namespace.devices {
            if device.controller.is_some() || self.is_stacked(device) {
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
                    -delta.count.cast_signed(),
                );
            }
            draft.leave_signed(
                format!("{}: queued", device.name),
                "queue_length of qdiscs",
                self.queued(index, device),
            );
        }
        let lost = self.lost(|loss| {
            matches!(
                loss.stage,
                Stage::Qdisc | Stage::Transmit | Stage::Neighbour
            ) || (loss.stage == Stage::Tc && loss.reason == "TC_EGRESS")
                || (loss.stage == Stage::Netfilter && loss.is_received == Some(false))
        });
        for loss in lost {
            draft.leave(
                loss.reason.clone(),
                loss.proof.clone(),
                Delta {
                    count: loss.count,
                    skew: 0,
                },
            );
        }
        // An skb of TCP is cut into segments before a device that cannot do that itself.
        let rest = draft.unexplained();
        if self.method.segments && rest < 0 && rest.unsigned_abs() <= self.mib("Tcp.OutSegs").count
        {
            draft.leave_signed("skbs cut into segments", "at most Tcp.OutSegs", rest);
        }
        if draft.unexplained() != 0 {
            draft.open("ARP that was sent, and packets of AF_PACKET and AF_XDP, are not counted");
        }
        draft.close()
    }

    /// By how many packets the root queue of a device grew.
    fn queued(&self, index: u32, device: &Device) -> i64 {
        let root = |device: &Device| {
            let root = device
                .qdiscs
                .iter()
                .find(|(name, _)| name.ends_with(" root"));
            let length = root.and_then(|(_, counters)| counters.get("queue_length"));
            length.map_or(0, |length| length.value.cast_signed())
        };
        let earlier = self
            .earlier()
            .and_then(|earlier| earlier.devices.get(&index));
        root(device) - earlier.map_or(0, root)
    }

    /// A device's queueing discipline to the device, in segments for a card.
    fn qdisc(&self, index: u32, device: &Device) -> Option<Edge> {
        let is_root = |name: &str| name.ends_with(" root") && !name.starts_with("noqueue");
        let (name, later) = device.qdiscs.iter().find(|(name, _)| is_root(name))?;
        let earlier = self
            .earlier()
            .and_then(|earlier| earlier.devices.get(&index)?.qdiscs.get(name));
        let packets = |counters: &crate::ledger::snapshot::Counters| {
            counters.get("packets").copied().unwrap_or_default()
        };
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
                skew: before.moved + after.moved,
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
            draft.leave(
                loss.reason.clone(),
                loss.proof.clone(),
                Delta {
                    count: loss.segments,
                    skew: 0,
                },
            );
        }
        let rest = draft.unexplained();
        if rest > 0 && device.kind.is_some() {
            draft.leave_signed(
                "carried by skbs of several segments",
                "a virtual device counts skbs",
                rest,
            );
        }
        Some(draft.close())
    }

    /// A native XDP program, where the driver counts its verdicts.
    fn xdp(&self, index: u32, device: &Device) -> Option<Edge> {
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
        for loss in failed {
            draft.leave(
                loss.reason.clone(),
                loss.proof.clone(),
                Delta {
                    count: loss.count,
                    skew: 0,
                },
            );
        }
        let passed = draft.unexplained();
        if passed > 0 {
            draft.leave_signed("passed on", "the rest: no counter", passed);
        }
        Some(draft.close())
    }

    /// Frames that a device's XDP program redirected to its AF_XDP sockets.
    fn af_xdp(&self, index: u32, device: &Device) -> Option<Edge> {
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
            let producer = |socket: &crate::ledger::snapshot::XdpSocket| {
                socket.rx.map_or(0, |ring| ring.producer)
            };
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
}

impl Draft {
    fn open(&mut self, why: &str) {
        if !self.edge.open.iter().any(|known| known == why) {
            self.edge.open.push(why.into());
        }
    }
}
