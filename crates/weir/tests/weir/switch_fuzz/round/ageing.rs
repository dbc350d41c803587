//! The age of addresses: those that send stay, others go.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::{PATIENCE, Round, Stop};
use crate::random::Random;
use crate::switch_fuzz::event::Event;
use crate::switch_fuzz::frame::{self, Mac};
use crate::switch_fuzz::netlink::{BridgeSetting, Entry};
use crate::switch_fuzz::plan::Input;
use crate::switch_fuzz::side::LONG_AGE;

/// The ageing time where addresses shall age, in hundredths of a second.
const AGEING: u32 = 200;
const AGEING_TIME: Duration = Duration::from_millis(AGEING as u64 * 10);

impl Round<'_> {
    /// Lets addresses age in both bridges while some of them talk: these stay, and the others go.
    pub(super) fn age(&mut self) -> Result<(), Stop> {
        if self.is_vlan_aware || self.is_silent {
            return Ok(());
        }
        let speakers = self.speakers()?;
        self.set_ageing(AGEING)?;
        let begin = Instant::now();
        loop {
            let stays = |entry: &Entry| speakers.iter().any(|(mac, _)| *mac == entry.mac);
            let is_over = begin.elapsed() > AGEING_TIME * 2;
            if is_over
                && (0..2).all(|side| self.ageing(side).is_ok_and(|all| all.iter().all(stays)))
            {
                break;
            }
            if begin.elapsed() > AGEING_TIME * 4 + PATIENCE {
                return Err(self.stop("addresses that are silent do not age", &[]));
            }
            for (from, to) in speakers.iter().zip(speakers.iter().cycle().skip(1)) {
                self.say(*from, to.0)?;
            }
            std::thread::sleep(AGEING_TIME / 40);
        }
        self.set_ageing(LONG_AGE)?;
        self.known.clear();
        Ok(())
    }

    pub(super) fn set_ageing(&mut self, time: u32) -> Result<()> {
        let event = Event::Bridge(BridgeSetting::AgeingTime(time));
        for side in &mut self.sides {
            side.apply(&event)?.context("cannot set the ageing time")?;
        }
        self.settle()
    }

    /// One address at each port that the kernel learns from, with the port's place, if there are two.
    pub(super) fn speakers(&mut self) -> Result<Vec<(Mac, usize)>> {
        let mut found: BTreeMap<usize, Mac> = BTreeMap::new();
        for entry in self.ageing(1)? {
            let port = self.sides[1].port_of(entry.device);
            let port = port.filter(|port| {
                self.sides[1].ports[*port].is_live && !self.odd_ports.contains(port)
            });
            if let Some(port) = port.filter(|_| frame::is_host(entry.mac)) {
                found.insert(port, entry.mac);
            }
        }
        let speakers: Vec<(Mac, usize)> =
            found.into_iter().map(|(port, mac)| (mac, port)).collect();
        Ok(if speakers.len() > 1 {
            speakers
        } else {
            Vec::new()
        })
    }

    /// The entries that age, but for those of marks.
    pub(super) fn ageing(&mut self, side: usize) -> Result<Vec<Entry>> {
        let entries = self.sides[side].entries()?.into_iter();
        Ok(entries
            .filter(|entry| entry.ages() && !frame::is_marker(entry.mac))
            .collect())
    }

    pub(super) fn say(&mut self, (from, port): (Mac, usize), to: Mac) -> Result<(), Stop> {
        self.said += 1;
        // Above all numbers of the plan, which must not depend on the time that this takes.
        let number = self.seed << 32 | 1 << 31 | self.said;
        let bytes = frame::plain(to, from, number, &mut Random::new(number));
        self.send(vec![Input { port, bytes }])
    }
}
