//! All that a round's seed decides.

use super::budget::BUSY;
use super::packet;
use super::post::Ways;
use fastrand::Rng;
use std::fmt;
use std::time::Duration;
use testkit::limit::scale;
use xsk::{Feature, Mode, SocketBuilder, Wait};

/// What a round is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Temper {
    /// Faults and delays between few packets.
    Faults,
    /// Many short packets, in large bursts and without a rest.
    Haste,
    /// Packets of one chunk to several.
    Jumbo,
}

/// The threads that serve a device's sockets at one end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// One for all sockets.
    One,
    /// Two for each socket, which is split.
    Halves,
    /// The workers of a port.
    Port,
}

/// One device.
#[derive(Debug, Clone)]
pub struct Device {
    pub queues: u32,
    /// At the near end, and at the far.
    pub shapes: [Shape; 2],
}

/// An event between packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A thread is moved to one CPU.
    Move,
    /// A device at an end goes down and, after so many milliseconds, up again.
    Down {
        end: usize,
        device: usize,
        millis: u64,
    },
}

/// A round.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub temper: Temper,
    pub mode: Mode,
    pub chunk_size: u32,
    pub chunks: [u32; 2],
    pub devices: Vec<Device>,
    /// In how many of a thousand cases a point of the library delays.
    pub delays: u32,
    /// The thread of all sockets of the first device's near end waits by spinning: one only, since spinning threads
    /// take the CPUs from the kernel's workers, on which closing a device waits.
    pub spins: bool,
    /// Sockets are closed and opened again.
    pub reopens: bool,
    /// Sockets that one thread serves make their packets through another on the same queue.
    pub siblings: bool,
    /// A pair of devices more, with a socket whose rings another process overwrites.
    pub hostile: bool,
    /// How long packets are made.
    pub time: Duration,
    /// Pauses, and the events behind them, of which a slow machine leaves the last ones out.
    pub events: Vec<(Duration, Event)>,
}

impl Plan {
    pub fn new(seed: u64, time: Duration) -> Self {
        let random = &mut Rng::with_seed(seed);
        if random.bool() {
            return Self::of_haste(seed, 4 * time, random);
        }
        if random.u8(..3) == 0 && Feature::Fragments.probe().is_ok() {
            return Self::of_jumbo(seed, 2 * time, random);
        }
        let devices: Vec<_> = (0..random.u32(1..=2))
            .map(|_| Device::new(random))
            .collect();
        let sockets: u32 = devices.iter().map(|device| device.queues).sum();
        let mut chunks = || sockets * random.u32(96..=768);
        let chunks = [chunks(), chunks()];
        let links = random.u8(..3) == 0;
        Self {
            seed,
            temper: Temper::Faults,
            mode: random
                .choice([Mode::Skb, Mode::Driver, Mode::Driver])
                .expect("one"),
            chunk_size: random.choice([2048, 4096]).expect("one"),
            chunks,
            delays: random.choice([0, 3, 30]).expect("one"),
            spins: random.u8(..4) == 0,
            reopens: random.u8(..3) == 0,
            siblings: random.u8(..3) == 0,
            hostile: random.u8(..3) == 0,
            events: events(random, links, devices.len(), time),
            devices,
            time,
        }
    }

    /// The set-up of a round takes as long as a million packets, so this one has few sockets and goes on for long.
    fn of_haste(seed: u64, time: Duration, random: &mut Rng) -> Self {
        let queues = random.u32(1..=2);
        let shapes = [(); 2].map(|()| random.choice([Shape::One, Shape::Port]).expect("one"));
        Self {
            seed,
            temper: Temper::Haste,
            mode: random
                .choice([Mode::Skb, Mode::Driver, Mode::Driver])
                .expect("one"),
            chunk_size: random.choice([2048, 4096]).expect("one"),
            chunks: [2048 * queues; 2],
            devices: vec![Device { queues, shapes }],
            delays: 0,
            spins: false,
            reopens: false,
            siblings: false,
            hostile: false,
            time,
            events: events(random, false, 1, time),
        }
    }

    /// As in haste: the threads do not stop each other, so that packets queue up.
    fn of_jumbo(seed: u64, time: Duration, random: &mut Rng) -> Self {
        let queues = random.u32(1..=2);
        Self {
            temper: Temper::Jumbo,
            delays: random.choice([0, 3]).expect("one"),
            devices: vec![Device {
                queues,
                shapes: [Shape::One; 2],
            }],
            chunks: [(); 2].map(|()| queues * random.u32(256..=2048)),
            ..Self::of_haste(seed, time, random)
        }
    }

    /// Longest packet.
    pub fn longest(&self) -> usize {
        match self.temper {
            Temper::Faults => packet::MAX,
            Temper::Haste => 2 * packet::MIN,
            Temper::Jumbo => packet::JUMBO_MAX,
        }
    }

    /// MTU of the devices.
    pub fn mtu(&self) -> u32 {
        match self.temper {
            Temper::Faults | Temper::Haste => packet::MTU,
            Temper::Jumbo => packet::JUMBO_MTU,
        }
    }

    /// The sockets of a device share a UMEM with those of all others at this end.
    pub fn socket(&self, builder: SocketBuilder, random: &mut Rng) -> SocketBuilder {
        let (least, most) = match self.temper {
            Temper::Faults => (5, 9),
            Temper::Haste | Temper::Jumbo => (9, 11),
        };
        let mut ring = || 1 << random.u32(least..=most);
        let builder = builder.mode(self.mode).rx_ring(ring()).tx_ring(ring());
        let builder = builder.fill_ring(ring()).completion_ring(ring());
        let ways = [Wait::Poll, Wait::adaptive()];
        let builder = builder.wait(random.choice(ways).expect("one"));
        builder
            .need_wakeup(random.u8(..4) > 0)
            .busy_timeout(BUSY * scale())
    }

    /// The flows of all sockets at an end.
    fn flows(&self, end: usize) -> Vec<u16> {
        let devices = self.devices.iter().enumerate();
        let flows =
            devices.map(|(device, of)| (0..of.queues).map(move |queue| flow(end, device, queue)));
        flows.flatten().collect()
    }

    /// How often a link goes down.
    fn downs(&self) -> usize {
        let events = self.events.iter();
        events.filter(|(_, event)| *event != Event::Move).count()
    }

    /// The way of a socket. The far end makes packets, and the near end some.
    pub fn ways(&self, random: &mut Rng, end: usize, flow: u16) -> Ways {
        // A driver that is set down waits until its queues are idle: with no pauses, for seconds.
        let has_downs = self.downs() > 0;
        let least = if has_downs { 200 } else { 0 };
        let later = random.u8(..3) == 0;
        if self.temper != Temper::Faults {
            return Ways {
                jumbo: self.temper == Temper::Jumbo,
                later: false,
                hand_to: None,
                flow,
                originates: end == 1,
                rest: Duration::ZERO,
                burst: 256,
                longest: self.longest(),
            };
        }
        let other = random.choice(self.flows(end)).expect("one");
        Ways {
            jumbo: false,
            hand_to: (later && random.bool()).then_some(other),
            rest: Duration::from_micros(random.choice([least, 200, 1000]).expect("one")),
            later,
            flow,
            originates: end == 1 || random.u8(..4) == 0,
            burst: 1 << random.u32(0..=6),
            longest: self.longest(),
        }
    }
}

/// The flow of the packets that a socket makes.
pub fn flow(end: usize, device: usize, queue: u32) -> u16 {
    ((2 * device + end) * 4) as u16 + queue as u16
}

impl Device {
    fn new(random: &mut Rng) -> Self {
        let mut shape = || {
            random
                .choice([Shape::One, Shape::Halves, Shape::Port])
                .expect("one")
        };
        Self {
            shapes: [shape(), shape()],
            queues: random.u32(1..=3),
        }
    }
}

fn events(random: &mut Rng, links: bool, devices: usize, time: Duration) -> Vec<(Duration, Event)> {
    let (mut events, mut left) = (Vec::new(), time);
    loop {
        let pause = Duration::from_micros(random.u64(1000..60_000));
        let Some(rest) = left.checked_sub(pause) else {
            return events;
        };
        left = rest;
        let event = if links && random.bool() {
            Event::Down {
                end: random.usize(..2),
                device: random.usize(..devices),
                millis: random.u64(..20),
            }
        } else {
            Event::Move
        };
        events.push((pause, event));
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {}: {:?}, {:?}, {} bytes a chunk, {:?} chunks;",
            self.seed, self.temper, self.mode, self.chunk_size, self.chunks
        )?;
        for Device {
            queues,
            shapes: [near, far],
        } in &self.devices
        {
            write!(f, " {queues} queues {near:?}-{far:?};")?;
        }
        let downs = self.downs();
        write!(f, " delays {}‰, {downs} links down", self.delays)?;
        f.write_str(if self.reopens { ", reopening" } else { "" })?;
        f.write_str(if self.siblings { ", siblings" } else { "" })?;
        f.write_str(if self.hostile { ", hostile" } else { "" })
    }
}
