//! Bursts right after a change, which the accelerator has not heard of yet: what may not happen even then.

use std::collections::{HashMap, HashSet};

use anyhow::{Context as _, Result};

use super::{Round, Stop};
use crate::switch_fuzz::event::Event;
use crate::switch_fuzz::frame;
use crate::switch_fuzz::netlink::BridgeSetting;
use crate::switch_fuzz::plan::Input;

impl Round<'_> {
    /// Makes a change and sends at once. Outputs are not compared; then both bridges forget what they
    /// have learned, which may not be the same.
    pub(super) fn storm(&mut self, event: &Event, bursts: Vec<Vec<Input>>) -> Result<(), Stop> {
        if matches!(event, Event::Silence(_) | Event::Kill | Event::Age) || self.is_silent {
            return self.event(event);
        }
        let before = self.closed_ports()?;
        self.change(event)?;
        let after = self.closed_ports()?;
        let closed: HashSet<usize> = before.intersection(&after).copied().collect();
        for burst in bursts {
            self.sums.frames += burst.len() as u64;
            for input in &burst {
                // A port that is down refuses it.
                let _ = self.sides[0].send(input.port, &input.bytes);
                let _ = self.sides[1].send(input.port, &input.bytes);
            }
            let ports = burst.iter().map(|input| input.port).collect();
            self.await_marks(&ports, &burst)?;
            let fault = self.impossible(&burst, &closed);
            if let Some(fault) = fault {
                return Err(self.stop(&format!("right after a change: {fault}"), &burst));
            }
            self.sums.unsettled += self.difference.len() as u64;
            self.outputs.clear();
            self.difference.clear();
        }
        for side in &mut self.sides {
            let flush = side.apply(&Event::Bridge(BridgeSetting::Flush))?;
            flush.context("cannot flush a forwarding database")?;
        }
        self.settle()?;
        self.compare_entries()
    }

    /// The ports that no frame may leave by.
    fn closed_ports(&mut self) -> Result<HashSet<usize>> {
        let (_, states) = self.sides[0].states()?;
        let ports = self.sides[0].ports.iter().zip(states).enumerate();
        let closed = ports.filter(|(_, (port, state))| !port.is_live || *state != Some(FORWARDING));
        Ok(closed.map(|(at, _)| at).collect())
    }

    /// The first output of the accelerated bridge that no state of it explains.
    fn impossible(&self, burst: &[Input], closed: &HashSet<usize>) -> Option<String> {
        let sent: HashMap<u64, &Input> = burst
            .iter()
            .filter_map(|input| Some((frame::number(&input.bytes)?, input)))
            .collect();
        let mut copies: HashMap<(u64, usize), u32> = HashMap::new();
        let ports = self.sides[0].ports.len();
        for output in self.outputs.iter().filter(|output| output.side == 0) {
            let Some(number) = frame::number(&output.bytes) else {
                continue;
            };
            let Some(input) = sent.get(&number) else {
                continue;
            };
            let copies = copies.entry((number, output.port)).or_default();
            *copies += 1;
            let fault = if *copies > 1 {
                "came twice"
            } else if output.port < ports && closed.contains(&output.port) {
                "left by a port that is closed"
            } else if output.port == input.port && !self.hairpins.contains(&input.port) {
                "came back"
            } else if !is_same(&output.bytes, &input.bytes) {
                "was changed"
            } else {
                continue;
            };
            return Some(format!(
                "a frame {fault}: port {}: {}",
                output.port,
                frame::describe(&output.bytes)
            ));
        }
        None
    }
}

/// Whether a frame is another one, but for a tag that was added, removed or changed.
fn is_same(output: &[u8], input: &[u8]) -> bool {
    let (plain_output, plain_input) = (frame::untagged(output), frame::untagged(input));
    plain_output == plain_input || plain_output == input || output == plain_input
}

/// `BR_STATE_FORWARDING`
const FORWARDING: u8 = 3;
