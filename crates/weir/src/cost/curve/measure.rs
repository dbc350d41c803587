//! One point of the curve: starts the processes, accounts for a window of their work, and compares
//! the counters.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Serialize;

use super::Path;
use super::counts::{Counts, Drops};
use super::path::ReceiverKind;
use super::plan::Combination;
use super::receiver::{Origin, ReceiverArgs};
use super::stage::Stage;
use crate::accounting::tracepoints::{CpuTotals, Tracepoints};
use crate::engine::bench::Bench;
use crate::engine::protocol::{Event, Totals};
use crate::engine::worker::WorkerArgs;
use crate::process::child::{CHILD_TIMEOUT, Child, own_command};
use crate::process::clock::now_ns;
use crate::process::stop::StopSignal;
use crate::traffic::frame::PORT;
use crate::traffic::load::{LoadArgs, LoadEvent};
use crate::traffic::rate::Rate;
use hostnet::cpulist::CpuList;
use hostnet::device::Counters;

/// Frames that arrive for longer after the load are of others.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of checks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(20);
/// Attempts at a sample, and the time in nanoseconds that one may always take; one millisecond is
/// usual.
const TRIES: u32 = 100;
const LEAST_SKEW: u64 = 3_000_000;
/// Frames under way have arrived when no counter has moved for this long.
const QUIET: Duration = Duration::from_millis(20);

/// Settings of all points.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Frame length without the FCS.
    pub size: u16,
    /// Time from the first frame to the window.
    pub warmup: Duration,
    /// Length of the window.
    pub window: Duration,
    /// The CPU of the load, and of the softirqs that receive it.
    pub load_cpu: usize,
    /// The CPU of the receivers.
    pub app_cpu: usize,
}

impl Settings {
    /// Rough duration of a point, with starting and ending its processes.
    pub fn duration(&self) -> Duration {
        const AROUND: Duration = Duration::from_millis(250);
        self.warmup + self.window + AROUND
    }
}

/// The times and frames of one window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Window {
    /// Its length.
    pub ns: u64,
    /// Frames that the load made.
    pub offered: u64,
    /// Frames that receivers received.
    pub delivered: u64,
    /// The softirqs `NET_RX` and `NET_TX`, those in ksoftirqd included, on the load's CPU.
    pub softirq_ns: u64,
    /// The same on all other CPUs.
    pub other_softirq_ns: u64,
    /// The receivers' processes, without interrupts.
    pub receivers_ns: u64,
    /// The processes of a switch, without interrupts.
    pub switch_ns: u64,
    /// NAPI polls on the load's CPU.
    pub polls: u64,
}

/// A measured run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    /// The window.
    pub window: Window,
    /// Frames lost in the whole run.
    pub drops: Drops,
    /// Frames that the load sent in the whole run, without those that the device dropped.
    pub sent: u64,
    /// Frames that the receivers received in the whole run.
    pub received: u64,
    /// Contradictions between the counters of the whole run; none in a good one.
    pub violations: Vec<String>,
}

/// Measures points.
pub struct Runner<'a> {
    /// Settings of all points.
    pub settings: &'a Settings,
    /// Ends a measurement.
    pub stop: &'a StopSignal,
}

/// All counters at one moment.
struct Moment {
    at_ns: u64,
    cpus: Vec<CpuTotals>,
    /// CPU time of processes, in nanoseconds.
    tasks: BTreeMap<u32, u64>,
    counts: Counts,
}

/// A receiver of one point. (A guest runs for all points.)
struct Receiver<'a> {
    child: Child<'a>,
    pid: u32,
}

impl<'a> Runner<'a> {
    /// Measures one combination on its stage.
    pub fn measure(&self, stage: &Stage<'_>, combination: Combination) -> Result<Measured> {
        let before = stage.counts()?;
        let mut receivers = (0..stage.receivers)
            .filter(|_| stage.guests.is_empty())
            .map(|number| self.start_receiver(stage, number))
            .collect::<Result<Vec<_>>>()?;
        for receiver in &mut receivers {
            match receiver.child.expect(CHILD_TIMEOUT)? {
                Event::Ready { .. } => {}
                event => return Err(wrong(event)),
            }
        }
        // Anew for each run: its table of processes has a limit.
        let accounting = Tracepoints::start(CpuList::online()?.as_slice())?;
        let load = self.start_load(stage, combination.rate)?;
        self.wait(self.settings.warmup)?;
        let begin = moment(&accounting, stage, self.settings.window)?;
        self.wait(self.settings.window)?;
        let end = moment(&accounting, stage, self.settings.window)?;
        let reported = self.reported_pps(stage, &mut receivers)?;
        let sent = end_load(load)?;
        settle(stage)?;
        let processes = receivers.iter().map(|receiver| receiver.pid);
        let guests = stage.guests.iter().map(|guest| guest.pid);
        let pids: Vec<u32> = processes.chain(guests).collect();
        let mut totals = receivers
            .into_iter()
            .map(|receiver| end_receiver(receiver.child))
            .collect::<Result<Vec<_>>>()?;
        let run = stage.counts()?.since(&before);
        if !stage.guests.is_empty() {
            totals = run.taps.iter().map(read_by_guest).collect();
        }
        let mut window = self.window(stage, &begin, &end, &pids);
        if let Some(pps) = reported {
            window.delivered = (pps * window.ns as f64 / 1e9) as u64;
        }
        Ok(Measured {
            window,
            drops: drops(stage.path, &run, &totals),
            sent,
            received: totals.iter().map(|it| it.received).sum(),
            violations: violations(stage.path, &run, sent, &totals),
        })
    }

    fn start_receiver(&self, stage: &Stage<'_>, number: u8) -> Result<Receiver<'a>> {
        let command = self.receiver_command(stage, number);
        let mut pid = 0;
        let child = Child::start("receiver", command, self.stop, |command| {
            if let Some(tap) = stage.taps.get(usize::from(number)) {
                let tap = tap.descriptor().try_clone_to_owned();
                command.stdin(Stdio::from(tap.context("cannot duplicate a descriptor")?));
            }
            let process = stage.lab.app().spawn(command)?;
            pid = process.id();
            Ok(process)
        })?;
        Ok(Receiver { child, pid })
    }

    fn receiver_command(&self, stage: &Stage<'_>, number: u8) -> Command {
        let (engine, mode, wait) = match stage.path.datapath().receiver() {
            ReceiverKind::Tap => return self.own_receiver(Origin::Tap, PORT),
            ReceiverKind::Udp => return self.own_receiver(Origin::Udp, PORT + u16::from(number)),
            ReceiverKind::Engine { engine, mode, wait } => (engine, mode, wait),
        };
        let settings = self.settings;
        let args = WorkerArgs {
            engine,
            bench: Bench::Rxdrop,
            dev: stage.lab.app().device.clone(),
            queue: 0,
            mode,
            wait,
            size: settings.size.into(),
            batch: 64,
            warmup_ms: settings.warmup.as_millis() as u64,
            window_ms: settings.window.as_millis() as u64,
            turn: None,
            cpu: settings.app_cpu as u32,
            sender_cpu: None,
            verify: true,
        };
        let mut command = own_command("bench-worker");
        command.args(args.to_words());
        command
    }

    fn own_receiver(&self, origin: Origin, port: u16) -> Command {
        let args = ReceiverArgs {
            origin,
            port,
            size: self.settings.size.into(),
            cpu: self.settings.app_cpu as u32,
        };
        let mut command = own_command("cost-receiver");
        command.args(args.to_words());
        command
    }

    fn start_load(&self, stage: &Stage<'_>, rate: Rate) -> Result<Child<'a>> {
        let side = stage.lab.load();
        let load = LoadArgs {
            size: self.settings.size.into(),
            pps: Some(rate),
            receivers: stage.receivers.into(),
            by_port: stage.path.datapath().receiver() == ReceiverKind::Udp,
            ..LoadArgs::new(&side.device, self.settings.load_cpu)
        };
        load.start(self.stop, |command| side.spawn(command))
    }

    /// Waits, unless a signal comes.
    fn wait(&self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        loop {
            self.stop.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            sleep(left.min(LOOK));
        }
    }

    /// Frames a second in the window as engines report them: no counter of the kernel has them.
    fn reported_pps(
        &self,
        stage: &Stage<'_>,
        receivers: &mut [Receiver<'_>],
    ) -> Result<Option<f64>> {
        let receiver = stage.path.datapath().receiver();
        if !matches!(receiver, ReceiverKind::Engine { .. }) {
            return Ok(None);
        }
        let mut pps = 0.0;
        for receiver in receivers {
            match receiver
                .child
                .expect(self.settings.window + CHILD_TIMEOUT)?
            {
                Event::Window {
                    packets, seconds, ..
                } => pps += packets as f64 / seconds,
                event => return Err(wrong(event)),
            }
        }
        Ok(Some(pps))
    }

    fn window(&self, stage: &Stage<'_>, begin: &Moment, end: &Moment, pids: &[u32]) -> Window {
        let mut window = Window {
            ns: end.at_ns - begin.at_ns,
            ..Window::default()
        };
        for (then, now) in begin.cpus.iter().zip(&end.cpus) {
            let spent = now.since(then);
            if now.cpu == self.settings.load_cpu {
                window.softirq_ns += spent.network_ns();
                window.polls += spent.polls;
            } else {
                window.other_softirq_ns += spent.network_ns();
            }
        }
        let time_of = |pid: &u32| {
            let at = |moment: &Moment| moment.tasks.get(pid).copied().unwrap_or(0);
            at(end).saturating_sub(at(begin))
        };
        window.receivers_ns = pids.iter().map(time_of).sum();
        window.switch_ns = stage.installed.pids().iter().map(time_of).sum();
        let counts = end.counts.since(&begin.counts);
        window.offered = counts.offered();
        window.delivered = stage.path.datapath().delivered(&counts);
        window
    }
}

/// Samples all counters, within a hundredth of the window.
///
/// The load may preempt this process in the middle of a sample, whose parts are then of different
/// moments: it is taken again.
fn moment(accounting: &Tracepoints, stage: &Stage<'_>, window: Duration) -> Result<Moment> {
    let most = window.as_nanos() as u64 / 100;
    for _ in 0..TRIES {
        let begun = now_ns();
        let sample = accounting.sample()?;
        let counts = stage.counts()?;
        let tasks = accounting.tasks()?.into_iter().map(|task| {
            let time = task.time;
            (
                task.pid,
                time.running_ns.saturating_sub(time.interrupts_ns()),
            )
        });
        let tasks = tasks.collect();
        if now_ns() - begun <= most.max(LEAST_SKEW) {
            return Ok(Moment {
                at_ns: sample.at_ns,
                cpus: sample.cpus,
                tasks,
                counts,
            });
        }
    }
    bail!(
        "cannot sample all counters at one moment ({TRIES} attempts): \
         the machine is busy; measure when it is idle"
    )
}

/// Waits until the last frames have arrived: a switch may still be forwarding them.
fn settle(stage: &Stage<'_>) -> Result<()> {
    let end = Instant::now() + SETTLE_TIMEOUT;
    let mut last = stage.counts()?;
    loop {
        sleep(QUIET);
        let now = stage.counts()?;
        if now == last {
            return Ok(());
        }
        ensure!(
            Instant::now() < end,
            "frames still arrive after the load has ended: is another process sending?"
        );
        last = now;
    }
}

fn end_load(mut load: Child<'_>) -> Result<u64> {
    load.terminate();
    match load.expect(CHILD_TIMEOUT)? {
        LoadEvent::Done { sent, .. } => {
            load.wait()?;
            Ok(sent)
        }
        event => bail!("the load ended with {event:?} instead of its counters"),
    }
}

fn end_receiver(mut receiver: Child<'_>) -> Result<Totals> {
    receiver.terminate();
    match receiver.expect(CHILD_TIMEOUT)? {
        Event::Done(totals) => {
            receiver.wait()?;
            Ok(totals)
        }
        event => Err(wrong(event)),
    }
}

/// The frames that QEMU read from a tap; the guest itself reports nothing.
fn read_by_guest(tap: &Counters) -> Totals {
    Totals {
        received: tap.tx_packets,
        ..Totals::default()
    }
}

/// The error for an event that is not the one expected.
fn wrong(event: Event) -> anyhow::Error {
    match event {
        Event::Failed { step, message, .. } => anyhow::anyhow!("{step}: {message}"),
        event => anyhow::anyhow!("unexpected event from the receiver: {event:?}"),
    }
}

fn drops(path: Path, run: &Counts, totals: &[Totals]) -> Drops {
    Drops {
        device: run.load.tx_dropped,
        ..path.datapath().drops(run, totals)
    }
}

/// Counters that disagree. Nobody else sends in a lab, so they must be equal.
fn violations(path: Path, run: &Counts, sent: u64, totals: &[Totals]) -> Vec<String> {
    let received: u64 = totals.iter().map(|it| it.received).sum();
    let drops = drops(path, run, totals);
    let arrived = run.host.rx_packets;
    let mut pairs = vec![
        ("sent by the load", sent, "received by the device", arrived),
        (
            "received by the device",
            arrived,
            "received or dropped behind the device",
            received + drops.receiver + drops.switch,
        ),
    ];
    if let Some([(one, name), (other, other_name)]) = path.datapath().balance(run, received) {
        pairs.push((name, one, other_name, other));
    }
    let mut violations: Vec<String> = pairs
        .into_iter()
        .filter(|(_, one, _, other)| one != other)
        .map(|(name, one, other_name, other)| format!("{one} {name}, {other} {other_name}"))
        .collect();
    for (number, (tap, total)) in run.taps.iter().zip(totals).enumerate() {
        if tap.tx_packets != total.received {
            violations.push(format!(
                "tap{number} sent {}, its receiver got {}",
                tap.tx_packets, total.received
            ));
        }
    }
    let sum = |of: fn(&Totals) -> u64| -> u64 { totals.iter().map(of).sum() };
    for (name, count, allowed) in [
        ("corrupted", sum(|it| it.corrupted), 0),
        ("duplicated", sum(|it| it.duplicates), 0),
        (
            "reordered",
            sum(|it| it.reordered),
            path.datapath().overtaken(run),
        ),
    ] {
        if count > allowed {
            violations.push(format!("{count} frames were {name}"));
        }
    }
    violations
}
