//! One run after another: processes started, heard, ended, and their numbers compared.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::thread::{CapabilitySet, capabilities};

use super::check::{Check, Counted};
use super::plan::{Combination, Plan};
use crate::engine::bench::Bench;
use crate::engine::protocol::{Event, Totals};
use crate::engine::worker::WorkerArgs;
use crate::engine::{Engine, Mode};
use crate::lab::{Lab, Side};
use crate::process::child::{Child, START, own_command};
use crate::process::stop::StopSignal;
use crate::traffic::load::{LoadArgs, LoadEvent};
use crate::traffic::programs::{Sink, SinkCounts};
use crate::traffic::rate::Rate;
use hostnet::device::{Counters, Device};

/// The longest that packets, or the end of a window, may stay away.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest that a process takes to end. A worker drains for 10 seconds at most.
const END: Duration = Duration::from_secs(15);

/// Where the packets are.
pub enum Place {
    /// In a network of our own.
    Lab(Box<Lab>),
    /// On a queue of a device of this host, where others are responsible for traffic.
    Device {
        /// The device's name.
        name: String,
        /// The queue.
        queue: u32,
        /// The device.
        device: Device,
    },
}

/// What is the same for all runs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Frame length without the FCS.
    pub size: u16,
    /// Frames a second that the load offers; `None` for as many as it can.
    pub pps: Option<Rate>,
    /// Time from the first packet to the window.
    pub warmup: Duration,
    /// Time that is measured.
    pub window: Duration,
    /// Packets handled at once, at most.
    pub batch: u32,
    /// Packets in a turn, where load and engine take turns: see [`count`](super::count).
    pub turn: Option<u32>,
    /// Whether rxdrop reads payloads.
    pub verify: bool,
    /// The CPU of the load, and of the kernel's side of receiving it.
    pub load_cpu: usize,
    /// The CPU of the engine.
    pub app_cpu: usize,
}

impl Settings {
    /// About how long a run takes: measuring, and what is around it.
    pub fn duration(&self) -> Duration {
        const AROUND: Duration = Duration::from_millis(250);
        self.warmup + self.window + AROUND
    }
}

/// What one run gave.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The mode that the kernel reports.
    pub mode_obtained: Option<Mode>,
    /// Better modes that were tried first, with reasons.
    pub refusals: Vec<String>,
    /// Packets handled in the window.
    pub packets: u64,
    /// The window's true length.
    pub seconds: f64,
    /// The engine's thread in user mode.
    pub user_ns: u64,
    /// The engine's thread in the kernel.
    pub sys_ns: u64,
    /// Whether the numbers add up.
    pub check: Check,
}

/// How a run ended that was no failure.
#[derive(Debug)]
pub enum Outcome<T> {
    /// With figures.
    Measured(T),
    /// The device or its driver does not offer the mode.
    Refused {
        /// The error number.
        errno: i32,
        /// Why.
        reason: String,
    },
}

/// Measures combinations in one place, one at a time.
pub struct Runner<'a> {
    /// Where.
    pub place: &'a Place,
    /// How.
    pub settings: &'a Settings,
    /// Until when.
    pub stop: &'a StopSignal,
}

/// The processes of a run.
pub(super) struct Running<'a> {
    before: BothSides,
    sink: Option<Child<'a>>,
    /// The engine's.
    pub(super) worker: Child<'a>,
    /// In a lab, if the bench receives.
    pub(super) load: Option<Child<'a>>,
    /// The mode that the kernel reports.
    pub(super) mode_obtained: Option<Mode>,
    refusals: Vec<String>,
}

impl<'a> Runner<'a> {
    /// Measures one combination.
    pub fn measure(&self, combination: Combination) -> Result<Outcome<Box<Measured>>> {
        let mut running = match self.begin(combination)? {
            Outcome::Measured(running) => running,
            Outcome::Refused { errno, reason } => return Ok(Outcome::Refused { errno, reason }),
        };
        let Some(window) = running.worker.event(self.longest_window())? else {
            // A load that failed is the reason, and says itself why.
            let load = running.load.map(end_load).transpose()?;
            let sent = load.map_or(0, |(sent, _)| sent);
            bail!("{}", self.explain_silence(running.worker, sent)?);
        };
        let Event::Window {
            packets,
            seconds,
            user_ns,
            sys_ns,
        } = window
        else {
            return Err(failed(window));
        };
        let mode_obtained = running.mode_obtained;
        let refusals = std::mem::take(&mut running.refusals);
        Ok(Outcome::Measured(Box::new(Measured {
            mode_obtained,
            refusals,
            packets,
            seconds,
            user_ns,
            sys_ns,
            check: self.end(combination.bench, running)?,
        })))
    }

    fn lab(&self) -> Option<&'a Lab> {
        match self.place {
            Place::Lab(lab) => Some(lab.as_ref()),
            Place::Device { .. } => None,
        }
    }

    /// Starts the processes of a run: its load last, so that nothing comes too early.
    pub(super) fn begin(&self, combination: Combination) -> Result<Outcome<Running<'a>>> {
        let receives = combination.bench != Bench::Txpush;
        let sends = combination.bench != Bench::Rxdrop;
        let before = self.counters()?;
        let lab = self.lab();
        // Two processes, so that the sink outlives the load: what the load sent last is still
        // on its way back when it ends.
        let sink = match lab {
            Some(lab) if sends => Some(self.start_sink(lab.load(), Sink::Verify)?),
            _ => None,
        };
        let mut worker = self.start_worker(combination)?;
        let (mode_obtained, refusals) = match worker.expect(START)? {
            Event::Ready {
                mode_obtained,
                refusals,
            } => (mode_obtained, refusals),
            event => return self.refusal(combination, event),
        };
        let load = match lab {
            Some(lab) if receives => Some(self.start_load(lab.load())?),
            _ => None,
        };
        Ok(Outcome::Measured(Running {
            before,
            sink,
            worker,
            load,
            mode_obtained,
            refusals,
        }))
    }

    /// Ends the processes of a run, and compares their counts with those of the devices.
    pub(super) fn end(&self, bench: Bench, running: Running<'_>) -> Result<Check> {
        let Running {
            before,
            sink,
            worker,
            load,
            ..
        } = running;
        let load_sent = load.map(end_load).transpose()?.map(|(sent, _)| sent);
        let engine = end_worker(worker)?;
        let sink = sink.map(end_load).transpose()?.and_then(|(_, sink)| sink);
        let after = self.counters()?;
        let lab = self.lab();
        let counted = Counted {
            load_sent,
            device: after.app.since(&before.app),
            device_queue_full: lab.map(|_| after.load.since(&before.load).tx_dropped),
            engine,
            sink,
        };
        Ok(match lab {
            Some(_) => Check::in_lab(bench, counted),
            None => Check::on_device(bench, counted),
        })
    }

    fn longest_window(&self) -> Duration {
        self.settings.warmup + self.settings.window + PATIENCE
    }

    fn start_worker(&self, combination: Combination) -> Result<Child<'a>> {
        let settings = self.settings;
        let (dev, queue) = match self.place {
            Place::Lab(lab) => (lab.app().device.clone(), 0),
            Place::Device { name, queue, .. } => (name.clone(), *queue),
        };
        let args = WorkerArgs {
            engine: combination.engine,
            bench: combination.bench,
            dev,
            queue,
            mode: combination.mode,
            wait: combination.wait,
            size: settings.size.into(),
            batch: settings.batch,
            warmup_ms: settings.warmup.as_millis() as u64,
            window_ms: settings.window.as_millis() as u64,
            turn: settings.turn,
            cpu: settings.app_cpu as u32,
            verify: settings.verify,
        };
        let mut command = own_command("bench-worker");
        command.args(args.to_words());
        self.start("worker", command, |command| match self.place {
            Place::Lab(lab) => lab.app().spawn(command),
            Place::Device { .. } => command.spawn().context("cannot start a worker"),
        })
    }

    /// Starts a process, one that can be told whose turn it is if there are turns.
    fn start(
        &self,
        name: &'static str,
        command: Command,
        spawn: impl FnOnce(&mut Command) -> Result<std::process::Child>,
    ) -> Result<Child<'a>> {
        match self.settings.turn {
            Some(_) => Child::start_listening(name, command, self.stop, spawn),
            None => Child::start(name, command, self.stop, spawn),
        }
    }

    /// Starts the load on its side of the lab.
    pub(super) fn start_load(&self, side: &Side) -> Result<Child<'a>> {
        let load = LoadArgs {
            pps: self.settings.pps,
            turn: self.settings.turn,
            ..self.load_args(side)
        };
        load.start(self.stop, |command| side.spawn(command))
    }

    /// Starts a sink, which sends nothing, on a side of the lab.
    pub(super) fn start_sink(&self, side: &Side, sink: Sink) -> Result<Child<'a>> {
        let load = LoadArgs {
            no_load: true,
            sink: Some(sink),
            ..self.load_args(side)
        };
        load.start(self.stop, |command| side.spawn(command))
    }

    fn load_args(&self, side: &Side) -> LoadArgs {
        LoadArgs {
            size: self.settings.size.into(),
            ..LoadArgs::new(&side.device, self.settings.load_cpu)
        }
    }

    /// A first event that is not `ready`: the mode is not to be had, or something is wrong.
    fn refusal<T>(&self, combination: Combination, event: Event) -> Result<Outcome<T>> {
        let Event::Failed {
            step,
            errno,
            message,
        } = event
        else {
            return Err(failed(event));
        };
        let is_refusal = matches!(combination.mode, Some(Mode::Drv | Mode::Zc))
            && (errno == libc::EOPNOTSUPP || errno == ENOTSUPP);
        if !is_refusal {
            bail!("{}", failure(&step, errno, &message));
        }
        let place = match self.place {
            Place::Lab(_) => " (a veth pair)",
            Place::Device { .. } => "",
        };
        Ok(Outcome::Refused {
            errno,
            reason: format!("{}{place}", failure(&step, errno, &message)),
        })
    }

    /// Why there was no window, though the load, if there was one, ran and ended well.
    fn explain_silence(&self, worker: Child<'_>, load_sent: u64) -> Result<String> {
        let seconds = self.longest_window().as_secs_f64();
        let totals = end_worker(worker)?;
        let handled = totals.received + totals.sent + totals.kernel_drops;
        Ok(match self.place {
            _ if handled > 0 => {
                format!(
                    "packets came, but the measuring was not over after {seconds} s: {totals:?}"
                )
            }
            Place::Lab(_) => format!(
                "no packet came within {seconds} s, though the load sent {load_sent}: a defect of weir or of this kernel"
            ),
            Place::Device { name, queue, .. } => format!(
                "no packet came within {seconds} s: does anyone send to {name} (`ip -s link show dev {name}`), \
                 and does it arrive on queue {queue} (`ethtool -S {name}`; `ethtool -X {name} equal 1` or \
                 `ethtool -N` steers it there)?"
            ),
        })
    }

    fn counters(&self) -> Result<BothSides> {
        Ok(match self.place {
            Place::Lab(lab) => BothSides {
                app: lab.app().counters()?,
                load: lab.load().counters()?,
            },
            Place::Device { device, .. } => BothSides {
                app: device.counters()?,
                load: Counters::default(),
            },
        })
    }
}

struct BothSides {
    app: Counters,
    load: Counters,
}

/// What some drivers answer instead of EOPNOTSUPP: an error of the kernel's inside.
const ENOTSUPP: i32 = 524;

/// One sentence for what a worker says of its failure.
fn failure(step: &str, errno: i32, message: &str) -> String {
    match errno_name(errno) {
        Some(name) if !message.contains(name) => format!("{step}: {name}: {message}"),
        _ => format!("{step}: {message}"),
    }
}

/// The names that people search for.
fn errno_name(errno: i32) -> Option<&'static str> {
    Some(match errno {
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        ENOTSUPP => "ENOTSUPP",
        libc::EBUSY => "EBUSY",
        libc::EPERM => "EPERM",
        libc::EINVAL => "EINVAL",
        libc::ENODEV => "ENODEV",
        libc::ENETDOWN => "ENETDOWN",
        libc::ENOMEM => "ENOMEM",
        libc::ENOBUFS => "ENOBUFS",
        _ => return None,
    })
}

/// The error for an event that is not the one expected.
pub(super) fn failed(event: Event) -> anyhow::Error {
    match event {
        Event::Failed {
            step,
            errno,
            message,
        } => anyhow::anyhow!("{}", failure(&step, errno, &message)),
        event => anyhow::anyhow!("the worker said {event:?} at the wrong time"),
    }
}

fn end_worker(mut worker: Child<'_>) -> Result<Totals> {
    worker.terminate();
    loop {
        match worker.expect(END)? {
            Event::Done(totals) => {
                worker.wait()?;
                return Ok(totals);
            }
            // It was under way already.
            Event::Window { .. } => {}
            event => return Err(failed(event)),
        }
    }
}

/// Ends a load or a sink: frames sent, and what the sink received.
pub(super) fn end_load(mut load: Child<'_>) -> Result<(u64, Option<SinkCounts>)> {
    load.terminate();
    match load.expect(END)? {
        LoadEvent::Done { sent, sink } => {
            load.wait()?;
            Ok((sent, sink))
        }
        event => bail!("the load said {event:?} at its end"),
    }
}

impl Place {
    /// A queue of a device of this host, after a look at what would keep the engines of `plan`
    /// from it: one error here instead of one for each run.
    pub fn device(name: &str, queue: u32, size: u16, plan: &Plan) -> Result<Self> {
        let found = xsk::Device::lookup(name)?;
        ensure!(
            found.up,
            "{name} is down: bring it up with `ip link set dev {name} up`"
        );
        let queues = found.rx_queues.min(found.tx_queues);
        ensure!(
            queue < queues,
            "{name} has no queue {queue}: it has {queues}, counted from 0 (`ethtool -l {name}`)"
        );
        let longest = found.mtu + ETHERNET_HEADER;
        ensure!(
            u32::from(size) <= longest,
            "frames of {size} bytes are too long for {name}: lower --size to {longest}, or raise the MTU"
        );
        need(CapabilitySet::NET_RAW, "CAP_NET_RAW")?;
        if plan.uses(Engine::Xsk) || plan.uses(Engine::Libxdp) {
            need(CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN")?;
            if let Some(program) = found.programs.first() {
                bail!(
                    "{name} has an XDP program already ({program}): remove it (`ip link set dev {name} xdp off`, \
                     or stop its owner), or bench packet sockets only with --engine packet-v2,packet-v3"
                );
            }
        }
        Ok(Self::Device {
            name: name.into(),
            queue,
            device: Device::open(name)?,
        })
    }
}

fn need(capability: CapabilitySet, name: &str) -> Result<()> {
    let own = capabilities(None).context("cannot ask for this process's capabilities")?;
    ensure!(
        own.effective.contains(capability),
        "a bench on a device needs {name}: run it as root, e.g. with sudo"
    );
    Ok(())
}

const ETHERNET_HEADER: u32 = 14;
