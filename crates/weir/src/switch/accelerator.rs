//! One accelerated bridge: its ports, its mirror of the kernel's tables, and the programs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use hostnet::ErrorKind;
use hostnet::rtnetlink::{
    BridgeSettings, BridgeVlan, Event, FdbEntry, Link, Monitor, Qdisc, Rtnetlink,
};

use super::abi::{self, FdbKey, PortCounters, PortVlans};
use super::choice::Choice;
use super::datapath::{Datapath, Shape, shape};
use super::fdb::{Fdb, Flapping, Known, Write};
use super::keep::{self, Keep};
use super::port::{AttachError, Attachment, OnPort};
use super::settings::{Hook, PortSettings, Settings};
use super::table::Full;
use super::{facts, fdb, netfilter};
use crate::bpf::Object;
use crate::bpf::hook::{NetLink, Place};

/// The programs forward for so long after the last beat.
pub const LIFE: Duration = Duration::from_secs(5);
/// The time from beat to beat, and between two looks at what the kernel does not report.
const BEAT: Duration = Duration::from_secs(1);
/// The least time between two ticks: a frame that a program has passed on is with the kernel's bridge by then.
const TICK: Duration = Duration::from_millis(1);
/// Events that are handled before the clock is looked at.
const MOST_EVENTS: usize = 4096;
/// The kernel gets a frame from each address so often in the ageing time.
const EPOCHS: u32 = 3;
/// The least and the most time between two of these.
const EPOCH: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(120)];
/// Readings of the forwarding database while entries are removed from it.
const MOST_READINGS: u32 = 4;
/// News that are kept for the report.
const MOST_NEWS: usize = 64;

/// The answer to a port that cannot have the hook that its settings ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// An error.
    Fail,
    /// The kernel forwards its frames, and the report says so.
    LeaveToKernel,
}

/// An accelerated bridge in the network namespace of the thread that attached it; only that thread can
/// use it.
#[must_use = "the programs are detached when this is dropped, unless they are pinned"]
pub struct Accelerator {
    object: &'static Object,
    name: String,
    settings: Settings,
    keep: Option<Keep>,
    monitor: Monitor,
    rtnetlink: Rtnetlink,
    /// The bridge, as of the last look.
    pub(super) bridge: Link,
    pub(super) datapath: Datapath,
    pub(super) ports: BTreeMap<u32, OnPort>,
    fdb: Fdb,
    /// Why the kernel gets every frame, if it does.
    pub(super) paused: Option<String>,
    /// The ticks so far.
    tick: u32,
    /// Addresses that are not used yet, in the order in which they were written.
    pending: VecDeque<FdbKey>,
    ticked: Instant,
    beaten: Instant,
    epoch_began: Instant,
    /// Times that reports were lost, or not handled: everything is to be read anew.
    losses: u64,
    /// The losses before the last complete reading.
    losses_made_up: u64,
    /// The last error, until a later poll has none.
    failed: Option<String>,
    /// The forwarding database is to be read anew.
    fdb_due: bool,
    /// Entries that the kernel has reported as removed.
    removed: u64,
    pub(super) figures: Figures,
    /// The latest news, for the log.
    news: VecDeque<String>,
    unread_news: usize,
}

/// Counts since the bridge was attached.
#[derive(Debug, Clone, Copy, Default, serde::Serialize, serde::Deserialize)]
pub struct Figures {
    /// Reports of the kernel that were handled.
    pub events: u64,
    /// Times that everything was read anew since reports were lost.
    pub resyncs: u64,
    /// Times that the programs were replaced by others of another shape.
    pub reloads: u64,
    /// Alarms about addresses that move again and again.
    pub flapping: u64,
    /// Addresses that found no room in the map: the kernel forwards their frames.
    pub not_mirrored: u64,
}

impl Accelerator {
    /// Accelerates a bridge of the calling thread's network namespace. With `keep` the programs outlive
    /// this process, and those that another one left there are taken over without a gap.
    ///
    /// # Errors
    ///
    /// Where there is no such bridge, where a port cannot have the hook that the settings ask for and the
    /// refusal is to fail, and without `CAP_NET_ADMIN` and `CAP_BPF`. Nothing is left attached then.
    pub fn attach(
        name: &str,
        settings: &Settings,
        refusal: Refusal,
        keep: Option<&Keep>,
    ) -> Result<Self> {
        Self::attach_object(&abi::OBJECT, name, settings, refusal, keep)
    }

    /// As [`Accelerator::attach`], with the programs of another object.
    pub fn attach_object(
        object: &'static Object,
        name: &str,
        settings: &Settings,
        refusal: Refusal,
        keep: Option<&Keep>,
    ) -> Result<Self> {
        // Before anything is read, so that no change is missed.
        let monitor = Monitor::open()?;
        let mut rtnetlink = Rtnetlink::open()?;
        let bridge = bridge_of(&mut rtnetlink, name)?;
        let shape = shape_of(&bridge, 0, 0, settings)?;
        let mut accelerator = Self {
            object,
            name: bridge.name.clone(),
            settings: settings.clone(),
            keep: keep.cloned(),
            monitor,
            rtnetlink,
            bridge,
            datapath: Datapath::load(object, shape)?,
            ports: BTreeMap::new(),
            fdb: Fdb::default(),
            paused: None,
            tick: 0,
            pending: VecDeque::new(),
            ticked: Instant::now(),
            beaten: Instant::now(),
            epoch_began: Instant::now(),
            losses: 0,
            losses_made_up: 0,
            failed: None,
            fdb_due: false,
            removed: 0,
            figures: Figures::default(),
            news: VecDeque::new(),
            unread_news: 0,
        };
        if let Err(error) = accelerator.start(refusal) {
            let undone = accelerator.detach_all();
            return Err(undone
                .err()
                .map_or(error, |undone| undone.context("and it stays")));
        }
        Ok(accelerator)
    }

    fn start(&mut self, refusal: Refusal) -> Result<()> {
        let links = self.rtnetlink.links()?;
        let bridge = self.bridge.index;
        let is_port = |name: &str| {
            let mut ports = links.iter().filter(|it| it.controller == Some(bridge));
            ports.any(|it| it.is_named(name))
        };
        let named = self
            .settings
            .ports
            .keys()
            .chain(self.settings.only.iter().flatten());
        let missing: Vec<String> = named.filter(|name| !is_port(name)).cloned().collect();
        for name in missing {
            self.tell(format!("{name} is no port of {} yet", self.name));
        }
        self.look_at_rules()?;
        self.pause_earlier();
        self.read_everything(refusal)?;
        self.unpin_strangers();
        self.beat()
    }

    /// The bridge's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The settings that it was attached with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Readable when the kernel has reported something.
    pub fn events(&self) -> BorrowedFd<'_> {
        self.monitor.as_fd()
    }

    /// The time after which [`Accelerator::poll`] has something to do, whether there were events or not.
    pub fn patience(&self) -> Duration {
        let rest = |since: Instant, period: Duration| period.saturating_sub(since.elapsed());
        if self.is_stale() || self.fdb_due {
            return Duration::ZERO;
        }
        let tick = if self.pending.is_empty() {
            BEAT
        } else {
            rest(self.ticked, TICK)
        };
        tick.min(rest(self.beaten, BEAT))
            .min(rest(self.epoch_began, self.epoch()))
    }

    /// Handles the kernel's reports, and whatever is due.
    ///
    /// # Errors
    ///
    /// [`BridgeGone`] once the bridge has gone: everything is detached then. Others where the kernel
    /// refuses something: it gets all frames until a later call has read everything anew.
    pub fn poll(&mut self) -> Result<()> {
        let done = self.do_due();
        self.failed = done.as_ref().err().map(|error| format!("{error:#}"));
        if done.is_err() {
            // A report may have been read and not handled.
            self.losses += 1;
            self.datapath.pause()?;
        }
        done
    }

    fn do_due(&mut self) -> Result<()> {
        let drained = self.drain()?;
        if self.is_stale() {
            self.read_again()?;
        } else if std::mem::take(&mut self.fdb_due) {
            self.read_fdb()?;
        } else if drained && !self.pending.is_empty() && self.ticked.elapsed() >= TICK {
            self.activate();
        }
        if self.beaten.elapsed() >= BEAT {
            // Also where one of these fails: the next try is a beat later.
            self.beaten = Instant::now();
            self.look_at_rules()?;
            self.look_at_ports()?;
            self.beat()?;
        }
        if self.epoch_began.elapsed() >= self.epoch() {
            self.end_epoch()?;
        }
        Ok(())
    }

    /// Waits until everything that the kernel has reported until now is in force.
    pub fn settle(&mut self) -> Result<()> {
        loop {
            self.poll()?;
            if self.pending.is_empty() && !self.is_stale() && !self.fdb_due {
                return Ok(());
            }
            std::thread::sleep(TICK);
        }
    }

    /// News since the last call, one sentence each.
    pub fn take_news(&mut self) -> Vec<String> {
        let from = self.news.len().saturating_sub(self.unread_news);
        self.unread_news = 0;
        self.news.iter().skip(from).cloned().collect()
    }

    /// The latest news.
    pub fn news(&self) -> impl Iterator<Item = &str> {
        self.news.iter().map(String::as_str)
    }

    /// The number of addresses in the mirror.
    pub fn addresses(&self) -> usize {
        self.fdb.count()
    }

    /// The number of addresses behind a port.
    pub(super) fn addresses_behind(&self, number: u32) -> u32 {
        self.fdb.behind(number)
    }

    /// Runs the program of a hook once on a frame that came from a port; returns its action and the frame as
    /// the program left it. Nothing is sent.
    ///
    /// # Errors
    ///
    /// For a name that is no port's, and where the kernel cannot run it.
    pub fn run(&self, place: Place, port: &str, frame: &[u8]) -> Result<(u32, Vec<u8>)> {
        let mut ports = self.ports.values();
        let port = ports
            .find(|it| it.link.name == port)
            .context("there is no such port")?;
        self.datapath.run(place, port.link.index, frame)
    }

    /// Whether the programs stay when this process ends.
    pub(super) fn is_pinned(&self) -> bool {
        self.keep.as_ref().is_some_and(|keep| keep.pins.is_some())
    }

    /// Changes the settings; ports whose hook changes are attached anew.
    ///
    /// # Errors
    ///
    /// Where a port cannot have its hook and the refusal is to fail; the settings are these ones all the same.
    pub fn set(&mut self, settings: &Settings, refusal: Refusal) -> Result<()> {
        self.settings = settings.clone();
        for port in self.ports.values_mut() {
            port.refused = None;
        }
        let done = self.read_everything(refusal);
        if done.is_err() {
            self.losses += 1;
        }
        self.beat().and(done)
    }

    /// Whether the mirror lacks something that the kernel has reported.
    fn is_stale(&self) -> bool {
        self.losses != self.losses_made_up
    }

    /// Why the kernel gets every frame, if it does.
    pub(super) fn why_not(&self) -> Option<String> {
        let stale = || {
            let why = || "the bridge is read anew".to_owned();
            self.is_stale()
                .then(|| self.failed.clone().unwrap_or_else(why))
        };
        self.paused.clone().or_else(stale)
    }

    /// Has one in so many forwarded frames sampled for so long; 0 for none.
    pub fn sample(&mut self, one_in: u64, life: Duration) -> Result<()> {
        self.datapath.sample(one_in, life)
    }

    /// The id of the map of samples.
    pub fn samples(&self) -> Result<u32> {
        self.datapath.samples()
    }

    /// Detaches all programs, and puts back the settings that were changed.
    pub fn detach(mut self) -> Result<()> {
        self.detach_all()?;
        if let Some(keep) = &self.keep {
            keep.remove();
        }
        Ok(())
    }

    fn detach_all(&mut self) -> Result<()> {
        let mut result = Ok(());
        for (_, mut port) in std::mem::take(&mut self.ports) {
            result = result.and(port.detach());
        }
        result
    }

    fn tell(&mut self, news: String) {
        if self.news.len() == MOST_NEWS {
            self.news.pop_front();
        }
        self.news.push_back(news);
        self.unread_news = (self.unread_news + 1).min(MOST_NEWS);
    }

    fn beat(&mut self) -> Result<()> {
        self.beaten = Instant::now();
        if self.paused.is_some() || self.is_stale() {
            return self.datapath.pause();
        }
        self.datapath.beat(LIFE)
    }

    fn epoch(&self) -> Duration {
        let ageing = settings_of(&self.bridge).ageing_time;
        (ageing / EPOCHS).clamp(EPOCH[0], EPOCH[1])
    }

    /// Handles the events that wait; whether these were all.
    fn drain(&mut self) -> Result<bool> {
        for _ in 0..MOST_EVENTS {
            let Some(event) = self.monitor.next()? else {
                return Ok(true);
            };
            self.figures.events += 1;
            self.handle(event)?;
        }
        Ok(false)
    }

    fn handle(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Fdb(entry) => self.learn(&entry),
            Event::FdbGone(entry) => self.forget(&entry),
            Event::Link(link) => self.look_at(link.index, link.controller),
            Event::BridgePort { index, bridge } => self.look_at(index, bridge),
            Event::LinkGone { index, .. } if index == self.bridge.index => self.bridge_gone(),
            Event::LinkGone { index, .. } | Event::BridgePortGone { index } => {
                // The kernel reports a removed port also when it is only moved to another network namespace.
                self.look_at(index, None)
            }
            Event::Overflow => {
                if !self.is_stale() {
                    self.tell("the kernel's reports came too fast: everything is read anew".into());
                }
                self.losses += 1;
                self.datapath.pause()
            }
            _ => Ok(()),
        }
    }

    fn bridge_gone(&mut self) -> Result<()> {
        if let Err(error) = self.detach_all() {
            self.tell(format!("{error:#}"));
        }
        Err(BridgeGone(self.name.clone()).into())
    }

    /// Whether an entry is one that the bridge forwards by: of its VLANs, or without one.
    fn is_ours(&self, entry: &FdbEntry) -> bool {
        let is_aware = self.datapath.shape.vlan_protocol.is_some();
        entry.bridge == self.bridge.index && (entry.vlan != 0) == is_aware
    }

    fn learn(&mut self, entry: &FdbEntry) -> Result<()> {
        if !self.is_ours(entry) {
            return Ok(());
        }
        let port = self.number_of(entry.port);
        if let Some(flapping) = self.fdb.note_move(entry, port, self.settings.flapping) {
            self.tell_flapping(&flapping);
        }
        let write = self.fdb.learn(entry, port);
        self.write(write)
    }

    fn forget(&mut self, entry: &FdbEntry) -> Result<()> {
        if !self.is_ours(entry) {
            return Ok(());
        }
        self.removed += 1;
        let write = self.fdb.forget(fdb::key(entry));
        self.write(write)
    }

    fn tell_flapping(&mut self, flapping: &Flapping) {
        self.figures.flapping += 1;
        let name = |number: u32| {
            let port = self.ports.values().find(|port| port.number == number);
            port.map_or_else(|| "?".into(), |port| port.link.name.clone())
        };
        let [before, now] = flapping.ports.map(name);
        let mac = mac_text(flapping.key.mac);
        let vlan = match flapping.key.vlan {
            0 => String::new(),
            vlan => format!(" in VLAN {vlan}"),
        };
        self.tell(format!(
            "{mac}{vlan} moves again and again between {before} and {now}: is there a loop?"
        ));
    }

    fn write(&mut self, write: Option<Write>) -> Result<()> {
        match write {
            None => return Ok(()),
            Some(Write::Remove(key)) => self.datapath.remove_address(key),
            Some(Write::Set(key, known)) => self.write_address(key, known)?,
        }
        Ok(())
    }

    fn write_address(&mut self, key: FdbKey, known: Known) -> Result<()> {
        if self.datapath.set_address(key, known).is_err() {
            return self.grow_or_leave(key);
        }
        self.wait_with(key);
        Ok(())
    }

    /// Has an address be used two ticks later: the first one may come at once.
    fn wait_with(&mut self, key: FdbKey) {
        self.fdb.set_due(key, self.tick.wrapping_add(2));
        self.pending.push_back(key);
    }

    /// Lets the clock tick, and has the programs use the addresses that were written two ticks ago.
    /// Everything that the kernel has reported since then is read.
    fn activate(&mut self) {
        self.tick = self.tick.wrapping_add(1);
        self.ticked = Instant::now();
        while let Some(key) = self.pending.front().copied() {
            // One that was written again waits in its later place, too.
            if self.fdb.port(key).is_some() && !self.fdb.is_due(key, self.tick) {
                break;
            }
            self.datapath.activate(key);
            self.pending.pop_front();
        }
    }

    /// Makes room for more addresses, or leaves one to the kernel.
    fn grow_or_leave(&mut self, key: FdbKey) -> Result<()> {
        let shape = self.shape()?;
        if shape.addresses > self.datapath.shape.addresses {
            return self.reload(shape);
        }
        if self.figures.not_mirrored == 0 {
            let (mac, all) = (mac_text(key.mac), self.fdb.count());
            self.tell(format!(
                "{mac} finds no room beside {all} addresses: the kernel forwards its frames"
            ));
        }
        self.figures.not_mirrored += 1;
        // An older entry would be wrong.
        self.datapath.remove_address(key);
        Ok(())
    }

    fn number_of(&self, ifindex: u32) -> Option<u32> {
        self.ports
            .get(&ifindex)
            .filter(|port| port.forwards())
            .map(|port| port.number)
    }

    fn shape(&self) -> Result<Shape> {
        let ports = self.ports.len();
        // Room for as many again, so that growing is rare.
        shape_of(&self.bridge, ports, self.fdb.count() * 2, &self.settings)
    }

    /// Reads everything anew after lost events. The kernel gets all frames meanwhile.
    fn read_again(&mut self) -> Result<()> {
        self.datapath.pause()?;
        self.figures.resyncs += 1;
        let losses = self.losses;
        self.read_everything(Refusal::LeaveToKernel)?;
        self.losses_made_up = losses;
        self.beat()
    }

    /// Reads the bridge, its ports and its forwarding database.
    fn read_everything(&mut self, refusal: Refusal) -> Result<()> {
        self.read_bridge()?;
        let links = self.rtnetlink.links()?;
        let qdiscs = self.rtnetlink.qdiscs()?;
        let vlans: BTreeMap<u32, Vec<BridgeVlan>> =
            self.rtnetlink.bridge_vlans()?.into_iter().collect();
        let ours = |link: &&Link| link.controller == Some(self.bridge.index);
        let ports: Vec<&Link> = links.iter().filter(ours).collect();
        let gone = self.ports.keys().copied();
        let gone: Vec<u32> = gone
            .filter(|index| !ports.iter().any(|link| link.index == *index))
            .collect();
        for index in gone {
            self.remove_port(index)?;
        }
        let wanted = shape_of(&self.bridge, ports.len(), 0, &self.settings)?;
        self.fit(wanted)?;
        if refusal == Refusal::Fail {
            // Before one of them is touched: a card may lose its link while a program comes or goes.
            for link in &ports {
                self.check_port(link, &qdiscs, &links)?;
            }
        }
        for link in ports {
            let vlans = vlans.get(&link.index).map_or(&[][..], Vec::as_slice);
            match refusal {
                Refusal::Fail => self.set_port(link, vlans, &qdiscs, &links)?,
                Refusal::LeaveToKernel => self.try_port(link, vlans, &qdiscs, &links)?,
            }
        }
        self.read_fdb()
    }

    fn read_bridge(&mut self) -> Result<()> {
        match self.rtnetlink.link_by_index(self.bridge.index) {
            Ok(link) if link.bridge.is_some() => self.bridge = link,
            Ok(_) => return self.bridge_gone(),
            Err(error) if error.kind() == ErrorKind::NotFound => return self.bridge_gone(),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn read_fdb(&mut self) -> Result<()> {
        self.fdb.begin();
        for _ in 0..MOST_READINGS {
            for entry in self.rtnetlink.fdb(self.bridge.index)? {
                self.learn(&entry)?;
            }
            // The kernel skips entries in a list from which others are removed meanwhile.
            let removed = self.removed;
            while !self.drain()? {}
            if self.removed == removed {
                break;
            }
        }
        for key in self.fdb.unseen() {
            // The kernel keeps entries of another VLAN-awareness, which the bridge does not forward by.
            let entry = self.kernels_entry(key)?.filter(|it| self.is_ours(it));
            if let Some(entry) = entry {
                self.learn(&entry)?;
            } else {
                let write = self.fdb.forget(key);
                self.write(write)?;
            }
        }
        Ok(())
    }

    /// Looks at a device that the kernel has reported, which may be a port.
    fn look_at(&mut self, index: u32, controller: Option<u32>) -> Result<()> {
        if index == self.bridge.index {
            self.read_bridge()?;
            let shape = shape_of(&self.bridge, self.ports.len(), 0, &self.settings)?;
            let was_aware = self.datapath.shape.vlan_protocol;
            self.fit(shape)?;
            if self.datapath.shape.vlan_protocol != was_aware {
                // Other entries count now.
                self.losses += 1;
            }
            return self.look_at_rules();
        }
        let is_port = self.ports.contains_key(&index);
        let number = self.number_of(index);
        if !is_port && controller != Some(self.bridge.index) {
            let mut bonds = self.ports.iter();
            let of_bond =
                bonds.find(|(bond, port)| port.legs.contains(&index) || controller == Some(**bond));
            let bond = of_bond.map(|(bond, _)| *bond);
            return bond.map_or(Ok(()), |bond| self.look_at(bond, Some(self.bridge.index)));
        }
        let link = match self.rtnetlink.link_by_index(index) {
            Ok(link) if link.controller == Some(self.bridge.index) => link,
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => return self.remove_port(index),
        };
        let vlans = self.rtnetlink.bridge_vlans_of(index)?;
        let qdiscs = self.rtnetlink.qdiscs()?;
        let links = if link.kind.as_deref() == Some("bond") {
            self.rtnetlink.links()?
        } else {
            Vec::new()
        };
        let shape = shape_of(&self.bridge, self.ports.len() + 1, 0, &self.settings)?;
        self.fit(shape)?;
        self.try_port(&link, &vlans, &qdiscs, &links)?;
        // Its addresses may have been reported before it, or while it was left to the kernel.
        self.fdb_due |= self.number_of(index) != number;
        Ok(())
    }

    /// Sets a port, and leaves it to the kernel where its hook is refused.
    fn try_port(
        &mut self,
        link: &Link,
        vlans: &[BridgeVlan],
        qdiscs: &[Qdisc],
        links: &[Link],
    ) -> Result<()> {
        if let Err(error) = self.set_port(link, vlans, qdiscs, links) {
            if error.downcast_ref::<AttachError>().is_none() {
                return Err(error);
            }
            let why = format!("{error:#}");
            let port = self.port_entry(link)?;
            let is_news = port.choice.why != why;
            port.detach()?;
            port.choice = Choice {
                hook: Hook::Kernel,
                why,
                may_fall_back: false,
            };
            if is_news {
                self.tell(format!("{}: left to the kernel: {error:#}", link.name));
            }
            self.write_port(link.index)?;
        }
        Ok(())
    }

    /// The port of a device, which gets a number where it has none.
    fn port_entry(&mut self, link: &Link) -> Result<&mut OnPort> {
        if !self.ports.contains_key(&link.index) {
            let taken = |number: &u32| self.ports.values().any(|port| port.number == *number);
            let number = (0..self.datapath.shape.ports).find(|number| !taken(number));
            let number = number.context("the bridge has more ports than its map has room for")?;
            let port = OnPort::new(number, link.clone(), self.keep.clone());
            self.ports.insert(link.index, port);
        }
        self.ports.get_mut(&link.index).context("it is there")
    }

    /// The hook of a port by its settings, and the facts.
    ///
    /// # Errors
    ///
    /// [`AttachError`] where it cannot have the hook that it is to have.
    fn check_port(&mut self, link: &Link, qdiscs: &[Qdisc], links: &[Link]) -> Result<Choice> {
        if let Err(error) = self.settings.check_port(link) {
            return Err(AttachError::new(&link.name, error.to_string()).into());
        }
        let settings = self.settings.of_port(link).unwrap_or(PortSettings {
            hook: Some(Hook::Kernel),
            ..PortSettings::default()
        });
        let hook = settings.hook.unwrap_or_default();
        let port = self.port_entry(link)?;
        let legs = legs(link, links);
        let cards = legs.iter().filter(|leg| leg.kind.is_none());
        port.cards = cards.map(|leg| leg.name.clone()).collect();
        port.legs = legs.iter().map(|leg| leg.index).collect();
        port.settings = settings;
        let (cards, own) = (port.cards.clone(), port.own());
        let facts = facts::of_port(link, &cards, qdiscs, own, &mut self.rtnetlink)?;
        let choice = facts.choose(hook);
        let port = self.port_entry(link)?;
        port.facts = Some(facts);
        Ok(choice.map_err(|why| AttachError::new(&link.name, why))?)
    }

    fn set_port(
        &mut self,
        link: &Link,
        vlans: &[BridgeVlan],
        qdiscs: &[Qdisc],
        links: &[Link],
    ) -> Result<()> {
        let choice = self.check_port(link, qdiscs, links)?;
        let port = self.port_entry(link)?;
        let facts = port.facts.clone().unwrap_or_default();
        port.link = link.clone();
        port.vlans = vlans_of(vlans);
        port.pvid = vlans
            .iter()
            .find(|vlan| vlan.pvid)
            .map_or(0, |vlan| vlan.vid);
        // A card takes redirected frames from when its XDP program is there until before that goes.
        let present = port.attached.as_ref().map(Attachment::hook);
        let stays = present.filter(|present| *present == choice.hook);
        port.no_redirect = facts.no_redirect(stays.unwrap_or(Hook::Kernel));
        let number = port.number;
        // The maps come first, so that the program never meets a port that is not there.
        self.write_port(link.index)?;
        self.datapath
            .set_vlans(number, &self.ports[&link.index].vlans)?;
        let port = self.ports.get_mut(&link.index).context("it is there")?;
        let news = port.attach(&self.datapath, choice)?;
        port.no_redirect = facts.no_redirect(port.choice.hook);
        if let Some(news) = news {
            self.tell(news);
        }
        self.write_port(link.index)
    }

    /// Writes a port to the map.
    fn write_port(&mut self, index: u32) -> Result<()> {
        let Some(port) = self.ports.get(&index) else {
            return Ok(());
        };
        let value = port.value(self.fdb.behind(port.number));
        let number = port.number;
        let legs = port.legs.clone();
        if port.written == Some(value) && port.written_legs == legs {
            return Ok(());
        }
        let unused = port.written_legs.iter().filter(|leg| !legs.contains(leg));
        for leg in unused.copied().collect::<Vec<u32>>() {
            self.datapath.remove_slot(leg)?;
        }
        let is_new = port
            .written
            .is_none_or(|written| written.ifindex != value.ifindex);
        if is_new {
            self.datapath.set_port(number, &value)?;
        } else {
            self.datapath.change_port(number, &value)?;
        }
        for leg in &legs {
            self.datapath.add_slot(*leg, number)?;
        }
        if let Some(port) = self.ports.get_mut(&index) {
            port.written = Some(value);
            port.written_legs = legs;
        }
        Ok(())
    }

    fn remove_port(&mut self, index: u32) -> Result<()> {
        let Some(mut port) = self.ports.remove(&index) else {
            return Ok(());
        };
        self.datapath.remove_port(port.number)?;
        let detached = port.detach();
        for write in self.fdb.forget_port(port.number) {
            self.write(Some(write))?;
        }
        self.tell(format!("{} is no port any more", port.link.name));
        detached
    }

    /// Looks at what the kernel does not report: filters, queueing disciplines, XDP features.
    fn look_at_ports(&mut self) -> Result<()> {
        let qdiscs = self.rtnetlink.qdiscs()?;
        let mut held = Vec::new();
        for port in self.ports.values_mut() {
            port.newcomers = self.datapath.newcomers(port.number)?;
            if port.hold_vlan_offload_off()? {
                held.push(port.link.name.clone());
            }
        }
        for name in held {
            self.tell(format!(
                "{name}: VLAN offload was on beside the XDP program, which cannot see the tags then: off again"
            ));
        }
        // The kernel has reported those newcomers: the addresses behind a port include them now.
        self.drain()?;
        let indices: Vec<u32> = self.ports.keys().copied().collect();
        let mut changed = Vec::new();
        for index in indices {
            let port = &self.ports[&index];
            let own = port.own();
            let rtnetlink = &mut self.rtnetlink;
            let facts = facts::of_port(&port.link, &port.cards, &qdiscs, own, rtnetlink)?;
            if port.facts.as_ref() != Some(&facts) {
                changed.push(index);
            } else if port.settings.mac_limit.is_some() {
                self.write_port(index)?;
            }
        }
        for index in changed {
            self.look_at(index, Some(self.bridge.index))?;
        }
        Ok(())
    }

    fn look_at_rules(&mut self) -> Result<()> {
        let bridge = settings_of(&self.bridge);
        let why = if bridge.mst {
            Some(
                "it has spanning trees by VLAN (mst_enabled), which only the kernel honours".into(),
            )
        } else {
            netfilter::rules(&bridge)?
        };
        if why == self.paused {
            return Ok(());
        }
        self.tell(match &why {
            Some(why) => format!("the kernel gets all frames: {why}"),
            None => "frames are forwarded here again".into(),
        });
        self.paused = why;
        self.beat()
    }

    /// Replaces the programs where a shape does not fit into the present one.
    fn fit(&mut self, wanted: Shape) -> Result<()> {
        let now = self.datapath.shape;
        let fits = wanted.ports <= now.ports
            && wanted.addresses <= now.addresses
            && wanted.vlan_protocol == now.vlan_protocol
            && wanted.mac_limits == now.mac_limits;
        if fits {
            return Ok(());
        }
        self.reload(Shape {
            ports: wanted.ports.max(now.ports),
            addresses: wanted.addresses.max(now.addresses),
            ..wanted
        })
    }

    /// Loads programs of another shape, and puts them in the place of the present ones.
    fn reload(&mut self, shape: Shape) -> Result<()> {
        let new = Datapath::load(self.object, shape)?;
        let mut old = std::mem::replace(&mut self.datapath, new);
        // A port that is still to have its new program would not notice moves to one that has.
        let _ = old.pause();
        self.figures.reloads += 1;
        let indices: Vec<u32> = self.ports.keys().copied().collect();
        for index in &indices {
            let moved = self.move_port(*index, &old);
            self.doubt(*index, moved);
        }
        let all: Vec<(FdbKey, Known)> = self.fdb.all().collect();
        self.pending.clear();
        for (key, known) in all {
            match self.datapath.set_address(key, known) {
                Ok(()) => self.wait_with(key),
                Err(Full) => self.figures.not_mirrored += 1,
            }
        }
        let beaten = self.beat();
        for index in indices {
            let port = self.ports.get_mut(&index).context("it is there")?;
            let replaced = port.replace(&self.datapath);
            if replaced.is_err() {
                // With the old program it would be one that no beat reaches.
                let _ = port.detach();
            }
            self.doubt(index, replaced);
        }
        beaten
    }

    /// Writes a port to the maps of new programs.
    fn move_port(&mut self, index: u32, old: &Datapath) -> Result<()> {
        let port = self.ports.get_mut(&index).context("it is there")?;
        port.counted.add(&old.counters(port.number)?);
        port.written = None;
        port.newcomers = 0;
        port.written_legs.clear();
        let (number, vlans) = (port.number, port.vlans);
        self.write_port(index)?;
        self.datapath.set_vlans(number, &vlans)
    }

    /// Has everything read anew where something has failed with a port: its device may have gone, which is still
    /// to be reported.
    fn doubt(&mut self, index: u32, done: Result<()>) {
        let (Err(error), Some(port)) = (done, self.ports.get(&index)) else {
            return;
        };
        self.losses += 1;
        self.tell(format!("{}: {error:#}", port.link.name));
    }

    /// Has the kernel reset the age of addresses, and looks up those that are in doubt.
    fn end_epoch(&mut self) -> Result<()> {
        self.epoch_began = Instant::now();
        self.datapath.begin_epoch()?;
        let all = self.fdb.all().map(|(key, _)| key);
        let moved: Vec<FdbKey> = all.filter(|key| self.datapath.has_moved(*key)).collect();
        for key in moved {
            // Frames came from another port, where the kernel may not have learned the address.
            let entry = self.kernels_entry(key)?;
            let write = self.fdb.forget(key);
            self.write(write)?;
            if let Some(entry) = entry {
                self.learn(&entry)?;
            }
        }
        Ok(())
    }

    fn kernels_entry(&mut self, key: FdbKey) -> Result<Option<FdbEntry>> {
        let bridge = self.bridge.index;
        Ok(self.rtnetlink.fdb_entry(bridge, key.mac, key.vlan)?)
    }

    /// Has the programs of an earlier daemon leave all frames to the kernel: one that is still to be replaced would
    /// not notice moves to a port whose program has been.
    fn pause_earlier(&mut self) {
        let pins = self.keep.as_ref().map(Keep::pinned).unwrap_or_default();
        // One whose device is gone has no program, and the others share theirs.
        let program = |pin: &PathBuf| NetLink::open(pin).and_then(|link| link.program_id()).ok();
        let programs: BTreeSet<u32> = pins.iter().filter_map(program).collect();
        for program in programs {
            if let Err(error) = Datapath::pause_earlier(program) {
                // Without beats it pauses by itself.
                self.tell(format!("{error:#}"));
            }
        }
    }

    /// Removes pins in the directory that are no port's.
    fn unpin_strangers(&mut self) {
        let Some(keep) = &self.keep else { return };
        let used: Vec<PathBuf> = self.ports.values().filter_map(OnPort::pin).collect();
        let pinned = keep.pinned();
        let strangers: Vec<_> = pinned.iter().filter(|pin| !used.contains(pin)).collect();
        let mut failed = Vec::new();
        for stranger in strangers {
            if let Err(error) = keep::unpin(stranger) {
                failed.push(format!("{}: {error}", stranger.display()));
            }
        }
        for failed in failed {
            self.tell(format!("a program of an earlier run stays: {failed}"));
        }
    }

    /// The counters of a port since it was attached.
    pub(super) fn counters(&self, port: &OnPort) -> Result<PortCounters> {
        let mut counters = port.counted;
        counters.add(&self.datapath.counters(port.number)?);
        Ok(counters)
    }
}

impl Drop for Accelerator {
    /// What is not kept goes, also a filter of tc, which no descriptor holds.
    fn drop(&mut self) {
        if self.keep.is_none() {
            // Nobody is left to tell.
            let _ = self.detach_all();
        }
    }
}

/// The bridge is gone.
#[derive(Debug)]
pub struct BridgeGone(pub String);

impl std::fmt::Display for BridgeGone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the bridge {} is gone", self.0)
    }
}

impl std::error::Error for BridgeGone {}

/// A MAC address as people write it.
pub fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

fn bridge_of(rtnetlink: &mut Rtnetlink, name: &str) -> Result<Link> {
    let link = rtnetlink.link(name)?;
    if link.bridge.is_none() {
        let kind = link.kind.as_deref().unwrap_or("a network card");
        let bridges = rtnetlink.links()?.into_iter();
        let bridges: Vec<String> = bridges
            .filter(|link| link.bridge.is_some())
            .map(|link| link.name)
            .collect();
        let there = if bridges.is_empty() {
            "there is none here".into()
        } else {
            format!("there is {}", bridges.join(", "))
        };
        bail!("{name} is no Linux bridge but {kind}: name a bridge, {there}");
    }
    Ok(link)
}

fn settings_of(bridge: &Link) -> BridgeSettings {
    bridge.bridge.clone().unwrap_or_default()
}

fn shape_of(bridge: &Link, ports: usize, addresses: usize, settings: &Settings) -> Result<Shape> {
    let of_bridge = settings_of(bridge);
    let protocol = of_bridge.vlan_filtering.then_some(of_bridge.vlan_protocol);
    ensure!(
        settings.addresses > 0,
        "room for 0 addresses: choose at least 1"
    );
    shape(
        ports,
        addresses,
        settings.addresses,
        protocol,
        settings.has_mac_limits(),
    )
}

fn vlans_of(vlans: &[BridgeVlan]) -> PortVlans {
    let mut set = PortVlans::default();
    for vlan in vlans.iter().filter(|vlan| !vlan.blocked) {
        set.add(vlan.vid, vlan.untagged);
    }
    set
}

/// The devices of a bond that it uses.
fn legs<'a>(link: &Link, links: &'a [Link]) -> Vec<&'a Link> {
    if link.kind.as_deref() != Some("bond") {
        return Vec::new();
    }
    let legs = links
        .iter()
        .filter(|leg| leg.controller == Some(link.index) && !leg.bond_backup);
    legs.collect()
}
