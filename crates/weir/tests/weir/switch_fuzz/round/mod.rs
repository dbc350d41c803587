//! One seed: two bridges, from their first event to the last comparison.

mod ageing;
mod daemon;
mod exchange;
mod report;
mod storm;

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use anyhow::{Context as _, Result};
use testkit::{Batch, Limit};

use crate::switch_fuzz::accelerate::{Accelerator, Outliving};
use crate::switch_fuzz::event::{Event, Hook};
use crate::switch_fuzz::frame::{self, Mac};
use crate::switch_fuzz::fuzz::{End, Mode, Options, Sums};
use crate::switch_fuzz::netlink::{BridgeSetting, EntryKind, Flag, PortSetting};
use crate::switch_fuzz::plan::{Features, Plan, Step};
use crate::switch_fuzz::side::Side;

/// Without any progress for so long, whatever is missing does not come.
const PATIENCE: Duration = Duration::from_secs(4);
/// Steps from one comparison of the forwarding databases to the next.
const BETWEEN_ENTRIES: u64 = 16;
/// Events that a report lists.
const LAST_EVENTS: usize = 12;

pub enum Stop {
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
pub struct Round<'a> {
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
    /// Ports that have been in hairpin mode.
    hairpins: HashSet<usize>,
    hooks: Vec<Hook>,
    /// The hooks of the last attach.
    attached: Vec<Hook>,
    batch: Batch,
    pub sums: Sums,
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
    pub fn new(options: &'a Options<'a>, seed: u64, features: Features) -> Result<Self> {
        let plan = Plan::new(seed, options.ports, features, options.mode.defect());
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
            hairpins: HashSet::new(),
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

    pub fn run(
        &mut self,
        steps: u64,
        end: &mut End,
        mut show: impl FnMut(&Sums),
    ) -> Result<(), Stop> {
        self.await_states()?;
        for event in self.plan.first() {
            self.event(&event)?;
        }
        for step in 0..steps {
            if end.is_there() {
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
                Step::Storm(event, bursts) => self.storm(&event, bursts)?,
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
        self.change(event)?;
        self.settle()?;
        if self.options.mode != Mode::Sabotaged {
            self.compare_entries()?;
        }
        Ok(())
    }

    /// Makes a change in both bridges.
    fn change(&mut self, event: &Event) -> Result<(), Stop> {
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
            Event::Port(port, setting) => self.note(port, setting),
            _ => {}
        }
        Ok(())
    }

    /// Notes the settings of ports that comparisons depend on.
    fn note(&mut self, port: usize, setting: PortSetting) {
        match setting {
            PortSetting::Flag(Flag::Learning | Flag::Locked, _) | PortSetting::State(_) => {
                self.odd_ports.insert(port);
            }
            PortSetting::Flag(Flag::Hairpin, _) => {
                self.hairpins.insert(port);
            }
            _ => {}
        }
    }

    /// A shorter time where a difference is expected.
    fn patience(&self) -> Duration {
        match self.options.mode {
            Mode::Plain | Mode::Accelerated => PATIENCE,
            Mode::Sabotaged | Mode::Broken(_) => PATIENCE / 4,
        }
    }

    /// Waits for what the kernel does of its own after a change: carriers, states of ports.
    fn await_states(&mut self) -> Result<(), Stop> {
        let mut limit = Limit::new(self.patience() * 2);
        loop {
            let [first, second] = &mut self.sides;
            let (first, second) = (first.states()?, second.states()?);
            if first.0 && second.0 && first.1 == second.1 {
                return Ok(());
            }
            if limit.is_over() {
                let text = format!("the states of the ports differ: {first:?}; {second:?}");
                return Err(self.stop(&text, &[]));
            }
            std::thread::sleep(Duration::from_millis(1));
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
}
