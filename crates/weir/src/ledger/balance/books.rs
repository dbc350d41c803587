//! One owner for each loss.
//!
//! One lost packet stands in up to four counters and two events. The most exact evidence goes first and becomes a
//! row; it claims the packet from every other place that counts it. A count that is left in the end is a loss that
//! this counter alone shows.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::delta::{Deltas, Key};
use super::method::Method;
use super::rules::{Counter, CounterRule, Loser, Rule, rule_for};
use crate::ledger::sheet::{Also, Class, Loss};
use crate::ledger::snapshot::{Device, Drop, Snapshot, Socket, XdpEvent, XdpSocket};
use crate::ledger::stage::{Stage, Unit};

/// EtherType of IPv6.
const IPV6: u16 = 0x86dd;
/// Queueing disciplines above each other: more than anybody has.
const MAX_DEPTH: usize = 16;

/// The counters of a frame that was lost after it was received.
const RECEIVED: &[Counter] = &[
    Counter::Driver("rx_queue_*_drops"),
    Counter::Device("rx_dropped"),
];
/// Those of a frame that a device could not send.
const SENT: &[Counter] = &[Counter::Device("tx_dropped"), Counter::Peer("rx_dropped")];

/// A device that counts packets as not sent which another stage, or another device, lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The namespace of the device.
    pub netns: u64,
    /// Its index.
    pub device: u32,
    /// Packets.
    pub count: u64,
    /// The namespace of the loss.
    pub lost_netns: u64,
    /// The stage that owns the loss.
    pub stage: Stage,
}

/// Closed books.
#[derive(Debug, Default)]
pub struct Closed {
    /// All losses of the snapshot's namespaces and devices.
    pub losses: Vec<Loss>,
    /// Where else they were not sent.
    pub refusals: Vec<Refusal>,
}

/// Assigns losses to owners.
pub struct Books<'a> {
    method: Method,
    deltas: &'a Deltas,
    after: &'a Snapshot,
    /// Counts that are not claimed yet.
    left: BTreeMap<&'a Key, u64>,
    closed: Closed,
    /// The place of each row in the losses.
    rows: HashMap<Identity, usize>,
}

/// The identity of a row.
#[derive(PartialEq, Eq, Hash)]
struct Identity {
    stage: Stage,
    netns: u64,
    texts: [Option<String>; 6],
    pid: Option<u32>,
    is_received: Option<bool>,
}

impl Identity {
    fn of(loss: &Loss) -> Self {
        let [device, qdisc, socket, place] =
            [&loss.device, &loss.qdisc, &loss.socket, &loss.place].map(Clone::clone);
        Self {
            stage: loss.stage,
            netns: loss.netns,
            texts: [
                Some(loss.reason.clone()),
                Some(loss.proof.clone()),
                device,
                qdisc,
                socket,
                place,
            ],
            pid: loss.process.as_ref().map(|process| process.pid),
            is_received: loss.is_received,
        }
    }
}

/// Where a loss happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct At {
    netns: u64,
    device: u32,
    /// A cookie; 0 for none.
    socket: u64,
    is_ipv6: bool,
}

/// The result of a claim.
#[derive(Default)]
struct Claimed {
    also: Vec<Also>,
    /// The socket, if one alone counted them.
    socket: Option<u64>,
    qdisc: Option<String>,
    /// Devices that count them as not sent, by namespace and index.
    refused: Vec<(u64, u32, u64)>,
}

/// Why an AF_XDP socket lost a frame.
struct XdpCause {
    reason: &'static str,
    /// In `XDP_STATISTICS`.
    counter: &'static str,
    /// Of the tracepoint `xdp_redirect_err` (`xsk_rcv` in net/xdp/xsk.c).
    error: &'static str,
    meaning: &'static str,
    /// The check of `weir doctor`.
    check: Option<&'static str>,
}

const TOO_LONG: XdpCause = XdpCause {
    reason: "rx_dropped",
    counter: "rx_dropped without rx_fill_ring_empty_descs",
    error: "ENOSPC",
    meaning: "it was longer than a chunk of the UMEM has room for: on virtual devices the MTU does not limit what others segment late (TSO, GSO) or have merged (GRO); cures are a UMEM of several chunks a packet (XDP_USE_SG), or segments (`ethtool -K DEVICE tso off gso off tx-udp-segmentation off` for the sender's device)",
    check: Some("xdp-long-packets"),
};

const NO_CHUNK: XdpCause = XdpCause {
    reason: "rx_dropped",
    counter: "rx_fill_ring_empty_descs",
    error: "ENOMEM",
    meaning: "FILL had no chunk for it: the program keeps chunks for too long, or its UMEM has too few",
    check: None,
};

const RING_FULL: XdpCause = XdpCause {
    reason: "rx_ring_full",
    counter: "rx_ring_full",
    error: "ENOBUFS",
    meaning: "the RX ring was full: the program reads too slowly",
    check: None,
};

impl<'a> Books<'a> {
    /// Books of the counts between two snapshots.
    pub fn new(method: Method, deltas: &'a Deltas, after: &'a Snapshot) -> Self {
        let left = deltas.counts.iter().map(|(key, delta)| (key, delta.count));
        Self {
            method,
            deltas,
            after,
            left: left.collect(),
            closed: Closed::default(),
            rows: HashMap::new(),
        }
    }

    /// Assigns all losses.
    pub fn close(mut self) -> Closed {
        self.add_xdp_sockets();
        self.add_xdp_events();
        // A counter knows the namespace of packets whose event has none.
        self.add_drops(|drop| drop.netns != 0);
        self.add_counters();
        self.add_drops(|drop| drop.netns == 0);
        self.closed
    }

    /// Sockets of AF_XDP know best why they lost a frame.
    fn add_xdp_sockets(&mut self) {
        for socket in self.after.xdp_sockets.iter().flatten() {
            let at = At {
                netns: socket.netns,
                device: socket.device,
                ..At::default()
            };
            let lost = self
                .deltas
                .xdp_sockets
                .get(&socket.cookie)
                .copied()
                .unwrap_or_default();
            self.add_xdp_socket(socket, at, &TOO_LONG, lost.too_long);
            self.add_xdp_socket(socket, at, &NO_CHUNK, lost.no_chunk);
            self.add_xdp_socket(socket, at, &RING_FULL, lost.ring_full);
        }
    }

    fn add_xdp_socket(&mut self, socket: &XdpSocket, at: At, cause: &XdpCause, count: u64) {
        if count == 0 {
            return;
        }
        let mut also = Vec::new();
        let mut rest = count;
        for (index, event) in self.deltas.xdp.iter().enumerate() {
            let is_same = event.error.as_deref() == Some(cause.error);
            if event.map.as_deref() == Some("xskmap") && is_same && is_at_xdp(event, at) {
                let claimed = self.take(&Key::Xdp(index), rest);
                rest -= claimed;
                push(&mut also, "event xdp:xdp_redirect_err", claimed);
            }
        }
        self.claim_freed_by_xdp("XDP", at, count, &mut also);
        let claimed = self.claim(at, RECEIVED, count);
        also.extend(claimed.also);
        let mode = if socket.zero_copy {
            "zero-copy"
        } else {
            "copy"
        };
        let (reason, meaning) = (cause.reason, cause.meaning);
        let mut loss = self.loss(at, Stage::AfXdp, Class::Lost, count, reason, meaning);
        loss.socket = Some(format!("queue {} ({mode})", socket.queue));
        loss.process = Some(socket.process.clone());
        loss.proof = format!("XDP_STATISTICS {}", cause.counter);
        loss.check = cause.check.map(Into::into);
        loss.also = also;
        self.push(loss);
    }

    /// Exceptions are freed by the driver as other verdicts are.
    fn add_xdp_events(&mut self) {
        for index in 0..self.deltas.xdp.len() {
            let event = &self.deltas.xdp[index];
            let count = self.take(&Key::Xdp(index), u64::MAX);
            if count == 0 {
                continue;
            }
            let from = At {
                netns: event.netns,
                device: event.device,
                ..At::default()
            };
            // The target of a redirect loses the frames that it cannot send.
            let at = match event.event.as_str() {
                "xdp_devmap_xmit" => At {
                    device: event.to,
                    ..from
                },
                _ => from,
            };
            let mut also = Vec::new();
            match event.event.as_str() {
                "xdp_exception" => {
                    self.claim_freed_by_xdp("NOT_SPECIFIED", at, count, &mut also);
                    let drops = Counter::Driver("rx_queue_*_xdp_drops");
                    also.extend(self.claim(at, &[drops], count).also);
                    also.extend(self.claim(at, RECEIVED, count).also);
                }
                "xdp_redirect_err" => {
                    self.claim_freed_by_xdp("XDP", at, count, &mut also);
                    also.extend(self.claim(at, RECEIVED, count).also);
                }
                "xdp_bulk_tx" => {
                    let errors = Counter::Driver("rx_queue_*_xdp_tx_errors");
                    also.extend(self.claim(at, &[errors], count).also);
                    also.extend(self.claim(at, SENT, count).also);
                }
                "xdp_devmap_xmit" => {
                    let errors = Counter::Driver("tx_queue_*_xdp_xmit_errors");
                    also.extend(self.claim(at, &[errors], count).also);
                    also.extend(self.claim(at, SENT, count).also);
                }
                _ => {}
            }
            let (reason, meaning) = describe_xdp(event);
            let mut loss = self.loss(at, Stage::Xdp, Class::Lost, count, &reason, &meaning);
            loss.place = event
                .program_name
                .as_ref()
                .map(|name| format!("program {name} ({})", event.program));
            loss.proof = format!("event xdp:{}", event.event);
            loss.also = also;
            self.push(loss);
        }
    }

    /// Frames of XDP that the kernel freed as packets: for this reason, at a place of XDP where that is no reason of
    /// XDP alone.
    fn claim_freed_by_xdp(&mut self, reason: &str, at: At, count: u64, also: &mut Vec<Also>) {
        let mut rest = count;
        for (index, drop) in self.deltas.drops.iter().enumerate() {
            let place = drop.place.as_deref().unwrap_or_default();
            let is_same = drop.reason == reason
                && (drop.netns, drop.device) == (at.netns, at.device)
                && (reason == "XDP" || place.contains("xdp"));
            if is_same {
                let claimed = self.take(&Key::Drop(index), rest);
                rest -= claimed;
                push(also, &format!("event skb:kfree_skb {reason}"), claimed);
            }
        }
    }

    fn add_drops(&mut self, is_meant: impl Fn(&Drop) -> bool) {
        for (index, drop) in self.deltas.drops.iter().enumerate() {
            if !is_meant(drop) {
                continue;
            }
            let count = self.take(&Key::Drop(index), u64::MAX);
            if count == 0 {
                continue;
            }
            let rule = rule_for(
                self.method.rules,
                &drop.reason,
                drop.place.as_deref().unwrap_or_default(),
            );
            self.add_drop(drop, rule, count);
        }
    }

    /// Where a packet was lost. The other end of a device can be in a namespace that was not read: nothing of this one
    /// lost it then.
    fn place_of(&self, drop: &Drop, loser: Loser) -> At {
        let (netns, device) = match loser {
            Loser::Named => (drop.netns, drop.device),
            Loser::Peer => {
                let named = self.after.device(drop.netns, drop.device);
                named.and_then(|named| named.peer).unwrap_or_default()
            }
        };
        At {
            netns,
            device,
            socket: drop.socket,
            is_ipv6: drop.protocol == IPV6,
        }
    }

    fn add_drop(&mut self, drop: &Drop, rule: Rule, count: u64) {
        let at = self.place_of(drop, rule.loser);
        let mut claimed = self.claim(at, rule.also, count);
        if rule.stage == Stage::Qdisc && claimed.qdisc.is_none() {
            // A device without a carrier has none that counts (`noop_enqueue` of net/sched/sch_generic.c).
            let more = self.claim(at, &[Counter::Device("tx_dropped")], count);
            claimed.also.extend(more.also);
        }
        self.refuse(at, rule.stage, &claimed);
        let mut loss = self.loss(
            at,
            rule.stage,
            rule.class,
            count,
            &drop.reason,
            rule.meaning,
        );
        if self.method.segments {
            // Those that were claimed are skbs of one segment: XDP knows no others.
            loss.segments = drop.segments.saturating_sub(drop.skbs - count);
        }
        loss.is_received = Some(drop.received);
        loss.place.clone_from(&drop.place);
        loss.proof = "event skb:kfree_skb".into();
        loss.also = claimed.also;
        loss.qdisc = claimed.qdisc;
        loss.check = (!rule.check.is_empty()).then(|| rule.check.into());
        let socket = if drop.socket == 0 {
            claimed.socket
        } else {
            Some(drop.socket)
        };
        self.name_socket(&mut loss, at.netns, socket);
        self.push(loss);
    }

    fn refuse(&mut self, at: At, stage: Stage, claimed: &Claimed) {
        let refused = claimed.refused.iter();
        let others = refused.filter(|&&(netns, device, _)| {
            stage == Stage::Backlog || (netns, device) != (at.netns, at.device)
        });
        self.closed
            .refusals
            .extend(others.map(|&(netns, device, count)| Refusal {
                netns,
                device,
                count,
                lost_netns: at.netns,
                stage,
            }));
    }

    fn add_counters(&mut self) {
        for rule in self.method.counters {
            let mut keys = self.keys_of(rule.counter);
            if rule.counter == Counter::Qdisc {
                // The deepest first: those above it count the same packets.
                keys.sort_by_key(|key| std::cmp::Reverse(self.above(key).len()));
            }
            for key in keys {
                let count = self.take(&key, u64::MAX);
                if count > 0 {
                    self.add_counter(rule, &key, count);
                }
            }
        }
    }

    /// The queueing disciplines above one, the next one first.
    fn above(&self, key: &Key) -> Vec<Key> {
        let Key::Qdisc(netns, device, name) = key else {
            return Vec::new();
        };
        let parents = self.after.device(*netns, *device);
        let parents = parents.map(|device| &device.qdisc_parents);
        let mut above = Vec::new();
        let mut next = parents.and_then(|parents| parents.get(name));
        // Bounded: names could make a circle.
        while let Some(name) = next.filter(|_| above.len() < MAX_DEPTH) {
            above.push(Key::Qdisc(*netns, *device, name.clone()));
            next = parents.and_then(|parents| parents.get(name));
        }
        above
    }

    /// Claims the drops of a discipline from those above it, which count them too.
    fn claim_above(&mut self, key: &Key, at: At, count: u64, also: &mut Vec<Also>) {
        for key in self.above(key) {
            let taken = self.take(&key, count);
            push(also, &self.name_of(&key, at), taken);
        }
    }

    /// The counters that a rule means and that have something left.
    fn keys_of(&self, counter: Counter) -> Vec<Key> {
        let is_meant = |key: &Key| match (counter, key) {
            (Counter::Mib(ipv4, ipv6), Key::Mib(_, name)) => name == ipv4 || name == ipv6,
            (Counter::Device(wanted), Key::Device(_, _, name))
            | (Counter::Driver(wanted), Key::Driver(_, _, name)) => name == wanted,
            (Counter::Qdisc, Key::Qdisc(_, _, name)) => !is_filters(name),
            (Counter::Filters, Key::Qdisc(_, _, name)) => is_filters(name),
            (Counter::Socket, Key::Socket(..)) => true,
            // Of several namespaces nobody knows which one lost them.
            (Counter::Cpu(wanted), Key::Cpu(name)) => self.after.whole_host && name == wanted,
            (Counter::Neighbour(ipv4, ipv6), Key::Neighbour(name)) => {
                self.after.whole_host && (name == ipv4 || name == ipv6)
            }
            _ => false,
        };
        let left = self
            .left
            .iter()
            .filter(|(key, left)| **left > 0 && is_meant(key));
        left.map(|(key, _)| (*key).clone()).collect()
    }

    fn add_counter(&mut self, rule: &CounterRule, key: &Key, count: u64) {
        let mut at = At::default();
        let (mut class, mut stage) = (rule.class, rule.stage);
        let (mut qdisc, mut socket) = (None, None);
        let (reason, proof) = match key {
            Key::Mib(netns, name) => {
                at.netns = *netns;
                at.is_ipv6 = name.contains("6.");
                (name.clone(), format!("counter {name}"))
            }
            Key::Device(netns, device, name) => {
                (at.netns, at.device) = (*netns, *device);
                (name.clone(), format!("counter {name} of `ip -s link`"))
            }
            Key::Driver(netns, device, name) => {
                (at.netns, at.device) = (*netns, *device);
                (name.clone(), format!("counter {name} of `ethtool -S`"))
            }
            Key::Qdisc(netns, device, name) => {
                (at.netns, at.device) = (*netns, *device);
                qdisc = Some(name.clone());
                (
                    "qdisc dropped".into(),
                    "counter dropped of `tc -s qdisc`".into(),
                )
            }
            Key::Cpu(name) => (
                format!("softnet {name}"),
                format!("counter {name} of softnet_stat"),
            ),
            Key::Neighbour(name) => (name.clone(), format!("counter {name}")),
            Key::Socket(netns, cookie) => {
                at.netns = *netns;
                socket = Some(*cookie);
                let known = self.socket(*netns, *cookie);
                if known.is_some_and(|socket| socket.protocol == "packet") {
                    (class, stage) = (Class::CopyLost, Stage::Packet);
                }
                (
                    "drops".into(),
                    "counter drops of `ss -m` or PACKET_STATISTICS".into(),
                )
            }
            Key::Drop(_) | Key::Xdp(_) => return,
        };
        let mut claimed = self.claim(at, rule.also, count);
        self.claim_above(key, at, count, &mut claimed.also);
        self.refuse(at, stage, &claimed);
        let mut loss = self.loss(at, stage, class, count, &reason, rule.meaning);
        loss.proof = proof;
        loss.also = claimed.also;
        loss.qdisc = qdisc;
        loss.check = (!rule.check.is_empty()).then(|| rule.check.into());
        self.name_socket(&mut loss, at.netns, socket.or(claimed.socket));
        if stage == Stage::Packet {
            loss.meaning =
                "a packet socket's queue or ring was full: its copy was lost, not the packet"
                    .into();
        }
        self.push(loss);
    }

    /// Claims packets from the other places that count them.
    fn claim(&mut self, at: At, counters: &[Counter], count: u64) -> Claimed {
        let mut claimed = Claimed::default();
        for counter in counters {
            let mut rest = count;
            let keys = self.candidates(at, *counter);
            let mut sockets = Vec::new();
            for key in keys {
                let taken = self.take(&key, rest);
                if taken == 0 {
                    continue;
                }
                rest -= taken;
                match &key {
                    Key::Socket(_, cookie) => sockets.push(*cookie),
                    Key::Qdisc(_, _, name) => claimed.qdisc = Some(name.clone()),
                    Key::Device(netns, device, name) if name == "tx_dropped" => {
                        claimed.refused.push((*netns, *device, taken));
                    }
                    _ => {}
                }
                push(&mut claimed.also, &self.name_of(&key, at), taken);
                self.claim_above(&key, at, taken, &mut claimed.also);
            }
            if let [socket] = sockets[..] {
                claimed.socket = Some(socket);
            }
        }
        claimed
    }

    /// The counters that a packet at a place can be counted by.
    fn candidates(&self, at: At, counter: Counter) -> Vec<Key> {
        let At { netns, device, .. } = at;
        match counter {
            Counter::Mib(ipv4, ipv6) => {
                let name = if at.is_ipv6 { ipv6 } else { ipv4 };
                vec![Key::Mib(netns, name.into())]
            }
            Counter::Device(name) => vec![Key::Device(netns, device, name.into())],
            Counter::Driver(name) => vec![Key::Driver(netns, device, name.into())],
            Counter::Peer(name) => {
                let peer = self
                    .after
                    .device(netns, device)
                    .and_then(|device| device.peer);
                peer.map(|(netns, device)| Key::Device(netns, device, name.into()))
                    .into_iter()
                    .collect()
            }
            Counter::Upper(name) => {
                let uppers = self.uppers(at).into_iter();
                uppers
                    .map(|device| Key::Device(netns, device, name.into()))
                    .collect()
            }
            Counter::Qdisc | Counter::Filters => {
                let wants_filters = counter == Counter::Filters;
                let all = Key::Qdisc(netns, device, String::new())
                    ..Key::Qdisc(netns, device.saturating_add(1), String::new());
                let is_meant = |key: &&Key| matches!(key, Key::Qdisc(_, _, name) if is_filters(name) == wants_filters);
                let keys = self.left.range::<Key, _>(all).map(|(key, _)| *key);
                let mut keys: Vec<Key> = keys.filter(is_meant).cloned().collect();
                keys.sort_by_key(|key| std::cmp::Reverse(self.above(key).len()));
                keys
            }
            Counter::Event(reason) => {
                let drops = self.deltas.drops.iter().enumerate();
                let same = drops.filter(|(_, drop)| drop.netns == 0 && drop.reason == reason);
                same.map(|(index, _)| Key::Drop(index)).collect()
            }
            Counter::Cpu(name) => vec![Key::Cpu(name.into())],
            Counter::Neighbour(ipv4, ipv6) => {
                vec![Key::Neighbour(if at.is_ipv6 { ipv6 } else { ipv4 }.into())]
            }
            Counter::Socket if at.socket != 0 => vec![Key::Socket(netns, at.socket)],
            Counter::Socket => {
                let all = Key::Socket(netns, 0)..=Key::Socket(netns, u64::MAX);
                let keys = self.left.range::<Key, _>(all);
                keys.map(|(key, _)| (*key).clone()).collect()
            }
        }
    }

    /// The devices that send by this one, those next to it first, and then the tunnels, whose routes nobody follows.
    fn uppers(&self, at: At) -> Vec<u32> {
        let Some(namespace) = self.after.namespaces.get(&at.netns) else {
            return Vec::new();
        };
        let mut uppers = Vec::new();
        let mut layer = vec![at.device];
        // Bounded: a file can have a circle.
        for _ in 0..MAX_DEPTH {
            let is_above = |(index, device): &(&u32, &Device)| {
                let has_below = device.lower.is_some_and(|lower| layer.contains(&lower));
                let controls = layer.iter().any(|below| {
                    let below = namespace.devices.get(below);
                    below.is_some_and(|below| below.controller == Some(**index))
                });
                !device.is_paired() && (has_below || controls)
            };
            let devices = namespace.devices.iter().filter(is_above);
            layer = devices.map(|(index, _)| *index).collect();
            uppers.extend(&layer);
        }
        let devices = namespace.devices.iter();
        let tunnels = devices.filter(|(_, device)| device.is_tunnel());
        uppers.extend(tunnels.map(|(index, _)| *index));
        let mut seen = HashSet::from([at.device]);
        uppers.retain(|device| seen.insert(*device));
        uppers
    }

    /// Takes packets from a counter, and returns how many there were.
    fn take(&mut self, key: &Key, count: u64) -> u64 {
        let Some(left) = self.left.get_mut(key) else {
            return 0;
        };
        let taken = count.min(*left);
        // A row that is made of the whole counter always takes it: nothing is counted twice by itself.
        if self.method.claims || count == u64::MAX {
            *left -= taken;
        }
        taken
    }

    fn name_of(&self, key: &Key, at: At) -> String {
        let device = |netns: u64, index: u32| {
            let name = self
                .after
                .device(netns, index)
                .map_or("?", |device| device.name.as_str());
            if (netns, index) == (at.netns, at.device) {
                String::new()
            } else {
                format!("{name} ")
            }
        };
        match key {
            Key::Mib(_, name) | Key::Neighbour(name) => name.clone(),
            Key::Device(netns, index, name) | Key::Driver(netns, index, name) => {
                format!("{}{name}", device(*netns, *index))
            }
            Key::Qdisc(_, _, name) => format!("{name} dropped"),
            Key::Cpu(name) => format!("softnet {name}"),
            Key::Socket(..) => "socket drops".into(),
            Key::Drop(_) => "event skb:kfree_skb".into(),
            Key::Xdp(_) => "event of XDP".into(),
        }
    }

    fn loss(
        &self,
        at: At,
        stage: Stage,
        class: Class,
        count: u64,
        reason: &str,
        meaning: &str,
    ) -> Loss {
        let namespace = self.after.namespaces.get(&at.netns);
        let device = self
            .after
            .device(at.netns, at.device)
            .map(|device| device.name.clone());
        Loss {
            class,
            stage,
            unit: if stage == Stage::Transmit {
                Unit::Skbs
            } else {
                stage.unit()
            },
            count,
            segments: count,
            reason: reason.into(),
            place: None,
            meaning: meaning.into(),
            netns: at.netns,
            namespace: match namespace {
                Some(namespace) => namespace.name.clone(),
                None if at.netns == 0 => "host".into(),
                None => format!("net:[{}], gone", at.netns),
            },
            device: device.or_else(|| (at.device != 0).then(|| format!("device {}", at.device))),
            qdisc: None,
            socket: None,
            process: None,
            proof: String::new(),
            also: Vec::new(),
            is_received: None,
            check: None,
        }
    }

    fn socket(&self, netns: u64, cookie: u64) -> Option<&'a Socket> {
        self.after.namespaces.get(&netns)?.sockets.get(&cookie)
    }

    fn name_socket(&self, loss: &mut Loss, netns: u64, cookie: Option<u64>) {
        let Some(cookie) = cookie else { return };
        let closed = || self.after.namespaces.get(&netns)?.closed.get(&cookie);
        let (socket, suffix) = match self.socket(netns, cookie) {
            Some(socket) => (Some(socket), ""),
            None => (closed(), ", closed by now"),
        };
        loss.process = socket.and_then(|socket| socket.process.clone());
        loss.socket = Some(match socket {
            Some(socket) => format!("{} {}{suffix}", socket.protocol, socket.local),
            None => "a socket that is closed by now".into(),
        });
    }

    /// Whether a loss is of the snapshot's namespaces, and of its devices where only those were to be read. On the
    /// whole host also those of the host itself, and of namespaces that ended meanwhile.
    fn is_shown(&self, loss: &Loss) -> bool {
        let Some(namespace) = self.after.namespaces.get(&loss.netns) else {
            return self.after.whole_host;
        };
        let is_device = |name: &String| namespace.devices.values().any(|it| it.name == *name);
        !self.after.devices_only || loss.device.as_ref().is_some_and(is_device)
    }

    /// Adds a loss to those that are shown. The same loss of several evidences is one row.
    fn push(&mut self, loss: Loss) {
        if !self.is_shown(&loss) {
            return;
        }
        let identity = Identity::of(&loss);
        let Some(known) = self
            .rows
            .get(&identity)
            .and_then(|row| self.closed.losses.get_mut(*row))
        else {
            self.rows.insert(identity, self.closed.losses.len());
            self.closed.losses.push(loss);
            return;
        };
        known.count += loss.count;
        known.segments += loss.segments;
        for also in loss.also {
            push(&mut known.also, &also.counter, also.count);
        }
    }
}

/// Whether a discipline has filters alone, and no queue.
fn is_filters(name: &str) -> bool {
    name.starts_with("clsact") || name.starts_with("ingress")
}

fn is_at_xdp(event: &XdpEvent, at: At) -> bool {
    event.netns == at.netns && event.device == at.device
}

fn push(also: &mut Vec<Also>, counter: &str, count: u64) {
    if count == 0 {
        return;
    }
    match also.iter_mut().find(|known| known.counter == counter) {
        Some(known) => known.count += count,
        None => also.push(Also {
            counter: counter.into(),
            count,
        }),
    }
}

fn describe_xdp(event: &XdpEvent) -> (String, String) {
    if let Some(action) = &event.action {
        let meaning = match action.as_str() {
            "XDP_ABORTED" => {
                "the program ended with XDP_ABORTED: an error of its own, or a redirect to an empty slot of a map"
            }
            "XDP_TX" => "the driver could not send it back (XDP_TX)",
            "XDP_REDIRECT" => "the driver could not redirect it",
            _ => "the program returned an action that does not exist",
        };
        return (action.clone(), meaning.into());
    }
    let error = event.error.as_deref().unwrap_or("no error");
    let map = event.map.as_deref().unwrap_or("no map");
    let meaning = match (error, map) {
        ("ENOBUFS", "xskmap") => "the RX ring of an AF_XDP socket was full",
        ("ENOMEM", "xskmap") => "the FILL ring of an AF_XDP socket was empty",
        ("ENOSPC", "xskmap") => "it was longer than a chunk of an AF_XDP socket has room for",
        ("EINVAL", "xskmap") => "the AF_XDP socket is bound to another device or queue",
        ("EOPNOTSUPP", _) => {
            "the target takes no redirected frames: its peer has no NAPI (a native XDP program or GRO)"
        }
        ("EMSGSIZE", _) => "it is larger than the target's MTU",
        ("ENETDOWN" | "ENXIO", _) => "the target is down",
        ("EINVAL", _) => "the target of the redirect does not exist",
        _ => "a redirect of XDP failed",
    };
    (format!("{} {error} ({map})", event.event), meaning.into())
}
