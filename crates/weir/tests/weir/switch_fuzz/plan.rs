//! The steps that follow from a seed: bursts of frames, and events between them.

use crate::random::Random;
use crate::switch_fuzz::event::{Event, Hook};
use crate::switch_fuzz::frame::{self, Cast, VLANS};
use crate::switch_fuzz::netlink::{BridgeSetting, EntryKind, Flag, PortSetting, Vlan};
use crate::switch_fuzz::side::{Kind, MTU, Setup};

/// Frames of a burst at most.
const BURST: usize = 64;
/// Hosts at each port.
const HOSTS: usize = 4;
/// Changes that are in effect together, at most.
const CHANGES: usize = 5;

/// In how many of a thousand changes addresses age.
const AGEING: u64 = 2;
/// In how many of a thousand changes the accelerator is killed.
const KILLS: u64 = 40;

/// A frame, and the port whose far end sends it; the bridge's host is the one beyond the last.
pub struct Input {
    pub port: usize,
    pub bytes: Vec<u8>,
}

pub enum Step {
    Burst(Vec<Input>),
    /// The same, in whatever order.
    FreeBurst(Vec<Input>),
    /// A change, and bursts right after it.
    Storm(Event, Vec<Vec<Input>>),
    Event(Event),
}

/// What the kernel can do.
#[derive(Debug, Clone, Copy)]
pub struct Features {
    /// In how many of a hundred seeds bridges are VLAN-aware; 0 where they cannot be.
    pub vlans: u64,
}

pub struct Plan {
    random: Random,
    features: Features,
    setup: Setup,
    cast: Cast,
    /// The events that take changes back.
    pending: Vec<Event>,
    /// Events that come next, the last one first.
    next: Vec<Event>,
    number: u64,
    /// Whether any frame is in a VLAN of the bridge's.
    is_vlan_aware: bool,
    /// In how many of a thousand changes the accelerator falls silent, which takes seconds.
    silence: u64,
    /// In how many of a thousand changes an entry loses its VLAN.
    orphans: u64,
}

impl Plan {
    pub fn new(seed: u64, ports: usize, features: Features, defect: Option<&str>) -> Self {
        let mut random = Random::new(seed);
        let kinds = (0..ports)
            .map(|_| random.weighted(&[(2, Kind::Veth), (5, Kind::VethGro), (2, Kind::Tap)]))
            .collect();
        let setup = Setup {
            kinds,
            snooping: random.percent(15),
            threaded: random.percent(20),
        };
        Self {
            random,
            features,
            setup,
            cast: Cast::new(ports, HOSTS),
            pending: Vec::new(),
            next: Vec::new(),
            // No number is used twice, not by seeds either.
            number: seed << 32,
            is_vlan_aware: false,
            // What a defect needs comes more often.
            silence: if defect == Some("deadline") { 200 } else { 2 },
            orphans: if defect == Some("vlan") { 400 } else { 10 },
        }
    }

    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// The events that take back what is changed.
    pub fn pending(&self) -> &[Event] {
        &self.pending
    }

    /// The events at the begin.
    pub fn first(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        for port in 0..self.cast.ports {
            events.push(Event::Hook(port, self.hook()));
        }
        if self.random.percent(self.features.vlans) {
            self.is_vlan_aware = true;
            if self.random.percent(30) {
                events.push(Event::Bridge(BridgeSetting::VlanProtocol(0x88a8)));
            }
            events.push(Event::Bridge(BridgeSetting::VlanFiltering(true)));
            for port in 0..self.cast.ports {
                for _ in 0..self.random.within(0, 3) {
                    events.push(self.vlan(Some(port), true));
                }
            }
        }
        for port in 0..self.cast.ports {
            self.set_up(port, &mut events);
        }
        events.push(Event::Attach);
        events
    }

    /// Settings that a port has all the time, or until an event.
    fn set_up(&mut self, port: usize, events: &mut Vec<Event>) {
        let flags = [
            (20, Flag::Isolated, true),
            (5, Flag::Hairpin, true),
            (5, Flag::Learning, false),
            (5, Flag::UnicastFlood, false),
        ];
        for (percent, flag, on) in flags {
            if self.random.percent(percent) {
                events.push(Event::Port(port, PortSetting::Flag(flag, on)));
            }
        }
        if self.random.percent(15) {
            let mtu = self.mtu(port);
            events.push(Event::Mtu(port, mtu));
        }
    }

    fn hook(&mut self) -> Hook {
        self.random.weighted(&[
            (3, Hook::Auto),
            (5, Hook::Xdp),
            (5, Hook::Tcx),
            (1, Hook::Kernel),
        ])
    }

    pub fn next(&mut self) -> Step {
        if !self.next.is_empty() || self.random.percent(5) {
            let event = self.event();
            return if self.next.is_empty() && !self.setup.threaded && self.random.percent(10) {
                let burst = |plan: &mut Self| plan.talk(BURST / 2);
                Step::Storm(event, (0..3).map(|_| burst(self)).collect())
            } else {
                Step::Event(event)
            };
        }
        let frames = self.random.within(1, BURST);
        match self.random.below(10) {
            0 => Step::Burst(self.moves(frames)),
            1 => Step::Burst(self.one_port(frames)),
            _ => Step::FreeBurst(self.talk(frames)),
        }
    }

    /// Frames of hosts at all ports.
    fn talk(&mut self, frames: usize) -> Vec<Input> {
        (0..frames)
            .map(|_| {
                // Few are the host's own.
                let port = if self.random.percent(3) {
                    self.cast.ports
                } else {
                    self.random.below(self.cast.ports)
                };
                self.frame(port)
            })
            .collect()
    }

    fn one_port(&mut self, frames: usize) -> Vec<Input> {
        let port = self.random.below(self.cast.ports);
        (0..frames).map(|_| self.frame(port)).collect()
    }

    /// Hosts move to a port while it sends, and others talk to them.
    fn moves(&mut self, frames: usize) -> Vec<Input> {
        let port = self.random.below(self.cast.ports);
        let mut burst = self.talk(frames / 3);
        for _ in 0..self.random.within(1, 3) {
            let moved = self.random.below(self.cast.homes.len());
            self.cast.homes[moved] = port;
        }
        burst.extend(self.one_port_at(port, frames / 3));
        burst.extend(self.talk(frames / 3));
        burst
    }

    fn one_port_at(&mut self, port: usize, frames: usize) -> Vec<Input> {
        (0..frames).map(|_| self.frame(port)).collect()
    }

    fn frame(&mut self, port: usize) -> Input {
        let random = &mut self.random;
        let destination = self.cast.destination(random);
        let source = if port == self.cast.ports {
            frame::bridge(0)
        } else {
            self.cast.source(port, random)
        };
        self.number += 1;
        Input {
            port,
            bytes: frame::build(destination, source, MTU as usize, self.number, random),
        }
    }

    fn event(&mut self) -> Event {
        if let Some(event) = self.next.pop() {
            return event;
        }
        let is_full = self.pending.len() >= CHANGES;
        if !self.pending.is_empty() && (is_full || self.random.percent(40)) {
            let at = self.random.below(self.pending.len());
            return self.pending.swap_remove(at);
        }
        let (event, undo) = self.change();
        self.pending.extend(undo);
        event
    }

    /// A change, and the one that takes it back.
    fn change(&mut self) -> (Event, Option<Event>) {
        match self.random.next() % 1000 {
            // These take seconds.
            rare if rare < self.silence => {
                return (Event::Silence(true), Some(Event::Silence(false)));
            }
            rare if rare < self.silence + AGEING => return (Event::Age, None),
            rare if rare < self.silence + AGEING + KILLS => return (Event::Kill, None),
            _ => {}
        }
        let port = self.random.below(self.cast.ports);
        if self.is_vlan_aware && self.random.next() % 1000 < self.orphans {
            return self.orphan(port);
        }
        let mac = frame::host(self.random.below(self.cast.homes.len()));
        let vlan = self.entry_vlan();
        let bridge = |setting, undo| (Event::Bridge(setting), Some(Event::Bridge(undo)));
        match self.random.below(100) {
            0..8 => (
                Event::AddEntry {
                    port,
                    mac,
                    vlan,
                    kind: self.random.pick(&[
                        EntryKind::Dynamic,
                        EntryKind::Static,
                        EntryKind::Static,
                        EntryKind::Sticky,
                        EntryKind::Local,
                    ]),
                },
                Some(Event::DeleteEntry { port, mac, vlan }),
            ),
            8..14 => {
                // Where the host is, as far as the plan knows.
                let at = self.random.below(self.cast.homes.len());
                let event = Event::DeleteEntry {
                    port: self.cast.homes[at],
                    mac: frame::host(at),
                    vlan,
                };
                (event, None)
            }
            14..18 => (Event::Bridge(BridgeSetting::Flush), None),
            18..22 => (Event::Port(port, PortSetting::Flush), None),
            22..27 => (Event::Up(port, false), Some(Event::Up(port, true))),
            27..29 => (Event::PeerUp(port, false), Some(Event::PeerUp(port, true))),
            29..33 => (Event::Member(port, false), Some(Event::Member(port, true))),
            33..36 => (Event::Replug(port), None),
            36..43 => {
                let state = self.random.pick(&[0, 1, 2, 4]);
                let undo = Event::Port(port, PortSetting::State(3));
                (Event::Port(port, PortSetting::State(state)), Some(undo))
            }
            43 => (Event::Queue(port, true), Some(Event::Queue(port, false))),
            44..49 => {
                let mtu = self.mtu(port);
                (Event::Mtu(port, mtu), Some(Event::Mtu(port, MTU)))
            }
            49..69 => self.flag(port),
            69..71 => {
                let mask = 1 << self.random.within(4, 15);
                let undo = Event::Port(port, PortSetting::GroupForwardMask(0));
                (
                    Event::Port(port, PortSetting::GroupForwardMask(mask)),
                    Some(undo),
                )
            }
            71..73 => {
                let mask = 1 << self.random.within(4, 15);
                bridge(
                    BridgeSetting::GroupForwardMask(mask),
                    BridgeSetting::GroupForwardMask(0),
                )
            }
            73..75 => bridge(
                BridgeSetting::NoLinkLocalLearning(true),
                BridgeSetting::NoLinkLocalLearning(false),
            ),
            75..77 => bridge(
                BridgeSetting::MaxLearned(self.random.within(4, 20) as u32),
                BridgeSetting::MaxLearned(0),
            ),
            77..80 => (Event::BridgeUp(false), Some(Event::BridgeUp(true))),
            80..83 => (Event::BridgeMac(1), Some(Event::BridgeMac(0))),
            83..93 if self.features.vlans > 0 => self.vlan_change(port),
            _ => self.attach(port),
        }
    }

    fn attach(&mut self, port: usize) -> (Event, Option<Event>) {
        let hook = self.hook();
        (Event::Hook(port, hook), Some(Event::Attach))
    }

    fn mtu(&mut self, port: usize) -> u32 {
        match self.setup.kinds[port] {
            // A tap with an XDP program has no larger one.
            Kind::Tap => self.random.pick(&[1280, 1400]),
            Kind::Veth | Kind::VethGro => self.random.pick(&[1280, 1400, 1600, 2500]),
        }
    }

    fn flag(&mut self, port: usize) -> (Event, Option<Event>) {
        let (flag, on) = self.random.weighted(&[
            (3, (Flag::Hairpin, true)),
            (1, (Flag::BpduGuard, true)),
            (3, (Flag::Learning, false)),
            (2, (Flag::UnicastFlood, false)),
            (2, (Flag::MulticastFlood, false)),
            (2, (Flag::BroadcastFlood, false)),
            (1, (Flag::NeighbourSuppress, true)),
            (6, (Flag::Isolated, true)),
            (3, (Flag::Locked, true)),
        ]);
        let set = |on| Event::Port(port, PortSetting::Flag(flag, on));
        (set(on), Some(set(!on)))
    }

    /// The VLAN of an entry that is added or removed.
    fn entry_vlan(&mut self) -> u16 {
        if self.is_vlan_aware && self.random.percent(80) {
            self.random.pick(&VLANS)
        } else {
            0
        }
    }

    fn vlan(&mut self, port: Option<usize>, add: bool) -> Event {
        let vlan = Vlan {
            id: self.random.pick(&VLANS),
            pvid: add && self.random.percent(30),
            untagged: add && self.random.percent(40),
        };
        Event::Vlan { port, vlan, add }
    }

    /// An entry whose VLAN its port leaves: the kernel keeps it.
    fn orphan(&mut self, port: usize) -> (Event, Option<Event>) {
        let at = self.random.below(self.cast.homes.len());
        let (mac, id) = (frame::host(at), self.random.pick(&VLANS));
        let vlan = Vlan {
            id,
            pvid: false,
            untagged: false,
        };
        let set = |add| Event::Vlan {
            port: Some(port),
            vlan,
            add,
        };
        let entry = Event::AddEntry {
            port,
            mac,
            vlan: id,
            kind: EntryKind::Static,
        };
        self.next = vec![set(false), entry];
        let vlan = id;
        (set(true), Some(Event::DeleteEntry { port, mac, vlan }))
    }

    fn vlan_change(&mut self, port: usize) -> (Event, Option<Event>) {
        match self.random.below(20) {
            0 => {
                self.is_vlan_aware = !self.is_vlan_aware;
                let filtering = BridgeSetting::VlanFiltering(self.is_vlan_aware);
                (Event::Bridge(filtering), None)
            }
            1 => {
                let ethertype = self.random.pick(&[0x8100, 0x88a8]);
                (Event::Bridge(BridgeSetting::VlanProtocol(ethertype)), None)
            }
            2..4 => {
                let add = self.random.percent(60);
                (self.vlan(None, add), None)
            }
            _ => {
                let add = self.random.percent(65);
                (self.vlan(Some(port), add), None)
            }
        }
    }
}
