//! One point of the curve: processes started, a window of their work accounted for, and the
//! numbers compared.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Serialize;

use super::Path;
use super::plan::Combination;
use super::receiver::{Origin, PORT, ReceiverArgs};
use super::stage::{Counts, Stage};
use crate::accounting::tracepoints::{Accounting, CpuTotals, now_ns};
use crate::engine::bench::Bench;
use crate::engine::protocol::{Event, Totals};
use crate::engine::worker::WorkerArgs;
use crate::engine::{Engine, Mode, Wait};
use crate::process::child::{Child, START, own_command};
use crate::process::stop::StopSignal;
use crate::traffic::load::{LoadArgs, LoadEvent};
use crate::traffic::rate::Rate;
use hostnet::cpulist::CpuList;
use hostnet::device::Counters;

/// The longest that a process takes to begin.
/// The longest that a window, or the end of a process, may be late.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a wait looks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(20);
/// How often a sample is tried, and what is not worth another try: it takes about a millisecond.
const TRIES: u32 = 100;
const LEAST_SKEW: u64 = 3_000_000;
/// What is under way has arrived when nothing was counted for so long.
const QUIET: Duration = Duration::from_millis(20);

/// What is the same for all points.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Frame length without the FCS.
    pub size: u16,
    /// From the first frame to the window.
    pub warmup: Duration,
    /// What is measured.
    pub window: Duration,
    /// The CPU of the load, and of the kernel's part of receiving.
    pub load_cpu: usize,
    /// The CPU of the receivers.
    pub app_cpu: usize,
}

impl Settings {
    /// About how long a point takes: measuring, and what is around it.
    pub fn duration(&self) -> Duration {
        const AROUND: Duration = Duration::from_millis(250);
        self.warmup + self.window + AROUND
    }
}

/// What one window gave, in nanoseconds and frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Window {
    /// Its length.
    pub ns: u64,
    /// Frames that the load made.
    pub offered: u64,
    /// Frames that receivers got.
    pub delivered: u64,
    /// The network's softirqs, and ksoftirqd's part in them, on the load's CPU.
    pub softirq_ns: u64,
    /// The same on all other CPUs.
    pub other_softirq_ns: u64,
    /// The receivers' processes, without the interrupts in them.
    pub receivers_ns: u64,
    /// The processes of a switch, without the interrupts in them.
    pub switch_ns: u64,
    /// NAPI polls on the load's CPU.
    pub polls: u64,
}

/// Frames that were lost from the first to the last of a run, by where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Drops {
    /// The device had no room: its NAPI was late.
    pub device: u64,
    /// A tap's ring or a socket's buffer was full: its receiver was late.
    pub receiver: u64,
    /// Open vSwitch was late.
    pub switch: u64,
}

impl Drops {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.device + self.receiver + self.switch
    }
}

/// What a run gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    /// The window.
    pub window: Window,
    /// The losses of the whole run.
    pub drops: Drops,
    /// Frames that the load sent in the whole run, those that the device had no room for apart.
    pub sent: u64,
    /// Frames that the receivers got in the whole run.
    pub received: u64,
    /// How the counts of the whole run contradict each other: not at all in a good one.
    pub violations: Vec<String>,
}

/// Measures points.
pub struct Runner<'a> {
    /// How.
    pub settings: &'a Settings,
    /// Until when.
    pub stop: &'a StopSignal,
}

/// Everything at one moment.
struct Moment {
    at_ns: u64,
    cpus: Vec<CpuTotals>,
    /// Nanoseconds of processes.
    tasks: BTreeMap<u32, u64>,
    counts: Counts,
}

/// A receiver that runs for one point, and its process. A guest runs for all of them.
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
            match receiver.child.expect(START)? {
                Event::Ready { .. } => {}
                event => return Err(wrong(event)),
            }
        }
        // For each run anew: what it lists of processes is limited.
        let accounting = Accounting::start(CpuList::online()?.as_slice())?;
        let load = self.start_load(stage, combination.rate)?;
        self.wait(self.settings.warmup)?;
        let begin = moment(&accounting, stage, self.settings.window)?;
        self.wait(self.settings.window)?;
        let end = moment(&accounting, stage, self.settings.window)?;
        let told = self.told(stage, &mut receivers)?;
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
            totals = run.taps.iter().map(taken_by_guest).collect();
        }
        let mut window = self.window(stage, &begin, &end, &pids);
        if let Some(pps) = told {
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
        let engine = match stage.path {
            Path::AfXdp => Engine::Xsk,
            Path::AfPacket => Engine::PacketV3,
            Path::Stack => return self.own_receiver(Origin::Udp, PORT + u16::from(number)),
            Path::Bridge | Path::Xdp | Path::Ovs => return self.own_receiver(Origin::Tap, PORT),
        };
        let settings = self.settings;
        let is_xsk = engine == Engine::Xsk;
        let args = WorkerArgs {
            engine,
            bench: Bench::Rxdrop,
            dev: stage.lab.app().device.clone(),
            queue: 0,
            mode: is_xsk.then_some(Mode::Drv),
            wait: if is_xsk { Wait::Adaptive } else { Wait::Poll },
            size: settings.size.into(),
            batch: 64,
            warmup_ms: settings.warmup.as_millis() as u64,
            window_ms: settings.window.as_millis() as u64,
            turn: None,
            cpu: settings.app_cpu as u32,
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
            by_port: stage.path == Path::Stack,
            ..LoadArgs::new(&side.device, self.settings.load_cpu)
        };
        load.start(self.stop, |command| side.spawn(command))
    }

    /// Waits, but not for a signal's sake.
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

    /// What the receivers say of the window by themselves: frames a second. Those of the bench
    /// do, and nothing else counts what they got.
    fn told(&self, stage: &Stage<'_>, receivers: &mut [Receiver<'_>]) -> Result<Option<f64>> {
        if !matches!(stage.path, Path::AfXdp | Path::AfPacket) {
            return Ok(None);
        }
        let mut pps = 0.0;
        for receiver in receivers {
            match receiver.child.expect(self.settings.window + PATIENCE)? {
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
                window.softirq_ns += spent.net_ns();
                window.polls += spent.polls;
            } else {
                window.other_softirq_ns += spent.net_ns();
            }
        }
        let time_of = |pid: &u32| {
            let at = |moment: &Moment| moment.tasks.get(pid).copied().unwrap_or(0);
            at(end).saturating_sub(at(begin))
        };
        window.receivers_ns = pids.iter().map(time_of).sum();
        window.switch_ns = stage
            .switch
            .iter()
            .flat_map(|switch| &switch.pids)
            .map(time_of)
            .sum();
        let counts = end.counts.since(&begin.counts);
        window.offered = counts.offered();
        window.delivered = match stage.path {
            Path::Stack => counts.udp.received,
            _ => counts.read_from_taps(),
        };
        window
    }
}

/// Samples everything, within a hundredth of the window.
///
/// The load keeps this process from its CPU now and then. When that is in the middle of a sample,
/// its parts are of different moments: another one is taken.
fn moment(accounting: &Accounting, stage: &Stage<'_>, window: Duration) -> Result<Moment> {
    let most = window.as_nanos() as u64 / 100;
    for _ in 0..TRIES {
        let begun = now_ns();
        let sample = accounting.sample()?;
        let counts = stage.counts()?;
        let tasks = accounting.tasks()?.into_iter().map(|task| {
            let time = task.time;
            (task.pid, time.running_ns.saturating_sub(time.stolen_ns()))
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
        "no sample could be taken at one moment, {TRIES} times: \
         this machine is busy with something else; measure when it is not"
    )
}

/// Waits until what the load sent last has arrived: a switch may still be at it.
fn settle(stage: &Stage<'_>) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    let mut last = stage.counts()?;
    loop {
        sleep(QUIET);
        let now = stage.counts()?;
        if now == last {
            return Ok(());
        }
        ensure!(
            Instant::now() < end,
            "frames still arrive long after the load has ended: is something else sending?"
        );
        last = now;
    }
}

fn end_load(mut load: Child<'_>) -> Result<u64> {
    load.terminate();
    match load.expect(PATIENCE)? {
        LoadEvent::Done { sent, .. } => {
            load.wait()?;
            Ok(sent)
        }
        event => bail!("the load said {event:?} at its end"),
    }
}

fn end_receiver(mut receiver: Child<'_>) -> Result<Totals> {
    receiver.terminate();
    match receiver.expect(PATIENCE)? {
        Event::Done(totals) => {
            receiver.wait()?;
            Ok(totals)
        }
        event => Err(wrong(event)),
    }
}

/// A guest does not tell what it received: it is what QEMU took from the tap.
fn taken_by_guest(tap: &Counters) -> Totals {
    Totals {
        received: tap.tx_packets,
        ..Totals::default()
    }
}

/// The error for an event that is not the one expected.
fn wrong(event: Event) -> anyhow::Error {
    match event {
        Event::Failed { step, message, .. } => anyhow::anyhow!("{step}: {message}"),
        event => anyhow::anyhow!("the receiver said {event:?} at the wrong time"),
    }
}

fn drops(path: Path, run: &Counts, totals: &[Totals]) -> Drops {
    let read = run.read_from_taps();
    let full: u64 = run.taps.iter().map(|tap| tap.tx_dropped).sum();
    let missing = run.host.rx_packets.saturating_sub(read);
    let (receiver, switch) = match path {
        Path::Bridge => (full, 0),
        // Of a batch that does not fit the tap counts only the first frame as dropped
        // (`tun_xdp_xmit` in drivers/net/tun.c).
        Path::Xdp => (run.forward.forwarded.saturating_sub(read), 0),
        Path::Ovs => (full, missing.saturating_sub(full)),
        Path::Stack => (run.udp.buffer_full, 0),
        Path::AfXdp | Path::AfPacket => (totals.iter().map(|it| it.kernel_drops).sum(), 0),
    };
    Drops {
        device: run.load.tx_dropped,
        receiver,
        switch,
    }
}

/// Nobody else sends in a lab, so what two count must be equal.
fn violations(path: Path, run: &Counts, sent: u64, totals: &[Totals]) -> Vec<String> {
    let received: u64 = totals.iter().map(|it| it.received).sum();
    let drops = drops(path, run, totals);
    let arrived = run.host.rx_packets;
    let mut pairs = vec![
        ("sent by the load", sent, "received by the device", arrived),
        (
            "received by the device",
            arrived,
            "received and dropped by the receivers or before them",
            received + drops.receiver + drops.switch,
        ),
    ];
    match path {
        Path::Xdp => pairs.push((
            "received by the device",
            arrived,
            "forwarded",
            run.forward.forwarded,
        )),
        Path::Stack => pairs.push((
            "read from the sockets",
            run.udp.received,
            "received",
            received,
        )),
        _ => {}
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
    for (name, count) in [
        ("corrupted", sum(|it| it.corrupted)),
        ("doubled", sum(|it| it.duplicates)),
        ("reordered", sum(|it| it.reordered)),
    ] {
        if count > 0 {
            violations.push(format!("{count} frames were {name}"));
        }
    }
    violations
}
