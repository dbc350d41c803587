//! Snapshots turned into families, and the losses of all intervals added up.

mod series;

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;

use super::families as f;
use super::family::{Counter, Gauge, Labels};
use super::page::{Format, Page};
use crate::ledger::sheet::{Class, Sheet};
use crate::ledger::snapshot::Snapshot;
use crate::ledger::stage::Stage;
use series::{
    Subjects, bound, count_losses, device_errors, device_packets, mib, namespace, neighbours,
    rings, sum_edges, xdp_labels, xdp_socket_counts,
};

/// A host whose counters are read.
pub trait Source {
    /// The counters of this moment. After an error it is opened anew.
    fn snapshot(&mut self) -> Result<Snapshot>;

    /// Begins anew.
    fn open(&mut self) -> Result<()>;

    /// The balance between two snapshots.
    fn balance(&self, before: &Snapshot, after: &Snapshot) -> Result<Sheet>;
}

/// So long a snapshot answers scrapes: several scrapers, or one in two formats, cost one reading.
pub const SHARED: Duration = Duration::from_secs(1);

/// The families of the page, and the readings behind them.
pub struct Collector<S> {
    source: S,
    /// The last snapshot, and when it was taken; none after a failed one.
    before: Option<(Snapshot, Instant)>,
    is_open: bool,
    started: SystemTime,
    limit: usize,
    collection: Duration,
    interval: Option<f64>,
    /// Faults of the web configuration, which others count.
    pub web_config_errors: u64,
    numbers: Numbers,
    stages: BTreeMap<Stage, u64>,
    xdp_sockets: BTreeMap<u64, [u64; 5]>,
    counters: Counters,
    gauges: Gauges,
    gaps: BTreeMap<Stage, u64>,
}

#[derive(Debug, Default)]
struct Numbers {
    snapshots: u64,
    errors: u64,
    restarts: u64,
    resets: u64,
}

#[derive(Debug)]
struct Counters {
    losses: Counter,
    copies: Counter,
    frees: Counter,
    device_packets: Counter,
    device_errors: Counter,
    softnet: [(&'static str, Counter); 3],
    mib: Counter,
    neighbours: Counter,
    xdp_socket: Counter,
}

#[derive(Debug)]
struct Gauges {
    unexplained: Gauge,
    bound: Gauge,
    sockets: Gauge,
    socket_queues: Gauge,
    ring_entries: Gauge,
    ring_slots: Gauge,
}

impl<S: Source> Collector<S> {
    /// Opens the source and takes the first snapshot: losses count from now. `limit` is the most series.
    pub fn start(source: S, limit: usize) -> Result<Self> {
        let mut collector = Self {
            source,
            before: None,
            is_open: false,
            started: SystemTime::now(),
            limit,
            collection: Duration::ZERO,
            interval: None,
            web_config_errors: 0,
            numbers: Numbers::default(),
            stages: Stage::ALL.into_iter().map(|stage| (stage, 0)).collect(),
            xdp_sockets: BTreeMap::new(),
            counters: Counters::new(limit),
            gauges: Gauges::new(limit),
            gaps: BTreeMap::new(),
        };
        collector.collect()?;
        Ok(collector)
    }

    /// Takes a snapshot, unless the last one is young enough to be shared. True if it took one.
    ///
    /// # Errors
    ///
    /// The source's.
    pub fn refresh(&mut self) -> Result<bool> {
        if let Some((_, taken)) = &self.before
            && taken.elapsed() < SHARED
        {
            return Ok(false);
        }
        self.collect().map(|()| true)
    }

    fn collect(&mut self) -> Result<()> {
        let begun = Instant::now();
        let taken = self.read().and_then(|after| self.take_over(after, begun));
        if let Err(error) = taken {
            self.numbers.errors += 1;
            self.before = None;
            self.is_open = false;
            return Err(error);
        }
        self.collection = begun.elapsed();
        Ok(())
    }

    fn read(&mut self) -> Result<Snapshot> {
        if !self.is_open {
            self.source.open()?;
            self.is_open = true;
            self.numbers.restarts += u64::from(self.numbers.snapshots > 0);
        }
        let snapshot = self.source.snapshot()?;
        self.numbers.snapshots += 1;
        Ok(snapshot)
    }

    fn take_over(&mut self, after: Snapshot, taken: Instant) -> Result<()> {
        self.gaps.clear();
        if let Some((before, _)) = &self.before {
            let sheet = self.source.balance(before, &after)?;
            self.add(&sheet, &after);
        } else {
            for gap in &after.gaps {
                *self.gaps.entry(gap.stage).or_default() += 1;
            }
        }
        let counters = &mut self.counters;
        counters.observe(&after);
        let counted = xdp_socket_counts(&after, &mut self.xdp_sockets, self.before.is_none());
        counters.xdp_socket.add(counted);
        let subjects = Subjects::of(&after);
        for counter in [
            &mut counters.losses,
            &mut counters.copies,
            &mut counters.frees,
            &mut counters.xdp_socket,
        ] {
            counter.retain(|subject| subjects.has(subject));
        }
        self.gauges.set(&after);
        self.before = Some((after, taken));
        Ok(())
    }

    fn add(&mut self, sheet: &Sheet, after: &Snapshot) {
        for (class, counter) in [
            (Class::Lost, &mut self.counters.losses),
            (Class::CopyLost, &mut self.counters.copies),
            (Class::NotLost, &mut self.counters.frees),
        ] {
            let of_class = sheet.losses.iter().filter(|loss| loss.class == class);
            counter.add(count_losses(of_class, after));
        }
        for loss in sheet.lost() {
            *self.stages.entry(loss.stage).or_default() += loss.count;
        }
        for gap in &sheet.gaps {
            *self.gaps.entry(gap.stage).or_default() += 1;
        }
        let (unexplained, bound) = sum_edges(&sheet.edges, after);
        self.gauges.unexplained.set(unexplained);
        self.gauges.bound.set(bound);
        self.interval = sheet.seconds;
        self.numbers.resets += sheet.resets.len() as u64;
    }

    /// The page, without its end.
    pub fn page(&self, format: Format) -> String {
        let mut page = Page::new(format);
        page.family(&f::STAGE_LOSSES);
        for (stage, count) in &self.stages {
            page.sample(&f::STAGE_LOSSES, &[stage.name().into()], count);
        }
        for counter in self.counters.all() {
            page.counter(counter);
        }
        for gauge in self.gauges.all() {
            page.gauge(gauge);
        }
        page.family(&f::GAPS);
        for stage in Stage::ALL {
            let count = self.gaps.get(&stage).copied().unwrap_or(0);
            page.sample(&f::GAPS, &[stage.name().into()], count);
        }
        self.own(&mut page);
        page.into_text()
    }

    /// The metrics of the exporter itself.
    fn own(&self, page: &mut Page) {
        page.single(&f::RESETS, self.numbers.resets);
        page.single(&f::SNAPSHOTS, self.numbers.snapshots);
        page.single(&f::SNAPSHOT_ERRORS, self.numbers.errors);
        page.single(&f::READER_RESTARTS, self.numbers.restarts);
        page.single(&f::WEB_CONFIG_ERRORS, self.web_config_errors);
        page.single(&f::START_TIME, since_1970(self.started));
        page.single(&f::COLLECTION_DURATION, self.collection.as_secs_f64());
        if let Some((snapshot, taken)) = &self.before {
            let seconds = |ns: u64| ns as f64 / 1e9;
            page.single(&f::SNAPSHOT_TIME, seconds(snapshot.realtime_ns));
            page.single(&f::SNAPSHOT_DURATION, seconds(snapshot.took_ns));
            page.single(&f::SNAPSHOT_AGE, taken.elapsed().as_secs_f64());
            page.family(&f::BUILD);
            let version = env!("CARGO_PKG_VERSION");
            let labels = Labels::new(&[version, &snapshot.kernel]);
            page.sample(&f::BUILD, labels.values(), 1);
        }
        if let Some(interval) = self.interval {
            page.single(&f::INTERVAL, interval);
        }
        page.family(&f::FOLDED);
        let folded = self.counters.all().map(|it| (it.definition(), it.folded()));
        let of_gauges = self.gauges.all().map(|it| (it.definition(), it.folded()));
        for (family, count) in folded.chain(of_gauges) {
            page.sample(&f::FOLDED, &[family.name.into()], count);
        }
        page.single(&f::SERIES_LIMIT, self.limit);
        page.single(&f::SERIES, page.series() + 1);
    }
}

impl Counters {
    fn new(limit: usize) -> Self {
        let new = |family| Counter::new(family, limit);
        Self {
            losses: new(&f::LOSSES),
            copies: new(&f::COPIES),
            frees: new(&f::FREES),
            device_packets: new(&f::DEVICE_PACKETS),
            device_errors: new(&f::DEVICE_ERRORS),
            softnet: [
                ("processed", new(&f::SOFTNET_PROCESSED)),
                ("dropped", new(&f::SOFTNET_DROPPED)),
                ("time_squeeze", new(&f::SOFTNET_SQUEEZED)),
            ],
            mib: new(&f::MIB),
            neighbours: new(&f::NEIGHBOURS),
            xdp_socket: new(&f::XDP_SOCKET),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Counter> {
        [
            &self.losses,
            &self.copies,
            &self.frees,
            &self.device_packets,
            &self.device_errors,
        ]
        .into_iter()
        .chain(self.softnet.iter().map(|(_, counter)| counter))
        .chain([&self.mib, &self.neighbours, &self.xdp_socket])
    }

    fn observe(&mut self, snapshot: &Snapshot) {
        self.device_packets.observe(device_packets(snapshot));
        self.device_errors.observe(device_errors(snapshot));
        for (name, counter) in &mut self.softnet {
            let by_cpu = snapshot.cpus.iter().filter_map(|(cpu, columns)| {
                let labels = Labels::new(&[&cpu.to_string()]);
                Some((labels, columns.get(*name)?.value))
            });
            counter.observe(by_cpu.collect());
        }
        self.mib.observe(mib(snapshot));
        self.neighbours.observe(neighbours(snapshot));
    }
}

impl Gauges {
    fn new(limit: usize) -> Self {
        let new = |family| Gauge::new(family, limit);
        Self {
            unexplained: new(&f::UNEXPLAINED),
            bound: new(&f::BOUND),
            sockets: new(&f::SOCKETS),
            socket_queues: new(&f::SOCKET_QUEUES),
            ring_entries: new(&f::RING_ENTRIES),
            ring_slots: new(&f::RING_SLOTS),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Gauge> {
        [
            &self.unexplained,
            &self.bound,
            &self.sockets,
            &self.socket_queues,
            &self.ring_entries,
            &self.ring_slots,
        ]
        .into_iter()
    }

    fn set(&mut self, snapshot: &Snapshot) {
        let mut sockets: BTreeMap<Labels, f64> = BTreeMap::new();
        let mut queues: BTreeMap<Labels, f64> = BTreeMap::new();
        for netns in snapshot.namespaces.keys() {
            let name = namespace(snapshot, *netns);
            for socket in snapshot.namespaces[netns].sockets.values() {
                let labels = Labels::new(&[&socket.protocol, &name]);
                if !socket.listening {
                    *queues.entry(labels.clone()).or_default() += socket.queued as f64;
                }
                *sockets.entry(labels).or_default() += 1.0;
            }
        }
        self.sockets.set(sockets);
        self.socket_queues.set(queues);
        let mut entries: BTreeMap<Labels, f64> = BTreeMap::new();
        let mut slots: BTreeMap<Labels, f64> = BTreeMap::new();
        for socket in bound(snapshot) {
            for (name, ring) in rings(socket) {
                let labels = xdp_labels(snapshot, socket, name);
                *entries.entry(labels.clone()).or_default() += f64::from(ring.level());
                *slots.entry(labels).or_default() += f64::from(ring.size);
            }
        }
        self.ring_entries.set(entries);
        self.ring_slots.set(slots);
    }
}

fn since_1970(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}

#[cfg(test)]
mod tests;
