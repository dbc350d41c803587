//! Bursts: sent into both bridges, awaited, and compared.

use std::collections::{HashMap, HashSet};

use anyhow::Result;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use testkit::Limit;

use super::{Key, Output, Round, Sent, Stop};
use crate::switch_fuzz::event::Hook;
use crate::switch_fuzz::frame;
use crate::switch_fuzz::plan::Input;
use crate::switch_fuzz::side::Side;

/// Lengths of frames that get to the bridge, whatever their port's MTU is.
const SURE: std::ops::RangeInclusive<usize> = 60..=1280;
/// Frames that are kept for reports.
const LAST_FRAMES: usize = 4096;

impl Round<'_> {
    /// Sends a burst and compares the outputs. Frames from several ports may come to the bridge in
    /// another order than they were sent, so they are sent together only if that makes no
    /// difference.
    pub(super) fn burst(&mut self, burst: Vec<Input>) -> Result<(), Stop> {
        let mut group = Vec::new();
        let mut ports = HashSet::new();
        let mut are_known = true;
        for input in burst {
            let is_known = self.is_known(&input);
            let is_alone = ports.is_empty() || (ports.len() == 1 && ports.contains(&input.port));
            if !(is_alone || (are_known && is_known)) {
                self.send(std::mem::take(&mut group))?;
                ports.clear();
                are_known = true;
            }
            are_known &= is_known;
            ports.insert(input.port);
            group.push(input);
        }
        self.send(group)
    }

    /// The same where the order is free: frames with which the bridge learns come first, by port.
    pub(super) fn free_burst(&mut self, burst: Vec<Input>) -> Result<(), Stop> {
        let (known, mut new): (Vec<_>, Vec<_>) =
            burst.into_iter().partition(|input| self.is_known(input));
        new.sort_by_key(|input| input.port);
        self.burst(new)?;
        self.burst(known)
    }

    /// All that learning depends on.
    pub(super) fn key(&self, input: &Input) -> Key {
        let bytes = &input.bytes;
        let is_control = frame::destination(bytes)[..5] == frame::CONTROL[..5];
        let (ethertype, tci) = frame::tag(bytes);
        let tag = if self.is_vlan_aware {
            (ethertype, tci & 0xfff)
        } else {
            (0, 0)
        };
        (frame::source(bytes), tag, is_control, input.port)
    }

    pub(super) fn is_known(&self, input: &Input) -> bool {
        self.known.contains(&self.key(input))
    }

    /// Sends a part of a burst, waits until both bridges have done with it, and compares.
    pub(super) fn send(&mut self, group: Vec<Input>) -> Result<(), Stop> {
        if group.is_empty() {
            return Ok(());
        }
        for input in &group {
            let results = [0, 1].map(|side| {
                let sent = self.sides[side].send(input.port, &input.bytes);
                sent.err().map(|error| error.to_string())
            });
            if results[0] != results[1] {
                let text = format!("sending had different results: {results:?}");
                return Err(self.stop(&text, std::slice::from_ref(input)));
            }
        }
        self.sums.frames += group.len() as u64;
        let ports: HashSet<usize> = group.iter().map(|input| input.port).collect();
        self.await_marks(&ports, &group)?;
        self.await_equal("", &group)?;
        self.count_reordered(&group);
        self.outputs.clear();
        let needs_settling = group.iter().any(|input| {
            let hook = self.attached.get(input.port);
            !self.is_known(input) && !matches!(hook, Some(Hook::Xdp | Hook::Tcx))
        });
        for input in group {
            let key = self.key(&input);
            // The kernel drops some that are too short or too long before it learns from them.
            let is_learned = SURE.contains(&input.bytes.len());
            if is_learned && !self.known.contains(&key) {
                self.known
                    .retain(|known| known.0 != key.0 || known.3 == key.3);
                self.known.insert(key);
            }
            self.remember(input);
        }
        if needs_settling {
            self.revive()?;
            self.settle()?;
        }
        Ok(())
    }

    pub(super) fn remember(&mut self, input: Input) {
        if self.frames.len() == LAST_FRAMES {
            self.frames.pop_front();
        }
        self.frames.push_back(Sent {
            step: self.sums.steps,
            group: self.marks,
            port: input.port,
            bytes: input.bytes,
        });
    }

    /// Sends a mark after the frames of each of these ports, and when all have come to the bridge,
    /// one from each port to its far end. The frames before them are where they go by then: all are
    /// handled on this thread's CPU, in their order.
    pub(super) fn await_marks(
        &mut self,
        from: &HashSet<usize>,
        group: &[Input],
    ) -> Result<(), Stop> {
        self.marks += 1;
        let number = self.marks;
        let mut missing = HashSet::new();
        for (at, side) in self.sides.iter().enumerate() {
            for &port in from {
                if side.ports.get(port).is_some_and(|port| port.is_live) {
                    side.send(port, &frame::mark(frame::marker(port), number))?;
                    missing.insert((at, port));
                }
            }
        }
        self.await_each(
            missing,
            "did not come to the bridge",
            group,
            |round, at, port| {
                let mut is_there = false;
                round.sides[at].drain_control(port, &mut round.batch, |bytes| {
                    is_there |= frame::mark_number(&bytes) == Some(number);
                })?;
                Ok(is_there)
            },
        )?;
        let mut missing = HashSet::new();
        for (at, side) in self.sides.iter().enumerate() {
            for (number_of_port, port) in side.ports.iter().enumerate() {
                if port.is_live {
                    side.send_out(
                        number_of_port,
                        &frame::mark(frame::port(number_of_port), number),
                    )?;
                    missing.insert((at, number_of_port));
                }
            }
        }
        self.await_each(
            missing,
            "did not come to the far end",
            group,
            |round, at, port| round.collect_from(at, port, number),
        )?;
        // The host has no mark: all that comes to it has come.
        for at in 0..2 {
            let host = self.sides[at].ports.len();
            self.collect_from(at, host, number)?;
        }
        Ok(())
    }

    pub(super) fn await_each(
        &mut self,
        mut missing: HashSet<(usize, usize)>,
        what: &str,
        group: &[Input],
        mut is_there: impl FnMut(&mut Self, usize, usize) -> Result<bool>,
    ) -> Result<(), Stop> {
        let mut limit = Limit::new(self.patience());
        loop {
            let mut still = HashSet::new();
            for &(side, port) in &missing {
                if !is_there(self, side, port)? {
                    still.insert((side, port));
                }
            }
            if still.len() < missing.len() {
                limit = Limit::new(self.patience());
            }
            missing = still;
            if missing.is_empty() {
                return Ok(());
            }
            if limit.is_over() {
                let name = |(side, port): &(usize, usize)| {
                    format!("port {port} {}", self.sides[*side].name)
                };
                let ports: Vec<String> = missing.iter().map(name).collect();
                let text = format!("the mark after the frames {what}: {}", ports.join(", "));
                return Err(self.stop(&text, group));
            }
            self.wait()?;
        }
    }

    /// Waits until a socket has something, for a moment at most.
    pub(super) fn wait(&self) -> Result<()> {
        let sockets = self.sides.iter().flat_map(Side::sockets);
        let mut sockets: Vec<_> = sockets
            .map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN))
            .collect();
        let moment = Timespec {
            tv_sec: 0,
            tv_nsec: 2_000_000,
        };
        poll(&mut sockets, Some(&moment))?;
        Ok(())
    }

    /// Takes what has come out of a port; whether the mark with this number is among it.
    pub(super) fn collect_from(&mut self, side: usize, port: usize, number: u64) -> Result<bool> {
        let mut is_there = false;
        let sign = if side == 0 { 1 } else { -1 };
        let (difference, outputs) = (&mut self.difference, &mut self.outputs);
        let background = &mut self.sums.background;
        self.sides[side].drain(port, &mut self.batch, |bytes| {
            if let Some(mark) = frame::mark_number(&bytes) {
                is_there |= mark == number;
                return;
            }
            if is_background(&bytes) {
                *background += 1;
                return;
            }
            outputs.push(Output {
                side,
                port,
                bytes: bytes.clone(),
            });
            let key = (port, bytes);
            let count = difference.entry(key.clone()).or_default();
            *count += sign;
            if *count == 0 {
                difference.remove(&key);
            }
        })?;
        Ok(is_there)
    }

    pub(super) fn collect(&mut self) -> Result<()> {
        for side in 0..2 {
            for port in 0..=self.sides[side].ports.len() {
                self.collect_from(side, port, 0)?;
            }
        }
        Ok(())
    }

    /// Waits until the outputs are equal.
    pub(super) fn await_equal(&mut self, what: &str, group: &[Input]) -> Result<(), Stop> {
        if self.difference.is_empty() {
            self.sums.outputs += self.outputs.len() as u64 / 2;
            return Ok(());
        }
        let mut limit = Limit::new(self.patience());
        let mut seen = self.outputs.len();
        loop {
            self.wait()?;
            self.collect()?;
            if self.difference.is_empty() {
                self.sums.late += 1;
                self.sums.outputs += self.outputs.len() as u64 / 2;
                return Ok(());
            }
            if self.outputs.len() > seen {
                seen = self.outputs.len();
                limit = Limit::new(self.patience());
            }
            if limit.is_over() {
                let text = format!("the outputs differ {what}");
                return Err(self.stop(&text, group));
            }
        }
    }

    /// Counts, by side, the frames that came before one that was sent earlier between the same
    /// ports and addresses.
    pub(super) fn count_reordered(&mut self, group: &[Input]) {
        let mut sent = HashMap::new();
        for (at, input) in group.iter().enumerate() {
            if let Some(number) = frame::number(&input.bytes) {
                sent.insert(number, (at, input.port));
            }
        }
        let mut latest = HashMap::new();
        for output in &self.outputs {
            let number = frame::number(&output.bytes);
            let Some(&(at, from)) = number.and_then(|number| sent.get(&number)) else {
                continue;
            };
            let addresses = (
                frame::source(&output.bytes),
                frame::destination(&output.bytes),
            );
            let latest = latest
                .entry((output.side, from, output.port, addresses))
                .or_insert(at);
            if at < *latest {
                self.sums.reordered[output.side] += 1;
            }
            *latest = at.max(*latest);
        }
    }
}

/// Frames of the kernel's own, which have no number and come from the bridge itself: reports of
/// the groups that a snooping bridge is in.
fn is_background(bytes: &[u8]) -> bool {
    bytes.len() >= frame::HEADER
        && frame::number(bytes).is_none()
        && frame::source(bytes)[..5] == frame::bridge(0)[..5]
        && frame::destination(bytes)[0] & 1 == 1
}
