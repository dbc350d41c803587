//! A host that moves from port to port while another one sends to it without a pause.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use testkit::{Batch, Limit};

use crate::random::Random;
use crate::switch_fuzz::accelerate::{Accelerator, Outliving};
use crate::switch_fuzz::event::Hook;
use crate::switch_fuzz::frame;
use crate::switch_fuzz::side::{Kind, Setup, Side};
use crate::{SOON, until};

const MOVES: usize = 100;
/// From one move to the next.
const PAUSE: Duration = Duration::from_millis(5);
/// The port of the host that sends; the other one is at port 0 or 1.
const SENDER: usize = 2;
/// Frames that may still be on their way to the bridge when the host moves.
const UNDER_WAY: u64 = 512;
/// The number of the first frame of the host that moves.
const ANSWERS: u64 = 1 << 40;
/// When none comes for this time, the rest is lost.
const SILENCE: Duration = Duration::from_secs(1);

/// A move, by the numbers of the frames that were sent.
struct Move {
    to: usize,
    /// Frames from this one on may meet the new port.
    begun: u64,
    /// Frames after this one must.
    done: u64,
}

/// The frames of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub sent: u64,
    /// That came to neither port.
    pub lost: u64,
    /// That came to both ports, or twice to one.
    pub twice: u64,
    /// That came to the old port after the move.
    pub misled: u64,
}

/// Moves the host again and again, with the hook of all ports or without an accelerator. One with a defect
/// does not hear of the moves, so that the programs alone can follow them.
pub fn run(hook: Option<Hook>, defect: Option<&str>) -> Result<Outcome> {
    let setup = Setup {
        kinds: vec![Kind::VethGro, Kind::VethGro, Kind::VethGro],
        snooping: false,
        threaded: false,
    };
    let mut side = Side::new("bridge", &setup)?;
    await_live(&mut side)?;
    let outliving = Outliving::new()?;
    let hooks = hook.map(|hook| [hook; 3]);
    let accelerator = hooks
        .map(|hooks| Accelerator::attach(side.inside(), &hooks, defect, &outliving.keep()?))
        .transpose()?;
    let mut run = Run {
        side: &side,
        batch: Batch::new(),
        answers: 0,
        came: BTreeMap::new(),
    };
    run.say(0)?;
    side.send(SENDER, &to_the_mover(u64::MAX))?;
    if let Some(accelerator) = &accelerator {
        accelerator.settle()?;
        accelerator.silence(defect.is_some())?;
    }
    let (sent, moves) = run.load()?;
    Ok(run.outcome(sent, &moves))
}

fn await_live(side: &mut Side) -> Result<()> {
    until("the ports come up", || {
        Ok(side.states()?.0 && side.ports.iter().all(|port| port.is_live))
    })
}

fn to_the_mover(number: u64) -> Vec<u8> {
    frame::plain(frame::host(0), frame::host(1), number, &mut Random::new(1))
}

struct Run<'a> {
    side: &'a Side,
    batch: Batch,
    answers: u64,
    /// The ports that each frame came to.
    came: BTreeMap<u64, Vec<usize>>,
}

impl Run<'_> {
    /// Sends all the time; returns the number of frames, and the moves.
    fn load(&mut self) -> Result<(u64, Vec<Move>)> {
        let (next, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let side = self.side;
        thread::scope(|scope| {
            let sender = scope.spawn(|| -> Result<()> {
                while !over.load(Ordering::Relaxed) {
                    let number = next.load(Ordering::Relaxed);
                    side.send(SENDER, &to_the_mover(number))?;
                    // This thread alone changes it; the other one sees it late at most.
                    next.store(number + 1, Ordering::SeqCst);
                }
                Ok(())
            });
            let moves = self.moves(&next);
            over.store(true, Ordering::Relaxed);
            let sent = sender.join();
            sent.map_err(|_| anyhow::anyhow!("the sender broke down"))??;
            let sent = next.load(Ordering::SeqCst);
            self.await_last(sent)?;
            Ok((sent, moves?))
        })
    }

    fn moves(&mut self, next: &AtomicU64) -> Result<Vec<Move>> {
        let mut moves = Vec::new();
        for number in 0..MOVES {
            let pause = Instant::now();
            while pause.elapsed() < PAUSE || !has_moved_on(&moves, next) {
                self.collect()?;
            }
            let to = (number + 1) % 2;
            let begun = next.load(Ordering::SeqCst);
            self.say(to)?;
            moves.push(Move {
                to,
                begun,
                done: next.load(Ordering::SeqCst),
            });
        }
        Ok(moves)
    }

    /// The host that moves sends from a port, and the bridge has handled that.
    fn say(&mut self, port: usize) -> Result<()> {
        self.answers += 1;
        let number = ANSWERS + self.answers;
        let bytes = frame::plain(frame::host(1), frame::host(0), number, &mut Random::new(2));
        self.side.send(port, &bytes)?;
        // Without a pause, in which the frames of the sender go on.
        let mut limit = Limit::new(SOON);
        while !self.came.contains_key(&number) {
            self.collect()?;
            ensure!(!limit.is_over(), "the frame of the move is lost");
        }
        Ok(())
    }

    fn collect(&mut self) -> Result<()> {
        for port in 0..self.side.ports.len() {
            let came = &mut self.came;
            self.side.drain(port, &mut self.batch, |bytes| {
                if let Some(number) = frame::number(&bytes) {
                    came.entry(number).or_default().push(port);
                }
            })?;
        }
        Ok(())
    }

    /// Nothing comes for a while after the last frame, or it has come.
    fn await_last(&mut self, sent: u64) -> Result<()> {
        let mut limit = Limit::new(SILENCE);
        let mut seen = 0;
        while !limit.is_over() && !self.came.contains_key(&sent.saturating_sub(1)) {
            self.collect()?;
            if self.came.len() > seen {
                seen = self.came.len();
                limit = Limit::new(SILENCE);
            }
        }
        self.collect()
    }

    fn outcome(&self, sent: u64, moves: &[Move]) -> Outcome {
        let mut outcome = Outcome {
            sent,
            ..Outcome::default()
        };
        for number in 0..sent {
            match self.came.get(&number).map(Vec::as_slice) {
                None => outcome.lost += 1,
                Some(&[port]) => outcome.misled += u64::from(is_misled(number, port, moves)),
                Some(_) => outcome.twice += 1,
            }
        }
        outcome
    }
}

/// Whether enough was sent since the last move to tell one from the next.
fn has_moved_on(moves: &[Move], next: &AtomicU64) -> bool {
    let since = moves.last().map_or(0, |last| last.done);
    next.load(Ordering::SeqCst) > since + 2 * UNDER_WAY
}

/// Whether a frame came to the port that the host had left before it was sent.
fn is_misled(number: u64, port: usize, moves: &[Move]) -> bool {
    let at = moves.partition_point(|it| it.done < number);
    let Some(last) = at.checked_sub(1).map(|at| &moves[at]) else {
        return false;
    };
    let next = moves.get(at).map_or(u64::MAX, |next| next.begun);
    port != last.to && number + UNDER_WAY < next
}
