//! Instructions a packet: the same benches on a machine of one CPU whose clock counts instructions
//! (QEMU with `-icount shift=0`), where they come out the same in every run.
//!
//! Load and engine take [turns](super::turns), so that neither waits for the other, and of each the
//! CPU time of its turns is taken. Work before and after, and the scheduler's work in
//! between, is in no figure.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use serde::Serialize;

use super::check::Check;
use super::plan::{Combination, Unavailable};
use super::runner::{Outcome, Place, Runner, end_load, failed};
use crate::engine::Mode;
use crate::engine::protocol::Event;
use crate::process::child::Child;
use crate::traffic::load::LoadEvent;
use crate::traffic::programs::Sink;

/// The longest that a turn takes, by the clock of the machine.
const TURN: Duration = Duration::from_secs(10);

/// How much is counted.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Turns {
    /// Turns that are counted.
    pub count: u32,
    /// Turns before those, in which one-time work such as making memory present is done.
    pub warmup: u32,
    /// Packets in each.
    pub packets: u32,
}

/// The counts; their JSON form.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The kernel that the packets went through.
    pub kernel: String,
    /// The version of weir.
    pub weir: String,
    /// Other things that the figures depend on, as named by the caller.
    pub machine: String,
    /// Frame length without the FCS.
    pub size: u16,
    /// How much was counted.
    pub turns: Turns,
    /// Instructions for one packet of the load, into a program that drops it at once.
    pub load: f64,
    /// One figure for each way and batch.
    pub counts: Vec<Count>,
    /// Missing engines and modes, with the reason.
    pub unavailable: Vec<Unavailable>,
}

/// The instructions for one packet.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Count {
    /// The counts of one combination.
    #[serde(flatten)]
    pub combination: Combination,
    /// The mode that the kernel reports.
    pub mode_obtained: Option<Mode>,
    /// Packets handled at once, at most.
    pub batch: u32,
    /// In the turns of the load, without the price of the load itself: the kernel's work on a
    /// packet until the socket has it. `None` in a bench that receives nothing.
    pub receiving: Option<f64>,
    /// In the turns of the engine: its own and, in its system calls, the kernel's.
    pub handling: f64,
    /// Both.
    pub instructions_per_packet: f64,
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

impl Turns {
    /// The number of each turn, and whether it counts.
    fn all(self) -> impl Iterator<Item = bool> {
        (0..self.warmup + self.count).map(move |turn| turn >= self.warmup)
    }
}

/// Counts one combination; `load` is the price of its load alone.
pub fn count(
    runner: &Runner<'_>,
    turns: Turns,
    load: f64,
    combination: Combination,
) -> Result<Count> {
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
    all_came_through(&runner.end(combination.bench, running)?)?;
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
pub fn count_load(runner: &Runner<'_>, turns: Turns) -> Result<f64> {
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
        event => bail!("the load said {event:?} in its turn"),
    }
}

fn engine_turn(worker: &mut Child<'_>) -> Result<(u64, u64)> {
    worker.say("")?;
    match worker.expect(TURN)? {
        Event::Turn { packets, ns } => Ok((packets, ns)),
        event => Err(failed(event)),
    }
}

/// A packet that was dropped on its way was not handled, so its price would be too low.
fn all_came_through(check: &Check) -> Result<()> {
    ensure!(
        check.ok,
        "the numbers do not add up: {}",
        check.violations.join("; ")
    );
    let counted = &check.counted;
    let dropped = counted.engine.kernel_drops
        + counted.device.tx_dropped
        + counted.device_queue_full.unwrap_or(0);
    ensure!(
        dropped == 0,
        "{dropped} packets were dropped, so this is not the price of all"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::check::Counted;

    #[test]
    fn the_first_turns_do_not_count() {
        let turns = Turns {
            count: 2,
            warmup: 1,
            packets: 8,
        };
        assert_eq!(turns.all().collect::<Vec<_>>(), [false, true, true]);
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
