//! The differences of counters between two snapshots.

use std::collections::{BTreeMap, HashMap};

use crate::ledger::snapshot::{
    Counters, Device, Drop, Namespace, Reading, Snapshot, XdpEvent, XdpSocket,
};

/// A counter, or an event.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A counter of a namespace's protocols.
    Mib(u64, String),
    /// A field of a device's statistics.
    Device(u64, u32, String),
    /// A statistic of a device's driver.
    Driver(u64, u32, String),
    /// The drops of a device's queueing discipline.
    Qdisc(u64, u32, String),
    /// A column of `softnet_stat`, all CPUs added.
    Cpu(String),
    /// A counter of the neighbour tables.
    Neighbour(String),
    /// The drops of a socket, by namespace and cookie.
    Socket(u64, u64),
    /// Freed packets, by their place in [`Deltas::drops`].
    Drop(usize),
    /// An event of XDP, by its place in [`Deltas::xdp`].
    Xdp(usize),
}

/// The difference of a counter, and its motion while the two snapshots were taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Delta {
    /// The difference.
    pub count: u64,
    /// The most that it can be off beside other counters.
    pub skew: u64,
}

/// The differences of counters between two snapshots.
#[derive(Debug, Default)]
pub struct Deltas {
    /// By counter; one that did not move is absent.
    pub counts: BTreeMap<Key, Delta>,
    /// Freed packets of all namespaces.
    pub drops: Vec<Drop>,
    /// Events of XDP of all namespaces.
    pub xdp: Vec<XdpEvent>,
    /// Frames that each AF_XDP socket lost, by its cookie.
    pub xdp_sockets: HashMap<u64, XdpLost>,
    /// Packets that did not fit into the maps of events.
    pub overflow: u64,
    /// Whether events were counted during the whole interval.
    pub has_events: bool,
    /// Counters that began anew.
    pub resets: Vec<String>,
}

/// Frames that an AF_XDP socket lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct XdpLost {
    /// Longer than a chunk has room for (`rx_dropped` without those of `no_chunk`).
    pub too_long: u64,
    /// FILL had no chunk for them (of `rx_dropped`, those of `rx_fill_ring_empty_descs`).
    pub no_chunk: u64,
    /// The RX ring was full (`rx_ring_full`).
    pub ring_full: u64,
}

impl XdpLost {
    /// A frame that is copied looks into FILL once, and only if it fits into a chunk (`__xsk_rcv` in
    /// `net/xdp/xsk.c`).
    fn between(before: &XdpSocket, after: &XdpSocket) -> Self {
        let dropped = after.rx_dropped.saturating_sub(before.rx_dropped);
        let no_chunk = dropped.min(after.fill_empty.saturating_sub(before.fill_empty));
        Self {
            too_long: dropped - no_chunk,
            no_chunk,
            ring_full: after.rx_full.saturating_sub(before.rx_full),
        }
    }
}

/// How a counter behaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Width {
    /// It has 64 bits, and goes back only when it begins anew.
    Long,
    /// It wraps at 32 bits.
    Short,
}

/// Counters of which the kernel shows the present value, not a sum.
const GAUGES: [&str; 9] = [
    "Tcp.CurrEstab",
    "Tcp.RtoAlgorithm",
    "Tcp.RtoMin",
    "Tcp.RtoMax",
    "Tcp.MaxConn",
    "Ip.Forwarding",
    "Ip.DefaultTTL",
    "arp_cache.entries",
    "ndisc_cache.entries",
];

impl Deltas {
    /// The difference of two snapshots of the same boot. A counter that is new in `after` began at 0.
    pub fn between(before: &Snapshot, after: &Snapshot) -> Self {
        let mut deltas = Self::default();
        let none = Namespace::default();
        for (&inode, namespace) in &after.namespaces {
            let earlier = before.namespaces.get(&inode).unwrap_or(&none);
            deltas.add_namespace(inode, earlier, namespace);
        }
        let (mut earlier, mut later) = (Counters::new(), Counters::new());
        for (cpu, counters) in &after.cpus {
            add_to(&mut later, counters);
            // A CPU that came online meanwhile has its counts of before.
            add_to(&mut earlier, before.cpus.get(cpu).unwrap_or(counters));
        }
        if before.cpus.is_empty() {
            earlier.clear();
        }
        deltas.add(&earlier, &later, Width::Short, "softnet_stat", |name| {
            Key::Cpu(name.into())
        });
        deltas.add(
            &before.neighbours,
            &after.neighbours,
            Width::Short,
            "neighbour tables",
            |name| Key::Neighbour(name.into()),
        );
        for socket in after.xdp_sockets.iter().flatten() {
            let mut earlier = before.xdp_sockets.iter().flatten();
            let earlier = earlier.find(|earlier| earlier.cookie == socket.cookie);
            let new = XdpSocket::default();
            let lost = XdpLost::between(earlier.unwrap_or(&new), socket);
            deltas.xdp_sockets.insert(socket.cookie, lost);
        }
        deltas.add_events(before, after);
        deltas
    }

    /// The difference of a counter.
    pub fn get(&self, key: &Key) -> Delta {
        self.counts.get(key).copied().unwrap_or_default()
    }

    /// The difference of a counter of a namespace's protocols.
    pub fn mib(&self, netns: u64, name: &str) -> Delta {
        self.get(&Key::Mib(netns, name.into()))
    }

    fn add_namespace(&mut self, inode: u64, before: &Namespace, after: &Namespace) {
        self.add(&before.mib, &after.mib, Width::Long, &after.name, |name| {
            Key::Mib(inode, name.into())
        });
        let none = Device::default();
        for (&index, device) in &after.devices {
            // An index is given anew after a device is gone, with another name as a rule.
            let same =
                |earlier: &&Device| earlier.name == device.name || earlier.kind == device.kind;
            let earlier = before.devices.get(&index).filter(same).unwrap_or(&none);
            self.add_device(inode, index, earlier, device);
        }
        for (&cookie, socket) in &after.sockets {
            let earlier = before
                .sockets
                .get(&cookie)
                .map_or(0, |earlier| earlier.drops);
            // Its owner may have reset the drops of a packet ring.
            let count = socket.drops.checked_sub(earlier).unwrap_or(socket.drops);
            self.insert(Key::Socket(inode, cookie), Delta { count, skew: 0 });
        }
    }

    fn add_device(&mut self, inode: u64, index: u32, before: &Device, after: &Device) {
        self.add(
            &before.statistics,
            &after.statistics,
            Width::Long,
            &after.name,
            |name| Key::Device(inode, index, name.into()),
        );
        self.add(
            &before.driver,
            &after.driver,
            Width::Long,
            &after.name,
            |name| Key::Driver(inode, index, name.into()),
        );
        let none = Counters::new();
        for (qdisc, counters) in &after.qdiscs {
            let earlier = before.qdiscs.get(qdisc).unwrap_or(&none);
            let drops = |counters: &Counters| {
                let drops = counters.get("drops").copied();
                drops
                    .map(|drops| ("drops".to_owned(), drops))
                    .into_iter()
                    .collect()
            };
            self.add(
                &drops(earlier),
                &drops(counters),
                Width::Short,
                qdisc,
                |_| Key::Qdisc(inode, index, qdisc.clone()),
            );
        }
    }

    fn add(
        &mut self,
        before: &Counters,
        after: &Counters,
        width: Width,
        owner: &str,
        key: impl Fn(&str) -> Key,
    ) {
        for (name, later) in after {
            let earlier = before.get(name).copied().unwrap_or_default();
            match difference(earlier, *later, width) {
                Some(delta) => self.insert(key(name), delta),
                None if GAUGES.contains(&name.as_str()) || name == "backlog" => {}
                None => {
                    self.resets.push(format!("{owner}: {name}"));
                    let skew = later.moved;
                    let count = later.value;
                    self.insert(key(name), Delta { count, skew });
                }
            }
        }
    }

    fn insert(&mut self, key: Key, delta: Delta) {
        if delta != Delta::default() {
            self.counts.insert(key, delta);
        }
    }

    fn add_events(&mut self, before: &Snapshot, after: &Snapshot) {
        let (Some(earlier), Some(later)) = (&before.events, &after.events) else {
            return;
        };
        if earlier.since_ns != later.since_ns {
            return;
        }
        self.has_events = true;
        self.overflow = later.overflow.saturating_sub(earlier.overflow);
        let mut known = HashMap::new();
        for drop in &earlier.drops {
            let sum: &mut (u64, u64) = known
                .entry(Drop {
                    skbs: 0,
                    segments: 0,
                    ..drop.clone()
                })
                .or_default();
            *sum = (
                sum.0.saturating_add(drop.skbs),
                sum.1.saturating_add(drop.segments),
            );
        }
        for drop in &later.drops {
            let key = Drop {
                skbs: 0,
                segments: 0,
                ..drop.clone()
            };
            let (skbs, segments) = known.get(&key).copied().unwrap_or_default();
            let drop = Drop {
                skbs: drop.skbs.saturating_sub(skbs),
                segments: drop.segments.saturating_sub(segments),
                ..key
            };
            if drop.skbs > 0 {
                self.drops.push(drop);
            }
        }
        for event in &later.xdp {
            let key = |event: &XdpEvent| XdpEvent {
                lost: 0,
                passed: 0,
                ..event.clone()
            };
            let wanted = key(event);
            let mut same = earlier.xdp.iter().filter(|earlier| key(earlier) == wanted);
            let (lost, passed) = same.next().map_or((0, 0), |it| (it.lost, it.passed));
            let event = XdpEvent {
                lost: event.lost.saturating_sub(lost),
                passed: event.passed.saturating_sub(passed),
                ..event.clone()
            };
            if event.lost + event.passed > 0 {
                self.xdp.push(event);
            }
        }
        for (index, drop) in self.drops.iter().enumerate() {
            let count = drop.skbs;
            self.counts
                .insert(Key::Drop(index), Delta { count, skew: 0 });
        }
        for (index, event) in self.xdp.iter().enumerate() {
            let count = event.lost;
            self.counts
                .insert(Key::Xdp(index), Delta { count, skew: 0 });
        }
    }
}

fn add_to(sum: &mut Counters, counters: &Counters) {
    for (name, reading) in counters {
        let entry = sum.entry(name.clone()).or_default();
        // Sums of 32 bits, to be taken apart as such.
        entry.value = u64::from((entry.value as u32).wrapping_add(reading.value as u32));
        entry.moved = entry.moved.saturating_add(reading.moved);
    }
}

/// None for a counter that began anew.
fn difference(before: Reading, after: Reading, width: Width) -> Option<Delta> {
    let count = match width {
        Width::Long => after.value.checked_sub(before.value)?,
        Width::Short => (after.value as u32)
            .wrapping_sub(before.value as u32)
            .into(),
    };
    // A counter of 32 bits that seems to have counted more than half of them began anew.
    if width == Width::Short && count > u64::from(u32::MAX / 2) {
        return None;
    }
    // The earlier snapshot may be a file that somebody wrote.
    let skew = before.moved.saturating_add(after.moved);
    Some(Delta { count, skew })
}
