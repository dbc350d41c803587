//! The comparison: two bridges, the same frames and events, equal outputs.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weir::switch::LIFE;

use crate::accelerate::{Accelerator, Outliving};
use crate::event::{Event, Hook};
use crate::frame::{self, Mac};
use crate::netlink::{BridgeSetting, Entry, EntryKind, Flag, PortSetting};
use crate::plan::{Features, Input, Plan, Step};
use crate::random::Random;
use crate::side::{BRIDGE, LONG_AGE, Side};
use crate::socket::Batch;

/// Without any progress for so long, whatever is missing does not come.
const PATIENCE: Duration = Duration::from_secs(4);
/// The ageing time where addresses shall age, in hundredths of a second.
const AGEING: u32 = 200;
const AGEING_TIME: Duration = Duration::from_millis(AGEING as u64 * 10);
/// Lengths of frames that get to the bridge, whatever their port's MTU is.
const SURE: std::ops::RangeInclusive<usize> = 60..=1280;
/// Bursts from one comparison of the forwarding databases to the next.
const BETWEEN_ENTRIES: u64 = 16;
/// Steps that a report lists.
const LAST_EVENTS: usize = 12;
/// Frames that are kept for reports.
const LAST_FRAMES: usize = 4096;

/// Which two bridges are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode<'a> {
    /// Neither is accelerated: no difference may be found.
    Plain,
    /// The same, and one has an entry more: a difference must be found.
    Sabotaged,
    Accelerated,
    /// With this defect, which must be found.
    Broken(&'a str),
}

impl<'a> Mode<'a> {
    fn defect(self) -> Option<&'a str> {
        match self {
            Self::Broken(name) => Some(name),
            _ => None,
        }
    }
}

pub struct Options<'a> {
    pub mode: Mode<'a>,
    pub seed: u64,
    /// In how many of a hundred seeds bridges are VLAN-aware.
    pub vlans: u64,
    pub ports: usize,
    pub until: Instant,
    pub steps: u64,
    /// Steps of a seed, before the next one begins with new bridges.
    pub steps_a_seed: u64,
    pub is_quiet: bool,
}

/// The sums of a run.
#[derive(Debug, Default, Clone, Copy)]
pub struct Sums {
    pub seeds: u64,
    pub steps: u64,
    pub frames: u64,
    pub outputs: u64,
    pub events: u64,
    /// Streams whose frames came in another order than they were sent, by side.
    pub reordered: [u64; 2],
    /// Bursts whose outputs were not equal when they should have been, but soon after.
    pub late: u64,
    /// Frames of the kernel's own.
    pub background: u64,
}

/// The first difference.
pub struct Difference {
    pub seed: u64,
    pub step: u64,
    pub text: String,
}

/// Runs seeds one after the other, until the time or the steps are over or there is a difference.
pub fn run(options: &Options<'_>, features: Features) -> Result<(Sums, Option<Difference>)> {
    let started = Instant::now();
    let mut sums = Sums::default();
    let mut seed = options.seed;
    let mut shown = started;
    while Instant::now() < options.until && sums.steps < options.steps {
        let mut round = Round::new(options, seed, features)
            .with_context(|| format!("cannot make the bridges of seed {seed}"))?;
        let last = options.steps_a_seed.min(options.steps - sums.steps);
        let before = sums;
        let found = round.run(last, options.until, |now| {
            if !options.is_quiet && shown.elapsed() > Duration::from_secs(2) {
                shown = Instant::now();
                progress(&before.plus(now), seed, started);
            }
        });
        sums = before.plus(&round.sums);
        sums.seeds += 1;
        match found {
            Ok(()) => {}
            Err(Stop::Difference(text)) => {
                let step = round.sums.steps;
                return Ok((sums, Some(Difference { seed, step, text })));
            }
            Err(Stop::Error(error)) => {
                return Err(error)
                    .with_context(|| format!("in step {} of seed {seed}", round.sums.steps));
            }
        }
        seed += 1;
    }
    Ok((sums, None))
}

fn progress(sums: &Sums, seed: u64, started: Instant) {
    let end = if std::io::stderr().is_terminal() {
        "\r"
    } else {
        "\n"
    };
    eprint!("weir: seed {seed}: {}{end}", sums.line(started.elapsed()));
}

impl Sums {
    fn plus(&self, other: &Self) -> Self {
        Self {
            seeds: self.seeds + other.seeds,
            steps: self.steps + other.steps,
            frames: self.frames + other.frames,
            outputs: self.outputs + other.outputs,
            events: self.events + other.events,
            reordered: [0, 1].map(|side| self.reordered[side] + other.reordered[side]),
            late: self.late + other.late,
            background: self.background + other.background,
        }
    }

    pub fn line(&self, elapsed: Duration) -> String {
        format!(
            "{} frames, {} outputs, {} events compared, {:.0} frames/s, reordered {} and {}, late {}",
            self.frames,
            self.outputs,
            self.events,
            self.frames as f64 / elapsed.as_secs_f64().max(0.001),
            self.reordered[0],
            self.reordered[1],
            self.late,
        )
    }
}

enum Stop {
    Difference(String),
    Error(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

/// A frame that was sent.
struct Sent {
    step: u64,
    /// The part of the burst, counted from the begin.
    group: u64,
    port: usize,
    bytes: Vec<u8>,
}

/// A frame that came out.
struct Output {
    side: usize,
    port: usize,
    bytes: Vec<u8>,
}

/// Source, VLAN, whether it is a control frame, and port.
type Key = (Mac, (u16, u16), bool, usize);

/// One seed.
struct Round<'a> {
    options: &'a Options<'a>,
    seed: u64,
    plan: Plan,
    /// The accelerated one first.
    sides: [Side; 2],
    accelerator: Option<Accelerator>,
    outliving: Outliving,
    /// Whether its programs forward without it.
    is_killed: bool,
    /// Frames of [`Round::say`].
    said: u64,
    /// Ports whose frames the kernel may not learn from.
    odd_ports: HashSet<usize>,
    hooks: Vec<Hook>,
    /// The hooks of the last attach.
    attached: Vec<Hook>,
    batch: Batch,
    sums: Sums,
    marks: u64,
    /// How often each frame came out of a port at the first side more often than at the second.
    difference: HashMap<(usize, Vec<u8>), i32>,
    outputs: Vec<Output>,
    /// Sources that have been sent with this tag from this port since the last event, and from no
    /// other port since: the bridge knows all that it will know of them.
    known: HashSet<Key>,
    is_vlan_aware: bool,
    /// Whether the accelerator does nothing.
    is_silent: bool,
    events: VecDeque<String>,
    frames: VecDeque<Sent>,
}

impl<'a> Round<'a> {
    fn new(options: &'a Options<'a>, seed: u64, features: Features) -> Result<Self> {
        let plan = Plan::new(
            seed,
            options.ports,
            features,
            options.mode == Mode::Broken("deadline"),
        );
        let names = match options.mode {
            Mode::Plain | Mode::Sabotaged => ["first", "second"],
            Mode::Accelerated | Mode::Broken(_) => ["accelerated", "plain"],
        };
        let [first, second] = names.map(|name| Side::new(name, plan.setup()));
        Ok(Self {
            options,
            seed,
            hooks: vec![Hook::Auto; options.ports],
            attached: Vec::new(),
            plan,
            sides: [first?, second?],
            accelerator: None,
            outliving: Outliving::new()?,
            is_killed: false,
            odd_ports: HashSet::new(),
            said: 0,
            batch: Batch::new(),
            sums: Sums::default(),
            marks: 0,
            difference: HashMap::new(),
            outputs: Vec::new(),
            known: HashSet::new(),
            is_vlan_aware: false,
            is_silent: false,
            events: VecDeque::new(),
            frames: VecDeque::new(),
        })
    }

    fn run(&mut self, steps: u64, until: Instant, mut show: impl FnMut(&Sums)) -> Result<(), Stop> {
        self.await_states()?;
        for event in self.plan.first() {
            self.event(&event)?;
        }
        for step in 0..steps {
            if Instant::now() >= until {
                break;
            }
            self.sums.steps += 1;
            if self.options.mode == Mode::Sabotaged && step == steps / 2 {
                self.sabotage()?;
            }
            match self.plan.next() {
                Step::Burst(burst) => self.burst(burst)?,
                Step::FreeBurst(burst) => self.free_burst(burst)?,
                Step::Event(event) => self.event(&event)?,
            }
            if step % BETWEEN_ENTRIES == 0 && self.options.mode != Mode::Sabotaged {
                self.compare_entries()?;
            }
            show(&self.sums);
        }
        // What a burst left behind would come with the next.
        self.collect()?;
        self.await_equal("at the end", &[])
    }

    fn sabotage(&mut self) -> Result<()> {
        let event = Event::AddEntry {
            port: 0,
            mac: frame::host(1),
            vlan: 0,
            kind: EntryKind::Static,
        };
        self.sides[0].apply(&event)?.context("cannot sabotage")
    }

    fn event(&mut self, event: &Event) -> Result<(), Stop> {
        if self.events.len() == LAST_EVENTS {
            self.events.pop_front();
        }
        self.events
            .push_back(format!("step {}: {event:?}", self.sums.steps));
        self.sums.events += 1;
        self.known.clear();
        self.revive()?;
        let [first, second] = &mut self.sides;
        let errors = [first.apply(event)?, second.apply(event)?]
            .map(|result| result.err().map(|error| error.to_string()));
        if errors[0] != errors[1] {
            let [first, second] = errors.map(|error| error.unwrap_or_else(|| "no error".into()));
            let text = format!("the event {event:?} had different results: {first}; {second}");
            return Err(self.stop(&text, &[]));
        }
        self.await_states()?;
        match *event {
            Event::Hook(port, hook) => self.hooks[port] = hook,
            Event::Attach => self.attach()?,
            Event::Bridge(BridgeSetting::VlanFiltering(on)) => self.is_vlan_aware = on,
            Event::Silence(on) => self.silence(on)?,
            Event::Kill => self.kill()?,
            Event::Age => self.age()?,
            Event::Port(
                port,
                PortSetting::Flag(Flag::Learning | Flag::Locked, _) | PortSetting::State(_),
            ) => {
                self.odd_ports.insert(port);
            }
            _ => {}
        }
        self.settle()?;
        if self.options.mode != Mode::Sabotaged {
            self.compare_entries()?;
        }
        Ok(())
    }

    /// A shorter time where a difference is expected.
    fn patience(&self) -> Duration {
        match self.options.mode {
            Mode::Plain | Mode::Accelerated => PATIENCE,
            Mode::Sabotaged | Mode::Broken(_) => PATIENCE / 4,
        }
    }

    fn attach(&mut self) -> Result<()> {
        if matches!(self.options.mode, Mode::Plain | Mode::Sabotaged) {
            return Ok(());
        }
        let broken = self.options.mode.defect();
        // The old one detaches first.
        self.accelerator = None;
        self.is_silent = false;
        self.attached.clone_from(&self.hooks);
        self.start(broken)
    }

    fn start(&mut self, broken: Option<&str>) -> Result<()> {
        let keep = self.outliving.keep()?;
        let inside = self.sides[0].inside();
        let accelerator = Accelerator::attach(inside, &self.attached, broken, &keep);
        self.accelerator = Some(accelerator.context("cannot attach to the bridge")?);
        Ok(())
    }

    /// A daemon that is killed.
    fn kill(&mut self) -> Result<()> {
        if let Some(accelerator) = self.accelerator.take() {
            accelerator.leave()?;
            self.is_killed = true;
        }
        Ok(())
    }

    /// Starts the daemon again that was killed.
    fn revive(&mut self) -> Result<()> {
        if std::mem::take(&mut self.is_killed) {
            self.is_silent = false;
            self.start(self.options.mode.defect())
                .context("cannot attach again after a kill")?;
            self.settle()?;
        }
        Ok(())
    }

    /// A daemon that hangs: the programs leave all frames to the kernel once they have noticed.
    fn silence(&mut self, on: bool) -> Result<()> {
        let Some(accelerator) = &self.accelerator else {
            return Ok(());
        };
        accelerator.silence(on)?;
        self.is_silent = on;
        if on {
            // Their clock has steps of some milliseconds.
            std::thread::sleep(LIFE + Duration::from_millis(50));
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        match &self.accelerator {
            Some(accelerator) if !self.is_silent => accelerator
                .settle()
                .context("the accelerator does not settle"),
            _ => Ok(()),
        }
    }

    /// Waits for what the kernel does of its own after a change: carriers, states of ports.
    fn await_states(&mut self) -> Result<(), Stop> {
        let until = Instant::now() + self.patience() * 2;
        loop {
            let [first, second] = &mut self.sides;
            let (first, second) = (first.states()?, second.states()?);
            if first.0 && second.0 && first.1 == second.1 {
                return Ok(());
            }
            if Instant::now() > until {
                let text = format!("the states of the ports differ: {first:?}; {second:?}");
                return Err(self.stop(&text, &[]));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets addresses age in both bridges while some of them talk: these stay, and the others go.
    fn age(&mut self) -> Result<(), Stop> {
        if self.is_vlan_aware || self.is_silent {
            return Ok(());
        }
        let speakers = self.speakers()?;
        self.set_ageing(AGEING)?;
        let begin = Instant::now();
        loop {
            let stays = |entry: &Entry| speakers.iter().any(|(mac, _)| *mac == entry.mac);
            let is_over = begin.elapsed() > AGEING_TIME * 2;
            if is_over
                && (0..2).all(|side| self.ageing(side).is_ok_and(|all| all.iter().all(stays)))
            {
                break;
            }
            if begin.elapsed() > AGEING_TIME * 4 + PATIENCE {
                return Err(self.stop("addresses that are silent do not age", &[]));
            }
            for (from, to) in speakers.iter().zip(speakers.iter().cycle().skip(1)) {
                self.say(*from, to.0)?;
            }
            std::thread::sleep(AGEING_TIME / 40);
        }
        self.set_ageing(LONG_AGE)?;
        self.known.clear();
        Ok(())
    }

    fn set_ageing(&mut self, time: u32) -> Result<()> {
        let event = Event::Bridge(BridgeSetting::AgeingTime(time));
        for side in &mut self.sides {
            side.apply(&event)?.context("cannot set the ageing time")?;
        }
        self.settle()
    }

    /// One address at each port that the kernel learns from, with the port's place, if there are two.
    fn speakers(&mut self) -> Result<Vec<(Mac, usize)>> {
        let mut found: BTreeMap<usize, Mac> = BTreeMap::new();
        for entry in self.ageing(1)? {
            let port = self.sides[1].port_of(entry.device);
            let port = port.filter(|port| {
                self.sides[1].ports[*port].is_live && !self.odd_ports.contains(port)
            });
            if let Some(port) = port.filter(|_| frame::is_host(entry.mac)) {
                found.insert(port, entry.mac);
            }
        }
        let speakers: Vec<(Mac, usize)> =
            found.into_iter().map(|(port, mac)| (mac, port)).collect();
        Ok(if speakers.len() > 1 {
            speakers
        } else {
            Vec::new()
        })
    }

    /// The entries that age, but for those of marks.
    fn ageing(&mut self, side: usize) -> Result<Vec<Entry>> {
        let entries = self.sides[side].entries()?.into_iter();
        Ok(entries
            .filter(|entry| entry.ages() && !frame::is_marker(entry.mac))
            .collect())
    }

    fn say(&mut self, (from, port): (Mac, usize), to: Mac) -> Result<(), Stop> {
        self.said += 1;
        // Above all numbers of the plan, which must not depend on the time that this takes.
        let number = self.seed << 32 | 1 << 31 | self.said;
        let bytes = frame::plain(to, from, number, &mut Random::new(number));
        self.send(vec![Input { port, bytes }])
    }

    /// Sends a burst and compares the outputs. Frames from several ports may come to the bridge in
    /// another order than they were sent, so they are sent together only if that makes no
    /// difference.
    fn burst(&mut self, burst: Vec<Input>) -> Result<(), Stop> {
        let mut group = Vec::new();
        let mut ports = HashSet::new();
        let mut are_known = true;
        for input in burst {
            let is_known = self.is_known(&input);
            let is_alone = ports.is_empty() || (ports.len() == 1 && ports.contains(&input.port));
            if !(is_alone || (are_known && is_known)) {
                self.send(std::mem::take(&mut group))?;
                ports.clear();
                are_known = true;
            }
            are_known &= is_known;
            ports.insert(input.port);
            group.push(input);
        }
        self.send(group)
    }

    /// The same where the order is free: frames with which the bridge learns come first, by port.
    fn free_burst(&mut self, burst: Vec<Input>) -> Result<(), Stop> {
        let (known, mut new): (Vec<_>, Vec<_>) =
            burst.into_iter().partition(|input| self.is_known(input));
        new.sort_by_key(|input| input.port);
        self.burst(new)?;
        self.burst(known)
    }

    /// All that learning depends on.
    fn key(&self, input: &Input) -> Key {
        let bytes = &input.bytes;
        let is_control = frame::destination(bytes)[..5] == frame::CONTROL[..5];
        let (ethertype, tci) = frame::tag(bytes);
        let tag = if self.is_vlan_aware {
            (ethertype, tci & 0xfff)
        } else {
            (0, 0)
        };
        (frame::source(bytes), tag, is_control, input.port)
    }

    fn is_known(&self, input: &Input) -> bool {
        self.known.contains(&self.key(input))
    }

    /// Sends a part of a burst, waits until both bridges have done with it, and compares.
    fn send(&mut self, group: Vec<Input>) -> Result<(), Stop> {
        if group.is_empty() {
            return Ok(());
        }
        for input in &group {
            let results = [0, 1].map(|side| {
                let sent = self.sides[side].send(input.port, &input.bytes);
                sent.err().map(|error| error.to_string())
            });
            if results[0] != results[1] {
                let text = format!("sending had different results: {results:?}");
                return Err(self.stop(&text, std::slice::from_ref(input)));
            }
        }
        self.sums.frames += group.len() as u64;
        let ports: HashSet<usize> = group.iter().map(|input| input.port).collect();
        self.await_marks(&ports, &group)?;
        self.await_equal("", &group)?;
        self.count_reordered(&group);
        self.outputs.clear();
        let needs_settling = group.iter().any(|input| {
            let hook = self.attached.get(input.port);
            !self.is_known(input) && !matches!(hook, Some(Hook::Xdp | Hook::Tcx))
        });
        for input in group {
            let key = self.key(&input);
            // The kernel drops some that are too short or too long before it learns from them.
            let is_learned = SURE.contains(&input.bytes.len());
            if is_learned && !self.known.contains(&key) {
                self.known
                    .retain(|known| known.0 != key.0 || known.3 == key.3);
                self.known.insert(key);
            }
            self.remember(input);
        }
        if needs_settling {
            self.revive()?;
            self.settle()?;
        }
        Ok(())
    }

    fn remember(&mut self, input: Input) {
        if self.frames.len() == LAST_FRAMES {
            self.frames.pop_front();
        }
        self.frames.push_back(Sent {
            step: self.sums.steps,
            group: self.marks,
            port: input.port,
            bytes: input.bytes,
        });
    }

    /// Sends a mark after the frames of each of these ports, and when all have come to the bridge,
    /// one from each port to its far end. The frames before them are where they go by then: all are
    /// handled on this thread's CPU, in their order.
    fn await_marks(&mut self, from: &HashSet<usize>, group: &[Input]) -> Result<(), Stop> {
        self.marks += 1;
        let number = self.marks;
        let mut missing = HashSet::new();
        for (at, side) in self.sides.iter().enumerate() {
            for &port in from {
                if side.ports.get(port).is_some_and(|port| port.is_live) {
                    side.send(port, &frame::mark(frame::marker(port), number))?;
                    missing.insert((at, port));
                }
            }
        }
        self.await_each(
            missing,
            "did not come to the bridge",
            group,
            |round, at, port| {
                let mut is_there = false;
                round.sides[at].drain_control(port, &mut round.batch, |bytes| {
                    is_there |= frame::mark_number(&bytes) == Some(number);
                })?;
                Ok(is_there)
            },
        )?;
        let mut missing = HashSet::new();
        for (at, side) in self.sides.iter().enumerate() {
            for (number_of_port, port) in side.ports.iter().enumerate() {
                if port.is_live {
                    side.send_out(
                        number_of_port,
                        &frame::mark(frame::port(number_of_port), number),
                    )?;
                    missing.insert((at, number_of_port));
                }
            }
        }
        self.await_each(
            missing,
            "did not come to the far end",
            group,
            |round, at, port| round.collect_from(at, port, number),
        )?;
        // The host has no mark: all that comes to it has come.
        for at in 0..2 {
            let host = self.sides[at].ports.len();
            self.collect_from(at, host, number)?;
        }
        Ok(())
    }

    fn await_each(
        &mut self,
        mut missing: HashSet<(usize, usize)>,
        what: &str,
        group: &[Input],
        mut is_there: impl FnMut(&mut Self, usize, usize) -> Result<bool>,
    ) -> Result<(), Stop> {
        let mut until = Instant::now() + self.patience();
        loop {
            let mut still = HashSet::new();
            for &(side, port) in &missing {
                if !is_there(self, side, port)? {
                    still.insert((side, port));
                }
            }
            if still.len() < missing.len() {
                until = Instant::now() + self.patience();
            }
            missing = still;
            if missing.is_empty() {
                return Ok(());
            }
            if Instant::now() > until {
                let name = |(side, port): &(usize, usize)| {
                    format!("port {port} {}", self.sides[*side].name)
                };
                let ports: Vec<String> = missing.iter().map(name).collect();
                let text = format!("the mark after the frames {what}: {}", ports.join(", "));
                return Err(self.stop(&text, group));
            }
            self.wait()?;
        }
    }

    /// Waits until a socket has something, for a moment at most.
    fn wait(&self) -> Result<()> {
        let sockets = self.sides.iter().flat_map(Side::sockets);
        let mut sockets: Vec<_> = sockets
            .map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN))
            .collect();
        let moment = Timespec {
            tv_sec: 0,
            tv_nsec: 2_000_000,
        };
        poll(&mut sockets, Some(&moment))?;
        Ok(())
    }

    /// Takes what has come out of a port; whether the mark with this number is among it.
    fn collect_from(&mut self, side: usize, port: usize, number: u64) -> Result<bool> {
        let mut is_there = false;
        let sign = if side == 0 { 1 } else { -1 };
        let (difference, outputs) = (&mut self.difference, &mut self.outputs);
        let background = &mut self.sums.background;
        self.sides[side].drain(port, &mut self.batch, |bytes| {
            if let Some(mark) = frame::mark_number(&bytes) {
                is_there |= mark == number;
                return;
            }
            if is_background(&bytes) {
                *background += 1;
                return;
            }
            outputs.push(Output {
                side,
                port,
                bytes: bytes.clone(),
            });
            let key = (port, bytes);
            let count = difference.entry(key.clone()).or_default();
            *count += sign;
            if *count == 0 {
                difference.remove(&key);
            }
        })?;
        Ok(is_there)
    }

    fn collect(&mut self) -> Result<()> {
        for side in 0..2 {
            for port in 0..=self.sides[side].ports.len() {
                self.collect_from(side, port, 0)?;
            }
        }
        Ok(())
    }

    /// Waits until the outputs are equal.
    fn await_equal(&mut self, what: &str, group: &[Input]) -> Result<(), Stop> {
        if self.difference.is_empty() {
            self.sums.outputs += self.outputs.len() as u64 / 2;
            return Ok(());
        }
        let mut until = Instant::now() + self.patience();
        let mut seen = self.outputs.len();
        loop {
            self.wait()?;
            self.collect()?;
            if self.difference.is_empty() {
                self.sums.late += 1;
                self.sums.outputs += self.outputs.len() as u64 / 2;
                return Ok(());
            }
            if self.outputs.len() > seen {
                seen = self.outputs.len();
                until = Instant::now() + self.patience();
            }
            if Instant::now() > until {
                let text = format!("the outputs differ {what}");
                return Err(self.stop(&text, group));
            }
        }
    }

    /// Counts, by side, the frames that came before one that was sent earlier between the same
    /// ports and addresses.
    fn count_reordered(&mut self, group: &[Input]) {
        let mut sent = HashMap::new();
        for (at, input) in group.iter().enumerate() {
            if let Some(number) = frame::number(&input.bytes) {
                sent.insert(number, (at, input.port));
            }
        }
        let mut latest = HashMap::new();
        for output in &self.outputs {
            let number = frame::number(&output.bytes);
            let Some(&(at, from)) = number.and_then(|number| sent.get(&number)) else {
                continue;
            };
            let addresses = (
                frame::source(&output.bytes),
                frame::destination(&output.bytes),
            );
            let latest = latest
                .entry((output.side, from, output.port, addresses))
                .or_insert(at);
            if at < *latest {
                self.sums.reordered[output.side] += 1;
            }
            *latest = at.max(*latest);
        }
    }

    fn compare_entries(&mut self) -> Result<(), Stop> {
        self.settle()?;
        let entries = [self.entries_in_words(0)?, self.entries_in_words(1)?];
        if entries[0] == entries[1] {
            return Ok(());
        }
        // The last frame may still be on its way.
        Err(self.stop("the forwarding databases differ", &[]))
    }

    fn entries_in_words(&mut self, side: usize) -> Result<BTreeMap<String, String>> {
        let entries = self.sides[side].entries()?;
        let side = &self.sides[side];
        let words = |entry: &crate::netlink::Entry| {
            let port = match side.port_of(entry.device) {
                Some(port) => format!("port {port}"),
                None if entry.device == side.bridge => BRIDGE.into(),
                None => "no port".into(),
            };
            let sticky = if entry.sticky { " sticky" } else { "" };
            (
                format!("{} VLAN {} {port}", frame::mac(entry.mac), entry.vlan),
                format!("state {:#x}{sticky}", entry.state),
            )
        };
        Ok(entries.iter().map(words).collect())
    }

    /// The report of a difference.
    fn stop(&mut self, what: &str, group: &[Input]) -> Stop {
        match self.report(what, group) {
            Ok(text) => Stop::Difference(text),
            Err(error) => Stop::Error(error.context(format!("cannot report that {what}"))),
        }
    }

    fn report(&mut self, what: &str, group: &[Input]) -> Result<String> {
        let mut text = format!("seed {}, step {}: {what}\n", self.seed, self.sums.steps);
        writeln!(
            text,
            "ports: {:?}, hooks {:?}",
            self.plan.setup(),
            self.hooks
        )?;
        writeln!(text, "last events:")?;
        for event in &self.events {
            writeln!(text, "  {event}")?;
        }
        writeln!(text, "would be taken back: {:?}", self.plan.pending())?;
        self.report_frames(group, &mut text)?;
        self.report_history(group, &mut text)?;
        self.report_entries(&mut text)?;
        for side in &mut self.sides {
            let name = side.name;
            let states: Vec<_> = side.states()?.1;
            writeln!(text, "states of the ports, {name}: {states:?}")?;
        }
        if let Some(accelerator) = &self.accelerator {
            let status = accelerator.status();
            writeln!(
                text,
                "status: {}",
                status.unwrap_or_else(|error| format!("{error:#}"))
            )?;
        }
        Ok(text)
    }

    /// The latest frames from the addresses of the frames whose outputs differ.
    fn report_history(&self, group: &[Input], text: &mut String) -> Result<()> {
        let keys = self.difference.keys();
        let macs: HashSet<Mac> = keys
            .flat_map(|(_, bytes)| [frame::source(bytes), frame::destination(bytes)])
            .collect();
        for mac in macs {
            writeln!(text, "the latest frames from {}:", frame::mac(mac))?;
            for (at, input) in group.iter().enumerate() {
                if frame::source(&input.bytes) == mac {
                    writeln!(
                        text,
                        "  now, {}: port {}: {}",
                        at + 1,
                        input.port,
                        frame::describe(&input.bytes)
                    )?;
                }
            }
            let sent = self.frames.iter().rev();
            for sent in sent
                .filter(|sent| frame::source(&sent.bytes) == mac)
                .take(6)
            {
                let Sent {
                    step,
                    group,
                    port,
                    bytes,
                } = sent;
                writeln!(
                    text,
                    "  step {step}, part {group} of {}: port {port}: {}",
                    self.marks,
                    frame::describe(bytes)
                )?;
            }
        }
        Ok(())
    }

    /// The entries that are not equal, and those of the addresses that the report has so far.
    fn report_entries(&mut self, text: &mut String) -> Result<()> {
        let above = text.clone();
        for at in 0..2 {
            let name = self.sides[at].name;
            writeln!(text, "forwarding database, {name}, as far as it matters:")?;
            let other = self.entries_in_words(1 - at)?;
            for (entry, state) in self.entries_in_words(at)? {
                let is_equal = other.get(&entry) == Some(&state);
                let mac = entry.split(' ').next().unwrap_or_default();
                if !is_equal || above.contains(mac) {
                    let mark = if is_equal { " " } else { "*" };
                    writeln!(text, "  {mark} {entry} {state}")?;
                }
            }
        }
        Ok(())
    }

    /// Each frame whose outputs differ, with its outputs.
    fn report_frames(&self, group: &[Input], text: &mut String) -> Result<()> {
        let mut reported = HashSet::new();
        for (_, bytes) in self.difference.keys() {
            let number = frame::number(bytes);
            if !reported.insert(number.map_or_else(|| Err(bytes.clone()), Ok)) || reported.len() > 8
            {
                continue;
            }
            let is_same = |other: &[u8]| {
                other == &bytes[..] || (number.is_some() && frame::number(other) == number)
            };
            let position = group.iter().position(|input| is_same(&input.bytes));
            let earlier = self.frames.iter().rev().find(|sent| is_same(&sent.bytes));
            match (position, earlier) {
                (Some(at), _) => {
                    let input = &group[at];
                    writeln!(
                        text,
                        "frame {} of {} from port {}: {}",
                        at + 1,
                        group.len(),
                        input.port,
                        frame::describe(&input.bytes)
                    )?;
                    writeln!(text, "  {}", frame::hex(&input.bytes))?;
                }
                (None, Some(Sent { port, bytes, .. })) => {
                    writeln!(
                        text,
                        "an earlier frame, from port {port}: {}",
                        frame::describe(bytes)
                    )?;
                    writeln!(text, "  {}", frame::hex(bytes))?;
                }
                (None, None) => writeln!(
                    text,
                    "a frame that nobody sent: {}\n  {}",
                    frame::describe(bytes),
                    frame::hex(bytes)
                )?,
            }
            for (side, name) in self.sides.iter().map(|side| side.name).enumerate() {
                let came = self
                    .outputs
                    .iter()
                    .filter(|output| output.side == side && is_same(&output.bytes));
                let came: Vec<String> = came
                    .map(|output| {
                        format!("port {} {}", output.port, frame::describe(&output.bytes))
                    })
                    .collect();
                writeln!(
                    text,
                    "  {name}: {}",
                    if came.is_empty() {
                        "nothing".into()
                    } else {
                        came.join("; ")
                    }
                )?;
            }
        }
        if reported.is_empty() {
            for input in group.iter().take(8) {
                writeln!(
                    text,
                    "frame from port {}: {}\n  {}",
                    input.port,
                    frame::describe(&input.bytes),
                    frame::hex(&input.bytes)
                )?;
            }
        }
        Ok(())
    }
}

/// Frames of the kernel's own, which have no number and come from the bridge itself: reports of
/// the groups that a snooping bridge is in.
fn is_background(bytes: &[u8]) -> bool {
    bytes.len() >= frame::HEADER
        && frame::number(bytes).is_none()
        && frame::source(bytes)[..5] == frame::bridge(0)[..5]
        && frame::destination(bytes)[0] & 1 == 1
}
