//! Taking snapshots of a host.

mod arp;
mod counters;
mod scope;
mod sockets;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;

use anyhow::{Result, ensure};
use hostnet::softnet::Softnet;
use hostnet::{mib, netns, softnet};

use self::arp::ArpCounter;
use self::counters::Quick;
use self::scope::Own;
pub use self::scope::{Place, Scope};
use super::events::{Events, Missing, OwnedSocket};
use super::snapshot::{Counters, Namespace, Reading, Snapshot, Socket, VERSION};
use super::stage::Stage;
use crate::process::clock::{boottime_ns, realtime_ns};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Sockets that are remembered at most.
const MOST_SEEN: usize = 100_000;
const RELEASE: &str = "/proc/sys/kernel/osrelease";

/// Takes snapshots. The events count from the moment when it was opened.
#[must_use = "the tracepoints are detached when this is dropped"]
pub struct Reader {
    scope: Scope,
    events: Result<Events, String>,
    /// The counters of ARP in each namespace.
    arp: HashMap<u64, Result<ArpCounter, String>>,
    /// The sockets that were seen, by cookie: one that lost packets may be closed before it is asked for.
    seen: HashMap<u64, Socket>,
    /// The sockets that were looked for: one that is closed, or in a namespace that is not read, is never seen.
    sought: HashSet<u64>,
    /// Whether there was a snapshot.
    has_read: bool,
    /// The namespace of this process, once its name is known.
    own: Option<Own>,
}

/// The result of one pass over the namespaces.
struct Pass {
    quick: BTreeMap<u64, Quick>,
    cpus: BTreeMap<usize, Counters>,
    neighbours: Counters,
}

impl Reader {
    /// Attaches the tracepoints of errors where that is permitted; with `deep` also those of success, which cost
    /// CPU time for each packet.
    pub fn open(scope: Scope, deep: bool) -> Self {
        Self {
            scope,
            events: Events::attach(deep).map_err(|error| format!("{error:#}")),
            arp: HashMap::new(),
            seen: HashMap::new(),
            sought: HashSet::new(),
            has_read: false,
            own: None,
        }
    }

    /// Looks at the sockets, if one that was not looked for yet refused a packet: it may be closed at the next snapshot.
    pub fn look_at_sockets(&mut self) -> Result<()> {
        let Ok(events) = &self.events else {
            return Ok(());
        };
        let mut refusing = events.refusing_sockets()?;
        if self.sought.len() > MOST_SEEN {
            self.sought.clear();
        }
        refusing.retain(|socket| !self.seen.contains_key(socket) && self.sought.insert(*socket));
        if refusing.is_empty() {
            return Ok(());
        }
        let mut snapshot = Snapshot::default();
        let owned = self.read_owned(&mut snapshot);
        for place in self.places(&mut snapshot)? {
            let mut namespace = Namespace::default();
            sockets::read(&place, owned.as_ref(), &mut namespace, &mut snapshot);
            self.remember(&namespace);
        }
        Ok(())
    }

    /// The namespaces of the scope. The name of the own one takes a look at all processes, so it is kept.
    fn places(&mut self, snapshot: &mut Snapshot) -> Result<Vec<Place>> {
        if !self.scope.is_own() {
            return self.scope.places(snapshot);
        }
        let own = match &self.own {
            Some(own) if netns::current()? == own.inode => own.clone(),
            _ => scope::own()?,
        };
        self.own = Some(own.clone());
        Ok(vec![own.into()])
    }

    fn remember(&mut self, namespace: &Namespace) {
        if self.seen.len() > MOST_SEEN {
            self.seen.clear();
        }
        let sockets = namespace.sockets.iter();
        self.seen
            .extend(sockets.map(|(cookie, socket)| (*cookie, socket.clone())));
    }

    /// Why losses cannot be told by reason and place; none where they can.
    pub fn refusal(&self) -> Option<&str> {
        self.events.as_ref().err().map(String::as_str)
    }

    /// Reads everything: the fast counters, the events and sockets, and the fast counters again.
    pub fn snapshot(&mut self) -> Result<Snapshot> {
        let mut snapshot = Snapshot {
            version: VERSION,
            boot_id: line_of(BOOT_ID),
            kernel: line_of(RELEASE),
            realtime_ns: realtime_ns(),
            boottime_ns: boottime_ns(),
            whole_host: self.scope.all && self.scope.devices.is_empty(),
            devices_only: !self.scope.devices.is_empty(),
            ..Snapshot::default()
        };
        let places = self.places(&mut snapshot)?;
        self.watch_arp(&places);
        let first = self.pass(&places, None, &mut snapshot);
        self.expect_devices(&first, &mut snapshot)?;
        self.read_events(&mut snapshot);
        let owned = self.read_owned(&mut snapshot);
        let mut namespaces = BTreeMap::new();
        for place in &places {
            let Some(quick) = first.quick.get(&place.inode) else {
                continue;
            };
            let mut namespace = Namespace {
                name: place.name.clone(),
                container: place.container.clone(),
                arp: self.count_arp(place.inode, owned.as_ref()),
                ..Namespace::default()
            };
            quick.fill(&mut namespace);
            if self.scope.devices.is_empty() {
                sockets::read(place, owned.as_ref(), &mut namespace, &mut snapshot);
            }
            namespaces.insert(place.inode, namespace);
        }
        snapshot.cpus.clone_from(&first.cpus);
        snapshot.neighbours.clone_from(&first.neighbours);
        snapshot.namespaces = namespaces;
        self.note_motion(&places, &first, &mut snapshot);
        counters::find_peers(&mut snapshot, &first.quick);
        self.leave_out_own_sockets(&mut snapshot);
        self.leave_out_xdp_sockets(&mut snapshot);
        self.name_closed_sockets(&mut snapshot);
        snapshot.took_ns = boottime_ns().saturating_sub(snapshot.boottime_ns);
        Ok(snapshot)
    }

    fn pass(&self, places: &[Place], earlier: Option<&Pass>, snapshot: &mut Snapshot) -> Pass {
        let earlier_of = |place: &Place| earlier?.quick.get(&place.inode);
        let mut quick = BTreeMap::new();
        for place in places {
            match place.run(|| Quick::read(&self.scope.devices, earlier_of(place))) {
                Ok(read) => {
                    quick.insert(place.inode, read);
                }
                Err(error) => snapshot.gap(
                    Stage::Stack,
                    format!(
                        "the network namespace {} cannot be read: {error:#}",
                        place.name
                    ),
                    "cure what the error names",
                ),
            }
        }
        Pass {
            quick,
            cpus: softnet::softnet().map(by_cpu).unwrap_or_default(),
            neighbours: mib::neighbour_tables()
                .map(|mib| counters::readings(&mib))
                .unwrap_or_default(),
        }
    }

    /// A device that was never there is an error of the command; one that vanished is a gap.
    fn expect_devices(&mut self, pass: &Pass, snapshot: &mut Snapshot) -> Result<()> {
        for name in &self.scope.devices {
            if pass.quick.values().any(|quick| quick.has_device(name)) {
                continue;
            }
            ensure!(
                self.has_read,
                "there is no device {name}: see `ip link`, and --netns for devices of other network namespaces"
            );
            snapshot.gap(
                Stage::Driver,
                format!("the device {name} is gone"),
                "the device",
            );
        }
        self.has_read = true;
        Ok(())
    }

    /// Reads the fast counters again, and notes how far they moved meanwhile.
    fn note_motion(&self, places: &[Place], first: &Pass, snapshot: &mut Snapshot) {
        let second = self.pass(places, Some(first), &mut Snapshot::default());
        for (inode, quick) in &second.quick {
            if let Some(namespace) = snapshot.namespaces.get_mut(inode) {
                let mut later = Namespace::default();
                quick.fill(&mut later);
                counters::note_motion_of(namespace, &later);
            }
        }
        for (cpu, counters) in &mut snapshot.cpus {
            if let Some(later) = second.cpus.get(cpu) {
                counters::note_motion(counters, later);
            }
        }
        counters::note_motion(&mut snapshot.neighbours, &second.neighbours);
    }

    fn read_events(&mut self, snapshot: &mut Snapshot) {
        match &mut self.events {
            Ok(events) => {
                for missing in events.missing() {
                    let (stage, hidden, cure) = missing.text();
                    snapshot.gap(stage, hidden, cure);
                }
                match events.count() {
                    Ok(counted) => snapshot.events = Some(counted),
                    Err(error) => snapshot.gap(
                        Stage::Stack,
                        format!("the events cannot be read: {error:#}"),
                        "try again",
                    ),
                }
            }
            Err(reason) => {
                let reason = reason.clone();
                snapshot.gap(
                    Stage::Stack,
                    format!("losses by reason and place are not counted: {reason}"),
                    "Linux 5.17 or later with BTF is needed, and what the reason names",
                );
            }
        }
    }

    fn read_owned(&mut self, snapshot: &mut Snapshot) -> Option<HashMap<u64, OwnedSocket>> {
        let read = self.events.as_ref().ok().map(Events::sockets);
        match read {
            Some(Ok(sockets)) => {
                snapshot.xdp_sockets = Some(sockets.xdp);
                Some(sockets.owned)
            }
            Some(Err(error)) => {
                let hidden = format!("sockets of processes cannot be listed: {error:#}");
                snapshot.gap(
                    Stage::Socket,
                    hidden,
                    "Linux 5.8 or later with CONFIG_BPF_SYSCALL",
                );
                None
            }
            None => None,
        }
    }

    /// The counters of ARP are sockets too, which nobody asked for.
    fn leave_out_own_sockets(&self, snapshot: &mut Snapshot) {
        let counters = self
            .arp
            .values()
            .filter_map(|counter| counter.as_ref().ok());
        let own: Vec<u64> = counters.map(ArpCounter::cookie).collect();
        for namespace in snapshot.namespaces.values_mut() {
            namespace.sockets.retain(|cookie, _| !own.contains(cookie));
        }
        if let Some(events) = &mut snapshot.events {
            events.drops.retain(|drop| !own.contains(&drop.socket));
        }
    }

    /// The iterator lists those of all namespaces and devices.
    fn leave_out_xdp_sockets(&self, snapshot: &mut Snapshot) {
        let (all, namespaces) = (self.scope.all, &snapshot.namespaces);
        let all_devices = self.scope.devices.is_empty();
        if let Some(sockets) = &mut snapshot.xdp_sockets {
            sockets.retain(|socket| match namespaces.get(&socket.netns) {
                Some(namespace) => all_devices || namespace.devices.contains_key(&socket.device),
                None => all && all_devices,
            });
        }
    }

    fn name_closed_sockets(&mut self, snapshot: &mut Snapshot) {
        for drop in snapshot.events.iter().flat_map(|events| &events.drops) {
            if let Some(namespace) = snapshot.namespaces.get_mut(&drop.netns)
                && !namespace.sockets.contains_key(&drop.socket)
                && let Some(socket) = self.seen.get(&drop.socket)
            {
                namespace.closed.insert(drop.socket, socket.clone());
            }
        }
        for namespace in snapshot.namespaces.values() {
            self.remember(namespace);
        }
    }

    fn watch_arp(&mut self, places: &[Place]) {
        for place in places {
            self.arp.entry(place.inode).or_insert_with(|| {
                let opened = place.run(ArpCounter::open);
                opened.map_err(|error| format!("{error:#}"))
            });
        }
        let exists = |inode: &u64| places.iter().any(|place| place.inode == *inode);
        self.arp.retain(|inode, _| exists(inode));
    }

    fn count_arp(
        &mut self,
        inode: u64,
        owned: Option<&HashMap<u64, OwnedSocket>>,
    ) -> Option<Reading> {
        let counter = self.arp.get_mut(&inode)?.as_mut().ok()?;
        let lost = owned.and_then(|owned| owned.get(&counter.cookie())?.packet);
        Some(counter.count(lost.map_or(0, |(lost, _)| lost)).into())
    }
}

impl Missing {
    fn text(self) -> (Stage, String, &'static str) {
        match self {
            Self::Tracepoint(name) => (
                if name.starts_with("xdp") {
                    Stage::Xdp
                } else {
                    Stage::Stack
                },
                format!("this kernel has no tracepoint {name}"),
                "a kernel that has it; the devices' counters remain",
            ),
            Self::Receiver => (
                Stage::Socket,
                "this kernel does not tell which socket refused a packet".into(),
                "Linux 6.11; the sockets' own counters of drops remain",
            ),
        }
    }
}

fn line_of(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}

fn by_cpu(softnet: BTreeMap<usize, Softnet>) -> BTreeMap<usize, Counters> {
    let counters = |cpu: Softnet| {
        let columns = [
            ("processed", cpu.processed),
            ("dropped", cpu.dropped),
            ("time_squeeze", cpu.time_squeeze),
            ("received_rps", cpu.received_rps),
            ("flow_limit", cpu.flow_limit),
            ("backlog", cpu.backlog.unwrap_or(0)),
        ];
        let readings = columns.map(|(name, value)| (name.to_owned(), u64::from(value).into()));
        readings.into()
    };
    softnet
        .into_iter()
        .map(|(cpu, read)| (cpu, counters(read)))
        .collect()
}
