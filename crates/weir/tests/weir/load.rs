//! The load sends the requested frames, and the sink counts those that arrive.

use std::io::{BufRead as _, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use hostnet::cpulist::CpuList;
use hostnet::netns;
use rustix::process::{Pid, Signal, kill_process};
use testkit::{PacketSocket, limit::longest};
use weir::bpf::program_ids;
use weir::lab::{Lab, LabConfig, Side};
use weir::traffic::frame::{APP_MAC, LOAD_MAC, Template, check};
use weir::traffic::load::LoadEvent;
use weir::traffic::programs::{SinkCounts, receiver_mac};

use crate::quiet::when_quiet;
use crate::{SOON, Test, a_cpu, failure, packets, skip, tests, tests_alone, until, weir};

pub fn trials() -> Vec<Test> {
    let alone = tests_alone![a_paced_load_is_exact_and_every_frame_is_intact];
    let others = tests![
        every_size_is_intact,
        a_load_at_full_speed_is_counted_exactly,
        receivers_and_flows_take_turns,
        the_sink_counts_loss_reordering_and_duplicates,
        a_killed_load_leaves_no_program,
        bad_loads_are_errors,
    ];
    alone.into_iter().chain(others).collect()
}

/// A `weir bench-load` on the load's side.
struct RunningLoad {
    child: Child,
    events: Lines<BufReader<ChildStdout>>,
}

impl RunningLoad {
    /// Starts it, and waits until it sends.
    fn start(side: &Side, arguments: &[&str]) -> Result<Self> {
        let mut command = command(side, arguments)?;
        let mut child = side.spawn(command.stdout(Stdio::piped()))?;
        let events = BufReader::new(child.stdout.take().context("no output")?).lines();
        let mut load = Self { child, events };
        match load.event()? {
            LoadEvent::Started => Ok(load),
            event => bail!("{event:?} came first"),
        }
    }

    fn event(&mut self) -> Result<LoadEvent> {
        let line = self
            .events
            .next()
            .context("the load ended without a word")??;
        serde_json::from_str(&line).with_context(|| format!("not an event: {line}"))
    }

    /// Stops it: the number of frames that it sent, and the counts of its sink.
    fn stop(mut self) -> Result<(u64, Option<SinkCounts>)> {
        let pid = Pid::from_raw(self.child.id().cast_signed()).context("no such process")?;
        kill_process(pid, Signal::TERM)?;
        let LoadEvent::Done { sent, sink } = self.event()? else {
            bail!("the load began again");
        };
        ensure!(self.child.wait()?.success(), "the load failed");
        Ok((sent, sink))
    }
}

impl Drop for RunningLoad {
    fn drop(&mut self) {
        // Ended already, unless its test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(side: &Side, arguments: &[&str]) -> Result<Command> {
    let mut command = weir();
    command
        .args(["bench-load", "--cpu", &a_cpu()?.to_string()])
        .args(["--dev", &side.device])
        .args(arguments);
    Ok(command)
}

/// Receives frames on the application's side, and insists on each of them.
struct Receiver {
    socket: PacketSocket,
    size: usize,
    received: u64,
}

impl Receiver {
    fn open(at: &Side, size: usize) -> Result<Self> {
        Ok(Self {
            socket: packets(at)?,
            size,
            received: 0,
        })
    }

    /// Whether a frame came in time: it has to be the next one, and intact.
    fn receive(&mut self, wait: Duration) -> Result<bool> {
        let mut buffer = [0; 2048];
        let Some(frame) = self.socket.receive(&mut buffer, wait)? else {
            return Ok(false);
        };
        let number = check(frame, self.size).with_context(|| format!("corrupted: {frame:x?}"))?;
        ensure!(
            number == self.received,
            "frame {number} came as number {}",
            self.received
        );
        ensure!(
            frame[..6] == APP_MAC && frame[6..12] == LOAD_MAC,
            "wrong MAC addresses"
        );
        self.received += 1;
        Ok(true)
    }

    fn receive_for(&mut self, time: Duration) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < time {
            ensure!(self.receive(longest(SOON))?, "no frame came");
        }
        Ok(())
    }

    /// Stops the load: all its frames have arrived, by the counters of both devices too.
    fn stop(&mut self, load: RunningLoad, lab: &Lab) -> Result<()> {
        let (sent, sink) = load.stop()?;
        ensure!(sink.is_none(), "a sink that was not asked for");
        while self.received < sent {
            ensure!(
                self.receive(longest(SOON))?,
                "{} of {sent} frames received",
                self.received
            );
        }
        ensure!(
            !self.receive(Duration::from_millis(20))?,
            "more than {sent} frames received"
        );
        let (app, load) = (lab.app().counters()?, lab.load().counters()?);
        ensure!(
            app.rx_packets == sent && load.tx_packets == sent,
            "{app:?}, {load:?}"
        );
        ensure!(
            app.rx_dropped == 0 && load.tx_dropped == 0,
            "{app:?}, {load:?}"
        );
        Ok(())
    }
}

fn a_paced_load_is_exact_and_every_frame_is_intact() -> Result<()> {
    let cpus = CpuList::allowed()?;
    if cpus.as_slice().len() < 2 {
        return Err(skip("a load that spins and its receiver need two CPUs"));
    }
    when_quiet(&cpus, 2.0, paced_load)
}

fn paced_load() -> Result<()> {
    const PPS: f64 = 10_000.0;
    let lab = Lab::anonymous(&LabConfig::default())?;
    let mut receiver = Receiver::open(lab.app(), 64)?;
    let load = RunningLoad::start(lab.load(), &["--pps", "10000"])?;
    ensure!(receiver.receive(longest(SOON))?, "no frame came");
    let begin = Instant::now();
    receiver.receive_for(Duration::from_millis(1500))?;
    let rate = receiver.received as f64 / begin.elapsed().as_secs_f64();
    receiver.stop(load, &lab)?;
    ensure!(
        (rate / PPS - 1.0).abs() < 0.02,
        "{rate} frames a second instead of {PPS}"
    );
    Ok(())
}

fn every_size_is_intact() -> Result<()> {
    for size in [64, 65, 66, 67, 512, 1499, 1500] {
        let lab = Lab::anonymous(&LabConfig::default())?;
        let mut receiver = Receiver::open(lab.app(), size)?;
        let load = RunningLoad::start(lab.load(), &["--pps", "5000", "--size", &size.to_string()])?;
        receiver.receive_for(Duration::from_millis(50))?;
        receiver
            .stop(load, &lab)
            .with_context(|| format!("{size} bytes"))?;
    }
    Ok(())
}

fn receivers_and_flows_take_turns() -> Result<()> {
    for (by_port, size) in [(false, 64), (true, 65)] {
        let lab = Lab::anonymous(&LabConfig::default())?;
        let socket = packets(lab.app())?;
        let size_word = size.to_string();
        let mut words = vec!["--pps", "10000", "--receivers", "3", "--flows", "1000"];
        words.extend(["--size", &size_word]);
        words.extend(by_port.then_some("--by-port"));
        let load = RunningLoad::start(lab.load(), &words)?;
        let mut buffer = [0; 2048];
        // Enough for every flow of every receiver, and for those that begin again.
        for number in 0..4000 {
            let frame = socket
                .receive(&mut buffer, longest(SOON))?
                .context("no frame")?;
            let found = check(frame, size).with_context(|| format!("corrupted: {frame:x?}"))?;
            ensure!(found == number, "frame {found} came as number {number}");
            let receiver = number % 3;
            let flow = number / 3 % 1000;
            let (mac, port) = if by_port {
                (APP_MAC, 9 + receiver)
            } else {
                (receiver_mac(u8::try_from(receiver)?), 9)
            };
            let ports = [9 + flow, port].map(|port| (port as u16).to_be_bytes());
            ensure!(frame[..6] == mac, "frame {number}: {frame:x?}");
            ensure!(
                frame[34..38] == *ports.as_flattened(),
                "frame {number}: {frame:x?}"
            );
        }
        load.stop()?;
    }
    Ok(())
}

fn a_load_at_full_speed_is_counted_exactly() -> Result<()> {
    let lab = Lab::anonymous(&LabConfig::default())?;
    let load = RunningLoad::start(lab.load(), &[])?;
    sleep(Duration::from_millis(300));
    let (sent, _) = load.stop()?;
    ensure!(sent > 0, "no frame in 0.3 s");
    let app = lab.app().counters()?;
    ensure!(app.rx_packets == sent, "{sent} sent, {app:?}");
    Ok(())
}

fn the_sink_counts_loss_reordering_and_duplicates() -> Result<()> {
    for size in [64, 65, 1498, 1500] {
        let lab = Lab::anonymous(&LabConfig::default())?;
        let arguments = ["--no-load", "--sink", "--size", &size.to_string()];
        let load = RunningLoad::start(lab.load(), &arguments)?;
        let socket = packets(lab.app())?;
        let template = Template::new(size, APP_MAC, LOAD_MAC)?;
        let frame = |number| {
            let mut frame = template.bytes().to_vec();
            template.stamp(&mut frame, number);
            frame
        };
        // In order; 4 and 5 late; 6 twice; 9 never; a leap over the window, and 7000 again.
        let numbers = [0, 1, 2, 3, 6, 4, 5, 6, 7, 8, 10, 7000, 7000, 7001, 6999, 10];
        for number in numbers {
            socket.send(&frame(number))?;
        }
        // One bit wrong, anywhere; too short; too long.
        let flipped = [0, 13, 20, 39, 41, 49, 50, 57, 63, size - 1].map(|at| {
            let mut frame = frame(7002);
            frame[at] ^= 0x10;
            frame
        });
        let mut cut = [frame(7002), frame(7002)];
        cut[0].pop();
        cut[1].push(0);
        for frame in flipped.iter().chain(&cut) {
            socket.send(frame)?;
        }
        let (sent, sink) = load.stop()?;
        let corrupted = (flipped.len() + cut.len()) as u64;
        let expected = SinkCounts {
            packets: numbers.len() as u64 + corrupted,
            corrupted,
            duplicates: 3,
            reordered: 3,
            lost: 1 + 6989 - 1,
        };
        ensure!(sent == 0, "{sent} frames sent");
        ensure!(
            sink == Some(expected),
            "{size} bytes: {sink:?} instead of {expected:?}"
        );
        let app = lab.app().counters()?;
        ensure!(app.tx_packets == expected.packets, "{app:?}");
    }
    Ok(())
}

fn a_killed_load_leaves_no_program() -> Result<()> {
    let lab = Lab::anonymous(&LabConfig::default())?;
    let mut load = RunningLoad::start(lab.load(), &["--sink"])?;
    let programs = programs_of(load.child.id())?;
    ensure!(programs.len() >= 2, "the load has no programs");
    load.child.kill()?;
    load.child.wait()?;
    until("its programs are gone", || {
        Ok(!program_ids().iter().any(|id| programs.contains(id)))
    })
}

/// The BPF programs that a process has descriptors of.
pub fn programs_of(process: u32) -> Result<Vec<u32>> {
    let mut programs = Vec::new();
    for descriptor in std::fs::read_dir(format!("/proc/{process}/fdinfo"))? {
        let about = std::fs::read_to_string(descriptor?.path())?;
        let ids = about
            .lines()
            .filter_map(|line| line.strip_prefix("prog_id:"));
        programs.extend(ids.filter_map(|id| id.trim().parse::<u32>().ok()));
    }
    Ok(programs)
}

fn bad_loads_are_errors() -> Result<()> {
    let lab = Lab::anonymous(&LabConfig::default())?;
    let refused = |arguments: &[&str], code, word: &str| {
        let said = netns::run_in(lab.load().netns(), || {
            failure(&mut command(lab.load(), arguments)?, code)
        })?;
        ensure!(said.contains(word), "{arguments:?}: no {word} in {said}");
        Ok(())
    };
    refused(&["--size", "63"], 1, "64 to 9000")?;
    refused(&["--size", "9001"], 1, "64 to 9000")?;
    refused(&["--size", "9000"], 1, "MTU")?;
    refused(&["--size", "9000", "--flows", "2"], 1, "one flow")?;
    refused(&["--pps", "0"], 2, "--pps")?;
    refused(&["--pps", "5", "--no-load"], 2, "--no-load")?;
    refused(&["--flows", "0"], 2, "--flows")?;
    refused(&["--flows", "2", "--sink"], 2, "--sink")?;
    refused(&["--receivers", "65"], 2, "--receivers")?;
    let mut elsewhere = weir();
    elsewhere.args(["bench-load", "--cpu", &a_cpu()?.to_string()]);
    elsewhere.args(["--dev", "weir-none"]);
    let said = failure(&mut elsewhere, 1)?;
    ensure!(said.contains("weir-none"), "{said}");
    let mut nowhere = weir();
    nowhere.args(["bench-load", "--cpu", "1023", "--dev", "lo"]);
    let said = failure(&mut nowhere, 1)?;
    ensure!(said.contains("CPU 1023"), "{said}");
    Ok(())
}
