//! Rounds of a move, one after another: through a measured window, or in turns.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::Failure;
use super::moves::{Inspect, Moves, Round, Source};
use super::protocol::{Event, Totals};
use crate::process::clock::thread_cpu_ns;
use crate::process::usage::CpuTime;
use crate::traffic::frame::{APP_MAC, LOAD_MAC, Template};
use crate::traffic::turns;

/// Rounds between two checks of the clock, so that the check costs nothing at saturation.
const ROUNDS_PER_CHECK: u32 = 64;

/// Without a packet for this long, a receiver has drained.
const QUIET: Duration = Duration::from_millis(50);

/// CPU time that a receiver takes to drain, at most: some tens of thousands of short packets, in the 8 MiB of a ring of
/// AF_PACKET, take a fraction of it. Traffic that is not the bench's goes on.
const DRAIN_CPU: Duration = Duration::from_secs(1);

/// The longest that draining takes: the CPU may be shared, and the ring full.
const DRAIN: Duration = Duration::from_secs(10);

/// The length and the end of a run.
#[derive(Debug, Clone, Copy)]
pub struct Rounds<'a> {
    /// Length of the frames to send, without the FCS.
    pub size: usize,
    /// Time from the first packet to the window.
    pub warmup: Duration,
    /// Time that is measured.
    pub window: Duration,
    /// Packets in a turn: if set, turns take the place of the window.
    pub turn: Option<u32>,
    /// Set by SIGTERM.
    pub stop: &'a AtomicBool,
}

impl Rounds<'_> {
    /// Receives and drops; each frame is shown to `inspect`.
    pub fn receive<M: Moves>(
        &self,
        socket: &mut M,
        inspect: &mut impl Inspect,
    ) -> Result<Totals, Failure> {
        let mut totals = match self.turn {
            Some(turn) => take_turns(turn, socket, |socket| socket.receive(inspect))?,
            None => self.measure(Phase::Idle, || socket.receive(inspect), |t| t.received)?,
        };
        drain(&mut totals, || socket.receive(inspect))?;
        Ok(totals)
    }

    /// Sends back each frame that it receives; each is shown to `inspect`.
    pub fn forward<M: Moves>(
        &self,
        socket: &mut M,
        inspect: &mut impl Inspect,
    ) -> Result<Totals, Failure> {
        let mut totals = match self.turn {
            Some(turn) => take_turns(turn, socket, |socket| socket.forward(inspect))?,
            None => self.measure(Phase::Idle, || socket.forward(inspect), |t| t.sent)?,
        };
        // Packets from before the end are still forwarded: received and sent end up equal.
        drain(&mut totals, || socket.forward(inspect))?;
        complete(&mut totals, || Ok((socket.complete()?, socket.in_flight())))?;
        Ok(totals)
    }

    /// Sends.
    pub fn send<M: Moves>(&self, socket: &mut M) -> Result<Totals, Failure> {
        let template = Template::new(self.size, APP_MAC, LOAD_MAC).map_err(|error| Failure {
            step: "frame",
            errno: 0,
            message: error.to_string(),
        })?;
        let mut source = Source::new(template);
        let start = Instant::now();
        let mut totals = match self.turn {
            Some(turn) => take_turns(turn, socket, |socket| socket.send(&mut source))?,
            None => self.measure(
                Phase::WarmUp { start },
                || socket.send(&mut source),
                |t| t.sent,
            )?,
        };
        complete(&mut totals, || Ok((socket.complete()?, socket.in_flight())))?;
        Ok(totals)
    }

    /// Runs rounds until SIGTERM, and prints the window's figures on the way.
    #[inline]
    fn measure(
        &self,
        phase: Phase,
        mut round: impl FnMut() -> Result<Round, Failure>,
        handled: impl Fn(&Totals) -> u64,
    ) -> Result<Totals, Failure> {
        let mut totals = Totals::default();
        let mut meter = Meter {
            warmup: self.warmup,
            window: self.window,
            phase,
        };
        let mut rounds = 0u32;
        while !self.stop.load(Ordering::Relaxed) {
            let done = round()?;
            add(&mut totals, done);
            rounds = rounds.wrapping_add(1);
            if done.timed_out || rounds.is_multiple_of(ROUNDS_PER_CHECK) {
                meter.update(handled(&totals))?;
            }
        }
        Ok(totals)
    }
}

#[inline]
fn add(totals: &mut Totals, round: Round) {
    totals.received += round.received;
    totals.sent += round.completed;
}

/// Handles `turn` packets whenever it is this process's turn. A packet that is not there yet, such
/// as one in a block of AF_PACKET that is not full, is left for the next turn: nothing waits in a
/// turn.
fn take_turns<M: Moves>(
    turn: u32,
    socket: &mut M,
    mut round: impl FnMut(&mut M) -> Result<Round, Failure>,
) -> Result<Totals, Failure> {
    let mut totals = Totals::default();
    let mut due = 0;
    while turns::granted().map_err(|error| Failure::new("stdin", &error, "this is a defect"))? {
        due += u64::from(turn);
        let before = begun(&totals, socket);
        let start = thread_cpu_ns();
        while begun(&totals, socket) < due {
            let done = round(socket)?;
            add(&mut totals, done);
            if done.received == 0 && done.completed == 0 {
                break;
            }
        }
        while socket.in_flight() > 0 {
            let done = socket.complete()?;
            add(&mut totals, done);
            if done.completed == 0 {
                break;
            }
        }
        let ns = thread_cpu_ns() - start;
        let packets = begun(&totals, socket) - before;
        Event::Turn { packets, ns }.print()?;
    }
    Ok(totals)
}

/// Packets received or, by a sender, handed over for sending.
fn begun(totals: &Totals, socket: &impl Moves) -> u64 {
    totals.received.max(totals.sent + socket.in_flight())
}

/// Runs rounds until no packet came for [`QUIET`], for [`DRAIN_CPU`] and [`DRAIN`] at most.
fn drain(
    totals: &mut Totals,
    mut round: impl FnMut() -> Result<Round, Failure>,
) -> Result<(), Failure> {
    let start = Instant::now();
    let cpu_end = thread_cpu_ns() + DRAIN_CPU.as_nanos() as u64;
    let mut last_packet = start;
    loop {
        let done = round()?;
        add(totals, done);
        let now = Instant::now();
        if done.received > 0 {
            last_packet = now;
        }
        let late = now - start >= DRAIN || thread_cpu_ns() >= cpu_end;
        if late || now - last_packet >= QUIET {
            return Ok(());
        }
    }
}

/// Runs rounds until nothing is in flight, for [`DRAIN`] at most.
fn complete(
    totals: &mut Totals,
    mut round: impl FnMut() -> Result<(Round, u64), Failure>,
) -> Result<(), Failure> {
    let start = Instant::now();
    loop {
        let (done, in_flight) = round()?;
        add(totals, done);
        if in_flight == 0 || start.elapsed() >= DRAIN {
            return Ok(());
        }
    }
}

/// Waits for the first packet, then for the warm-up, then measures one window.
struct Meter {
    warmup: Duration,
    window: Duration,
    phase: Phase,
}

enum Phase {
    Idle,
    WarmUp { start: Instant },
    Window { start: Sample },
    Over,
}

struct Sample {
    time: Instant,
    cpu: CpuTime,
    handled: u64,
}

impl Sample {
    fn take(handled: u64) -> Result<Self, Failure> {
        let cpu = CpuTime::of_this_process()
            .map_err(|error| Failure::new("getrusage", &error, "this is a defect"))?;
        Ok(Self {
            time: Instant::now(),
            cpu,
            handled,
        })
    }
}

impl Meter {
    /// Enters the next phase if it is time. `handled` is the number of packets since the start.
    fn update(&mut self, handled: u64) -> Result<(), Failure> {
        match &self.phase {
            Phase::Idle if handled > 0 => {
                let start = Instant::now();
                self.phase = Phase::WarmUp { start };
            }
            Phase::WarmUp { start } if start.elapsed() >= self.warmup => {
                let start = Sample::take(handled)?;
                self.phase = Phase::Window { start };
            }
            Phase::Window { start } if start.time.elapsed() >= self.window => {
                window(start, &Sample::take(handled)?).print()?;
                self.phase = Phase::Over;
            }
            _ => {}
        }
        Ok(())
    }
}

fn window(start: &Sample, end: &Sample) -> Event {
    let ns = |time: Duration| time.as_nanos() as u64;
    Event::Window {
        packets: end.handled - start.handled,
        seconds: (end.time - start.time).as_secs_f64(),
        user_ns: ns(end.cpu.user.saturating_sub(start.cpu.user)),
        sys_ns: ns(end.cpu.system.saturating_sub(start.cpu.system)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(received: u64, completed: u64) -> Round {
        Round {
            received,
            completed,
            ..Round::default()
        }
    }

    #[test]
    fn draining_waits_for_quiet() {
        let mut totals = Totals::default();
        let mut left = 3;
        let start = Instant::now();
        drain(&mut totals, || {
            let received = u64::from(left > 0);
            left -= received;
            Ok(one(received, 0))
        })
        .expect("no failure");
        assert_eq!(totals.received, 3);
        assert!(start.elapsed() >= QUIET);
    }

    #[test]
    fn draining_ends_while_packets_come() {
        let mut totals = Totals::default();
        let start = thread_cpu_ns();
        drain(&mut totals, || Ok(one(1, 0))).expect("no failure");
        assert!(thread_cpu_ns() - start < 2 * DRAIN_CPU.as_nanos() as u64);
        assert!(totals.received > 0);
    }

    #[test]
    fn what_is_in_flight_is_completed() {
        let mut totals = Totals::default();
        let mut left = 3;
        complete(&mut totals, || {
            left -= 1;
            Ok((one(0, 1), left))
        })
        .expect("no failure");
        assert_eq!(totals.sent, 3);
    }
}
