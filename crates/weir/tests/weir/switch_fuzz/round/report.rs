//! The report of a difference.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

use anyhow::Result;

use super::{Round, Sent, Stop};
use crate::switch_fuzz::frame::{self, Mac};
use crate::switch_fuzz::netlink::Entry;
use crate::switch_fuzz::plan::Input;
use crate::switch_fuzz::side::BRIDGE;

impl Round<'_> {
    pub(super) fn entries_in_words(&mut self, side: usize) -> Result<BTreeMap<String, String>> {
        let entries = self.sides[side].entries()?;
        let side = &self.sides[side];
        let words = |entry: &Entry| {
            let port = match side.port_of(entry.device) {
                Some(port) => format!("port {port}"),
                None if entry.device == side.bridge => BRIDGE.into(),
                None => "no port".into(),
            };
            let sticky = if entry.sticky { " sticky" } else { "" };
            (
                format!("{} VLAN {} {port}", frame::mac(entry.mac), entry.vlan),
                format!("state {:#x}{sticky}", entry.state),
            )
        };
        Ok(entries.iter().map(words).collect())
    }

    /// The report of a difference.
    pub(super) fn stop(&mut self, what: &str, group: &[Input]) -> Stop {
        match self.report(what, group) {
            Ok(text) => Stop::Difference(text),
            Err(error) => Stop::Error(error.context(format!("cannot report that {what}"))),
        }
    }

    pub(super) fn report(&mut self, what: &str, group: &[Input]) -> Result<String> {
        let mut text = format!("seed {}, step {}: {what}\n", self.seed, self.sums.steps);
        writeln!(
            text,
            "ports: {:?}, hooks {:?}",
            self.plan.setup(),
            self.hooks
        )?;
        writeln!(text, "last events:")?;
        for event in &self.events {
            writeln!(text, "  {event}")?;
        }
        writeln!(text, "would be taken back: {:?}", self.plan.pending())?;
        self.report_frames(group, &mut text)?;
        self.report_history(group, &mut text)?;
        self.report_entries(&mut text)?;
        for side in &mut self.sides {
            let name = side.name;
            let states: Vec<_> = side.states()?.1;
            writeln!(text, "states of the ports, {name}: {states:?}")?;
        }
        if let Some(accelerator) = &self.accelerator {
            let status = accelerator.status();
            writeln!(
                text,
                "status: {}",
                status.unwrap_or_else(|error| format!("{error:#}"))
            )?;
        }
        Ok(text)
    }

    /// The latest frames from the addresses of the frames whose outputs differ.
    pub(super) fn report_history(&self, group: &[Input], text: &mut String) -> Result<()> {
        let keys = self.difference.keys();
        let macs: HashSet<Mac> = keys
            .flat_map(|(_, bytes)| [frame::source(bytes), frame::destination(bytes)])
            .collect();
        for mac in macs {
            writeln!(text, "the latest frames from {}:", frame::mac(mac))?;
            for (at, input) in group.iter().enumerate() {
                if frame::source(&input.bytes) == mac {
                    writeln!(
                        text,
                        "  now, {}: port {}: {}",
                        at + 1,
                        input.port,
                        frame::describe(&input.bytes)
                    )?;
                }
            }
            let sent = self.frames.iter().rev();
            for sent in sent
                .filter(|sent| frame::source(&sent.bytes) == mac)
                .take(6)
            {
                let Sent {
                    step,
                    group,
                    port,
                    bytes,
                } = sent;
                writeln!(
                    text,
                    "  step {step}, part {group} of {}: port {port}: {}",
                    self.marks,
                    frame::describe(bytes)
                )?;
            }
        }
        Ok(())
    }

    /// The entries that are not equal, and those of the addresses that the report has so far.
    pub(super) fn report_entries(&mut self, text: &mut String) -> Result<()> {
        let above = text.clone();
        for at in 0..2 {
            let name = self.sides[at].name;
            writeln!(text, "forwarding database, {name}, as far as it matters:")?;
            let other = self.entries_in_words(1 - at)?;
            for (entry, state) in self.entries_in_words(at)? {
                let is_equal = other.get(&entry) == Some(&state);
                let mac = entry.split(' ').next().unwrap_or_default();
                if !is_equal || above.contains(mac) {
                    let mark = if is_equal { " " } else { "*" };
                    writeln!(text, "  {mark} {entry} {state}")?;
                }
            }
        }
        Ok(())
    }

    /// Each frame whose outputs differ, with its outputs.
    pub(super) fn report_frames(&self, group: &[Input], text: &mut String) -> Result<()> {
        let mut reported = HashSet::new();
        for (_, bytes) in self.difference.keys() {
            let number = frame::number(bytes);
            if !reported.insert(number.map_or_else(|| Err(bytes.clone()), Ok)) || reported.len() > 8
            {
                continue;
            }
            let is_same = |other: &[u8]| {
                other == &bytes[..] || (number.is_some() && frame::number(other) == number)
            };
            let position = group.iter().position(|input| is_same(&input.bytes));
            let earlier = self.frames.iter().rev().find(|sent| is_same(&sent.bytes));
            match (position, earlier) {
                (Some(at), _) => {
                    let input = &group[at];
                    writeln!(
                        text,
                        "frame {} of {} from port {}: {}",
                        at + 1,
                        group.len(),
                        input.port,
                        frame::describe(&input.bytes)
                    )?;
                    writeln!(text, "  {}", frame::hex(&input.bytes))?;
                }
                (None, Some(Sent { port, bytes, .. })) => {
                    writeln!(
                        text,
                        "an earlier frame, from port {port}: {}",
                        frame::describe(bytes)
                    )?;
                    writeln!(text, "  {}", frame::hex(bytes))?;
                }
                (None, None) => writeln!(
                    text,
                    "a frame that nobody sent: {}\n  {}",
                    frame::describe(bytes),
                    frame::hex(bytes)
                )?,
            }
            for (side, name) in self.sides.iter().map(|side| side.name).enumerate() {
                let came = self
                    .outputs
                    .iter()
                    .filter(|output| output.side == side && is_same(&output.bytes));
                let came: Vec<String> = came
                    .map(|output| {
                        format!("port {} {}", output.port, frame::describe(&output.bytes))
                    })
                    .collect();
                writeln!(
                    text,
                    "  {name}: {}",
                    if came.is_empty() {
                        "nothing".into()
                    } else {
                        came.join("; ")
                    }
                )?;
            }
        }
        if reported.is_empty() {
            for input in group.iter().take(8) {
                writeln!(
                    text,
                    "frame from port {}: {}\n  {}",
                    input.port,
                    frame::describe(&input.bytes),
                    frame::hex(&input.bytes)
                )?;
            }
        }
        Ok(())
    }
}
