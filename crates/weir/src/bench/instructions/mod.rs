//! Instructions a packet: the same benches on a machine of one CPU whose clock counts instructions
//! (QEMU with `-icount shift=0`), with the same counts in every run.
//!
//! Load and engine take [turns](crate::traffic::turns), so that neither waits for the other, and
//! the CPU time of their turns is counted. Work before and after, and the scheduler's work in
//! between, is in no figure.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

pub mod report;
pub mod table;

use self::report::{Count, Report, Turns};
use super::check::Check;
use super::place::Place;
use super::plan::{Choices, Combination, Plan};
use super::runner::{Outcome, Runner, Settings, end_load, failed};
use crate::engine::bench::Bench;
use crate::engine::protocol::Event;
use crate::engine::{Engine, Mode, Wait};
use crate::process::child::Child;
use crate::process::stop::StopSignal;
use crate::report::Machine;
use crate::traffic::load::LoadEvent;
use crate::traffic::programs::Sink;
use hostnet::cpulist::CpuList;

/// The longest turn, by the clock of the machine.
const TURN: Duration = Duration::from_secs(10);

/// Packets in a turn: every receive ring has room for them.
const PACKETS: u32 = 1024;
/// Turns before those that count.
const WARMUP: u32 = 2;

/// The choices of the command line.
#[derive(Debug, Clone)]
pub struct Options {
    /// Batch sizes.
    pub batches: Vec<u32>,
    /// Frame length without the FCS.
    pub size: u16,
    /// Turns that are counted.
    pub turns: u32,
    /// Emulator and compiler, for the report.
    pub machine: String,
}

impl Options {
    fn turns(&self) -> Turns {
        Turns {
            count: self.turns,
            warmup: WARMUP,
            packets: PACKETS,
        }
    }

    fn settings(&self, cpu: usize, batch: u32) -> Settings {
        Settings {
            size: self.size,
            pps: None,
            warmup: Duration::ZERO,
            // Turns have no window, but a worker refuses an empty one.
            window: Duration::from_millis(1),
            batch,
            turn: Some(PACKETS),
            verify: false,
            load_cpu: cpu,
            app_cpu: cpu,
            sender_cpu: cpu,
        }
    }
}

fn plan(size: u16) -> Result<Plan> {
    Plan::new(&Choices {
        benches: Bench::all().to_vec(),
        engines: vec![Engine::Xsk, Engine::Libxdp, Engine::PacketV3],
        modes: vec![Mode::Drv, Mode::Skb],
        waits: vec![Wait::Spin],
        rounds: 1,
        size,
    })
}

/// Counts the load alone, then each combination with each batch size, in a lab. `begin` is shown
/// the name of each count when it begins.
pub fn measure(options: &Options, begin: impl Fn(&str)) -> Result<Report> {
    let plan = plan(options.size)?;
    let cpus = CpuList::allowed()?;
    let cpu = cpus.as_slice().first().copied().unwrap_or(0);
    let stop = StopSignal::listen()?;
    let place = Place::lab(options.size)?;
    let turns = options.turns();
    let alone = options.settings(cpu, 1);
    let load = count_load(&runner(&place, &alone, &stop), turns)
        .context("the load alone cannot be counted")?;
    let mut counts = Vec::new();
    for (_, combination) in plan.runs() {
        for &batch in &options.batches {
            let number = counts.len() + 1;
            let all = plan.combinations.len() * options.batches.len();
            begin(&format!("{number} of {all}: {combination}, batch {batch}"));
            let settings = options.settings(cpu, batch);
            let count = count(&runner(&place, &settings, &stop), turns, load, combination);
            counts.push(count.with_context(|| format!("{combination}, batch {batch}"))?);
        }
    }
    let machine = Machine::now(1);
    Ok(Report {
        kernel: machine.kernel,
        weir: machine.weir,
        machine: options.machine.clone(),
        size: options.size,
        turns,
        load,
        counts,
        unavailable: plan.unavailable,
    })
}

fn runner<'a>(place: &'a Place, settings: &'a Settings, stop: &'a StopSignal) -> Runner<'a> {
    Runner {
        place,
        settings,
        stop,
    }
}

/// A sum over turns.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    packets: u64,
    ns: u64,
}

impl Sum {
    fn add(&mut self, packets: u64, ns: u64) {
        self.packets += packets;
        self.ns += ns;
    }

    fn per_packet(self) -> Result<f64> {
        ensure!(self.packets > 0, "no packet came in any turn");
        Ok(self.ns as f64 / self.packets as f64)
    }
}

/// Counts one combination; `load` is the count of its load alone.
fn count(runner: &Runner<'_>, turns: Turns, load: f64, combination: Combination) -> Result<Count> {
    let mut running = match runner.begin(combination)? {
        Outcome::Measured(running) => running,
        Outcome::Refused { reason, .. } => bail!("{reason}"),
    };
    let (mut receiving, mut handling) = (Sum::default(), Sum::default());
    for counts in turns.all() {
        let of_load = running.load.as_mut().map(load_turn).transpose()?;
        let (packets, ns) = engine_turn(&mut running.worker)?;
        if counts {
            handling.add(packets, ns);
            if let Some(ns) = of_load {
                receiving.add(turns.packets.into(), ns);
            }
        }
    }
    let receives = running.load.is_some();
    let mode_obtained = running.mode_obtained;
    all_came_through(&runner.end(combination, running)?)?;
    let receiving = if receives {
        Some(receiving.per_packet()? - load)
    } else {
        None
    };
    let handling = handling.per_packet()?;
    Ok(Count {
        combination,
        mode_obtained,
        batch: runner.settings.batch,
        receiving,
        handling,
        instructions_per_packet: receiving.unwrap_or(0.0) + handling,
    })
}

/// Counts the load alone: the same frames into a program that drops them at once.
fn count_load(runner: &Runner<'_>, turns: Turns) -> Result<f64> {
    let Place::Lab(lab) = runner.place else {
        bail!("there is no load outside of a lab");
    };
    let before = lab.app().counters()?;
    let drop = runner.start_sink(lab.app(), Sink::Drop)?;
    let mut load = runner.start_load(lab.load())?;
    let mut sum = Sum::default();
    for counts in turns.all() {
        let ns = load_turn(&mut load)?;
        if counts {
            sum.add(turns.packets.into(), ns);
        }
    }
    let (sent, _) = end_load(load)?;
    end_load(drop)?;
    let received = lab.app().counters()?.since(&before).rx_packets;
    ensure!(
        sent == received,
        "sent by the load ({sent}) is not received by the device ({received})"
    );
    sum.per_packet()
}

fn load_turn(load: &mut Child<'_>) -> Result<u64> {
    load.say("")?;
    match load.expect(TURN)? {
        LoadEvent::Turn { ns } => Ok(ns),
        event => bail!("unexpected event of the load in its turn: {event:?}"),
    }
}

fn engine_turn(worker: &mut Child<'_>) -> Result<(u64, u64)> {
    worker.say("")?;
    match worker.expect(TURN)? {
        Event::Turn { packets, ns } => Ok((packets, ns)),
        event => Err(failed(event)),
    }
}

/// A packet that was dropped on its way was not handled, so the count would be too low.
fn all_came_through(check: &Check) -> Result<()> {
    ensure!(
        check.ok,
        "the packet counts do not add up: {}",
        check.violations.join("; ")
    );
    let counted = &check.counted;
    let dropped = counted.engine.kernel_drops
        + counted.device.tx_dropped
        + counted.device_queue_full.unwrap_or(0);
    ensure!(
        dropped == 0,
        "{dropped} packets were dropped, so the count is not that of all packets"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::check::Counted;

    fn count(bench: Bench, batch: u32) -> Count {
        let combination = Combination {
            bench,
            engine: Engine::Xsk,
            mode: Some(Mode::Drv),
            wait: Wait::Spin,
        };
        let receiving = (bench == Bench::Rxdrop).then_some(288.4);
        Count {
            combination,
            mode_obtained: Some(Mode::Drv),
            batch,
            receiving,
            handling: 37.2,
            instructions_per_packet: receiving.unwrap_or(0.0) + 37.2,
        }
    }

    /// A report of two benches in two batch sizes.
    pub(super) fn report() -> Report {
        Report {
            kernel: "Linux 6.1".into(),
            weir: "0.1.0".into(),
            machine: "QEMU 7".into(),
            size: 64,
            turns: Turns {
                count: 2,
                warmup: 1,
                packets: 8,
            },
            load: 754.9,
            counts: vec![
                count(Bench::Rxdrop, 1),
                count(Bench::Rxdrop, 64),
                count(Bench::Txpush, 1),
                count(Bench::Txpush, 64),
            ],
            unavailable: Vec::new(),
        }
    }

    #[test]
    fn a_dropped_packet_is_an_error() {
        let mut check = Check {
            ok: true,
            ..Check::default()
        };
        all_came_through(&check).expect("none was dropped");
        let drop: [fn(&mut Counted); 3] = [
            |it| it.engine.kernel_drops = 1,
            |it| it.device.tx_dropped = 1,
            |it| it.device_queue_full = Some(1),
        ];
        for drop in drop {
            check.counted = Counted::default();
            drop(&mut check.counted);
            all_came_through(&check).expect_err("one was dropped");
        }
        check.ok = false;
        check.counted = Counted::default();
        all_came_through(&check).expect_err("the sums are wrong");
    }
}
