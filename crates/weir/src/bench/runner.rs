//! One run: its processes are started, read and ended, and their counts compared.

use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::check::{Check, Counted};
use super::place::Place;
use super::plan::Combination;
use crate::engine::protocol::{Event, Totals};
use crate::engine::worker::WorkerArgs;
use crate::engine::{Engine, Mode, Wait};
use crate::lab::{Lab, Side};
use crate::process::child::{CHILD_TIMEOUT, Child, own_command};
use crate::process::stop::StopSignal;
use crate::traffic::load::{LoadArgs, LoadEvent};
use crate::traffic::programs::{Sink, SinkCounts};
use crate::traffic::rate::Rate;
use hostnet::device::Counters;
use hostnet::{ENOTSUPP, errno_name};

/// Time limit for packets to come to a device of this host, to which perhaps nothing is sent.
const TRAFFIC_TIMEOUT: Duration = Duration::from_secs(5);

/// Time from the first packet to the window: rings are in the cache by then, and NAPI runs.
pub const WARMUP: Duration = Duration::from_millis(200);

/// Settings of all runs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Frame length without the FCS.
    pub size: u16,
    /// Frames a second that the load offers; `None` for as many as it can.
    pub pps: Option<Rate>,
    /// Time from the first packet to the window.
    pub warmup: Duration,
    /// Length of the measured window.
    pub window: Duration,
    /// Batch size.
    pub batch: u32,
    /// Packets in a turn, where load and engine take turns: see
    /// [`instructions`](super::instructions).
    pub turn: Option<u32>,
    /// Whether payloads are read in every bench.
    pub verify: bool,
    /// The CPU of the load, and of the kernel's side of receiving it.
    pub load_cpu: usize,
    /// The CPU of the engine.
    pub app_cpu: usize,
    /// The CPU of the sending half of an engine on two CPUs.
    pub sender_cpu: usize,
}

impl Settings {
    /// The approximate time of a run.
    pub fn duration(&self) -> Duration {
        const START_AND_END: Duration = Duration::from_millis(250);
        self.warmup + self.window + START_AND_END
    }
}

/// The figures of one run.
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
    /// The engine's process in user mode.
    pub user_ns: u64,
    /// The engine's process in the kernel.
    pub sys_ns: u64,
    /// Whether the numbers add up.
    pub check: Check,
}

/// The end of a run that did not fail.
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
    /// The network.
    pub place: &'a Place,
    /// The settings of each run.
    pub settings: &'a Settings,
    /// Ends a run early.
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
            // If the load failed, its own error is the reason.
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
            check: self.end(combination, running)?,
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
        let before = self.counters()?;
        let lab = self.lab();
        // Two processes, so that the sink outlives the load: its last frames are still on their
        // way back when it ends.
        let sink = match lab {
            Some(lab) if combination.bench.sends() => {
                Some(self.start_sink(lab.load(), Sink::Verify)?)
            }
            _ => None,
        };
        let mut worker = self.start_worker(combination)?;
        let (mode_obtained, refusals) = match worker.expect(CHILD_TIMEOUT)? {
            Event::Ready {
                mode_obtained,
                refusals,
            } => (mode_obtained, refusals),
            event => return self.refusal(combination, event),
        };
        let load = match lab {
            Some(lab) if combination.bench.receives() => Some(self.start_load(lab.load())?),
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
    pub(super) fn end(&self, combination: Combination, running: Running<'_>) -> Result<Check> {
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
            Some(_) => Check::in_lab(combination.bench, combination.engine, counted),
            None => Check::on_device(combination.bench, counted),
        })
    }

    pub(super) fn longest_window(&self) -> Duration {
        let limit = match self.place {
            Place::Lab(_) => CHILD_TIMEOUT,
            Place::Device { .. } => TRAFFIC_TIMEOUT,
        };
        self.settings.warmup + self.settings.window + limit
    }

    pub(super) fn start_worker(&self, combination: Combination) -> Result<Child<'a>> {
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
            sender_cpu: (combination.engine == Engine::XskHalves)
                .then_some(settings.sender_cpu as u32),
            verify: settings.verify,
        };
        let mut command = own_command("bench-worker");
        command.args(args.to_words());
        self.start("worker", command, |command| match self.place {
            Place::Lab(lab) => lab.app().spawn(command),
            Place::Device { .. } => command.spawn().context("cannot start a worker"),
        })
    }

    /// Starts a process, one that listens if there are turns.
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

    /// An event in place of `ready`, or of `window`: the device does not offer the mode or the way to wait,
    /// or the worker failed.
    pub(super) fn refusal<T>(&self, combination: Combination, event: Event) -> Result<Outcome<T>> {
        let Event::Failed {
            step,
            errno,
            message,
        } = event
        else {
            return Err(failed(event));
        };
        let may_be_refused = matches!(combination.mode, Some(Mode::Drv | Mode::Zc))
            || combination.wait == Wait::BusyPoll;
        let is_refusal = may_be_refused && (errno == libc::EOPNOTSUPP || errno == ENOTSUPP);
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
        // Before the worker ends: that takes its program off, and some cards reset for it.
        let elsewhere = match self.place {
            Place::Device { name, queue, .. } => packets_elsewhere(name, *queue),
            Place::Lab(_) => None,
        };
        let totals = end_worker(worker)?;
        let handled = totals.received + totals.sent + totals.kernel_drops;
        if handled == 0
            && let Some(elsewhere) = elsewhere
        {
            return Ok(format!("no packet came within {seconds} s: {elsewhere}"));
        }
        Ok(match self.place {
            _ if handled > 0 => {
                format!(
                    "packets came, but the measurement was not over after {seconds} s: {totals:?}"
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

    pub(super) fn counters(&self) -> Result<BothSides> {
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

/// Where packets of a device go while its queue gets none; `None` if there are none, or the device does
/// not say.
fn packets_elsewhere(name: &str, queue: u32) -> Option<String> {
    let device = xsk::Device::lookup(name).ok()?;
    let before = device.rx_by_queue().ok()?;
    thread::sleep(Duration::from_secs(1));
    let silence = device.explain_silence(queue, &before).ok()??;
    Some(silence.to_string())
}

/// The counters of the devices of both sides.
pub(super) struct BothSides {
    pub(super) app: Counters,
    pub(super) load: Counters,
}

/// A worker's failure in one sentence.
fn failure(step: &str, errno: i32, message: &str) -> String {
    match errno_name(errno) {
        Some(name) if !message.contains(name) => format!("{step}: {name}: {message}"),
        _ => format!("{step}: {message}"),
    }
}

/// The error for an event that is not the one expected.
pub(super) fn failed(event: Event) -> anyhow::Error {
    match event {
        Event::Failed {
            step,
            errno,
            message,
        } => anyhow::anyhow!("{}", failure(&step, errno, &message)),
        event => anyhow::anyhow!("unexpected event of the worker: {event:?}"),
    }
}

/// Ends a worker, once it has drained.
pub(super) fn end_worker(mut worker: Child<'_>) -> Result<Totals> {
    worker.terminate();
    loop {
        match worker.expect(CHILD_TIMEOUT)? {
            Event::Done(totals) => {
                worker.wait()?;
                return Ok(totals);
            }
            // Printed before the signal came.
            Event::Window { .. } => {}
            event => return Err(failed(event)),
        }
    }
}

/// Ends a load or a sink: frames sent, and the counts of the sink.
pub(super) fn end_load(mut load: Child<'_>) -> Result<(u64, Option<SinkCounts>)> {
    load.terminate();
    match load.expect(CHILD_TIMEOUT)? {
        LoadEvent::Done { sent, sink } => {
            load.wait()?;
            Ok((sent, sink))
        }
        event => bail!("unexpected event of the load at its end: {event:?}"),
    }
}
